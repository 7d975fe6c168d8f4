//! Scopes: each rule, and that nothing outlives them, whatever ends them.

mod group_rig;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use group_rig::{counted, settled};
use sinew::future::{Promise, PromiseState};
use sinew::task::{Outcome, TaskContext, TaskGroup, TaskPool, scope};
use sinew::time::now;
use sinew::{
    CancelToken, Error, ErrorKind, Scheduler, WaitError, park, run, spawn_local, yield_now,
};

fn oops() -> Error {
    Error::new(ErrorKind::Invalid, "oops")
}

/// Counts itself while it lives.
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, SeqCst);
        Self(count.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// A task that parks until it is asked to stop, and takes its time to do so; counted until it is gone.
fn slow_to_stop(
    count: &Arc<AtomicUsize>,
) -> impl FnOnce(&TaskContext<'_>) -> Outcome<()> + Send + 'static {
    let alive = Alive::new(count);
    move |_| {
        let _alive = alive;
        let ended = park();
        sinew::shield(|| (0..5).for_each(|_| yield_now().unwrap()));
        ended.into()
    }
}

// contract: T5, T7
#[test]
fn all_succeed_waits_for_all_and_gives_the_closures_value() {
    run(|| {
        let ran = Arc::new(AtomicUsize::new(0));
        let value = scope().limit(8).all_succeed(|group| {
            for _ in 0..5 {
                let ran = ran.clone();
                group.spawn(move |_| {
                    yield_now().unwrap();
                    ran.fetch_add(1, SeqCst);
                })?;
            }
            Ok("value")
        });
        assert_eq!((value.unwrap(), ran.load(SeqCst)), ("value", 5));
        // Nothing in it at all.
        assert_eq!(scope().all_succeed(|_| Ok(1)).unwrap(), 1);
    });
}

// contract: T7
#[test]
fn the_first_failure_cancels_the_rest_which_is_waited_for() {
    run(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let error = scope()
            .all_succeed(|group| {
                for _ in 0..3 {
                    group.spawn(slow_to_stop(&alive))?;
                }
                group.spawn(|_| Err::<(), _>(oops()))?;
                Ok(())
            })
            .unwrap_err();
        assert_eq!(error.message(), "oops");
        assert_eq!(alive.load(SeqCst), 0, "nothing outlives the scope");
        // An item that is cancelled, or closed, is no success either.
        let cancelled = scope().all_succeed(|group| {
            group.spawn(|_| Outcome::<()>::Cancelled)?;
            Ok(())
        });
        assert_eq!(cancelled.unwrap_err().kind(), ErrorKind::Cancelled);
        let closed = scope().all_succeed(|group| {
            let (promise, future) = Promise::<()>::new();
            group.add(&future)?;
            drop(promise);
            Ok(())
        });
        assert_eq!(closed.unwrap_err().kind(), ErrorKind::Closed);
    });
}

// contract: T5
#[test]
fn what_ends_the_closure_ends_the_tasks_first() {
    run(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let failed = scope().collect_all(|group| {
            group.spawn(slow_to_stop(&alive))?;
            Err::<(), _>(oops())
        });
        assert_eq!(failed.unwrap_err().message(), "oops");
        assert_eq!(alive.load(SeqCst), 0);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            scope().all_succeed(|group| -> Result<(), Error> {
                group.spawn(slow_to_stop(&alive))?;
                panic!("in the closure")
            })
        }));
        let payload = panicked.unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"in the closure"));
        assert_eq!(alive.load(SeqCst), 0);
    });
}

// contract: T5
#[test]
fn a_cancel_of_the_caller_is_a_cancel_of_the_scope() {
    run(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let counts = alive.clone();
        let caller = spawn_local(move || {
            let ended = scope().collect_all(|group| {
                group.spawn(slow_to_stop(&counts))?;
                Ok(())
            });
            (ended.unwrap_err().kind(), counts.load(SeqCst))
        });
        while alive.load(SeqCst) == 0 {
            yield_now().unwrap();
        }
        yield_now().unwrap();
        caller.cancel("stop");
        assert_eq!(caller.join().unwrap(), (ErrorKind::Cancelled, 0));
    });
}

// contract: T5
#[test]
fn the_deadline_cancels_the_tasks_and_fails_the_scope() {
    run(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        for by_instant in [false, true] {
            let begin = now();
            let limit = Duration::from_millis(3);
            let builder = match by_instant {
                false => scope().timeout(limit),
                true => scope().deadline(begin + limit),
            };
            let late = builder.all_succeed(|group| {
                group.spawn(slow_to_stop(&alive))?;
                Ok(())
            });
            assert_eq!(late.unwrap_err().kind(), ErrorKind::Timeout);
            assert!(now() >= begin + limit);
            assert_eq!(alive.load(SeqCst), 0);
        }
        // While the closure still runs: what it waits for ends.
        let late = scope()
            .timeout(Duration::from_millis(3))
            .collect_all(|group| {
                let parked = group.spawn(|_| park())?;
                parked.wait()?;
                assert_eq!(parked.state(), PromiseState::Cancelled);
                Ok(())
            });
        assert_eq!(late.unwrap_err().kind(), ErrorKind::Timeout);
        // In time.
        let value = scope()
            .timeout(Duration::from_secs(3600))
            .all_succeed(|group| {
                group.spawn(|_| ())?;
                Ok(2)
            });
        assert_eq!(value.unwrap(), 2);
    });
}

// contract: T7
#[test]
fn the_first_success_ends_the_race() {
    run(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let (value, drops) = counted();
        let first = scope()
            .first_success(|group, race| {
                group.spawn(slow_to_stop(&alive))?;
                race.enter(&group.spawn(|_| Err::<group_rig::Counted, _>(oops()))?);
                race.enter(&group.spawn(|_| {
                    yield_now().unwrap();
                    Outcome::Success(value)
                })?);
                Ok(())
            })
            .unwrap();
        assert_eq!(alive.load(SeqCst), 0);
        assert!(first.get().unwrap().is_ok());
        assert_eq!(drops.load(SeqCst), 0);
        drop(first);
        assert_eq!(drops.load(SeqCst), 1);
        let none = scope().first_success(|group, race| {
            race.enter(&group.spawn(|_| Err::<u8, _>(oops()))?);
            race.enter(&group.spawn(|_| Outcome::<u8>::Cancelled)?);
            Ok(())
        });
        assert_eq!(none.unwrap_err().message(), "oops");
        let empty = scope().first_success::<u8>(|_, _| Ok(()));
        assert_eq!(empty.unwrap_err().kind(), ErrorKind::Closed);
        // One that has succeeded before it enters.
        let early = scope().first_success(|group, race| {
            let (promise, future) = Promise::new();
            group.add(&future)?;
            promise.resolve(9).unwrap();
            race.enter(&future);
            Ok(())
        });
        assert_eq!(early.unwrap().get().unwrap().unwrap(), &9);
    });
}

// contract: T8
#[test]
fn a_scope_in_a_scope_is_cancelled_with_it() {
    run(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let outer = TaskGroup::new();
        let failed = scope().within(&outer).all_succeed(|group| {
            group.spawn(slow_to_stop(&alive))?;
            outer.cancel("from outside");
            Ok(())
        });
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(alive.load(SeqCst), 0);
        let refused = scope().within(&outer).all_succeed(|_| Ok(()));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
        let stats = settled(&outer);
        assert_eq!((stats.accepted, stats.rejected), (1, 1));
    });
}

// contract: T17
#[test]
fn it_works_from_a_plain_thread_with_a_pool() {
    let pool = TaskPool::builder()
        .threads(2)
        .queue_limit(2)
        .build()
        .unwrap();
    let (sum, stats) = scope()
        .collect_all(|group| {
            let futures = (0..50_u64)
                .map(|n| group.submit(&pool, move |_| Outcome::Success(n)))
                .collect::<Result<Vec<_>, _>>()?;
            for future in &futures {
                future.wait()?;
            }
            let values = futures.iter().filter_map(|future| future.get()?.ok());
            Ok(values.sum::<u64>())
        })
        .unwrap();
    assert_eq!((sum, stats.succeeded), (49 * 50 / 2, 50));
    assert!(stats.is_closed && !stats.is_cancelled);
}

// contract: T5
#[test]
fn where_nothing_may_wait_the_closure_is_not_called() {
    Scheduler::anchor(|_| {
        let refused = scope().all_succeed(|_| -> Result<(), Error> { panic!("it is called") });
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::State);
    });
}

// contract: T5
#[test]
fn a_wait_with_a_token_ends_by_it_and_touches_nothing() {
    run(|| {
        let group = TaskGroup::new();
        let (promise, future) = Promise::<()>::new();
        group.add(&future).unwrap();
        let token = sinew::CancelToken::new();
        let theirs = token.clone();
        let canceller = spawn_local(move || {
            yield_now().unwrap();
            theirs.cancel("no patience");
        });
        assert_eq!(group.wait_cancel(&token), Err(WaitError::Cancelled));
        canceller.join().unwrap();
        assert!(
            group.add(&future).unwrap_err().is_closed(),
            "it closes first"
        );
        assert!(!promise.is_cancel_requested());
        assert_eq!(future.wait_cancel(&token), Err(WaitError::Cancelled));
        promise.resolve(()).unwrap();
        // The end wins over a token that has fired.
        group.wait_cancel(&token).unwrap();
        future.wait_cancel(&token).unwrap();
        settled(&group);
        let group = TaskGroup::new();
        let parked = group.spawn(|_| park()).unwrap();
        group.cancel_and_wait("not needed").unwrap();
        assert_eq!(&*parked.end().unwrap().cause.unwrap().reason, "not needed");
        settled(&group);
    });
}

/// The group of a race is done before the winner's callbacks are called: who has won is known all the same.
#[test]
fn a_winner_whose_callbacks_are_late_has_won() {
    let pool = TaskPool::builder().threads(1).build().unwrap();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (begin, may_begin) = mpsc::channel::<()>();
    let first = scope().first_success(|group, race| {
        let future = group.submit(&pool, move |_| {
            may_begin.recv().unwrap();
            Outcome::Success(7)
        })?;
        // It comes before the race's, and lasts until the scope is over.
        future.on_done(move |_| _ = may_go_on.recv());
        race.enter(&future);
        begin.send(()).unwrap();
        Ok(())
    });
    assert_eq!(first.unwrap().get().unwrap().unwrap(), &7);
    drop(go_on);
}

/// The caller is unwound by force where it waits for its tasks, and where its closure does: they end first.
// contract: T5
#[test]
fn a_forced_unwind_of_the_caller_waits_for_the_tasks() {
    let pool = Arc::new(TaskPool::builder().threads(1).build().unwrap());
    for waits_in_the_closure in [false, true] {
        let alive = Arc::new(AtomicUsize::new(0));
        let (pool, counts) = (pool.clone(), alive.clone());
        run(|| {
            let caller = spawn_local(move || {
                let task_alive = Alive::new(&counts);
                _ = scope().collect_all(|group| {
                    group.submit(&pool, move |context| {
                        let _alive = task_alive;
                        _ = context.cancel_token().wait();
                        // It takes its time: nothing comes.
                        let (_nobody, never) = mpsc::channel::<()>();
                        _ = never.recv_timeout(Duration::from_millis(5));
                    })?;
                    // Until the order to unwind is there.
                    sinew::shield(|| sinew::sleep(Duration::from_millis(10))).unwrap();
                    if waits_in_the_closure {
                        _ = park();
                    }
                    Ok(())
                });
            });
            yield_now().unwrap();
            assert_eq!(alive.load(SeqCst), 1);
            sinew::cancel_id_within(caller.id(), "stop", Duration::ZERO).unwrap();
            assert!(caller.join().is_err());
            assert_eq!(alive.load(SeqCst), 0, "a task outlived its scope");
        });
    }
}

/// No time at all: nothing that was started is left, and each rule says `Timeout`; a success that is there counts.
// contract: T5
#[test]
fn a_scope_without_time_ends_what_it_started() {
    run(|| {
        for _ in 0..20 {
            let alive = Arc::new(AtomicUsize::new(0));
            let none = || scope().timeout(Duration::ZERO);
            let start = |group: &TaskGroup| match group.spawn(slow_to_stop(&alive)) {
                Ok(_) => Ok(()),
                Err(error) => Err(error.into()),
            };
            let kinds = [
                none().all_succeed(start).unwrap_err().kind(),
                none().collect_all(start).unwrap_err().kind(),
                none()
                    .first_success::<()>(|group, _| start(group))
                    .unwrap_err()
                    .kind(),
            ];
            assert_eq!(kinds, [ErrorKind::Timeout; 3]);
            assert_eq!(alive.load(SeqCst), 0);
        }
        let failed = scope().first_success::<()>(|group, race| {
            for _ in 0..3 {
                race.enter(&group.spawn(|_| Err::<(), _>(oops()))?);
            }
            Ok(())
        });
        assert_eq!(failed.unwrap_err().message(), "oops");
        let parent = TaskGroup::new();
        parent.close();
        let refused = scope().within(&parent).collect_all(|_| Ok(()));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
    });
}

// contract: T5
#[test]
fn a_deadline_that_passes_after_the_end_is_kept() {
    run(|| {
        let deadline = now() + Duration::from_millis(20);
        let (promise, future) = Promise::new();
        // It brings the end, and keeps the thread until the deadline has passed and has been told to everybody.
        let last = spawn_local(move || {
            promise.resolve(1).unwrap();
            let passed = CancelToken::with_deadline(deadline);
            while !passed.is_cancelled() || now() < deadline + Duration::from_millis(20) {
                std::hint::spin_loop();
            }
        });
        let value = scope().deadline(deadline).all_succeed(|group| {
            group.add(&future)?;
            Ok("in time")
        });
        assert!(now() >= deadline, "it looks late");
        assert_eq!(value.unwrap(), "in time");
        last.join().unwrap();
        // One that passes before the end is not.
        let (promise, future) = Promise::<u8>::new();
        let late = scope().timeout(Duration::ZERO).all_succeed(|group| {
            group.add(&future)?;
            drop(promise);
            Ok(())
        });
        assert_eq!(late.unwrap_err().kind(), ErrorKind::Timeout);
    });
}
