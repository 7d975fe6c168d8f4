//! Blocking crates that know nothing of sinew, in coroutines, over our streams: rustls, tungstenite, ureq.

#[path = "../examples/rustls_stream.rs"]
mod rustls_stream;
#[path = "../examples/tls_echo.rs"]
mod tls_echo;
mod tls_rig;
#[path = "../examples/ureq.rs"]
#[allow(dead_code, reason = "a part of it is used")]
mod ureq_example;
#[path = "../examples/websocket.rs"]
mod websocket;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use sinew::net::{TcpListener, TcpStream};
use sinew::{go_local, run, sleep};
use tls_rig::{Authority, Random, server, sides, spawn, stress, tcp_pair, watchdog};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Role};
use tungstenite::{Message, WebSocket};

// contract: I8
#[test]
fn the_examples_run() {
    let _watchdog = watchdog();
    tls_echo::main().unwrap();
    rustls_stream::main().unwrap();
    websocket::main().unwrap();
    ureq_example::example(None).unwrap();
}

// contract: I2
#[test]
fn rustls_streams_of_its_own_in_many_coroutines() {
    let _watchdog = watchdog();
    let sides = sides();
    let (client, server) = (
        sides.connector.config().clone(),
        sides.acceptor.config().clone(),
    );
    run(|| {
        let talks: Vec<_> = (1..=20_usize)
            .map(|number| {
                let (one, other) = tcp_pair();
                let (client, server) = (client.clone(), server.clone());
                let serving = spawn(move || rustls_stream::serve(server, one).unwrap());
                spawn(move || {
                    let text = "abc".repeat(number * 5_000);
                    let answer = rustls_stream::ask(client, other, &text).unwrap();
                    assert!(answer == text.to_uppercase());
                    serving.join().unwrap();
                })
            })
            .collect();
        for talk in talks {
            talk.join().unwrap();
        }
    });
}

/// Messages of all sizes there and back, with pings in between.
fn echoes<S: Read + Write>(mut socket: WebSocket<S>, seed: u64) {
    let mut random = Random(seed);
    for round in 0..20 * stress() {
        let most = [10, 1_000, 200_000][random.below(3)];
        let mut bytes = vec![0; random.below(most)];
        random.fill(&mut bytes);
        if round % 3 == 0 {
            socket.send(Message::Ping(vec![7].into())).unwrap();
        }
        socket.send(Message::binary(bytes.clone())).unwrap();
        loop {
            match socket.read().unwrap() {
                Message::Pong(pong) => assert_eq!(&pong[..], [7]),
                message => {
                    assert!(message.into_data() == bytes);
                    break;
                }
            }
        }
    }
    let goodbye = CloseFrame {
        code: CloseCode::Normal,
        reason: "done".into(),
    };
    socket.close(Some(goodbye.clone())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Close(Some(goodbye)));
    let closed = socket.read().unwrap_err();
    assert!(
        matches!(closed, tungstenite::Error::ConnectionClosed),
        "{closed:?}"
    );
}

// contract: I2
#[test]
fn websockets_echo_over_tcp_and_over_tls() {
    let _watchdog = watchdog();
    let sides = sides();
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = spawn(move || websocket::serve(&listener).unwrap_err());
        let clients: Vec<_> = (0..10)
            .map(|seed| spawn(move || echoes(websocket::connect(address).unwrap(), seed)))
            .collect();
        let (client, server) = sides.pair();
        let secret = spawn(move || {
            websocket::echo(&server).unwrap();
            server.shutdown(Shutdown::Write).unwrap();
        });
        let secretly = spawn(move || {
            let (socket, _) = tungstenite::client("wss://localhost/", client).unwrap();
            echoes(socket, 99);
        });
        for client in clients {
            client.join().unwrap();
        }
        secretly.join().unwrap();
        secret.join().unwrap();
        serving.cancel("done");
        assert!(sinew::is_cancelled(&serving.join().unwrap()));
    });
}

// contract: I2
#[test]
fn a_websocket_can_time_out_and_go_on() {
    let _watchdog = watchdog();
    run(|| {
        let (one, other) = tcp_pair();
        let limit = Duration::from_millis(10);
        one.set_read_timeout(Some(limit)).unwrap();
        let mut waiting = WebSocket::from_raw_socket(one, Role::Client, None);
        let mut sending = WebSocket::from_raw_socket(other, Role::Server, None);
        let begun = sinew::time::now();
        let error = waiting.read().unwrap_err();
        assert!(begun.elapsed() >= limit);
        assert!(
            matches!(&error, tungstenite::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut),
            "{error}"
        );
        sending.send(Message::text("late")).unwrap();
        assert_eq!(waiting.read().unwrap(), Message::text("late"));
        // One who speaks no WebSocket is refused.
        let (one, mut other) = tcp_pair();
        other.write_all(b"nonsense\r\n\r\n").unwrap();
        other.shutdown(Shutdown::Write).unwrap();
        assert!(websocket::echo(one).is_err());
    });
}

// contract: I2, I7
#[test]
fn ureq_asks_by_http_and_by_https_from_many_coroutines() {
    let _watchdog = watchdog();
    let authority = Authority::new("tests");
    let connector = sinew::tls::TlsConnector::new(authority.client(rustls::ALL_VERSIONS));
    let acceptor = sinew::tls::TlsAcceptor::new(server(authority.certify("localhost")));
    run(|| {
        let (plain, secret) = (
            TcpListener::bind("127.0.0.1:0").unwrap(),
            TcpListener::bind("127.0.0.1:0").unwrap(),
        );
        let ports = [&plain, &secret].map(|one| one.local_addr().unwrap().port());
        let by_http = spawn(move || {
            while let Ok((stream, _)) = plain.accept() {
                go_local(move || ureq_example::serve(&stream));
            }
        });
        let by_https = spawn(move || {
            let mut connections = 0;
            while let Ok((stream, _)) = secret.accept() {
                connections += 1;
                let acceptor = acceptor.clone();
                spawn(move || ureq_example::serve(&acceptor.accept(stream).unwrap()));
            }
            connections
        });
        let agent = ureq_example::agent(ureq::config::Config::default(), Some(connector));
        let asking: Vec<_> = (0..10)
            .map(|number| {
                let agent = agent.clone();
                spawn(move || {
                    for (scheme, port) in ["http", "https"].into_iter().zip(ports) {
                        for round in 0..3 {
                            let path = format!("/{number}/{round}");
                            // By name: the resolver is ours too.
                            let url = format!("{scheme}://localhost:{port}{path}");
                            let mut answer = agent.get(&url).call().unwrap();
                            let body = answer.body_mut().read_to_string().unwrap();
                            assert_eq!(body, format!("you asked: GET {path} HTTP/1.1\n"));
                        }
                    }
                })
            })
            .collect();
        for one in asking {
            one.join().unwrap();
        }
        by_http.cancel("done");
        by_https.cancel("done");
        by_http.join().unwrap();
        let connections = by_https.join().unwrap();
        // Thirty requests, and fewer connections: those that are idle were used again.
        assert!((1..30).contains(&connections), "{connections}");
        // Their server's coroutines end when the agent lets go of them.
        drop(agent);
    });
}

// contract: I2
#[test]
fn ureqs_timeouts_suspend_and_end() {
    let _watchdog = watchdog();
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let silent = spawn(move || listener.accept().unwrap());
        let limit = Duration::from_millis(100);
        let config = ureq::config::Config::builder()
            .timeout_global(Some(limit))
            .build();
        let asking = spawn(move || {
            let agent = ureq_example::agent(config, None);
            let begun = sinew::time::now();
            let error = agent.get(format!("http://{address}/")).call().unwrap_err();
            assert!(matches!(error, ureq::Error::Timeout(_)), "{error}");
            assert!(begun.elapsed() >= limit);
            // Without TLS there is no https.
            let error = agent.get("https://127.0.0.1:1/").call().unwrap_err();
            assert!(!matches!(error, ureq::Error::Timeout(_)), "{error}");
        });
        // Others go on meanwhile.
        let mut turns = 0;
        while !asking.is_finished() {
            sleep(Duration::from_millis(1)).unwrap();
            turns += 1;
        }
        assert!(turns > 10, "{turns}");
        asking.join().unwrap();
        drop::<(TcpStream, _)>(silent.join().unwrap());
    });
}
