//! Code at its worst moments: destructors, callbacks and closures that do what they should not, to a scheduler that runs, closes or ends.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use sinew::{
    Scheduler, WaitError, current, exit_all, go_local, in_coroutine, park, run, run_code, scope,
    sleep, spawn_local, try_run, yield_now,
};

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A destructor on a cancelled coroutine's stack spawns, joins, parks, cancels its own and is cancelled again: it comes to its end, and so
/// does everything that it began.
// contract: S20, S2
#[test]
fn a_destructor_spawns_joins_parks_and_cancels() {
    let ended = Rc::new(Cell::new(0));
    let seen = ended.clone();
    run(move || {
        let victim = spawn_local(move || {
            let _guard = OnDrop(move || {
                let count = seen.clone();
                let child = spawn_local(move || count.set(count.get() + 1));
                // Its own wait is refused at once, and the handle with it; the child runs all the same.
                assert_eq!(park(), Err(WaitError::Cancelled));
                current().unwrap().cancel_token().cancel("again");
                let error = child.join().unwrap_err();
                assert_eq!(error.wait_error(), Some(WaitError::Cancelled));
                seen.set(seen.get() + 10);
            });
            park()
        });
        yield_now().unwrap();
        victim.cancel("go");
        assert_eq!(victim.join().unwrap(), Err(WaitError::Cancelled));
    });
    assert_eq!(ended.get(), 11);
}

/// `exit_all` from a destructor, of one that returns and of one that panics: the first code counts, and everybody ends.
// contract: S20
#[test]
fn exit_all_from_destructors() {
    let dropped = Rc::new(Cell::new(0));
    let seen = dropped.clone();
    let code = run_code(move || {
        for _ in 0..100 {
            let seen = seen.clone();
            go_local(move || {
                let _count = OnDrop(|| seen.set(seen.get() + 1));
                let _ = sleep(Duration::from_secs(3600));
            });
        }
        go_local(|| {
            let _exits = OnDrop(|| exit_all(7).unwrap());
        });
        go_local(|| {
            let _exits = OnDrop(|| _ = exit_all(8));
            let _ = yield_now();
        });
        let _ = sleep(Duration::from_secs(3600));
        0
    });
    assert_eq!((code, dropped.get()), (7, 100));
    let ended = catch_unwind(AssertUnwindSafe(|| {
        try_run(|| {
            let _exits = OnDrop(|| _ = exit_all(9));
            panic_any("of the closure");
        })
    }));
    assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"of the closure"));
}

/// Sleeps of no time and of all time: neither comes early nor late, nor is any number of them in another's way.
// contract: S13, S16
#[test]
fn sleeps_of_no_time_and_of_all_time() {
    run(|| {
        let forever: Vec<_> = [
            Duration::MAX,
            Duration::from_nanos(u64::MAX),
            Duration::from_secs(u64::MAX),
        ]
        .into_iter()
        .map(|time| spawn_local(move || sleep(time)))
        .collect();
        for _ in 0..1000 {
            sleep(Duration::ZERO).unwrap();
            sleep(Duration::from_nanos(1)).unwrap();
        }
        assert!(forever.iter().all(|sleeper| !sleeper.is_finished()));
        for sleeper in forever {
            sleeper.cancel("enough");
            assert_eq!(sleeper.join().unwrap(), Err(WaitError::Cancelled));
        }
    });
}

/// A thousand scopes, each in a child of the one before, and the innermost panics: each passes the panic on, and nothing is left.
// contract: A3
#[test]
fn a_thousand_scopes_within_each_other() {
    fn nest(depth: usize, alive: &Cell<usize>) {
        alive.set(alive.get() + 1);
        let _one_less = OnDrop(|| alive.set(alive.get() - 1));
        assert!(depth > 0, "the innermost");
        scope(|s| {
            s.spawn(|| nest(depth - 1, alive));
        });
    }
    let alive = Cell::new(0);
    let ended = catch_unwind(AssertUnwindSafe(|| run(|| nest(1_000, &alive))));
    let message = ended.unwrap_err();
    assert_eq!(message.downcast_ref(), Some(&"the innermost"));
    assert_eq!(alive.get(), 0);
}

/// Threads that cancel a few coroutines over and over while those begin, wait and end: each one ends once.
// contract: S15, E6
#[test]
fn a_storm_of_cancels_and_unparks() {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = ended.clone();
    run(move || {
        for _ in 0..100 {
            let handles: Vec<_> = (0..20)
                .map(|_| {
                    let count = count.clone();
                    spawn_local(move || {
                        while park().is_ok() {}
                        count.fetch_add(1, SeqCst);
                    })
                })
                .collect();
            let targets: Vec<_> = handles
                .iter()
                .map(|handle| (handle.cancel_token(), handle.unparker()))
                .collect();
            let storm = thread::spawn(move || {
                for round in 0..10 {
                    for (token, unparker) in &targets {
                        unparker.unpark();
                        if round % 2 == 1 {
                            token.cancel("storm");
                        }
                    }
                }
            });
            for handle in handles {
                let _never_ran = handle.join();
            }
            storm.join().unwrap();
        }
    });
    assert!(ended.load(SeqCst) <= 2_000);
}

/// Closures that are posted while it closes: each runs once or comes back, also if those before it panic.
// contract: S8, S4
#[test]
fn posts_to_a_scheduler_that_closes() {
    sinew::inspect::on_unhandled(Some(Box::new(|_| {})));
    let (ran, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    Scheduler::anchor(|scheduler| {
        let handle = scheduler.handle();
        let posters = [(); 2].map(|()| {
            let (handle, ran, refused) = (handle.clone(), ran.clone(), refused.clone());
            thread::spawn(move || {
                for round in 0..20_000 {
                    let ran = ran.clone();
                    let post = move || {
                        assert!(!in_coroutine());
                        ran.fetch_add(1, SeqCst);
                        if round % 1_000 == 0 {
                            panic_any("a post");
                        }
                    };
                    if handle.post(post).is_err() {
                        refused.fetch_add(1, SeqCst);
                    }
                }
            })
        });
        for _ in 0..500 {
            let _ = scheduler.step();
        }
        scheduler.close();
        scheduler.run().unwrap();
        for poster in posters {
            poster.join().unwrap();
        }
    });
    assert_eq!(ran.load(SeqCst) + refused.load(SeqCst), 40_000);
}

/// A detached coroutine that returns an error ends nothing by that, unlike one that panics: whether a hook hears of it or nobody does.
// contract: S3
#[test]
fn an_error_that_nobody_joins_ends_nothing() {
    let ended = try_run(|| {
        go_local(|| Err::<(), _>(std::io::Error::other("dropped")));
        yield_now().unwrap();
        5
    });
    assert_eq!(ended.unwrap(), 5);
}

/// Schedulers end with more free blocks than one keeps while others take some, handles free theirs on plain threads, and a listing looks on.
#[test]
fn free_blocks_change_hands_by_the_thousand() {
    /// More than a scheduler keeps, and no whole number of what it gives back at a time.
    const MANY: usize = 67_001;
    let over = Arc::new(AtomicUsize::new(0));
    let workers = [MANY, 2_000, 2_000].map(|many| {
        let over = over.clone();
        thread::spawn(move || {
            for round in 0..3 {
                let kept = run(move || {
                    let handles: Vec<_> = (0..many)
                        .map(|n| spawn_local(move || Box::new(n)))
                        .collect();
                    let mut kept = Vec::new();
                    for (n, handle) in handles.into_iter().enumerate() {
                        if n % 7 == 0 {
                            kept.push((n, handle));
                        } else {
                            assert_eq!(*handle.join().unwrap(), n);
                        }
                    }
                    kept
                });
                for (n, handle) in kept {
                    if n % 2 == 0 {
                        assert_eq!(*handle.join().unwrap(), n, "{round}");
                    }
                }
            }
            over.fetch_add(many, SeqCst);
        })
    });
    while !workers.iter().all(thread::JoinHandle::is_finished) {
        sinew::inspect::for_each(|info| {
            assert!(info.id != 0 && info.name.is_none());
            assert_eq!(info.spawned_at.file(), file!());
        });
        thread::yield_now();
    }
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(over.load(SeqCst), MANY + 4_000);
}
