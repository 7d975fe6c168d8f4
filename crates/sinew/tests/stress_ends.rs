//! Ends that meet wakes, cancels, joins and drops on other threads.
//!
//! `SINEW_STRESS` multiplies the rounds.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use sinew::inspect::for_each;
use sinew::sync::{Mutex, channel};
use sinew::{
    Builder, CancelToken, JoinHandle, Unparker, current, park_timeout, run, sleep, spawn_local,
    yield_now,
};

fn rounds(number: usize) -> usize {
    let factor = std::env::var("SINEW_STRESS").map_or(1, |text| match text.as_str() {
        "full" => 100,
        text => text
            .parse()
            .unwrap_or_else(|_| panic!("SINEW_STRESS={text} is not a number")),
    });
    number * factor
}

/// Counts how often it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// What another thread does with a handle while its coroutine ends.
fn meddle(round: usize, handle: JoinHandle<Counted>) {
    match round % 7 {
        0 => drop(handle),
        1 => drop(handle.join()),
        2 => {
            handle.cancel("enough");
            drop(handle);
        }
        3 => {
            handle.unparker().unpark();
            drop(handle.join_timeout(Duration::from_micros(1)));
        }
        4 => {
            let token = handle.cancel_token();
            let told = token.on_cancel(|_| ());
            drop(handle);
            token.cancel("enough");
            drop(told);
        }
        5 => {
            let _ended = handle.wait_timeout(Duration::from_nanos(1));
            for_each(|info| {
                std::hint::black_box(info.name.is_some());
            });
            drop(handle.join());
        }
        _ => {
            let unparker = handle.unparker();
            drop(handle);
            unparker.unpark();
        }
    }
}

#[test]
fn handles_that_go_to_another_thread_as_their_coroutines_end() {
    let made = rounds(30_000);
    let dropped = Arc::new(AtomicUsize::new(0));
    let (give, take) = mpsc::sync_channel::<JoinHandle<Counted>>(64);
    let meddler = thread::spawn(move || {
        for (round, handle) in take.into_iter().enumerate() {
            meddle(round, handle);
        }
    });
    let count = Arc::clone(&dropped);
    let root = CancelToken::new();
    run(move || {
        for round in 0..made {
            let value = Counted(Arc::clone(&count));
            let body = move || {
                match round % 4 {
                    0 => {}
                    1 => drop(yield_now()),
                    2 => drop(park_timeout(Duration::from_micros(20))),
                    _ => drop(sleep(Duration::from_micros(10))),
                }
                value
            };
            let handle = if round % 3 == 0 {
                let builder = Builder::new().name("child").cancel_parent(&root);
                builder.spawn_local(body).unwrap()
            } else {
                spawn_local(body)
            };
            if round % 2 == 0 {
                yield_now().unwrap();
            }
            give.send(handle).unwrap();
            if round % 64 == 0 {
                sleep(Duration::from_micros(50)).unwrap();
            }
        }
    });
    meddler.join().unwrap();
    assert_eq!(dropped.load(Relaxed), made);
}

#[test]
fn schedulers_come_and_go_under_late_wakes_and_cancels() {
    let (give, take) = mpsc::channel::<(Unparker, CancelToken)>();
    let waker = thread::spawn(move || {
        let mut late = Vec::new();
        for (unparker, token) in take {
            unparker.unpark();
            late.push((unparker, token));
            if late.len() == 16 {
                for (unparker, token) in late.drain(..) {
                    token.cancel("late");
                    unparker.unpark();
                }
            }
        }
    });
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let give = give.clone();
            thread::spawn(move || {
                for _ in 0..rounds(600) {
                    run(|| {
                        for _ in 0..4 {
                            let give = give.clone();
                            spawn_local(move || {
                                let me = current().unwrap();
                                give.send((me.unparker(), me.cancel_token())).unwrap();
                                let _woken = park_timeout(Duration::from_micros(100));
                            });
                        }
                    });
                }
            })
        })
        .collect();
    drop(give);
    for thread in threads {
        thread.join().unwrap();
    }
    waker.join().unwrap();
}

#[test]
fn a_wake_a_cancel_and_a_deadline_at_the_same_moment() {
    let lock = Arc::new(Mutex::new(0_usize));
    let taken = Arc::new(AtomicUsize::new(0));
    let sent = Arc::new(AtomicUsize::new(0));
    let received = Arc::new(AtomicUsize::new(0));
    let (tx, rx) = channel::rendezvous::<usize>();
    let threads: Vec<_> = (0..3_usize)
        .map(|number| {
            let (lock, taken) = (Arc::clone(&lock), Arc::clone(&taken));
            let (sent, received) = (Arc::clone(&sent), Arc::clone(&received));
            let (tx, rx) = (tx.clone(), rx.clone());
            thread::spawn(move || {
                run(move || {
                    for round in 0..rounds(2_000) {
                        let wait = Duration::from_nanos((round as u64 * 7919) % 40_000);
                        let a = {
                            let (lock, taken) = (Arc::clone(&lock), Arc::clone(&taken));
                            spawn_local(move || {
                                if let Ok(mut guard) = lock.lock_timeout(wait) {
                                    *guard += 1;
                                    taken.fetch_add(1, Relaxed);
                                    let _turn = yield_now();
                                }
                            })
                        };
                        let b = {
                            let (tx, sent) = (tx.clone(), Arc::clone(&sent));
                            spawn_local(move || {
                                if tx.send_timeout(1, wait).is_ok() {
                                    sent.fetch_add(1, Relaxed);
                                }
                            })
                        };
                        let c = {
                            let (rx, received) = (rx.clone(), Arc::clone(&received));
                            spawn_local(move || {
                                if let Ok(value) = rx.recv_timeout(wait) {
                                    received.fetch_add(value, Relaxed);
                                }
                            })
                        };
                        let _slept = sleep(wait);
                        if (round + number) % 2 == 0 {
                            a.cancel("now");
                            b.cancel("now");
                            c.cancel("now");
                        }
                        for handle in [a, b, c] {
                            let _ended = handle.join();
                        }
                    }
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*lock.lock().unwrap(), taken.load(Relaxed));
    assert_eq!(sent.load(Relaxed), received.load(Relaxed));
}

#[test]
fn one_teardown_does_not_touch_the_neighbours_that_use_blocks_again() {
    let (give, take) = mpsc::channel::<JoinHandle<()>>();
    // Drops handles on a plain thread, so that blocks go back to the common list.
    let dropper = thread::spawn(move || take.into_iter().for_each(drop));
    let neighbour = thread::spawn(|| {
        for _ in 0..rounds(300) {
            run(|| {
                let handles: Vec<_> = (0..64).map(|n| spawn_local(move || n)).collect();
                for (n, handle) in handles.into_iter().enumerate() {
                    assert_eq!(handle.join().unwrap(), n);
                }
            });
        }
    });
    for _ in 0..rounds(150) {
        let give = give.clone();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            run(move || {
                for n in 0..64 {
                    let handle = spawn_local(move || {
                        if n % 2 == 0 {
                            let _refused = sleep(Duration::from_secs(3600));
                        }
                    });
                    give.send(handle).unwrap();
                }
                yield_now().unwrap();
                panic_any(5_u8);
            })
        }));
        assert_eq!(ended.unwrap_err().downcast_ref(), Some(&5_u8));
    }
    drop(give);
    neighbour.join().unwrap();
    dropper.join().unwrap();
}
