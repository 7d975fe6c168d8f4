//! Calls on bare descriptors: what each gives, its timeout, its errors, and that it works on plain threads too.

mod io_rig;

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use io_rig::{bare, fill_fd, hanging, place_at, refusing, unix_pair, watchdog};
use sinew::io::{Interest, accept, connect, pipe, read, ready, recvfrom, sendto, write};
use sinew::{go_local, run, spawn_local, yield_now};

const SHORT: Option<Duration> = Some(Duration::from_millis(2));

/// Does it in a coroutine, and on this plain thread.
fn both(f: impl Fn()) {
    let _watchdog = watchdog();
    run(&f);
    f();
}

fn std_listener() -> (OwnedFd, SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (listener.into(), address)
}

fn nonblocking_socket(kind: socket2::Type) -> OwnedFd {
    let kind = kind.nonblocking().cloexec();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, None);
    socket.unwrap().into()
}

fn udp() -> (OwnedFd, SocketAddr) {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let address = socket.local_addr().unwrap();
    (socket.into(), address)
}

fn flags(fd: &impl AsFd) -> (bool, bool) {
    let close_on_exec = rustix::io::fcntl_getfd(fd).unwrap();
    (
        close_on_exec.contains(rustix::io::FdFlags::CLOEXEC),
        sinew::io::is_nonblocking(fd).unwrap(),
    )
}

// contract: I1
// contract: I11
#[test]
fn a_pipe_carries_bytes_and_its_end() {
    both(|| {
        let (from, to) = pipe().unwrap();
        assert_eq!((flags(&from), flags(&to)), ((true, true), (true, true)));
        assert_eq!(write(&to, b"bytes", None).unwrap(), 5);
        let mut buffer = [0; 16];
        assert_eq!(read(&from, &mut buffer, None).unwrap(), 5);
        assert_eq!(&buffer[..5], b"bytes");
        drop(to);
        assert_eq!(read(&from, &mut buffer, None).unwrap(), 0);
    });
}

// contract: I1
// contract: I11
#[test]
fn each_call_has_a_timeout() {
    both(|| {
        let (a, _b) = unix_pair();
        let (full, _reader) = unix_pair();
        fill_fd(full.as_fd());
        let (listener, _) = std_listener();
        let (datagrams, _) = udp();
        let timed_out = |kind| assert_eq!(kind, ErrorKind::TimedOut);
        for timeout in [SHORT, Some(Duration::ZERO), Some(Duration::from_nanos(1))] {
            timed_out(read(&a, &mut [0; 8], timeout).unwrap_err().kind());
            timed_out(write(&full, b"more", timeout).unwrap_err().kind());
            timed_out(accept(&listener, timeout).unwrap_err().kind());
            let error = recvfrom(&datagrams, &mut [0; 8], timeout).unwrap_err();
            timed_out(error.kind());
            timed_out(ready(&a, Interest::Read, timeout).unwrap_err().kind());
            timed_out(ready(&full, Interest::Write, timeout).unwrap_err().kind());
        }
    });
}

// contract: I1
#[test]
fn a_connect_has_a_timeout() {
    let hanging = hanging();
    both(|| {
        let socket = nonblocking_socket(socket2::Type::STREAM);
        let error = connect(&socket, &hanging.address, SHORT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

// contract: I1
// contract: I11
#[test]
fn a_connect_succeeds_or_says_why_not() {
    both(|| {
        let (listener, address) = std_listener();
        let socket = nonblocking_socket(socket2::Type::STREAM);
        connect(&socket, &address, None).unwrap();
        let accepted = accept(&listener, None).unwrap();
        assert_eq!(flags(&accepted), (true, true));
        write(&accepted, b"hi", None).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(read(&socket, &mut buffer, None).unwrap(), 2);
        let (address, _reserved) = refusing();
        let socket = nonblocking_socket(socket2::Type::STREAM);
        let error = connect(&socket, &address, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

// contract: I1
// A socket whose connect was ended, and whose error someone else has taken, is not waited for for ever.
#[test]
fn a_connect_that_was_shut_down_ends() {
    let _watchdog = watchdog();
    let hanging = hanging();
    run(|| {
        let socket = nonblocking_socket(socket2::Type::STREAM);
        let other = socket.try_clone().unwrap();
        let address = hanging.address;
        let connecting = spawn_local(move || connect(&socket, &address, None));
        yield_now().unwrap();
        let other = socket2::Socket::from(other);
        other.shutdown(std::net::Shutdown::Both).unwrap();
        other.take_error().unwrap();
        assert!(connecting.join().unwrap().is_err());
    });
}

// contract: I1
// contract: I11
#[test]
fn datagrams_come_with_their_sender() {
    both(|| {
        let (a, at_a) = udp();
        let (b, at_b) = udp();
        assert_eq!(sendto(&a, b"datagram", &at_b, None).unwrap(), 8);
        let mut buffer = [0; 16];
        assert_eq!(recvfrom(&b, &mut buffer, None).unwrap(), (8, at_a));
        assert_eq!(&buffer[..8], b"datagram");
    });
}

// contract: I1
#[test]
fn a_descriptor_in_blocking_mode_is_refused_until_it_is_switched() {
    both(|| {
        let (from, to) = pipe().unwrap();
        sinew::io::set_nonblocking(&from, false).unwrap();
        sinew::io::set_nonblocking(&to, false).unwrap();
        let (a, at_a) = udp();
        sinew::io::set_nonblocking(&a, false).unwrap();
        let refused = [
            read(&from, &mut [0], None).unwrap_err(),
            write(&to, b"x", None).unwrap_err(),
            accept(&a, None).unwrap_err(),
            connect(&a, &at_a, None).unwrap_err(),
            recvfrom(&a, &mut [0], None).unwrap_err(),
            sendto(&a, b"x", &at_a, None).unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("set_nonblocking"), "{error}");
        }
        // Readiness can be waited for in either mode.
        ready(&to, Interest::Write, None).unwrap();
        sinew::io::set_nonblocking(&to, true).unwrap();
        assert_eq!(write(&to, b"x", None).unwrap(), 1);
    });
}

// contract: I1
#[test]
fn a_regular_file_cannot_be_waited_for() {
    let path = std::env::temp_dir().join(format!("sinew-io-raw-{}", std::process::id()));
    let file = File::create(&path).unwrap();
    both(|| {
        for fd in [file.as_fd(), File::open("/").unwrap().as_fd()] {
            let error = ready(fd, Interest::Read, SHORT).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            let number = format!("descriptor {}", fd.as_raw_fd());
            assert!(error.to_string().contains(&number), "{error}");
        }
    });
    std::fs::remove_file(path).unwrap();
}

// contract: I1
#[test]
fn a_closed_descriptor_is_named() {
    both(|| {
        let closed = bare(987);
        let at = SocketAddr::from(([127, 0, 0, 1], 9));
        let errors = [
            read(closed, &mut [0], None).unwrap_err(),
            write(closed, b"x", None).unwrap_err(),
            accept(closed, None).unwrap_err(),
            connect(closed, &at, None).unwrap_err(),
            recvfrom(closed, &mut [0], None).unwrap_err(),
            sendto(closed, b"x", &at, None).unwrap_err(),
            ready(closed, Interest::Read, SHORT).unwrap_err(),
        ];
        for error in errors {
            assert!(error.to_string().contains("descriptor 987"), "{error}");
            let kernels = std::error::Error::source(error.get_ref().unwrap()).unwrap();
            let kernels = kernels.downcast_ref::<std::io::Error>().unwrap();
            assert_eq!(kernels.raw_os_error(), Some(libc::EBADF));
        }
    });
}

// contract: I1
#[test]
fn a_partial_write_is_reported() {
    both(|| {
        let (a, b) = unix_pair();
        let bytes = vec![1; 4 << 20];
        let len = write(&a, &bytes, Some(Duration::ZERO)).unwrap();
        assert!(len > 0 && len < bytes.len(), "{len}");
        let error = write(&a, &bytes, SHORT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let mut buffer = vec![0; 4 << 20];
        let mut total = 0;
        while total < len {
            total += read(&b, &mut buffer, None).unwrap();
        }
        assert_eq!(total, len);
        assert!(read(&b, &mut buffer, Some(Duration::ZERO)).is_err());
    });
}

// contract: I1
// A reader that is woken again and again, and finds each time that another was faster, still ends at its time.
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn a_timeout_spans_the_whole_call() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = unix_pair();
        let a = std::rc::Rc::new(a);
        let (fast, slow) = (a.clone(), a);
        let taking = spawn_local(move || while read(&*fast, &mut [0], None).is_ok() {});
        let waiting = spawn_local(move || read(&*slow, &mut [0], Some(Duration::from_millis(30))));
        let mut rounds = 0;
        while waiting.wait_timeout(Duration::from_millis(1)).is_err() {
            // Both are woken; the other, who came first, has taken the byte before the slow one looks.
            write(&b, b"x", None).unwrap();
            rounds += 1;
            assert!(rounds < 5_000, "each wake begins the timeout anew");
        }
        taking.cancel("done");
        let error = waiting.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

// contract: I4
#[test]
fn closing_ends_the_waits_at_once() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = unix_pair();
        fill_fd(a.as_fd());
        let a = place_at(a, 901);
        let waits = [
            spawn_local(|| read(bare(901), &mut [0], None).map(drop)),
            spawn_local(|| write(bare(901), b"x", None).map(drop)),
            spawn_local(|| ready(bare(901), Interest::Read, None)),
            spawn_local(|| read(bare(901), &mut [0], Some(Duration::from_secs(60))).map(drop)),
        ];
        yield_now().unwrap();
        assert!(waits.iter().all(|wait| !wait.is_finished()));
        sinew::io::close(a).unwrap();
        for wait in waits {
            let error = wait.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotConnected);
            assert!(error.to_string().contains("901"), "{error}");
            assert!(!sinew::is_cancelled(&error));
        }
        drop(b);
    });
}

// contract: I4
#[test]
fn the_other_sides_end_ends_the_waits() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = unix_pair();
        fill_fd(a.as_fd());
        let a = std::rc::Rc::new(a);
        let (reader, writer) = (a.clone(), a);
        let reading = spawn_local(move || read(&*reader, &mut [0], None));
        let writing = spawn_local(move || write(&*writer, b"x", None));
        yield_now().unwrap();
        sinew::io::close(b).unwrap();
        // The other side has left bytes unread, which a Unix socket reports as a reset.
        assert!(matches!(reading.join().unwrap(), Ok(0) | Err(_)));
        let error = writing.join().unwrap().unwrap_err();
        assert!(matches!(
            error.kind(),
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
        ));
    });
}

// contract: I1
#[test]
fn what_is_there_is_not_refused_by_a_cancel() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = unix_pair();
        let reading = spawn_local(move || {
            sinew::current().unwrap().cancel_token().cancel("test");
            let mut buffer = [0; 4];
            assert_eq!(read(&a, &mut buffer, None).unwrap(), 1);
            let error = read(&a, &mut buffer, None).unwrap_err();
            assert!(sinew::is_cancelled(&error));
            assert_ne!(error.kind(), ErrorKind::Interrupted);
            let error = ready(&a, Interest::Read, None).unwrap_err();
            assert!(sinew::is_cancelled(&error));
        });
        write(&b, b"x", None).unwrap();
        reading.join().unwrap();
    });
}

#[test]
fn copying_goes_to_the_readers_end() {
    let _watchdog = watchdog();
    let text: Vec<u8> = (0..200_000_u32).map(|n| n as u8).collect();
    let copied = run(|| {
        let (mut from, mut to) = sinew::net::UnixStream::pair().unwrap();
        let sent = text.clone();
        go_local(move || to.write_all(&sent).unwrap());
        let mut into = Vec::new();
        let len = sinew::io::copy(&mut from, &mut into).unwrap();
        assert_eq!(len, 200_000);
        assert_eq!(from.read(&mut [0]).unwrap(), 0);
        into
    });
    assert_eq!(copied, text);
}
