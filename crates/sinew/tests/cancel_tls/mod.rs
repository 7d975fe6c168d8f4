//! The rows of TLS.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use sinew::net::UnixStream;
use sinew::time::now;
use sinew::tls::rustls::pki_types::PrivatePkcs8KeyDer;
use sinew::tls::rustls::{ClientConfig, RootCertStore, ServerConfig, ServerConnection};
use sinew::tls::{TlsAcceptor, TlsConnector, TlsStream};
use sinew::{Builder, JoinHandle};

use super::{HOUR, Operation, Row, Until, of_io};

pub(super) const ROWS: [Row; 5] = [
    ("TLS connect", shaking_hands),
    ("TLS accept", awaiting_client),
    ("TLS read", reading),
    ("TLS write", writing),
    ("TLS shutdown", shutting_down),
];

/// Debug builds of rustls have large frames.
const STACK_BYTES: usize = 512 << 10;

fn spawn<T: 'static>(f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    Builder::new()
        .stack_size(STACK_BYTES)
        .spawn_local(f)
        .unwrap()
}

/// A server that is certified, and a client that believes it.
#[expect(clippy::large_stack_frames, reason = "keys are handed around by value")]
fn configurations() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let mut roots = RootCertStore::empty();
    roots
        .add(params.self_signed(&key).unwrap().der().clone())
        .unwrap();
    let issuer = Issuer::new(params, key);
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        )
        .unwrap();
    let client = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

/// Made once: it takes a while.
fn configured() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    static MADE: std::sync::OnceLock<(Arc<ServerConfig>, Arc<ClientConfig>)> =
        std::sync::OnceLock::new();
    let made = MADE.get_or_init(|| std::thread::spawn(configurations).join().unwrap());
    made.clone()
}

/// A client's stream and the server's.
fn pair() -> (TlsStream<UnixStream>, TlsStream<UnixStream>) {
    let (server, client) = configured();
    let (near, far) = UnixStream::pair().unwrap();
    let accepting = spawn(move || TlsAcceptor::new(server).accept(far).unwrap());
    let connecting = spawn(move || {
        TlsConnector::new(client)
            .connect("localhost", near)
            .unwrap()
    });
    (connecting.join().unwrap(), accepting.join().unwrap())
}

fn shaking_hands() -> Operation {
    let (server, client) = configured();
    let (near, far) = UnixStream::pair().unwrap();
    let connector = TlsConnector::new(client);
    let wait = move |until| {
        let name = "localhost";
        of_io(match until {
            Until::Forever => connector.connect(name, near),
            Until::Hour => connector.connect_timeout(name, near, HOUR),
            Until::Zero => connector.connect_timeout(name, near, Duration::ZERO),
            Until::Past => {
                let past = now() - Duration::from_millis(1);
                connector.connect_deadline(name, near, past)
            }
        })
    };
    // The greeting is there, and the answer to it has room: nobody waits for anything. On a thread, for its stack.
    let answer = move || {
        let answering = std::thread::spawn(move || {
            let mut far = far;
            let mut server = ServerConnection::new(server).unwrap();
            server.read_tls(&mut far).unwrap();
            server.process_new_packets().unwrap();
            while server.wants_write() {
                server.write_tls(&mut far).unwrap();
            }
            // The client has still something to say.
            std::mem::forget(far);
        });
        answering.join().unwrap();
    };
    Operation::new(wait).io().during(answer)
}

/// It takes two answers of the client's, of which the second is one to the server's.
fn awaiting_client() -> Operation {
    let (server, _) = configured();
    let (near, far) = UnixStream::pair().unwrap();
    let acceptor = TlsAcceptor::new(server);
    let wait = move |until| {
        let _open = far;
        of_io(match until {
            Until::Forever => acceptor.accept(near),
            Until::Hour => acceptor.accept_timeout(near, HOUR),
            Until::Zero => acceptor.accept_timeout(near, Duration::ZERO),
            Until::Past => acceptor.accept_deadline(near, now() - Duration::from_millis(1)),
        })
    };
    Operation::new(wait).io()
}

fn deadline_of(until: Until) -> Option<std::time::Instant> {
    match until {
        Until::Forever => None,
        Until::Hour => Some(now() + HOUR),
        Until::Zero => Some(now()),
        Until::Past => Some(now() - Duration::from_millis(1)),
    }
}

fn reading() -> Operation {
    let (mut near, far) = pair();
    let wait = move |until| {
        near.set_read_deadline(deadline_of(until));
        of_io(near.read(&mut [0]))
    };
    Operation::new(wait)
        .by(move || assert_eq!((&far).write(b"x").unwrap(), 1))
        .io()
}

/// A stream that is full, and what makes room in it.
fn full() -> (TlsStream<UnixStream>, impl Fn() + 'static) {
    let (near, far) = pair();
    near.set_write_deadline(Some(now()));
    let error = loop {
        if let Err(error) = (&near).write(&vec![7; 10_000]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let far = Rc::new(far);
    let make_room = move || {
        let mut socket = far.get_ref();
        socket.set_read_deadline(Some(now()));
        let mut buffer = vec![0; 16 << 10];
        let error = loop {
            if let Err(error) = socket.read(&mut buffer) {
                break error;
            }
        };
        // The near end goes with an operation that never runs.
        let kinds = [ErrorKind::TimedOut, ErrorKind::ConnectionReset];
        assert!(kinds.contains(&error.kind()), "{error}");
    };
    (near, make_room)
}

fn writing() -> Operation {
    let (mut near, make_room) = full();
    let wait = move |until| {
        near.set_write_deadline(deadline_of(until));
        of_io(near.write(b"x"))
    };
    Operation::new(wait).by(make_room).io()
}

fn shutting_down() -> Operation {
    let (near, make_room) = full();
    let wait = move |until| {
        near.set_write_deadline(deadline_of(until));
        of_io(near.shutdown(Shutdown::Write))
    };
    Operation::new(wait).by(make_room).io()
}
