//! TLS by rustls over our streams: what goes through it, both ways at once, and how it ends.

#![allow(
    clippy::large_stack_frames,
    reason = "rustls hands its connections out by value"
)]

mod tls_rig;

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustls::{ClientConnection, ServerConnection, StreamOwned};
use sinew::net::TcpStream;
use sinew::tls::{TlsStream, Transport, protocol_error};
use sinew::{run, sleep, spawn_local, yield_now};
use tls_rig::{Meddler, Random, Sides, sides, sides_of, spawn, stress, tcp_pair, watchdog};

/// Writes `len` bytes that follow from `seed` in pieces of random sizes, up to 100,000 bytes.
fn write_random(mut stream: impl Write, seed: u64, len: usize) -> io::Result<()> {
    let (mut content, mut sizes) = (Random(seed), Random(!seed));
    let mut piece = vec![0; 100_000];
    let mut left = len;
    while left > 0 {
        // Now and then many small pieces.
        let most = [10, 1_000, 100_000][sizes.below(3)];
        let size = (1 + sizes.below(most)).min(left);
        content.fill(&mut piece[..size]);
        stream.write_all(&piece[..size])?;
        left -= size;
    }
    stream.flush()
}

/// Reads in pieces of random sizes and compares; returns how much there was before the end.
fn read_random(mut stream: impl Read, seed: u64) -> io::Result<usize> {
    let (mut content, mut sizes) = (Random(seed), Random(seed ^ 0x5555));
    let (mut piece, mut expected) = (vec![0; 100_000], vec![0; 100_000]);
    let mut total = 0;
    loop {
        let most = [10, 1_000, 100_000][sizes.below(3)];
        let size = 1 + sizes.below(most);
        let len = stream.read(&mut piece[..size])?;
        if len == 0 {
            return Ok(total);
        }
        content.fill(&mut expected[..len]);
        assert!(
            piece[..len] == expected[..len],
            "differs after {total} bytes"
        );
        total += len;
    }
}

// contract: I8, I3
#[test]
fn both_ways_at_once_from_coroutines() {
    let _watchdog = watchdog();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let sides = sides_of(&[version]);
        let bytes = 3_000_000 * stress();
        run(|| {
            let (client, server) = sides.pair();
            let mut parties = Vec::new();
            for (number, stream) in [(1, client), (2, server)] {
                let (reading, writing) = stream.into_split();
                parties.push(spawn(move || read_random(reading, 3 - number).unwrap()));
                parties.push(spawn(move || {
                    write_random(writing, number, bytes).unwrap();
                    bytes
                }));
            }
            for party in parties {
                assert_eq!(party.join().unwrap(), bytes);
            }
        });
    }
}

// contract: I8, I11
#[test]
fn both_ways_at_once_from_several_threads() {
    let _watchdog = watchdog();
    let sides = sides();
    let bytes = 2_000_000 * stress();
    let (client, server) = run(|| sides.pair());
    std::thread::scope(|scope| {
        let mut parties = Vec::new();
        for (number, stream) in [(1, &client), (2, &server)] {
            // One side's halves are those of two schedulers, the other's of plain threads.
            parties.push(scope.spawn(move || {
                let read = || read_random(stream, 3 - number).unwrap();
                if number == 1 { run(read) } else { read() }
            }));
            parties.push(scope.spawn(move || {
                let write = || {
                    write_random(stream, number, bytes).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                };
                if number == 1 {
                    run(write)
                } else {
                    write()
                }
                bytes
            }));
        }
        for party in parties {
            assert_eq!(party.join().unwrap(), bytes);
        }
    });
}

// contract: I8
#[test]
fn several_readers_and_several_writers_share_the_work() {
    let _watchdog = watchdog();
    const WRITERS: usize = 4;
    const WRITES: usize = 500;
    let sides = sides();
    run(|| {
        let (client, server) = sides.pair();
        let (client, server) = (Arc::new(client), Arc::new(server));
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                let client = client.clone();
                spawn(move || {
                    for _ in 0..WRITES {
                        (&*client).write_all(&[7; 1_000]).unwrap();
                    }
                })
            })
            .collect();
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let server = server.clone();
                spawn(move || {
                    let mut piece = [0; 777];
                    let mut total = 0;
                    loop {
                        match (&*server).read(&mut piece).unwrap() {
                            0 => return total,
                            len => total += len,
                        }
                        assert!(piece.iter().all(|byte| [0, 7].contains(byte)));
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        client.shutdown(Shutdown::Write).unwrap();
        let total: usize = readers.into_iter().map(|one| one.join().unwrap()).sum();
        assert_eq!(total, WRITERS * WRITES * 1_000);
    });
}

// contract: I8, I3
#[test]
fn reading_goes_on_while_writing_is_stuck() {
    let _watchdog = watchdog();
    let sides = sides();
    run(|| {
        let (client, server) = sides.pair();
        let client = Arc::new(client);
        // Nobody reads at the other side, so this gets stuck.
        let writing = client.clone();
        let stuck = spawn(move || (&*writing).write_all(&vec![1; 32 << 20]));
        for round in 0..20_u8 {
            yield_now().unwrap();
            (&server).write_all(&[round; 5_000]).unwrap();
            // New keys have rustls answer by itself, which must not be waited for.
            server.refresh_traffic_keys().unwrap();
            let mut piece = [0; 5_000];
            (&*client).read_exact(&mut piece).unwrap();
            assert_eq!(piece, [round; 5_000]);
        }
        assert!(!stuck.is_finished());
        drop(server);
        assert!(stuck.join().unwrap().is_err());
    });
}

// contract: I8
#[test]
fn an_alert_that_cannot_be_sent_holds_no_reader_up() {
    let _watchdog = watchdog();
    let sides = sides();
    run(|| {
        let (one, other) = tcp_pair();
        let mut beneath = other.try_clone().unwrap();
        let (client, server) = sides.pair_over(one, other);
        // Full, with bytes left over.
        client
            .set_write_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        while (&client).write(&[1; 50_000]).is_ok() {}
        // A record that is none of the server's.
        beneath.write_all(&[23, 3, 3, 0, 20]).unwrap();
        beneath.write_all(&[0; 20]).unwrap();
        let error = (&client).read(&mut [0]).unwrap_err();
        assert_eq!(protocol_error(&error), Some(&rustls::Error::DecryptError));
        drop(server);
    });
}

// contract: I8
#[test]
fn the_end_is_authentic_and_the_other_way_goes_on() {
    let _watchdog = watchdog();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let sides = sides_of(&[version]);
        run(|| {
            let (mut client, mut server) = sides.pair();
            client.write_all(b"question").unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            let late = client.write(b"more").unwrap_err();
            assert_eq!(late.kind(), io::ErrorKind::BrokenPipe);
            let mut text = String::new();
            server.read_to_string(&mut text).unwrap();
            assert_eq!(text, "question");
            assert_eq!(server.read(&mut [0]).unwrap(), 0);
            server.write_all(b"answer").unwrap();
            drop(server);
            let mut answer = [0; 6];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"answer");
            // It was dropped without a word: more may have been meant to come.
            let cut = client.read(&mut [0]).unwrap_err();
            assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
        });
    }
}

// contract: I8
#[test]
fn what_a_client_that_never_reads_has_written_arrives() {
    let _watchdog = watchdog();
    let sides = sides();
    run(|| {
        for _ in 0..30 {
            let (mut client, mut server) = sides.pair();
            client.write_all(&[1; 300_000]).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            // The server's tickets are in its socket.
            drop(client);
            let mut read = Vec::new();
            server.read_to_end(&mut read).unwrap();
            assert_eq!(read.len(), 300_000);
        }
    });
}

// contract: I8
#[test]
fn a_cut_connection_is_an_error_wherever_it_is_cut() {
    let _watchdog = watchdog();
    let sides = sides();
    // Within a record, and by a reset.
    for is_reset in [false, true] {
        run(|| {
            let (one, other) = tcp_pair();
            let socket = one.try_clone().unwrap();
            let meddler = Meddler::new(one, usize::MAX);
            let (client, mut server) = sides.pair_over(meddler, Meddler::new(other, usize::MAX));
            (&client).write_all(b"before").unwrap();
            let mut text = [0; 6];
            server.read_exact(&mut text).unwrap();
            // The head of a record, and three bytes of it.
            let reader = spawn(move || server.read(&mut [0]).unwrap_err());
            let mut writing = socket.try_clone().unwrap();
            writing.write_all(&[23, 3, 3, 1, 0, 9, 9, 9]).unwrap();
            yield_now().unwrap();
            if is_reset {
                socket.set_linger(Some(Duration::ZERO)).unwrap();
                drop((client, socket, writing));
            } else {
                writing.shutdown(Shutdown::Write).unwrap();
            }
            let error = reader.join().unwrap();
            let expected = match is_reset {
                true => io::ErrorKind::ConnectionReset,
                false => io::ErrorKind::UnexpectedEof,
            };
            assert_eq!(error.kind(), expected, "{error}");
        });
    }
}

// contract: I8
#[test]
fn a_changed_byte_is_found_and_what_came_before_it_is_read() {
    let _watchdog = watchdog();
    let sides = sides();
    run(|| {
        let (one, other) = tcp_pair();
        let one = Meddler::new(one, usize::MAX);
        let (mut client, mut server) = sides.pair_over(one, Meddler::new(other, usize::MAX));
        client.write_all(b"good").unwrap();
        client.get_ref().change.store(30, Ordering::Relaxed);
        client.write_all(&[1; 100]).unwrap();
        let mut text = [0; 4];
        server.read_exact(&mut text).unwrap();
        assert_eq!(&text, b"good");
        for _ in 0..2 {
            let error = server.read(&mut text).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert_eq!(protocol_error(&error), Some(&rustls::Error::DecryptError));
        }
        // Nothing is written into a connection that somebody has meddled with.
        let error = server.write(b"x").unwrap_err();
        assert!(protocol_error(&error).is_some(), "{error}");
        // The other side was told.
        let error = client.read(&mut text).unwrap_err();
        let alert = rustls::AlertDescription::BadRecordMac;
        assert_eq!(
            protocol_error(&error),
            Some(&rustls::Error::AlertReceived(alert))
        );
    });
}

// contract: I8
#[test]
fn a_peer_that_sends_and_takes_a_byte_at_a_time() {
    let _watchdog = watchdog();
    let sides = sides();
    run(|| {
        let (one, other) = tcp_pair();
        one.set_nodelay(true).unwrap();
        other.set_nodelay(true).unwrap();
        let (one, other) = (Meddler::new(one, 1), Meddler::new(other, 1));
        let (client, server) = sides.pair_over(one, other);
        let writing = spawn(move || {
            write_random(&client, 5, 20_000).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            client
        });
        assert_eq!(read_random(&server, 5).unwrap(), 20_000);
        drop(writing.join().unwrap());
    });
}

// contract: I8
#[test]
fn a_read_that_ends_early_loses_nothing() {
    let _watchdog = watchdog();
    let sides = sides();
    let bytes = 200_000 * stress();
    run(|| {
        let (one, other) = tcp_pair();
        let (one, other) = (Meddler::new(one, 900), Meddler::new(other, 1_100));
        let (client, server) = sides.pair_over(one, other);
        let writing = spawn(move || {
            write_random(&client, 9, bytes).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            client
        });
        let (mut content, mut total, mut early) = (Random(9), 0, 0);
        let server = Arc::new(server);
        for round in 0.. {
            // Each time a coroutine that is cancelled, before it begins or while it reads, or a timeout so short that it is often over.
            let stream = server.clone();
            let reading = spawn(move || {
                let mut piece = vec![0; 2_000];
                let limit = [1, 1_000_000_000][round % 2];
                let limit = Some(Duration::from_nanos(limit));
                stream.set_read_timeout(limit).unwrap();
                let len = (&*stream).read(&mut piece)?;
                piece.truncate(len);
                io::Result::Ok(piece)
            });
            if round % 3 > 0 {
                if round % 3 == 1 {
                    yield_now().unwrap();
                }
                reading.cancel("over");
            }
            match reading.join() {
                Ok(Ok(piece)) if piece.is_empty() => break,
                Ok(Ok(piece)) => {
                    let mut expected = vec![0; piece.len()];
                    content.fill(&mut expected);
                    assert!(piece == expected);
                    total += piece.len();
                }
                Ok(Err(error)) => {
                    let is_early = error.kind() == io::ErrorKind::TimedOut;
                    assert!(is_early || sinew::is_cancelled(&error), "{error}");
                    early += 1;
                }
                // Cancelled before it began.
                Err(_) => early += 1,
            }
            yield_now().unwrap();
        }
        drop(writing.join().unwrap());
        assert_eq!(total, bytes);
        assert!(early > 10, "{early}");
    });
}

// contract: I8, I1
#[test]
fn a_write_that_ends_early_says_what_it_took_on() {
    let _watchdog = watchdog();
    let sides = sides();
    run(|| {
        let (client, server) = sides.pair();
        let client = Arc::new(client);
        let (mut content, mut written, mut early) = (Random(4), 0, 0);
        let rounds = 200 * stress();
        let reading = spawn(move || {
            let mut slow = (&server).take(u64::MAX);
            let mut content = Random(4);
            let (mut piece, mut expected) = (vec![0; 60_000], vec![0; 60_000]);
            let mut total = 0;
            loop {
                let len = slow.read(&mut piece).unwrap();
                if len == 0 {
                    return total;
                }
                content.fill(&mut expected[..len]);
                assert!(piece[..len] == expected[..len]);
                total += len;
                sleep(Duration::from_micros(500)).unwrap();
            }
        });
        let mut pending: Vec<u8> = Vec::new();
        for round in 0..rounds {
            if pending.len() < 200_000 {
                let mut more = vec![0; 200_000];
                content.fill(&mut more);
                pending.extend(more);
            }
            let (stream, piece) = (client.clone(), pending[..150_000].to_vec());
            let writing = spawn(move || {
                stream
                    .set_write_timeout(Some(Duration::from_micros(50)))
                    .unwrap();
                (&*stream).write(&piece)
            });
            if round % 4 == 0 {
                yield_now().unwrap();
                writing.cancel("over");
            }
            match writing.join() {
                Ok(Ok(len)) => {
                    written += len;
                    pending.drain(..len);
                }
                Ok(Err(error)) => {
                    let is_early = error.kind() == io::ErrorKind::TimedOut;
                    assert!(is_early || sinew::is_cancelled(&error), "{error}");
                    early += 1;
                }
                Err(_) => early += 1,
            }
        }
        client.set_write_timeout(None).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(reading.join().unwrap(), written);
        assert!(early > 0 && written > 0, "{early} {written}");
    });
}

// contract: I8
#[test]
fn shutting_reading_down_ends_a_read_that_waits() {
    let _watchdog = watchdog();
    let sides = sides();
    run(|| {
        let (client, server) = sides.pair();
        let client = Arc::new(client);
        let reading = client.clone();
        let reader = spawn(move || (&*reading).read(&mut [0]));
        yield_now().unwrap();
        client.shutdown(Shutdown::Read).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), 0);
        // Writing is as it was.
        (&*client).write_all(b"still here").unwrap();
        let mut text = [0; 10];
        (&server).read_exact(&mut text).unwrap();
        assert_eq!(&text, b"still here");
    });
}

// contract: I8
#[test]
fn limits_of_the_stream_and_of_the_transport() {
    let _watchdog = watchdog();
    let sides = sides();
    let limit = Duration::from_millis(20);
    run(|| {
        let (client, server) = sides.pair();
        let timed = |read: &dyn Fn() -> io::Result<usize>| {
            let begun = sinew::time::now();
            assert_eq!(read().unwrap_err().kind(), io::ErrorKind::TimedOut);
            assert!(begun.elapsed() >= limit);
        };
        let read = || (&client).read(&mut [0]);
        client.set_read_timeout(Some(limit)).unwrap();
        assert_eq!(client.read_timeout().unwrap(), Some(limit));
        timed(&read);
        client.set_read_timeout(None).unwrap();
        client.set_read_deadline(Some(sinew::time::now() + limit));
        timed(&read);
        client.set_read_deadline(None);
        client.get_ref().set_read_timeout(Some(limit)).unwrap();
        timed(&read);
        assert_eq!(
            client
                .set_write_timeout(Some(Duration::ZERO))
                .unwrap_err()
                .kind(),
            io::ErrorKind::InvalidInput
        );
        // What is there is read though the deadline is over.
        client.set_read_deadline(Some(sinew::time::now()));
        (&server).write_all(b"x").unwrap();
        let poll = || loop {
            match (&client).read(&mut [0]) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => yield_now().unwrap(),
                result => return result,
            }
        };
        assert_eq!(poll().unwrap(), 1);
        // A full connection: the deadline ends the writing, and the rest goes later.
        client.set_write_deadline(Some(sinew::time::now() + limit));
        let mut taken = 0;
        let error = loop {
            match (&client).write(&[1; 50_000]) {
                Ok(len) => taken += len,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(
            (&client).flush().unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        client.set_write_deadline(None);
        let counting = spawn(move || {
            let mut server = server;
            io::copy(&mut server, &mut io::sink()).unwrap()
        });
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(counting.join().unwrap(), taken as u64);
    });
}

// contract: I8
#[test]
fn tls_inside_of_tls() {
    let _watchdog = watchdog();
    let (outer, inner) = (sides(), sides());
    run(|| {
        let (one, other) = outer.pair();
        let (client, server) = inner.pair_over(one, other);
        let writing = spawn(move || {
            write_random(&client, 11, 300_000).unwrap();
            Transport::shutdown(&client, Shutdown::Write).unwrap();
            client
        });
        assert_eq!(read_random(&server, 11).unwrap(), 300_000);
        // The outer end was said as well.
        let client = writing.join().unwrap();
        assert_eq!(server.into_inner().read(&mut [0]).unwrap(), 0);
        drop(client);
    });
}

// contract: I8
#[test]
fn halves_end_the_stream_when_they_go() {
    let _watchdog = watchdog();
    let sides = sides();
    run(|| {
        let (client, mut server) = sides.pair();
        let (_reading, mut writing) = client.into_split();
        writing.write_all(b"done").unwrap();
        drop(writing);
        let mut text = String::new();
        server.read_to_string(&mut text).unwrap();
        assert_eq!(text, "done");

        // A panic has not completed what it wrote.
        let (client, mut server) = sides.pair();
        let panicking = spawn(move || {
            let (_reading, mut writing) = client.into_split();
            writing.write_all(b"not done").unwrap();
            std::panic::resume_unwind(Box::new("in the middle"));
        });
        panicking.join().unwrap_err();
        let mut read = Vec::new();
        let error = server.read_to_end(&mut read).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(read, b"not done");

        // The halves make the stream again, and borrowed ones take nothing away.
        let (client, server) = sides.pair();
        let (reading, writing) = client.into_split();
        let mut client = reading.reunite(writing).unwrap();
        let (mut reading, _) = client.split();
        let (_, mut writing) = server.split();
        writing.write_all(b"x").unwrap();
        writing.flush().unwrap();
        reading.read_exact(&mut [0]).unwrap();
        client.write_all(b"y").unwrap();
        (&server).read_exact(&mut [0]).unwrap();
    });
}

/// A peer that is rustls alone, over a blocking socket of std's.
fn foreign(
    stream: std::net::TcpStream,
    connection: rustls::Connection,
    bytes: usize,
) -> io::Result<usize> {
    fn talk(mut stream: impl Read + Write, bytes: usize) -> io::Result<usize> {
        let mut piece = vec![0; bytes];
        Random(77).fill(&mut piece);
        stream.write_all(&piece)?;
        stream.flush()?;
        stream.read_exact(&mut piece)?;
        let mut expected = vec![0; bytes];
        Random(78).fill(&mut expected);
        assert!(piece == expected);
        Ok(bytes)
    }
    match connection {
        rustls::Connection::Client(mut client) => {
            let mut stream = stream;
            client.complete_io(&mut stream)?;
            let mut stream = StreamOwned::new(client, stream);
            stream.conn.refresh_traffic_keys().unwrap();
            talk(&mut stream, bytes)
        }
        rustls::Connection::Server(server) => talk(StreamOwned::new(server, stream), bytes),
    }
}

// contract: I8
#[test]
fn with_a_peer_of_another_make_in_both_roles() {
    let _watchdog = watchdog();
    const BYTES: usize = 500_000;
    let Sides {
        connector,
        acceptor,
    } = sides_of(&[&rustls::version::TLS13]);
    for we_are_client in [true, false] {
        let (ours, theirs) = tcp_pair();
        let theirs = theirs.into_std().unwrap();
        let connection = match we_are_client {
            true => ServerConnection::new(acceptor.config().clone())
                .unwrap()
                .into(),
            false => {
                let name = "localhost".try_into().unwrap();
                ClientConnection::new(connector.config().clone(), name)
                    .unwrap()
                    .into()
            }
        };
        let peer = std::thread::spawn(move || foreign(theirs, connection, BYTES).unwrap());
        let shake: Box<dyn FnOnce(TcpStream) -> TlsStream<TcpStream>> = if we_are_client {
            let connector = connector.clone();
            Box::new(move |ours| connector.connect("localhost", ours).unwrap())
        } else {
            let acceptor = acceptor.clone();
            Box::new(move |ours| acceptor.accept(ours).unwrap())
        };
        run(|| {
            let talking = spawn(move || {
                let stream = Arc::new(shake(ours));
                let sending = stream.clone();
                let writing = spawn_local(move || {
                    let mut bytes = vec![0; BYTES];
                    Random(78).fill(&mut bytes);
                    (&*sending).write_all(&bytes).unwrap();
                });
                let (mut bytes, mut expected) = (vec![0; BYTES], vec![0; BYTES]);
                (&*stream).read_exact(&mut bytes).unwrap();
                Random(77).fill(&mut expected);
                assert!(bytes == expected);
                writing.join().unwrap();
            });
            talking.join().unwrap();
        });
        assert_eq!(peer.join().unwrap(), BYTES);
    }
}
