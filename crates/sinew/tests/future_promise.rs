//! Promises: pending, then one end; any number of references; the value dropped once, on the right side.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use sinew::future::{Promise, PromiseState, SharedFuture, TaskError, all, any, race};
use sinew::inspect::{Unhandled, on_unhandled};
use sinew::{
    Error, ErrorKind, WaitError, block_on, current, go_local, run, spawn_local, yield_now,
};

fn rounds(number: u64) -> u64 {
    let factor = std::env::var("SINEW_STRESS").map_or(1, |text| match text.as_str() {
        "full" => 100,
        text => text
            .parse()
            .unwrap_or_else(|_| panic!("SINEW_STRESS={text} is not a number")),
    });
    number * factor
}

/// A value that counts its drops.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn counted() -> (Counted, Arc<AtomicUsize>) {
    let drops = Arc::new(AtomicUsize::new(0));
    (Counted(drops.clone()), drops)
}

fn oops() -> Error {
    Error::new(ErrorKind::Internal, "oops")
}

// contract: T1
#[test]
fn each_of_the_four_ends_stands() {
    let (promise, future) = Promise::new();
    assert_eq!(future.state(), PromiseState::Pending);
    assert!(future.get().is_none());
    let other = promise.clone();
    promise.resolve(1).unwrap();
    assert_eq!(future.state(), PromiseState::Resolved);
    assert_eq!(other.clone().resolve(2), Err(2), "the value comes back");
    assert_eq!(other.clone().fail(oops()).unwrap_err().message(), "oops");
    assert!(!other.cancel());
    assert_eq!(future.get().unwrap().unwrap(), &1);

    let (promise, future) = Promise::<u8>::new();
    promise.fail(oops()).unwrap();
    assert_eq!(future.state(), PromiseState::Failed);
    assert!(matches!(future.get(), Some(Err(TaskError::Failed(_)))));

    let (promise, future) = Promise::<u8>::new();
    assert!(promise.cancel());
    assert_eq!(future.state(), PromiseState::Cancelled);
    assert!(matches!(future.get(), Some(Err(TaskError::Cancelled))));

    let (promise, future) = Promise::<u8>::new();
    drop(promise.clone());
    assert_eq!(future.state(), PromiseState::Pending, "one is left");
    drop(promise);
    assert_eq!(future.state(), PromiseState::Closed);
    assert!(matches!(future.get(), Some(Err(TaskError::Closed))));
}

// contract: T1
#[test]
fn the_value_is_dropped_once_with_the_last_reference() {
    let (value, drops) = counted();
    let (promise, future) = Promise::new();
    let (kept, second) = (promise.clone(), future.clone());
    assert!(promise.resolve(value).is_ok());
    drop(future);
    drop(second);
    assert_eq!(drops.load(SeqCst), 0, "the promise's clone is a reference");
    drop(kept);
    assert_eq!(drops.load(SeqCst), 1);

    // Nobody waits any more.
    let (value, drops) = counted();
    let (promise, future) = Promise::new();
    drop(future);
    assert!(promise.resolve(value).is_ok());
    assert_eq!(drops.load(SeqCst), 1);

    // A lost completion.
    let (value, drops) = counted();
    let (promise, future) = Promise::new();
    let late = promise.clone();
    assert!(promise.cancel());
    drop(late.resolve(value));
    assert_eq!(drops.load(SeqCst), 1);
    drop(future);
    assert_eq!(drops.load(SeqCst), 1);

    // Taken out.
    let (value, drops) = counted();
    let future = SharedFuture::ready(Ok(value));
    let second = future.clone();
    let future = future.try_take().unwrap_err();
    drop(second);
    let value = future.try_take().ok().unwrap().unwrap();
    assert_eq!(drops.load(SeqCst), 0);
    drop(value);
    assert_eq!(drops.load(SeqCst), 1);

    let (promise, pending) = Promise::<u8>::new();
    assert!(pending.try_take().is_err());
    drop(promise);
}

// contract: T1
#[test]
fn a_race_of_completions_has_one_winner_and_drops_each_value_once() {
    const RIVALS: usize = 3;
    let barrier = Arc::new(Barrier::new(RIVALS + 1));
    for round in 0..rounds(2_000) {
        let (promise, future) = Promise::new();
        let drops: Vec<_> = (0..RIVALS).map(|_| Arc::new(AtomicUsize::new(0))).collect();
        let wins = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for drops in &drops {
                let (promise, barrier, wins) = (promise.clone(), barrier.clone(), wins.clone());
                scope.spawn(move || {
                    barrier.wait();
                    let result = promise.resolve(Counted(drops.clone()));
                    wins.fetch_add(usize::from(result.is_ok()), SeqCst);
                });
            }
            // The last producer may be any of them, or this one.
            let ours = (round % 2 == 0).then(|| promise.clone());
            drop(promise);
            barrier.wait();
            drop(ours);
            future.wait_timeout(Duration::from_secs(60)).unwrap();
            assert!(matches!(future.get(), Some(Ok(_))));
        });
        assert_eq!(wins.load(SeqCst), 1);
        let dropped: usize = drops.iter().map(|drops| drops.load(SeqCst)).sum();
        assert_eq!(dropped, RIVALS - 1);
        drop(future);
        for drops in &drops {
            assert_eq!(drops.load(SeqCst), 1);
        }
    }
}

// contract: T1
#[test]
fn coroutines_threads_and_tasks_wait_for_one_promise() {
    let (promise, future) = Promise::new();
    let at_thread = future.clone();
    let thread = std::thread::spawn(move || {
        at_thread.wait().unwrap();
        *at_thread.get().unwrap().unwrap()
    });
    let at_task = future.clone();
    let task = std::thread::spawn(move || block_on(async { at_task.await.unwrap() }).unwrap());
    let seen = run(|| {
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let future = future.clone();
                spawn_local(move || {
                    future.wait().unwrap();
                    *future.get().unwrap().unwrap()
                })
            })
            .collect();
        go_local(move || promise.resolve(7).unwrap());
        waiting
            .into_iter()
            .map(|waiting| waiting.join().unwrap())
            .sum::<i32>()
    });
    assert_eq!(seen, 70);
    assert_eq!(thread.join().unwrap(), 7);
    assert_eq!(task.join().unwrap(), 7);
}

// contract: T1
#[test]
fn waits_time_out_are_cancelled_and_leave_the_promise_alone() {
    let (promise, future) = Promise::new();
    assert_eq!(
        future.wait_timeout(Duration::from_micros(50)),
        Err(WaitError::Timeout)
    );
    run(|| {
        for limit in [0, 1, 50_000].map(Duration::from_nanos) {
            assert_eq!(future.wait_timeout(limit), Err(WaitError::Timeout));
        }
        let past = sinew::time::now() - Duration::from_millis(1);
        assert_eq!(future.wait_deadline(past), Err(WaitError::Timeout));
        let at_child = future.clone();
        let child = spawn_local(move || at_child.wait());
        yield_now().unwrap();
        child.cancel("enough");
        assert_eq!(child.join().unwrap(), Err(WaitError::Cancelled));
        let at_child = future.clone();
        let child = spawn_local(move || {
            current().unwrap().cancel_token().cancel("before");
            let before = at_child.wait();
            promise.resolve(1).unwrap();
            (before, at_child.wait())
        });
        assert_eq!(
            child.join().unwrap(),
            (Err(WaitError::Cancelled), Ok(())),
            "an end that is there wins"
        );
        assert_eq!(future.wait_deadline(past), Ok(()));
    });
}

// contract: T1
#[test]
fn callbacks_run_once_in_their_order_or_at_once() {
    let (promise, future) = Promise::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    for number in 0..3 {
        let order = order.clone();
        future.on_done(move |result| order.lock().unwrap().push((number, result.copied().ok())));
    }
    assert!(order.lock().unwrap().is_empty());
    promise.resolve("value").unwrap();
    let late = order.clone();
    future.on_done(move |result| late.lock().unwrap().push((3, result.copied().ok())));
    let expected: Vec<_> = (0..4).map(|number| (number, Some("value"))).collect();
    assert_eq!(*order.lock().unwrap(), expected);

    // A promise that is closed tells as well; what was not called is dropped.
    let (promise, future) = Promise::<u8>::new();
    let closed = Arc::new(AtomicUsize::new(0));
    let at_callback = closed.clone();
    future.on_done(move |result| {
        assert!(matches!(result, Err(TaskError::Closed)));
        let event = sinew::event::Event::auto();
        assert_eq!(event.wait(), Err(WaitError::State), "it must not wait");
        at_callback.fetch_add(1, SeqCst);
    });
    drop(future);
    drop(promise);
    assert_eq!(closed.load(SeqCst), 1);
    assert_eq!(Arc::strong_count(&closed), 1);
}

// contract: T1
#[test]
fn a_callback_registered_during_the_completion_runs_once() {
    for _ in 0..rounds(2_000) {
        let (promise, future) = Promise::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let thread = std::thread::spawn(move || promise.resolve(()).unwrap());
        for _ in 0..4 {
            let calls = calls.clone();
            future.on_done(move |_| {
                calls.fetch_add(1, SeqCst);
            });
        }
        thread.join().unwrap();
        assert_eq!(calls.load(SeqCst), 4);
    }
}

// contract: T1
#[test]
fn a_cancel_is_a_wish_of_which_the_producer_is_told() {
    let (promise, future) = Promise::new();
    assert!(!promise.is_cancel_requested());
    future.cancel("no longer needed");
    assert!(promise.is_cancel_requested());
    assert_eq!(
        future.state(),
        PromiseState::Pending,
        "it is for the producer to say"
    );
    assert_eq!(&*future.cause().unwrap().reason, "no longer needed");
    assert!(promise.cancel_token().is_cancelled());
    promise.resolve(5).unwrap();
    assert_eq!(future.state(), PromiseState::Resolved);

    // A producer that heeds it.
    run(|| {
        let (promise, future) = Promise::<u8>::new();
        let producer = spawn_local(move || {
            promise.cancel_token().wait().unwrap();
            assert!(promise.cancel());
        });
        yield_now().unwrap();
        future.cancel("enough");
        future.wait().unwrap();
        assert_eq!(future.state(), PromiseState::Cancelled);
        producer.join().unwrap();
    });
}

// contract: T1
#[test]
fn it_is_awaited_by_value_and_by_reference() {
    let mut context = Context::from_waker(Waker::noop());
    let (promise, future) = Promise::new();
    let second = future.clone();
    {
        let mut by_reference = pin!((&future).into_future());
        assert!(by_reference.as_mut().poll(&mut context).is_pending());
        let mut dropped = Box::pin(future.clone().into_future());
        assert!(dropped.as_mut().poll(&mut context).is_pending());
        drop(dropped);
        promise.resolve(String::from("text")).unwrap();
        let Poll::Ready(Ok(lent)) = by_reference.poll(&mut context) else {
            panic!("it has ended");
        };
        assert_eq!(lent, "text");
    }
    assert_eq!(block_on(async { future.await.unwrap() }).unwrap(), "text");
    assert_eq!(block_on(async { second.await.unwrap() }).unwrap(), "text");
}

/// The hook is the process's: one test for all of it.
// contract: T1
#[test]
fn an_error_that_nobody_looked_at_is_reported_once() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = told.clone();
    on_unhandled(Some(Box::new(move |failure| {
        if let Unhandled::Error { id, error } = failure
            && error.to_string().contains("unseen")
        {
            telling.lock().unwrap().push(*id);
        }
    })));
    let unseen = || Error::new(ErrorKind::Internal, "unseen");
    let (promise, future) = Promise::<u8>::new();
    let second = future.clone();
    promise.fail(unseen()).unwrap();
    assert_eq!(future.state(), PromiseState::Failed);
    future.wait().unwrap();
    drop(future);
    assert!(told.lock().unwrap().is_empty(), "a reference is left");
    drop(second);
    assert_eq!(*told.lock().unwrap(), [0], "once");
    // Nobody is there to look.
    let (promise, future) = Promise::<u8>::new();
    drop(future);
    promise.fail(unseen()).unwrap();
    assert_eq!(told.lock().unwrap().len(), 2);
    // Looked at in any way.
    let failed = || SharedFuture::<u8>::ready(Err(unseen().into()));
    assert!(failed().get().unwrap().is_err());
    assert!(failed().try_take().unwrap().is_err());
    assert!(block_on(async { failed().await }).unwrap().is_err());
    failed().on_done(|result| assert!(result.is_err()));
    drop(failed().map(|n| *n).try_take().unwrap());
    assert_eq!(told.lock().unwrap().len(), 2);
    // What was made of it has an error of its own.
    drop(failed().map(|n| *n));
    assert_eq!(told.lock().unwrap().len(), 3);
    on_unhandled(None);
}

// contract: T1
#[test]
fn map_and_then_pass_values_errors_and_cancels_on() {
    let (promise, future) = Promise::new();
    let longer = future
        .map(|n: &u32| n + 1)
        .and_then(|n| SharedFuture::ready(Ok(n * 10)));
    promise.resolve(1).unwrap();
    assert_eq!(longer.get().unwrap().unwrap(), &20);

    let (promise, future) = Promise::<u32>::new();
    let made = future.map(|n| *n).and_then(|n| SharedFuture::ready(Ok(*n)));
    promise.fail(oops()).unwrap();
    let Some(Err(TaskError::Failed(error))) = made.get() else {
        panic!("{:?}", made.state());
    };
    assert_eq!(error.message(), "oops");
    assert!(future.get().is_some());

    let (promise, future) = Promise::<u32>::new();
    let made = future.map(|n| *n);
    made.cancel("from below");
    assert!(promise.is_cancel_requested());
    assert_eq!(&*future.cause().unwrap().reason, "from below");
    drop(promise);
    assert_eq!(made.state(), PromiseState::Closed);

    // The second stage is asked as well, also if it comes later.
    let (first, future) = Promise::<u32>::new();
    let (second, inner) = Promise::<u32>::new();
    let made = future.and_then(move |_| inner);
    made.cancel("early");
    first.resolve(1).unwrap();
    assert!(second.is_cancel_requested());
    assert_eq!(made.state(), PromiseState::Pending);
    second.resolve(2).unwrap();
    assert_eq!(made.get().unwrap().unwrap(), &2);
}

// contract: T1
#[test]
fn all_any_and_race() {
    let three = || {
        let sides: Vec<_> = (0..3).map(|_| Promise::<usize>::new()).collect();
        let (promises, futures): (Vec<_>, Vec<_>) = sides.into_iter().unzip();
        (promises.into_iter(), futures)
    };

    let (promises, futures) = three();
    let made = all(futures);
    for (value, promise) in promises.enumerate().collect::<Vec<_>>().into_iter().rev() {
        assert_eq!(made.state(), PromiseState::Pending);
        promise.resolve(value).unwrap();
    }
    assert_eq!(made.get().unwrap().unwrap(), &[0, 1, 2]);

    let (mut promises, futures) = three();
    let made = all(futures.iter().cloned());
    promises.next().unwrap().cancel();
    assert_eq!(made.state(), PromiseState::Cancelled, "at once");
    promises.next().unwrap().resolve(1).unwrap();
    made.cancel("too late to matter");

    let (mut promises, futures) = three();
    let made = any(futures);
    promises.next().unwrap().cancel();
    assert_eq!(made.state(), PromiseState::Pending);
    promises.next().unwrap().resolve(1).unwrap();
    promises.next().unwrap().resolve(2).unwrap();
    assert_eq!(made.get().unwrap().unwrap(), &1);

    let (promises, futures) = three();
    let made = any(futures);
    promises.for_each(drop);
    assert_eq!(made.state(), PromiseState::Closed);

    let (mut promises, futures) = three();
    let made = race(futures);
    made.cancel("all of them");
    assert!(promises.all(|promise| promise.is_cancel_requested() && promise.cancel()));
    assert_eq!(made.state(), PromiseState::Cancelled);

    assert!(
        all(Vec::<SharedFuture<u8>>::new())
            .get()
            .unwrap()
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        any(Vec::<SharedFuture<u8>>::new()).state(),
        PromiseState::Closed
    );
    assert_eq!(
        race(Vec::<SharedFuture<u8>>::new()).state(),
        PromiseState::Closed
    );
}

/// A value whose clone looks at the very futures that it is gathered from.
#[derive(Debug)]
struct Curious(SharedFuture<usize>);

impl Clone for Curious {
    fn clone(&self) -> Self {
        assert!(self.0.get().is_none());
        self.0.on_done(|_| ());
        Self(self.0.clone())
    }
}

// contract: T1
#[test]
fn a_clone_may_use_what_it_is_gathered_for() {
    let (promise, future) = Promise::<usize>::new();
    let (one, first) = Promise::new();
    let made = all([first]);
    assert!(one.resolve(Curious(future)).is_ok());
    assert!(made.is_done());
    drop(promise);
}

// contract: T1
#[test]
fn a_callback_that_panics_closes_what_was_to_be_made() {
    let (promise, future) = Promise::<u8>::new();
    let made = future.map(|_| -> u8 { panic!("in a callback") });
    let after = future.map(|n| *n);
    promise.resolve(1).unwrap();
    assert_eq!(made.state(), PromiseState::Closed);
    assert_eq!(after.get().unwrap().unwrap(), &1, "the next one is called");
}

// contract: T1
#[test]
fn gathered_futures_leave_nothing_behind() {
    let (value, drops) = counted();
    let value = Arc::new(value);
    for kept in 0..2 {
        let (first, one) = Promise::<Arc<Counted>>::new();
        let (second, two) = Promise::<Arc<Counted>>::new();
        let sources = [one, two];
        let made = race(sources.clone());
        let every = all(sources.clone());
        let some = any(sources.clone());
        drop(sources);
        if kept == 0 {
            drop((made, every, some));
            assert!(first.resolve(value.clone()).is_ok());
            assert!(second.resolve(value.clone()).is_ok());
            assert_eq!(Arc::strong_count(&value), 1);
        } else {
            assert!(first.resolve(value.clone()).is_ok());
            assert!(made.is_done() && some.is_done() && !every.is_done());
            assert_eq!(Arc::strong_count(&value), 4, "one each, and ours");
            drop(second);
            assert_eq!(every.state(), PromiseState::Closed);
            assert_eq!(Arc::strong_count(&value), 3, "what was gathered is gone");
            every.cancel("too late");
        }
    }
    assert_eq!(Arc::strong_count(&value), 1);
    drop(value);
    assert_eq!(drops.load(SeqCst), 1);
}

// contract: T1
#[test]
fn what_pending_futures_were_made_of_goes_with_them() {
    let (value, drops) = counted();
    let (promise, future) = Promise::<Arc<Counted>>::new();
    let made = future.map(Arc::clone);
    drop(future);
    assert!(promise.resolve(Arc::new(value)).is_ok());
    drop(made);
    assert_eq!(drops.load(SeqCst), 1);
    // A value that is not `Sync` stays on its thread.
    let (promise, future) = Promise::<Cell<u8>>::new();
    std::thread::spawn(move || promise.resolve(Cell::new(1)).unwrap())
        .join()
        .unwrap();
    assert_eq!(future.get().unwrap().unwrap().get(), 1);
    // One that is not `Send` altogether.
    let (promise, future) = Promise::<Rc<RefCell<u8>>>::new();
    promise.resolve(Rc::default()).unwrap();
    drop(future);
}
