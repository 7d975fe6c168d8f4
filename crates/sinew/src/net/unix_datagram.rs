//! Unix datagram sockets: messages within one machine.
//!
//! Owns: nothing beyond what `Watched` owns. Thread: any.

use std::ffi::OsStr;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrAny, SocketAddrUnix, SocketType, bind, socket_with,
    socketpair,
};

use crate::io::{Direction, Watched, named};
use crate::net::datagram::{Datagram, datagram_interface};
use crate::net::stream::adopt;
use crate::net::tcp::FLAGS;
use crate::net::unix::{kernels, local};

/// A Unix socket for messages, as [`std::os::unix::net::UnixDatagram`].
///
/// Sharing it is as for [`crate::net::UdpSocket`]. Messages are not lost and keep their order.
#[derive(Debug)]
pub struct UnixDatagram {
    datagram: Datagram,
}

/// The sender's address; unnamed if it was bound to none.
fn sender(address: Option<SocketAddrAny>) -> io::Result<SocketAddr> {
    let address = address.map(SocketAddrUnix::try_from).transpose()?;
    if let Some(name) = address.as_ref().and_then(SocketAddrUnix::abstract_name) {
        return SocketAddr::from_abstract_name(name);
    }
    // No path is how std writes an unnamed address.
    let path = address.as_ref().and_then(SocketAddrUnix::path);
    let path = path.as_ref().map_or(&b""[..], |path| path.to_bytes());
    SocketAddr::from_pathname(OsStr::from_bytes(path))
}

fn new_socket() -> io::Result<OwnedFd> {
    let datagram = SocketType::DGRAM;
    Ok(socket_with(AddressFamily::UNIX, datagram, FLAGS, None)?)
}

impl UnixDatagram {
    /// A socket at this path, which must not exist yet. It is not removed when the socket is dropped.
    ///
    /// # Errors
    ///
    /// Names the path; `AddrInUse` if it exists.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        let path = path.as_ref();
        let bound = || Self::bind_to(&SocketAddrUnix::new(path)?);
        bound().map_err(|error| named(error, || format!("binding {}", path.display())))
    }

    /// A socket at this address.
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
        Ok(Self::over(Watched::new(fd)))
    }

    /// A socket without an address: it can send, but nobody can answer.
    ///
    /// # Errors
    ///
    /// The kernel's: too many descriptors, for one.
    pub fn unbound() -> io::Result<Self> {
        Ok(Self::over(Watched::new(new_socket()?)))
    }

    /// Two sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// The kernel's: too many descriptors, for one.
    pub fn pair() -> io::Result<(Self, Self)> {
        let datagram = SocketType::DGRAM;
        let (a, b) = socketpair(AddressFamily::UNIX, datagram, FLAGS, None)?;
        Ok((Self::over(Watched::new(a)), Self::over(Watched::new(b))))
    }

    /// Connects the socket to the one at this path: it sends there, and receives from there only.
    ///
    /// # Errors
    ///
    /// Names the path; `ConnectionRefused` if nobody has it any more.
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let path = path.as_ref();
        let connected = || self.connect_to(&SocketAddrUnix::new(path)?);
        connected().map_err(|error| named(error, || format!("connecting to {}", path.display())))
    }

    /// As [`UnixDatagram::connect`], to an address.
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::connect`]; `InvalidInput` if it has no name.
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        let connected = || self.connect_to(&kernels(address)?);
        connected().map_err(|error| named(error, || format!("connecting to {address:?}")))
    }

    fn connect_to(&self, address: &SocketAddrUnix) -> io::Result<()> {
        Ok(rustix::net::connect(&self.datagram, address)?)
    }

    /// As [`UnixDatagram::recv`], with the sender's address, which is unnamed if it is bound to none.
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::recv`].
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (len, address) = self.datagram.recv_from(buffer, RecvFlags::empty())?;
        Ok((len, sender(address)?))
    }

    /// As [`UnixDatagram::recv_from`], but the message stays where it is.
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::recv`].
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (len, address) = self.datagram.recv_from(buffer, RecvFlags::PEEK)?;
        Ok((len, sender(address)?))
    }

    /// Sends a message to the socket at this path.
    ///
    /// # Suspends
    ///
    /// While that socket has no room for it. The kernel does not tell when there is room again, so it is asked every few
    /// milliseconds; [`UnixDatagram::connect`] and [`UnixDatagram::send`] are told.
    ///
    /// # Cancellation
    ///
    /// Ends with an error that [`crate::is_cancelled`] recognises; nothing has been sent.
    ///
    /// # Errors
    ///
    /// `TimedOut`; the kernel's, which name the path.
    pub fn send_to<P: AsRef<Path>>(&self, buffer: &[u8], path: P) -> io::Result<usize> {
        let path = path.as_ref();
        let send = || {
            let to = SocketAddrUnix::new(path)?;
            self.datagram.send_to_crowded(buffer, &to)
        };
        send().map_err(|error| named(error, || format!("sending to {}", path.display())))
    }

    /// As [`UnixDatagram::send_to`], to an address: one that [`UnixDatagram::recv_from`] has told, for one.
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::send_to`]; `InvalidInput` if it has no name.
    pub fn send_to_addr(&self, buffer: &[u8], address: &SocketAddr) -> io::Result<usize> {
        let send = || self.datagram.send_to_crowded(buffer, &kernels(address)?);
        send().map_err(|error| named(error, || format!("sending to {address:?}")))
    }

    /// The address of this side.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        local(&self.datagram.options().local_addr()?)
    }

    /// The address that the socket is connected to.
    ///
    /// # Errors
    ///
    /// `NotConnected` if there is none.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        local(&self.datagram.options().peer_addr()?)
    }

    /// Shuts directions down. Who waits to receive gets an empty message; who waits to send gets an error.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.datagram.options().shutdown(how)
    }
}

datagram_interface!(UnixDatagram, std::os::unix::net::UnixDatagram);
