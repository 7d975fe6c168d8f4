//! What an address can be given as.
//!
//! Owns: nothing. std's trait of the same name resolves names by blocking the thread; this one suspends the coroutine, so
//! it has to know the types it is for.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::time::{Duration, Instant};
use std::{iter, option, slice, vec};

use crate::error::{Elapsed, WaitError};
use crate::net::resolve::resolve;

/// As [`std::net::ToSocketAddrs`], for the same types, but resolving a name suspends the coroutine.
///
/// Addresses in numbers are read in place.
pub trait ToSocketAddrs {
    /// The addresses.
    type Iter: Iterator<Item = SocketAddr>;

    /// The addresses that this stands for.
    ///
    /// # Suspends
    ///
    /// If there is a name to resolve.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for text that is no address; the resolver's.
    fn to_socket_addrs(&self) -> io::Result<Self::Iter>;
}

/// The addresses of a host.
///
/// # Suspends
///
/// If `host` has a name to resolve: the system's resolver runs on one of a few threads that are started as needed. On
/// a plain thread it runs right there.
///
/// # Cancellation
///
/// Ends with an error that [`crate::is_cancelled`] recognises; the resolver finishes for itself, and its answer is dropped.
///
/// # Errors
///
/// `InvalidInput` for text that is no address; the resolver's.
///
/// # Examples
///
/// ```
/// let addresses: Vec<_> = sinew::run(|| sinew::net::lookup_host("127.0.0.1:80")).unwrap().collect();
/// assert_eq!(addresses[0].port(), 80);
/// ```
pub fn lookup_host<A: ToSocketAddrs>(host: A) -> io::Result<impl Iterator<Item = SocketAddr>> {
    host.to_socket_addrs()
}

/// As [`lookup_host`], for at most `timeout`.
///
/// # Suspends
///
/// As [`lookup_host`]; on a plain thread too the resolver runs on a thread of its own.
///
/// # Errors
///
/// As [`lookup_host`]; `TimedOut` when the time is up.
pub fn lookup_host_timeout<A: ToSocketAddrs>(
    host: A,
    timeout: Duration,
) -> io::Result<impl Iterator<Item = SocketAddr>> {
    in_time(crate::timeout(timeout, || host.to_socket_addrs()))
}

/// As [`lookup_host`], until `deadline`.
///
/// # Suspends
///
/// As [`lookup_host_timeout`].
///
/// # Errors
///
/// As [`lookup_host`]; `TimedOut` at the deadline.
pub fn lookup_host_deadline<A: ToSocketAddrs>(
    host: A,
    deadline: Instant,
) -> io::Result<impl Iterator<Item = SocketAddr>> {
    in_time(crate::timeout_deadline(deadline, || host.to_socket_addrs()))
}

fn in_time<T>(result: Result<io::Result<T>, Elapsed>) -> io::Result<T> {
    result.unwrap_or_else(|_| Err(WaitError::Timeout.into()))
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.into())
}

impl ToSocketAddrs for SocketAddr {
    type Iter = option::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        Ok(Some(*self).into_iter())
    }
}

impl ToSocketAddrs for SocketAddrV4 {
    type Iter = option::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        SocketAddr::V4(*self).to_socket_addrs()
    }
}

impl ToSocketAddrs for SocketAddrV6 {
    type Iter = option::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        SocketAddr::V6(*self).to_socket_addrs()
    }
}

impl ToSocketAddrs for (IpAddr, u16) {
    type Iter = option::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        SocketAddr::from(*self).to_socket_addrs()
    }
}

impl ToSocketAddrs for (Ipv4Addr, u16) {
    type Iter = option::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        SocketAddr::from(*self).to_socket_addrs()
    }
}

impl ToSocketAddrs for (Ipv6Addr, u16) {
    type Iter = option::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        SocketAddr::from(*self).to_socket_addrs()
    }
}

impl<'a> ToSocketAddrs for &'a [SocketAddr] {
    type Iter = iter::Cloned<slice::Iter<'a, SocketAddr>>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        Ok(self.iter().cloned())
    }
}

impl ToSocketAddrs for (&str, u16) {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        let (host, port) = *self;
        match host.parse::<IpAddr>() {
            Ok(ip) => Ok(vec![SocketAddr::new(ip, port)].into_iter()),
            Err(_) => Ok(resolve(host, port)?.into_iter()),
        }
    }
}

impl ToSocketAddrs for (String, u16) {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        (self.0.as_str(), self.1).to_socket_addrs()
    }
}

impl ToSocketAddrs for str {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        if let Ok(address) = self.parse() {
            return Ok(vec![address].into_iter());
        }
        let parts = self.rsplit_once(':');
        let (host, port) =
            parts.ok_or_else(|| invalid(format!("`{self}` has no port: write host:port")))?;
        let port = port.parse();
        let port =
            port.map_err(|_| invalid(format!("`{self}`: the port is not a number up to 65535")))?;
        (host, port).to_socket_addrs()
    }
}

impl ToSocketAddrs for String {
    type Iter = vec::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        self.as_str().to_socket_addrs()
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    type Iter = T::Iter;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        (**self).to_socket_addrs()
    }
}

/// Does `f` with one address after another until it succeeds; otherwise the last error.
///
/// A cancel or a timeout ends it at once.
pub(super) fn first_of<A: ToSocketAddrs, T>(
    addresses: A,
    mut f: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for address in addresses.to_socket_addrs()? {
        match f(address) {
            Err(error) if !crate::is_cancelled(&error) => last = Some(error),
            result => return result,
        }
    }
    Err(last.unwrap_or_else(|| invalid("no address to try")))
}
