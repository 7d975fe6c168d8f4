//! Pipes, with an end to read and an end to write.
//!
//! Owns: the ends' descriptors and limits. Thread: any.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};

use crate::io::source::Direction;
use crate::io::{Limits, Watched, set_nonblocking};

/// How many slices the kernel takes in one call (`IOV_MAX`).
const SLICES_MAX: usize = 1024;

/// A pipe: what is written to the second end is read from the first, as [`std::io::pipe`]. Both are close-on-exec and
/// non-blocking.
///
/// # Errors
///
/// The kernel's: too many descriptors, for one.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
///
/// sinew::run(|| {
///     let (mut reader, mut writer) = sinew::io::pipe()?;
///     sinew::go_local(move || writer.write_all(b"hello"));
///     let mut text = String::new();
///     reader.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = raw_pipe()?;
    Ok((
        PipeReader(PipeEnd::over(reader)),
        PipeWriter(PipeEnd::over(writer)),
    ))
}

pub(super) fn raw_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?)
}

/// What both ends are.
#[derive(Debug)]
pub(super) struct PipeEnd {
    watched: Watched,
    limits: Limits,
}

impl PipeEnd {
    fn over(fd: OwnedFd) -> Self {
        Self {
            watched: Watched::new(fd),
            limits: Limits::new(),
        }
    }

    /// Makes a call within the limits.
    pub(super) fn call<T>(
        &self,
        direction: Direction,
        call: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.watched.call(direction, &self.limits, call)
    }
}

impl AsFd for PipeEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }
}

macro_rules! end {
    ($(#[$doc:meta])* $name:ident, $each:literal) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(PipeEnd);

        impl $name {
            pub(super) fn end(&self) -> &PipeEnd {
                &self.0
            }

            #[doc = concat!("Limits how long each ", $each, " may take; `None`: for ever. Holds for calls that begin to wait after it.")]
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a timeout of zero.
            pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.limits.set_timeout(timeout)
            }

            #[doc = concat!("How long each ", $each, " may take.")]
            #[must_use]
            pub fn timeout(&self) -> Option<Duration> {
                self.0.limits.timeout()
            }

            #[doc = concat!("Ends all ", $each, "s that wait at `deadline`, with `TimedOut`. Holds for calls that begin to wait after it.")]
            pub fn set_deadline(&self, deadline: Option<Instant>) {
                self.0.limits.set_deadline(deadline);
            }

            /// Another descriptor for the same end; the timeout and the deadline are copied.
            ///
            /// # Errors
            ///
            /// The kernel's: too many descriptors, for one.
            pub fn try_clone(&self) -> io::Result<Self> {
                Ok(Self(PipeEnd {
                    watched: Watched::new(self.0.as_fd().try_clone_to_owned()?),
                    limits: self.0.limits.copied(),
                }))
            }
        }

        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl AsRawFd for $name {
            fn as_raw_fd(&self) -> RawFd {
                self.0.as_fd().as_raw_fd()
            }
        }

        impl IntoRawFd for $name {
            fn into_raw_fd(self) -> RawFd {
                OwnedFd::from(self).into_raw_fd()
            }
        }

        impl From<$name> for OwnedFd {
            /// The descriptor stays in non-blocking mode.
            fn from(end: $name) -> Self {
                end.0.watched.into_fd()
            }
        }

        impl From<OwnedFd> for $name {
            /// The descriptor, which is to be that of a pipe, is put into non-blocking mode.
            fn from(fd: OwnedFd) -> Self {
                // The mode of an open descriptor can be set.
                let _as_it_is = set_nonblocking(&fd, true).is_err();
                Self(PipeEnd::over(fd))
            }
        }

        impl From<$name> for Stdio {
            /// In blocking mode, as a child expects: clones of this end do not work well any more.
            fn from(end: $name) -> Self {
                let fd = OwnedFd::from(end);
                let _as_it_is = set_nonblocking(&fd, false).is_err();
                fd.into()
            }
        }
    };
}

end!(
    /// The end of a pipe that is read; made by [`pipe`].
    PipeReader,
    "read"
);
end!(
    /// The end of a pipe that is written; made by [`pipe`]. When it and its clones are dropped, the other end reads an end.
    PipeWriter,
    "write"
);

impl Read for &PipeReader {
    /// # Suspends
    ///
    /// Until there is something to read.
    ///
    /// # Cancellation
    ///
    /// Nothing has been read.
    ///
    /// # Errors
    ///
    /// `TimedOut`; a cancel's; the kernel's.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.call(Direction::Read, |fd| {
            Ok(rustix::io::read(fd, &mut *buffer)?)
        })
    }

    fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let taken = slices.len().min(SLICES_MAX);
        let slices = &mut slices[..taken];
        self.0
            .call(Direction::Read, |fd| Ok(rustix::io::readv(fd, slices)?))
    }
}

impl Read for PipeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(slices)
    }
}

impl Write for &PipeWriter {
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
    /// `TimedOut`; a cancel's; `BrokenPipe` if nobody reads any more. As with std's the signal `SIGPIPE` must be ignored for that,
    /// which Rust programs do by default.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .call(Direction::Write, |fd| Ok(rustix::io::write(fd, bytes)?))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let slices = &slices[..slices.len().min(SLICES_MAX)];
        self.0
            .call(Direction::Write, |fd| Ok(rustix::io::writev(fd, slices)?))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
