//! Descriptor numbers that are closed and given out anew while someone waits: nobody gets another's readiness or bytes.
//!
//! Each test has a number of its own, far above those that the kernel gives out here by itself.

mod io_rig;

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::mem::forget;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use io_rig::{bare, place_at, stress, tcp_pair, unix_pair, watchdog};
use sinew::io::{Interest, read, ready, write};
use sinew::net::UnixStream;
use sinew::{go_local, run, spawn_local, yield_now};

/// Rounds of a stress test.
fn rounds() -> usize {
    2_000 * stress()
}

fn read_one(number: i32) -> io::Result<u8> {
    let mut byte = [0];
    match read(bare(number), &mut byte, None)? {
        1 => Ok(byte[0]),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

fn is_closed<T>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::NotConnected)
}

/// Puts a fresh socket at `number`, behind the runtime's back, and returns its peer.
fn replace(number: i32) -> OwnedFd {
    let (here, there) = unix_pair();
    forget(place_at(here, number));
    there
}

// contract: I4
#[test]
fn a_closed_number_given_out_anew() {
    let _watchdog = watchdog();
    run(|| {
        for _ in 0..rounds() {
            let (a, old_peer) = unix_pair();
            let a = place_at(a, 910);
            let first = spawn_local(|| read_one(910));
            yield_now().unwrap();
            sinew::io::close(a).unwrap();
            let peer = replace(910);
            let second = spawn_local(|| read_one(910));
            // The peer of the closed one is gone.
            assert!(write(&old_peer, b"o", None).is_err());
            yield_now().unwrap();
            write(&peer, b"n", None).unwrap();
            assert!(is_closed(first.join().unwrap()));
            assert_eq!(second.join().unwrap().unwrap(), b'n');
        }
    });
}

// contract: I4
// The event of the old descriptor has come and its waiter is on the way, when the number is closed and means another.
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn a_waiter_that_was_woken_before_the_close() {
    let _watchdog = watchdog();
    run(|| {
        let (gate, opener) = unix_pair();
        let mut closed = 0;
        for _ in 0..rounds() {
            let (a, old_peer) = unix_pair();
            let a = place_at(a, 911);
            let gate = gate.as_fd().as_raw_fd();
            let closer = spawn_local(move || {
                read_one(gate).unwrap();
                sinew::io::close(a).unwrap();
                let peer = replace(911);
                write(&peer, b"n", None).unwrap();
                peer
            });
            let first = spawn_local(|| read_one(911));
            yield_now().unwrap();
            // Both events are in one look at the kernel, the closer's first. (Unless a close in another test has had this scheduler
            // ask the kernel anew for the gate, which puts its event last.)
            write(&opener, b"g", None).unwrap();
            write(&old_peer, b"o", None).unwrap();
            let peer = closer.join().unwrap();
            match first.join().unwrap() {
                Ok(byte) => assert_eq!(byte, b'o', "the new descriptor's byte"),
                ended => closed += usize::from(is_closed(ended)),
            }
            assert_eq!(read_one(911).unwrap(), b'n');
            drop(peer);
        }
        assert!(closed > 0, "the waiter always came first");
    });
}

// contract: I4
// A duplicate keeps the old file, and with it the kernel's registration, alive.
#[test]
fn a_replaced_number_whose_old_file_lives_on() {
    let _watchdog = watchdog();
    run(|| {
        for _ in 0..rounds() {
            let (a, old_peer) = unix_pair();
            let duplicate = a.try_clone().unwrap();
            forget(place_at(a, 912));
            let first = spawn_local(|| read_one(912));
            yield_now().unwrap();
            let peer = replace(912);
            let sent = Rc::new(Cell::new(false));
            let seen = sent.clone();
            let second = spawn_local(move || {
                ready(bare(912), Interest::Read, None)?;
                assert!(seen.get(), "woken by another descriptor's event");
                read_one(912)
            });
            yield_now().unwrap();
            write(&old_peer, b"o", None).unwrap();
            for _ in 0..3 {
                yield_now().unwrap();
                sinew::sleep(Duration::ZERO).unwrap();
            }
            assert!(first.is_finished(), "a wait for what is closed goes on");
            sent.set(true);
            write(&peer, b"n", None).unwrap();
            assert!(is_closed(first.join().unwrap()));
            assert_eq!(second.join().unwrap().unwrap(), b'n');
            drop(duplicate);
        }
    });
}

// contract: I4
// The old file comes back to its number, where the kernel remembers it, while someone waits for the one between.
#[test]
fn a_number_that_gets_its_old_file_back() {
    let _watchdog = watchdog();
    run(|| {
        for _ in 0..rounds() {
            let (a, old_peer) = unix_pair();
            let duplicate = a.try_clone().unwrap();
            forget(place_at(a, 913));
            let first = spawn_local(|| read_one(913));
            yield_now().unwrap();
            let between = replace(913);
            let second = spawn_local(|| read_one(913));
            yield_now().unwrap();
            forget(place_at(duplicate, 913));
            let third = spawn_local(|| read_one(913));
            yield_now().unwrap();
            write(&old_peer, b"o", None).unwrap();
            assert!(is_closed(first.join().unwrap()));
            assert!(is_closed(second.join().unwrap()));
            assert_eq!(third.join().unwrap().unwrap(), b'o');
            drop(between);
        }
    });
}

// contract: I4
// Sockets of the runtime's own types, dropped and made anew, some of them duplicated.
#[test]
fn dropped_sockets_and_their_successors() {
    let _watchdog = watchdog();
    run(|| {
        let mut kept = Vec::new();
        for round in 0..rounds() {
            let (mut a, mut b) = UnixStream::pair().unwrap();
            if round % 3 == 0 {
                kept.push((a.try_clone().unwrap(), b.try_clone().unwrap()));
            }
            let byte = round as u8;
            let reading = spawn_local(move || {
                let mut got = [0];
                a.read_exact(&mut got).unwrap();
                (got[0], a)
            });
            yield_now().unwrap();
            b.write_all(&[byte]).unwrap();
            let (got, mut a) = reading.join().unwrap();
            assert_eq!(got, byte);
            if round % 5 == 0 {
                a.set_read_timeout(Some(Duration::from_nanos(1))).unwrap();
                let error = a.read(&mut [0]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::TimedOut);
            }
            if kept.len() > 16 {
                let (a, mut b) = kept.remove(round % 16);
                // The first of the pair is gone; its duplicate is as good.
                b.write_all(b"d").unwrap();
                assert_eq!(io_rig::read_byte(&a).unwrap(), b'd');
            }
        }
    });
}

// contract: I4
// A socket that was watched here is dropped on another thread, which cannot tell this thread's scheduler.
#[test]
fn sockets_dropped_on_another_thread() {
    let _watchdog = watchdog();
    let (to_thread, from_here) =
        std::sync::mpsc::channel::<(UnixStream, std::sync::mpsc::Sender<()>)>();
    let dropper = std::thread::spawn(move || {
        for (stream, done) in from_here {
            drop(stream);
            done.send(()).unwrap();
        }
    });
    run(|| {
        for round in 0..rounds() {
            let (a, b) = UnixStream::pair().unwrap();
            let duplicate = (round % 2 == 0).then(|| a.try_clone().unwrap());
            a.set_read_timeout(Some(Duration::from_nanos(1))).unwrap();
            assert!((&a).read(&mut [0]).is_err());
            let (done, dropped) = std::sync::mpsc::channel();
            to_thread.send((a, done)).unwrap();
            dropped.recv().unwrap();
            let (c, mut d) = UnixStream::pair().unwrap();
            let reading = spawn_local(move || io_rig::read_byte(&c));
            yield_now().unwrap();
            d.write_all(b"n").unwrap();
            assert_eq!(reading.join().unwrap().unwrap(), b'n');
            drop((b, duplicate));
        }
    });
    drop(to_thread);
    dropper.join().unwrap();
}

// contract: I3
// contract: I4
// Waiting for a socket by its bare number does not end the waits of the socket, nor the other way round.
#[test]
fn a_socket_and_its_bare_number_at_the_same_time() {
    let _watchdog = watchdog();
    run(|| {
        for socket_first in [true, false] {
            let (a, b) = tcp_pair();
            let a = Rc::new(a);
            let (one, two) = (a.clone(), a.clone());
            let by_socket = move || spawn_local(move || io_rig::read_byte(&*one).map(drop));
            let by_number = move || spawn_local(move || ready(&*two, Interest::Read, None));
            let waits = if socket_first {
                [by_socket(), {
                    yield_now().unwrap();
                    by_number()
                }]
            } else {
                [by_number(), {
                    yield_now().unwrap();
                    by_socket()
                }]
            };
            yield_now().unwrap();
            // A third, which ends at once, and whose registration is shared too.
            ready(&*a, Interest::Write, None).unwrap();
            assert!(waits.iter().all(|wait| !wait.is_finished()));
            (&b).write_all(b"x").unwrap();
            for wait in waits {
                wait.join().unwrap().unwrap();
            }
        }
    });
}

// contract: I4
#[test]
fn dropping_a_socket_ends_the_waits_for_its_bare_number() {
    let _watchdog = watchdog();
    run(|| {
        for taken_out in [false, true] {
            let (a, _b) = UnixStream::pair().unwrap();
            let number = a.as_raw_fd();
            a.set_read_timeout(Some(Duration::from_nanos(1))).unwrap();
            assert!((&a).read(&mut [0]).is_err());
            let waiting = spawn_local(move || ready(bare(number), Interest::Read, None));
            yield_now().unwrap();
            // Open as before, but no longer the socket's.
            let fd = taken_out.then(|| a.try_clone().unwrap());
            drop(a);
            assert!(is_closed(waiting.join().unwrap()));
            drop(fd);
        }
    });
}

// contract: I4
// After the socket is gone its number is free for bare use, and comes back to a socket.
#[test]
fn a_descriptor_changes_hands() {
    let _watchdog = watchdog();
    run(|| {
        let (a, b) = UnixStream::pair().unwrap();
        a.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        assert!((&a).read(&mut [0]).is_err());
        let fd = OwnedFd::from(a);
        (&b).write_all(b"12").unwrap();
        assert_eq!(read_one(fd.as_raw_fd()).unwrap(), b'1');
        let waiting_for = fd.as_raw_fd();
        assert!(read(bare(waiting_for), &mut [0; 0], None).is_ok());
        let a = UnixStream::from(fd);
        assert_eq!(io_rig::read_byte(&a).unwrap(), b'2');
        go_local(move || (&b).write_all(b"3").unwrap());
        assert_eq!(io_rig::read_byte(&a).unwrap(), b'3');
    });
}
