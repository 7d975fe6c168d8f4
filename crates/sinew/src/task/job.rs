//! A task from its making to its end.
//!
//! Owns: the closure until it is called or dropped, then the outcome until it is published. Thread: whoever has the job.
//!
//! The closure lies in the promise's block: a task is one allocation, which its submitter, who has the future, makes and most often
//! frees. So memory seldom goes from one thread's cache of the allocator to another's.
//!
//! Invariants
//! - I1. The closure is called at most once, and dropped once, in an estate of its own.
//! - I2. The outcome is decided once, after the closure and everything in the estate are gone; the future ends with it.
//! - I3. Nothing unwinds out of `end`.
//! - I4. Who has the job, as a [`Job`] or as a [`Work`], has the promise's one producer, and nobody else looks at the closure's place.
#![expect(
    unsafe_code,
    reason = "keeps the closure in the promise's block; takes the value of an exit"
)]

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
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

/// A job whose types are forgotten: what [`Job::forget`] makes.
pub(crate) struct Work {
    promise: NonNull<()>,
    table: &'static Table,
}

/// Brings a job to its end, see [`Work::end`].
type EndRaw = unsafe fn(NonNull<()>, Order, Host<'_>, &mut dyn FnMut(JobEnd)) -> Option<Payload>;

/// What can be done with a job. Each is called with a pointer from [`Promise::into_raw`].
struct Table {
    is_unwanted: unsafe fn(NonNull<()>) -> bool,
    end: EndRaw,
    abandon: unsafe fn(NonNull<()>),
}

// SAFETY: made of jobs whose closures and values are `Send`.
unsafe impl Send for Work {}

impl Work {
    /// Whether it was asked to stop. Fires nothing and calls nothing of the user's: for use under a lock.
    pub(crate) fn is_unwanted(&self) -> bool {
        // SAFETY: the job's own pointer and table.
        unsafe { (self.table.is_unwanted)(self.promise) }
    }

    /// Brings the job to its end. `ended` is told of that, then the future ends. Returns a forced unwind that went through the closure,
    /// for the caller to go on with.
    pub(crate) fn end(
        self,
        order: Order,
        host: Host<'_>,
        ended: &mut dyn FnMut(JobEnd),
    ) -> Option<Payload> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the job's own pointer and table; it is not used again.
        unsafe { (this.table.end)(this.promise, order, host, ended) }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // SAFETY: the job's own pointer and table; it is not used again.
        unsafe { (self.table.abandon)(self.promise) };
    }
}

/// A closure and its promise, in one block of memory, see the file's head. Whoever has this has the closure.
pub(crate) struct Job<F, R: IntoOutcome> {
    promise: ManuallyDrop<Promise<R::Value>>,
    types: PhantomData<(F, fn() -> R)>,
}

/// Closures that are larger get a block of their own: that one goes when they do, though the future be kept.
const BESIDE_MAX: usize = 128;

impl<F, R: IntoOutcome> Job<F, R> {
    /// Whether the closure is in the promise's block itself.
    const IS_BESIDE: bool = size_of::<F>() <= BESIDE_MAX && align_of::<F>() <= 16;

    /// A job and its future; cancelling `parent` asks it to stop.
    #[inline]
    pub(crate) fn new(parent: Option<&CancelToken>, body: F) -> (Self, SharedFuture<R::Value>) {
        Self::with_requests(
            parent
                .map(CancelToken::child)
                .map_or_else(OnceLock::new, OnceLock::from),
            body,
        )
    }

    /// The same, where this is the token of requests to stop.
    pub(crate) fn with_token(token: CancelToken, body: F) -> (Self, SharedFuture<R::Value>) {
        Self::with_requests(OnceLock::from(token), body)
    }

    #[inline]
    fn with_requests(requests: OnceLock<CancelToken>, body: F) -> (Self, SharedFuture<R::Value>) {
        let (promise, future) = if Self::IS_BESIDE {
            Promise::with_requests(requests, body)
        } else {
            Promise::with_requests(requests, Box::new(body))
        };
        let job = Self {
            promise: ManuallyDrop::new(promise),
            types: PhantomData,
        };
        (job, future)
    }

    /// The closure and the promise.
    #[inline]
    fn into_parts(self) -> (F, Promise<R::Value>) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once; `this` is not dropped.
        let promise = unsafe { ManuallyDrop::take(&mut this.promise) };
        let body = if Self::IS_BESIDE {
            // SAFETY: made with it.
            let body = unsafe { promise.beside::<F>() };
            // SAFETY: it is there as long as there is the job, which ends here.
            unsafe { body.read() }
        } else {
            // SAFETY: made with it.
            let body = unsafe { promise.beside::<Box<F>>() };
            // SAFETY: as above.
            *unsafe { body.read() }
        };
        (body, promise)
    }

    /// The closure of a job that was not accepted.
    pub(crate) fn into_body(self) -> F {
        let (body, promise) = self.into_parts();
        complete(promise, Err(TaskError::Closed), Begun::No);
        body
    }

    /// Whether it was asked to stop. Fires nothing and calls nothing of the user's: for use under a lock.
    #[inline]
    pub(crate) fn is_unwanted(&self) -> bool {
        let token = self.promise.requests().get();
        token.is_some_and(CancelToken::has_fired)
    }
}

impl<F, R: IntoOutcome> Drop for Job<F, R> {
    /// One that nobody decided: its future is closed.
    fn drop(&mut self) {
        let this = Self {
            // SAFETY: taken once: this is the drop.
            promise: ManuallyDrop::new(unsafe { ManuallyDrop::take(&mut self.promise) }),
            types: PhantomData,
        };
        let (body, promise) = this.into_parts();
        TaskEstate::within(|_| drop_unrun(body));
        complete(promise, Err(TaskError::Closed), Begun::No);
    }
}

impl<F, R> Job<F, R>
where
    F: FnOnce(&TaskContext<'_>) -> R + Send,
    R: IntoOutcome + 'static,
    R::Value: Send,
{
    const TABLE: &Table = &Table {
        is_unwanted: Self::is_unwanted_raw,
        end: Self::end_raw,
        abandon: Self::abandon_raw,
    };

    /// The same job, whose types are forgotten.
    #[inline]
    pub(crate) fn forget(self) -> Work {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once; `this` is not dropped.
        let promise = unsafe { ManuallyDrop::take(&mut this.promise) };
        Work {
            promise: promise.into_raw(),
            table: Self::TABLE,
        }
    }

    /// # Safety
    ///
    /// The pointer is that of a [`Work`] which such a job became, and makes one job at a time.
    #[inline]
    unsafe fn remember(promise: NonNull<()>) -> Self {
        Self {
            // SAFETY: as the caller says.
            promise: ManuallyDrop::new(unsafe { Promise::from_raw(promise) }),
            types: PhantomData,
        }
    }

    unsafe fn is_unwanted_raw(promise: NonNull<()>) -> bool {
        // SAFETY: as the table's user says; the job is not dropped here.
        let job = ManuallyDrop::new(unsafe { Self::remember(promise) });
        job.is_unwanted()
    }

    unsafe fn end_raw(
        promise: NonNull<()>,
        order: Order,
        host: Host<'_>,
        ended: &mut dyn FnMut(JobEnd),
    ) -> Option<Payload> {
        // SAFETY: as the table's user says.
        unsafe { Self::remember(promise) }.end(order, host, ended)
    }

    unsafe fn abandon_raw(promise: NonNull<()>) {
        // SAFETY: as the table's user says.
        drop(unsafe { Self::remember(promise) });
    }

    /// As [`Work::end`].
    fn end(self, order: Order, host: Host<'_>, ended: &mut dyn FnMut(JobEnd)) -> Option<Payload> {
        let is_cancelled = is_asked_to_stop(&self.promise, host);
        let (body, promise) = self.into_parts();
        let mut begun = Begun::No;
        let mut forced = None;
        let outcome = TaskEstate::within_of(host.identity.0, promise.identity(), |estate| {
            let outcome = match order {
                Order::Run if !is_cancelled => {
                    begun = Begun::Yes;
                    let context = TaskContext::new(promise.requests(), host, estate);
                    call(body, &context, &mut forced)
                }
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
        let (end, result) = match outcome {
            Outcome::Success(value) => (JobEnd::Succeeded, Ok(value)),
            Outcome::Failed(error) => (JobEnd::Failed, Err(TaskError::Failed(error))),
            Outcome::Cancelled => {
                pass_cause_on(&promise, host);
                (JobEnd::Cancelled, Err(TaskError::Cancelled))
            }
        };
        ended(end);
        complete(promise, result, begun);
        forced
    }
}

/// Runs the closure. What it left in the estate is there still.
fn call<F, R>(body: F, context: &TaskContext<'_>, forced: &mut Option<Payload>) -> Outcome<R::Value>
where
    F: FnOnce(&TaskContext<'_>) -> R,
    R: IntoOutcome + 'static,
{
    let called = catch_unwind(AssertUnwindSafe(|| body(context).into_outcome()));
    let payload = match called {
        Ok(outcome) => return outcome,
        Err(payload) if forced::is_forced(&*payload) => {
            *forced = Some(payload);
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

/// Ends the future. If nobody has it any more the value is dropped here.
#[inline]
fn complete<T>(promise: Promise<T>, result: Result<T, TaskError>, begun: Begun) {
    // Nobody else completes it.
    let completed = catch_unwind(AssertUnwindSafe(|| {
        drop(promise.complete_as(result, begun));
    }));
    if let Err(payload) = completed {
        unhandled::report_contained(0, payload);
    }
}

fn is_asked_to_stop<T>(promise: &Promise<T>, host: Host<'_>) -> bool {
    let own = promise.requests().get().is_some_and(|token| {
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
fn pass_cause_on<T>(promise: &Promise<T>, host: Host<'_>) {
    if let Some(cause) = host.cause()
        && let Err(payload) = catch_unwind(AssertUnwindSafe(|| {
            promise.cancel_token().fire(cause);
        }))
    {
        unhandled::report_contained(0, payload);
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
    work: Work,
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
        let work = work.forget();
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
        let work = work.forget();
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

    fn end(self, order: Order, host: Host<'_>) -> TaskEnd {
        let mut end = JobEnd::Cancelled;
        if let Some(payload) = self.work.end(order, host, &mut |how| end = how) {
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
