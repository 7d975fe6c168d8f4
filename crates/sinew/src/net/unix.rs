//! Unix stream sockets: listeners and streams of one machine.
//!
//! Owns: nothing beyond what `Watched` owns. Thread: any.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket_with, socketpair,
};
use socket2::{SockAddr, SockRef};

use crate::error::WaitError;
use crate::io::{Direction, Limits, Watched, named};
use crate::net::accept::accept;
use crate::net::split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf, split_owned};
use crate::net::stream::{ShortRead, Stream, adopt, stream_interface};
use crate::net::tcp::FLAGS;
use crate::sys::clock;

/// How many connections may wait to be accepted; the kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;
/// How long a connect that found the listener's backlog full pauses at first, and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));

fn new_socket() -> io::Result<OwnedFd> {
    let stream = SocketType::STREAM;
    Ok(socket_with(AddressFamily::UNIX, stream, FLAGS, None)?)
}

/// The kernel's form of an address as std's.
pub(super) fn local(address: &SockAddr) -> io::Result<SocketAddr> {
    if let Some(name) = address.as_abstract_namespace() {
        return SocketAddr::from_abstract_name(name);
    }
    // No path is how std writes an unnamed address.
    SocketAddr::from_pathname(address.as_pathname().unwrap_or(Path::new("")))
}

/// std's form of an address as the kernel's.
pub(super) fn kernels(address: &SocketAddr) -> io::Result<SocketAddrUnix> {
    if let Some(name) = address.as_abstract_name() {
        return Ok(SocketAddrUnix::new_abstract_name(name)?);
    }
    match address.as_pathname() {
        Some(path) => Ok(SocketAddrUnix::new(path)?),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the address has no name",
        )),
    }
}

/// A Unix socket that takes connections, as [`std::os::unix::net::UnixListener`].
#[derive(Debug)]
pub struct UnixListener {
    watched: Watched,
    limits: Limits,
}

impl UnixListener {
    /// A listener at this path, which must not exist yet. It is not removed when the listener is dropped.
    ///
    /// # Errors
    ///
    /// Names the path; `AddrInUse` if it exists.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        let path = path.as_ref();
        let bound = || Self::bind_to(&SocketAddrUnix::new(path)?);
        bound().map_err(|error| named(error, || format!("binding {}", path.display())))
    }

    /// A listener at this address, which may be an abstract one.
    ///
    /// # Errors
    ///
    /// Names the address; `AddrInUse` if it is taken, `InvalidInput` if it has no name.
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        let bound = || Self::bind_to(&kernels(address)?);
        bound().map_err(|error| named(error, || format!("binding {address:?}")))
    }

    fn bind_to(address: &SocketAddrUnix) -> io::Result<Self> {
        let fd = new_socket()?;
        bind(&fd, address)?;
        listen(&fd, BACKLOG)?;
        Ok(Self::over(Watched::new(fd)))
    }

    fn over(watched: Watched) -> Self {
        Self {
            watched,
            limits: Limits::new(),
        }
    }

    /// Takes on a listener of std's and puts it into non-blocking mode.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn from_std(listener: std::os::unix::net::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self::over(Watched::new(listener.into())))
    }

    /// Gives the listener to std, in blocking mode as std's calls expect. The mode is that of the open file: do not use
    /// clones of this listener any more, they would block their threads.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn into_std(self) -> io::Result<std::os::unix::net::UnixListener> {
        let listener = std::os::unix::net::UnixListener::from(self.watched.into_fd());
        listener.set_nonblocking(false)?;
        Ok(listener)
    }

    /// Takes the next connection. Its descriptor is close-on-exec and in non-blocking mode.
    ///
    /// # Suspends
    ///
    /// Until there is one.
    ///
    /// # Cancellation
    ///
    /// Ends with an error that [`crate::is_cancelled`] recognises; no connection has been taken.
    ///
    /// # Errors
    ///
    /// `TimedOut`; the kernel's. With too many descriptors open it pauses, as [`crate::net::TcpListener::accept`] does.
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let accepted = accept(&self.watched, &self.limits, |fd| {
            SockRef::from(&fd).accept4(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)
        });
        let (socket, address) = accepted?;
        let stream = UnixStream::over(Watched::new(socket.into()));
        Ok((stream, local(&address)?))
    }

    /// The connections, one after another, for ever.
    #[must_use]
    pub fn incoming(&self) -> UnixIncoming<'_> {
        UnixIncoming { listener: self }
    }

    /// Limits how long each `accept` may take; `None`: for ever. Holds for calls that begin to wait after it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a timeout of zero.
    pub fn set_accept_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.limits.set_timeout(timeout)
    }

    /// How long each `accept` may take.
    #[must_use]
    pub fn accept_timeout(&self) -> Option<Duration> {
        self.limits.timeout()
    }

    /// Ends all calls of `accept` that wait at `deadline`, with `TimedOut`. Holds for calls that begin to wait after it.
    pub fn set_accept_deadline(&self, deadline: Option<Instant>) {
        self.limits.set_deadline(deadline);
    }

    /// The address it listens at.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        local(&SockRef::from(&self.watched).local_addr()?)
    }

    /// Another descriptor for the same listener; the timeout and the deadline are copied.
    ///
    /// # Errors
    ///
    /// The kernel's: too many descriptors, for one.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            watched: Watched::new(self.watched.as_fd().try_clone_to_owned()?),
            limits: self.limits.copied(),
        })
    }

    /// The error that the socket has kept, if any; it is cleared.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        SockRef::from(&self.watched).take_error()
    }
}

impl AsFd for UnixListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }
}

impl AsRawFd for UnixListener {
    fn as_raw_fd(&self) -> RawFd {
        self.watched.as_fd().as_raw_fd()
    }
}

impl IntoRawFd for UnixListener {
    fn into_raw_fd(self) -> RawFd {
        self.watched.into_fd().into_raw_fd()
    }
}

impl From<OwnedFd> for UnixListener {
    /// The descriptor is put into non-blocking mode.
    fn from(fd: OwnedFd) -> Self {
        Self::over(adopt(fd))
    }
}

impl From<UnixListener> for OwnedFd {
    /// The descriptor stays in non-blocking mode.
    fn from(listener: UnixListener) -> Self {
        listener.watched.into_fd()
    }
}

/// The connections of a [`UnixListener`]; never ends. See [`crate::net::Incoming`] about cancels.
#[derive(Debug)]
pub struct UnixIncoming<'a> {
    listener: &'a UnixListener,
}

impl Iterator for UnixIncoming<'_> {
    type Item = io::Result<UnixStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl std::iter::FusedIterator for UnixIncoming<'_> {}

/// A connection between two sockets of one machine, as [`std::os::unix::net::UnixStream`].
///
/// Sharing it is as for [`crate::net::TcpStream`].
#[derive(Debug)]
pub struct UnixStream {
    stream: Stream,
}

impl UnixStream {
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    fn over(watched: Watched) -> Self {
        Self {
            stream: Stream::new(watched, ShortRead::Nothing),
        }
    }

    /// Two streams that are connected to each other.
    ///
    /// # Errors
    ///
    /// The kernel's: too many descriptors, for one.
    pub fn pair() -> io::Result<(Self, Self)> {
        let stream = SocketType::STREAM;
        let (a, b) = socketpair(AddressFamily::UNIX, stream, FLAGS, None)?;
        Ok((Self::over(Watched::new(a)), Self::over(Watched::new(b))))
    }

    /// Connects to the listener at this path.
    ///
    /// # Suspends
    ///
    /// While the listener's backlog is full. The kernel does not tell when there is room again, so it is asked every few
    /// milliseconds.
    ///
    /// # Cancellation
    ///
    /// Ends with an error that [`crate::is_cancelled`] recognises.
    ///
    /// # Errors
    ///
    /// Names the path; `ConnectionRefused` if nobody listens there.
    pub fn connect<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        Self::connect_to_path(path.as_ref(), None)
    }

    /// As [`UnixStream::connect`], to an address, which may be an abstract one.
    ///
    /// # Errors
    ///
    /// As [`UnixStream::connect`]; `InvalidInput` if it has no name.
    pub fn connect_addr(address: &SocketAddr) -> io::Result<Self> {
        let connected = || Self::connect_within(&kernels(address)?, None);
        connected().map_err(|error| named(error, || format!("connecting to {address:?}")))
    }

    /// As [`UnixStream::connect`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`UnixStream::connect`]; `TimedOut` when the time is up.
    pub fn connect_timeout<P: AsRef<Path>>(path: P, timeout: Duration) -> io::Result<Self> {
        Self::connect_to_path(path.as_ref(), Some(clock::after_ns(timeout)))
    }

    /// As [`UnixStream::connect`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`UnixStream::connect`]; `TimedOut` at the deadline.
    pub fn connect_deadline<P: AsRef<Path>>(path: P, deadline: Instant) -> io::Result<Self> {
        Self::connect_to_path(path.as_ref(), Some(clock::instant_ns(deadline)))
    }

    fn connect_to_path(path: &Path, deadline_ns: Option<u64>) -> io::Result<Self> {
        let connected = || Self::connect_within(&SocketAddrUnix::new(path)?, deadline_ns);
        connected().map_err(|error| named(error, || format!("connecting to {}", path.display())))
    }

    fn connect_within(address: &SocketAddrUnix, deadline_ns: Option<u64>) -> io::Result<Self> {
        let fd = new_socket()?;
        let mut pause = PAUSE.0;
        loop {
            match rustix::net::connect(&fd, address) {
                Ok(()) => return Ok(Self::over(Watched::new(fd))),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
            let left = deadline_ns.map(|deadline_ns| {
                Duration::from_nanos(deadline_ns.saturating_sub(clock::now_ns()))
            });
            if left == Some(Duration::ZERO) {
                return Err(WaitError::Timeout.into());
            }
            crate::time::sleep(left.map_or(pause, |left| left.min(pause)))?;
            pause = PAUSE.1.min(pause * 2);
        }
    }

    /// The address of the other side.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the connection is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        local(&self.stream.options().peer_addr()?)
    }

    /// The address of this side.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        local(&self.stream.options().local_addr()?)
    }
}

impl From<OwnedFd> for UnixStream {
    /// The descriptor is put into non-blocking mode.
    fn from(fd: OwnedFd) -> Self {
        Self::over(adopt(fd))
    }
}

stream_interface!(UnixStream, std::os::unix::net::UnixStream);
