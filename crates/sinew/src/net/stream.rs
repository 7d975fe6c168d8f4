//! What TCP and Unix streams have in common: bytes in both directions, with limits for each.
//!
//! Owns: a stream's descriptor and limits. Thread: any.
//!
//! Every call is made with `MSG_DONTWAIT`: the mode of an open file can be changed through any of its duplicates, in
//! other processes too, and a stream must not block its thread for that.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recv, recvmsg, send, sendmsg,
};
use socket2::SockRef;

use crate::io::{Direction, Limits, Watch, Watched};

/// How many slices the kernel takes in one call (`IOV_MAX`).
const SLICES_MAX: usize = 1024;

/// What a short read tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShortRead {
    /// That there was no more.
    Empty,
    /// Nothing: reads also end at the edges of what was sent with descriptors or credentials.
    Nothing,
}

/// A connected stream; see the file's head.
#[derive(Debug)]
pub(crate) struct Stream {
    watched: Watched,
    read: Limits,
    write: Limits,
    short_read: ShortRead,
}

impl Stream {
    /// Takes on a connected socket in non-blocking mode.
    pub(super) fn new(watched: Watched, short_read: ShortRead) -> Self {
        Self {
            watched,
            read: Limits::new(),
            write: Limits::new(),
            short_read,
        }
    }

    pub(super) fn into_fd(self) -> OwnedFd {
        self.watched.into_fd()
    }

    pub(super) fn options(&self) -> SockRef<'_> {
        SockRef::from(&self.watched)
    }

    /// Makes a call of another kind in one direction, within its limits.
    pub(crate) fn call<T>(
        &self,
        direction: Direction,
        call: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.watched.call(direction, self.limits(direction), call)
    }

    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.receive(buffer.len(), |fd| {
            Ok(recv(fd, &mut *buffer, RecvFlags::DONTWAIT)?.0)
        })
    }

    pub(super) fn read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let taken = buffers.len().min(SLICES_MAX);
        let buffers = &mut buffers[..taken];
        let room = buffers.iter().map(|buffer| buffer.len()).sum();
        self.receive(room, |fd| {
            let mut control = RecvAncillaryBuffer::default();
            Ok(recvmsg(fd, buffers, &mut control, RecvFlags::DONTWAIT)?.bytes)
        })
    }

    /// Reads as [`Stream::read`] does, but no longer than until `deadline`.
    #[cfg(feature = "tls")]
    pub(crate) fn read_until(
        &self,
        buffer: &mut [u8],
        deadline: Option<Instant>,
    ) -> io::Result<usize> {
        self.receive_within(&self.read.until(deadline), buffer.len(), |fd| {
            Ok(recv(fd, &mut *buffer, RecvFlags::DONTWAIT)?.0)
        })
    }

    /// Makes a call that reads up to `room` bytes.
    #[inline]
    fn receive(
        &self,
        room: usize,
        call: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.receive_within(&self.read, room, call)
    }

    #[inline]
    fn receive_within(
        &self,
        limits: &Limits,
        room: usize,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if room == 0 {
            return Ok(0);
        }
        self.watched.call(Direction::Read, limits, |fd| {
            let len = call(fd)?;
            if len < room && len > 0 && self.short_read == ShortRead::Empty {
                self.watched.exhausted(Direction::Read);
            }
            Ok(len)
        })
    }

    pub(super) fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.watched.call(Direction::Read, &self.read, |fd| {
            let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
            Ok(recv(fd, &mut *buffer, flags)?.0)
        })
    }

    pub(super) fn write(&self, buffer: &[u8]) -> io::Result<usize> {
        self.transmit(buffer.len(), |fd| {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            Ok(send(fd, buffer, flags)?)
        })
    }

    pub(super) fn write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let buffers = &buffers[..buffers.len().min(SLICES_MAX)];
        let room = buffers.iter().map(|buffer| buffer.len()).sum();
        self.transmit(room, |fd| {
            let mut control = SendAncillaryBuffer::default();
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            Ok(sendmsg(fd, buffers, &mut control, flags)?)
        })
    }

    /// Writes as [`Stream::write`] does, but no longer than until `deadline`.
    #[cfg(feature = "tls")]
    pub(crate) fn write_until(
        &self,
        buffer: &[u8],
        deadline: Option<Instant>,
    ) -> io::Result<usize> {
        self.transmit_within(&self.write.until(deadline), buffer.len(), |fd| {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            Ok(send(fd, buffer, flags)?)
        })
    }

    /// Makes a call that writes up to `room` bytes.
    #[inline]
    fn transmit(
        &self,
        room: usize,
        call: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.transmit_within(&self.write, room, call)
    }

    #[inline]
    fn transmit_within(
        &self,
        limits: &Limits,
        room: usize,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if room == 0 {
            return Ok(0);
        }
        self.watched.call(Direction::Write, limits, |fd| {
            let len = call(fd)?;
            if len < room {
                self.watched.exhausted(Direction::Write);
            }
            Ok(len)
        })
    }

    pub(crate) fn poll_read(
        &self,
        watch: &mut Watch,
        context: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let room = buffer.len();
        if room == 0 {
            return Poll::Ready(Ok(0));
        }
        self.watched.poll_call(watch, context, |fd| {
            let len = recv(fd, &mut *buffer, RecvFlags::DONTWAIT)?.0;
            if len < room && len > 0 && self.short_read == ShortRead::Empty {
                self.watched.exhausted(Direction::Read);
            }
            Ok(len)
        })
    }

    pub(crate) fn poll_write(
        &self,
        watch: &mut Watch,
        context: &Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buffer.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.watched.poll_call(watch, context, |fd| {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let len = send(fd, buffer, flags)?;
            if len < buffer.len() {
                self.watched.exhausted(Direction::Write);
            }
            Ok(len)
        })
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.options().shutdown(how)
    }

    /// Another descriptor for the same socket, with the same limits.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            watched: Watched::new(self.watched.as_fd().try_clone_to_owned()?),
            read: self.read.copied(),
            write: self.write.copied(),
            short_read: self.short_read,
        })
    }

    fn limits(&self, direction: Direction) -> &Limits {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    pub(super) fn set_timeout(
        &self,
        direction: Direction,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.limits(direction).set_timeout(timeout)
    }

    pub(super) fn timeout(&self, direction: Direction) -> Option<Duration> {
        self.limits(direction).timeout()
    }

    pub(super) fn set_deadline(&self, direction: Direction, deadline: Option<Instant>) {
        self.limits(direction).set_deadline(deadline);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }
}

/// Puts a descriptor that comes from outside into non-blocking mode and takes it on.
pub(super) fn adopt(fd: OwnedFd) -> Watched {
    // It cannot fail for an open socket; if it did, the calls of streams would not block all the same.
    let _blocks_still = crate::io::set_nonblocking(&fd, true).is_err();
    Watched::new(fd)
}

/// The part of a stream type's interface that all have: its field is a [`Stream`].
macro_rules! stream_interface {
    ($stream:ident, $std:ty) => {
        impl $stream {
            /// Takes on a stream of std's and puts it into non-blocking mode.
            ///
            /// # Errors
            ///
            /// The kernel's.
            pub fn from_std(stream: $std) -> io::Result<Self> {
                stream.set_nonblocking(true)?;
                Ok(Self::from(OwnedFd::from(stream)))
            }

            /// Gives the stream to std, in blocking mode as std's calls expect. The mode is that of the open
            /// file: clones of this stream go on well, but bare calls on their descriptors are refused.
            ///
            /// # Errors
            ///
            /// The kernel's.
            pub fn into_std(self) -> io::Result<$std> {
                let stream = <$std>::from(OwnedFd::from(self));
                stream.set_nonblocking(false)?;
                Ok(stream)
            }

            /// Another descriptor for the same connection. The timeouts and deadlines are copied; from then on each
            /// has its own.
            ///
            /// # Errors
            ///
            /// The kernel's: too many descriptors, for one.
            pub fn try_clone(&self) -> io::Result<Self> {
                Ok(Self {
                    stream: self.stream.try_clone()?,
                })
            }

            /// Reads without taking what is read out.
            ///
            /// # Suspends
            ///
            /// As a read.
            ///
            /// # Errors
            ///
            /// As a read.
            pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.stream.peek(buffer)
            }

            /// Shuts directions down. Who waits to read reads an end; who waits to write gets an error.
            ///
            /// # Errors
            ///
            /// The kernel's; `NotConnected` if the connection is gone.
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.stream.shutdown(how)
            }

            /// Limits how long each read may take; `None`: for ever. Holds for calls that begin to wait after it.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a timeout of zero, as in std.
            pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.stream.set_timeout(Direction::Read, timeout)
            }

            /// Limits how long each write may take; `None`: for ever. Holds for calls that begin to wait after it.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a timeout of zero, as in std.
            pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.stream.set_timeout(Direction::Write, timeout)
            }

            /// How long each read may take.
            ///
            /// # Errors
            ///
            /// Never: the signature is std's.
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.stream.timeout(Direction::Read))
            }

            /// How long each write may take.
            ///
            /// # Errors
            ///
            /// Never: the signature is std's.
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.stream.timeout(Direction::Write))
            }

            /// Ends all reads that wait at `deadline`, with `TimedOut`. Holds for calls that begin to wait after it.
            pub fn set_read_deadline(&self, deadline: Option<Instant>) {
                self.stream.set_deadline(Direction::Read, deadline);
            }

            /// Ends all writes that wait at `deadline`, with `TimedOut`. Holds for calls that begin to wait after it.
            pub fn set_write_deadline(&self, deadline: Option<Instant>) {
                self.stream.set_deadline(Direction::Write, deadline);
            }

            /// The error that the socket has kept, if any; it is cleared.
            ///
            /// # Errors
            ///
            /// The kernel's.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.stream.options().take_error()
            }

            /// The two directions, borrowed.
            #[must_use]
            pub fn split(&self) -> (ReadHalf<'_, Self>, WriteHalf<'_, Self>) {
                (ReadHalf(self), WriteHalf(self))
            }

            /// The two directions, each of its own. The stream is closed when both are dropped.
            #[must_use]
            pub fn into_split(self) -> (OwnedReadHalf<Self>, OwnedWriteHalf<Self>) {
                split_owned(self)
            }
        }

        impl Read for &$stream {
            /// # Suspends
            ///
            /// Until there is something to read.
            ///
            /// # Cancellation
            ///
            /// Nothing has been read; the stream is as it was.
            ///
            /// # Errors
            ///
            /// `TimedOut`; a cancel's; the kernel's.
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.stream.read(buffer)
            }

            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.stream.read_vectored(buffers)
            }
        }

        impl Read for $stream {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.stream.read(buffer)
            }

            fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.stream.read_vectored(buffers)
            }
        }

        impl Write for &$stream {
            /// # Suspends
            ///
            /// Until something can be written.
            ///
            /// # Cancellation
            ///
            /// Nothing has been written; the stream is as it was. (`write_all` may have written a part before.)
            ///
            /// # Errors
            ///
            /// `TimedOut`; a cancel's; `BrokenPipe` and others of the kernel's.
            fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
                self.stream.write(buffer)
            }

            fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
                self.stream.write_vectored(buffers)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl Write for $stream {
            fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
                self.stream.write(buffer)
            }

            fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
                self.stream.write_vectored(buffers)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl AsFd for $stream {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.stream.as_fd()
            }
        }

        impl AsRawFd for $stream {
            fn as_raw_fd(&self) -> RawFd {
                self.stream.as_fd().as_raw_fd()
            }
        }

        impl IntoRawFd for $stream {
            fn into_raw_fd(self) -> RawFd {
                self.stream.into_fd().into_raw_fd()
            }
        }

        impl From<$stream> for OwnedFd {
            /// The descriptor stays in non-blocking mode.
            fn from(stream: $stream) -> Self {
                stream.stream.into_fd()
            }
        }
    };
}
pub(super) use stream_interface;
