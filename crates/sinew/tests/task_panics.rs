//! Panics in all that a pool, a group and a worker call: every task ends once, the counts hold, and whoever waits goes on.

mod group_rig;
mod pool_rig;

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};

use pool_rig::{Gate, pool};
use sinew::CancelToken;
use sinew::future::{PromiseState, SharedFuture};
use sinew::inspect::on_unhandled;
use sinew::task::{Outcome, SubmitError, TaskContext, TaskGroup, TaskPool, Worker};

/// Panics when it is dropped, and counts that.
struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        if !std::thread::panicking() {
            panic!("a drop that panics");
        }
    }
}

/// Where the user's code panics.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Body,
    Payload,
    DataOfOneThatRuns,
    DataOfOneThatDoesNot,
    Value,
    OnDone,
    ListenerOfTheTask,
    ListenerOfTheGroup,
    Everywhere,
}

const PLACES: [Place; 9] = [
    Place::Body,
    Place::Payload,
    Place::DataOfOneThatRuns,
    Place::DataOfOneThatDoesNot,
    Place::Value,
    Place::OnDone,
    Place::ListenerOfTheTask,
    Place::ListenerOfTheGroup,
    Place::Everywhere,
];

impl Place {
    fn is(self, place: Self) -> bool {
        self == place || self == Self::Everywhere
    }
}

/// What a task is made of, with how often its bombs went off.
fn task(
    place: Place,
    booms: &Arc<AtomicUsize>,
) -> impl FnOnce(&TaskContext<'_>) -> Outcome<Option<Value>> + Send + 'static {
    let has_data = place.is(Place::DataOfOneThatRuns) || place.is(Place::DataOfOneThatDoesNot);
    let data = has_data.then(|| Bomb(booms.clone()));
    let booms = booms.clone();
    move |context| {
        let _data = data;
        if place.is(Place::ListenerOfTheTask) {
            let listener = context.cancel_token().on_cancel(|_| panic!("a listener"));
            std::mem::forget(listener);
        }
        if place == Place::Payload {
            panic_any(Bomb(booms));
        }
        if place == Place::Body {
            panic!("a body");
        }
        Outcome::Success(place.is(Place::Value).then(|| Value(Bomb(booms))))
    }
}

/// A value that panics when it is dropped, and may be looked at from anywhere.
struct Value(#[expect(dead_code, reason = "it is there to be dropped")] Bomb);

type Handed = SharedFuture<Option<Value>>;

fn listen(place: Place, future: &Handed) {
    if place.is(Place::OnDone) {
        future.on_done(|_| panic!("a callback"));
    }
}

/// What the caller itself drops or fires may panic there.
fn contained(f: impl FnOnce()) {
    drop(catch_unwind(AssertUnwindSafe(f)));
}

fn accepted<F>(result: Result<Handed, SubmitError<F>>) -> Handed {
    result.unwrap_or_else(|refused| panic!("{:?}", refused.kind()))
}

fn in_a_pool(place: Place) {
    let booms = Arc::new(AtomicUsize::new(0));
    let pool: TaskPool = pool(1, 8);
    let group = TaskGroup::new();
    if place.is(Place::ListenerOfTheGroup) {
        std::mem::forget(group.cancel_token().on_cancel(|_| panic!("a listener")));
    }
    let gate = Gate::new(&pool);
    let futures: Vec<_> = (0..3)
        .map(|_| accepted(group.submit(&pool, task(place, &booms))))
        .collect();
    futures.iter().for_each(|future| listen(place, future));
    let (one, others) = futures.split_first().unwrap();
    contained(|| one.cancel("before it runs"));
    gate.open();
    for future in others {
        future.wait().unwrap();
    }
    // One that was running, one behind it.
    let gate = Gate::new(&pool);
    let last = accepted(group.submit(&pool, task(place, &booms)));
    contained(|| {
        group.cancel("the group");
    });
    contained(|| {
        pool.cancel("the pool");
    });
    drop(gate);
    group.wait().unwrap();
    assert_eq!(last.state(), PromiseState::Cancelled);
    assert_eq!(one.state(), PromiseState::Cancelled);
    let stats = pool_rig::settled(&pool);
    // The two gates besides.
    assert_eq!(stats.submitted, 6, "{place:?}");
    let stats = group.stats();
    group_rig::check(stats);
    assert_eq!((stats.accepted, stats.completed), (4, 4), "{place:?}");
    if matches!(
        place,
        Place::Body | Place::Payload | Place::DataOfOneThatRuns
    ) {
        assert_eq!(stats.failed, 2, "{place:?}");
    }
    contained(|| drop(last));
    futures
        .into_iter()
        .for_each(|future| contained(|| drop(future)));
    drop((pool, group));
}

fn on_a_worker(place: Place) {
    let booms = Arc::new(AtomicUsize::new(0));
    let worker = Worker::new().unwrap();
    let group = TaskGroup::new();
    let (open, opened) = mpsc::channel::<()>();
    let holds = worker.submit(move |_| {
        let _opened = opened.recv();
    });
    holds.unwrap();
    let futures: Vec<_> = (0..3)
        .map(|_| accepted(group.on_worker(&worker, task(place, &booms))))
        .collect();
    futures.iter().for_each(|future| listen(place, future));
    contained(|| futures[0].cancel("before it runs"));
    drop(open);
    group.wait().unwrap();
    let stats = group.stats();
    group_rig::check(stats);
    assert_eq!((stats.accepted, stats.cancelled), (3, 1), "{place:?}");
    // It goes on.
    let after = worker.submit(|_| Outcome::Success(1)).unwrap();
    after.wait().unwrap();
    assert_eq!(after.get().unwrap().unwrap(), &1);
    futures
        .into_iter()
        .for_each(|future| contained(|| drop(future)));
    worker.join().unwrap();
}

// contract: T1, T2, T3, T9, T16
#[test]
fn the_counts_hold_and_all_ends_wherever_it_panics() {
    // What is contained is told here, and is no matter.
    on_unhandled(Some(Box::new(|_| {})));
    for place in PLACES {
        in_a_pool(place);
        on_a_worker(place);
    }
    a_starter_and_a_release();
    on_unhandled(None);
}

fn a_starter_and_a_release() {
    let pool = pool(1, 4);
    let group = TaskGroup::new();
    let started = catch_unwind(AssertUnwindSafe(|| {
        group.start(|| -> Result<SharedFuture<()>, ()> { panic!("a starter") })
    }));
    assert!(started.is_err());
    // The place is given back, also among those who look for their own.
    group.wait().unwrap();
    assert_eq!((group.stats().rejected, group.stats().accepted), (1, 0));
    let after = CancelToken::new();
    let fires = after.clone();
    drop(pool.finalizer(|| panic!("a release")).unwrap());
    drop(pool.finalizer(move || fires.cancel("ran")).unwrap());
    after.wait().unwrap();
    pool_rig::settled(&pool);
}
