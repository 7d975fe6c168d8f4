//! Tasks that are handed to an executor and taken into a group in one step.
//!
//! Owns: nothing. Thread: the submitter's. The place in the group is reserved first: a group that refuses touches neither
//! the executor nor the task, and an executor that refuses leaves nothing in the group.

use std::time::{Duration, Instant};

use super::{NoPlace, TaskGroup};
use crate::cancel::CancelToken;
use crate::future::SharedFuture;
use crate::scheduler::post::SchedulerHandle;
use crate::sys::clock;
use crate::task::coroutine;
use crate::task::pool::{Patience, SubmitErrorKind};
use crate::task::{IntoOutcome, SubmitError, TaskContext, TaskPool};

impl TaskGroup {
    /// Reserves a place and hands the task over.
    fn hand_over<F, T>(
        &self,
        task: F,
        accept: impl FnOnce(F) -> Result<SharedFuture<T>, SubmitError<F>>,
    ) -> Result<SharedFuture<T>, SubmitError<F>>
    where
        T: Send + Sync + 'static,
    {
        let place = match self.shared.reserve() {
            Ok(place) => place,
            Err(NoPlace::Closed) => return Err(SubmitError::new(SubmitErrorKind::Closed, task)),
            Err(NoPlace::Full) => return Err(SubmitError::new(SubmitErrorKind::Again, task)),
        };
        let future = accept(task)?;
        place.commit(&future);
        Ok(future)
    }

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
            let tokens = [token, Some(&self.shared.token)];
            // As the parent too: none starts any more as soon as the group's token has fired, though its turn to be told has
            // not come.
            let parent = Some(&self.shared.token);
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
            coroutine::spawn_under(self.shared.token.child(), task)
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
            coroutine::spawn_on_under(scheduler, self.shared.token.child(), task)
        })
    }
}
