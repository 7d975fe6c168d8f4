//! The races of tasks, groups and pools, in both of their orders: each is forced, by a step that the other side waits for.
//!
//! | race | here |
//! |---|---|
//! | completion and cancel | `a_completion_and_a_cancel` |
//! | close and start | `a_close_and_a_start` |
//! | a starter that runs and a cancel of its group | `a_starter_and_a_cancel_of_its_group` |
//! | the last reference and the completion | `the_last_reference_and_the_completion` |
//! | a submit that waits and a close | `a_submit_that_waits_and_a_close` |
//! | a timeout and a free place | `a_timeout_and_a_free_place` |

mod group_rig;
mod pool_rig;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use group_rig::{Counted, counted, rounds, until};
use pool_rig::{Gate, pool};
use sinew::future::{Promise, PromiseState};
use sinew::task::{Outcome, TaskContext, TaskGroup};
use sinew::time::now;
use sinew::{Error, ErrorKind, Scheduler, run, spawn_local, yield_now};

/// Both orders, then as it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    First,
    Second,
    AsItComes,
}

/// Does two things on two threads, in an order.
fn in_order<A: Send, B: Send>(
    order: Order,
    one: impl FnOnce() -> A + Send,
    other: impl FnOnce() -> B + Send,
) -> (A, B) {
    let both = Barrier::new(2);
    thread::scope(|scope| match order {
        Order::First => {
            let done = one();
            (done, scope.spawn(other).join().unwrap())
        }
        Order::Second => {
            let done = scope.spawn(other).join().unwrap();
            (one(), done)
        }
        Order::AsItComes => {
            let other = scope.spawn(|| {
                both.wait();
                other()
            });
            both.wait();
            (one(), other.join().unwrap())
        }
    })
}

fn orders() -> impl Iterator<Item = Order> {
    let raced = std::iter::repeat_n(Order::AsItComes, rounds(50));
    [Order::First, Order::Second].into_iter().chain(raced)
}

// contract: T1, T2
#[test]
fn a_completion_and_a_cancel() {
    for order in orders() {
        let (promise, future) = Promise::new();
        let (value, drops) = counted();
        let theirs = future.clone();
        let (resolved, ()) = in_order(
            order,
            move || promise.resolve(value).is_ok(),
            move || theirs.cancel("now"),
        );
        assert!(resolved, "a wish ends nothing");
        let end = future.end().unwrap();
        assert_eq!(end.state, PromiseState::Resolved);
        match order {
            Order::First => assert!(end.cause.is_none()),
            Order::Second => assert_eq!(&*end.cause.unwrap().reason, "now"),
            Order::AsItComes => {
                // Whichever: it is the same for all who look.
                let again = future.clone().end().unwrap();
                assert_eq!(again.cause.is_some(), end.cause.is_some());
            }
        }
        assert_eq!(drops.load(SeqCst), 0);
        drop(future);
        assert_eq!(drops.load(SeqCst), 1);
    }
}

// contract: T1
#[test]
fn of_two_completions_the_loser_drops_its_value_once() {
    for order in orders() {
        let (promise, future) = Promise::new();
        let rival = promise.clone();
        let drops = Arc::new(AtomicUsize::new(0));
        let (ours, theirs) = (Counted(drops.clone()), Counted(drops.clone()));
        let (one, other) = in_order(
            order,
            move || promise.resolve(ours).is_ok(),
            move || rival.resolve(theirs).is_ok(),
        );
        assert_ne!(one, other);
        match order {
            Order::First => assert!(one),
            Order::Second => assert!(other),
            Order::AsItComes => {}
        }
        assert_eq!(drops.load(SeqCst), 1, "the one that came back");
        drop(future);
        assert_eq!(drops.load(SeqCst), 2);
    }
}

// contract: T4, T5
#[test]
fn a_close_and_a_start() {
    for order in orders() {
        let group = TaskGroup::new();
        let calls = AtomicUsize::new(0);
        let start = || {
            group
                .start(|| {
                    calls.fetch_add(1, SeqCst);
                    let (promise, future) = Promise::new();
                    promise.resolve(1).unwrap();
                    Ok::<_, Error>(future)
                })
                .is_ok()
        };
        let (closed, started) = in_order(order, || group.close(), start);
        assert!(closed);
        match order {
            Order::First => assert!(!started),
            Order::Second => assert!(started),
            Order::AsItComes => {}
        }
        assert_eq!(calls.load(SeqCst), usize::from(started));
        let stats = group_rig::settled(&group);
        assert_eq!(
            (stats.accepted, stats.rejected),
            (u64::from(started), u64::from(!started))
        );
    }
}

// contract: T4
#[test]
fn a_starter_and_a_cancel_of_its_group() {
    for order in orders() {
        let group = TaskGroup::new();
        let start = || {
            let (promise, future) = Promise::<()>::new();
            let started = group.start(|| Ok::<_, Error>(future.clone()));
            (started.is_ok(), promise, future)
        };
        let (cancelled, (started, promise, future)) =
            in_order(order, || group.cancel("over"), start);
        assert!(cancelled);
        match order {
            // Nothing was started.
            Order::First => assert!(!started && !promise.is_cancel_requested()),
            Order::Second => assert!(started && promise.is_cancel_requested()),
            // Between: it was started, and it is told.
            Order::AsItComes => assert_eq!(started, promise.is_cancel_requested()),
        }
        assert_eq!(group.is_done(), !started);
        promise.cancel();
        if started {
            assert_eq!(&*future.cause().unwrap().reason, "over");
        }
        assert_eq!(group_rig::settled(&group).cancelled, u64::from(started));
    }
    // While the starter runs: in `task_group`, from the starter itself; here from another thread, which it waits for.
    let group = TaskGroup::new();
    let (promise, future) = Promise::<()>::new();
    let started = group.start(|| {
        thread::scope(|scope| scope.spawn(|| group.cancel("meanwhile")).join().unwrap());
        assert!(!promise.is_cancel_requested() && !group.is_done());
        Ok::<_, Error>(future)
    });
    assert!(started.is_ok() && promise.is_cancel_requested());
    promise.cancel();
    assert_eq!(group_rig::settled(&group).cancelled, 1);
}

// contract: T1
#[test]
fn the_last_reference_and_the_completion() {
    for order in orders() {
        let (promise, future) = Promise::new();
        let (value, drops) = counted();
        let (resolved, ()) = in_order(
            order,
            move || promise.resolve(value).is_ok(),
            || drop(future),
        );
        assert!(resolved);
        assert_eq!(drops.load(SeqCst), 1);
        // A failure that nobody looked at goes to the hook, once; there is a test of that beside the hook's own.
    }
    for order in orders() {
        let (promise, future) = Promise::<Counted>::new();
        let (dropped, state) = in_order(
            order,
            move || drop(promise),
            move || {
                let state = future.state();
                drop(future);
                state
            },
        );
        assert_eq!(dropped, ());
        match order {
            Order::First => assert_eq!(state, PromiseState::Closed),
            Order::Second => assert_eq!(state, PromiseState::Pending),
            Order::AsItComes => {}
        }
    }
}

// contract: T10
#[test]
fn a_group_that_is_dropped_and_the_completion_of_its_item() {
    for order in orders() {
        let group = TaskGroup::new();
        let done = group.done();
        let (promise, future) = Promise::new();
        let (value, drops) = counted();
        group.add(&future).unwrap();
        drop(future);
        let (resolved, ()) = in_order(
            order,
            move || promise.resolve(value).is_ok(),
            || drop(group),
        );
        assert!(resolved);
        assert_eq!(done.state(), PromiseState::Resolved);
        assert_eq!(drops.load(SeqCst), 1);
    }
}

// contract: T12, T14
#[test]
fn a_submit_that_waits_and_a_close() {
    for order in [Order::First, Order::Second] {
        let pool = Arc::new(pool(1, 1));
        let gate = Gate::new(&pool);
        let filler = pool.submit(|_| ()).unwrap();
        run(|| {
            let ours = pool.clone();
            let submitter = spawn_local(move || ours.submit(|_| Outcome::Success(1)));
            yield_now().unwrap();
            assert!(!submitter.is_finished());
            match order {
                // The close comes first: the place that becomes free is nobody's.
                Order::First => {
                    pool.close();
                    gate.open();
                    let refused = submitter.join().unwrap().unwrap_err();
                    assert!(refused.is_closed());
                }
                // The place comes first, and is the waiter's, though the close comes before it fills it.
                _ => {
                    gate.open();
                    until(|| filler.is_done());
                    pool.close();
                    let future = submitter.join().unwrap().unwrap();
                    future.wait().unwrap();
                    assert_eq!(future.get().unwrap().unwrap(), &1);
                }
            }
        });
        pool_rig::settled(&pool);
    }
    for _ in 0..rounds(50) {
        let pool = Arc::new(pool(1, 1));
        let gate = Gate::new(&pool);
        let filler = pool.submit(|_| ()).unwrap();
        let (data, drops) = counted();
        let ours = pool.clone();
        let waits = thread::spawn(move || ours.submit(move |_| drop(data)));
        let (closed, ()) = in_order(Order::AsItComes, || pool.close(), || gate.open());
        assert!(closed);
        let taken = match waits.join().unwrap() {
            Ok(future) => {
                future.wait().unwrap();
                true
            }
            Err(refused) => {
                assert!(refused.is_closed());
                false
            }
        };
        filler.wait().unwrap();
        let stats = pool_rig::settled(&pool);
        assert_eq!(
            (stats.submitted, stats.rejected),
            (2 + u64::from(taken), u64::from(!taken))
        );
        assert_eq!(drops.load(SeqCst), 1);
    }
}

// contract: T12
#[test]
fn a_timeout_and_a_free_place() {
    for order in [Order::First, Order::Second] {
        let pool = Arc::new(pool(1, 1));
        let gate = Gate::new(&pool);
        let filler = pool.submit(|_| ()).unwrap();
        match order {
            // The time is over, and there is no place.
            Order::First => {
                let refused = pool.submit_timeout(Duration::ZERO, |_| ()).unwrap_err();
                assert!(refused.is_timeout());
                gate.open();
            }
            // Both are there when the submitter looks: the place wins.
            _ => {
                gate.open();
                filler.wait().unwrap();
                let past = now() - Duration::from_secs(1);
                pool.submit_deadline(past, |_| ()).unwrap();
            }
        }
        filler.wait().unwrap();
        pool_rig::settled(&pool);
    }
    // The place is handed over while the deadline passes: whoever has the place keeps it.
    for round in 0..rounds(50) {
        let pool = Arc::new(pool(1, 1));
        let gate = Gate::new(&pool);
        let filler = pool.submit(|_| ()).unwrap();
        let deadline = now() + Duration::from_micros(100 + (round % 7) as u64 * 20);
        let submitted = thread::scope(|scope| {
            let waits = scope.spawn(|| pool.submit_deadline(deadline, |_| ()));
            until(|| now() >= deadline);
            gate.open();
            waits.join().unwrap()
        });
        let taken = u64::from(submitted.is_ok());
        if let Err(refused) = submitted {
            assert!(refused.is_timeout());
        }
        filler.wait().unwrap();
        let stats = pool_rig::settled(&pool);
        assert_eq!((stats.submitted, stats.rejected), (2 + taken, 1 - taken));
    }
}

// contract: T12, T14
#[test]
fn a_cancel_of_a_queued_task_and_its_start() {
    for order in orders() {
        let pool = pool(1, 4);
        let gate = Gate::new(&pool);
        let (say, said) = mpsc::channel();
        let future = pool
            .submit(move |_: &TaskContext<'_>| _ = say.send(()))
            .unwrap();
        let theirs = future.clone();
        let ((), ()) = in_order(
            order,
            move || theirs.cancel("now"),
            move || {
                gate.open();
                if order == Order::Second {
                    said.recv().unwrap();
                }
            },
        );
        future.wait().unwrap();
        let end = future.end().unwrap();
        match order {
            Order::First => {
                assert_eq!(
                    (end.state, end.has_started),
                    (PromiseState::Cancelled, Some(false))
                );
            }
            Order::Second => {
                assert_eq!(
                    (end.state, end.has_started),
                    (PromiseState::Resolved, Some(true))
                );
            }
            Order::AsItComes => {
                assert_eq!(
                    end.state == PromiseState::Resolved,
                    end.has_started == Some(true)
                );
            }
        }
        pool_rig::settled(&pool);
    }
}

// contract: T18
#[test]
fn a_scheduler_that_closes_and_a_task_that_is_posted() {
    for closes_first in [false, true] {
        let (data, drops) = counted();
        let group = TaskGroup::new();
        let future = Scheduler::anchor(|s| {
            let handle = s.handle();
            if closes_first {
                s.close();
            }
            let submitted = group.spawn_on(&handle, move |_| drop(data));
            if !closes_first {
                s.close();
            }
            submitted
        });
        assert_eq!(future.is_ok(), !closes_first);
        match future {
            Ok(future) => {
                let error = Error::from(future.get().unwrap().unwrap_err().clone());
                assert_eq!(error.kind(), ErrorKind::Closed);
                assert_eq!(future.end().unwrap().has_started, Some(false));
            }
            Err(refused) => assert!(refused.is_closed()),
        }
        let stats = group_rig::settled(&group);
        assert_eq!(
            (stats.failed, stats.rejected),
            match closes_first {
                false => (1, 0),
                true => (0, 1),
            }
        );
        assert_eq!(drops.load(SeqCst), 1);
    }
}
