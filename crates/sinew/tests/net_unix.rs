//! Unix streams and listeners.

mod io_rig;

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use io_rig::{fill, read_byte, watchdog};
use sinew::net::{Shutdown, UnixListener, UnixStream};
use sinew::{run, spawn_local, yield_now};

const SHORT: Option<Duration> = Some(Duration::from_millis(2));

/// A path for one socket, removed at the end.
struct Spot(PathBuf);

impl Spot {
    fn new(name: &str) -> Self {
        let name = format!("sinew-net-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _was_not_there = std::fs::remove_file(&path).is_err();
        Self(path)
    }
}

impl Drop for Spot {
    fn drop(&mut self) {
        let _was_not_made = std::fs::remove_file(&self.0).is_err();
    }
}

// contract: I2
// contract: I11
#[test]
fn connect_accept_and_talk() {
    let _watchdog = watchdog();
    let spot = Spot::new("talk");
    let talk = || {
        let listener = UnixListener::bind(&spot.0).unwrap();
        let at = listener.local_addr().unwrap();
        assert_eq!(at.as_pathname(), Some(&*spot.0));
        let mut client = UnixStream::connect(&spot.0).unwrap();
        let (mut server, from) = listener.accept().unwrap();
        assert!(from.is_unnamed());
        assert_eq!(client.peer_addr().unwrap().as_pathname(), Some(&*spot.0));
        assert!(client.local_addr().unwrap().is_unnamed());
        for fd in [listener.as_fd(), client.as_fd(), server.as_fd()] {
            assert!(sinew::io::is_nonblocking(fd).unwrap());
            let flags = rustix::io::fcntl_getfd(fd).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
        client.write_all(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut text = String::new();
        server.read_to_string(&mut text).unwrap();
        assert_eq!(text, "question");
        let error = UnixListener::bind(&spot.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(error.to_string().contains("sinew-net-talk"), "{error}");
        drop(listener);
        let error = UnixStream::connect(&spot.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains("sinew-net-talk"), "{error}");
        std::fs::remove_file(&spot.0).unwrap();
    };
    run(talk);
    talk();
}

// contract: I2
#[test]
fn every_kind_of_address_is_told() {
    use std::os::linux::net::SocketAddrExt;
    run(|| {
        let name = format!("sinew-net-abstract-{}", std::process::id());
        let at = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let listener = std::os::unix::net::UnixListener::bind_addr(&at).unwrap();
        let listener = UnixListener::from_std(listener).unwrap();
        let told = listener.local_addr().unwrap();
        assert_eq!(told.as_abstract_name(), Some(name.as_bytes()));
        // The longest path that there can be.
        let mut path = std::env::temp_dir().join("");
        let used = path.as_os_str().len();
        path.push(format!(
            "{:x>width$}",
            std::process::id(),
            width = 107 - used
        ));
        let spot = Spot(path);
        let listener = UnixListener::bind(&spot.0).unwrap();
        let told = listener.local_addr().unwrap();
        assert_eq!(told.as_pathname(), Some(&*spot.0));
        let error = UnixListener::bind("x".repeat(200)).unwrap_err();
        assert!(error.to_string().contains("xxx"), "{error}");
    });
}

// contract: I2
#[test]
fn std_types_come_in_and_go_out() {
    let _watchdog = watchdog();
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    let (a, b) = run(|| {
        let (a, b) = (
            UnixStream::from_std(a).unwrap(),
            UnixStream::from_std(b).unwrap(),
        );
        let reading = spawn_local(move || (read_byte(&a).unwrap(), a));
        yield_now().unwrap();
        (&b).write_all(b"s").unwrap();
        let (byte, a) = reading.join().unwrap();
        assert_eq!(byte, b's');
        (a, b)
    });
    let (a, mut b) = (a.into_std().unwrap(), b.into_std().unwrap());
    let reading = std::thread::spawn(move || read_byte(a));
    b.write_all(b"t").unwrap();
    assert_eq!(reading.join().unwrap().unwrap(), b't');
}

// contract: I1
// contract: I11
#[test]
fn timeouts_end_the_calls() {
    let _watchdog = watchdog();
    let spot = Spot::new("timeouts");
    let listener = UnixListener::bind(&spot.0).unwrap();
    listener.set_accept_timeout(SHORT).unwrap();
    let each = || {
        let (a, _b) = UnixStream::pair().unwrap();
        a.set_write_timeout(SHORT).unwrap();
        a.set_read_timeout(SHORT).unwrap();
        fill(&a);
        let timed_out = |kind| assert_eq!(kind, ErrorKind::TimedOut);
        timed_out((&a).write(b"x").unwrap_err().kind());
        timed_out((&a).read(&mut [0]).unwrap_err().kind());
        timed_out(a.peek(&mut [0]).unwrap_err().kind());
        timed_out(listener.accept().unwrap_err().kind());
    };
    run(each);
    each();
}

// contract: I2
// The kernel does not say when there is room in a full backlog.
#[test]
fn a_connect_to_a_full_backlog_waits_for_room() {
    let _watchdog = watchdog();
    let spot = Spot::new("backlog");
    let listener =
        socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
    listener
        .bind(&socket2::SockAddr::unix(&spot.0).unwrap())
        .unwrap();
    listener.listen(0).unwrap();
    run(|| {
        let _first = UnixStream::connect(&spot.0).unwrap();
        let limit = Duration::from_millis(5);
        let error = UnixStream::connect_timeout(&spot.0, limit).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let path = spot.0.clone();
        let connecting = spawn_local(move || UnixStream::connect(path));
        sinew::sleep(limit).unwrap();
        assert!(!connecting.is_finished());
        listener.accept().unwrap();
        connecting.join().unwrap().unwrap();
        let path = spot.0.clone();
        let connecting = spawn_local(move || UnixStream::connect(path).map(drop));
        yield_now().unwrap();
        connecting.cancel("test");
        let error = connecting.join().unwrap().unwrap_err();
        assert!(sinew::is_cancelled(&error), "{error}");
    });
}

// contract: I2
// A read of a Unix stream ends where descriptors were sent along, although there is more behind.
#[test]
fn a_descriptor_among_the_bytes_does_not_stall_a_reader() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = UnixStream::pair().unwrap();
        let reading = spawn_local(move || {
            let mut bytes = Vec::new();
            while bytes.len() < 7 {
                let mut buffer = [0; 64];
                let len = (&a).read(&mut buffer).unwrap();
                bytes.extend_from_slice(&buffer[..len]);
            }
            bytes
        });
        yield_now().unwrap();
        (&b).write_all(b"0").unwrap();
        sinew::sleep(Duration::from_millis(1)).unwrap();
        let fds = [b.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&fds)));
        let slices = [std::io::IoSlice::new(b"abc")];
        let flags = rustix::net::SendFlags::empty();
        rustix::net::sendmsg(&b, &slices, &mut control, flags).unwrap();
        (&b).write_all(b"def").unwrap();
        assert_eq!(reading.join().unwrap(), b"0abcdef");
    });
}

// contract: I2
// contract: I11
#[test]
fn an_address_without_a_path_does_too() {
    let _watchdog = watchdog();
    let talk = || {
        let name = format!(
            "sinew-net-unix-{}-{}",
            std::process::id(),
            sinew::in_coroutine()
        );
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let error = UnixListener::bind_addr(&address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        let client = UnixStream::connect_addr(&address).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        (&client).write_all(b"x").unwrap();
        assert_eq!(read_byte(&mut stream).unwrap(), b'x');
        drop(listener);
        let error = UnixStream::connect_addr(&address).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains("sinew-net-unix"), "{error}");
        let unnamed = client.local_addr().unwrap();
        let error = UnixStream::connect_addr(&unnamed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let past = sinew::time::now();
        let error = UnixStream::connect_deadline("/nowhere/at/all", past).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    };
    run(talk);
    talk();
}

fn has_options(socket: &impl AsFd) {
    let options = socket2::SockRef::from(socket);
    options.set_recv_buffer_size(50_000).unwrap();
    // The kernel doubles it for its own needs.
    assert_eq!(options.recv_buffer_size().unwrap(), 100_000);
}

// contract: I2
#[test]
fn every_socket_takes_socket2s_options() {
    let spot = Spot::new("options");
    run(|| {
        let listener = sinew::net::TcpListener::bind("127.0.0.1:0").unwrap();
        has_options(&listener);
        let stream = sinew::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        has_options(&stream);
        let options = socket2::SockRef::from(&stream);
        options.set_keepalive(true).unwrap();
        assert!(options.keepalive().unwrap());
        has_options(&sinew::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        has_options(&sinew::net::UnixDatagram::unbound().unwrap());
        has_options(&UnixListener::bind(&spot.0).unwrap());
        let (near, _far) = UnixStream::pair().unwrap();
        has_options(&near);
    });
}
