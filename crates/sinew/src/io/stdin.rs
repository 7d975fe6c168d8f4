//! The standard input.
//!
//! Owns: nothing; the descriptor is the process's. Thread: any.
//!
//! It stays in the mode it is in: it may be a terminal that other processes share, and they do not expect a non-blocking one.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::io::{Errno, ReadWriteFlags};

use crate::io::raw::{Interest, ready};

/// The position in what has none, and the current one of a file.
const HERE: u64 = u64::MAX;

/// The standard input, which is read without blocking the thread; made by [`stdin`].
///
/// It has no buffer: wrap it in a [`BufReader`](std::io::BufReader) for lines, and keep that. Reading std's as well mixes the
/// two up.
#[derive(Debug, Clone, Copy)]
pub struct Stdin {
    timeout: Option<Duration>,
}

/// The standard input.
#[must_use]
pub const fn stdin() -> Stdin {
    Stdin { timeout: None }
}

impl Stdin {
    /// The same, where each read may take so long; `None`: for ever.
    #[must_use]
    pub const fn with_timeout(self, timeout: Option<Duration>) -> Self {
        Self { timeout }
    }
}

fn is_unpollable(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied
    )
}

impl AsFd for Stdin {
    fn as_fd(&self) -> BorrowedFd<'_> {
        rustix::stdio::stdin()
    }
}

impl Read for Stdin {
    /// # Suspends
    ///
    /// Until there is something to read. A file is read at once. Where the kernel cannot read without blocking, as from a
    /// terminal, and another process is faster, the thread is blocked until there is something again.
    ///
    /// # Cancellation
    ///
    /// Ends with an error that [`crate::is_cancelled`] recognises; nothing has been read.
    ///
    /// # Errors
    ///
    /// `TimedOut`; the kernel's.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let fd = rustix::stdio::stdin();
        if buffer.is_empty() {
            return Ok(0);
        }
        let mut deadline = None;
        loop {
            let left = self.timeout.map(|timeout| {
                let now = crate::time::now();
                let deadline = *deadline.get_or_insert_with(|| now.checked_add(timeout));
                deadline.map_or(timeout, |deadline| deadline.saturating_duration_since(now))
            });
            let is_file = match ready(fd, Interest::Read, left) {
                Ok(()) => false,
                // Not pollable: a file, or a device such as /dev/null, to which epoll says that it is not permitted.
                Err(error) if is_unpollable(error.kind()) => true,
                Err(error) => return Err(error),
            };
            let slices = &mut [io::IoSliceMut::new(buffer)];
            let result = if is_file {
                rustix::io::read(fd, &mut *buffer)
            } else {
                match rustix::io::preadv2(fd, slices, HERE, ReadWriteFlags::NOWAIT) {
                    Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::SPIPE | Errno::INVAL) => {
                        rustix::io::read(fd, &mut *buffer)
                    }
                    result => result,
                }
            };
            match result {
                Err(Errno::AGAIN | Errno::INTR) => {}
                result => return Ok(result?),
            }
        }
    }
}
