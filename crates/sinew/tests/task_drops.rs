//! What a task owns and what it returns, through every way of handing it over and every way that it can go: each is dropped once, and by the time
//! that whoever is told of it can tell.

mod group_rig;
mod pool_rig;

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use group_rig::{Counted, settled};
use pool_rig::Gate;
use sinew::future::{Promise, PromiseState, SharedFuture};
use sinew::task::{self, Outcome, SubmitError, Task, TaskContext, TaskGroup, TaskPool, Worker};
use sinew::time::now;
use sinew::{CancelToken, Error, Scheduler, SchedulerHandle};

const HOUR: Duration = Duration::from_secs(3600);

/// What a task is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Succeeds,
    Fails,
    GivesUp,
    Panics,
    /// It was asked to stop before it starts.
    IsStopped,
}

const WAYS: [Way; 5] = [
    Way::Succeeds,
    Way::Fails,
    Way::GivesUp,
    Way::Panics,
    Way::IsStopped,
];

impl Way {
    fn end(self) -> (PromiseState, bool) {
        match self {
            Self::Succeeds => (PromiseState::Resolved, true),
            Self::Fails | Self::Panics => (PromiseState::Failed, true),
            Self::GivesUp => (PromiseState::Cancelled, true),
            Self::IsStopped => (PromiseState::Cancelled, false),
        }
    }
}

type Counter = Arc<std::sync::atomic::AtomicUsize>;

/// A task with data and a result that count their drops.
fn task(
    way: Way,
) -> (
    impl FnOnce(&TaskContext<'_>) -> Outcome<Counted> + Send + 'static,
    Counter,
    Counter,
) {
    let (data_drops, result_drops) = (Counter::default(), Counter::default());
    let (data, result) = (Counted(data_drops.clone()), Counted(result_drops.clone()));
    let body = move |_: &TaskContext<'_>| {
        let _data = data;
        match way {
            Way::Succeeds => Outcome::Success(result),
            Way::Fails => Outcome::failed(),
            Way::GivesUp => Outcome::Cancelled,
            Way::Panics => panic!("on purpose"),
            Way::IsStopped => panic!("it runs"),
        }
    };
    (body, data_drops, result_drops)
}

/// Where tasks are handed over.
struct Places {
    pool: TaskPool,
    worker: Worker,
    scheduler: SchedulerHandle,
    group: TaskGroup,
}

type Handed<F> = Result<SharedFuture<Counted>, SubmitError<F>>;

/// How many forms there are of handing a task over.
const FORMS: usize = 19;

/// Hands a task over in one of the forms.
fn hand_over<F>(form: usize, places: &Places, task: F) -> Handed<F>
where
    F: FnOnce(&TaskContext<'_>) -> Outcome<Counted> + Send + 'static,
{
    let Places {
        pool,
        worker,
        scheduler,
        group,
    } = places;
    let token = CancelToken::new();
    match form {
        0 => pool.submit(task),
        1 => pool.try_submit(task),
        2 => pool.submit_timeout(Duration::ZERO, task),
        3 => pool.submit_deadline(now(), task),
        4 => {
            token.cancel("no wait");
            pool.submit_cancel(&token, task)
        }
        5 => pool.under(&token).submit(task),
        6 => worker.submit(task),
        7 => worker.submit_after(Duration::ZERO, task),
        8 => worker.submit_at(now(), task),
        9 => task::spawn_on(scheduler, task),
        10 => group.submit(pool, task),
        11 => group.try_submit(pool, task),
        12 => group.submit_timeout(pool, Duration::ZERO, task),
        13 => group.submit_deadline(pool, now(), task),
        14 => {
            token.cancel("no wait");
            group.submit_cancel(pool, &token, task)
        }
        15 => group.on_worker(worker, task),
        16 => group.on_worker_after(worker, Duration::ZERO, task),
        17 => group.on_worker_at(worker, now(), task),
        _ => group.spawn_on(scheduler, task),
    }
}

fn places(scheduler: SchedulerHandle) -> Places {
    Places {
        pool: pool_rig::pool(1, 1),
        worker: Worker::builder()
            .queue_limit(1)
            .delayed_limit(1)
            .build()
            .unwrap(),
        scheduler,
        group: TaskGroup::builder().limit(2).build(),
    }
}

/// Keeps the worker busy until it is dropped.
fn hold(worker: &Worker) -> mpsc::Sender<()> {
    let (open, opened) = mpsc::channel();
    let (say, said) = mpsc::channel();
    worker
        .submit(move |_| {
            say.send(()).unwrap();
            let _opened = opened.recv();
        })
        .unwrap();
    said.recv().unwrap();
    open
}

/// Hands one task over, which goes in one way, and looks at everything.
fn accepted(form: usize, way: Way, future_goes_first: bool) {
    let (body, data, result) = task(way);
    let (say, said) = mpsc::channel();
    // Nothing can be waited for in the anchor itself.
    let (places, kept) = Scheduler::anchor(|s| {
        let places = places(s.handle());
        let gate = Gate::new(&places.pool);
        let held = hold(&places.worker);
        let future = hand_over(form, &places, body).unwrap();
        assert_eq!((data.load(SeqCst), result.load(SeqCst)), (0, 0));
        if way == Way::IsStopped {
            future.cancel("before");
        }
        let kept = (!future_goes_first).then(|| future.clone());
        let seen = data.clone();
        future.on_done(move |_| say.send(seen.load(SeqCst)).unwrap());
        drop((future, gate.open, held));
        s.run().unwrap();
        (places, kept)
    });
    assert_eq!(
        said.recv().unwrap(),
        1,
        "{form} {way:?}: the data goes first"
    );
    settled(&places.group);
    pool_rig::settled(&places.pool);
    places.worker.join().unwrap();
    if let Some(future) = kept {
        let end = future.end().unwrap();
        let expected = way.end();
        assert_eq!((end.state, end.has_started), (expected.0, Some(expected.1)));
        let is_kept = way == Way::Succeeds;
        assert_eq!(result.load(SeqCst), usize::from(!is_kept));
    }
    let drops = (data.load(SeqCst), result.load(SeqCst));
    assert_eq!(drops, (1, 1), "{form} {way:?}");
}

// contract: T2, T3, T4, T12, T17, T18, T19
#[test]
fn what_was_accepted_is_dropped_once_however_it_ends() {
    for form in 0..FORMS {
        for way in WAYS {
            for future_goes_first in [false, true] {
                accepted(form, way, future_goes_first);
            }
        }
    }
}

/// Has one refused, by executors that are full or closed, and looks at everything.
fn refused(form: usize, is_closed: bool) {
    let (body, data, result) = task(Way::Succeeds);
    let (places, _later) = Scheduler::builder().post_limit(1).anchor(|s| {
        let places = places(s.handle());
        let gate = Gate::new(&places.pool);
        let held = hold(&places.worker);
        let _queued = places.pool.submit(|_| ()).unwrap();
        let _posted = places.worker.submit(|_| ()).unwrap();
        let later = places.worker.submit_after(HOUR, |_| ()).unwrap();
        places.scheduler.post(|| ()).unwrap();
        if is_closed {
            places.pool.close();
            places.worker.stop();
            s.close();
        }
        let before = places.group.stats();
        let refused = hand_over(form, &places, body).unwrap_err();
        assert_eq!((data.load(SeqCst), result.load(SeqCst)), (0, 0), "{form}");
        assert_eq!(refused.is_closed(), is_closed, "{form}: {refused}");
        assert_eq!(places.group.stats().accepted, before.accepted);
        // It can be run all the same.
        let (again, future) = Task::new(refused.into_inner());
        again.run();
        assert_eq!((data.load(SeqCst), result.load(SeqCst)), (1, 0));
        drop(future);
        assert_eq!((data.load(SeqCst), result.load(SeqCst)), (1, 1));
        drop((gate.open, held));
        (places, later)
    });
    settled(&places.group);
    pool_rig::settled(&places.pool);
}

// contract: T4, T11, T12, T17, T18, T19
#[test]
fn what_was_refused_comes_back_whole() {
    for form in 0..FORMS {
        refused(form, true);
        // In the anchor, where nothing may wait, all fail at once.
        refused(form, false);
    }
}

// contract: T4
#[test]
fn what_a_group_refused_touches_nobody() {
    for form in 10..=18 {
        for is_closed in [false, true] {
            let (places, pending) = Scheduler::anchor(|s| {
                let places = places(s.handle());
                let pending: Vec<_> = (0..2)
                    .map(|_| {
                        let (promise, future) = Promise::<()>::new();
                        places.group.add(&future).unwrap();
                        promise
                    })
                    .collect();
                if is_closed {
                    places.group.close();
                }
                let (body, data, result) = task(Way::Succeeds);
                let refused = hand_over(form, &places, body).unwrap_err();
                assert_eq!(
                    (refused.is_closed(), refused.is_again()),
                    (is_closed, !is_closed)
                );
                assert_eq!((data.load(SeqCst), result.load(SeqCst)), (0, 0));
                let stats = places.pool.stats();
                assert_eq!(stats.submitted + stats.rejected, 0);
                let stats = places.worker.stats();
                assert_eq!((stats.queued, stats.delayed), (0, 0));
                assert_eq!(places.scheduler.queued_posts(), 0);
                drop(refused);
                assert_eq!((data.load(SeqCst), result.load(SeqCst)), (1, 1));
                (places, pending)
            });
            drop(pending);
            assert_eq!(settled(&places.group).closed, 2);
        }
    }
}

// contract: T1, T4
#[test]
fn a_starters_future_and_its_data_go_once() {
    for way in 0..4 {
        let group = TaskGroup::builder().limit(1).build();
        let (data, drops) = group_rig::counted();
        let (value, value_drops) = group_rig::counted();
        let blocker = (way == 0).then(|| {
            let (promise, future) = Promise::<()>::new();
            group.add(&future).unwrap();
            promise
        });
        if way == 1 {
            group.close();
        }
        let started = group.start(move || {
            let _data = data;
            if way == 2 {
                return Err(Error::new(sinew::ErrorKind::Invalid, "not today"));
            }
            let (promise, future) = Promise::new();
            let _ = promise.resolve(value);
            Ok(future)
        });
        assert_eq!(started.is_ok(), way == 3);
        let called = way >= 2;
        assert_eq!(drops.load(SeqCst), usize::from(called));
        drop((started, blocker));
        assert_eq!(
            (drops.load(SeqCst), value_drops.load(SeqCst)),
            (1, 1),
            "{way}"
        );
        settled(&group);
    }
}
