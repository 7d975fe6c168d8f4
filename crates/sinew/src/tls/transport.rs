//! What TLS can run over.
//!
//! Owns: nothing.

use std::io;
use std::net::Shutdown;
use std::time::Instant;

use crate::net::{TcpStream, UnixStream};

/// A connection that carries bytes both ways, each call with an end of its own: our streams, and [`TlsStream`](super::TlsStream) over
/// one of these again. One of your own can be made of a few lines around them.
///
/// One caller may read while another writes.
pub trait Transport {
    /// Reads what is there; 0 bytes are the end.
    ///
    /// What is there already is read even if `deadline` is over; a deadline that is over means: do not wait.
    ///
    /// # Errors
    ///
    /// As std's `read`; `TimedOut` at the deadline, or at a limit of the transport's own.
    fn read_until(&self, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize>;

    /// Writes what there is room for.
    ///
    /// What there is room for already is written even if `deadline` is over; a deadline that is over means: do not wait.
    ///
    /// # Errors
    ///
    /// As std's `write`; `TimedOut` at the deadline, or at a limit of the transport's own.
    fn write_until(&self, buffer: &[u8], deadline: Option<Instant>) -> io::Result<usize>;

    /// Shuts directions down, as std's streams do.
    ///
    /// # Errors
    ///
    /// As std's `shutdown`.
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;
}

macro_rules! transport {
    ($($stream:ty),*) => {$(
        impl Transport for $stream {
            fn read_until(&self, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
                self.stream().read_until(buffer, deadline)
            }

            fn write_until(&self, buffer: &[u8], deadline: Option<Instant>) -> io::Result<usize> {
                self.stream().write_until(buffer, deadline)
            }

            fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.stream().shutdown(how)
            }
        }
    )*};
}
transport!(TcpStream, UnixStream);
