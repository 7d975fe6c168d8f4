//! Groups: futures of any origin that are closed, cancelled and waited for together; the counts are right at each moment.

mod group_rig;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use group_rig::{Counted, check, counted, rounds, settled};
use sinew::future::{Promise, PromiseState, SharedFuture};
use sinew::task::{self, CancelOn, Outcome, StartError, TaskContext, TaskGroup, TaskPool};
use sinew::time::now;
use sinew::{
    CancelToken, Error, ErrorKind, Scheduler, WaitError, park, run, spawn_local, yield_now,
};

fn oops() -> Error {
    Error::new(ErrorKind::Invalid, "oops")
}

/// A pending future in the group.
fn pending(group: &TaskGroup) -> (Promise<()>, SharedFuture<()>) {
    let (promise, future) = Promise::new();
    group.add(&future).unwrap();
    (promise, future)
}

// contract: T4, T9
#[test]
fn futures_of_any_origin_are_counted_by_their_ends() {
    let group = TaskGroup::new();
    let (resolved, _a) = pending(&group);
    let (failed, _b) = pending(&group);
    let (cancelled, _c) = pending(&group);
    let (closed, _d) = pending(&group);
    group.add(&SharedFuture::ready(Ok(1_u8))).unwrap();
    assert_eq!((group.stats().active, group.stats().succeeded), (4, 1));
    assert_eq!(group.stats().first_stopped, None);
    resolved.resolve(()).unwrap();
    cancelled.cancel();
    drop(closed);
    failed.fail(oops()).unwrap();
    check(group.stats());
    assert!(!group.is_done(), "it is open");
    let stats = settled(&group);
    assert_eq!(
        (stats.succeeded, stats.failed, stats.cancelled, stats.closed),
        (2, 1, 1, 1)
    );
    assert_eq!(stats.first_stopped, Some(PromiseState::Cancelled));
    assert_eq!(group.first_error().unwrap().message(), "oops");
    assert!(!stats.is_cancelled, "by default all ends are collected");
}

// contract: T9
#[test]
fn the_first_failures_error_is_the_one_that_is_kept() {
    let group = TaskGroup::new();
    let (one, _a) = pending(&group);
    let (two, _b) = pending(&group);
    assert!(group.first_error().is_none());
    two.fail(Error::new(ErrorKind::Exists, "first")).unwrap();
    one.fail(Error::new(ErrorKind::Exists, "second")).unwrap();
    assert_eq!(group.first_error().unwrap().message(), "first");
    assert_eq!(settled(&group).failed, 2);
}

// contract: T4
#[test]
fn a_starter_is_called_only_if_there_is_a_place() {
    let group = TaskGroup::builder().limit(1).build();
    let (first, _future) = pending(&group);
    let (data, drops) = counted();
    let starter = move || {
        drop(data);
        Ok::<_, Error>(SharedFuture::ready(Ok(())))
    };
    let Err(StartError::Full(starter)) = group.start(starter) else {
        panic!("it is full")
    };
    first.resolve(()).unwrap();
    group.close();
    let Err(StartError::Closed(starter)) = group.start(starter) else {
        panic!("it is closed")
    };
    assert_eq!(drops.load(SeqCst), 0);
    drop(starter);
    assert_eq!(drops.load(SeqCst), 1);
    let stats = settled(&group);
    assert_eq!((stats.accepted, stats.rejected), (1, 2));
}

// contract: T4
#[test]
fn a_starter_that_fails_or_panics_leaves_nothing() {
    let group = TaskGroup::builder().limit(1).build();
    let failed = group.start(|| Err::<SharedFuture<()>, _>("not today"));
    assert!(matches!(failed, Err(StartError::Failed("not today"))));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        group.start(|| -> Result<SharedFuture<()>, Error> { panic!("not at all") })
    }));
    assert!(panicked.is_err());
    let started = group.start(|| Ok::<_, Error>(SharedFuture::ready(Ok(5))));
    assert_eq!(started.ok().unwrap().get().unwrap().unwrap(), &5);
    let stats = settled(&group);
    assert_eq!((stats.accepted, stats.rejected), (1, 2));
}

// contract: T4
#[test]
fn the_end_waits_for_a_starter_and_a_cancel_reaches_what_it_starts() {
    for by_cancel in [false, true] {
        let group = TaskGroup::new();
        let (promise, future) = Promise::<()>::new();
        let started = group.start(|| {
            if by_cancel {
                assert!(group.cancel("over"));
            } else {
                assert!(group.close());
            }
            assert!(!group.is_done(), "the starter runs");
            assert!(!promise.is_cancel_requested());
            Ok::<_, Error>(future)
        });
        let future = started.ok().unwrap();
        assert!(!group.is_done());
        assert_eq!(promise.is_cancel_requested(), by_cancel);
        if by_cancel {
            assert_eq!(&*future.cause().unwrap().reason, "over");
        }
        assert_eq!(group.wait_timeout(Duration::ZERO), Err(WaitError::Timeout));
        promise.resolve(()).unwrap();
        assert_eq!(
            settled(&group).succeeded,
            1,
            "how it ends is the producer's to say"
        );
    }
}

// contract: T4
#[test]
fn a_starter_that_fails_after_the_close_ends_the_group() {
    let group = TaskGroup::new();
    let failed = group.start(|| {
        group.close();
        assert!(!group.is_done());
        Err::<SharedFuture<()>, _>(())
    });
    assert!(failed.is_err());
    assert!(group.is_done());
    assert_eq!(settled(&group).accepted, 0);
}

// contract: T5
#[test]
fn close_lets_the_items_end_and_cancel_asks_them_to() {
    let group = TaskGroup::new();
    let token = group.cancel_token();
    let (promise, future) = pending(&group);
    assert!(group.close());
    assert!(!group.close(), "once only");
    assert!(group.add(&future).unwrap_err().is_closed());
    assert!(future.cause().is_none() && !token.is_cancelled());
    assert!(group.cancel("enough"), "after a close too");
    assert!(!group.cancel("again"));
    assert_eq!(&*future.cause().unwrap().reason, "enough");
    assert!(token.is_cancelled() && !group.is_done());
    drop(promise);
    let stats = settled(&group);
    assert_eq!((stats.closed, stats.rejected), (1, 1));
    assert!(stats.is_cancelled);
    assert!(TaskGroup::new().cancel("empty"));
}

// contract: T5
#[test]
fn every_wait_closes_first() {
    type Form = fn(&TaskGroup) -> Result<(), WaitError>;
    let forms: [Form; 3] = [
        |group| group.wait_timeout(Duration::ZERO),
        |group| group.wait_timeout(Duration::from_millis(1)),
        |group| group.wait_deadline(now() - Duration::from_secs(1)),
    ];
    for wait in forms {
        let group = TaskGroup::new();
        let (promise, future) = pending(&group);
        assert_eq!(wait(&group), Err(WaitError::Timeout));
        assert!(group.add(&future).unwrap_err().is_closed());
        assert_eq!(future.state(), PromiseState::Pending);
        promise.resolve(()).unwrap();
        wait(&group).unwrap();
        settled(&group);
    }
    // From a coroutine that is cancelled, and from several at once.
    run(|| {
        let group = Arc::new(TaskGroup::new());
        let (promise, _future) = pending(&group);
        let waits = || {
            let group = group.clone();
            spawn_local(move || group.wait())
        };
        let handles = [waits(), waits(), waits()];
        yield_now().unwrap();
        handles[1].cancel("stop");
        yield_now().unwrap();
        promise.resolve(()).unwrap();
        let ends = handles.map(|handle| handle.join().unwrap());
        assert_eq!(ends, [Ok(()), Err(WaitError::Cancelled), Ok(())]);
        settled(&group);
    });
}

// contract: T6
#[test]
fn an_item_that_ends_frees_its_place_at_once() {
    let group = TaskGroup::builder().limit(2).build();
    let (one, _a) = pending(&group);
    let (two, _b) = pending(&group);
    let (three, third) = Promise::<()>::new();
    let refused = group.add(&third).unwrap_err();
    assert!(refused.is_again() && !refused.is_closed());
    assert_eq!(Error::from(refused).kind(), ErrorKind::Again);
    one.resolve(()).unwrap();
    group.add(&third).unwrap();
    assert!(group.add(&third).unwrap_err().is_again());
    two.resolve(()).unwrap();
    drop(three);
    let stats = settled(&group);
    assert_eq!((stats.accepted, stats.rejected), (3, 2));
}

// contract: T4, T6
#[test]
fn a_reserved_place_counts_against_the_limit() {
    let group = TaskGroup::builder().limit(1).build();
    let (promise, future) = Promise::<()>::new();
    let started = group.start(|| {
        assert!(group.add(&future).unwrap_err().is_again());
        Ok::<_, Error>(SharedFuture::ready(Ok(())))
    });
    assert!(started.is_ok());
    group.add(&future).unwrap();
    promise.resolve(()).unwrap();
    let stats = settled(&group);
    assert_eq!((stats.accepted, stats.rejected), (2, 1));
}

// contract: T7
#[test]
fn the_first_such_end_cancels_the_siblings() {
    type End = fn(Promise<()>);
    let ends: [(End, CancelOn); 3] = [
        (|promise| promise.fail(oops()).unwrap(), CancelOn::FAILED),
        (|promise| assert!(promise.cancel()), CancelOn::CANCELLED),
        (drop, CancelOn::CLOSED),
    ];
    let policies = [
        CancelOn::NEVER,
        CancelOn::FAILED,
        CancelOn::CANCELLED,
        CancelOn::CLOSED,
        CancelOn::FAILED | CancelOn::CLOSED,
        CancelOn::STOPPED,
    ];
    for policy in policies {
        for (end, on) in ends {
            let group = TaskGroup::builder().cancel_on(policy).build();
            let (promise, _future) = pending(&group);
            let (sibling, future) = pending(&group);
            let (fine, _other) = pending(&group);
            fine.resolve(()).unwrap();
            assert!(!group.stats().is_closed, "a success cancels nothing");
            end(promise);
            let strikes = policy | on == policy;
            assert_eq!(group.stats().is_closed, strikes);
            assert_eq!(sibling.is_cancel_requested(), strikes);
            assert_eq!(group.cancel_token().is_cancelled(), strikes);
            if strikes {
                assert!(group.add(&future).unwrap_err().is_closed());
            }
            sibling.resolve(()).unwrap();
            let stats = settled(&group);
            assert_eq!((stats.succeeded, stats.is_cancelled), (2, strikes));
        }
    }
}

// contract: T8
#[test]
fn a_close_closes_the_children_and_a_cancel_reaches_the_leaves() {
    let builder = TaskGroup::builder();
    let parent = builder.build();
    let child = parent.child(&builder).unwrap();
    let grandchild = child.child(&builder).unwrap();
    let (leaf, future) = pending(&grandchild);
    let (own, own_future) = pending(&child);
    assert!(parent.close());
    assert!(child.stats().is_closed && grandchild.stats().is_closed);
    assert!(grandchild.add(&future).unwrap_err().is_closed());
    assert!(!leaf.is_cancel_requested() && !own.is_cancel_requested());
    assert!(parent.child(&builder).unwrap_err().is_closed());
    parent.cancel("all of it");
    assert_eq!(&*future.cause().unwrap().reason, "all of it");
    assert_eq!(&*own_future.cause().unwrap().reason, "all of it");
    own.resolve(()).unwrap();
    assert!(!child.is_done() && !parent.is_done());
    leaf.fail(oops()).unwrap();
    assert_eq!(settled(&grandchild).failed, 1);
    assert_eq!(
        settled(&child).succeeded,
        2,
        "a child's failure is not its own"
    );
    assert_eq!(settled(&parent).succeeded, 1);
}

// contract: T8
#[test]
fn a_child_that_ends_by_itself_leaves_its_parent_alone() {
    let builder = TaskGroup::builder().limit(1).cancel_on(CancelOn::STOPPED);
    let parent = builder.build();
    for _ in 0..3 {
        let child = parent.child(&builder).unwrap();
        assert!(
            parent.child(&builder).unwrap_err().is_again(),
            "it takes a place"
        );
        let (promise, _future) = pending(&child);
        promise.cancel();
        assert!(child.stats().is_cancelled && child.is_done());
        assert!(!parent.stats().is_closed);
        settled(&child);
    }
    assert_eq!(settled(&parent).succeeded, 3);
}

// contract: T10
#[test]
fn dropping_a_group_asks_what_is_active_to_stop_and_fakes_no_end() {
    let group = TaskGroup::new();
    let done = group.done();
    let (promise, future) = pending(&group);
    drop(group);
    assert_eq!(&*future.cause().unwrap().reason, "the group was dropped");
    assert_eq!(future.state(), PromiseState::Pending);
    assert_eq!(done.state(), PromiseState::Pending);
    promise.resolve(()).unwrap();
    assert_eq!(done.state(), PromiseState::Resolved);
    let group = TaskGroup::new();
    let done = group.done();
    drop(group);
    assert_eq!(done.state(), PromiseState::Resolved);
}

// contract: T6, T9
#[test]
fn close_cancel_and_ends_at_the_same_time_keep_the_counts() {
    for round in 0..rounds(200) {
        let group = Arc::new(TaskGroup::builder().limit(8).build());
        let drops = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (group, drops) = (group.clone(), drops.clone());
                thread::spawn(move || {
                    let (mut taken, mut refused) = (0_u64, 0_u64);
                    for n in 0..20 {
                        let (promise, future) = Promise::new();
                        match group.add(&future) {
                            Ok(()) => taken += 1,
                            Err(_) => refused += 1,
                        }
                        match n % 4 {
                            0 => drop(promise),
                            1 => assert!(promise.cancel()),
                            _ => promise.resolve(Counted(drops.clone())).unwrap(),
                        }
                        check(group.stats());
                    }
                    (taken, refused)
                })
            })
            .collect();
        for _ in 0..round % 50 {
            check(group.stats());
        }
        if round % 2 == 0 {
            group.cancel("over");
        } else {
            group.close();
        }
        let (mut taken, mut refused) = (0, 0);
        for thread in threads {
            let (some, others) = thread.join().unwrap();
            (taken, refused) = (taken + some, refused + others);
        }
        let stats = settled(&group);
        assert_eq!((stats.accepted, stats.rejected), (taken, refused));
        assert_eq!(drops.load(SeqCst), 30);
    }
}

/// A pool whose only worker is busy, and whose queue is full: the sender opens it.
fn full_pool() -> (TaskPool, mpsc::Sender<()>) {
    let pool = TaskPool::builder()
        .threads(1)
        .queue_limit(1)
        .build()
        .unwrap();
    let (open, opened) = mpsc::channel::<()>();
    let (say, said) = mpsc::channel();
    pool.submit(move |_| {
        say.send(()).unwrap();
        let _opened = opened.recv();
    })
    .unwrap();
    said.recv().unwrap();
    pool.submit(|_| ()).unwrap();
    (pool, open)
}

// contract: T17
#[test]
fn a_task_is_in_the_group_and_in_the_pool_or_in_neither() {
    let group = TaskGroup::builder().limit(2).build();
    let (pool, open) = full_pool();
    let (data, drops) = counted();
    let task = move |_: &TaskContext<'_>| drop(data);
    let refused = group.try_submit(&pool, task).unwrap_err();
    assert!(refused.is_again());
    let refused = group
        .submit_timeout(&pool, Duration::from_millis(1), refused.into_inner())
        .unwrap_err();
    assert!(refused.is_timeout());
    let refused = group
        .submit_deadline(&pool, now(), refused.into_inner())
        .unwrap_err();
    assert!(refused.is_timeout());
    let token = CancelToken::new();
    token.cancel("before");
    let refused = group
        .submit_cancel(&pool, &token, refused.into_inner())
        .unwrap_err();
    assert!(refused.is_cancelled());
    let stats = group.stats();
    assert_eq!((stats.accepted, stats.rejected, stats.active), (0, 4, 0));
    assert_eq!(drops.load(SeqCst), 0);
    drop(open);
    group.submit(&pool, refused.into_inner()).unwrap();
    assert_eq!(settled(&group).succeeded, 1);
    assert_eq!(drops.load(SeqCst), 1);
    let submitted = pool.stats().submitted;
    assert!(group.submit(&pool, |_| ()).unwrap_err().is_closed());
    assert_eq!(
        pool.stats().submitted,
        submitted,
        "a closed group does not touch the pool"
    );
    pool.close();
    let group = TaskGroup::new();
    assert!(group.submit(&pool, |_| ()).unwrap_err().is_closed());
    assert_eq!(settled(&group).accepted, 0);
}

// contract: T17
#[test]
fn a_groups_cancel_ends_the_wait_for_room_and_its_close_does_not() {
    for by_cancel in [false, true] {
        let group = Arc::new(TaskGroup::new());
        let (pool, open) = full_pool();
        let pool = Arc::new(pool);
        run(|| {
            let (ours, theirs) = (group.clone(), pool.clone());
            let submitter = spawn_local(move || ours.submit(&theirs, |_| Outcome::Success(7)));
            yield_now().unwrap();
            assert!(!submitter.is_finished());
            let end = |group: &TaskGroup| {
                if by_cancel {
                    group.cancel("over")
                } else {
                    group.close()
                }
            };
            assert!(end(&group));
            assert!(!group.is_done(), "a place is reserved");
            if !by_cancel {
                yield_now().unwrap();
                assert!(!submitter.is_finished());
                open.send(()).unwrap();
            }
            let result = submitter.join().unwrap();
            if by_cancel {
                assert!(result.unwrap_err().is_cancelled());
                assert!(group.is_done(), "the place is given back");
                assert_eq!(settled(&group).accepted, 0);
            } else {
                let future = result.unwrap();
                future.wait().unwrap();
                assert_eq!(settled(&group).succeeded, 1);
            }
        });
        // The pool's drop waits for its tasks.
        drop(open);
    }
}

// contract: T17
#[test]
fn a_groups_cancel_reaches_what_the_pool_runs_and_what_it_has_queued() {
    let pool = TaskPool::builder().threads(1).build().unwrap();
    let group = TaskGroup::new();
    let (say, said) = mpsc::channel();
    let running = group
        .submit(&pool, move |context: &TaskContext<'_>| {
            say.send(()).unwrap();
            context.cancel_token().wait().unwrap();
            Outcome::Success(())
        })
        .unwrap();
    let queued = group
        .submit(&pool, |_: &TaskContext<'_>| -> Outcome<()> {
            panic!("it runs")
        })
        .unwrap();
    said.recv().unwrap();
    group.cancel("over");
    let stats = settled(&group);
    assert_eq!((stats.succeeded, stats.cancelled), (1, 1));
    assert_eq!(running.state(), PromiseState::Resolved);
    assert_eq!(queued.state(), PromiseState::Cancelled);
}

// contract: T18
#[test]
fn a_task_runs_in_a_coroutine_of_the_scheduler_that_was_named() {
    assert!(
        task::spawn(|_| ()).unwrap_err().is_state(),
        "no scheduler here"
    );
    Scheduler::anchor(|s| {
        let handle = s.handle();
        let home = thread::current().id();
        let elsewhere = thread::spawn(move || {
            task::spawn_on(&handle, move |_| {
                assert!(sinew::in_coroutine());
                yield_now().unwrap();
                Outcome::Success(thread::current().id())
            })
            .unwrap()
        });
        let future = elsewhere.join().unwrap();
        assert_eq!(
            future.state(),
            PromiseState::Pending,
            "accepted, not started"
        );
        s.run().unwrap();
        assert_eq!(future.get().unwrap().unwrap(), &home);
    });
}

// contract: T18
#[test]
fn a_cancel_wakes_a_parked_task_whose_word_stands() {
    run(|| {
        let begun = Arc::new(AtomicUsize::new(0));
        let begin = |succeeds: bool| {
            let begun = begun.clone();
            task::spawn(move |context: &TaskContext<'_>| {
                begun.fetch_add(1, SeqCst);
                assert_eq!(park(), Err(WaitError::Cancelled));
                assert!(context.is_cancelled());
                if succeeds {
                    Outcome::Success(3)
                } else {
                    Outcome::Cancelled
                }
            })
            .unwrap()
        };
        let (one, two) = (begin(true), begin(false));
        while begun.load(SeqCst) < 2 {
            yield_now().unwrap();
        }
        one.cancel("wake up");
        two.cancel("wake up");
        one.wait().unwrap();
        two.wait().unwrap();
        assert_eq!(one.get().unwrap().unwrap(), &3);
        assert_eq!(two.state(), PromiseState::Cancelled);
    });
}

// contract: T18
#[test]
fn one_cancelled_before_it_starts_never_runs() {
    Scheduler::anchor(|s| {
        let (data, drops) = counted();
        let future = task::spawn_on(&s.handle(), move |_| {
            let _data = &data;
            panic!("it runs");
            #[expect(unreachable_code, reason = "gives the closure its type")]
            Outcome::Success(())
        })
        .unwrap();
        future.cancel("before");
        s.run().unwrap();
        assert_eq!(future.state(), PromiseState::Cancelled);
        assert_eq!(drops.load(SeqCst), 1);
    });
}

// contract: T18
#[test]
fn a_scheduler_that_is_closed_refuses_or_fails_it() {
    let (data, drops) = counted();
    let (future, handle) = Scheduler::anchor(|s| {
        let handle = s.handle();
        let future = task::spawn_on(&handle, move |_| drop(data)).unwrap();
        s.close();
        assert!(task::spawn_on(&handle, |_| ()).unwrap_err().is_closed());
        (future, handle)
    });
    let error = Error::from(future.get().unwrap().unwrap_err().clone());
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert_eq!(drops.load(SeqCst), 1);
    let (data, drops) = counted();
    let refused = task::spawn_on(&handle, move |_| drop(data)).unwrap_err();
    assert!(refused.is_closed());
    assert_eq!(drops.load(SeqCst), 0, "the task came back");
    drop(refused);
    assert_eq!(drops.load(SeqCst), 1);
}

// contract: T18
#[test]
fn a_full_post_queue_refuses_for_now() {
    Scheduler::builder().post_limit(1).anchor(|s| {
        let handle = s.handle();
        let group = TaskGroup::new();
        let first = group.spawn_on(&handle, |_| ()).unwrap();
        let refused = group
            .spawn_on(&handle, |_| Outcome::Success(2))
            .unwrap_err();
        assert!(refused.is_again());
        assert_eq!(group.stats().active, 1);
        s.run().unwrap();
        assert!(first.is_done());
        let second = group.spawn_on(&handle, refused.into_inner()).unwrap();
        s.run().unwrap();
        assert_eq!(second.get().unwrap().unwrap(), &2);
        assert_eq!(settled(&group).succeeded, 2);
        let posts = handle.queued_posts();
        let (data, drops) = counted();
        let refused = group.spawn_on(&handle, move |_| drop(data)).unwrap_err();
        assert!(refused.is_closed());
        assert_eq!((handle.queued_posts(), drops.load(SeqCst)), (posts, 0));
    });
}

// contract: T18
#[test]
fn a_groups_cancel_wakes_its_coroutines() {
    run(|| {
        let group = TaskGroup::builder().cancel_on(CancelOn::FAILED).build();
        for _ in 0..10 {
            group.spawn(|_| park()).unwrap();
        }
        group
            .spawn(|_| {
                for _ in 0..3 {
                    yield_now()?;
                }
                Err::<(), _>(oops())
            })
            .unwrap();
        let stats = settled(&group);
        assert_eq!((stats.failed, stats.cancelled), (1, 10));
        assert_eq!(group.first_error().unwrap().message(), "oops");
    });
}
