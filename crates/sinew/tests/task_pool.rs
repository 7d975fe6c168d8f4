//! The pool: bounded, every task ends once, whoever waits is told, and the counts are right at each moment.

mod pool_rig;

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use pool_rig::{Gate, check, counted, must_not_run, pool, settled, threads_named, until};
use sinew::future::{PromiseState, SharedFuture};
use sinew::task::{Outcome, TaskContext, TaskPool};
use sinew::time::now;
use sinew::{CancelToken, ErrorKind, WaitError, run, spawn_local, yield_now};

const HOUR: Duration = Duration::from_secs(3600);

// contract: T11
#[test]
fn zero_means_the_default() {
    let pool = TaskPool::new().unwrap();
    let stats = pool.stats();
    assert_eq!(
        stats.threads,
        thread::available_parallelism().unwrap().get().min(256)
    );
    assert_eq!(stats.queue_limit, 1024);
    settled(&pool);
}

// contract: T11
#[test]
fn numbers_out_of_range_are_refused() {
    for builder in [
        TaskPool::builder().threads(257),
        TaskPool::builder().queue_limit((1 << 24) + 1),
        TaskPool::builder().name("nul\0"),
    ] {
        assert_eq!(builder.build().unwrap_err().kind(), ErrorKind::Invalid);
    }
}

// contract: T11
#[test]
fn threads_that_cannot_be_started_are_an_error_and_leave_none() {
    let error = TaskPool::builder()
        .threads(3)
        .stack_size(1 << 46)
        .name("vain")
        .build()
        .unwrap_err();
    assert_eq!(error.message(), "starting a thread of a pool");
    assert!(error.code().is_some());
    until(|| threads_named("vain") == 0);
}

// contract: T11
#[test]
fn threads_are_named_and_have_the_stack_that_was_asked_for() {
    let pool = TaskPool::builder()
        .threads(2)
        .name("mill")
        .stack_size(16 << 20)
        .build()
        .unwrap();
    let names = pool
        .run_blocking(|| {
            // More than the default of 2 MiB.
            let big = std::hint::black_box([1_u8; 3 << 20]);
            (thread::current().name().map(str::to_owned), big[77])
        })
        .unwrap();
    assert!(
        matches!(names.0.as_deref(), Some("mill-0" | "mill-1")),
        "{names:?}"
    );
    until(|| threads_named("mill") == 2);
    settled(&pool);
    drop(pool);
    until(|| threads_named("mill") == 0);
}

// contract: T11, T12
#[test]
fn only_what_has_not_started_counts_against_the_limit() {
    let pool = pool(2, 1);
    let gates = [Gate::new(&pool), Gate::new(&pool)];
    assert_eq!((pool.stats().running, pool.stats().queued), (2, 0));
    let queued = pool.try_submit(|_| Outcome::Success(1)).unwrap();
    let refused = pool.try_submit(|_| Outcome::Success(2)).unwrap_err();
    assert!(refused.is_again());
    assert_eq!(refused.kind(), ErrorKind::Again);
    assert_eq!(pool.stats().rejected, 1);
    check(pool.stats());
    for gate in gates {
        gate.open();
    }
    queued.wait().unwrap();
    let again = pool.submit(refused.into_inner()).unwrap();
    again.wait().unwrap();
    assert_eq!(
        again.get().unwrap().unwrap(),
        &2,
        "the task came back whole"
    );
    let stats = settled(&pool);
    assert_eq!(
        (stats.submitted, stats.succeeded, stats.rejected),
        (4, 4, 1)
    );
}

// contract: T11
#[test]
fn what_was_cancelled_in_the_queue_makes_room() {
    let pool = pool(1, 2);
    let gate = Gate::new(&pool);
    let (data, drops) = counted();
    let first = pool.submit(move |_| drop(data)).unwrap();
    let second = pool.submit(|_| Outcome::Success(2)).unwrap();
    assert!(pool.try_submit(|_| ()).unwrap_err().is_again());
    first.cancel("not needed");
    assert_eq!(first.state(), PromiseState::Pending, "only a wish as yet");
    let third = pool.try_submit(|_| Outcome::Success(3)).unwrap();
    assert_eq!(first.state(), PromiseState::Cancelled);
    assert_eq!(&*first.cause().unwrap().reason, "not needed");
    assert_eq!(drops.load(SeqCst), 1);
    check(pool.stats());
    assert_eq!((pool.stats().cancelled, pool.stats().queued), (1, 2));
    assert!(pool.try_submit(|_| ()).unwrap_err().is_again());
    gate.open();
    second.wait().unwrap();
    third.wait().unwrap();
    let stats = settled(&pool);
    assert_eq!(
        (stats.submitted, stats.cancelled, stats.rejected),
        (4, 1, 2)
    );
}

// contract: T11
#[test]
fn a_task_that_was_cancelled_before_it_came_is_purged_too() {
    let pool = pool(1, 1);
    let gate = Gate::new(&pool);
    let parent = CancelToken::new();
    parent.cancel("before");
    let born_cancelled = pool.under(&parent).submit(must_not_run).unwrap();
    let next = pool.try_submit(|_| ()).unwrap();
    assert_eq!(born_cancelled.state(), PromiseState::Cancelled);
    gate.open();
    next.wait().unwrap();
    assert_eq!(settled(&pool).cancelled, 1);
}

/// Submits to the pool when it is dropped.
struct Reentering(Arc<TaskPool>, mpsc::Sender<Option<SharedFuture<()>>>);

impl Drop for Reentering {
    fn drop(&mut self) {
        let _gone = self.1.send(self.0.try_submit(|_| ()).ok());
    }
}

// contract: T11
#[test]
fn data_that_a_purge_drops_may_come_back_to_the_pool() {
    let pool = Arc::new(pool(1, 2));
    let gate = Gate::new(&pool);
    let (say, said) = mpsc::channel();
    let data = Reentering(pool.clone(), say.clone());
    let one = pool.submit(move |_| drop(data)).unwrap();
    let data = Reentering(pool.clone(), say);
    let two = pool.submit(move |_| drop(data)).unwrap();
    one.cancel("purge it");
    two.cancel("purge it");
    // Two places become free, and what is dropped takes both.
    assert!(pool.try_submit(|_| ()).unwrap_err().is_again());
    let inner: Vec<_> = said.iter().map(Option::unwrap).collect();
    assert_eq!(inner.len(), 2);
    gate.open();
    for future in inner {
        future.wait().unwrap();
    }
    let stats = settled(&pool);
    assert_eq!(
        (stats.submitted, stats.cancelled, stats.rejected),
        (5, 2, 1)
    );
}

// contract: T12
#[test]
fn a_wait_for_room_ends_in_each_of_its_ways_and_gives_the_task_back() {
    let pool = Arc::new(pool(1, 1));
    let gate = Gate::new(&pool);
    let queued = pool.submit(|_| ()).unwrap();
    let (data, drops) = counted();
    let task = move |_: &TaskContext<'_>| drop(data);
    let refused = pool.submit_timeout(Duration::ZERO, task).unwrap_err();
    assert!(refused.is_timeout());
    let refused = pool
        .submit_timeout(Duration::from_millis(2), refused.into_inner())
        .unwrap_err();
    assert!(refused.is_timeout());
    let refused = pool
        .submit_deadline(now() - Duration::from_secs(1), refused.into_inner())
        .unwrap_err();
    assert!(refused.is_timeout());
    let token = CancelToken::new();
    token.cancel("before");
    let refused = pool
        .submit_cancel(&token, refused.into_inner())
        .unwrap_err();
    assert!(refused.is_cancelled());
    let token = CancelToken::with_timeout(Duration::from_millis(2));
    let refused = pool
        .submit_cancel(&token, refused.into_inner())
        .unwrap_err();
    assert!(refused.is_cancelled());
    assert_eq!(drops.load(SeqCst), 0);
    let ours = pool.clone();
    let (say, said) = mpsc::channel();
    let closed = thread::spawn(move || {
        say.send(()).unwrap();
        ours.submit(refused.into_inner()).unwrap_err()
    });
    said.recv().unwrap();
    assert!(pool.close());
    assert!(!pool.close(), "once only");
    let refused = closed.join().unwrap();
    assert!(refused.is_closed());
    assert!(pool.try_submit(|_| ()).unwrap_err().is_closed());
    assert_eq!(drops.load(SeqCst), 0);
    drop(refused);
    assert_eq!(drops.load(SeqCst), 1);
    gate.open();
    queued.wait().unwrap();
    let stats = settled(&pool);
    assert_eq!((stats.submitted, stats.rejected), (2, 7));
}

// contract: T12
#[test]
fn a_free_place_wins_over_a_deadline_and_a_cancel() {
    let pool = Arc::new(pool(1, 8));
    let gate = Gate::new(&pool);
    let token = CancelToken::new();
    token.cancel("before");
    let futures = [
        pool.submit_timeout(Duration::ZERO, |_| ()).unwrap(),
        pool.submit_deadline(now() - Duration::from_secs(1), |_| ())
            .unwrap(),
        pool.submit_cancel(&token, |_| ()).unwrap(),
    ];
    // Nor does a cancel of the submitter.
    let in_coroutine = run(|| {
        let ours = pool.clone();
        let handle = spawn_local(move || {
            assert!(yield_now().is_err());
            ours.submit(|_| ()).unwrap()
        });
        yield_now().unwrap();
        handle.cancel("stop");
        handle.join().unwrap()
    });
    gate.open();
    for future in futures.into_iter().chain([in_coroutine]) {
        future.wait().unwrap();
        assert_eq!(
            future.state(),
            PromiseState::Resolved,
            "the wait's token is not the task's"
        );
    }
    assert_eq!(settled(&pool).succeeded, 5);
}

// contract: T12
#[test]
fn a_place_that_becomes_free_goes_to_who_waited_longest() {
    let pool = Arc::new(pool(1, 1));
    let gate = Gate::new(&pool);
    let first = pool.submit(|_| ()).unwrap();
    let waiting = run(|| {
        let submit = |number: u32| {
            let pool = pool.clone();
            spawn_local(move || pool.submit(move |_| Outcome::Success(number)).unwrap())
        };
        let handles = [submit(1), submit(2), submit(3)];
        yield_now().unwrap();
        gate.open();
        handles.map(|handle| handle.join().unwrap())
    });
    for (future, number) in waiting.iter().zip(1..) {
        future.wait().unwrap();
        assert_eq!(future.get().unwrap().unwrap(), &number);
    }
    first.wait().unwrap();
    assert_eq!(settled(&pool).succeeded, 5);
}

// contract: T12
#[test]
fn a_parent_token_is_the_tasks() {
    let pool = pool(1, 4);
    let parent = CancelToken::new();
    let (say, said) = mpsc::channel();
    let running = pool
        .under(&parent)
        .submit(move |context: &TaskContext<'_>| {
            say.send(()).unwrap();
            context.cancel_token().wait().unwrap();
            Outcome::<()>::Cancelled
        })
        .unwrap();
    said.recv().unwrap();
    let queued = pool.under(&parent).try_submit(must_not_run).unwrap();
    parent.cancel("both");
    for future in [running, queued] {
        future.wait().unwrap();
        assert_eq!(future.state(), PromiseState::Cancelled);
        assert_eq!(&*future.cause().unwrap().reason, "both");
    }
    assert_eq!(settled(&pool).cancelled, 2);
}

// contract: T12, T14
#[test]
fn close_and_cancel_wake_all_who_wait_for_room() {
    for by_cancel in [false, true] {
        let pool = Arc::new(pool(1, 1));
        let gate = Gate::new(&pool);
        let queued = pool.submit(|_| ()).unwrap();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let pool = pool.clone();
                thread::spawn(move || pool.submit(|_| ()).unwrap_err().kind())
            })
            .collect();
        run(|| {
            let coroutines: Vec<_> = (0..3)
                .map(|_| {
                    let pool = pool.clone();
                    spawn_local(move || pool.submit(|_| ()).unwrap_err().kind())
                })
                .collect();
            yield_now().unwrap();
            if by_cancel {
                pool.cancel("over");
            } else {
                pool.close();
            }
            for coroutine in coroutines {
                assert_eq!(coroutine.join().unwrap(), ErrorKind::Closed);
            }
        });
        for thread in threads {
            assert_eq!(thread.join().unwrap(), ErrorKind::Closed);
        }
        gate.open();
        let stats = settled(&pool);
        assert_eq!(stats.rejected, 5);
        assert_eq!(stats.is_cancelled, by_cancel);
        let state = if by_cancel {
            PromiseState::Cancelled
        } else {
            PromiseState::Resolved
        };
        assert_eq!(queued.state(), state);
    }
}

// contract: T13
#[test]
fn a_worker_submits_where_there_is_room_and_never_waits_for_itself() {
    let pool = Arc::new(pool(1, 1));
    let ours = pool.clone();
    let outer = pool
        .submit(move |_| {
            let inner = ours.submit(|_| Outcome::Success(5)).unwrap();
            let task = |_: &TaskContext<'_>| ();
            assert!(ours.submit(task).unwrap_err().is_state());
            assert!(ours.submit_timeout(HOUR, task).unwrap_err().is_state());
            assert!(
                ours.submit_deadline(now() + HOUR, task)
                    .unwrap_err()
                    .is_state()
            );
            assert!(
                ours.submit_cancel(&CancelToken::new(), task)
                    .unwrap_err()
                    .is_state()
            );
            assert!(ours.try_submit(|_| ()).unwrap_err().is_again());
            assert_eq!(
                ours.run_blocking(|| ()).unwrap_err().kind(),
                ErrorKind::State
            );
            // Nor in a coroutine on that thread.
            let theirs = ours.clone();
            run(|| {
                assert!(ours.submit(|_| ()).unwrap_err().is_state());
                spawn_local(move || {
                    assert!(theirs.submit(|_| ()).unwrap_err().is_state());
                })
                .join()
                .unwrap();
            });
            ours.close();
            assert_eq!(ours.wait(), Err(WaitError::State));
            assert_eq!(ours.wait_timeout(Duration::ZERO), Err(WaitError::State));
            Outcome::Success(inner)
        })
        .unwrap();
    outer.wait().unwrap();
    let inner = outer.get().unwrap().unwrap();
    inner.wait().unwrap();
    assert_eq!(inner.get().unwrap().unwrap(), &5);
    assert_eq!(settled(&pool).rejected, 7);
}

// contract: T13
#[test]
fn a_worker_cannot_destroy_its_pool_and_nothing_is_closed() {
    let pool = pool(1, 4);
    let (give, given) = mpsc::channel::<TaskPool>();
    let (back, returned) = mpsc::channel();
    pool.submit(move |_| {
        let pool = given.recv().unwrap();
        let pool = pool.destroy().unwrap_err().into_inner();
        assert!(!pool.stats().is_closed);
        back.send(pool).unwrap();
    })
    .unwrap();
    give.send(pool).unwrap();
    let pool = returned.recv().unwrap();
    pool.submit(|_| ()).unwrap().wait().unwrap();
    assert_eq!(settled(&pool).succeeded, 2);
    pool.destroy().unwrap();
}

// contract: T13, T14
#[test]
fn a_pool_whose_last_reference_goes_on_its_own_worker_ends_by_itself() {
    let pool = TaskPool::builder()
        .threads(2)
        .name("orphan")
        .build()
        .unwrap();
    let (give, given) = mpsc::channel::<TaskPool>();
    let dropper = pool.submit(move |_| drop(given.recv().unwrap())).unwrap();
    let later = pool.submit(|_| Outcome::Success(1)).unwrap();
    give.send(pool).unwrap();
    dropper.wait().unwrap();
    later.wait().unwrap();
    assert_eq!(later.get().unwrap().unwrap(), &1);
    until(|| threads_named("orphan") == 0);
}

// contract: T14
#[test]
fn close_lets_what_was_accepted_be_done() {
    let pool = pool(1, 8);
    assert_eq!(pool.wait(), Err(WaitError::State), "it is open");
    assert_eq!(pool.wait_timeout(Duration::ZERO), Err(WaitError::State));
    let gate = Gate::new(&pool);
    let queued: Vec<_> = (0..4)
        .map(|n| pool.submit(move |_| Outcome::Success(n)).unwrap())
        .collect();
    pool.close();
    assert!(!pool.is_drained());
    assert_eq!(
        pool.wait_timeout(Duration::from_millis(1)),
        Err(WaitError::Timeout)
    );
    assert_eq!(pool.wait_deadline(now()), Err(WaitError::Timeout));
    let token = CancelToken::new();
    token.cancel("enough");
    assert_eq!(pool.wait_cancel(&token), Err(WaitError::Cancelled));
    check(pool.stats());
    gate.open();
    pool.wait().unwrap();
    // Drained beats a deadline that is over and a cancel.
    pool.wait_timeout(Duration::ZERO).unwrap();
    pool.wait_deadline(now() - HOUR).unwrap();
    pool.wait_cancel(&token).unwrap();
    for (future, n) in queued.iter().zip(0..) {
        assert_eq!(future.get().unwrap().unwrap(), &n);
    }
    assert_eq!(settled(&pool).succeeded, 5);
}

// contract: T14
#[test]
fn cancel_ends_the_queued_and_asks_the_running() {
    let pool = pool(2, 8);
    let both = Arc::new(Barrier::new(3));
    let run_until_asked = |succeeds: bool| {
        let both = both.clone();
        pool.submit(move |context: &TaskContext<'_>| {
            both.wait();
            if succeeds {
                context.cancel_token().wait().unwrap();
                assert_eq!(&*context.cause().unwrap().reason, "over");
                return Outcome::Success(());
            }
            while !context.is_cancelled() {
                thread::yield_now();
            }
            Outcome::Cancelled
        })
        .unwrap()
    };
    let deaf = run_until_asked(true);
    let heeding = run_until_asked(false);
    both.wait();
    let (data, drops) = counted();
    let queued = pool
        .submit(move |_| {
            let _data = &data;
            panic!("it runs");
            #[expect(unreachable_code, reason = "gives the closure its type")]
            Outcome::Success(())
        })
        .unwrap();
    assert!(pool.cancel("over"));
    assert!(!pool.cancel("again"), "once only");
    assert_eq!(drops.load(SeqCst), 1);
    assert_eq!(queued.state(), PromiseState::Cancelled);
    assert_eq!(&*queued.cause().unwrap().reason, "over");
    pool.wait().unwrap();
    assert_eq!(deaf.state(), PromiseState::Resolved);
    assert_eq!(heeding.state(), PromiseState::Cancelled);
    assert_eq!(&*heeding.cause().unwrap().reason, "over");
    let stats = settled(&pool);
    assert_eq!((stats.succeeded, stats.cancelled, stats.failed), (1, 2, 0));
    assert!(stats.is_cancelled);
    assert!(pool.try_submit(|_| ()).unwrap_err().is_closed());
}

// contract: T14
#[test]
fn a_drop_closes_drains_and_joins_and_futures_outlive_it() {
    for in_coroutine in [false, true] {
        let pool = TaskPool::builder()
            .threads(2)
            .name("brief")
            .build()
            .unwrap();
        let (value, drops) = counted();
        let future = pool
            .submit(move |_| Outcome::Success(Arc::new(value)))
            .unwrap();
        let many: Vec<_> = (0..50).map(|_| pool.submit(|_| ()).unwrap()).collect();
        if in_coroutine {
            run(|| {
                let gate = Gate::new(&pool);
                let dropper = spawn_local(move || drop(pool));
                // If the drop blocked the thread this would never have its turn.
                spawn_local(move || gate.open()).join().unwrap();
                dropper.join().unwrap();
            });
        } else {
            drop(pool);
        }
        until(|| threads_named("brief") == 0);
        assert!(
            many.iter()
                .all(|future| future.state() == PromiseState::Resolved)
        );
        assert_eq!(drops.load(SeqCst), 0);
        drop(future);
        assert_eq!(drops.load(SeqCst), 1);
    }
}
