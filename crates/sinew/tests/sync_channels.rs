//! Channels, mutexes and wait groups between coroutines, schedulers and threads.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use sinew::sync::channel::{TryRecvError, TrySendError, bounded, rendezvous, unbounded};
use sinew::sync::{Mutex, WaitGroup};
use sinew::{WaitError, go_local, run, spawn_local, yield_now};

// contract: Y9
#[test]
fn a_rendezvous_send_returns_when_the_value_was_taken() {
    run(|| {
        let (sender, receiver) = rendezvous();
        let taken = Rc::new(Cell::new(false));
        let seen = taken.clone();
        let send = spawn_local(move || {
            sender.send(7).unwrap();
            assert!(seen.get(), "the send returned before the value was taken");
        });
        for _ in 0..5 {
            yield_now().unwrap();
        }
        assert!(!send.is_finished());
        taken.set(true);
        assert_eq!(receiver.recv().unwrap(), 7);
        send.join().unwrap();
    });
}

// contract: Y9
#[test]
fn closing_wakes_everyone_and_what_was_buffered_is_received() {
    run(|| {
        let (sender, receiver) = bounded(2);
        sender.send(1).unwrap();
        sender.send(2).unwrap();
        let blocked = sender.clone();
        let blocked = spawn_local(move || blocked.send(3).unwrap_err());
        yield_now().unwrap();
        assert_eq!(sender.try_send(4), Err(TrySendError::Full(4)));
        assert!(sender.close());
        let refused = blocked.join().unwrap();
        assert_eq!((refused.value, refused.reason), (3, WaitError::Closed));
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(sender.send(5).unwrap_err().into_inner(), 5);
    });
}

// contract: Y9
#[test]
fn a_cancelled_or_timed_out_send_gives_the_value_back() {
    run(|| {
        let (sender, receiver) = rendezvous::<String>();
        let send = spawn_local(move || sender.send("precious".into()).unwrap_err());
        yield_now().unwrap();
        send.cancel("stop");
        let error = send.join().unwrap();
        assert_eq!(
            (error.value.as_str(), error.reason),
            ("precious", WaitError::Cancelled)
        );
        assert_eq!(receiver.recv(), Err(WaitError::Closed));
        let (sender, receiver) = rendezvous::<u8>();
        let error = sender
            .send_timeout(9, Duration::from_micros(50))
            .unwrap_err();
        assert_eq!((error.value, error.reason), (9, WaitError::Timeout));
        assert_eq!(
            receiver.recv_timeout(Duration::ZERO),
            Err(WaitError::Timeout)
        );
    });
}

// contract: Y9, Y11
#[test]
fn values_cross_schedulers_and_threads() {
    for capacity in [Some(0), Some(3), None] {
        let (sender, receiver) = match capacity {
            Some(capacity) => bounded(capacity),
            None => unbounded(),
        };
        let total = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let sender = sender.clone();
                std::thread::spawn(move || {
                    run(move || {
                        for part in 0..4 {
                            let sender = sender.clone();
                            go_local(move || {
                                for n in 0..500 {
                                    sender.send(part * 500 + n).unwrap();
                                }
                            });
                        }
                    });
                })
            })
            .chain((0..2).map(|_| {
                let (receiver, total) = (receiver.clone(), total.clone());
                std::thread::spawn(move || {
                    for n in &receiver {
                        total.fetch_add(n, Relaxed);
                    }
                })
            }))
            .collect();
        drop((sender, receiver));
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(total.load(Relaxed), 2 * (0..2000).sum::<usize>());
    }
}

// contract: S17
#[test]
fn a_pair_that_never_waits_does_not_starve_the_rest() {
    run(|| {
        let (sender, receiver) = unbounded();
        let stop = Rc::new(Cell::new(false));
        let seen = stop.clone();
        go_local(move || {
            while !seen.get() {
                sender.send(()).unwrap();
                receiver.recv().unwrap();
            }
        });
        let mutex = Rc::new(Mutex::new(()));
        for _ in 0..10 {
            drop(mutex.lock().unwrap());
            yield_now().unwrap();
        }
        stop.set(true);
    });
}

// contract: Y1
#[test]
fn a_mutex_is_held_across_suspends() {
    let total = Rc::new(Mutex::new(0));
    let inside = total.clone();
    run(move || {
        for _ in 0..100 {
            let total = inside.clone();
            go_local(move || {
                let mut total = total.lock().unwrap();
                let before = *total;
                yield_now().unwrap();
                *total = before + 1;
            });
        }
    });
    assert_eq!(*total.lock().unwrap(), 100);
    assert_eq!(Rc::into_inner(total).unwrap().into_inner(), 100);
}

// contract: Y1
#[test]
fn a_lock_wait_ends_with_the_deadline_or_a_cancel() {
    run(|| {
        let mutex = Rc::new(Mutex::new(5));
        let held = mutex.lock().unwrap();
        assert!(mutex.try_lock().is_none());
        assert!(format!("{mutex:?}").contains("locked"));
        let error = mutex.lock_timeout(Duration::from_micros(50)).unwrap_err();
        assert_eq!(error, WaitError::Timeout);
        let error = mutex.lock_deadline(sinew::time::now()).unwrap_err();
        assert_eq!(error, WaitError::Timeout);
        let other = mutex.clone();
        let waiting = spawn_local(move || other.lock().map(|guard| *guard));
        yield_now().unwrap();
        waiting.cancel("stop");
        assert_eq!(waiting.join().unwrap(), Err(WaitError::Cancelled));
        drop(held);
        assert_eq!(*mutex.lock().unwrap(), 5);
    });
}

// contract: Y1, Y11
#[test]
fn a_mutex_excludes_across_schedulers_and_threads() {
    let total = Arc::new(Mutex::new(0_usize));
    let threads: Vec<_> = (0..4)
        .map(|which| {
            let total = total.clone();
            std::thread::spawn(move || {
                let add = move || {
                    for _ in 0..2000 {
                        let mut total = total.lock().unwrap();
                        *total += 1;
                    }
                };
                if which % 2 == 0 { add() } else { run(add) }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*total.lock().unwrap(), 8000);
}

// contract: Y5
#[test]
fn a_wait_group_counts_down_to_its_waiters() {
    run(|| {
        let group = WaitGroup::new();
        group.wait().unwrap();
        group.add(2);
        assert_eq!(
            group.wait_timeout(Duration::from_micros(10)),
            Err(WaitError::Timeout)
        );
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let group = group.clone();
                spawn_local(move || group.wait())
            })
            .collect();
        yield_now().unwrap();
        waiters[0].cancel("stop");
        group.done();
        yield_now().unwrap();
        assert!(!waiters[1].is_finished());
        let other = group.clone();
        std::thread::spawn(move || other.done()).join().unwrap();
        let ends: Vec<_> = waiters
            .into_iter()
            .map(|waiter| waiter.join().unwrap())
            .collect();
        assert_eq!(ends, [Err(WaitError::Cancelled), Ok(()), Ok(())]);
    });
}

// contract: Y5
#[test]
#[should_panic(expected = "called more often than add announced")]
fn a_wait_group_below_zero_is_a_panic_that_says_so() {
    WaitGroup::new().done();
}

// contract: Y9
#[test]
fn a_hundred_thousand_wait_at_a_channel() {
    run(|| {
        let (sender, receiver) = rendezvous();
        let sum = Rc::new(Cell::new(0_usize));
        for _ in 0..100_000 {
            let (receiver, sum) = (receiver.clone(), sum.clone());
            go_local(move || {
                let one = receiver.recv().unwrap();
                sum.set(sum.get() + one);
            });
        }
        yield_now().unwrap();
        for _ in 0..100_000 {
            sender.send(1_usize).unwrap();
        }
        yield_now().unwrap();
        assert_eq!(sum.get(), 100_000);
    });
}
