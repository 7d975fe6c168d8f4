//! Cancels and deadlines at every call that waits: each ends, and says why.

mod io_rig;

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use io_rig::{
    Hanging, fill, fill_fd, hanging, stress, tcp_pair, unix_pair, watchdog, write_until_error,
};
use sinew::io::Interest;
use sinew::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use sinew::time::now;
use sinew::{go_local, run, sleep, spawn_local, yield_now};

/// Sockets at which every call waits.
struct Silent {
    stream: TcpStream,
    _peer: TcpStream,
    unix: UnixStream,
    _unix_peer: UnixStream,
    listener: TcpListener,
    unix_listener: UnixListener,
    fd: OwnedFd,
    _fd_peer: OwnedFd,
    datagrams: OwnedFd,
    bare_listener: OwnedFd,
    hanging: Hanging,
}

impl Silent {
    fn new() -> Self {
        let (stream, peer) = tcp_pair();
        stream
            .set_write_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        fill(&stream);
        stream.set_write_timeout(None).unwrap();
        let (unix, unix_peer) = UnixStream::pair().unwrap();
        unix.set_write_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        fill(&unix);
        unix.set_write_timeout(None).unwrap();
        let (fd, fd_peer) = unix_pair();
        fill_fd(fd.as_fd());
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        datagrams.set_nonblocking(true).unwrap();
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let path = std::env::temp_dir().join(format!(
            "sinew-silent-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let unix_listener = UnixListener::bind(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        Self {
            stream,
            _peer: peer,
            unix,
            _unix_peer: unix_peer,
            listener: listen(),
            unix_listener,
            fd,
            _fd_peer: fd_peer,
            datagrams: datagrams.into(),
            bare_listener: listen().into(),
            hanging: hanging(),
        }
    }
}

fn new_socket() -> OwnedFd {
    let kind = socket2::Type::STREAM.nonblocking();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, None);
    socket.unwrap().into()
}

type Call = fn(&Silent, Option<Duration>) -> io::Result<()>;

/// Every call on bare descriptors that waits.
const BARE: [(&str, Call); 7] = [
    ("read", |s, t| sinew::io::read(&s.fd, &mut [0], t).map(drop)),
    ("write", |s, t| sinew::io::write(&s.fd, b"x", t).map(drop)),
    ("accept", |s, t| {
        sinew::io::accept(&s.bare_listener, t).map(drop)
    }),
    ("connect", |s, t| {
        sinew::io::connect(new_socket(), &s.hanging.address, t)
    }),
    ("recvfrom", |s, t| {
        sinew::io::recvfrom(&s.datagrams, &mut [0], t).map(drop)
    }),
    ("ready to read", |s, t| {
        sinew::io::ready(&s.fd, Interest::Read, t)
    }),
    ("ready to write", |s, t| {
        sinew::io::ready(&s.fd, Interest::Write, t)
    }),
];

/// Every call on sockets that waits, until a deadline that far from now.
const SOCKETS: [(&str, Call); 9] = [
    ("TcpStream::read", |s, t| {
        s.stream.set_read_deadline(t.map(|t| now() + t));
        (&s.stream).read(&mut [0]).map(drop)
    }),
    ("TcpStream::peek", |s, t| {
        s.stream.set_read_deadline(t.map(|t| now() + t));
        s.stream.peek(&mut [0]).map(drop)
    }),
    ("TcpStream::read_vectored", |s, t| {
        s.stream.set_read_deadline(t.map(|t| now() + t));
        let mut buffer = [0];
        let mut slices = [io::IoSliceMut::new(&mut buffer)];
        (&s.stream).read_vectored(&mut slices).map(drop)
    }),
    ("TcpStream::write", |s, t| {
        s.stream.set_write_deadline(t.map(|t| now() + t));
        Err(write_until_error(&s.stream))
    }),
    ("TcpListener::accept", |s, t| {
        s.listener.set_accept_deadline(t.map(|t| now() + t));
        s.listener.accept().map(drop)
    }),
    ("TcpStream::connect", |s, t| match t {
        Some(t) => TcpStream::connect_deadline(&s.hanging.address, now() + t).map(drop),
        None => TcpStream::connect(s.hanging.address).map(drop),
    }),
    ("UnixStream::read", |s, t| {
        s.unix.set_read_deadline(t.map(|t| now() + t));
        (&s.unix).read(&mut [0]).map(drop)
    }),
    ("UnixStream::write", |s, t| {
        s.unix.set_write_deadline(t.map(|t| now() + t));
        (&s.unix).write(b"x").map(drop)
    }),
    ("UnixListener::accept", |s, t| {
        s.unix_listener.set_accept_deadline(t.map(|t| now() + t));
        s.unix_listener.accept().map(drop)
    }),
];

fn assert_cancelled(name: &str, error: &io::Error) {
    assert!(sinew::is_cancelled(error), "{name}: {error}");
    // Which std's loops would retry.
    assert_ne!(error.kind(), ErrorKind::Interrupted, "{name}");
    assert_ne!(error.kind(), ErrorKind::WouldBlock, "{name}");
}

// contract: I1
// contract: S10
#[test]
fn a_cancel_ends_every_call() {
    let _watchdog = watchdog();
    run(|| {
        let silent = Rc::new(Silent::new());
        for (name, call) in BARE.into_iter().chain(SOCKETS) {
            for far in [None, Some(Duration::from_secs(3_600))] {
                // During the wait.
                let here = silent.clone();
                let waiting = spawn_local(move || call(&here, far));
                yield_now().unwrap();
                sleep(Duration::from_micros(1)).unwrap();
                assert!(!waiting.is_finished(), "{name} did not wait");
                waiting.cancel("test");
                assert_cancelled(name, &waiting.join().unwrap().unwrap_err());
                // Before it, and again and again.
                let here = silent.clone();
                let refused = spawn_local(move || {
                    sinew::current().unwrap().cancel_token().cancel("test");
                    for _ in 0..20 {
                        assert_cancelled(name, &call(&here, far).unwrap_err());
                    }
                });
                refused.join().unwrap();
            }
        }
        // And another that waits for the same is not disturbed: everything works as before.
        silent.stream.set_read_deadline(None);
        let here = silent.clone();
        let reading = spawn_local(move || io_rig::read_byte(&here.stream));
        yield_now().unwrap();
        (&silent._peer).write_all(b"x").unwrap();
        assert_eq!(reading.join().unwrap().unwrap(), b'x');
    });
}

/// Distances of deadlines: none, past, at once, around the time that a wait takes to set up.
const DISTANCES: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_micros(5),
    Duration::from_micros(50),
];

fn every_deadline(rounds: usize) {
    let silent = Silent::new();
    for (name, call) in BARE.into_iter().chain(SOCKETS) {
        // A connect that hangs leaves the kernel work behind.
        let rounds = if name.contains("connect") {
            rounds / 10
        } else {
            rounds
        };
        for round in 0..rounds {
            let error = call(&silent, Some(DISTANCES[round % 4])).expect_err(name);
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{name}: {error}");
        }
    }
    // Before now.
    let past = now();
    silent.stream.set_read_deadline(Some(past));
    silent.stream.set_write_deadline(Some(past));
    silent.listener.set_accept_deadline(Some(past));
    for _ in 0..rounds {
        let errors = [
            (&silent.stream).read(&mut [0]).unwrap_err(),
            write_until_error(&silent.stream),
            silent.listener.accept().unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        }
    }
}

// contract: I1
#[test]
fn every_deadline_at_every_call() {
    let _watchdog = watchdog();
    run(|| every_deadline(400 * stress()));
}

// contract: I1
#[test]
fn every_deadline_at_every_call_in_company() {
    let _watchdog = watchdog();
    run(|| {
        let done = Rc::new(std::cell::Cell::new(false));
        for _ in 0..3 {
            let done = done.clone();
            go_local(move || while !done.get() && yield_now().is_ok() {});
        }
        every_deadline(100 * stress());
        done.set(true);
    });
}

// contract: I11
#[test]
fn every_deadline_on_a_plain_thread() {
    let _watchdog = watchdog();
    every_deadline(100 * stress());
}

// contract: I1
// The deadline and the byte come at about the same time: whichever wins, no byte is lost.
#[test]
fn a_deadline_against_a_byte() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = tcp_pair();
        let a = Rc::new(a);
        let mut late = 0;
        for round in 0..2_000 * stress() {
            let reader = a.clone();
            let reading = spawn_local(move || {
                let distance = Duration::from_nanos((round % 50) as u64 * 1_000);
                reader.set_read_deadline(Some(now() + distance));
                match io_rig::read_byte(&*reader) {
                    Ok(byte) => Some(byte),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::TimedOut);
                        None
                    }
                }
            });
            sleep(Duration::from_micros((round % 7) as u64 * 7)).unwrap();
            let byte = round as u8;
            (&b).write_all(&[byte]).unwrap();
            let got = reading.join().unwrap().unwrap_or_else(|| {
                late += 1;
                a.set_read_deadline(None);
                io_rig::read_byte(&*a).unwrap()
            });
            assert_eq!(got, byte);
        }
        assert!(late > 0, "the deadline never came first");
    });
}

// contract: S4
// The run's main closure panics: everything that waits for a descriptor ends, and so does `run`.
#[test]
fn a_panic_ends_the_waits() {
    let _watchdog = watchdog();
    let ended = std::panic::catch_unwind(|| {
        run(|| {
            let silent = Rc::new(Silent::new());
            for (_, call) in BARE.into_iter().chain(SOCKETS) {
                let silent = silent.clone();
                go_local(move || while !sinew::is_cancelled(&call(&silent, None).unwrap_err()) {});
            }
            // One that does not listen.
            go_local(move || {
                loop {
                    let _again = sinew::io::read(&silent.fd, &mut [0], None).is_err();
                }
            });
            yield_now().unwrap();
            std::panic::resume_unwind(Box::new("main"));
        });
    });
    assert_eq!(*ended.unwrap_err().downcast::<&str>().unwrap(), "main");
}
