//! Locks, permits, places and turns under random timeouts and cancels, among coroutines of several schedulers and plain
//! threads: at the end the counts are exact.
//!
//! `SINEW_STRESS` multiplies the rounds; `SINEW_SEED` repeats a run, as far as threads can be repeated.

mod chance_rig;
mod io_rig;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use chance_rig::Chance;
use io_rig::{stress, watchdog};
use sinew::sync::{Barrier, Condvar, Mutex, Once, OnceCell, RwLock, Semaphore, SpinLock};
use sinew::{WaitError, in_coroutine, run, spawn_local, yield_now};

/// Something that is done with a primitive, waiting for at most so long.
type Deed = Arc<dyn Fn(&mut Chance, Option<Duration>) + Send + Sync>;

const COROUTINES: usize = 4;

/// Does the deed again and again in coroutines of two schedulers and in two plain threads, with timeouts, limits and cancels.
fn storm(rounds: usize, deed: &Deed) {
    let _watchdog = watchdog();
    let mut chance = Chance::new();
    let rounds = rounds * stress();
    thread::scope(|scope| {
        for _ in 0..2 {
            let mut on_scheduler = chance.fork();
            let mut on_thread = chance.fork();
            scope.spawn(move || {
                run(|| {
                    for _ in 0..COROUTINES {
                        let (mut chance, deed) = (on_scheduler.fork(), deed.clone());
                        sinew::go_local(move || (0..rounds).for_each(|_| once(&mut chance, &deed)));
                    }
                });
            });
            scope.spawn(move || (0..rounds).for_each(|_| once(&mut on_thread, deed)));
        }
    });
}

fn once(chance: &mut Chance, deed: &Deed) {
    match chance.below(if in_coroutine() { 5 } else { 4 }) {
        0 => deed(chance, None),
        1 => {
            let timeout = chance.moment();
            deed(chance, Some(timeout));
        }
        2 => deed(chance, Some(Duration::ZERO)),
        3 => {
            let limit = chance.moment();
            // Whether it was in time is the deed's to count.
            let _in_time = sinew::timeout(limit, || deed(chance, None)).is_ok();
        }
        _ => {
            let (mut chance_of_child, deed) = (chance.fork(), deed.clone());
            let child = spawn_local(move || deed(&mut chance_of_child, None));
            for _ in 0..chance.below(4) {
                yield_now().unwrap();
            }
            child.cancel("by chance");
            if let Err(error) = child.join() {
                assert!(error.is_cancelled(), "{error:?}");
            }
        }
    }
}

/// Lets others run, if the party may wait.
fn pause(chance: &mut Chance) {
    if chance.below(3) > 0 {
        return;
    }
    if in_coroutine() {
        // A cancel changes nothing about what is held.
        let _cancelled = yield_now().is_err();
    } else {
        thread::yield_now();
    }
}

/// Whether it came through; a failure must be one of those that the storm brings about.
fn came<T>(result: Result<T, WaitError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(WaitError::Timeout | WaitError::Cancelled) => None,
        Err(other) => panic!("{other:?}"),
    }
}

// contract: Y4, Y11
#[test]
fn no_permit_is_lost_or_doubled() {
    const PERMITS: usize = 3;
    let semaphore = Arc::new(Semaphore::new(PERMITS));
    let out = Arc::new(AtomicUsize::new(0));
    let deed: Deed = Arc::new({
        let semaphore = semaphore.clone();
        move |chance, timeout| {
            let number = 1 + chance.below(PERMITS);
            let permit = match timeout {
                Some(timeout) => came(semaphore.acquire_many_timeout(number, timeout)),
                None => came(semaphore.acquire_many(number)),
            };
            let Some(permit) = permit else { return };
            assert!(out.fetch_add(number, SeqCst) + number <= PERMITS, "made up");
            pause(chance);
            out.fetch_sub(number, SeqCst);
            drop(permit);
        }
    });
    storm(2_000, &deed);
    assert_eq!(semaphore.value(), PERMITS);
    assert!(semaphore.try_acquire_many(PERMITS).is_some());
}

// contract: Y2, Y11
#[test]
fn readers_and_writers_count_exactly() {
    let lock = Arc::new(RwLock::new((0_usize, 0_usize)));
    let written = Arc::new(AtomicUsize::new(0));
    let deed: Deed = Arc::new({
        let (lock, written) = (lock.clone(), written.clone());
        move |chance, timeout| {
            if chance.below(2) == 0 {
                let guard = match timeout {
                    Some(timeout) => came(lock.read_timeout(timeout)),
                    None => came(lock.read()),
                };
                let Some(guard) = guard else { return };
                assert_eq!(guard.0, guard.1);
                pause(chance);
                assert_eq!(guard.0, guard.1);
                return;
            }
            let guard = match timeout {
                Some(timeout) => came(lock.write_timeout(timeout)),
                None => came(lock.write()),
            };
            let Some(mut guard) = guard else { return };
            guard.0 += 1;
            pause(chance);
            guard.1 += 1;
            written.fetch_add(1, SeqCst);
            if chance.below(2) == 0 {
                let (before, guard) = (*guard, sinew::sync::RwLockWriteGuard::downgrade(guard));
                pause(chance);
                assert_eq!(*guard, before, "another wrote in between");
            }
        }
    });
    storm(2_000, &deed);
    let total = written.load(SeqCst);
    assert_eq!(*lock.try_write().expect("left free"), (total, total));
}

// contract: Y6, Y11
#[test]
fn places_at_a_barrier_are_exact() {
    const PARTIES: usize = 4;
    let barrier = Arc::new(Barrier::new(PARTIES));
    let (leaders, followers) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let deed: Deed = Arc::new({
        let (barrier, leaders, followers) = (barrier.clone(), leaders.clone(), followers.clone());
        move |_, timeout| {
            // At the end there are not enough to wait for ever.
            let timeout = timeout.unwrap_or(Duration::from_micros(200));
            if let Some(result) = came(barrier.wait_timeout(timeout)) {
                let role = if result.is_leader() {
                    &leaders
                } else {
                    &followers
                };
                role.fetch_add(1, SeqCst);
            }
        }
    });
    storm(1_000, &deed);
    let leaders = leaders.load(SeqCst);
    assert!(leaders > 0, "it was never opened");
    assert_eq!(followers.load(SeqCst), leaders * (PARTIES - 1));
    assert!(barrier.try_wait().is_none(), "somebody is left");
}

// contract: Y7, Y11
#[test]
fn each_cell_is_filled_once_whatever_fails() {
    const CELLS: usize = 200;
    let cells: Arc<Vec<OnceCell<usize>>> = Arc::new((0..CELLS).map(|_| OnceCell::new()).collect());
    let onces: Arc<Vec<Once>> = Arc::new((0..CELLS).map(|_| Once::new()).collect());
    let filled: Arc<Vec<AtomicUsize>> = Arc::new((0..CELLS).map(|_| AtomicUsize::new(0)).collect());
    let called: Arc<Vec<AtomicUsize>> = Arc::new((0..CELLS).map(|_| AtomicUsize::new(0)).collect());
    let deed: Deed = Arc::new({
        let (cells, filled) = (cells.clone(), filled.clone());
        let (onces, called) = (onces.clone(), called.clone());
        move |chance, timeout| {
            let which = chance.below(CELLS);
            if chance.below(2) == 0 {
                let init = || {
                    pause(chance);
                    match chance.below(8) {
                        0 => {
                            filled[which].fetch_add(1, SeqCst);
                            Ok(which)
                        }
                        1 => resume_unwind(Box::new("by chance")),
                        _ => Err("by chance"),
                    }
                };
                // A panic leaves the cell empty as a failure does.
                let _panicked = catch_unwind(AssertUnwindSafe(|| {
                    let got = match timeout {
                        Some(timeout) => cells[which].get_or_try_init_timeout(timeout, init),
                        None => cells[which].get_or_try_init(init),
                    };
                    if let Ok(&value) = got {
                        assert_eq!((value, filled[which].load(SeqCst)), (which, 1));
                    }
                }))
                .is_err();
                return;
            }
            let f = || {
                pause(chance);
                if chance.below(4) > 0 {
                    resume_unwind(Box::new("by chance"));
                }
                called[which].fetch_add(1, SeqCst);
            };
            let _panicked = catch_unwind(AssertUnwindSafe(|| {
                let done = match timeout {
                    Some(timeout) => came(onces[which].call_once_timeout(timeout, f)),
                    None => came(onces[which].call_once(f)),
                };
                if done.is_some() {
                    assert_eq!(called[which].load(SeqCst), 1);
                }
            }))
            .is_err();
        }
    });
    storm(1_000, &deed);
    for which in 0..CELLS {
        let is_filled = cells[which].get().is_some();
        assert_eq!(filled[which].load(SeqCst), usize::from(is_filled));
        let is_done = onces[which].is_completed();
        assert_eq!(called[which].load(SeqCst), usize::from(is_done));
        assert_eq!(
            cells[which].set(which).is_ok(),
            !is_filled,
            "somebody is left at it"
        );
        assert!(onces[which].try_call_once(|| ()), "somebody is left at it");
    }
}

/// Consumers give up at random; every thing that was announced is taken, and the lock is held after each wait.
// contract: Y3, Y11
#[test]
fn every_announced_thing_is_taken() {
    struct Store {
        things: Mutex<usize>,
        announced: Condvar,
        is_over: AtomicBool,
        inside: AtomicUsize,
    }
    fn consume(store: &Store, chance: &mut Chance, timeout: Option<Duration>) -> bool {
        let Ok(mut things) = store.things.lock() else {
            return false;
        };
        let is_over = || store.is_over.load(SeqCst);
        let result = match timeout {
            Some(timeout) => store
                .announced
                .wait_timeout_while(&mut things, timeout, |things| *things == 0 && !is_over()),
            None => store
                .announced
                .wait_while(&mut things, |things| *things == 0 && !is_over()),
        };
        assert_eq!(store.inside.fetch_add(1, SeqCst), 0, "the lock is not held");
        pause(chance);
        let got = came(result).is_some() && *things > 0;
        *things -= usize::from(got);
        store.inside.fetch_sub(1, SeqCst);
        got
    }
    let store = Arc::new(Store {
        things: Mutex::new(0),
        announced: Condvar::new(),
        is_over: AtomicBool::new(false),
        inside: AtomicUsize::new(0),
    });
    let taken = Arc::new(AtomicUsize::new(0));
    let deed: Deed = Arc::new({
        let (store, taken) = (store.clone(), taken.clone());
        move |chance, timeout| {
            taken.fetch_add(usize::from(consume(&store, chance, timeout)), SeqCst);
        }
    });
    let made = thread::scope(|scope| {
        let producer = scope.spawn(|| {
            let mut made = 0;
            while !store.is_over.load(SeqCst) {
                *store.things.lock().unwrap() += 1;
                made += 1;
                store.announced.notify_one();
                // Mostly one at a time, so that notifications count.
                let mut looks = 0;
                while taken.load(SeqCst) < made && looks < 1_000 && !store.is_over.load(SeqCst) {
                    thread::yield_now();
                    looks += 1;
                }
            }
            made
        });
        storm(1_000, &deed);
        store.is_over.store(true, SeqCst);
        producer.join().unwrap()
    });
    let left = *store.things.try_lock().unwrap();
    assert_eq!(taken.load(SeqCst) + left, made, "lost or doubled");
    assert!(!store.announced.notify_one(), "somebody is left");
}

// contract: Y8, Y11
#[test]
fn a_spin_lock_excludes() {
    let lock = Arc::new(SpinLock::new((0_usize, 0_usize)));
    let times = Arc::new(AtomicUsize::new(0));
    let deed: Deed = Arc::new({
        let (lock, times) = (lock.clone(), times.clone());
        move |chance, _| {
            {
                let mut guard = match chance.below(2) {
                    0 => lock.lock(),
                    _ => match lock.try_lock() {
                        Some(guard) => guard,
                        None => return,
                    },
                };
                guard.0 += 1;
                assert_eq!(guard.0, guard.1 + 1);
                guard.1 += 1;
            }
            times.fetch_add(1, SeqCst);
            pause(chance);
        }
    });
    storm(2_000, &deed);
    let times = times.load(SeqCst);
    assert_eq!(*lock.lock(), (times, times));
}
