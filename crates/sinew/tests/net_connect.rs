//! Connecting to one of several addresses.

mod io_rig;

use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use io_rig::{hanging, refusing, watchdog};
use sinew::net::{TcpListener, TcpStream};
use sinew::time::now;
use sinew::{run, spawn_local, yield_now};

/// The stagger between attempts.
const STAGGER: Duration = Duration::from_millis(250);

fn both(f: impl Fn()) {
    let _watchdog = watchdog();
    f();
    run(f);
}

/// How many connects to this address are under way.
fn connects_to(address: SocketAddr) -> usize {
    let port = format!(":{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let remote = |line: &&str| {
        line.split_whitespace()
            .nth(2)
            .is_some_and(|it| it.ends_with(&port))
    };
    // SYN_SENT.
    let under_way = |line: &&str| line.split_whitespace().nth(3) == Some("02");
    table.lines().filter(remote).filter(under_way).count()
}

// contract: I2
// contract: I11
#[test]
fn one_that_does_not_answer_is_overtaken() {
    both(|| {
        let hanging = hanging();
        let before = connects_to(hanging.address);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        let start = now();
        let stream = TcpStream::connect(&[hanging.address, good][..]).unwrap();
        let took = now() - start;
        assert_eq!(stream.peer_addr().unwrap(), good);
        assert!(
            took >= STAGGER,
            "{took:?}: the first was not given its time"
        );
        assert!(took < Duration::from_secs(30), "{took:?}");
        assert_eq!(connects_to(hanging.address), before, "the loser is closed");
    });
}

// contract: I2
// contract: I11
#[test]
fn one_that_refuses_is_passed_at_once() {
    both(|| {
        let (refusing, _socket) = refusing();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        let addresses = [refusing, refusing, refusing, refusing, good];
        let start = now();
        let stream = TcpStream::connect(&addresses[..]).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        assert!(now() - start < 3 * STAGGER, "a refusal is not waited for");
    });
}

// contract: I2
// contract: I11
#[test]
fn a_slow_one_wins_after_the_next_has_failed() {
    both(|| {
        let (refusing, _socket) = refusing();
        let hanging = hanging();
        let (slow, start) = (hanging.address, now());
        let goes_on = Arc::new(());
        let is_over = Arc::clone(&goes_on);
        let making_room = std::thread::spawn(move || {
            while now() < start + 2 * STAGGER {
                std::thread::yield_now();
            }
            // The connect that waits gets in when the kernel tries again.
            hanging.listener.set_nonblocking(true).unwrap();
            while Arc::strong_count(&is_over) > 1 {
                let _gone_at_once = hanging.listener.accept().is_ok();
                std::thread::yield_now();
            }
        });
        let stream = TcpStream::connect(&[slow, refusing][..]).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), slow);
        assert!(now() - start >= 2 * STAGGER);
        drop(goes_on);
        making_room.join().unwrap();
    });
}

// contract: I2
// contract: I11
#[test]
fn if_all_fail_the_last_error_is_told() {
    both(|| {
        let (one, _one) = refusing();
        let (two, _two) = refusing();
        let error = TcpStream::connect(&[one, two][..]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(error.to_string().contains(&two.to_string()), "{error}");
        let error = TcpStream::connect(&[][..]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    });
}

// contract: I2
#[test]
fn a_cancel_gives_all_attempts_up() {
    let _watchdog = watchdog();
    run(|| {
        let hanging = hanging();
        let address = hanging.address;
        let before = connects_to(address);
        let connecting =
            spawn_local(move || TcpStream::connect(&[address, address, address][..]).unwrap_err());
        sinew::sleep(STAGGER + STAGGER / 2).unwrap();
        assert!(connects_to(address) > before, "two are under way");
        connecting.cancel("enough");
        yield_now().unwrap();
        assert!(connecting.is_finished(), "promptly");
        assert!(sinew::is_cancelled(&connecting.join().unwrap()));
        assert_eq!(connects_to(address), before, "none is left");
    });
}

// contract: I2
#[test]
fn a_name_with_two_versions_reaches_a_listener_of_either() {
    let both_versions = ("localhost", 1).to_socket_addrs().unwrap();
    let both_versions = both_versions.map(|address| address.is_ipv6());
    let has_v6 = both_versions.into_iter().any(|is_v6| is_v6);
    let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0))
        .ok()
        .filter(|_| has_v6);
    both(|| {
        let v4 = TcpListener::bind("127.0.0.1:0").unwrap();
        for listener in [Some(&v4), v6.as_ref()].into_iter().flatten() {
            let address = listener.local_addr().unwrap();
            let stream = TcpStream::connect(("localhost", address.port())).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), address);
        }
    });
}
