//! Tasks in coroutines.
//!
//! Owns: a task on its way from the post to its coroutine. Thread: the submitter's, then the scheduler's.
//!
//! Invariants
//! - I1. A task that was accepted ends: by running, or when its way is cut off by the scheduler's end.

use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind};
use crate::future::SharedFuture;
use crate::scheduler::body::drop_payload;
use crate::scheduler::post::SchedulerHandle;
use crate::scheduler::spawn::Builder;
use crate::task::context::Host;
use crate::task::job::{Job, Order, Work};
use crate::task::refused::SubmitErrorKind;
use crate::task::{IntoOutcome, SubmitError, TaskContext};

/// A task that is accepted and has not started.
struct Start {
    work: Option<Work>,
}

impl Start {
    /// Runs the task, in its coroutine.
    fn run(mut self) {
        if let Some(work) = self.work.take()
            && let Some(payload) = work.end(Order::Run, Host::default(), &mut |_| {})
        {
            resume_unwind(payload);
        }
    }
}

impl Drop for Start {
    /// It does not start: because it was asked to stop, or because the scheduler is closed.
    fn drop(&mut self) {
        let Some(work) = self.work.take() else {
            return;
        };
        let order = if work.is_unwanted() {
            Order::Cancel
        } else {
            Order::Fail(Error::new(
                ErrorKind::Closed,
                "the scheduler was closed before the task started",
            ))
        };
        // What does not run is not unwound by force.
        if let Some(payload) = work.end(order, Host::default(), &mut |_| {}) {
            drop_payload(payload);
        }
    }
}

/// Starts a task in a coroutine of this thread's scheduler. See [`spawn_on`].
///
/// # Suspends
///
/// Never.
///
/// # Errors
///
/// The task comes back: `State` if there is no scheduler on this thread, `Closed`, `Again`.
///
/// # Examples
///
/// ```
/// use sinew::task::{self, Outcome};
///
/// sinew::run(|| {
///     let future = task::spawn(|_| match sinew::yield_now() {
///         Ok(()) => Outcome::Success(7),
///         Err(_) => Outcome::Cancelled,
///     })
///     .unwrap();
///     future.wait().unwrap();
///     assert_eq!(future.get().unwrap().unwrap(), &7);
/// });
/// ```
pub fn spawn<F, R>(task: F) -> Result<SharedFuture<R::Value>, SubmitError<F>>
where
    F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
    R: IntoOutcome + 'static,
    R::Value: Send,
{
    spawn_under(CancelToken::new(), task)
}

/// The same, where this is the future's token.
pub(super) fn spawn_under<F, R>(
    token: CancelToken,
    task: F,
) -> Result<SharedFuture<R::Value>, SubmitError<F>>
where
    F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
    R: IntoOutcome + 'static,
    R::Value: Send,
{
    match SchedulerHandle::current() {
        Some(scheduler) => spawn_on_under(&scheduler, token, task),
        None => Err(SubmitError::new(SubmitErrorKind::State, task)),
    }
}

/// Starts a task in a coroutine of the given scheduler.
///
/// Success says that the task is accepted, not that it has started: it comes to the scheduler as a post does, and its coroutine is
/// made there. A cancel of the future cancels the coroutine, so it ends the coroutine's waits. What the task
/// returns is its outcome all the same. If the scheduler is closed before the task starts it fails with `Closed`.
///
/// # Suspends
///
/// Never. From any thread.
///
/// # Errors
///
/// The task comes back: `Closed` if the scheduler is closed or gone, `Again` if as many posts wait as may.
pub fn spawn_on<F, R>(
    scheduler: &SchedulerHandle,
    task: F,
) -> Result<SharedFuture<R::Value>, SubmitError<F>>
where
    F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
    R: IntoOutcome + 'static,
    R::Value: Send,
{
    spawn_on_under(scheduler, CancelToken::new(), task)
}

/// The same, where this is the future's token.
pub(super) fn spawn_on_under<F, R>(
    scheduler: &SchedulerHandle,
    parent: CancelToken,
    task: F,
) -> Result<SharedFuture<R::Value>, SubmitError<F>>
where
    F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
    R: IntoOutcome + 'static,
    R::Value: Send,
{
    let (job, future) = Job::with_token(parent.clone(), task);
    // The post is refused as a whole, so the job is kept where both sides reach it.
    let cell = Arc::new(Mutex::new(Some(job)));
    let theirs = cell.clone();
    let posted = scheduler.post(move || {
        let job = theirs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(work) = job else { return };
        let start = Start {
            work: Some(work.forget()),
        };
        // If it is refused the scheduler is closed, and the drop of what comes back ends the task.
        let spawned = Builder::new()
            .cancel_parent(&parent)
            .go_local(move || start.run());
        drop(spawned);
    });
    let Err(refused) = posted else {
        return Ok(future);
    };
    let kind = if refused.is_again() {
        SubmitErrorKind::Again
    } else {
        SubmitErrorKind::Closed
    };
    let job = cell.lock().unwrap_or_else(PoisonError::into_inner).take();
    match job {
        Some(job) => Err(SubmitError::new(kind, job.into_body())),
        None => unreachable!("a post that was refused has not run"),
    }
}
