//! Descriptors that are always ready do not keep anyone from running. Counted in turns, not in time.

mod io_rig;

use std::cell::Cell;
use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

use io_rig::{raise_descriptor_limit, skipped, unix_pair, watchdog};
use sinew::net::UnixStream;
use sinew::{go_local, run, spawn_local, yield_now};

/// How many calls one coroutine may make in a row: the scheduler's budget.
const TURN: usize = 64;
const TICKS: usize = 20;

/// What the greedy ones share.
#[derive(Clone, Default)]
struct Greed {
    calls: Rc<Cell<usize>>,
    stop: Rc<Cell<bool>>,
}

impl Greed {
    fn work(&self, mut call: impl FnMut()) {
        while !self.stop.get() {
            call();
            self.calls.set(self.calls.get() + 1);
        }
    }
}

/// A coroutine that gets its turns, a timer, and bytes from a plain thread, beside `count` greedy ones.
fn others_get_their_turns(greed: &Greed, count: usize) {
    let before = greed.calls.get();
    for _ in 0..TICKS {
        yield_now().unwrap();
    }
    let calls = greed.calls.get() - before;
    assert!(calls > 0, "the greedy ones did nothing");
    // The calls between two turns: everyone's budget, once, and once more for who was in the middle of it.
    let limit = (TICKS + 1) * (count + 1) * (TURN + 1);
    assert!(calls <= limit, "{calls} calls in {TICKS} turns of another");
    sinew::sleep(Duration::from_millis(1)).unwrap();
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || there.write_all(b"x"));
    here.read_exact(&mut [0]).unwrap();
    thread.join().unwrap().unwrap();
    greed.stop.set(true);
}

// contract: S17
#[test]
fn a_thousand_sockets_that_are_always_ready() {
    let _watchdog = watchdog();
    if raise_descriptor_limit() < 4_096 {
        return skipped("a thousand ready sockets", "too few descriptors");
    }
    run(|| {
        let greed = Greed::default();
        for _ in 0..1_000 {
            let greed = greed.clone();
            go_local(move || {
                let (mut a, mut b) = UnixStream::pair().unwrap();
                greed.work(|| {
                    a.write_all(b"x").unwrap();
                    b.read_exact(&mut [0]).unwrap();
                });
            });
        }
        others_get_their_turns(&greed, 1_000);
    });
}

// contract: S17
#[test]
fn one_bare_descriptor_that_is_always_ready() {
    let _watchdog = watchdog();
    run(|| {
        let greed = Greed::default();
        let greedy = greed.clone();
        go_local(move || {
            let (a, b) = unix_pair();
            greedy.work(|| {
                sinew::io::write(&a, b"x", None).unwrap();
                sinew::io::read(&b, &mut [0], None).unwrap();
            });
        });
        others_get_their_turns(&greed, 1);
    });
}

// contract: S17
#[test]
fn a_listener_that_always_fails() {
    let _watchdog = watchdog();
    run(|| {
        let greed = Greed::default();
        let greedy = greed.clone();
        let failing = spawn_local(move || {
            // Not a listener: each accept is an error at once.
            let (a, _b) = unix_pair();
            let listener = sinew::net::TcpListener::from(a);
            greedy.work(|| assert!(listener.accept().is_err()));
        });
        others_get_their_turns(&greed, 1);
        failing.join().unwrap();
    });
}
