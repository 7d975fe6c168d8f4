//! TCP: listeners and streams.
//!
//! Owns: nothing beyond what `Watched` owns. Thread: any.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, acceptfrom_with, bind, getpeername, getsockname,
    listen, socket_with, sockopt,
};
use socket2::SockRef;

use crate::io::{Direction, Limits, Watched, is_established, named};
use crate::net::accept::accept;
use crate::net::addr::{ToSocketAddrs, first_of};
use crate::net::attempts;
use crate::net::split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf, split_owned};
use crate::net::stream::{ShortRead, Stream, adopt, stream_interface};

/// How many connections may wait to be accepted; the kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// What every socket made here is.
pub(super) const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Which sockets an address is for.
pub(super) fn family(address: &SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

pub(super) fn new_socket(address: &SocketAddr) -> io::Result<OwnedFd> {
    let stream = SocketType::STREAM;
    Ok(socket_with(family(address), stream, FLAGS, None)?)
}

/// The kernel's form of an address as std's.
pub(super) fn internet(address: rustix::net::SocketAddrAny) -> io::Result<SocketAddr> {
    Ok(SocketAddr::try_from(address)?)
}

/// A TCP socket that takes connections, as [`std::net::TcpListener`].
///
/// Several coroutines may wait in `accept`, also on several threads; each connection goes to one of them.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use sinew::net::{TcpListener, TcpStream};
///
/// sinew::run(|| {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let address = listener.local_addr()?;
///     sinew::go_local(move || {
///         let (mut stream, _) = listener.accept().unwrap();
///         stream.write_all(b"hello").unwrap();
///     });
///     let mut text = String::new();
///     TcpStream::connect(address)?.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct TcpListener {
    watched: Watched,
    limits: Limits,
}

impl TcpListener {
    /// A listener at the first of these addresses that can be had. A port of 0 lets the kernel choose.
    ///
    /// As in std, an address whose old connections still linger can be had (`SO_REUSEADDR`).
    ///
    /// # Suspends
    ///
    /// If there is a name to resolve.
    ///
    /// # Errors
    ///
    /// Names the address; `AddrInUse` if it is taken.
    pub fn bind<A: ToSocketAddrs>(address: A) -> io::Result<Self> {
        first_of(address, |address| {
            Self::bind_one(&address).map_err(|error| named(error, || format!("binding {address}")))
        })
    }

    fn bind_one(address: &SocketAddr) -> io::Result<Self> {
        let fd = new_socket(address)?;
        sockopt::set_socket_reuseaddr(&fd, true)?;
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
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self::over(Watched::new(listener.into())))
    }

    /// Gives the listener to std, in blocking mode as std's calls expect. The mode is that of the open file: do not use clones
    /// of this listener any more, they would block their threads.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn into_std(self) -> io::Result<std::net::TcpListener> {
        let listener = std::net::TcpListener::from(self.watched.into_fd());
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
    /// `TimedOut`; the kernel's. With too many descriptors open (`EMFILE`) the connection stays where it is and the call
    /// pauses; if there still are too many when its limit comes, or after a second, it fails with that. A connection that
    /// was given up before it was accepted is passed over.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let accepted = accept(&self.watched, &self.limits, |fd| {
            Ok(acceptfrom_with(fd, FLAGS)?)
        });
        let (fd, address) = accepted?;
        let stream = TcpStream::over(Watched::new(fd));
        let address = match address {
            Some(address) => internet(address)?,
            None => stream.peer_addr()?,
        };
        Ok((stream, address))
    }

    /// The connections, one after another, for ever.
    #[must_use]
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
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
        internet(getsockname(&self.watched)?)
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

    /// Sets the time to live of the packets.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        SockRef::from(&self.watched).set_ttl_v4(ttl)
    }

    /// The time to live of the packets.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn ttl(&self) -> io::Result<u32> {
        SockRef::from(&self.watched).ttl_v4()
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

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }
}

impl AsRawFd for TcpListener {
    fn as_raw_fd(&self) -> RawFd {
        self.watched.as_fd().as_raw_fd()
    }
}

impl IntoRawFd for TcpListener {
    fn into_raw_fd(self) -> RawFd {
        self.watched.into_fd().into_raw_fd()
    }
}

impl From<OwnedFd> for TcpListener {
    /// The descriptor is put into non-blocking mode.
    fn from(fd: OwnedFd) -> Self {
        Self::over(adopt(fd))
    }
}

impl From<TcpListener> for OwnedFd {
    /// The descriptor stays in non-blocking mode.
    fn from(listener: TcpListener) -> Self {
        listener.watched.into_fd()
    }
}

/// The connections of a [`TcpListener`]; never ends.
///
/// A cancel is an error like others, and comes again with each call: a loop that goes on after errors
/// should look at [`crate::stopping`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl std::iter::FusedIterator for Incoming<'_> {}

/// A TCP connection, as [`std::net::TcpStream`].
///
/// It can be shared: one coroutine reads while another writes, also on several threads. If several read, each byte goes to
/// one of them.
#[derive(Debug)]
pub struct TcpStream {
    stream: Stream,
}

impl TcpStream {
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    fn over(watched: Watched) -> Self {
        Self {
            stream: Stream::new(watched, ShortRead::Empty),
        }
    }

    /// Connects to the first of these addresses that answers.
    ///
    /// They are tried one after another, those of the two versions of the protocol in turn; an address that has not answered
    /// after a quarter of a second is left to its attempt, and the next one is tried beside it.
    ///
    /// # Suspends
    ///
    /// Until the connection stands or has failed.
    ///
    /// # Cancellation
    ///
    /// Ends with an error that [`crate::is_cancelled`] recognises; the attempts are given up.
    ///
    /// # Errors
    ///
    /// That of the attempt that failed last, which names the address; `ConnectionRefused` if nobody listens there.
    pub fn connect<A: ToSocketAddrs>(address: A) -> io::Result<Self> {
        let addresses: Vec<_> = address.to_socket_addrs()?.collect();
        match addresses[..] {
            [address] => Self::connect_within(&address, &Limits::new()),
            _ => Ok(Self::over(Watched::new(attempts::connect(addresses)?))),
        }
    }

    /// As [`TcpStream::connect`], to one address, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`TcpStream::connect`]; `TimedOut` when the time is up; `InvalidInput` for a timeout of zero, as in std.
    pub fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        let limits = Limits::new();
        limits.set_timeout(Some(timeout))?;
        Self::connect_within(address, &limits)
    }

    /// As [`TcpStream::connect`], to one address, until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`TcpStream::connect`]; `TimedOut` at the deadline.
    pub fn connect_deadline(address: &SocketAddr, deadline: Instant) -> io::Result<Self> {
        let limits = Limits::new();
        limits.set_deadline(Some(deadline));
        Self::connect_within(address, &limits)
    }

    fn connect_within(address: &SocketAddr, limits: &Limits) -> io::Result<Self> {
        let connect = || {
            let watched = Watched::new(new_socket(address)?);
            let mut begun = false;
            watched.call(Direction::Write, limits, |fd| {
                if !begun {
                    begun = true;
                    return match rustix::net::connect(fd, address) {
                        // An interrupted connect goes on like one in progress.
                        Err(Errno::INPROGRESS | Errno::INTR) => Err(Errno::AGAIN.into()),
                        result => Ok(result?),
                    };
                }
                match is_established(fd)? {
                    true => Ok(()),
                    false => Err(Errno::AGAIN.into()),
                }
            })?;
            Ok(Self::over(watched))
        };
        connect().map_err(|error| named(error, || format!("connecting to {address}")))
    }

    /// The address of the other side.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the connection is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        match getpeername(&self.stream)? {
            Some(address) => internet(address),
            None => Err(Errno::NOTCONN.into()),
        }
    }

    /// The address of this side.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        internet(getsockname(&self.stream)?)
    }

    /// Whether small writes are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.stream.options().set_tcp_nodelay(nodelay)
    }

    /// Whether small writes are sent at once.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.stream.options().tcp_nodelay()
    }

    /// Sets the time to live of the packets.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.stream.options().set_ttl_v4(ttl)
    }

    /// The time to live of the packets.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.stream.options().ttl_v4()
    }

    /// What closing does with bytes not yet sent, in whole seconds: `Some(0)` throws them away and resets the connection.
    ///
    /// With another time the kernel makes close(2), which dropping the stream is, block the thread until they are sent.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.stream.options().set_linger(linger)
    }

    /// How long closing waits for bytes not yet sent.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.stream.options().linger()
    }
}

impl From<OwnedFd> for TcpStream {
    /// The descriptor is put into non-blocking mode.
    fn from(fd: OwnedFd) -> Self {
        Self::over(adopt(fd))
    }
}

stream_interface!(TcpStream, std::net::TcpStream);
