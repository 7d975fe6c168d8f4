//! The standard output and the standard error output.
//!
//! Owns: nothing; the descriptors are the process's. Thread: any.
//!
//! They stay in the mode that they are in: as the input, they may be a terminal that other processes share.

use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::io::{Errno, ReadWriteFlags};

use crate::fs::elsewhere;
use crate::io::raw::{Interest, ready};

/// The position in what has none, and the current one of a file.
const HERE: u64 = u64::MAX;
/// What a pipe or a terminal that is ready takes without blocking, if the kernel cannot be asked not to block (`PIPE_BUF`).
const SURE: usize = 4096;
/// How much is written to a file at once: a thread that may block does it, and gets a copy.
const STEP: usize = 1 << 20;

macro_rules! output {
    ($(#[$doc:meta])* $name:ident, $(#[$make_doc:meta])* $make:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name {
            timeout: Option<Duration>,
        }

        $(#[$make_doc])*
        #[must_use]
        pub const fn $make() -> $name {
            $name { timeout: None }
        }

        impl $name {
            /// The same, where each write may take so long; `None`: for ever.
            #[must_use]
            pub const fn with_timeout(self, timeout: Option<Duration>) -> Self {
                Self { timeout }
            }
        }

        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                rustix::stdio::$make()
            }
        }

        impl Write for $name {
            /// # Suspends
            ///
            /// Until something can be written. Where the kernel cannot write without blocking, as to a terminal, and another process
            /// fills what room there was, the thread is blocked until there is some again.
            ///
            /// # Cancellation
            ///
            /// Ends with an error that [`crate::is_cancelled`] recognises; nothing has been written. (`write_all` may have
            /// written a part before.)
            ///
            /// # Errors
            ///
            /// `TimedOut`; the kernel's. For `BrokenPipe` the signal `SIGPIPE` must be ignored, as Rust programs do by default.
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                write(rustix::stdio::$make(), self.timeout, bytes)
            }

            /// There is no buffer to be flushed.
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}

output!(
    /// The standard output, which is written without blocking the thread; made by [`stdout`].
    ///
    /// It has no buffer: wrap it in a [`LineWriter`](std::io::LineWriter) or a [`BufWriter`](std::io::BufWriter). Writing to std's as
    /// well mixes the two up where that one buffers.
    Stdout,
    /// The standard output.
    stdout
);
output!(
    /// The standard error output, which is written without blocking the thread; made by [`stderr`].
    Stderr,
    /// The standard error output.
    stderr
);

fn write(fd: BorrowedFd<'static>, timeout: Option<Duration>, bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        return Ok(0);
    }
    let mut deadline = None;
    loop {
        let left = timeout.map(|timeout| {
            let now = crate::time::now();
            let deadline = *deadline.get_or_insert_with(|| now.checked_add(timeout));
            deadline.map_or(timeout, |deadline| deadline.saturating_duration_since(now))
        });
        let written = match ready(fd, Interest::Write, left) {
            Ok(()) => {
                let slices = &[IoSlice::new(bytes)];
                match rustix::io::pwritev2(fd, slices, HERE, ReadWriteFlags::NOWAIT) {
                    Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::SPIPE | Errno::INVAL) => {
                        rustix::io::write(fd, &bytes[..bytes.len().min(SURE)])
                    }
                    result => result,
                }
            }
            // A file.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                let copied = bytes[..bytes.len().min(STEP)].to_vec();
                return elsewhere(move || {
                    loop {
                        match rustix::io::write(fd, &copied) {
                            Err(Errno::INTR) => {}
                            result => return Ok(result?),
                        }
                    }
                });
            }
            // A device such as /dev/null, to which epoll says that it is not permitted.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                rustix::io::write(fd, bytes)
            }
            Err(error) => return Err(error),
        };
        match written {
            Err(Errno::AGAIN | Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}
