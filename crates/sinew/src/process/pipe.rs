//! This side's ends of a child's pipes.
//!
//! Owns: their descriptors and limits. Thread: any. Only this side's end is in non-blocking mode: the child's is an open file
//! of its own.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::io::{Direction, Limits, Watched};

macro_rules! end {
    ($(#[$doc:meta])* $name:ident, $each:literal) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name {
            watched: Watched,
            limits: Limits,
        }

        impl $name {
            pub(super) fn new(end: impl Into<OwnedFd>) -> io::Result<Self> {
                let fd = end.into();
                crate::io::set_nonblocking(&fd, true)?;
                Ok(Self {
                    watched: Watched::new(fd),
                    limits: Limits::new(),
                })
            }

            #[doc = concat!("Limits how long each ", $each, " may take; `None`: for ever. Holds for calls that begin to wait after it.")]
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a timeout of zero.
            pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.limits.set_timeout(timeout)
            }

            #[doc = concat!("Ends all ", $each, "s that wait at `deadline`, with `TimedOut`. Holds for calls that begin to wait after it.")]
            pub fn set_deadline(&self, deadline: Option<Instant>) {
                self.limits.set_deadline(deadline);
            }
        }

        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.watched.as_fd()
            }
        }

        impl AsRawFd for $name {
            fn as_raw_fd(&self) -> RawFd {
                self.watched.as_fd().as_raw_fd()
            }
        }

        impl From<$name> for OwnedFd {
            /// The descriptor stays in non-blocking mode.
            fn from(end: $name) -> Self {
                end.watched.into_fd()
            }
        }
    };
}

macro_rules! reader {
    ($name:ident) => {
        impl Read for &$name {
            /// # Suspends
            ///
            /// Until there is something to read, or the child has closed its end.
            ///
            /// # Cancellation
            ///
            /// Nothing has been read.
            ///
            /// # Errors
            ///
            /// `TimedOut`; a cancel's; the kernel's.
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.watched.call(Direction::Read, &self.limits, |fd| {
                    Ok(rustix::io::read(fd, &mut *buffer)?)
                })
            }
        }

        impl Read for $name {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                (&*self).read(buffer)
            }
        }
    };
}

end!(
    /// The pipe to a child's standard input. The child reads an end when this is dropped.
    ChildStdin,
    "write"
);
end!(
    /// The pipe from a child's standard output.
    ChildStdout,
    "read"
);
end!(
    /// The pipe from a child's standard error output.
    ChildStderr,
    "read"
);
reader!(ChildStdout);
reader!(ChildStderr);

impl Write for &ChildStdin {
    /// # Suspends
    ///
    /// Until something can be written.
    ///
    /// # Cancellation
    ///
    /// Nothing has been written. (`write_all` may have written a part before.)
    ///
    /// # Errors
    ///
    /// `TimedOut`; a cancel's; `BrokenPipe` if the child reads no more. As with std's the signal `SIGPIPE` must be ignored for that,
    /// which Rust programs do by default.
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.watched.call(Direction::Write, &self.limits, |fd| {
            Ok(rustix::io::write(fd, buffer)?)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for ChildStdin {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        (&*self).write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
