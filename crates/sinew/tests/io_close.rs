//! A descriptor that is closed on one thread while coroutines of others, and other threads, wait for it.

mod io_rig;

use std::io::{self, ErrorKind};
use std::mem::forget;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use io_rig::{bare, place_at, stress, unix_pair, watchdog};
use sinew::event::Event;
use sinew::inspect::find;
use sinew::io::{close, read, write};
use sinew::{JoinHandle, SchedulerHandle, run, spawn_local};

fn read_one(number: RawFd) -> io::Result<u8> {
    let mut byte = [0];
    match read(bare(number), &mut byte, None)? {
        1 => Ok(byte[0]),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

#[track_caller]
fn expect_closed(result: io::Result<u8>) {
    let error = result.expect_err("a byte of another's");
    assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
}

/// A scheduler on another thread, until it is dropped.
struct Elsewhere(SchedulerHandle, Arc<Event>, Option<thread::JoinHandle<()>>);

impl Elsewhere {
    fn new() -> Self {
        let end = Arc::new(Event::manual());
        let (tell, told) = mpsc::channel();
        let until = end.clone();
        let thread = thread::spawn(move || {
            run(|| {
                tell.send(SchedulerHandle::current().unwrap()).unwrap();
                until.wait().unwrap();
            });
        });
        Self(told.recv().unwrap(), end, Some(thread))
    }

    /// A coroutine there that waits for a byte, and is known to wait.
    fn reader(&self, number: RawFd) -> JoinHandle<io::Result<u8>> {
        let reader = self.0.spawn(move || read_one(number)).unwrap();
        while !reader.is_finished()
            && find(reader.id())
                .and_then(|info| info.wait)
                .is_none_or(|wait| wait.what != "readable")
        {
            thread::yield_now();
        }
        reader
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.1.set();
        drop(self.2.take().unwrap().join());
    }
}

/// Puts a fresh socket at `number`, behind the runtime's back, and returns its peer.
fn replace(number: RawFd) -> OwnedFd {
    let (here, there) = unix_pair();
    forget(place_at(here, number));
    there
}

// contract: I4
#[test]
fn waits_on_all_schedulers_end() {
    let _watchdog = watchdog();
    let others = [Elsewhere::new(), Elsewhere::new()];
    for _ in 0..200 * stress() {
        let (a, _peer) = unix_pair();
        let a = place_at(a, 920);
        let readers: Vec<_> = others.iter().map(|other| other.reader(920)).collect();
        // One closer has a scheduler of its own with a waiter, too.
        run(|| {
            let own = spawn_local(|| read_one(920));
            sinew::yield_now().unwrap();
            close(a).unwrap();
            expect_closed(own.join().unwrap());
        });
        for reader in readers {
            expect_closed(reader.join().unwrap());
        }
    }
}

// contract: I4
#[test]
fn a_number_that_is_given_out_anew_at_once_serves_the_new_one() {
    let _watchdog = watchdog();
    let other = Elsewhere::new();
    for round in 0..1_000 * stress() {
        let (a, old_peer) = unix_pair();
        let a = place_at(a, 921);
        let first = other.reader(921);
        close(a).unwrap();
        let peer = replace(921);
        // It may be registered over there before that scheduler has heard of the close, or after.
        let second = other.0.spawn(|| read_one(921)).unwrap();
        // The kernel may be looking at the old one over there, and keeps it for that moment.
        while write(&old_peer, b"o", None).is_ok() {
            std::thread::yield_now();
        }
        if round % 2 == 0 {
            expect_closed(first.join().unwrap());
            write(&peer, b"n", None).unwrap();
        } else {
            write(&peer, b"n", None).unwrap();
            expect_closed(first.join().unwrap());
        }
        assert_eq!(second.join().unwrap().unwrap(), b'n');
    }
}

// contract: I4
#[test]
fn a_duplicate_that_keeps_the_file_open_keeps_no_wait() {
    let _watchdog = watchdog();
    let other = Elsewhere::new();
    for _ in 0..500 * stress() {
        let (a, old_peer) = unix_pair();
        let a = place_at(a, 922);
        let duplicate = a.try_clone().unwrap();
        let first = other.reader(922);
        close(a).unwrap();
        expect_closed(first.join().unwrap());
        let peer = replace(922);
        let second = other.reader(922);
        // The kernel still knows the old file under the number.
        write(&old_peer, b"o", None).unwrap();
        thread::yield_now();
        assert!(!second.is_finished());
        write(&peer, b"n", None).unwrap();
        assert_eq!(second.join().unwrap().unwrap(), b'n');
        drop(duplicate);
    }
}

// contract: I4
#[test]
fn a_close_that_races_with_the_beginning_of_a_wait_is_never_missed() {
    let _watchdog = watchdog();
    let other = Elsewhere::new();
    for _ in 0..1_000 * stress() {
        let (a, _peer) = unix_pair();
        let a = place_at(a, 923);
        let both = Arc::new(Barrier::new(2));
        let reader = {
            let both = both.clone();
            other.0.spawn(move || {
                both.wait();
                read_one(923)
            })
        };
        both.wait();
        close(a).unwrap();
        let error = reader.unwrap().join().unwrap().unwrap_err();
        let is_bad = error.raw_os_error() == Some(9) || error.to_string().contains("923");
        assert!(
            error.kind() == ErrorKind::NotConnected || is_bad,
            "{error:?}"
        );
    }
}

// contract: I4, I11
#[test]
fn a_plain_thread_that_waits_is_told_too() {
    let _watchdog = watchdog();
    for round in 0..200 * stress() {
        let (a, old_peer) = unix_pair();
        let number = 924;
        let a = place_at(a, number);
        let duplicate = a.try_clone().unwrap();
        let (begin, begun) = mpsc::channel();
        let waits = thread::spawn(move || {
            begin.send(()).unwrap();
            read_one(number)
        });
        begun.recv().unwrap();
        if round % 2 == 0 {
            // Most likely it waits by then; every moment is a case.
            thread::park_timeout(std::time::Duration::from_micros(300));
        }
        close(a).unwrap();
        let error = waits.join().unwrap().unwrap_err();
        // It may have come too late for a wait.
        let is_bad = error.to_string().contains("924") || error.raw_os_error() == Some(9);
        assert!(
            error.kind() == ErrorKind::NotConnected || is_bad,
            "{error:?}"
        );
        drop((duplicate, old_peer));
    }
}

// contract: I4
#[test]
fn a_socket_that_is_dropped_ends_the_waits_for_its_bare_number() {
    let _watchdog = watchdog();
    let other = Elsewhere::new();
    for _ in 0..200 * stress() {
        let (a, _peer) = unix_pair();
        let socket = sinew::net::UnixStream::from(place_at(a, 926));
        let reader = other.reader(926);
        drop(socket);
        expect_closed(reader.join().unwrap());
        // One whose descriptor is only given back is not closed.
        let (a, peer) = unix_pair();
        let socket = sinew::net::UnixStream::from(place_at(a, 926));
        let reader = other.reader(926);
        let fd = OwnedFd::from(socket);
        write(&peer, b"x", None).unwrap();
        assert_eq!(reader.join().unwrap().unwrap(), b'x');
        close(fd).unwrap();
    }
}

// contract: I4
#[test]
fn a_thread_that_waits_for_a_successor_is_not_disturbed() {
    let _watchdog = watchdog();
    let (a, _old_peer) = unix_pair();
    let a = place_at(a, 925);
    close(a).unwrap();
    let peer = replace(925);
    let waits = thread::spawn(|| read_one(925));
    // Closes of the number that others did before; and of another number.
    for _ in 0..50 {
        let (b, _b_peer) = unix_pair();
        assert_ne!(b.as_raw_fd(), 925);
        close(b).unwrap();
        thread::yield_now();
    }
    assert!(!waits.is_finished());
    write(&peer, b"n", None).unwrap();
    assert_eq!(waits.join().unwrap().unwrap(), b'n');
}
