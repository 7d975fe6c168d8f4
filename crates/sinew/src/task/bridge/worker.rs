//! Groups and workers.
//!
//! Owns: nothing. Thread: the submitter's.

use std::time::{Duration, Instant};

use crate::future::SharedFuture;
use crate::sys::clock;
use crate::task::worker::WorkerHandle;
use crate::task::{IntoOutcome, SubmitError, TaskContext, TaskGroup};

impl TaskGroup {
    /// Has a task run on a worker's loop, as [`WorkerHandle::submit`], and takes its future in.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    ///
    /// # Errors
    ///
    /// The task comes back, and nothing is in the group. As [`WorkerHandle::submit`]; `Closed`, `Again` and `NoMemory` also for the
    /// group's sake.
    pub fn on_worker<F, R>(
        &self,
        worker: &WorkerHandle,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send + Sync,
    {
        self.hand_over(task, |task| {
            worker.submit_under(self.shared().token().child(), task)
        })
    }

    /// The same when `delay` is over, as [`WorkerHandle::submit_after`].
    ///
    /// # Errors
    ///
    /// As [`TaskGroup::on_worker`].
    pub fn on_worker_after<F, R>(
        &self,
        worker: &WorkerHandle,
        delay: Duration,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send + Sync,
    {
        let deadline_ns = clock::after_ns(delay);
        self.hand_over(task, |task| {
            worker.submit_delayed(self.shared().token().child(), deadline_ns, task)
        })
    }

    /// The same at an instant, as [`WorkerHandle::submit_at`].
    ///
    /// # Errors
    ///
    /// As [`TaskGroup::on_worker`].
    pub fn on_worker_at<F, R>(
        &self,
        worker: &WorkerHandle,
        instant: Instant,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send + Sync,
    {
        let deadline_ns = clock::instant_ns(instant);
        self.hand_over(task, |task| {
            worker.submit_delayed(self.shared().token().child(), deadline_ns, task)
        })
    }
}
