//! Peers as they are: thousands at once, gone without a word, gone in the middle, and slow.
#![expect(unsafe_code, reason = "an option that std does not have")]

mod io_rig;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use io_rig::{raise_descriptor_limit, read_byte, skipped, std_pair, tcp_pair, watchdog};
use sinew::net::{TcpListener, TcpStream, UnixStream};
use sinew::{run, spawn_local, yield_now};

/// Tells a child of this test where to connect.
const ADDRESS: &str = "SINEW_TEST_BURST_ADDRESS";
const BURST: u32 = 10_000;

// The other side of the test below, in a process of its own for its descriptors. By itself it does nothing.
#[test]
fn burst_child() {
    let Ok(address) = std::env::var(ADDRESS) else {
        return;
    };
    let address: SocketAddr = address.parse().unwrap();
    raise_descriptor_limit();
    run(|| {
        let all: Vec<_> = (0..BURST)
            .map(|number| {
                spawn_local(move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    stream.write_all(&number.to_le_bytes()).unwrap();
                    let mut back = [0; 4];
                    stream.read_exact(&mut back).unwrap();
                    assert_eq!(u32::from_le_bytes(back), number);
                    // It stays until all have had their answers.
                    stream
                })
            })
            .collect();
        let streams: Vec<_> = all.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(streams.len(), BURST as usize);
    });
}

// contract: I2
#[test]
fn ten_thousand_connects_in_a_burst() {
    let _watchdog = watchdog();
    if raise_descriptor_limit() < u64::from(BURST) + 3_000 {
        return skipped("ten thousand connects", "too few descriptors");
    }
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "burst_child"])
            .env(ADDRESS, address.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let served = Rc::new(std::cell::Cell::new(0));
        let all: Vec<_> = (0..BURST)
            .map(|_| {
                let (mut stream, _) = listener.accept().unwrap();
                let served = served.clone();
                spawn_local(move || {
                    let mut number = [0; 4];
                    stream.read_exact(&mut number).unwrap();
                    stream.write_all(&number).unwrap();
                    served.set(served.get() + 1);
                    assert_eq!(stream.read(&mut number).unwrap(), 0);
                })
            })
            .collect();
        for one in all {
            one.join().unwrap();
        }
        assert_eq!(served.get(), BURST);
        assert!(child.wait().unwrap().success());
    });
}

/// Has the kernel forget a connection without telling the other side; false if that is not permitted.
fn vanish(stream: std::net::TcpStream) -> bool {
    let one = 1_i32.to_ne_bytes();
    // SAFETY: the option takes an `int`.
    let result = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&stream),
            libc::IPPROTO_TCP,
            libc::TCP_REPAIR,
            one.as_ptr().cast(),
            4,
        )
    };
    result == 0
}

// contract: I1
// contract: I4
#[test]
fn a_peer_that_is_gone_without_a_word() {
    let _watchdog = watchdog();
    run(|| {
        let (near, far) = std_pair();
        let near = Rc::new(TcpStream::from_std(near).unwrap());
        if !vanish(far) {
            return skipped("a half-open connection", "the kernel does not permit it");
        }
        // Nobody tells: only a limit ends the wait.
        near.set_read_timeout(Some(Duration::from_millis(2)))
            .unwrap();
        let error = (&*near).read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        near.set_read_timeout(None).unwrap();
        let reader = near.clone();
        let waiting = spawn_local(move || (&*reader).read(&mut [0]).unwrap_err().kind());
        yield_now().unwrap();
        // Something sent finds nobody there, and that ends the other's wait.
        (&*near).write_all(b"anybody there?").unwrap();
        assert_eq!(waiting.join().unwrap(), ErrorKind::ConnectionReset);
        let error = (&*near).write_all(b"no").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
}

// contract: I2
#[test]
fn a_peer_that_only_listens() {
    let _watchdog = watchdog();
    run(|| {
        let (near, far) = tcp_pair();
        far.shutdown(Shutdown::Write).unwrap();
        assert_eq!((&near).read(&mut [0]).unwrap(), 0);
        assert_eq!((&near).read(&mut [0]).unwrap(), 0);
        let sending = spawn_local(move || (&near).write_all(&[7; 8 << 20]));
        let mut all = Vec::new();
        (&far).read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 8 << 20);
        sending.join().unwrap().unwrap();
    });
}

/// Ends a connection by a reset.
fn reset(stream: TcpStream) {
    stream.set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

// contract: I1
// contract: I4
#[test]
fn a_reset_in_the_middle() {
    let _watchdog = watchdog();
    run(|| {
        // Of a body that is read.
        let (near, far) = tcp_pair();
        let reading = spawn_local(move || {
            let mut body = Vec::new();
            let result = (&near).take(1_000).read_to_end(&mut body);
            (body.len(), result.unwrap_err().kind())
        });
        (&far).write_all(&[1; 300]).unwrap();
        yield_now().unwrap();
        reset(far);
        assert_eq!(reading.join().unwrap(), (300, ErrorKind::ConnectionReset));
        // Of one that is written, while the answer is waited for.
        let (near, far) = tcp_pair();
        let near = Rc::new(near);
        let writer = near.clone();
        let writing = spawn_local(move || (&*writer).write_all(&vec![2; 64 << 20]).unwrap_err());
        let reading = spawn_local(move || (&*near).read(&mut [0]).map_err(|error| error.kind()));
        (&far).read_exact(&mut [0; 5_000]).unwrap();
        assert!(!writing.is_finished() && !reading.is_finished());
        reset(far);
        let gone = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        assert!(gone.contains(&writing.join().unwrap().kind()));
        // The kernel tells one of them that it was a reset, and the other that it is over.
        let read = reading.join().unwrap();
        assert!(
            matches!(read, Ok(0) | Err(ErrorKind::ConnectionReset)),
            "{read:?}"
        );
        // Of one that is copied on.
        let ((near, far), (to, _to)) = (tcp_pair(), tcp_pair());
        let copying = spawn_local(move || sinew::io::copy(&mut &near, &mut &to));
        (&far).write_all(&[3; 100]).unwrap();
        assert_eq!(read_byte(&_to).unwrap(), 3);
        reset(far);
        let error = copying.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    });
}

// contract: I1
// contract: I3
#[test]
fn a_peer_that_reads_byte_by_byte() {
    let _watchdog = watchdog();
    const BYTES: usize = 40_000;
    run(|| {
        let (near, far) = UnixStream::pair().unwrap();
        for end in [near.as_fd(), far.as_fd()] {
            socket2::SockRef::from(&end)
                .set_send_buffer_size(1)
                .unwrap();
        }
        let turns = Rc::new(std::cell::Cell::new(0));
        let counted = turns.clone();
        let running = spawn_local(move || {
            while yield_now().is_ok() {
                counted.set(counted.get() + 1);
            }
        });
        let bytes: Vec<u8> = (0..BYTES).map(|n| (n % 251) as u8).collect();
        let sent = bytes.clone();
        let writing = spawn_local(move || (&near).write_all(&sent));
        for &byte in &bytes {
            assert_eq!(read_byte(&far).unwrap(), byte);
            yield_now().unwrap();
        }
        writing.join().unwrap().unwrap();
        assert_eq!((&far).read(&mut [0]).unwrap(), 0);
        assert!(turns.get() > BYTES / 2, "others run: {} turns", turns.get());
        running.cancel("enough");
        running.join().unwrap();
    });
}

// contract: I1
// contract: I11
#[test]
fn a_write_that_times_out_tells_how_much_went_out() {
    let _watchdog = watchdog();
    let test = || {
        let (near, far) = tcp_pair();
        near.set_write_timeout(Some(Duration::from_millis(2)))
            .unwrap();
        let (mut told, mut timeouts, mut arrived) = (0_usize, 0, 0_usize);
        let mut part = vec![0; 300_000];
        // A peer that reads a part each time that the writer has given up.
        while timeouts < 20 {
            match (&near).write(&[5; 1 << 20]) {
                Ok(len) => told += len,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::TimedOut);
                    timeouts += 1;
                    arrived += (&far).read(&mut part).unwrap();
                }
            }
        }
        drop(near);
        loop {
            match (&far).read(&mut part).unwrap() {
                0 => break,
                len => arrived += len,
            }
        }
        assert_eq!(arrived, told);
    };
    run(test);
    test();
}
