//! Lost wake-ups, doubled wake-ups, late ones: waits whose wakes cross threads, by the million.
//!
//! `SINEW_STRESS` multiplies the rounds: 100 makes ten million crossings.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use sinew::sync::channel::{bounded, rendezvous};
use sinew::sync::{Mutex, WaitGroup};
use sinew::{WaitError, go_local, park, run, spawn_local};

fn rounds(number: usize) -> usize {
    let factor = std::env::var("SINEW_STRESS").map_or(1, |text| match text.as_str() {
        "full" => 100,
        text => text
            .parse()
            .unwrap_or_else(|_| panic!("SINEW_STRESS={text} is not a number")),
    });
    number * factor
}

// contract: S12, S15, Y11
#[test]
fn a_token_crosses_threads_by_unparks() {
    let rounds = rounds(100_000) / 2;
    let (to_other, from_main) = std::sync::mpsc::channel();
    let (to_main, from_other) = std::sync::mpsc::channel();
    let player = move |send: std::sync::mpsc::Sender<sinew::Unparker>,
                       recv: std::sync::mpsc::Receiver<sinew::Unparker>,
                       first: bool| {
        run(move || {
            send.send(sinew::current().unwrap().unparker()).unwrap();
            let other = recv.recv().unwrap();
            for _ in 0..rounds {
                if first {
                    other.unpark();
                    park().unwrap();
                } else {
                    park().unwrap();
                    other.unpark();
                }
            }
        });
    };
    let thread = std::thread::spawn(move || player(to_main, from_main, false));
    player(to_other, from_other, true);
    thread.join().unwrap();
}

// contract: Y9, Y11
#[test]
fn values_cross_threads_by_rendezvous_and_none_is_lost() {
    let rounds = rounds(50_000);
    let (there, from_main) = rendezvous();
    let (back, from_other) = rendezvous();
    let thread = std::thread::spawn(move || {
        run(move || {
            for n in &from_main {
                back.send(n).unwrap();
            }
        });
    });
    run(move || {
        for n in 0..rounds {
            there.send(n).unwrap();
            assert_eq!(from_other.recv().unwrap(), n);
        }
    });
    thread.join().unwrap();
}

// contract: Y9, Y11
#[test]
fn many_cross_at_once_with_timeouts_near_the_wait() {
    let each = rounds(2_000);
    let (sender, receiver) = bounded::<usize>(4);
    let sent = Arc::new(AtomicUsize::new(0));
    let received = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (sender, sent) = (sender.clone(), sent.clone());
            std::thread::spawn(move || {
                run(move || {
                    for _ in 0..8 {
                        let (sender, sent) = (sender.clone(), sent.clone());
                        go_local(move || {
                            for n in 0..each {
                                let timeout = Duration::from_nanos((n % 50 * 1000) as u64);
                                match sender.send_timeout(1, timeout) {
                                    Ok(()) => drop(sent.fetch_add(1, Relaxed)),
                                    Err(error) => assert_eq!(error.reason, WaitError::Timeout),
                                }
                            }
                        });
                    }
                });
            })
        })
        .chain((0..2).map(|_| {
            let (receiver, received) = (receiver.clone(), received.clone());
            std::thread::spawn(move || {
                run(move || {
                    for _ in 0..8 {
                        let (receiver, received) = (receiver.clone(), received.clone());
                        go_local(move || {
                            loop {
                                match receiver.recv_timeout(Duration::from_micros(20)) {
                                    Ok(n) => drop(received.fetch_add(n, Relaxed)),
                                    Err(WaitError::Timeout) => {}
                                    Err(error) => return assert_eq!(error, WaitError::Closed),
                                }
                            }
                        });
                    }
                });
            })
        }))
        .collect();
    drop((sender, receiver));
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(sent.load(Relaxed), received.load(Relaxed));
}

// contract: Y1, S12
#[test]
fn cancels_and_deadlines_at_random_lose_no_lock() {
    let each = rounds(300);
    let mutex = Arc::new(Mutex::new(0_usize));
    let taken = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..2)
        .map(|seed| {
            let (mutex, taken) = (mutex.clone(), taken.clone());
            std::thread::spawn(move || {
                run(move || {
                    let group = WaitGroup::new();
                    for n in 0..each {
                        let (mutex, taken, group) = (mutex.clone(), taken.clone(), group.clone());
                        group.add(1);
                        let end = group.clone();
                        let handle = spawn_local(move || {
                            let timeout = Duration::from_nanos((n * 37 % 20_000) as u64);
                            if let Ok(mut guard) = mutex.lock_timeout(timeout) {
                                *guard += 1;
                                taken.fetch_add(1, Relaxed);
                                // A cancel may end this early: the lock is held all the same.
                                let _cancelled = sinew::yield_now().is_err();
                            }
                            end.done();
                        });
                        match (n + seed) % 4 {
                            0 => handle.cancel("at random"),
                            1 => {
                                let token = handle.cancel_token();
                                std::thread::spawn(move || token.cancel("from outside"));
                            }
                            _ => {}
                        }
                        if n % 8 == 0 {
                            sinew::yield_now().unwrap();
                        }
                        // A coroutine that was cancelled before it started never counted itself down.
                        if (n + seed) % 4 < 2 {
                            handle.wait().unwrap();
                            if handle.outcome() == Some(sinew::Outcome::Cancelled) {
                                group.done();
                            }
                        }
                    }
                    group.wait().unwrap();
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(
        *mutex.try_lock().expect("nobody holds it"),
        taken.load(Relaxed)
    );
}

// contract: S13, S16
#[test]
fn deadlines_of_nothing_the_past_and_a_moment_always_return() {
    let rounds = rounds(2_000);
    run(|| {
        let (_sender, receiver) = rendezvous::<()>();
        let mutex = Mutex::new(());
        let _held = mutex.lock().unwrap();
        let group = WaitGroup::new();
        group.add(1);
        let endless = spawn_local(park);
        let past = sinew::time::now();
        for round in 0..rounds {
            let timeout = match round % 4 {
                0 => Duration::ZERO,
                1 => Duration::from_nanos(1),
                2 => Duration::from_micros(50),
                _ => Duration::from_micros(3),
            };
            let late = Err(WaitError::Timeout);
            sinew::sleep(timeout).unwrap();
            assert_eq!(sinew::park_timeout(timeout), late);
            assert_eq!(sinew::park_deadline(past), late);
            assert_eq!(receiver.recv_timeout(timeout), late);
            assert_eq!(receiver.recv_deadline(past), late);
            assert!(mutex.lock_timeout(timeout).is_err());
            assert!(mutex.lock_deadline(past).is_err());
            assert_eq!(group.wait_timeout(timeout), late);
            assert_eq!(endless.wait_timeout(timeout), late);
            assert_eq!(endless.wait_deadline(past), late);
        }
        endless.cancel("end");
    });
}
