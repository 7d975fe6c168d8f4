//! Groups and coroutines.
//!
//! Owns: nothing. Thread: the submitter's.

use crate::future::SharedFuture;
use crate::scheduler::post::SchedulerHandle;
use crate::task::coroutine;
use crate::task::{IntoOutcome, SubmitError, TaskContext, TaskGroup};

impl TaskGroup {
    /// Starts a task in a coroutine of this thread's scheduler, as [`task::spawn`](coroutine::spawn), and takes its future in.
    ///
    /// # Suspends
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// The task comes back, and nothing is in the group. As [`task::spawn`](coroutine::spawn); `Closed` and `Again` also for the
    /// group's sake.
    pub fn spawn<F, R>(&self, task: F) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send + Sync,
    {
        self.hand_over(task, |task| {
            coroutine::spawn_under(self.shared().token().child(), task)
        })
    }

    /// The same in a coroutine of the given scheduler, as [`task::spawn_on`](coroutine::spawn_on).
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    ///
    /// # Errors
    ///
    /// As [`TaskGroup::spawn`].
    pub fn spawn_on<F, R>(
        &self,
        scheduler: &SchedulerHandle,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send + Sync,
    {
        self.hand_over(task, |task| {
            coroutine::spawn_on_under(scheduler, self.shared().token().child(), task)
        })
    }
}
