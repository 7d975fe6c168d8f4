//! Many connections at the same time.

mod io_rig;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use io_rig::{raise_descriptor_limit, read_byte, skipped, watchdog};
use sinew::net::{TcpListener, TcpStream};
use sinew::{go_local, run, spawn_local, yield_now};

/// Tells a child of this test where to connect.
const ADDRESS: &str = "SINEW_TEST_CROWD_ADDRESS";
const IDLE: usize = 10_000;
/// What a coroutine that waits for a connection may take: 4.6 KiB. Code that is not optimised needs more of its stack.
const IDLE_BYTES_MAX: usize = if cfg!(debug_assertions) {
    16_000
} else {
    4_710
};

/// One test at a time: what one leaves or takes meanwhile counts for the other.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .unwrap();
    kib.parse::<usize>().unwrap() * 1024
}

// contract: I2
#[test]
fn a_thousand_connections_echo() {
    let (_watchdog, _alone) = (watchdog(), alone());
    if raise_descriptor_limit() < 3_000 {
        return skipped("a thousand connections", "too few descriptors");
    }
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        go_local(move || {
            for _ in 0..1_000 {
                let (stream, _) = listener.accept().unwrap();
                go_local(move || {
                    let (mut from, mut to) = stream.split();
                    sinew::io::copy(&mut from, &mut to).unwrap();
                });
            }
        });
        let clients: Vec<_> = (0..1_000_u32)
            .map(|n| {
                spawn_local(move || {
                    let mut stream = TcpStream::connect(address).unwrap();
                    for round in 0..10 {
                        let sent = (n * 10 + round).to_le_bytes();
                        stream.write_all(&sent).unwrap();
                        let mut back = [0; 4];
                        stream.read_exact(&mut back).unwrap();
                        assert_eq!(back, sent);
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
    });
}

// The other side of the test below, in a process of its own for its descriptors. By itself it does nothing.
#[test]
fn crowd_child() {
    let Ok(address) = std::env::var(ADDRESS) else {
        return;
    };
    let address: SocketAddr = address.parse().unwrap();
    raise_descriptor_limit();
    let streams: Vec<_> = (0..IDLE)
        .map(|_| std::net::TcpStream::connect(address).unwrap())
        .collect();
    // Until the parent says so, all are idle; then each says one byte.
    std::io::stdin().read_exact(&mut [0]).unwrap();
    for mut stream in &streams {
        stream.write_all(b"!").unwrap();
    }
    for stream in &streams {
        assert_eq!(read_byte(stream).unwrap(), b'?');
    }
}

// contract: I2
#[test]
fn ten_thousand_idle_connections() {
    let (_watchdog, _alone) = (watchdog(), alone());
    if raise_descriptor_limit() < IDLE as u64 + 3_000 {
        return skipped("ten thousand connections", "too few descriptors");
    }
    run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crowd_child"])
            .env(ADDRESS, address.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let heard = Rc::new(std::cell::Cell::new(0));
        let mut waiting = Vec::with_capacity(IDLE);
        let before = resident_bytes();
        for _ in 0..IDLE {
            let (stream, _) = listener.accept().unwrap();
            let heard = heard.clone();
            waiting.push(spawn_local(move || {
                assert_eq!(read_byte(&stream).unwrap(), b'!');
                heard.set(heard.get() + 1);
                (&stream).write_all(b"?").unwrap();
            }));
        }
        yield_now().unwrap();
        let each = resident_bytes().saturating_sub(before) / IDLE;
        println!("an idle connection has {each} bytes resident");
        assert!(each <= IDLE_BYTES_MAX, "{each} bytes each");
        assert_eq!(heard.get(), 0);
        child.stdin.take().unwrap().write_all(b"g").unwrap();
        for one in waiting {
            one.join().unwrap();
        }
        assert_eq!(heard.get(), IDLE);
        assert!(child.wait().unwrap().success());
    });
}
