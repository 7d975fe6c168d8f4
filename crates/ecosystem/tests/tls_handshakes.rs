//! TLS by rustls over our streams: handshakes that come about, and those that must not.

mod tls_rig;

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rcgen::date_time_ymd;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, CertificateError, ProtocolVersion, ServerConfig};
use sinew::net::{TcpListener, TcpStream, UnixStream};
use sinew::tls::{TlsAcceptor, TlsConnector, TlsStream, protocol_error};
use sinew::{run, sleep, spawn_local};
use tls_rig::{Authority, Certified, Sides, server, sides, sides_of, spawn, tcp_pair, watchdog};

/// What became of a handshake at both ends, when each side has read what the other had to say.
type Ends = (
    io::Result<TlsStream<TcpStream>>,
    io::Result<TlsStream<TcpStream>>,
);

fn shake(connector: TlsConnector, acceptor: TlsAcceptor, name: &str) -> Ends {
    let name = name.to_owned();
    run(move || {
        let (one, other) = tcp_pair();
        let accepting = spawn(move || {
            let mut stream = acceptor.accept(other)?;
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            stream.write_all(&byte)?;
            Ok(stream)
        });
        let connecting = spawn(move || {
            let mut stream = connector.connect(&name, one)?;
            stream.write_all(b"x")?;
            // A server's refusal of a client's certificate comes after the client's handshake.
            stream.read_exact(&mut [0])?;
            Ok(stream)
        });
        (connecting.join().unwrap(), accepting.join().unwrap())
    })
}

fn assert_certificate(error: &io::Error, expected: fn(&CertificateError) -> bool) {
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    match protocol_error(error) {
        Some(rustls::Error::InvalidCertificate(why)) => assert!(expected(why), "{why:?}"),
        other => panic!("{other:?}"),
    }
}

fn assert_alert(error: &io::Error, expected: AlertDescription) {
    assert_eq!(
        protocol_error(error),
        Some(&rustls::Error::AlertReceived(expected)),
        "{error}"
    );
}

// contract: I8
#[test]
fn both_versions_both_sides_agree() {
    let _watchdog = watchdog();
    for (version, number) in [
        (&rustls::version::TLS12, ProtocolVersion::TLSv1_2),
        (&rustls::version::TLS13, ProtocolVersion::TLSv1_3),
    ] {
        let authority = Authority::new("tests");
        let mut client = authority.client(&[version]);
        client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut own = server(authority.certify("localhost"));
        own.alpn_protocols = vec![b"http/1.1".to_vec()];
        let (client, server) = shake(
            TlsConnector::new(client),
            TlsAcceptor::new(own),
            "localhost",
        );
        let (client, server) = (client.unwrap(), server.unwrap());
        assert_eq!(client.protocol_version(), Some(number));
        assert_eq!(server.protocol_version(), Some(number));
        assert_eq!(client.alpn_protocol(), Some(&b"http/1.1"[..]));
        assert_eq!(server.alpn_protocol(), client.alpn_protocol());
        assert_eq!(server.server_name(), Some("localhost"));
        assert_eq!(client.server_name(), None);
        assert_eq!(client.peer_certificates().unwrap().len(), 1);
        assert_eq!(server.peer_certificates(), None);
        // Both derive the same secret.
        let secret = |stream: &TlsStream<TcpStream>| {
            let derive = |connection: &rustls::Connection| {
                connection.export_keying_material([0_u8; 16], b"test", None)
            };
            stream.with_connection(derive).unwrap().unwrap()
        };
        assert_eq!(secret(&client), secret(&server));
        assert!(format!("{client:?}").contains("TcpStream"));
        // What is beneath goes on without TLS.
        let (mut client, mut server) = (client.into_inner(), server.into_inner());
        client.write_all(b"plain").unwrap();
        let mut plain = [0; 5];
        server.read_exact(&mut plain).unwrap();
        assert_eq!(&plain, b"plain");
    }
}

// contract: I8
#[test]
fn no_protocol_in_common_is_an_error_at_both_ends() {
    let _watchdog = watchdog();
    let authority = Authority::new("tests");
    let mut client = authority.client(rustls::ALL_VERSIONS);
    client.alpn_protocols = vec![b"a".to_vec()];
    let mut own = server(authority.certify("localhost"));
    own.alpn_protocols = vec![b"b".to_vec()];
    let (client, server) = shake(
        TlsConnector::new(client),
        TlsAcceptor::new(own),
        "localhost",
    );
    assert_alert(
        &client.unwrap_err(),
        AlertDescription::NoApplicationProtocol,
    );
    assert!(protocol_error(&server.unwrap_err()).is_some());
    // Nor a version.
    let (client, server) = shake(
        TlsConnector::new(authority.client(&[&rustls::version::TLS12])),
        TlsAcceptor::new({
            let own = authority.certify("localhost");
            ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
                .with_no_client_auth()
                .with_single_cert(own.chain, own.key)
                .unwrap()
        }),
        "localhost",
    );
    assert_alert(&client.unwrap_err(), AlertDescription::ProtocolVersion);
    assert!(protocol_error(&server.unwrap_err()).is_some());
}

// contract: I8
#[test]
fn a_certificate_for_another_name_is_refused_and_the_server_is_told() {
    let _watchdog = watchdog();
    let Sides {
        connector,
        acceptor,
    } = sides();
    let (client, server) = shake(connector.clone(), acceptor.clone(), "example.org");
    assert_certificate(&client.unwrap_err(), |why| {
        matches!(why, CertificateError::NotValidForNameContext { .. })
    });
    assert_alert(&server.unwrap_err(), AlertDescription::BadCertificate);
    // An address is another name too.
    let (client, _) = shake(connector.clone(), acceptor.clone(), "127.0.0.1");
    assert_certificate(&client.unwrap_err(), |why| {
        matches!(why, CertificateError::NotValidForNameContext { .. })
    });
    // And what is no name at all is not asked for.
    let (client, server) = shake(connector, acceptor, "no name");
    assert_eq!(client.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(server.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

// contract: I8
#[test]
fn a_certificate_for_an_address_is_good_for_that() {
    let _watchdog = watchdog();
    let authority = Authority::new("tests");
    let connector = TlsConnector::new(authority.client(rustls::ALL_VERSIONS));
    let acceptor = TlsAcceptor::new(server(authority.certify("127.0.0.1")));
    let (client, server) = shake(connector, acceptor, "127.0.0.1");
    client.unwrap();
    // An address is not asked for by name.
    assert_eq!(server.unwrap().server_name(), None);
}

// contract: I8
#[test]
fn an_unknown_authority_and_an_expired_certificate_are_refused() {
    let _watchdog = watchdog();
    let (known, unknown) = (Authority::new("known"), Authority::new("unknown"));
    let connector = TlsConnector::new(known.client(rustls::ALL_VERSIONS));
    let strange = TlsAcceptor::new(server(unknown.certify("localhost")));
    let (client, server_end) = shake(connector.clone(), strange, "localhost");
    assert_certificate(&client.unwrap_err(), |why| {
        matches!(why, CertificateError::UnknownIssuer)
    });
    assert_alert(&server_end.unwrap_err(), AlertDescription::UnknownCA);

    let expired = known.certify_with("localhost", |params| {
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
    });
    let (client, server_end) = shake(
        connector.clone(),
        TlsAcceptor::new(server(expired)),
        "localhost",
    );
    assert_certificate(&client.unwrap_err(), |why| {
        matches!(why, CertificateError::ExpiredContext { .. })
    });
    assert_alert(
        &server_end.unwrap_err(),
        AlertDescription::CertificateExpired,
    );

    let early = known.certify_with("localhost", |params| {
        params.not_before = date_time_ymd(4000, 1, 1);
    });
    let (client, _) = shake(connector, TlsAcceptor::new(server(early)), "localhost");
    assert_certificate(&client.unwrap_err(), |why| {
        matches!(why, CertificateError::NotValidYetContext { .. })
    });
}

// contract: I8
#[test]
fn a_server_that_asks_for_certificates_gets_the_right_ones_only() {
    let _watchdog = watchdog();
    let (authority, other) = (Authority::new("tests"), Authority::new("other"));
    let asking = TlsAcceptor::new(authority.server_asking(authority.certify("localhost")));

    let own = authority.certify("client");
    let shown = own.chain.clone();
    let connector = TlsConnector::new(authority.client_certified(own));
    let (client, server) = shake(connector, asking.clone(), "localhost");
    client.unwrap();
    assert_eq!(server.unwrap().peer_certificates(), Some(&shown[..]));

    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let without = TlsConnector::new(authority.client(&[version]));
        let (client, server) = shake(without, asking.clone(), "localhost");
        assert_eq!(
            protocol_error(&server.unwrap_err()),
            Some(&rustls::Error::NoCertificatesPresented)
        );
        assert_alert(&client.unwrap_err(), AlertDescription::CertificateRequired);
    }

    let strange = TlsConnector::new(authority.client_certified(other.certify("client")));
    let (client, server) = shake(strange, asking, "localhost");
    assert_certificate(&server.unwrap_err(), |why| {
        matches!(why, CertificateError::UnknownIssuer)
    });
    assert_alert(&client.unwrap_err(), AlertDescription::UnknownCA);
}

// contract: I8
#[test]
fn a_handshake_with_one_who_says_nothing_ends_in_time() {
    let _watchdog = watchdog();
    let Sides {
        connector,
        acceptor,
    } = sides();
    let limit = Duration::from_millis(30);
    let silent = move || {
        let (one, other) = tcp_pair();
        let begun = sinew::time::now();
        let errors = [
            acceptor.accept_timeout(one, limit).unwrap_err(),
            acceptor
                .accept_deadline(tcp_pair().0, begun + limit)
                .unwrap_err(),
            connector
                .connect_timeout("localhost", other, limit)
                .unwrap_err(),
            {
                let (one, _silent) = tcp_pair();
                connector
                    .connect_deadline("localhost", one, sinew::time::now() + limit)
                    .unwrap_err()
            },
        ];
        (errors, begun.elapsed())
    };
    // The first acceptor's connection is gone when its peer connects, who reads an end.
    let kinds = |errors: [io::Error; 4]| errors.map(|error| error.kind());
    let expected = [
        io::ErrorKind::TimedOut,
        io::ErrorKind::TimedOut,
        io::ErrorKind::UnexpectedEof,
        io::ErrorKind::TimedOut,
    ];
    let inside = silent.clone();
    let (errors, took) = run(|| spawn(inside).join().unwrap());
    assert_eq!(kinds(errors), expected);
    assert!(took >= limit * 2);
    // A plain thread as well.
    let (errors, took) = silent();
    assert_eq!(kinds(errors), expected);
    assert!(took >= limit * 2);
}

// contract: I8
#[test]
fn one_byte_now_and_then_does_not_stretch_the_limit() {
    let _watchdog = watchdog();
    let Sides { acceptor, .. } = sides();
    run(|| {
        let (one, mut other) = tcp_pair();
        let dripping = spawn_local(move || {
            // The head of a record of 16 KiB, and then its bytes.
            let mut next = [22, 3, 1, 0x40, 0].into_iter().chain(std::iter::repeat(1));
            while other.write_all(&[next.next().unwrap()]).is_ok() {
                if sleep(Duration::from_millis(3)).is_err() {
                    return;
                }
            }
        });
        let limit = Duration::from_millis(60);
        let begun = sinew::time::now();
        let error = spawn(move || acceptor.accept_timeout(one, limit).unwrap_err());
        let error = error.join().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(begun.elapsed() >= limit && begun.elapsed() < limit * 100);
        dripping.cancel("done");
        dripping.join().unwrap();
    });
}

// contract: I8
#[test]
fn a_cancelled_handshake_closes_the_connection() {
    let _watchdog = watchdog();
    let Sides {
        connector,
        acceptor,
    } = sides();
    run(|| {
        let (one, mut other) = tcp_pair();
        let accepting = spawn(move || acceptor.accept(one).map(|_| ()));
        let (two, mut another) = tcp_pair();
        let connecting = spawn(move || connector.connect("localhost", two).map(|_| ()));
        // The client's hello has come, so both wait.
        another.read_exact(&mut [0; 5]).unwrap();
        for shaking in [accepting, connecting] {
            shaking.cancel("no longer wanted");
            let error = shaking.join().unwrap().unwrap_err();
            assert!(sinew::is_cancelled(&error), "{error}");
        }
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
        let mut hello = Vec::new();
        another.read_to_end(&mut hello).unwrap();
        assert!(!hello.is_empty());
    });
}

// contract: I8
#[test]
fn one_who_speaks_no_tls_is_refused_with_an_alert() {
    let _watchdog = watchdog();
    let Sides {
        connector,
        acceptor,
    } = sides();
    run(|| {
        let (one, mut other) = tcp_pair();
        other.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let error = spawn(move || acceptor.accept(one).unwrap_err());
        let error = error.join().unwrap();
        assert!(
            matches!(
                protocol_error(&error),
                Some(rustls::Error::InvalidMessage(_))
            ),
            "{error:?}"
        );
        let mut answer = Vec::new();
        other.read_to_end(&mut answer).unwrap();
        // An alert, fatal.
        assert_eq!((answer[0], answer[5]), (21, 2));

        let (two, mut another) = tcp_pair();
        another.write_all(b"220 mail ready\r\n").unwrap();
        let error = spawn(move || connector.connect("localhost", two).unwrap_err());
        assert!(protocol_error(&error.join().unwrap()).is_some());

        // And one who goes in the middle.
        let (three, gone) = tcp_pair();
        let Sides { connector, .. } = sides();
        let connecting = spawn(move || connector.connect("localhost", three).unwrap_err());
        sinew::yield_now().unwrap();
        gone.shutdown(Shutdown::Write).unwrap();
        let error = connecting.join().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    });
}

// contract: I8
#[test]
fn an_alert_is_the_reason_even_where_writing_failed_first() {
    let _watchdog = watchdog();
    let Sides { connector, .. } = sides();
    let (one, mut other) = UnixStream::pair().unwrap();
    // A fatal alert: handshake_failure. Then it is gone, so that the hello cannot be written.
    other.write_all(&[21, 3, 3, 0, 2, 2, 40]).unwrap();
    drop(other);
    let error = connector.connect("localhost", one).unwrap_err();
    assert_alert(&error, AlertDescription::HandshakeFailure);
    // One that says nothing is broken, no more.
    let (one, _) = UnixStream::pair().unwrap();
    let error = connector.connect("localhost", one).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
}

/// Chooses a certificate after a wait that suspends.
#[derive(Debug)]
struct Slow {
    key: Arc<CertifiedKey>,
    was_asked: AtomicBool,
}

impl ResolvesServerCert for Slow {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.was_asked.store(true, Ordering::Relaxed);
        sleep(Duration::from_millis(20)).ok()?;
        (hello.server_name() == Some("localhost")).then(|| self.key.clone())
    }
}

// contract: I8
#[test]
fn callbacks_of_the_configuration_may_wait() {
    let _watchdog = watchdog();
    let authority = Authority::new("tests");
    let Certified { chain, key } = authority.certify("localhost");
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    let slow = Arc::new(Slow {
        key: Arc::new(CertifiedKey::new(chain, key)),
        was_asked: AtomicBool::new(false),
    });
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_cert_resolver(slow.clone());
    let connector = TlsConnector::new(authority.client(rustls::ALL_VERSIONS));
    let (client, server) = shake(connector, TlsAcceptor::new(config), "localhost");
    client.unwrap();
    server.unwrap();
    assert!(slow.was_asked.load(Ordering::Relaxed));
}

// contract: I8
#[test]
fn a_second_connection_resumes_the_first_ones_session() {
    let _watchdog = watchdog();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let Sides {
            connector,
            acceptor,
        } = sides_of(&[version]);
        let kind = |stream: &TlsStream<TcpStream>| {
            let kind = |connection: &rustls::Connection| connection.handshake_kind();
            stream.with_connection(kind).unwrap()
        };
        let (first, _server) = shake(connector.clone(), acceptor.clone(), "localhost");
        assert_eq!(
            kind(&first.unwrap()),
            Some(rustls::HandshakeKind::Full),
            "{version:?}"
        );
        let (second, _server) = shake(connector, acceptor, "localhost");
        assert_eq!(
            kind(&second.unwrap()),
            Some(rustls::HandshakeKind::Resumed),
            "{version:?}"
        );
    }
}

// contract: I8
#[test]
fn many_clients_of_one_listener() {
    let _watchdog = watchdog();
    const CLIENTS: usize = 100;
    let Sides {
        connector,
        acceptor,
    } = sides();
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let acceptor = acceptor.clone();
                spawn(move || {
                    let mut stream = acceptor.accept(stream).unwrap();
                    let mut text = String::new();
                    stream.read_to_string(&mut text).unwrap();
                    stream.write_all(text.to_uppercase().as_bytes()).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                });
            }
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let connector = connector.clone();
                spawn(move || {
                    let stream = TcpStream::connect(address).unwrap();
                    let mut stream = connector.connect("localhost", stream).unwrap();
                    write!(stream, "client {number}").unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                    let mut text = String::new();
                    stream.read_to_string(&mut text).unwrap();
                    assert_eq!(text, format!("CLIENT {number}"));
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        serving.cancel("done");
        serving.join().unwrap();
    });
}

// contract: I8, I11
#[test]
fn unix_streams_and_plain_threads() {
    let _watchdog = watchdog();
    let Sides {
        connector,
        acceptor,
    } = sides();
    let (one, other) = UnixStream::pair().unwrap();
    let serving = std::thread::spawn(move || {
        let mut stream = acceptor.accept(other).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    let mut stream = connector.connect("localhost", one).unwrap();
    stream.write_all(b"from thread to thread").unwrap();
    stream.shutdown(Shutdown::Both).unwrap();
    assert_eq!(serving.join().unwrap(), "from thread to thread");
}
