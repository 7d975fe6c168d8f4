//! Sockets with std's names and traits: a call that would block suspends the coroutine instead of the thread.
//!
//! On a plain thread the same calls block the thread. A socket may be shared by coroutines of several schedulers, and
//! by plain threads: one may read while another writes, and several may wait for the same direction.
//!
//! All descriptors made here are close-on-exec and in non-blocking mode. Writing to a connection that is closed is an
//! error, never a signal.
//!
//! Beyond std, each direction has a deadline as well as a timeout: the timeout limits each call, the deadline all of them.
//! An ended wait leaves the socket as it was; [`crate::is_cancelled`] tells a cancel from other errors.

mod accept;
mod addr;
mod attempts;
mod datagram;
mod resolve;
mod split;
mod stream;
mod tcp;
mod udp;
mod unix;
mod unix_datagram;

pub use std::net::Shutdown;

pub use addr::{ToSocketAddrs, lookup_host, lookup_host_deadline, lookup_host_timeout};
pub(crate) use split::Split;
pub use split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
#[cfg(feature = "tls")]
pub(crate) use split::{split_borrowed, split_owned};
pub(crate) use stream::Stream;
pub use tcp::{Incoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixIncoming, UnixListener, UnixStream};
pub use unix_datagram::UnixDatagram;
