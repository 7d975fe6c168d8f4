//! TLS over our streams, as client and as server, by rustls.
//!
//! A [`TlsConnector`] or a [`TlsAcceptor`] makes a [`TlsStream`] of a connection: it holds a configuration of rustls's ([`rustls::ClientConfig`],
//! [`rustls::ServerConfig`]), where certificates, client certificates, ALPN and everything else is decided. The feature `tls` brings
//! rustls with `ring` as the provider of cryptography; a configuration with another one works as well.
//!
//! The stream has std's traits, and like a socket it can be shared: one coroutine may read while another writes, and neither waits for
//! the other. Its end is authentic: who reads gets 0 bytes only if the other side said that there is no more
//! ([`TlsStream::shutdown`]); if the connection was cut, an `UnexpectedEof`.
//!
//! Debug builds of rustls have large frames: give coroutines that shake hands 256 KiB of stack ([`crate::Builder::stack_size`]).
//!
//! # Examples
//!
//! ```no_run
//! use std::io::{Read, Write};
//! use std::sync::Arc;
//! use std::time::Duration;
//! use sinew::net::TcpStream;
//! use sinew::tls::TlsConnector;
//! use sinew::tls::rustls::{ClientConfig, RootCertStore};
//!
//! # fn main() -> std::io::Result<()> {
//! # let roots = RootCertStore::empty();
//! let config = ClientConfig::builder()
//!     .with_root_certificates(roots)
//!     .with_no_client_auth();
//! let connector = TlsConnector::new(Arc::new(config));
//! let stream = TcpStream::connect("example.org:443")?;
//! let mut stream = connector.connect_timeout("example.org", stream, Duration::from_secs(10))?;
//! stream.write_all(b"GET / HTTP/1.1\r\nhost: example.org\r\nconnection: close\r\n\r\n")?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer)?;
//! # Ok(())
//! # }
//! ```

mod session;
mod stream;
mod transport;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use rustls;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

pub use stream::TlsStream;
pub use transport::Transport;

use crate::sys::clock;

/// What makes TLS streams of connections to servers. Clones share the configuration.
#[derive(Clone)]
pub struct TlsConnector {
    config: Arc<ClientConfig>,
}

impl TlsConnector {
    /// A connector with this configuration.
    pub fn new(config: impl Into<Arc<ClientConfig>>) -> Self {
        Self {
            config: config.into(),
        }
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }

    /// Shakes hands as a client with the server of this name, or IP address: its certificate has to be valid for that.
    ///
    /// # Suspends
    ///
    /// Until the handshake is over.
    ///
    /// # Cancellation
    ///
    /// Ends with an error that [`crate::is_cancelled`] recognises; the connection is closed, as after every error.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a name that cannot be one; `InvalidData` for what the other side did, the certificate included, see
    /// [`protocol_error`]; `UnexpectedEof` if the connection ended; the transport's.
    pub fn connect<S: Transport>(&self, name: &str, transport: S) -> io::Result<TlsStream<S>> {
        self.connect_until(name, transport, None)
    }

    /// As [`TlsConnector::connect`], for at most `timeout` in all.
    ///
    /// # Errors
    ///
    /// As [`TlsConnector::connect`]; `TimedOut` when the time is up.
    pub fn connect_timeout<S: Transport>(
        &self,
        name: &str,
        transport: S,
        timeout: Duration,
    ) -> io::Result<TlsStream<S>> {
        self.connect_until(name, transport, Some(after(timeout)))
    }

    /// As [`TlsConnector::connect`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`TlsConnector::connect`]; `TimedOut` at the deadline.
    pub fn connect_deadline<S: Transport>(
        &self,
        name: &str,
        transport: S,
        deadline: Instant,
    ) -> io::Result<TlsStream<S>> {
        self.connect_until(name, transport, Some(deadline))
    }

    #[expect(
        clippy::large_stack_frames,
        reason = "rustls hands its connections out by value; once in a connection's life"
    )]
    fn connect_until<S: Transport>(
        &self,
        name: &str,
        transport: S,
        deadline: Option<Instant>,
    ) -> io::Result<TlsStream<S>> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let client = ClientConnection::new(Arc::clone(&self.config), name).map_err(refused)?;
        TlsStream::establish(client.into(), transport, deadline)
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnector").finish_non_exhaustive()
    }
}

/// What makes TLS streams of connections that clients have made. Clones share the configuration.
#[derive(Clone)]
pub struct TlsAcceptor {
    config: Arc<ServerConfig>,
}

impl TlsAcceptor {
    /// An acceptor with this configuration.
    pub fn new(config: impl Into<Arc<ServerConfig>>) -> Self {
        Self {
            config: config.into(),
        }
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// Shakes hands as a server.
    ///
    /// A client that says nothing would be waited for for ever: a server that meets strangers sets a limit
    /// ([`TlsAcceptor::accept_timeout`]), and accepts the next connection in the meantime.
    ///
    /// # Suspends
    ///
    /// Until the handshake is over.
    ///
    /// # Cancellation
    ///
    /// Ends with an error that [`crate::is_cancelled`] recognises; the connection is closed, as after every error.
    ///
    /// # Errors
    ///
    /// `InvalidData` for what the other side did, the certificate included, see [`protocol_error`]; `UnexpectedEof` if the
    /// connection ended; the transport's.
    pub fn accept<S: Transport>(&self, transport: S) -> io::Result<TlsStream<S>> {
        self.accept_until(transport, None)
    }

    /// As [`TlsAcceptor::accept`], for at most `timeout` in all.
    ///
    /// # Errors
    ///
    /// As [`TlsAcceptor::accept`]; `TimedOut` when the time is up.
    pub fn accept_timeout<S: Transport>(
        &self,
        transport: S,
        timeout: Duration,
    ) -> io::Result<TlsStream<S>> {
        self.accept_until(transport, Some(after(timeout)))
    }

    /// As [`TlsAcceptor::accept`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`TlsAcceptor::accept`]; `TimedOut` at the deadline.
    pub fn accept_deadline<S: Transport>(
        &self,
        transport: S,
        deadline: Instant,
    ) -> io::Result<TlsStream<S>> {
        self.accept_until(transport, Some(deadline))
    }

    #[expect(
        clippy::large_stack_frames,
        reason = "rustls hands its connections out by value; once in a connection's life"
    )]
    fn accept_until<S: Transport>(
        &self,
        transport: S,
        deadline: Option<Instant>,
    ) -> io::Result<TlsStream<S>> {
        let server = ServerConnection::new(Arc::clone(&self.config)).map_err(refused)?;
        TlsStream::establish(server.into(), transport, deadline)
    }
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsAcceptor").finish_non_exhaustive()
    }
}

/// What was wrong with the other side or its certificate, if the error is of TLS.
///
/// # Examples
///
/// ```
/// use std::io;
/// use sinew::tls::{protocol_error, rustls};
///
/// let cut = io::Error::from(io::ErrorKind::UnexpectedEof);
/// assert_eq!(protocol_error(&cut), None);
/// let strange = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::DecryptError);
/// assert_eq!(protocol_error(&strange), Some(&rustls::Error::DecryptError));
/// ```
#[must_use]
pub fn protocol_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// An error of rustls's as one of I/O.
fn refused(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// When `timeout` will be over.
fn after(timeout: Duration) -> Instant {
    clock::to_instant(clock::after_ns(timeout))
}
