//! A foreign future whose end others can see.
//!
//! Owns: the future until its end, the promise of that, and the waker of who polls it. Any thread may poll, one at a time.
//!
//! Invariants
//! - I1. The future is dropped before its end can be seen.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{Promise, SharedFuture};
use crate::cancel::Registration;
use crate::error::{Error, ErrorKind};
use crate::join;
use crate::scheduler::body::{drop_payload, drop_quietly};
use crate::scheduler::unhandled;

/// Makes the end of a `std` future one that any number of parties can wait for, and that a
/// [`TaskGroup`](crate::task::TaskGroup) takes in.
///
/// The first of the two is for an executor, whichever it is, to poll to its end. A cancel of the second wakes it; at its next poll the future
/// is dropped, and the end is `Cancelled`. If it panics the end is a failure of kind [`Panic`](ErrorKind::Panic). If it is dropped
/// the end is `Closed`, or `Cancelled` if that was asked for.
///
/// # Examples
///
/// ```
/// use sinew::future::shared;
/// use sinew::task::TaskGroup;
///
/// let group = TaskGroup::new();
/// let number = group.start(|| {
///     let (driven, future) = shared(async { 6 * 7 });
///     // Or a task of any other executor.
///     std::thread::Builder::new().spawn(|| sinew::block_on(driven).unwrap())?;
///     Ok::<_, std::io::Error>(future)
/// });
/// group.wait().unwrap();
/// assert_eq!(number.ok().unwrap().get().unwrap().unwrap(), &42);
/// ```
pub fn shared<F: Future>(future: F) -> (Driven<F>, SharedFuture<F::Output>) {
    let (promise, end) = Promise::new();
    let driven = Driven {
        future: Some(Box::pin(future)),
        promise: Some(promise),
        bell: Arc::default(),
        listener: None,
    };
    (driven, end)
}

/// Who is to be woken by a cancel.
#[derive(Default)]
struct Bell(Mutex<Option<Waker>>);

impl Bell {
    fn lock(&self) -> MutexGuard<'_, Option<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, waker: &Waker) {
        let mut place = self.lock();
        if place.as_ref().is_some_and(|old| old.will_wake(waker)) {
            return;
        }
        let old = place.replace(waker.clone());
        drop(place);
        // Without the lock: what it owns is the executor's.
        drop(old);
    }

    fn ring(&self) {
        let waker = self.lock().take();
        if let Some(waker) = waker {
            super::call(waker);
        }
    }
}

/// A future on its way to its end, for an executor to poll. Made by [`shared`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Driven<F: Future> {
    future: Option<Pin<Box<F>>>,
    promise: Option<Promise<F::Output>>,
    bell: Arc<Bell>,
    /// Rings the bell; made when it is first polled.
    listener: Option<Registration>,
}

/// How it went at a poll.
enum Turn<T> {
    Pending,
    Ready(T),
    Cancelled,
    Failed(Error),
}

impl<F: Future> Driven<F> {
    fn turn(&mut self, context: &mut Context<'_>) -> Turn<F::Output> {
        let (Some(future), Some(promise)) = (&mut self.future, &self.promise) else {
            return Turn::Pending;
        };
        self.bell.set(context.waker());
        if self.listener.is_none() {
            let bell = self.bell.clone();
            let listener = promise.cancel_token().on_cancel(move |_| bell.ring());
            self.listener = Some(listener);
        }
        // After the bell is in place: who asks later rings it.
        if promise.is_cancel_requested() {
            return Turn::Cancelled;
        }
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Turn::Pending,
            Ok(Poll::Ready(value)) => Turn::Ready(value),
            Err(payload) => {
                let message = join::message(&*payload).to_owned();
                drop_payload(payload);
                Turn::Failed(Error::new(ErrorKind::Panic, message))
            }
        }
    }

    /// Drops the future, then says how it ended.
    fn end(&mut self, say: impl FnOnce(Promise<F::Output>)) {
        self.listener = None;
        if let Some(payload) = drop_quietly(self.future.take()) {
            unhandled::report_contained(0, payload);
        }
        if let Some(promise) = self.promise.take() {
            say(promise);
        }
    }
}

impl<F: Future> Future for Driven<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.promise.is_none() {
            return Poll::Ready(());
        }
        // Nobody else completes it.
        match this.turn(context) {
            Turn::Pending => return Poll::Pending,
            Turn::Ready(value) => this.end(|promise| drop(promise.resolve(value))),
            Turn::Cancelled => this.end(|promise| _ = promise.cancel()),
            Turn::Failed(error) => this.end(|promise| drop(promise.fail(error))),
        }
        Poll::Ready(())
    }
}

impl<F: Future> Unpin for Driven<F> {}

impl<F: Future> Drop for Driven<F> {
    fn drop(&mut self) {
        let is_asked = self
            .promise
            .as_ref()
            .is_some_and(Promise::is_cancel_requested);
        self.end(|promise| {
            if is_asked {
                promise.cancel();
            }
        });
    }
}

impl<F: Future> fmt::Debug for Driven<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driven")
            .field("promise", &self.promise)
            .finish_non_exhaustive()
    }
}
