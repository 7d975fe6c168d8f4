//! Groups and pools.
//!
//! Owns: nothing. Thread: the submitter's.

use std::time::{Duration, Instant};

use crate::cancel::CancelToken;
use crate::future::SharedFuture;
use crate::sys::clock;
use crate::task::pool::Patience;
use crate::task::{IntoOutcome, SubmitError, TaskContext, TaskGroup, TaskPool};

impl TaskGroup {
    fn submit_with<F, R>(
        &self,
        pool: &TaskPool,
        task: F,
        patience: Patience,
        token: Option<&CancelToken>,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send + Sync,
    {
        self.hand_over(task, |task| {
            let tokens = [token, Some(self.shared().token())];
            // As the parent too: none starts any more as soon as the group's token has fired, though its turn to be told has
            // not come.
            let parent = Some(self.shared().token());
            pool.shared().submit(parent, task, patience, tokens)
        })
    }

    /// Hands a task to a pool and takes its future in, in one step; waits while the pool has no room.
    ///
    /// # Suspends
    ///
    /// As [`TaskPool::submit`].
    ///
    /// # Cancellation
    ///
    /// As [`TaskPool::submit`]; a cancel of the group ends the wait for room too. Its close does not.
    ///
    /// # Errors
    ///
    /// The task comes back, and nothing is in the group. As [`TaskPool::submit`]; `Closed` also if the group is, `Again` if as
    /// many of the group are active as may be, `Cancelled` also by a cancel of the group.
    pub fn submit<F, R>(
        &self,
        pool: &TaskPool,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send + Sync,
    {
        self.submit_with(pool, task, Patience::Until(None), None)
    }

    /// As [`TaskGroup::submit`], if the pool has room at once.
    ///
    /// # Errors
    ///
    /// As [`TaskGroup::submit`]; `Again` if the queue is full.
    pub fn try_submit<F, R>(
        &self,
        pool: &TaskPool,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send + Sync,
    {
        self.submit_with(pool, task, Patience::Try, None)
    }

    /// As [`TaskGroup::submit`], waiting for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`TaskGroup::submit`]; `Timeout` when the time is up.
    pub fn submit_timeout<F, R>(
        &self,
        pool: &TaskPool,
        timeout: Duration,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send + Sync,
    {
        let until = Patience::Until(Some(clock::after_ns(timeout)));
        self.submit_with(pool, task, until, None)
    }

    /// As [`TaskGroup::submit`], waiting until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`TaskGroup::submit`]; `Timeout` at the deadline.
    pub fn submit_deadline<F, R>(
        &self,
        pool: &TaskPool,
        deadline: Instant,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send + Sync,
    {
        let until = Patience::Until(Some(clock::instant_ns(deadline)));
        self.submit_with(pool, task, until, None)
    }

    /// As [`TaskGroup::submit`], where `token` ends the wait for room too.
    ///
    /// # Errors
    ///
    /// As [`TaskGroup::submit`]; `Cancelled` when `token` fires.
    pub fn submit_cancel<F, R>(
        &self,
        pool: &TaskPool,
        token: &CancelToken,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send + Sync,
    {
        self.submit_with(pool, task, Patience::Until(None), Some(token))
    }
}
