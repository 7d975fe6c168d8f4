//! Messages over UDP and Unix sockets.

mod io_rig;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Shutdown};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use io_rig::{stress, watchdog};
use rustix::io::{FdFlags, fcntl_getfd};
use sinew::net::{UdpSocket, UnixDatagram};
use sinew::time::now;
use sinew::{run, scope, spawn_local, yield_now};

const MOMENT: Duration = Duration::from_millis(1);

/// In a coroutine and on a plain thread.
fn both(f: impl Fn()) {
    let _watchdog = watchdog();
    f();
    run(f);
}

fn udp() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// An address that no other test has.
fn abstract_address() -> SocketAddr {
    static NAMES: AtomicUsize = AtomicUsize::new(0);
    let number = NAMES.fetch_add(1, Relaxed);
    let name = format!("sinew-datagrams-{}-{number}", std::process::id());
    SocketAddr::from_abstract_name(name).unwrap()
}

struct TempPath(PathBuf);

impl TempPath {
    fn new(name: &str) -> Self {
        let name = format!("sinew-datagrams-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _was_there = std::fs::remove_file(&path).is_ok();
        Self(path)
    }
}

impl Drop for TempPath {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_file(&self.0).is_err();
    }
}

fn assert_flags(fd: &impl AsFd) {
    assert!(fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC));
    assert!(sinew::io::is_nonblocking(fd).unwrap());
}

// contract: I2
// contract: I11
#[test]
fn messages_come_whole_and_with_their_sender() {
    both(|| {
        let (a, b) = (udp(), udp());
        assert_flags(&a);
        let (here, there) = (a.local_addr().unwrap(), b.local_addr().unwrap());
        assert_eq!(a.send_to(b"hello", there).unwrap(), 5);
        assert_eq!(a.send_to(b"", there).unwrap(), 0);
        assert_eq!(a.send_to(b"rest is lost", there).unwrap(), 12);
        let mut buffer = [0; 16];
        assert_eq!(b.peek_from(&mut buffer).unwrap(), (5, here));
        assert_eq!(b.peek(&mut buffer).unwrap(), 5);
        assert_eq!(b.recv_from(&mut buffer).unwrap(), (5, here));
        assert_eq!(&buffer[..5], b"hello");
        assert_eq!(b.recv_from(&mut buffer).unwrap(), (0, here));
        assert_eq!(b.recv_from(&mut buffer[..4]).unwrap(), (4, here));
        assert_eq!(&buffer[..4], b"rest");
        b.set_read_timeout(Some(MOMENT)).unwrap();
        let error = b.recv(&mut buffer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

// contract: I2
#[test]
fn a_connected_socket_hears_its_peer_only() {
    both(|| {
        let (a, b, stranger) = (udp(), udp(), udp());
        let error = a.send(b"x").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EDESTADDRREQ));
        assert_eq!(a.peer_addr().unwrap_err().kind(), ErrorKind::NotConnected);
        a.connect(b.local_addr().unwrap()).unwrap();
        assert_eq!(a.peer_addr().unwrap(), b.local_addr().unwrap());
        stranger.send_to(b"?", a.local_addr().unwrap()).unwrap();
        b.send_to(b"!", a.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 4];
        assert_eq!(a.recv(&mut buffer).unwrap(), 1);
        assert_eq!(buffer[0], b'!');
        assert_eq!(a.send(b"x").unwrap(), 1);
        assert_eq!(b.recv(&mut buffer).unwrap(), 1);
    });
}

// contract: I2
// contract: I4
#[test]
fn who_sends_to_nobody_hears_of_it() {
    both(|| {
        let (a, gone) = (udp(), udp());
        a.connect(gone.local_addr().unwrap()).unwrap();
        drop(gone);
        a.send(b"x").unwrap();
        let error = a.recv(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        // And told while it waits, too.
        a.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let sender = a.try_clone().unwrap();
        std::thread::scope(|s| {
            s.spawn(move || sender.send(b"x").unwrap());
            let error = a.recv(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        });
        assert!(a.take_error().unwrap().is_none());
    });
}

// contract: I2
#[test]
fn errors_name_the_address() {
    both(|| {
        let taken = udp();
        let address = taken.local_addr().unwrap();
        let error = UdpSocket::bind(address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        let error = taken.send_to(&[0; 1 << 17], address).unwrap_err();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        let error = taken.send_to(b"x", &[][..]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);

        let path = TempPath::new("names");
        let text = path.0.to_str().unwrap();
        let unbound = UnixDatagram::unbound().unwrap();
        let error = unbound.send_to(b"x", &path.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(text), "{error}");
        let error = unbound.connect(&path.0).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        let _bound = UnixDatagram::bind(&path.0).unwrap();
        let error = UnixDatagram::bind(&path.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(error.to_string().contains(text), "{error}");
        let unnamed = unbound.local_addr().unwrap();
        let error = unbound.send_to_addr(b"x", &unnamed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

// contract: I2
#[test]
fn options_read_back_what_was_set() {
    both(|| {
        let socket = udp();
        socket.set_broadcast(true).unwrap();
        assert!(socket.broadcast().unwrap());
        socket.set_ttl(7).unwrap();
        assert_eq!(socket.ttl().unwrap(), 7);
        socket.set_multicast_loop_v4(false).unwrap();
        assert!(!socket.multicast_loop_v4().unwrap());
        socket.set_multicast_ttl_v4(3).unwrap();
        assert_eq!(socket.multicast_ttl_v4().unwrap(), 3);
        let group = Ipv4Addr::new(224, 0, 1, 99);
        let error = socket
            .leave_multicast_v4(&group, &Ipv4Addr::LOCALHOST)
            .unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL));
        assert_eq!(
            socket
                .set_read_timeout(Some(Duration::ZERO))
                .unwrap_err()
                .kind(),
            ErrorKind::InvalidInput
        );
        socket.set_read_timeout(Some(MOMENT)).unwrap();
        socket.set_write_timeout(Some(2 * MOMENT)).unwrap();
        assert_eq!(socket.read_timeout().unwrap(), Some(MOMENT));
        assert_eq!(socket.write_timeout().unwrap(), Some(2 * MOMENT));
        let clone = socket.try_clone().unwrap();
        assert_eq!(clone.read_timeout().unwrap(), Some(MOMENT));
        assert_eq!(clone.ttl().unwrap(), 7, "it is the same socket");
    });
}

// contract: I2
#[test]
fn sockets_of_std_come_in_and_go_out() {
    both(|| {
        let theirs = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = theirs.local_addr().unwrap();
        let ours = UdpSocket::from_std(theirs).unwrap();
        assert_flags(&ours);
        ours.send_to(b"x", address).unwrap();
        let theirs = ours.into_std().unwrap();
        assert!(!sinew::io::is_nonblocking(&theirs).unwrap());
        assert_eq!(theirs.recv(&mut [0; 2]).unwrap(), 1);

        let (a, b) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let a = UnixDatagram::from(OwnedFd::from(a));
        assert_flags(&a);
        a.send(b"xy").unwrap();
        assert_eq!(b.recv(&mut [0; 4]).unwrap(), 2);
        let a = a.into_std().unwrap();
        a.send(b"z").unwrap();
        assert_eq!(b.recv(&mut [0; 4]).unwrap(), 1);
    });
}

// contract: I2
// contract: I11
#[test]
fn unix_messages_by_path_name_and_pair() {
    both(|| {
        let path = TempPath::new("talk");
        let server = UnixDatagram::bind(&path.0).unwrap();
        assert_flags(&server);
        let local = server.local_addr().unwrap();
        assert_eq!(local.as_pathname(), Some(&*path.0));
        let mut buffer = [0; 8];

        let unbound = UnixDatagram::unbound().unwrap();
        unbound.send_to(b"one", &path.0).unwrap();
        let (len, from) = server.peek_from(&mut buffer).unwrap();
        assert!(len == 3 && from.is_unnamed());
        let (len, from) = server.recv_from(&mut buffer).unwrap();
        assert!(len == 3 && from.is_unnamed());

        let name = abstract_address();
        let client = UnixDatagram::bind_addr(&name).unwrap();
        client.connect(&path.0).unwrap();
        assert_eq!(client.peer_addr().unwrap().as_pathname(), Some(&*path.0));
        client.send(b"two").unwrap();
        let (len, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!((len, from.as_abstract_name()), (3, name.as_abstract_name()));
        server.send_to_addr(b"back", &from).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), 4);
        let (len, from) = {
            server.send_to_addr(b"back", &from).unwrap();
            client.recv_from(&mut buffer).unwrap()
        };
        assert_eq!((len, from.as_pathname()), (4, Some(&*path.0)));

        let (a, b) = UnixDatagram::pair().unwrap();
        a.send(b"pair").unwrap();
        assert_eq!(b.recv(&mut buffer).unwrap(), 4);
        drop(b);
        assert_eq!(
            a.send(b"x").unwrap_err().kind(),
            ErrorKind::ConnectionRefused
        );
    });
}

// contract: I2
// contract: I4
#[test]
fn a_shutdown_ends_the_waits() {
    let _watchdog = watchdog();
    run(|| {
        let (a, _b) = UnixDatagram::pair().unwrap();
        let (waiting, clone) = (a.try_clone().unwrap(), a);
        let receiver = spawn_local(move || waiting.recv(&mut [0; 4]));
        yield_now().unwrap();
        assert!(!receiver.is_finished());
        clone.shutdown(Shutdown::Both).unwrap();
        assert_eq!(receiver.join().unwrap().unwrap(), 0);
        assert_eq!(clone.send(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

/// Sends messages to a slow receiver whose queue is short: none is lost, none waits for ever.
fn to_a_slow_receiver(is_connected: bool) {
    let _watchdog = watchdog();
    let count = 200 * stress();
    run(|| {
        let name = abstract_address();
        let receiver = UnixDatagram::bind_addr(&name).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        if is_connected {
            sender.connect_addr(&name).unwrap();
        }
        let sending = spawn_local(move || {
            for number in 0..count {
                let message = number.to_ne_bytes();
                let sent = if is_connected {
                    sender.send(&message)
                } else {
                    sender.send_to_addr(&message, &name)
                };
                assert_eq!(sent.unwrap(), message.len());
            }
        });
        for number in 0..count {
            let mut message = [0; 8];
            assert_eq!(receiver.recv(&mut message).unwrap(), 8);
            assert_eq!(usize::from_ne_bytes(message), number, "in order");
        }
        sending.join().unwrap();
    });
}

// contract: I2
#[test]
fn a_full_receiver_holds_a_connected_sender_up() {
    to_a_slow_receiver(true);
}

// contract: I2
#[test]
fn a_full_receiver_holds_an_unconnected_sender_up() {
    to_a_slow_receiver(false);
}

/// That one receiver is full does not keep a sender from others.
// contract: I2
#[test]
fn a_full_receiver_is_in_nobody_elses_way() {
    both(|| {
        let (full, free) = (abstract_address(), abstract_address());
        let _full = UnixDatagram::bind_addr(&full).unwrap();
        let other = UnixDatagram::bind_addr(&free).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        sender.set_write_timeout(Some(5 * MOMENT)).unwrap();
        let error = loop {
            if let Err(error) = sender.send_to_addr(b"x", &full) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        sender.set_write_deadline(Some(now() - MOMENT));
        let error = sender.send_to_addr(b"x", &full).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        // A deadline that has passed does not refuse what is possible.
        assert_eq!(sender.send_to_addr(b"x", &free).unwrap(), 1);
        assert_eq!(other.recv(&mut [0]).unwrap(), 1);
    });
}

// contract: I1
// contract: I2
#[test]
fn a_passed_deadline_does_not_hide_what_is_there() {
    both(|| {
        let (a, b) = UnixDatagram::pair().unwrap();
        b.set_read_deadline(Some(now() - MOMENT));
        let error = b.recv(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        a.send(b"x").unwrap();
        assert_eq!(b.recv(&mut [0]).unwrap(), 1);
        b.set_read_deadline(None);
        a.send(b"y").unwrap();
        assert_eq!(b.recv(&mut [0]).unwrap(), 1);
    });
}

/// Several receive, some are cancelled or run out of time: each message comes to exactly one.
// contract: I3
// contract: S13
#[test]
fn every_message_comes_to_one_of_several() {
    let _watchdog = watchdog();
    let count = 500 * stress();
    run(|| {
        let (a, b) = UnixDatagram::pair().unwrap();
        let received = AtomicUsize::new(0);
        scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    let b = b.try_clone().unwrap();
                    b.set_read_timeout(Some(Duration::from_micros(50))).unwrap();
                    while received.load(Relaxed) < count {
                        match b.recv(&mut [0; 8]) {
                            Ok(len) => {
                                assert_eq!(len, 8);
                                received.fetch_add(1, Relaxed);
                            }
                            Err(error) => assert_eq!(error.kind(), ErrorKind::TimedOut),
                        }
                    }
                });
            }
            s.spawn(|| {
                for number in 0..count {
                    a.send(&number.to_ne_bytes()).unwrap();
                    if number % 3 == 0 {
                        yield_now().unwrap();
                    }
                }
            });
        });
        assert_eq!(received.into_inner(), count);
    });
}
