//! A task from its making to its end.
//!
//! Owns: the closure until it is called or dropped, then the outcome until it is published. Thread: whoever has the job.
//!
//! Invariants
//! - I1. The closure is called at most once, and dropped once, in an estate of its own.
//! - I2. The outcome is decided once, after the closure and everything in the estate are gone; the future ends with it.
//! - I3. Nothing unwinds out of `decide` and `publish`.
#![expect(unsafe_code, reason = "takes the value of an exit")]

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::OnceLock;

use sinew_core::sync::JobEnd;

use crate::cancel::CancelToken;
use crate::coroutine::{Estate, TaskEstate};
use crate::error::{Error, ErrorKind};
use crate::future::{Begun, Promise, SharedFuture, TaskError};
use crate::join;
use crate::scheduler::body::{Payload, drop_payload, drop_quietly};
use crate::scheduler::{exit, forced, unhandled};
use crate::task::context::Host;
use crate::task::{IntoOutcome, Outcome, TaskContext};

/// How a task is to end.
pub(crate) enum Order {
    /// By running, unless it was asked to stop before.
    Run,
    /// As cancelled, without having run.
    Cancel,
    /// With this error, without having run.
    Fail(Error),
}

/// A job whose types are forgotten.
pub(crate) trait Work: Send {
    /// Whether it was asked to stop. Fires nothing and calls nothing of the user's: for use under a lock.
    fn is_unwanted(&self) -> bool;

    /// Brings the job to its end, which is not published yet.
    fn decide(&mut self, order: Order, host: Host<'_>) -> JobEnd;

    /// Ends the future. Returns a forced unwind that went through the closure, for the caller to go on with.
    fn publish(self: Box<Self>) -> Option<Payload>;
}

/// See the file's head.
pub(crate) struct Job<F, R: IntoOutcome> {
    body: Option<F>,
    outcome: Option<Outcome<R::Value>>,
    promise: Option<Promise<R::Value>>,
    /// Whether the closure was called.
    has_begun: bool,
    forced: Option<Payload>,
}

impl<F, R> Job<F, R>
where
    F: FnOnce(&TaskContext<'_>) -> R,
    R: IntoOutcome,
{
    /// A job and its future; cancelling `parent` asks it to stop.
    pub(crate) fn new(
        parent: Option<&CancelToken>,
        body: F,
    ) -> (Box<Self>, SharedFuture<R::Value>) {
        Self::with_requests(
            parent
                .map(CancelToken::child)
                .map_or_else(OnceLock::new, OnceLock::from),
            body,
        )
    }

    /// The same, where this is the token of requests to stop.
    pub(crate) fn with_token(token: CancelToken, body: F) -> (Box<Self>, SharedFuture<R::Value>) {
        Self::with_requests(OnceLock::from(token), body)
    }

    fn with_requests(
        requests: OnceLock<CancelToken>,
        body: F,
    ) -> (Box<Self>, SharedFuture<R::Value>) {
        let (promise, future) = Promise::with_requests(requests);
        let job = Box::new(Self {
            body: Some(body),
            outcome: None,
            promise: Some(promise),
            has_begun: false,
            forced: None,
        });
        (job, future)
    }

    /// The closure of a job that was not accepted.
    pub(crate) fn into_body(mut self) -> F {
        match self.body.take() {
            Some(body) => body,
            None => unreachable!("only a job that was accepted is decided"),
        }
    }
}

impl<F, R> Job<F, R>
where
    F: FnOnce(&TaskContext<'_>) -> R,
    R: IntoOutcome + 'static,
{
    /// Runs the closure. What it left in the estate is there still.
    fn call(&mut self, body: F, host: Host<'_>, estate: &Estate) -> Outcome<R::Value> {
        self.has_begun = true;
        let Some(promise) = &self.promise else {
            unreachable!("a job is decided before it is published")
        };
        let context = TaskContext::new(promise.requests(), host, estate);
        let called = catch_unwind(AssertUnwindSafe(|| body(&context).into_outcome()));
        let payload = match called {
            Ok(outcome) => return outcome,
            Err(payload) if forced::is_forced(&*payload) => {
                self.forced = Some(payload);
                return Outcome::Cancelled;
            }
            Err(payload) => payload,
        };
        // SAFETY: the bound says so.
        match unsafe { exit::land_as::<R>(payload, true) } {
            Ok(result) => match catch_unwind(AssertUnwindSafe(|| result.into_outcome())) {
                Ok(outcome) => outcome,
                Err(payload) => Outcome::Failed(of_panic(payload)),
            },
            Err(payload) => Outcome::Failed(of_panic(payload)),
        }
    }
}

impl<F, R> Work for Job<F, R>
where
    F: FnOnce(&TaskContext<'_>) -> R + Send,
    R: IntoOutcome + 'static,
    R::Value: Send,
{
    fn is_unwanted(&self) -> bool {
        let promise = self.promise.as_ref();
        promise.is_some_and(|promise| {
            let token = promise.requests().get();
            token.is_some_and(CancelToken::has_fired)
        })
    }

    fn decide(&mut self, order: Order, host: Host<'_>) -> JobEnd {
        let is_cancelled = self.is_asked_to_stop(host);
        let Some(body) = self.body.take() else {
            unreachable!("a job is decided once")
        };
        let future = self.promise.as_ref().map_or(ptr::null(), Promise::identity);
        let outcome = TaskEstate::within_of(host.identity.0, future, |estate| {
            let outcome = match order {
                Order::Run if !is_cancelled => self.call(body, host, estate),
                Order::Run | Order::Cancel => {
                    drop_unrun(body);
                    Outcome::Cancelled
                }
                Order::Fail(error) => {
                    drop_unrun(body);
                    Outcome::Failed(error)
                }
            };
            settle(estate, outcome)
        });
        let end = match &outcome {
            Outcome::Success(_) => JobEnd::Succeeded,
            Outcome::Failed(_) => JobEnd::Failed,
            Outcome::Cancelled => JobEnd::Cancelled,
        };
        if end == JobEnd::Cancelled {
            self.pass_cause_on(host);
        }
        self.outcome = Some(outcome);
        end
    }

    fn publish(mut self: Box<Self>) -> Option<Payload> {
        let result = match self.outcome.take()? {
            Outcome::Success(value) => Ok(value),
            Outcome::Failed(error) => Err(TaskError::Failed(error)),
            Outcome::Cancelled => Err(TaskError::Cancelled),
        };
        let promise = self.promise.take()?;
        let begun = self.begun();
        // Nobody else completes it. If nobody has the future any more the value is dropped here.
        let completed = catch_unwind(AssertUnwindSafe(|| {
            drop(promise.complete_as(result, begun))
        }));
        if let Err(payload) = completed {
            unhandled::report_contained(0, payload);
        }
        self.forced.take()
    }
}

impl<F, R: IntoOutcome> Job<F, R> {
    fn begun(&self) -> Begun {
        match self.has_begun {
            true => Begun::Yes,
            false => Begun::No,
        }
    }

    fn is_asked_to_stop(&self, host: Host<'_>) -> bool {
        let own = self.promise.as_ref().is_some_and(|promise| {
            let Some(token) = promise.requests().get() else {
                return false;
            };
            // A token that is due fires here, and may call what panics.
            catch_unwind(AssertUnwindSafe(|| {
                token.catch_up() || token.is_cancelled()
            }))
            .unwrap_or_else(|payload| {
                unhandled::report_contained(0, payload);
                true
            })
        });
        own || host.has_stopped()
    }

    /// The future tells why it was cancelled, also if it was with the whole executor.
    fn pass_cause_on(&self, host: Host<'_>) {
        let Some(promise) = &self.promise else { return };
        if let Some(cause) = host.cause()
            && let Err(payload) = catch_unwind(AssertUnwindSafe(|| {
                promise.cancel_token().fire(cause);
            }))
        {
            unhandled::report_contained(0, payload);
        }
    }
}

impl<F, R: IntoOutcome> Drop for Job<F, R> {
    fn drop(&mut self) {
        // One that nobody decided: its future is closed.
        if let Some(body) = self.body.take() {
            TaskEstate::within(|_| drop_unrun(body));
        }
        if let Some(promise) = self.promise.take() {
            let closed = catch_unwind(AssertUnwindSafe(|| {
                drop(promise.complete_as(Err(TaskError::Closed), Begun::No));
            }));
            if let Err(payload) = closed {
                unhandled::report_contained(0, payload);
            }
        }
    }
}

/// What a panic comes to.
fn of_panic(payload: Payload) -> Error {
    let error = Error::new(ErrorKind::Panic, join::message(&*payload).to_owned());
    drop_payload(payload);
    error
}

/// Drops the closure of a task that does not run.
fn drop_unrun<F>(body: F) {
    if let Some(payload) = drop_quietly(body) {
        unhandled::report_contained(0, payload);
    }
}

/// Runs the cleanups, frees the arena and drops the error that is left; a panic of a cleanup makes the task a failure.
fn settle<T>(estate: &Estate, outcome: Outcome<T>) -> Outcome<T> {
    if !estate.is_used() {
        return outcome;
    }
    let settled = estate.settle();
    if let Some(payload) = drop_quietly(settled.error) {
        unhandled::report_contained(0, payload);
    }
    let Some(panic) = settled.panic else {
        return outcome;
    };
    if let Some(payload) = drop_quietly(outcome) {
        unhandled::report_contained(0, payload);
    }
    Outcome::Failed(of_panic(panic))
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskEnd {
    /// It succeeded.
    Success,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl From<JobEnd> for TaskEnd {
    fn from(end: JobEnd) -> Self {
        match end {
            JobEnd::Succeeded => Self::Success,
            JobEnd::Failed => Self::Failed,
            JobEnd::Cancelled => Self::Cancelled,
        }
    }
}

/// A task that an executor of one's own runs, wherever and whenever it likes.
///
/// One that is dropped is not run; its future ends as closed.
///
/// # Examples
///
/// ```
/// use sinew::task::{Outcome, Task, TaskEnd};
///
/// let (task, future) = Task::new(|_| Outcome::Success(6 * 7));
/// let executor = std::thread::spawn(move || task.run());
/// assert_eq!(executor.join().unwrap(), TaskEnd::Success);
/// assert_eq!(future.get().unwrap().unwrap(), &42);
/// ```
pub struct Task {
    work: Box<dyn Work>,
}

impl Task {
    /// A task and its future.
    #[must_use]
    pub fn new<F, R>(body: F) -> (Self, SharedFuture<R::Value>)
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        let (work, future) = Job::new(None, body);
        (Self { work }, future)
    }

    /// A task that is asked to stop when `parent` fires, and its future.
    #[must_use]
    pub fn under<F, R>(parent: &CancelToken, body: F) -> (Self, SharedFuture<R::Value>)
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        let (work, future) = Job::new(Some(parent), body);
        (Self { work }, future)
    }

    /// Whether it was asked to stop.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.work.is_unwanted()
    }

    /// Runs the task here, unless it was asked to stop before, and ends its future.
    ///
    /// # Suspends
    ///
    /// As the task does.
    ///
    /// # Panics
    ///
    /// Never with a panic of the task; a forced unwind of the coroutine that this runs in goes on.
    pub fn run(self) -> TaskEnd {
        self.end(Order::Run, Host::default())
    }

    /// As [`run`](Self::run), where the task finds `extra` in its context ([`TaskContext::extra`]), and `stop`, if it is given, asks it to
    /// stop too: what an executor's own side of a task is.
    ///
    /// # Suspends
    ///
    /// As the task does.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::task::{Outcome, Task, TaskContext};
    ///
    /// struct Lane(u32);
    /// let (task, future) = Task::new(|context: &TaskContext<'_>| Outcome::Success(context.extra::<Lane>().unwrap().0));
    /// task.run_with(&Lane(3), None);
    /// assert_eq!(future.get().unwrap().unwrap(), &3);
    /// ```
    pub fn run_with(self, extra: &dyn Any, stop: Option<&CancelToken>) -> TaskEnd {
        let host = Host {
            stop,
            extra: Some(extra),
            ..Host::default()
        };
        self.end(Order::Run, host)
    }

    /// Ends the task as cancelled, without running it.
    pub fn cancel(self) {
        self.end(Order::Cancel, Host::default());
    }

    /// Ends the task with this error, without running it.
    pub fn fail(self, error: impl Into<Error>) {
        self.end(Order::Fail(error.into()), Host::default());
    }

    fn end(mut self, order: Order, host: Host<'_>) -> TaskEnd {
        let end = self.work.decide(order, host);
        if let Some(payload) = self.work.publish() {
            resume_unwind(payload);
        }
        end.into()
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}
