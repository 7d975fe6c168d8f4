//! TLS polled: hyper over it, and bytes both ways past all that can be in the way.
#![allow(
    clippy::large_stack_frames,
    reason = "pinned connections are large, and the stacks here are"
)]

#[path = "../examples/https.rs"]
mod https;
mod tls_rig;

use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

use hyper::body::Bytes;
use sinew::future::{Async, SendAsync};
use sinew::net::TcpListener;
use sinew::tls::{TlsAcceptor, TlsConnector};
use sinew::{block_on, run};
use tls_rig::{Random, sides, spawn, stress, watchdog};

// contract: I8, I10, A2
#[test]
fn the_example_of_https_runs() {
    let _watchdog = watchdog();
    https::main().unwrap();
}

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random(seed).fill(&mut bytes);
    bytes
}

// contract: I8, I10
#[test]
fn many_clients_of_hypers_post_much_over_tls() {
    let _watchdog = watchdog();
    let (server, client) = sinew_ecosystem::self_made().unwrap();
    run(move || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::new(server);
        let serving = https::spawn(move || https::serve(&listener, &acceptor));
        let connector = TlsConnector::new(client);
        let clients: Vec<_> = (0..8_u64)
            .map(|number| {
                let connector = connector.clone();
                https::spawn(move || {
                    let (mut sender, driving) = https::connect(address, &connector).unwrap();
                    for round in 0..6 * stress() as u64 {
                        // From nothing to more than all buffers hold.
                        let len = [0, 1, 16_384, 100_000, 1_000_000][(round % 5) as usize];
                        let body = Bytes::from(random_bytes(number * 100 + round + 1, len));
                        assert!(https::post(&mut sender, body.clone()).unwrap() == body);
                    }
                    drop(sender);
                    driving.join().unwrap().unwrap();
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        serving.cancel("done");
        assert!(sinew::is_cancelled(&serving.join().unwrap().unwrap_err()));
    });
}

// contract: I8, I3
#[test]
fn polled_and_blocking_ends_understand_each_other() {
    let _watchdog = watchdog();
    let bytes = random_bytes(7, 3_000_000);
    run(move || {
        let (near, far) = sides().pair();
        let expected = bytes.clone();
        // Reads slowly what it writes itself in the other direction.
        let blocking = spawn(move || {
            let (mut reader, mut writer) = near.into_split();
            let sent = bytes.clone();
            let writing = spawn(move || writer.write_all(&sent).map(|()| writer));
            let mut got = Vec::new();
            reader.read_to_end(&mut got).unwrap();
            assert!(got == bytes);
            drop(writing.join().unwrap().unwrap());
        });
        let polled = spawn(move || {
            let mut stream = SendAsync::new(far);
            block_on(async {
                let (mut written, mut got) = (0, Vec::new());
                let mut buffer = [0; 10_000];
                let (mut is_closed, mut is_over) = (false, false);
                // Both directions in one future.
                poll_fn(|context| {
                    let stream = stream.get_mut().unwrap();
                    while written < expected.len() {
                        let piece = &expected[written..expected.len().min(written + 50_000)];
                        match stream.poll_write(context, piece) {
                            std::task::Poll::Ready(len) => written += len.unwrap(),
                            std::task::Poll::Pending => break,
                        }
                    }
                    if written == expected.len() && !is_closed {
                        is_closed = stream.poll_close(context).is_ready();
                    }
                    while !is_over {
                        match stream.poll_read(context, &mut buffer) {
                            std::task::Poll::Ready(len) => {
                                let len = len.unwrap();
                                got.extend_from_slice(&buffer[..len]);
                                is_over = len == 0;
                            }
                            std::task::Poll::Pending => break,
                        }
                    }
                    match is_closed && is_over {
                        true => std::task::Poll::Ready(()),
                        false => std::task::Poll::Pending,
                    }
                })
                .await;
                assert!(got == expected);
            })
            .unwrap();
        });
        blocking.join().unwrap();
        polled.join().unwrap();
    });
}

// contract: I8
#[test]
fn an_end_is_told_from_a_cut_when_polled_too() {
    let _watchdog = watchdog();
    run(|| {
        for is_said in [true, false] {
            let (near, far) = sides().pair();
            (&near).write_all(b"last words").unwrap();
            if is_said {
                near.shutdown(Shutdown::Write).unwrap();
            } else {
                near.get_ref().shutdown(Shutdown::Write).unwrap();
            }
            let mut far = Async::new(far);
            let mut buffer = [0; 100];
            let mut read = || block_on(poll_fn(|context| far.poll_read(context, &mut buffer)));
            assert_eq!(read().unwrap().unwrap(), 10);
            match read().unwrap() {
                Ok(len) => assert_eq!((len, is_said), (0, true)),
                Err(error) => {
                    assert_eq!((error.kind(), is_said), (ErrorKind::UnexpectedEof, false));
                }
            }
        }
    });
}

// contract: I8
#[test]
fn a_close_while_polled_data_is_held_back_sends_it_first() {
    let _watchdog = watchdog();
    run(|| {
        let (near, far) = sides().pair();
        let mut near = Async::new(near);
        let bytes = random_bytes(3, 8_000_000);
        let sent = bytes.clone();
        let writing = spawn(move || {
            block_on(async {
                let mut written = 0;
                while written < sent.len() {
                    written += poll_fn(|context| near.poll_write(context, &sent[written..]))
                        .await
                        .unwrap();
                }
                poll_fn(|context| near.poll_close(context)).await.unwrap();
                let refused = poll_fn(|context| near.poll_write(context, b"x")).await;
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::BrokenPipe);
            })
            .unwrap();
        });
        let mut got = Vec::new();
        (&far).read_to_end(&mut got).unwrap();
        assert!(got == bytes);
        writing.join().unwrap();
    });
}
