//! What the tests of TLS share: a certificate authority of their own, and a transport that meddles.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::print_stderr, reason = "says why the process ends")]

use std::io;
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use sinew::net::TcpStream;
use sinew::tls::{TlsAcceptor, TlsConnector, TlsStream, Transport};
use sinew::{Builder, JoinHandle};

/// Debug builds of rustls have large frames.
pub(crate) const STACK_BYTES: usize = 256 << 10;

/// How many times as long stress tests run.
pub(crate) fn stress() -> usize {
    let factor = std::env::var("SINEW_STRESS").ok();
    factor.and_then(|factor| factor.parse().ok()).unwrap_or(1)
}

/// Ends the process if the test that holds it hangs.
pub(crate) struct Watchdog(Option<mpsc::Sender<()>>);

pub(crate) fn watchdog() -> Watchdog {
    let (alive, ended) = mpsc::channel::<()>();
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    std::thread::spawn(move || {
        let limit = Duration::from_secs(120 + 60 * stress() as u64);
        if ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} hangs");
            std::process::abort();
        }
    });
    Watchdog(Some(alive))
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

pub(crate) fn spawn<T: 'static>(f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    let builder = Builder::new().stack_size(STACK_BYTES);
    builder.spawn_local(f).unwrap()
}

/// An authority, and what it certifies.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

pub(crate) struct Certified {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    pub(crate) fn certify(&self, name: &str) -> Certified {
        self.certify_with(name, |_| ())
    }

    pub(crate) fn certify_with(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Certified {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Certified {
            chain: vec![certificate.der().clone()],
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        }
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        roots
    }

    /// A client's configuration that trusts this authority.
    pub(crate) fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.roots())
            .with_no_client_auth()
    }

    pub(crate) fn client_certified(&self, own: Certified) -> ClientConfig {
        ClientConfig::builder()
            .with_root_certificates(self.roots())
            .with_client_auth_cert(own.chain, own.key)
            .unwrap()
    }

    /// A server's configuration that asks for client certificates of this authority.
    pub(crate) fn server_asking(&self, own: Certified) -> ServerConfig {
        let verifier = WebPkiClientVerifier::builder(Arc::new(self.roots()))
            .build()
            .unwrap();
        ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(own.chain, own.key)
            .unwrap()
    }
}

/// A server's configuration.
pub(crate) fn server(own: Certified) -> ServerConfig {
    ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(own.chain, own.key)
        .unwrap()
}

/// What both sides need, with defaults.
pub(crate) struct Sides {
    pub(crate) connector: TlsConnector,
    pub(crate) acceptor: TlsAcceptor,
}

pub(crate) fn sides() -> Sides {
    sides_of(rustls::ALL_VERSIONS)
}

pub(crate) fn sides_of(versions: &[&'static SupportedProtocolVersion]) -> Sides {
    let authority = Authority::new("tests");
    Sides {
        connector: TlsConnector::new(authority.client(versions)),
        acceptor: TlsAcceptor::new(server(authority.certify("localhost"))),
    }
}

/// Both ends of a TCP connection.
pub(crate) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let one = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let other = listener.accept().unwrap().0;
    let adopt = |stream| TcpStream::from_std(stream).unwrap();
    (adopt(one), adopt(other))
}

impl Sides {
    /// Both ends of a TLS connection: the client's and the server's. In a coroutine.
    pub(crate) fn pair(&self) -> (TlsStream<TcpStream>, TlsStream<TcpStream>) {
        let (one, other) = tcp_pair();
        self.pair_over(one, other)
    }

    pub(crate) fn pair_over<S: Transport + 'static>(
        &self,
        one: S,
        other: S,
    ) -> (TlsStream<S>, TlsStream<S>) {
        let acceptor = self.acceptor.clone();
        let accepting = spawn(move || acceptor.accept(other).unwrap());
        let connector = self.connector.clone();
        let connecting = spawn(move || connector.connect("localhost", one).unwrap());
        (connecting.join().unwrap(), accepting.join().unwrap())
    }
}

/// A transport that lets through little at a time, and may change a byte.
#[derive(Debug)]
pub(crate) struct Meddler {
    inner: TcpStream,
    /// At most so many bytes a call.
    pub(crate) chunk: AtomicUsize,
    /// The byte to be changed, of those written from now on; `usize::MAX`: none.
    pub(crate) change: AtomicUsize,
}

impl Meddler {
    pub(crate) fn new(inner: TcpStream, chunk: usize) -> Self {
        Self {
            inner,
            chunk: AtomicUsize::new(chunk),
            change: AtomicUsize::new(usize::MAX),
        }
    }
}

impl Transport for Meddler {
    fn read_until(&self, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        let len = buffer.len().min(self.chunk.load(Ordering::Relaxed));
        self.inner.read_until(&mut buffer[..len], deadline)
    }

    fn write_until(&self, buffer: &[u8], deadline: Option<Instant>) -> io::Result<usize> {
        let mut bytes = buffer[..buffer.len().min(self.chunk.load(Ordering::Relaxed))].to_vec();
        let change = self.change.load(Ordering::Relaxed);
        if let Some(byte) = bytes.get_mut(change) {
            *byte ^= 1;
        }
        let len = self.inner.write_until(&bytes, deadline)?;
        if change != usize::MAX {
            let next = change.checked_sub(len).unwrap_or(usize::MAX);
            self.change.store(next, Ordering::Relaxed);
        }
        Ok(len)
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.inner.shutdown(how)
    }
}

/// Numbers that look random, the same for the same seed.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let high = usize::try_from(self.0 >> 33).unwrap();
        high % limit
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.below(256).to_le_bytes()[0];
        }
    }
}
