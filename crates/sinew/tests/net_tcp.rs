//! TCP streams and listeners: std's behaviour, with coroutines on both sides.

mod io_rig;

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use io_rig::{
    fill, hanging, read_byte, refusing, std_pair, stress, tcp_pair, watchdog, write_until_error,
};
use sinew::net::{TcpListener, TcpStream};
use sinew::{go_local, run, spawn_local, yield_now};

const SHORT: Option<Duration> = Some(Duration::from_millis(2));

fn assert_flags(fd: &impl AsFd) {
    assert!(sinew::io::is_nonblocking(fd).unwrap());
    let flags = rustix::io::fcntl_getfd(fd).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
}

// contract: I2
// contract: I11
#[test]
fn connect_accept_and_talk() {
    let _watchdog = watchdog();
    let talk = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, from) = listener.accept().unwrap();
        assert_eq!(from, client.local_addr().unwrap());
        assert_eq!(client.peer_addr().unwrap(), address);
        assert_eq!(server.local_addr().unwrap(), address);
        assert_flags(&listener);
        assert_flags(&client);
        assert_flags(&server);
        client.write_all(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        server.read_to_string(&mut text).unwrap();
        assert_eq!(text, "question");
        server.write_all(b"answer").unwrap();
        drop(server);
        text.clear();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "answer");
    };
    run(talk);
    talk();
}

// contract: I2
#[test]
fn a_connection_over_the_sixth_version() {
    let _watchdog = watchdog();
    run(|| {
        let Ok(listener) = TcpListener::bind("[::1]:0") else {
            return io_rig::skipped("IPv6", "there is no [::1] here");
        };
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_, from) = listener.accept().unwrap();
        assert_eq!(from, client.local_addr().unwrap());
    });
}

// contract: I2
#[test]
fn errors_name_the_address() {
    run(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let error = TcpListener::bind(address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let text = error.to_string();
        assert!(text.starts_with(&format!("binding {address}: ")), "{text}");
        let (address, _reserved) = refusing();
        let error = TcpStream::connect(address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let text = error.to_string();
        assert!(text.contains(&address.to_string()), "{text}");
    });
}

// contract: I2
#[test]
fn an_address_with_lingering_connections_can_be_bound_again() {
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let (server, _) = listener.accept().unwrap();
        // This side closes first, so it is the one that lingers.
        drop((server, listener));
        assert_eq!((&client).read(&mut [0]).unwrap(), 0);
        drop(client);
        TcpListener::bind(address).unwrap();
    });
}

// contract: I2
#[test]
fn options_read_back_what_was_set() {
    run(|| {
        let (a, _b) = tcp_pair();
        a.set_nodelay(true).unwrap();
        assert!(a.nodelay().unwrap());
        a.set_ttl(7).unwrap();
        assert_eq!(a.ttl().unwrap(), 7);
        a.set_linger(Some(Duration::from_secs(3))).unwrap();
        assert_eq!(a.linger().unwrap(), Some(Duration::from_secs(3)));
        a.set_linger(None).unwrap();
        assert_eq!(a.linger().unwrap(), None);
        assert!(a.take_error().unwrap().is_none());
        assert_eq!(a.read_timeout().unwrap(), None);
        a.set_read_timeout(SHORT).unwrap();
        a.set_write_timeout(Some(Duration::from_secs(9))).unwrap();
        let copy = a.try_clone().unwrap();
        assert_eq!(copy.read_timeout().unwrap(), SHORT);
        assert_eq!(copy.write_timeout().unwrap(), Some(Duration::from_secs(9)));
        for refused in [
            a.set_read_timeout(Some(Duration::ZERO)),
            a.set_write_timeout(Some(Duration::ZERO)),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_ttl(9).unwrap();
        assert_eq!(listener.ttl().unwrap(), 9);
        listener.set_accept_timeout(SHORT).unwrap();
        assert_eq!(listener.accept_timeout(), SHORT);
        assert_eq!(listener.try_clone().unwrap().accept_timeout(), SHORT);
    });
}

// contract: I2
#[test]
fn streams_of_std_come_in_and_go_out() {
    let _watchdog = watchdog();
    let (a, mut b) = std_pair();
    let a = TcpStream::from_std(a).unwrap();
    run(|| {
        assert_flags(&a);
        (&a).write_all(b"x").unwrap();
    });
    let mut a = a.into_std().unwrap();
    assert_eq!(read_byte(&b).unwrap(), b'x');
    // Blocking again, as std's users expect.
    let reading = std::thread::spawn(move || read_byte(&mut a));
    b.write_all(b"y").unwrap();
    assert_eq!(reading.join().unwrap().unwrap(), b'y');
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let address = listener.local_addr().unwrap();
    let listener = listener.into_std().unwrap();
    let client = TcpStream::connect(address).unwrap();
    drop(listener.accept().unwrap());
    assert_eq!((&client).read(&mut [0]).unwrap(), 0);
}

// contract: I2
#[test]
fn slices_are_read_and_written_together() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = tcp_pair();
        let parts = [
            IoSlice::new(b"one "),
            IoSlice::new(b""),
            IoSlice::new(b"two"),
        ];
        assert_eq!((&a).write_vectored(&parts).unwrap(), 7);
        let (mut first, mut second) = ([0; 2], [0; 9]);
        let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        assert_eq!((&b).read_vectored(&mut parts).unwrap(), 7);
        assert_eq!((&first, &second[..5]), (b"on", &b"e two"[..]));
        // More than the kernel takes at once.
        let many = vec![IoSlice::new(b"x"); 3_000];
        assert_eq!((&a).write_vectored(&many).unwrap(), 1_024);
        let mut left = vec![0; 1_024];
        (&b).read_exact(&mut left).unwrap();
        // Nothing asked for is nothing to wait for.
        assert_eq!((&b).read(&mut []).unwrap(), 0);
        assert_eq!((&b).read_vectored(&mut []).unwrap(), 0);
        assert_eq!(b.peek(&mut []).unwrap(), 0);
        assert_eq!((&b).write(&[]).unwrap(), 0);
    });
}

// contract: I2
#[test]
fn peeking_leaves_the_bytes() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = tcp_pair();
        let peeking = spawn_local(move || {
            let mut buffer = [0; 8];
            assert_eq!(b.peek(&mut buffer).unwrap(), 1);
            assert_eq!(b.peek(&mut buffer).unwrap(), 1);
            read_byte(&b).unwrap()
        });
        yield_now().unwrap();
        (&a).write_all(b"p").unwrap();
        assert_eq!(peeking.join().unwrap(), b'p');
    });
}

// contract: I2
#[test]
fn a_closed_connection_is_an_error_and_no_signal() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = tcp_pair();
        drop(b);
        let parts = [IoSlice::new(b"x")];
        let error = loop {
            if let Err(error) = (&a).write(b"x") {
                break error;
            }
            sinew::sleep(Duration::from_millis(1)).unwrap();
        };
        let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
        assert!(gone.contains(&error.kind()), "{error}");
        let error = (&a).write_vectored(&parts).unwrap_err();
        assert!(gone.contains(&error.kind()), "{error}");
    });
}

// contract: I2
#[test]
fn the_halves_of_a_stream() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = tcp_pair();
        let (mut read, mut write) = a.into_split();
        let echo = spawn_local(move || {
            let (mut from, mut to) = b.split();
            sinew::io::copy(&mut from, &mut to).unwrap();
        });
        let reading = spawn_local(move || {
            let mut text = String::new();
            read.read_to_string(&mut text).unwrap();
            (text, read)
        });
        write.write_all(b"through both").unwrap();
        assert!(write.as_ref().peer_addr().is_ok());
        // The other side reads an end, though the reading half is alive.
        drop(write);
        assert_eq!(reading.join().unwrap().0, "through both");
        echo.join().unwrap();
        let (a, b) = tcp_pair();
        let ((read, write), (other, _write)) = (a.into_split(), b.into_split());
        let error = other.reunite(write).unwrap_err();
        let whole = read.reunite(error.1).unwrap();
        (&whole).write_all(b"w").unwrap();
        assert_eq!(read_byte(error.0).unwrap(), b'w');
    });
}

// contract: I3
#[test]
fn one_reads_while_another_writes() {
    let _watchdog = watchdog();
    run(|| {
        const BYTES: usize = 8 << 20;
        let (a, b) = tcp_pair();
        let (a, b) = (Rc::new(a), Rc::new(b));
        let mut all = Vec::new();
        for stream in [a, b] {
            let writer = stream.clone();
            all.push(spawn_local(move || {
                let bytes: Vec<u8> = (0..BYTES).map(|n| (n % 251) as u8).collect();
                (&*writer).write_all(&bytes).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            }));
            all.push(spawn_local(move || {
                let mut bytes = Vec::new();
                (&*stream).read_to_end(&mut bytes).unwrap();
                assert_eq!(bytes.len(), BYTES);
                assert!(
                    bytes
                        .iter()
                        .enumerate()
                        .all(|(n, &byte)| byte == (n % 251) as u8)
                );
            }));
        }
        for one in all {
            one.join().unwrap();
        }
    });
}

// contract: I3
#[test]
fn four_wait_for_the_same_direction() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = tcp_pair();
        let a = Rc::new(a);
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let a = a.clone();
                spawn_local(move || read_byte(&*a).unwrap())
            })
            .collect();
        yield_now().unwrap();
        for byte in 0..4 {
            (&b).write_all(&[byte]).unwrap();
            sinew::sleep(Duration::from_millis(1)).unwrap();
        }
        let mut got: Vec<_> = readers.into_iter().map(|one| one.join().unwrap()).collect();
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2, 3]);

        let listener = Rc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let address = listener.local_addr().unwrap();
        let acceptors: Vec<_> = (0..4)
            .map(|_| {
                let listener = listener.clone();
                spawn_local(move || listener.accept().unwrap().1)
            })
            .collect();
        yield_now().unwrap();
        let clients: Vec<_> = (0..4)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let mut got: Vec<SocketAddr> = acceptors
            .into_iter()
            .map(|one| one.join().unwrap())
            .collect();
        let mut connected: Vec<_> = clients
            .iter()
            .map(|one| one.local_addr().unwrap())
            .collect();
        got.sort_unstable();
        connected.sort_unstable();
        assert_eq!(got, connected);
    });
}

// contract: I4
#[test]
fn a_shutdown_ends_the_waits() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = tcp_pair();
        a.set_write_timeout(SHORT).unwrap();
        fill(&a);
        a.set_write_timeout(None).unwrap();
        let a = Rc::new(a);
        let (reader, writer) = (a.clone(), a.clone());
        let reading = spawn_local(move || (&*reader).read(&mut [0]));
        let writing = spawn_local(move || write_until_error(&*writer));
        yield_now().unwrap();
        assert!(!reading.is_finished() && !writing.is_finished());
        a.shutdown(Shutdown::Both).unwrap();
        // As in std: who reads after a shutdown reads an end.
        assert_eq!(reading.join().unwrap().unwrap(), 0);
        let error = writing.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        drop(b);
    });
}

// contract: I4
#[test]
fn the_other_sides_end_ends_the_waits() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = tcp_pair();
        let reading = spawn_local(move || {
            let first = (&a).read(&mut [0; 8]).unwrap();
            // Also those after the first, whose short read was an end.
            (
                first,
                (&a).read(&mut [0; 8]).unwrap(),
                (&a).read(&mut [0; 8]).unwrap(),
            )
        });
        yield_now().unwrap();
        drop(b);
        assert_eq!(reading.join().unwrap(), (0, 0, 0));

        let (a, b) = tcp_pair();
        let reading = spawn_local(move || (&a).read(&mut [0; 8]));
        yield_now().unwrap();
        // A reset instead of an end.
        b.set_linger(Some(Duration::ZERO)).unwrap();
        drop(b);
        let error = reading.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

// contract: I2
// A short read that was followed by an end, in every order of the two: the end is never missed.
#[test]
fn an_end_right_behind_the_bytes() {
    let _watchdog = watchdog();
    run(|| {
        for round in 0..200 * stress() {
            let (a, mut b) = tcp_pair();
            let reading = spawn_local(move || {
                let mut bytes = Vec::new();
                (&a).read_to_end(&mut bytes).unwrap();
                bytes.len()
            });
            if round % 2 == 0 {
                yield_now().unwrap();
            }
            b.write_all(b"bytes").unwrap();
            if round % 3 == 0 {
                yield_now().unwrap();
            }
            drop(b);
            assert_eq!(reading.join().unwrap(), 5);
        }
    });
}

// contract: I2
// The bytes come while the reader, whose read was short and whose turn was over with it, is between two looks at the kernel.
#[test]
fn bytes_that_come_while_a_short_read_gives_up_its_turn() {
    let _watchdog = watchdog();
    run(|| {
        let rounds = 1_000 * stress();
        let done = Rc::new(std::cell::Cell::new(false));
        // So many that the scheduler looks at the kernel more than once before the reader's next turn.
        for _ in 0..200 {
            let done = done.clone();
            go_local(move || while !done.get() && yield_now().is_ok() {});
        }
        let (spare, full) = tcp_pair();
        (&full).write_all(b"x").unwrap();
        let (a, b) = tcp_pair();
        b.set_nodelay(true).unwrap();
        let writing = spawn_local(move || {
            for round in 0..rounds {
                (&b).write_all(b"1").unwrap();
                for _ in 0..2 + round % 3 {
                    yield_now().unwrap();
                }
                (&b).write_all(b"2").unwrap();
                assert_eq!(read_byte(&b).unwrap(), b'!');
            }
        });
        for round in 0..rounds {
            a.peek(&mut [0]).unwrap();
            // So that the turn is over at each of the calls once in a while.
            for _ in 0..round % 67 {
                spare.peek(&mut [0]).unwrap();
            }
            let mut left = 2;
            while left > 0 {
                left -= (&a).read(&mut [0; 64]).unwrap();
            }
            (&a).write_all(b"!").unwrap();
        }
        writing.join().unwrap();
        done.set(true);
    });
}

// contract: I2
// A read stops short of an urgent byte although there is more behind it.
#[test]
fn urgent_data_does_not_stall_a_reader() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = tcp_pair();
        let reading = spawn_local(move || {
            assert_eq!(read_byte(&a).unwrap(), b'0');
            let mut bytes = Vec::new();
            while bytes.len() < 6 {
                let mut buffer = [0; 64];
                let len = (&a).read(&mut buffer).unwrap();
                bytes.extend_from_slice(&buffer[..len]);
            }
            bytes
        });
        yield_now().unwrap();
        (&b).write_all(b"0").unwrap();
        sinew::sleep(Duration::from_millis(1)).unwrap();
        (&b).write_all(b"abc").unwrap();
        let socket = socket2::SockRef::from(&b);
        assert_eq!(socket.send_out_of_band(b"!").unwrap(), 1);
        (&b).write_all(b"def").unwrap();
        assert_eq!(reading.join().unwrap(), b"abcdef");
    });
}

// contract: I1
// contract: I11
#[test]
fn timeouts_and_deadlines_end_the_calls() {
    let _watchdog = watchdog();
    let hanging = hanging();
    let each = || {
        let (a, _b) = tcp_pair();
        a.set_write_timeout(SHORT).unwrap();
        fill(&a);
        a.set_read_timeout(SHORT).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_accept_timeout(SHORT).unwrap();
        let connect = || TcpStream::connect_timeout(&hanging.address, Duration::from_millis(2));
        let timed_out = |kind| assert_eq!(kind, ErrorKind::TimedOut);
        timed_out((&a).read(&mut [0]).unwrap_err().kind());
        timed_out(a.peek(&mut [0]).unwrap_err().kind());
        timed_out(write_until_error(&a).kind());
        timed_out(listener.accept().unwrap_err().kind());
        timed_out(connect().unwrap_err().kind());
        // A deadline is for all calls.
        a.set_read_timeout(None).unwrap();
        a.set_write_timeout(None).unwrap();
        listener.set_accept_timeout(None).unwrap();
        let past = sinew::time::now();
        a.set_read_deadline(Some(past));
        a.set_write_deadline(Some(past));
        listener.set_accept_deadline(Some(past));
        for _ in 0..3 {
            timed_out((&a).read(&mut [0]).unwrap_err().kind());
            timed_out(write_until_error(&a).kind());
            timed_out(listener.accept().unwrap_err().kind());
        }
        let error = TcpStream::connect_deadline(&hanging.address, past).unwrap_err();
        timed_out(error.kind());
        let error = TcpStream::connect_timeout(&hanging.address, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    };
    run(each);
    each();
}

// contract: I1
// A reader that is woken again and again, and finds each time that another was faster, still ends at its time.
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn a_timeout_spans_the_whole_call() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = tcp_pair();
        a.set_read_timeout(Some(Duration::from_millis(30))).unwrap();
        let a = Rc::new(a);
        let (fast, slow) = (a.clone(), a);
        let taking = spawn_local(move || while sinew::io::read(&*fast, &mut [0], None).is_ok() {});
        let waiting = spawn_local(move || read_byte(&*slow));
        let mut rounds = 0;
        while waiting.wait_timeout(Duration::from_millis(1)).is_err() {
            // Both are woken; the other, who came first, has taken the byte before the slow one looks.
            (&b).write_all(b"x").unwrap();
            rounds += 1;
            assert!(rounds < 5_000, "each wake begins the timeout anew");
        }
        taking.cancel("done");
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

// contract: I1
// The wait is over, but what is there is given out first.
#[test]
fn a_past_deadline_does_not_hide_what_is_there() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = tcp_pair();
        let reading = spawn_local(move || {
            (&b).write_all(b"1").unwrap();
            assert_eq!(read_byte(&a).unwrap(), b'1');
            a.set_read_deadline(Some(sinew::time::now()));
            let error = (&a).read(&mut [0; 8]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            (&b).write_all(b"2").unwrap();
            // No look at the kernel has told of it yet; nor may a cancel hide it.
            sinew::current().unwrap().cancel_token().cancel("test");
            assert_eq!((&a).read(&mut [0; 8]).unwrap(), 1);
            let error = (&a).read(&mut [0; 8]).unwrap_err();
            assert!(sinew::is_cancelled(&error), "{error}");
            drop(b);
        });
        reading.join().unwrap();
    });
}

// contract: I2
#[test]
fn a_blocking_duplicate_does_not_block_the_thread() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = tcp_pair();
        // The mode is the open file's: this changes it for both.
        let duplicate = OwnedFd::from(a.try_clone().unwrap());
        sinew::io::set_nonblocking(&duplicate, false).unwrap();
        go_local(move || (&b).write_all(b"x").unwrap());
        assert_eq!(read_byte(&a).unwrap(), b'x');
    });
}

// contract: I2
#[test]
fn incoming_connections_one_after_another() {
    let _watchdog = watchdog();
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let clients = spawn_local(move || {
            for n in 0..5 {
                TcpStream::connect(address)
                    .unwrap()
                    .write_all(&[n])
                    .unwrap();
            }
        });
        for (n, stream) in (0..5).zip(listener.incoming()) {
            assert_eq!(read_byte(stream.unwrap()).unwrap(), n);
        }
        clients.join().unwrap();
    });
}

// contract: S26
#[test]
fn sockets_outlive_a_run() {
    let _watchdog = watchdog();
    let (a, b) = run(|| {
        let (a, b) = tcp_pair();
        a.set_read_timeout(SHORT).unwrap();
        assert!((&a).read(&mut [0]).is_err());
        a.set_read_timeout(None).unwrap();
        (a, b)
    });
    for round in 0..3 {
        (&b).write_all(&[round]).unwrap();
        assert_eq!(read_byte(&a).unwrap(), round);
        run(|| {
            let (x, y) = (a.try_clone().unwrap(), b.try_clone().unwrap());
            go_local(move || (&y).write_all(b"y").unwrap());
            assert_eq!(read_byte(&a).unwrap(), b'y');
            (&b).write_all(b"z").unwrap();
            assert_eq!(read_byte(&x).unwrap(), b'z');
        });
    }
}
