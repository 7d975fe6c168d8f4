//! UDP.
//!
//! Owns: nothing beyond what `Watched` owns. Thread: any.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::net::{
    RecvFlags, SocketAddrAny, SocketType, bind, getpeername, getsockname, socket_with,
};

use crate::io::{Direction, Watched, named};
use crate::net::addr::{ToSocketAddrs, first_of};
use crate::net::datagram::{Datagram, datagram_interface};
use crate::net::stream::adopt;
use crate::net::tcp::{FLAGS, family, internet};

/// A UDP socket, as [`std::net::UdpSocket`].
///
/// Several coroutines may receive and send at the same time, also on several threads; each message goes to one of them.
///
/// # Examples
///
/// ```
/// use sinew::net::UdpSocket;
///
/// sinew::run(|| {
///     let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
///     a.send_to(b"hello", b.local_addr()?)?;
///     let mut buffer = [0; 16];
///     let (len, from) = b.recv_from(&mut buffer)?;
///     assert_eq!((&buffer[..len], from), (&b"hello"[..], a.local_addr()?));
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct UdpSocket {
    datagram: Datagram,
}

/// A sender's address; UDP's senders always have one.
fn sender(address: Option<SocketAddrAny>) -> io::Result<SocketAddr> {
    internet(address.ok_or(rustix::io::Errno::AFNOSUPPORT)?)
}

impl UdpSocket {
    /// A socket at the first of these addresses that can be had. A port of 0 lets the kernel choose.
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
            let bound = || {
                let fd = socket_with(family(&address), SocketType::DGRAM, FLAGS, None)?;
                bind(&fd, &address)?;
                Ok(Self::over(Watched::new(fd)))
            };
            bound().map_err(|error| named(error, || format!("binding {address}")))
        })
    }

    /// Connects the socket to the first of these addresses that it can be connected to: it sends there, and receives
    /// from there only. Another call connects it anew.
    ///
    /// # Suspends
    ///
    /// If there is a name to resolve. Nothing is sent.
    ///
    /// # Errors
    ///
    /// Names the address.
    pub fn connect<A: ToSocketAddrs>(&self, address: A) -> io::Result<()> {
        first_of(address, |address| {
            let connected = rustix::net::connect(&self.datagram, &address);
            connected.map_err(|error| named(error.into(), || format!("connecting to {address}")))
        })
    }

    /// As [`UdpSocket::recv`], with the sender's address.
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::recv`].
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (len, address) = self.datagram.recv_from(buffer, RecvFlags::empty())?;
        Ok((len, sender(address)?))
    }

    /// As [`UdpSocket::recv_from`], but the message stays where it is.
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::recv`].
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (len, address) = self.datagram.recv_from(buffer, RecvFlags::PEEK)?;
        Ok((len, sender(address)?))
    }

    /// Sends a message to the first of these addresses.
    ///
    /// # Suspends
    ///
    /// Until there is room for it, and if there is a name to resolve.
    ///
    /// # Cancellation
    ///
    /// Ends with an error that [`crate::is_cancelled`] recognises; nothing has been sent.
    ///
    /// # Errors
    ///
    /// `TimedOut`; the kernel's, which name the address; `InvalidInput` if there is no address.
    pub fn send_to<A: ToSocketAddrs>(&self, buffer: &[u8], address: A) -> io::Result<usize> {
        let Some(address) = address.to_socket_addrs()?.next() else {
            let what = "no address to send to";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };
        let sent = self.datagram.send_to(buffer, &address);
        sent.map_err(|error| named(error, || format!("sending to {address}")))
    }

    /// The address of this side.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        internet(getsockname(&self.datagram)?)
    }

    /// The address that the socket is connected to.
    ///
    /// # Errors
    ///
    /// `NotConnected` if there is none.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let address = getpeername(&self.datagram)?;
        internet(address.ok_or(rustix::io::Errno::NOTCONN)?)
    }

    /// Whether messages may go to broadcast addresses (`SO_BROADCAST`).
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.datagram.options().set_broadcast(broadcast)
    }

    /// Whether messages may go to broadcast addresses.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.datagram.options().broadcast()
    }

    /// Sets the time to live of the packets.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.datagram.options().set_ttl_v4(ttl)
    }

    /// The time to live of the packets.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.datagram.options().ttl_v4()
    }

    /// Whether messages to groups of the fourth version come back to this machine.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_multicast_loop_v4(&self, comes_back: bool) -> io::Result<()> {
        self.datagram.options().set_multicast_loop_v4(comes_back)
    }

    /// Whether messages to groups of the fourth version come back to this machine.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.datagram.options().multicast_loop_v4()
    }

    /// Sets the time to live of messages to groups of the fourth version.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.datagram.options().set_multicast_ttl_v4(ttl)
    }

    /// The time to live of messages to groups of the fourth version.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.datagram.options().multicast_ttl_v4()
    }

    /// Whether messages to groups of the sixth version come back to this machine.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn set_multicast_loop_v6(&self, comes_back: bool) -> io::Result<()> {
        self.datagram.options().set_multicast_loop_v6(comes_back)
    }

    /// Whether messages to groups of the sixth version come back to this machine.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.datagram.options().multicast_loop_v6()
    }

    /// Joins a group of the fourth version at the interface with this address; the kernel chooses one if it is unspecified.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.datagram.options().join_multicast_v4(group, interface)
    }

    /// Joins a group of the sixth version at the interface with this index; the kernel chooses one for 0.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.datagram.options().join_multicast_v6(group, interface)
    }

    /// Leaves a group.
    ///
    /// # Errors
    ///
    /// The kernel's, if it was not joined.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.datagram.options().leave_multicast_v4(group, interface)
    }

    /// Leaves a group.
    ///
    /// # Errors
    ///
    /// The kernel's, if it was not joined.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.datagram.options().leave_multicast_v6(group, interface)
    }
}

datagram_interface!(UdpSocket, std::net::UdpSocket);
