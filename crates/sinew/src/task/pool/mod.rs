//! The pool: a fixed number of threads for tasks that block or compute, behind a bounded queue.
//!
//! Owns: the threads. The queue, the counts and those who wait are `sinew_core`'s `RawPool`. Any thread.
//!
//! Invariants
//! - I1. A job that was accepted ends once, and its future with it: by a worker, a purge or a cancel.
//! - I2. No code of the user's runs under the pool's lock.
//! - I3. While a [`TaskPool`] exists its workers do: they serve finalizers until it goes.
//!
//! A job's end is counted before its future ends, and the pool is drained after that. So whoever saw the future end
//! finds it counted, and whoever saw the pool drained finds every future at its end.

mod builder;
mod finalizer;
mod submit;
mod worker;

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sinew_core::sync::RawPool;
use sinew_core::wait::Kind;

use crate::cancel::{CancelToken, Cause};
use crate::coroutine::TaskEstate;
use crate::error::{Error, ErrorKind, WaitError};
use crate::future::{SharedFuture, TaskError};
use crate::scheduler::body::drop_payload;
use crate::scheduler::crew::{Crew, Drained, Over};
use crate::scheduler::waiting::Waiting;
use crate::scheduler::{current, unhandled};
use crate::sys::clock;
use crate::task::context::{Host, Identity};
use crate::task::job::{Order, Work};
use crate::task::refused::SubmitErrorKind;
use crate::task::{IntoOutcome, Outcome, SubmitError, TaskContext};

pub use builder::TaskPoolBuilder;
pub use finalizer::Finalizer;
pub use submit::Submitter;

use finalizer::Release;
pub(crate) use submit::Patience;
use submit::wait_for;

/// What the handles, the workers and the finalizers of a pool have in common.
pub(crate) struct Shared {
    raw: RawPool<Work, Release>,
    /// Fires when the pool is cancelled.
    stop: CancelToken,
    threads: usize,
    /// What its threads wait for. Set before there are any.
    crew: OnceLock<Arc<Crew>>,
}

impl Shared {
    /// The pool as an identity.
    fn identity(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    fn crew(&self, f: impl FnOnce(&Crew)) {
        if let Some(crew) = self.crew.get() {
            f(crew);
        }
    }

    /// The pool as its tasks see it.
    fn host(&self) -> Host<'_> {
        Host {
            stop: Some(&self.stop),
            extra: None,
            identity: Identity(self.identity()),
        }
    }

    /// Whether the calling thread is one of the pool's own workers.
    pub(crate) fn is_own_worker(&self) -> bool {
        current::is_worker_of(self.identity())
    }

    /// Whether the pool's end would wait for the caller: on one of its workers, and in what a purge or a cancel drops, which is not over
    /// before.
    fn is_own_part(&self) -> bool {
        self.is_own_worker() || TaskEstate::is_inside(self.identity())
    }

    /// Ends jobs that were counted as cancelled, and says that they are published.
    fn end_unrun(&self, jobs: impl IntoIterator<Item = Work>) {
        for job in jobs {
            // What does not run is not unwound by force.
            drop(job.end(Order::Cancel, self.host(), &mut |_| {}));
        }
        self.raw.published();
    }

    fn wait_until(
        &self,
        deadline_ns: Option<u64>,
        token: Option<&CancelToken>,
    ) -> Result<(), WaitError> {
        if !self.raw.figures().is_closed || self.is_own_part() {
            return Err(WaitError::State);
        }
        if self.raw.is_drained() {
            return Ok(());
        }
        let waiting = Waiting::new(deadline_ns)?;
        let arm = self.raw.drain_arm();
        match wait_for(
            &waiting,
            &arm,
            (
                Kind::Drain,
                &Drained(self.identity().addr()),
                self.identity(),
            ),
            [token, None],
        ) {
            Ok(_) => Ok(()),
            // Drained at the same time: that counts.
            Err(_) if self.raw.is_drained() => Ok(()),
            Err(Some(reason)) => waiting.result(reason),
            Err(None) => Err(WaitError::Cancelled),
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

/// A fixed number of threads that run tasks, with a bounded queue before them.
///
/// It is for work that blocks or computes; a coroutine that waits for such a task suspends, and its thread goes on with others.
/// Tasks that are queued count against the limit, those that run do not.
///
/// A pool that is dropped is closed; what was accepted is done, and its threads are joined before the drop returns. In a
/// coroutine that suspends while tasks are left. [`cancel`](Self::cancel) it before for a quick end. On one of its
/// own workers, where that is not possible, the drop returns at once and the threads end by themselves.
///
/// # Examples
///
/// ```
/// use sinew::task::{Outcome, TaskPool};
///
/// let pool = TaskPool::builder().threads(2).queue_limit(16).build().unwrap();
/// let future = pool.submit(|_| Outcome::Success((1..=10).sum::<u32>())).unwrap();
/// sinew::run(|| {
///     future.wait().unwrap();
///     assert_eq!(future.get().unwrap().unwrap(), &55);
/// });
/// ```
pub struct TaskPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Closed when the threads have ended.
    over: SharedFuture<()>,
}

/// A pool's counts, all of one moment.
///
/// At any time `submitted = queued + running + completed`, and `completed = succeeded + failed + cancelled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// How many threads it has.
    pub threads: usize,
    /// How many tasks may be queued.
    pub queue_limit: usize,
    /// How many are queued.
    pub queued: usize,
    /// How many run.
    pub running: usize,
    /// How many were accepted so far.
    pub submitted: u64,
    /// How many of those have ended.
    pub completed: u64,
    /// How many of those succeeded.
    pub succeeded: u64,
    /// How many failed.
    pub failed: u64,
    /// How many were cancelled.
    pub cancelled: u64,
    /// How many were not accepted; these are in none of the other counts.
    pub rejected: u64,
    /// Whether it accepts nothing any more.
    pub is_closed: bool,
    /// Whether it was cancelled as a whole.
    pub is_cancelled: bool,
}

impl TaskPool {
    /// A pool with every default: as many threads as the machine has logical processors, and a queue of 1,024.
    ///
    /// # Errors
    ///
    /// As [`TaskPoolBuilder::build`].
    #[track_caller]
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// To choose threads, limit and stack size.
    pub fn builder() -> TaskPoolBuilder {
        TaskPoolBuilder::new()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Submits tasks that are asked to stop when `parent` fires.
    #[must_use]
    pub fn under<'a>(&'a self, parent: &'a CancelToken) -> Submitter<'a> {
        Submitter::new(&self.shared, Some(parent))
    }

    fn submitter(&self) -> Submitter<'_> {
        Submitter::new(&self.shared, None)
    }

    /// Hands a task over; waits while there is no room for it.
    ///
    /// # Suspends
    ///
    /// While the queue is full; on a plain thread it blocks the thread.
    ///
    /// # Cancellation
    ///
    /// Ends the wait for room. A place that is free wins. A task that was accepted is not touched: its future
    /// cancels it, or a parent token, see [`under`](Self::under).
    ///
    /// # Errors
    ///
    /// The task comes back: `Closed`; `Cancelled`; `State` if the queue is full and this is one of the pool's own workers, or
    /// waiting is not possible here.
    pub fn submit<F, R>(&self, task: F) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        self.submitter().submit(task)
    }

    /// Hands a task over if there is room at once.
    ///
    /// # Suspends
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// The task comes back: `Again` if the queue is full; `Closed`.
    pub fn try_submit<F, R>(&self, task: F) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        self.submitter().try_submit(task)
    }

    /// As [`TaskPool::submit`], waiting for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`TaskPool::submit`]; `Timeout` when the time is up.
    pub fn submit_timeout<F, R>(
        &self,
        timeout: Duration,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        self.submitter().submit_timeout(timeout, task)
    }

    /// As [`TaskPool::submit`], waiting until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`TaskPool::submit`]; `Timeout` at the deadline.
    pub fn submit_deadline<F, R>(
        &self,
        deadline: Instant,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        self.submitter().submit_deadline(deadline, task)
    }

    /// As [`TaskPool::submit`], where `token` ends the wait for room. It does nothing else: it is not the task's.
    ///
    /// # Errors
    ///
    /// As [`TaskPool::submit`]; `Cancelled` when `token` fires.
    pub fn submit_cancel<F, R>(
        &self,
        token: &CancelToken,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        self.submitter().submit_cancel(token, task)
    }

    /// Runs `f` on a thread of the pool and returns its value.
    ///
    /// # Suspends
    ///
    /// Until `f` has returned: the coroutine only. On a plain thread it blocks the thread.
    ///
    /// # Cancellation
    ///
    /// Ends the wait. If `f` has not started it will not; if it runs it goes on, and its value is dropped.
    ///
    /// # Errors
    ///
    /// `State` on one of the pool's own workers and where nothing may wait, `Closed`, `Cancelled`; `Panic` with the message if
    /// `f` panicked.
    ///
    /// # Examples
    ///
    /// ```
    /// let pool = sinew::task::TaskPool::builder().threads(1).build().unwrap();
    /// sinew::run(|| {
    ///     let number = pool.run_blocking(|| std::thread::current().name().map(str::len)).unwrap();
    ///     assert!(number.is_some());
    /// });
    /// ```
    pub fn run_blocking<T, F>(&self, f: F) -> Result<T, Error>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        if self.shared.is_own_worker() {
            return Err(Error::new(
                ErrorKind::State,
                "a worker of a pool cannot wait for its own pool",
            ));
        }
        // The worker may still hold the future for a moment when it has ended, so the value is taken out of a cell.
        let future = self.submit(|_| Outcome::Success(Mutex::new(Some(f()))))?;
        if let Err(error) = future.wait() {
            future.cancel("nobody waits for it any more");
            return Err(error.into());
        }
        match future.get() {
            Some(Ok(value)) => value
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take()
                .ok_or_else(|| Error::new(ErrorKind::Internal, "the value was taken before")),
            Some(Err(error)) => Err(error.clone().into()),
            None => Err(TaskError::Closed.into()),
        }
    }

    /// Takes a resource into the pool's care: `release` will be run by a worker when the [`Finalizer`] is dropped, also if the pool
    /// has been closed or cancelled by then. It does not count against the limit, and dropping allocates nothing.
    ///
    /// # Suspends
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// `Closed`; `release` comes back.
    pub fn finalizer<F>(&self, release: F) -> Result<Finalizer, SubmitError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        if self.shared.raw.figures().is_closed {
            return Err(SubmitError::new(SubmitErrorKind::Closed, release));
        }
        Ok(Finalizer::new(self.shared.clone(), release))
    }

    /// Accepts nothing any more; what was accepted is done. Who waits for room gets `Closed`. False if it was closed already.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    pub fn close(&self) -> bool {
        self.shared.raw.close()
    }

    /// Closes the pool, ends the queued tasks as cancelled without running them, and asks those that run to stop.
    /// False if that was done already.
    ///
    /// # Suspends
    ///
    /// Never. From any thread; what the queued tasks own is dropped here.
    #[track_caller]
    pub fn cancel(&self, reason: impl Into<String>) -> bool {
        let cause = Cause::now(reason.into());
        let Some(jobs) = self.shared.raw.cancel() else {
            return false;
        };
        // First, so that the futures can tell the reason. A callback that panics keeps nothing from its end.
        let told = catch_unwind(AssertUnwindSafe(|| self.shared.stop.fire(cause)));
        self.shared.end_unrun(jobs);
        if let Err(payload) = told {
            unhandled::report_contained(0, payload);
        }
        true
    }

    /// Whether it is closed, and everything that was accepted is done.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.shared.raw.is_drained()
    }

    /// Waits until the pool, which is closed, is drained: everything that was accepted is done.
    ///
    /// # Suspends
    ///
    /// Until then.
    ///
    /// # Cancellation
    ///
    /// Ends early; the pool is not touched. A pool that is drained wins.
    ///
    /// # Errors
    ///
    /// `State` on a pool that is open, on one of its own workers and where nothing may wait; `Cancelled`.
    pub fn wait(&self) -> Result<(), WaitError> {
        self.shared.wait_until(None, None)
    }

    /// As [`TaskPool::wait`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`TaskPool::wait`]; `Timeout` when the time is up.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.shared.wait_until(Some(clock::after_ns(timeout)), None)
    }

    /// As [`TaskPool::wait`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`TaskPool::wait`]; `Timeout` at the deadline.
    pub fn wait_deadline(&self, deadline: Instant) -> Result<(), WaitError> {
        self.shared
            .wait_until(Some(clock::instant_ns(deadline)), None)
    }

    /// As [`TaskPool::wait`], where `token` ends the wait.
    ///
    /// # Errors
    ///
    /// As [`TaskPool::wait`]; `Cancelled` when `token` fires.
    pub fn wait_cancel(&self, token: &CancelToken) -> Result<(), WaitError> {
        self.shared.wait_until(None, Some(token))
    }

    /// The counts, all of one moment.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let figures = self.shared.raw.figures();
        PoolStats {
            threads: self.shared.threads,
            queue_limit: self.shared.raw.limit(),
            queued: figures.queued,
            running: figures.running,
            submitted: figures.submitted,
            completed: figures.completed,
            succeeded: figures.succeeded,
            failed: figures.failed,
            cancelled: figures.cancelled,
            rejected: figures.rejected,
            is_closed: figures.is_closed,
            is_cancelled: figures.is_cancelled,
        }
    }

    /// Closes the pool, waits until everything is done that was accepted, and joins its threads: what its drop does, where that
    /// can be waited for.
    ///
    /// # Suspends
    ///
    /// Until then.
    ///
    /// # Errors
    ///
    /// `State` on one of its own workers, and where nothing may wait. The pool comes back as it was.
    pub fn destroy(self) -> Result<(), DestroyError> {
        if self.shared.is_own_part() || Waiting::new(None).is_err() {
            return Err(DestroyError { pool: self });
        }
        drop(self);
        Ok(())
    }
}

impl Drop for TaskPool {
    fn drop(&mut self) {
        self.shared.raw.leave();
        let threads = mem::take(&mut self.threads);
        if self.shared.is_own_part() {
            // They end by themselves, when this is over.
            return;
        }
        self.over
            .wait_for_thread(&Over(self.shared.identity().addr()));
        for thread in threads {
            if let Err(payload) = thread.join() {
                drop_payload(payload);
            }
        }
    }
}

impl fmt::Debug for TaskPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskPool")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// A pool could not be destroyed here; it comes back, open if it was.
#[derive(Debug)]
pub struct DestroyError {
    pool: TaskPool,
}

impl DestroyError {
    /// The pool.
    #[must_use]
    pub fn into_inner(self) -> TaskPool {
        self.pool
    }
}

impl fmt::Display for DestroyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the pool's end cannot be waited for here: on one of its own workers, or where nothing may wait")
    }
}

impl std::error::Error for DestroyError {}

impl From<DestroyError> for Error {
    #[track_caller]
    fn from(error: DestroyError) -> Self {
        Self::new(ErrorKind::State, error.to_string())
    }
}
