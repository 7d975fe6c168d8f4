//! What UDP and Unix datagram sockets have in common: whole messages, with limits for each direction.
//!
//! Owns: a socket's descriptor and limits. Thread: any.
//!
//! As with streams, every call is made with `MSG_DONTWAIT`, whatever the mode of the open file has become.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;
use rustix::net::{RecvFlags, SendFlags, SocketAddrAny, recv, recvfrom, send, sendto};
use socket2::SockRef;

use crate::error::WaitError;
use crate::io::{Direction, Limits, Watched};
use crate::sys::clock;

/// How long a sender pauses at first, and at most, whom the kernel will not tell when there is room.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));

const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// Whether the reading direction has been shut down. A receive that may block says so by an empty message, one that may not
/// just finds nothing.
fn is_shut(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::RDHUP)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::RDHUP)
}

/// A datagram socket; see the file's head.
#[derive(Debug)]
pub(super) struct Datagram {
    watched: Watched,
    read: Limits,
    write: Limits,
}

impl Datagram {
    /// Takes on a socket in non-blocking mode.
    pub(super) fn new(watched: Watched) -> Self {
        Self {
            watched,
            read: Limits::new(),
            write: Limits::new(),
        }
    }

    pub(super) fn into_fd(self) -> OwnedFd {
        self.watched.into_fd()
    }

    pub(super) fn options(&self) -> SockRef<'_> {
        SockRef::from(&self.watched)
    }

    pub(super) fn recv(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        let flags = flags | RecvFlags::DONTWAIT;
        self.watched.call(Direction::Read, &self.read, |fd| {
            match recv(fd, &mut *buffer, flags) {
                Err(Errno::AGAIN) if is_shut(fd) => Ok(0),
                result => Ok(result?.0),
            }
        })
    }

    pub(super) fn recv_from(
        &self,
        buffer: &mut [u8],
        flags: RecvFlags,
    ) -> io::Result<(usize, Option<SocketAddrAny>)> {
        let flags = flags | RecvFlags::DONTWAIT;
        self.watched.call(Direction::Read, &self.read, |fd| {
            match recvfrom(fd, &mut *buffer, flags) {
                Err(Errno::AGAIN) if is_shut(fd) => Ok((0, None)),
                result => result.map(|(len, _, address)| Ok((len, address)))?,
            }
        })
    }

    /// To where the socket is connected.
    pub(super) fn send(&self, buffer: &[u8]) -> io::Result<usize> {
        self.watched.call(Direction::Write, &self.write, |fd| {
            Ok(send(fd, buffer, SEND)?)
        })
    }

    /// Of a socket that is writable when its own buffer has room, and needs no more.
    pub(super) fn send_to(&self, buffer: &[u8], to: &impl SocketAddrArg) -> io::Result<usize> {
        self.watched.call(Direction::Write, &self.write, |fd| {
            Ok(sendto(fd, buffer, SEND, to)?)
        })
    }

    /// Of a socket that also needs room at the receiver. The kernel does not tell when there is, unless the two are connected;
    /// so it is asked every few milliseconds.
    pub(super) fn send_to_crowded(
        &self,
        buffer: &[u8],
        to: &impl SocketAddrArg,
    ) -> io::Result<usize> {
        let mut deadline_ns = None;
        let mut pause = PAUSE.0;
        loop {
            match sendto(&self.watched, buffer, SEND, to) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                result => {
                    self.watched.take_turn();
                    return Ok(result?);
                }
            }
            let until = *deadline_ns.get_or_insert_with(|| self.write.deadline_ns());
            let left = until.map(|until| until.saturating_sub(clock::now_ns()));
            let left = left.map(Duration::from_nanos);
            if left == Some(Duration::ZERO) {
                return Err(WaitError::Timeout.into());
            }
            crate::time::sleep(left.map_or(pause, |left| left.min(pause)))?;
            pause = PAUSE.1.min(pause * 2);
        }
    }

    /// Another descriptor for the same socket, with the same limits.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            watched: Watched::new(self.watched.as_fd().try_clone_to_owned()?),
            read: self.read.copied(),
            write: self.write.copied(),
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

impl AsFd for Datagram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }
}

/// The part of a datagram socket's interface that all have: its field `datagram` is a [`Datagram`].
macro_rules! datagram_interface {
    ($socket:ident, $std:ty) => {
        impl $socket {
            fn over(watched: Watched) -> Self {
                Self {
                    datagram: Datagram::new(watched),
                }
            }

            /// Takes on a socket of std's and puts it into non-blocking mode.
            ///
            /// # Errors
            ///
            /// The kernel's.
            pub fn from_std(socket: $std) -> io::Result<Self> {
                socket.set_nonblocking(true)?;
                Ok(Self::over(Watched::new(socket.into())))
            }

            /// Gives the socket to std, in blocking mode as std's calls expect. The mode is that of the open
            /// file: clones of this socket go on well, but bare calls on their descriptors are refused.
            ///
            /// # Errors
            ///
            /// The kernel's.
            pub fn into_std(self) -> io::Result<$std> {
                let socket = <$std>::from(OwnedFd::from(self));
                socket.set_nonblocking(false)?;
                Ok(socket)
            }

            /// Another descriptor for the same socket. The timeouts and deadlines are copied; from then on each
            /// has its own.
            ///
            /// # Errors
            ///
            /// The kernel's: too many descriptors, for one.
            pub fn try_clone(&self) -> io::Result<Self> {
                Ok(Self {
                    datagram: self.datagram.try_clone()?,
                })
            }

            /// Receives a message and returns its length. What does not fit into `buffer` is cut off and lost.
            ///
            /// If the socket is connected, only messages from there come.
            ///
            /// # Suspends
            ///
            /// Until there is one.
            ///
            /// # Cancellation
            ///
            /// Ends with an error that [`crate::is_cancelled`] recognises; no message has been taken.
            ///
            /// # Errors
            ///
            /// `TimedOut`; the kernel's: `ConnectionRefused` if an earlier message came to nobody.
            pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.datagram.recv(buffer, RecvFlags::empty())
            }

            #[doc = concat!("As [`", stringify!($socket), "::recv`], but the message stays where it is.")]
            ///
            /// # Errors
            ///
            #[doc = concat!("As [`", stringify!($socket), "::recv`].")]
            pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.datagram.recv(buffer, RecvFlags::PEEK)
            }

            /// Sends a message to where the socket is connected.
            ///
            /// # Suspends
            ///
            /// Until there is room for it.
            ///
            /// # Cancellation
            ///
            /// Ends with an error that [`crate::is_cancelled`] recognises; nothing has been sent.
            ///
            /// # Errors
            ///
            /// `TimedOut`; the kernel's, if the socket is not connected or the message is too long, for one.
            pub fn send(&self, buffer: &[u8]) -> io::Result<usize> {
                self.datagram.send(buffer)
            }

            /// Limits how long each receive may take; `None`: for ever. Holds for calls that begin to wait after it.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a timeout of zero, as in std.
            pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.datagram.set_timeout(Direction::Read, timeout)
            }

            /// Limits how long each send may take; `None`: for ever. Holds for calls that begin to wait after it.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for a timeout of zero, as in std.
            pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.datagram.set_timeout(Direction::Write, timeout)
            }

            /// How long each receive may take.
            ///
            /// # Errors
            ///
            /// Never: the signature is std's.
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.datagram.timeout(Direction::Read))
            }

            /// How long each send may take.
            ///
            /// # Errors
            ///
            /// Never: the signature is std's.
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.datagram.timeout(Direction::Write))
            }

            /// Ends all receives that wait at `deadline`, with `TimedOut`. Holds for calls that begin to wait after it.
            pub fn set_read_deadline(&self, deadline: Option<Instant>) {
                self.datagram.set_deadline(Direction::Read, deadline);
            }

            /// Ends all sends that wait at `deadline`, with `TimedOut`. Holds for calls that begin to wait after it.
            pub fn set_write_deadline(&self, deadline: Option<Instant>) {
                self.datagram.set_deadline(Direction::Write, deadline);
            }

            /// The error that the socket has kept, if any; it is cleared.
            ///
            /// # Errors
            ///
            /// The kernel's.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.datagram.options().take_error()
            }
        }

        impl AsFd for $socket {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.datagram.as_fd()
            }
        }

        impl AsRawFd for $socket {
            fn as_raw_fd(&self) -> RawFd {
                self.datagram.as_fd().as_raw_fd()
            }
        }

        impl IntoRawFd for $socket {
            fn into_raw_fd(self) -> RawFd {
                self.datagram.into_fd().into_raw_fd()
            }
        }

        impl From<OwnedFd> for $socket {
            /// The descriptor is put into non-blocking mode.
            fn from(fd: OwnedFd) -> Self {
                Self::over(adopt(fd))
            }
        }

        impl From<$socket> for OwnedFd {
            /// The descriptor stays in non-blocking mode.
            fn from(socket: $socket) -> Self {
                socket.datagram.into_fd()
            }
        }
    };
}
pub(super) use datagram_interface;
