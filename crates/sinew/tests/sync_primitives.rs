//! The locks, semaphores, barriers and cells of `sync`: their surface, their misuse, and what the raw ones in `sinew-core` know
//! nothing of: forced unwinds, places where nothing may wait, deadlocks.

mod io_rig;

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use io_rig::watchdog;
use sinew::coroutine::{Coroutine, Suspender, anchor, cleanup};
use sinew::sync::{
    Barrier, Condvar, InitError, LazyLock, Mutex, Once, OnceCell, RwLock, RwLockWriteGuard,
    Semaphore, SpinLock,
};
use sinew::{
    Error, ErrorKind, Scheduler, WaitError, current, go_local, park, run, spawn_local, yield_now,
};

const MOMENT: Duration = Duration::from_millis(1);

/// The text of the panic of `f`.
fn panic_of<R>(f: impl FnOnce() -> R) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else {
        panic!("it did not panic");
    };
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a text")).to_owned(),
    }
}

// contract: Y4
#[test]
fn permits_are_counted_split_merged_and_forgotten() {
    static SEMAPHORE: Semaphore = Semaphore::new(5);
    let mut permits = SEMAPHORE.acquire_many(4).unwrap();
    assert_eq!((permits.count(), SEMAPHORE.value()), (4, 1));
    assert!(SEMAPHORE.try_acquire_many(2).is_none());
    let two = permits.split(2).unwrap();
    assert!(permits.split(3).is_none());
    assert_eq!((permits.count(), two.count()), (2, 2));
    drop(two);
    assert_eq!(SEMAPHORE.value(), 3);
    permits.merge(SEMAPHORE.acquire().unwrap());
    assert_eq!(permits.count(), 3);
    permits.forget();
    assert_eq!(SEMAPHORE.value(), 2);
    SEMAPHORE.up_many(3);
    // One can be given back on another thread.
    let permit = SEMAPHORE.acquire().unwrap();
    thread::spawn(move || drop(permit)).join().unwrap();
    assert_eq!(SEMAPHORE.value(), 5);
    assert_eq!(
        format!("{SEMAPHORE:?}"),
        "Semaphore { value: 5, is_closed: false }"
    );
    assert!(SEMAPHORE.acquire_many(0).is_ok());
}

// contract: Y4
#[test]
fn misuse_of_a_semaphore_panics_and_changes_nothing() {
    let full = Semaphore::new(usize::MAX);
    assert!(panic_of(|| full.up()).contains("overflows"));
    assert_eq!(full.value(), usize::MAX);
    let permit = full.acquire().unwrap();
    full.up();
    assert!(panic_of(|| drop(permit)).contains("overflows"));
    let (one, other) = (Semaphore::new(1), Semaphore::new(1));
    let mut permit = one.acquire().unwrap();
    let strange = other.acquire().unwrap();
    assert!(panic_of(|| permit.merge(strange)).contains("two semaphores"));
    assert_eq!((other.value(), permit.count()), (1, 1));
}

/// A `down` that finds a permit lets nobody else run; one that waits is served in its turn.
// contract: Y4
#[test]
fn only_a_down_that_waits_switches_and_waiters_are_served_in_order() {
    let semaphore = Rc::new(Semaphore::new(1_000));
    let order = Rc::new(RefCell::new(Vec::new()));
    run(|| {
        let ran = Rc::new(Cell::new(false));
        let witness = ran.clone();
        go_local(move || witness.set(true));
        for _ in 0..1_000 {
            semaphore.down().unwrap();
        }
        assert!(!ran.get(), "it switched");
        for number in 0..10 {
            let (semaphore, order) = (semaphore.clone(), order.clone());
            go_local(move || {
                semaphore.down().unwrap();
                order.borrow_mut().push(number);
            });
            // It comes, before the next one is there.
            yield_now().unwrap();
        }
        assert!(ran.get());
        for _ in 0..10 {
            semaphore.up();
            assert_eq!(semaphore.value(), 0, "handed over at once");
            yield_now().unwrap();
        }
        assert!(!semaphore.try_down());
    });
    assert_eq!(*order.borrow(), (0..10).collect::<Vec<_>>());
}

// contract: Y4
#[test]
fn a_closed_semaphore_wakes_and_refuses() {
    let semaphore = Rc::new(Semaphore::new(0));
    run(|| {
        let waiting = semaphore.clone();
        let waiter = spawn_local(move || waiting.down());
        yield_now().unwrap();
        assert!(semaphore.close());
        assert!(!semaphore.close() && semaphore.is_closed());
        assert_eq!(waiter.join().unwrap(), Err(WaitError::Closed));
        semaphore.up();
        assert_eq!(semaphore.down(), Err(WaitError::Closed));
        assert!(!semaphore.try_down());
        assert_eq!(semaphore.value(), 1);
    });
}

// contract: Y6
#[test]
fn a_barrier_of_none_panics() {
    assert!(panic_of(|| Barrier::new(0)).contains("at least"));
    let alone = Barrier::new(1);
    assert!(alone.wait().unwrap().is_leader());
    assert!(alone.try_wait().unwrap().is_leader());
}

// contract: Y6
#[test]
fn who_times_out_leaves_the_barrier() {
    let barrier = Rc::new(Barrier::new(3));
    run(|| {
        assert_eq!(barrier.wait_timeout(MOMENT), Err(WaitError::Timeout));
        let party = || {
            let barrier = barrier.clone();
            spawn_local(move || barrier.wait().map(|result| result.is_leader()))
        };
        let (first, second) = (party(), party());
        yield_now().unwrap();
        assert_eq!(format!("{barrier:?}"), "Barrier { parties: 3, arrived: 2 }");
        first.cancel("leave");
        assert_eq!(first.join().unwrap(), Err(WaitError::Cancelled));
        assert!(barrier.try_wait().is_none(), "one is missing");
        let third = party();
        yield_now().unwrap();
        assert!(barrier.wait().unwrap().is_leader());
        assert_eq!(second.join().unwrap(), Ok(false));
        assert_eq!(third.join().unwrap(), Ok(false));
    });
}

// contract: Y2
#[test]
fn a_read_write_lock_hands_out_its_value() {
    let mut lock = RwLock::new(1);
    *lock.write().unwrap() += 1;
    {
        let (one, other) = (lock.read().unwrap(), lock.try_read().unwrap());
        assert_eq!((*one, *other), (2, 2));
        assert!(lock.try_write().is_none());
        assert_eq!(lock.write_timeout(MOMENT).err(), Some(WaitError::Timeout));
        assert_eq!(
            format!("{lock:?} {one:?} {other}"),
            "RwLock { value: 2, .. } 2 2"
        );
    }
    let mut writing = lock.write().unwrap();
    *writing += 1;
    assert!(lock.try_read().is_none());
    assert_eq!(lock.read_timeout(MOMENT).err(), Some(WaitError::Timeout));
    assert_eq!(format!("{lock:?}"), "RwLock { value: <locked>, .. }");
    let reading = RwLockWriteGuard::downgrade(writing);
    assert_eq!((*reading, lock.try_read().as_deref()), (3, Some(&3)));
    drop(reading);
    *lock.get_mut() += 1;
    assert_eq!(lock.into_inner(), 4);
}

/// A writer that panics or gives up leaves the lock as usable as before.
// contract: Y2
#[test]
fn a_read_write_lock_is_not_poisoned() {
    let lock = RwLock::new(0);
    assert!(
        panic_of(|| {
            let _guard = lock.write().unwrap();
            panic!("while writing");
        })
        .contains("while writing")
    );
    assert_eq!(lock.try_write().as_deref(), Some(&0));
}

// contract: Y3
#[test]
fn a_condvar_returns_with_the_lock_held_whatever_ended_the_wait() {
    let shared = Rc::new((Mutex::new(0), Condvar::new()));
    run(|| {
        for end in ["notified", "cancelled", "unwound"] {
            let (waiting, seen) = (shared.clone(), Rc::new(Cell::new(false)));
            let note = seen.clone();
            let waiter = sinew::Builder::new()
                .spawn_local(move || {
                    let (mutex, changed) = &*waiting;
                    let mut guard = mutex.lock().unwrap();
                    let result = catch_unwind(AssertUnwindSafe(|| changed.wait(&mut guard)));
                    note.set(mutex.try_lock().is_none());
                    *guard += 1;
                    drop(guard);
                    match result {
                        Ok(Ok(())) => "notified",
                        Ok(Err(WaitError::Cancelled)) => "cancelled",
                        Ok(Err(other)) => panic!("{other:?}"),
                        Err(_) => "unwound",
                    }
                })
                .unwrap();
            yield_now().unwrap();
            let held = shared.0.try_lock().expect("given back during the wait");
            match end {
                "notified" => assert!(shared.1.notify_one()),
                "cancelled" => waiter.cancel("by hand"),
                _ => sinew::cancel_id_within(waiter.id(), "by hand", Duration::ZERO).unwrap(),
            }
            // It is woken, and cannot return before the lock is free.
            for _ in 0..10 {
                yield_now().unwrap();
            }
            // The grace of nothing is over when a later time has come.
            sinew::sleep(MOMENT).unwrap();
            assert!(!seen.get(), "it returned without the lock");
            drop(held);
            assert_eq!(waiter.join().unwrap(), end);
            assert!(seen.get());
        }
    });
    assert_eq!(*shared.0.try_lock().expect("left free"), 3);
}

// contract: Y3
#[test]
fn a_condition_that_has_come_counts_more_than_a_deadline() {
    let (mutex, changed) = (Mutex::new(true), Condvar::new());
    let mut guard = mutex.lock().unwrap();
    let result = changed.wait_timeout_while(&mut guard, MOMENT, |holds| *holds);
    assert_eq!(result, Err(WaitError::Timeout));
    let mut looks = 0;
    let result = changed.wait_timeout_while(&mut guard, MOMENT, |_| {
        looks += 1;
        looks == 1
    });
    assert_eq!((result, looks), (Ok(()), 2));
    assert!(!changed.notify_one());
    assert_eq!(changed.notify_all(), 0);
}

// contract: Y7
#[test]
fn a_failed_or_panicked_initialiser_leaves_the_cell_empty() {
    let cell = OnceCell::new();
    let failed = cell.get_or_try_init(|| Err("not yet"));
    assert_eq!(failed, Err(InitError::Init("not yet")));
    assert_eq!(
        panic_of(|| cell.get_or_init(|| panic!("not yet"))),
        "not yet"
    );
    assert_eq!(
        (cell.get(), cell.wait_timeout(MOMENT)),
        (None, Err(WaitError::Timeout))
    );
    assert_eq!(cell.get_or_init(|| 7), Ok(&7));
    assert_eq!(cell.get_or_init(|| 8), Ok(&7));
    assert_eq!((cell.set(9), cell.wait()), (Err(9), Ok(&7)));
    let once = Once::new();
    assert_eq!(panic_of(|| once.call_once(|| panic!("not yet"))), "not yet");
    assert!(!once.is_completed());
    assert_eq!(once.call_once(|| ()), Ok(()));
    assert_eq!(once.call_once(|| panic!("done")), Ok(()));
    let error = Error::from(InitError::<&str>::Wait(WaitError::Timeout));
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

// contract: Y7
#[test]
fn a_cell_has_the_surface_of_std_s() {
    let mut cell = OnceCell::from(1);
    *cell.get_mut().unwrap() += 1;
    assert_eq!(
        (cell.clone(), cell.take(), cell.take()),
        (OnceCell::from(2), Some(2), None)
    );
    assert_eq!(cell.set(3), Ok(()));
    assert_eq!(
        format!("{cell:?} {:?}", OnceCell::<u8>::new()),
        "OnceCell(3) OnceCell(<empty>)"
    );
    assert_eq!(cell.into_inner(), Some(3));
}

/// The first fails, by an error, a panic, a cancel or a forced unwind; the second, which waited, succeeds. A third only waits.
// contract: Y7
#[test]
fn the_turn_goes_to_who_has_waited() {
    let _watchdog = watchdog();
    for how in ["error", "panic", "cancel", "force"] {
        let cell = Rc::new(OnceCell::new());
        run(|| {
            let first = {
                let cell = cell.clone();
                spawn_local(move || {
                    let got = cell.get_or_try_init(|| {
                        park()?;
                        assert_ne!(how, "panic", "not yet");
                        Err::<u8, _>(WaitError::Closed)
                    });
                    assert!(got.is_err());
                })
            };
            yield_now().unwrap();
            assert_eq!(cell.try_get_or_init(|| 1), None, "another is at it");
            assert_eq!(cell.set(1), Err(1));
            let second = {
                let cell = cell.clone();
                spawn_local(move || cell.get_or_init(|| 2).copied())
            };
            let third = {
                let cell = cell.clone();
                spawn_local(move || cell.wait().copied())
            };
            yield_now().unwrap();
            match how {
                "error" | "panic" => first.unparker().unpark(),
                "cancel" => first.cancel("by hand"),
                _ => sinew::cancel_id_within(first.id(), "by hand", Duration::ZERO).unwrap(),
            }
            let _ended_as_it_did = first.join().is_ok();
            assert_eq!(second.join().unwrap(), Ok(2));
            assert_eq!(third.join().unwrap(), Ok(2));
        });
    }
}

// contract: Y7
#[test]
fn an_initialiser_that_wants_its_own_cell_is_told_so() {
    let within = |in_coroutine: bool| {
        let cell = OnceCell::new();
        let got = cell.get_or_init(|| {
            assert_eq!(sinew::in_coroutine(), in_coroutine);
            assert_eq!(cell.get_or_init(|| 1), Err(WaitError::Deadlock));
            assert_eq!(cell.wait(), Err(WaitError::Deadlock));
            assert_eq!((cell.try_get_or_init(|| 1), cell.set(1)), (None, Err(1)));
            2
        });
        assert_eq!(got, Ok(&2));
        let once = Once::new();
        let result = once.call_once(|| {
            assert_eq!(once.call_once(|| ()), Err(WaitError::Deadlock));
            assert!(!once.try_call_once(|| ()));
        });
        assert_eq!(result, Ok(()));
    };
    within(false);
    run(|| within(true));
}

// contract: Y7
#[test]
fn a_lazy_lock_is_made_once_and_anew_after_a_panic() {
    static TRIES: Mutex<u32> = Mutex::new(0);
    static LAZY: LazyLock<u32> = LazyLock::new(|| {
        let mut tries = TRIES.lock().unwrap();
        *tries += 1;
        assert!(*tries > 1, "not yet");
        let _cancelled = yield_now().is_err();
        *tries
    });
    static OWN: LazyLock<u32> = LazyLock::new(|| *OWN + 1);
    assert_eq!(format!("{LAZY:?}"), "LazyLock(<not made>)");
    assert!(panic_of(|| *LAZY).contains("not yet"));
    run(|| {
        for _ in 0..3 {
            go_local(|| {
                // A cancel does not end the wait: there would be nothing to go on with.
                current().unwrap().cancel_token().cancel("by hand");
                assert_eq!(*LAZY, 2);
            });
        }
    });
    assert_eq!(*TRIES.lock().unwrap(), 2);
    assert!(panic_of(|| *OWN).contains("wanted by what makes it"));
}

/// What is there can be had in places where nothing may wait; what is not fails with `State`, and nothing is consumed.
fn assert_state() {
    let lock = RwLock::new(());
    let reading = lock.read().unwrap();
    assert_eq!(lock.write().err(), Some(WaitError::State));
    drop(reading);
    let writing = lock.write().unwrap();
    assert_eq!(lock.read().err(), Some(WaitError::State));
    drop(writing);
    let semaphore = Semaphore::new(1);
    assert_eq!(semaphore.down(), Err(WaitError::State));
    assert_eq!(semaphore.acquire().err(), Some(WaitError::State));
    assert_eq!(semaphore.value(), 1, "nothing was consumed");
    assert!(semaphore.try_down());
    let barrier = Barrier::new(2);
    assert_eq!(barrier.wait_timeout(MOMENT), Err(WaitError::State));
    let (mutex, changed) = (Mutex::new(()), Condvar::new());
    let mut guard = mutex.lock().unwrap();
    assert_eq!(changed.wait(&mut guard), Err(WaitError::State));
    assert!(mutex.try_lock().is_none(), "the lock is held");
    let cell = OnceCell::<u8>::new();
    assert_eq!(cell.wait(), Err(WaitError::State));
    assert_eq!(cell.get_or_init(|| 1), Ok(&1));
    assert_eq!(Once::new().wait(), Err(WaitError::State));
}

// contract: Y2, Y3, Y4, Y6, Y7
#[test]
fn where_nothing_may_wait_it_fails_with_state() {
    let ran = Rc::new(Cell::new(0));
    run(|| {
        let counted = ran.clone();
        cleanup::with(
            move || {
                assert_state();
                counted.set(counted.get() + 1);
            },
            || (),
        );
    });
    assert_eq!(ran.get(), 1);
    // In a post, and outside of coroutines on a scheduler's thread.
    let posted = Arc::new(Once::new());
    Scheduler::anchor(|scheduler| {
        assert_state();
        let in_post = posted.clone();
        let post = move || {
            assert_state();
            in_post.call_once(|| ()).unwrap();
        };
        assert!(scheduler.handle().post(post).is_ok());
        assert!(scheduler.run().is_ok());
    });
    assert!(posted.is_completed());
}

// contract: Y8
#[test]
fn a_spin_lock_is_taken_tried_and_released() {
    let mut lock = SpinLock::new(1);
    {
        let mut guard = lock.lock();
        *guard += 1;
        assert!(lock.is_locked() && lock.try_lock().is_none());
        assert_eq!(
            format!("{lock:?} {guard:?} {guard}"),
            "SpinLock { value: <locked>, .. } 2 2"
        );
    }
    assert!(!lock.is_locked());
    assert_eq!(lock.try_lock().as_deref(), Some(&2));
    *lock.get_mut() += 1;
    assert!(
        panic_of(|| {
            let _guard = lock.lock();
            panic!("while held");
        })
        .contains("while held")
    );
    assert_eq!(format!("{lock:?}"), "SpinLock { value: 3, .. }");
    assert_eq!(lock.into_inner(), 3);
}

/// What could suspend panics while a spin lock is held, before it does anything.
// contract: Y8
#[cfg(debug_assertions)]
#[test]
fn suspending_with_a_spin_lock_is_caught() {
    const CAUGHT: &str = "a spin lock is held";
    let lock = SpinLock::new(());
    let (semaphore, mutex) = (Semaphore::new(1), Mutex::new(()));
    run(|| {
        let guard = lock.lock();
        assert!(panic_of(yield_now).contains(CAUGHT));
        assert!(panic_of(park).contains(CAUGHT));
        assert!(panic_of(|| sinew::sleep(MOMENT)).contains(CAUGHT));
        // Also where it would not have to wait this time.
        assert!(panic_of(|| semaphore.down()).contains(CAUGHT));
        assert!(panic_of(|| sinew::scope(|_| ())).contains(CAUGHT));
        drop(mutex.lock().unwrap());
        drop(guard);
        yield_now().unwrap();
        semaphore.down().unwrap();
        // Who ends with one is told, and the next coroutine has nothing to do with it.
        let forgotten = SpinLock::new(());
        let ended = spawn_local(move || std::mem::forget(forgotten.lock())).join();
        let payload = ended.unwrap_err().into_panic();
        assert!(panic_of(|| resume_unwind(payload)).contains(CAUGHT));
        yield_now().unwrap();
    });
    // A plain thread, and a stand-alone coroutine, whose resumer may hold one.
    let guard = lock.lock();
    assert!(panic_of(|| sinew::sleep(MOMENT)).contains(CAUGHT));
    anchor(|a| {
        let own = SpinLock::new(());
        let mut coroutine =
            Coroutine::<(), (), String>::new(a, move |s: &Suspender<(), ()>, ()| {
                s.suspend(()).unwrap();
                let _held = own.lock();
                panic_of(|| s.suspend(()))
            });
        // The first suspend is with one that the resumer holds.
        coroutine.resume(()).unwrap();
        let step = coroutine.resume(()).unwrap();
        assert!(format!("{step:?}").contains(CAUGHT));
    });
    assert!(
        panic_of(|| sinew::sleep(MOMENT)).contains(CAUGHT),
        "it is held still"
    );
    drop(guard);
    assert_eq!(sinew::sleep(Duration::ZERO), Ok(()));
}

/// So does what finds room or a value at once: on a plain thread, in a coroutine, and in one with a limit around it.
// contract: Y8
#[cfg(debug_assertions)]
#[test]
fn a_channel_that_would_not_wait_is_not_used_with_a_spin_lock_either() {
    const CAUGHT: &str = "a spin lock is held";
    let lock = SpinLock::new(());
    let (tx, rx) = sinew::sync::channel::bounded(2);
    let attempt = || {
        tx.send(1).unwrap();
        let guard = lock.lock();
        assert!(panic_of(|| tx.send(2)).contains(CAUGHT));
        assert!(panic_of(|| rx.recv()).contains(CAUGHT));
        drop(guard);
        assert_eq!(rx.recv(), Ok(1));
        assert!(rx.is_empty(), "what was refused was not sent");
    };
    attempt();
    run(|| {
        attempt();
        sinew::timeout(Duration::from_secs(3600), attempt).unwrap();
        attempt();
    });
}

// contract: Y8
#[cfg(debug_assertions)]
#[test]
fn spinning_for_one_s_own_spin_lock_is_caught() {
    let lock = SpinLock::new(());
    let _guard = lock.lock();
    assert!(panic_of(|| drop(lock.lock())).contains("for ever"));
}

/// A writer that wants what another writes, and an initialiser that wants what another initialises.
// contract: Y2, Y7
#[test]
fn deadlocks_of_writers_and_initialisers_are_seen() {
    fn writers() -> [sinew::JoinHandle<()>; 2] {
        let locks = Rc::new([RwLock::new(()), RwLock::new(())]);
        [0, 1].map(|me| {
            let locks = locks.clone();
            spawn_local(move || {
                let _own = locks[me].write().unwrap();
                yield_now().unwrap();
                let other = &locks[1 - me];
                let result = if me == 0 {
                    other.read().map(drop)
                } else {
                    other.write().map(drop)
                };
                let _cancelled = result.is_err();
            })
        })
    }
    fn initialisers() -> [sinew::JoinHandle<()>; 2] {
        let cells = Rc::new([OnceCell::new(), OnceCell::new()]);
        [0, 1].map(|me| {
            let cells = cells.clone();
            spawn_local(move || {
                let own = cells[me].get_or_try_init(|| {
                    yield_now()?;
                    cells[1 - me].get_or_init(|| ()).map(drop)
                });
                let _cancelled = own.is_err();
            })
        })
    }
    let _watchdog = watchdog();
    run(|| {
        for start in [writers, initialisers] {
            let parties = start();
            yield_now().unwrap();
            yield_now().unwrap();
            let cycles = sinew::inspect::deadlocks();
            assert_eq!(cycles.len(), 1, "{cycles:?}");
            let mut members: Vec<_> = cycles[0].members().iter().map(|one| one.id).collect();
            members.sort_unstable();
            assert_eq!(members, [parties[0].id(), parties[1].id()]);
            parties[0].cancel("resolve the deadlock");
            for party in parties {
                party.join().unwrap();
            }
            assert!(sinew::inspect::deadlocks().is_empty());
        }
    });
}
