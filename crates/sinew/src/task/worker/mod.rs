//! Workers: threads that run a scheduler and its driver, with tasks on their loop.
//!
//! Owns: the thread, by [`Worker`]; what its handles share. Any thread, but for [`WorkerLocal`], which is the worker's.
//!
//! Invariants
//! - I1. A task that was accepted ends once, on the worker's thread: those for now run, also if the worker is stopped meanwhile, unless
//!   they were asked to stop; those for later run, or end as cancelled, or fail because the worker was stopped.
//! - I2. Before a task's end is published it is in no list, nothing listens at its token, and what it owned is dropped.
//!
//! Whatever runs several schedulers one day hands out a [`WorkerHandle`] for each: nothing here knows who started the thread.

#![expect(unsafe_code, reason = "follows the thread's pointer to its worker")]

mod buffers;
mod builder;
mod delayed;
mod thread;

use std::ops::Deref;
use std::panic::Location;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, ptr};

use crate::cancel::CancelToken;
use crate::error::Error;
use crate::future::SharedFuture;
use crate::scheduler::Scheduler;
use crate::scheduler::body::{Payload, drop_payload};
use crate::scheduler::crew::{Crew, Over};
use crate::scheduler::current;
use crate::scheduler::post::SchedulerHandle;
use crate::sys::clock;
use crate::task::job::{Job, Order, Work};
use crate::task::refused::SubmitErrorKind;
use crate::task::{IntoOutcome, SubmitError, TaskContext};

pub use buffers::IoBuffer;
pub use builder::WorkerBuilder;

use buffers::Buffers;
use delayed::{Delayed, Entry, Refusal};

/// What the handles of a worker have in common.
struct Shared {
    name: String,
    delayed: Delayed,
}

/// A way to a worker from any thread. Clones lead to the same one; it stays safe to use after the worker's end, which refuses everything.
#[derive(Clone)]
pub struct WorkerHandle {
    scheduler: SchedulerHandle,
    shared: Arc<Shared>,
}

/// What a task finds on the worker that runs it: see [`TaskContext::worker`].
pub struct WorkerLocal {
    handle: WorkerHandle,
    buffers: Rc<Buffers>,
}

/// How much a worker has before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStats {
    /// Tasks for now, and other posts, that wait for their turn.
    pub queued: u64,
    /// Tasks that wait for their time, or for their end after a cancel.
    pub delayed: usize,
    /// Whether it accepts nothing any more.
    pub is_stopped: bool,
}

impl WorkerLocal {
    fn new(name: &str, scheduler: &Scheduler, delayed_limit: usize, buffer_bytes: usize) -> Self {
        Self {
            handle: WorkerHandle {
                scheduler: scheduler.handle(),
                shared: Arc::new(Shared {
                    name: name.to_owned(),
                    delayed: Delayed::new(delayed_limit),
                }),
            },
            buffers: Buffers::new(buffer_bytes),
        }
    }

    /// The way to this worker.
    #[must_use]
    pub fn handle(&self) -> &WorkerHandle {
        &self.handle
    }

    /// A buffer for reading and writing, of the size that the worker's builder was told: one that was used before, if there is one. It is
    /// given back when it is dropped, and what is in it is left there.
    #[must_use]
    pub fn buffer(&self) -> IoBuffer {
        self.buffers.take()
    }

    /// How many buffers wait to be used again.
    #[must_use]
    pub fn kept_buffers(&self) -> usize {
        self.buffers.kept()
    }
}

impl fmt::Debug for WorkerLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerLocal")
            .field("name", &self.handle.name())
            .finish_non_exhaustive()
    }
}

impl TaskContext<'_> {
    /// The worker that runs the task; `None` if it is run by something else.
    #[must_use]
    pub fn worker(&self) -> Option<&WorkerLocal> {
        self.extra()
    }
}

/// Runs `f` with `local` as the thread's worker; it must not unwind.
fn as_worker<R>(
    local: &WorkerLocal,
    built_at: &'static Location<'static>,
    f: impl FnOnce() -> R,
) -> R {
    let identity = local.handle.identity();
    let crew = Crew::new(identity, local.handle.name(), None, built_at);
    current::set_worker(ptr::from_ref(local).cast());
    let result = crew.serve_loop(identity, f);
    current::set_worker(ptr::null());
    result
}

/// Runs a task whose turn has come, on the worker's thread.
fn run(work: Work) {
    // SAFETY: not null inside of `as_worker`, which borrows it; nothing else sets it.
    let local = unsafe { current::worker().cast::<WorkerLocal>().as_ref() };
    match local {
        Some(local) => thread::finish(work, Order::Run, local),
        None => unreachable!("a worker runs what was posted to it before it goes"),
    }
}

impl WorkerHandle {
    /// The worker as an identity.
    fn identity(&self) -> *const () {
        Arc::as_ptr(&self.shared).cast()
    }

    /// The name of the worker's thread.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The worker's scheduler: for coroutines ([`task::spawn_on`](crate::task::spawn_on)) and posts.
    #[must_use]
    pub fn scheduler(&self) -> &SchedulerHandle {
        &self.scheduler
    }

    /// How much the worker has before it.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        WorkerStats {
            queued: self.scheduler.queued_posts(),
            delayed: self.shared.delayed.len(),
            is_stopped: self.shared.delayed.is_closed(),
        }
    }

    /// Has a task run on the worker's loop as soon as its turn comes.
    ///
    /// It runs on the thread's plain stack, between coroutines: it should be short, and every wait in it fails with `State`. It may
    /// spawn, post and use the worker's buffers ([`TaskContext::worker`]). Once it is accepted it runs, though the worker be stopped
    /// meanwhile; one that was asked to stop before its turn does not.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    ///
    /// # Errors
    ///
    /// The task comes back: `Closed` if the worker is stopped; `Again` if as many are queued as may be.
    pub fn submit<F, R>(&self, task: F) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        self.submit_under(CancelToken::new(), task)
    }

    /// As [`submit`](Self::submit), when `delay` is over: never before. A cancel takes it out of the worker's timers, and ends it on the
    /// worker; a stop of the worker before its time fails it with `Closed`.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit); `Again` if as many wait for their time as may.
    pub fn submit_after<F, R>(
        &self,
        delay: Duration,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        self.submit_delayed(CancelToken::new(), clock::after_ns(delay), task)
    }

    /// As [`submit_after`](Self::submit_after), at an instant.
    ///
    /// # Errors
    ///
    /// As [`submit_after`](Self::submit_after).
    pub fn submit_at<F, R>(
        &self,
        instant: Instant,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        self.submit_delayed(CancelToken::new(), clock::instant_ns(instant), task)
    }

    /// For now, where this is the future's token.
    pub(super) fn submit_under<F, R>(
        &self,
        token: CancelToken,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        if self.shared.delayed.is_closed() {
            return Err(SubmitError::new(SubmitErrorKind::Closed, task));
        }
        let (job, future) = Job::with_token(token, task);
        future.set_executor(self.identity());
        // The post is refused as a whole, so the job is kept where both sides reach it.
        let cell = Arc::new(Mutex::new(Some(job)));
        let theirs = cell.clone();
        let take =
            |cell: &Mutex<Option<_>>| cell.lock().unwrap_or_else(PoisonError::into_inner).take();
        let posted = self.scheduler.post(move || {
            if let Some(job) = take(&theirs) {
                run(job.forget());
            }
        });
        let Err(refused) = posted else {
            return Ok(future);
        };
        let kind = match refused.is_again() {
            true => SubmitErrorKind::Again,
            false => SubmitErrorKind::Closed,
        };
        match take(&cell) {
            Some(job) => Err(SubmitError::new(kind, job.into_body())),
            None => unreachable!("a post that was refused has not run"),
        }
    }

    /// For later, where this is the future's token.
    pub(super) fn submit_delayed<F, R>(
        &self,
        token: CancelToken,
        deadline_ns: u64,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        let (job, future) = Job::with_token(token.clone(), task);
        future.set_executor(self.identity());
        let key = self.shared.delayed.key(deadline_ns);
        let theirs = self.clone();
        let listener = token.on_cancel(move |_| {
            if theirs.shared.delayed.cancel(key) {
                theirs.scheduler.rouse();
            }
        });
        let accepted = self
            .shared
            .delayed
            .insert(key, (job, listener), |(work, listener)| Entry {
                work: work.forget(),
                listener,
            });
        match accepted {
            Ok(must_look) => {
                if must_look {
                    self.scheduler.rouse();
                }
                Ok(future)
            }
            Err((refusal, (job, listener))) => {
                drop(listener);
                let kind = match refusal {
                    Refusal::Full => SubmitErrorKind::Again,
                    Refusal::Closed => SubmitErrorKind::Closed,
                };
                Err(SubmitError::new(kind, job.into_body()))
            }
        }
    }

    /// Stops the worker: it accepts nothing any more, runs what it has for now, fails what it has for later with `Closed`, asks the
    /// coroutines of its scheduler to stop, and ends when they have. False if that was done already.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    pub fn stop(&self) -> bool {
        let is_first = self.shared.delayed.close();
        self.scheduler.rouse();
        is_first
    }
}

impl fmt::Debug for WorkerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerHandle")
            .field("name", &self.name())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// A thread that runs a scheduler and its driver, for tasks that are short and do not wait, and for coroutines.
///
/// One that is dropped is [stopped](WorkerHandle::stop), and its thread is joined before the drop returns; in a coroutine that suspends
/// meanwhile. On the worker's own thread, where that is not possible, the drop returns at once and the thread ends by itself.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sinew::task::{Outcome, TaskContext, Worker};
///
/// let worker = Worker::new().unwrap();
/// let later = worker
///     .submit_after(Duration::from_millis(2), |context: &TaskContext<'_>| {
///         let mut buffer = context.worker().unwrap().buffer();
///         buffer[..5].copy_from_slice(b"later");
///         Outcome::Success(buffer[..5].to_vec())
///     })
///     .unwrap();
/// let now = worker.submit(|_| Outcome::Success("now")).unwrap();
/// now.wait().unwrap();
/// later.wait().unwrap();
/// assert_eq!(later.get().unwrap().unwrap(), b"later");
/// ```
pub struct Worker {
    handle: WorkerHandle,
    thread: Option<JoinHandle<()>>,
    /// Closed when the thread has ended.
    end: SharedFuture<()>,
}

impl Worker {
    /// A worker with every default.
    ///
    /// # Errors
    ///
    /// As [`WorkerBuilder::build`].
    #[track_caller]
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// To choose a name, limits and sizes.
    pub fn builder() -> WorkerBuilder {
        WorkerBuilder::new()
    }

    fn new_with(handle: WorkerHandle, thread: JoinHandle<()>, end: SharedFuture<()>) -> Self {
        Self {
            handle,
            thread: Some(thread),
            end,
        }
    }

    /// A way to it from any thread.
    #[must_use]
    pub fn handle(&self) -> WorkerHandle {
        self.handle.clone()
    }

    /// Stops it and waits for its end: what its drop does, with what became of it.
    ///
    /// # Suspends
    ///
    /// Until then.
    ///
    /// # Errors
    ///
    /// With the first panic of a coroutine of its scheduler that nobody joined, if no hook is set
    /// ([`crate::inspect::on_unhandled`]).
    pub fn join(mut self) -> Result<(), Payload> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<(), Payload> {
        self.handle.stop();
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        if thread.thread().id() == std::thread::current().id() {
            return Ok(());
        }
        self.end
            .wait_for_thread(&Over(self.handle.identity().addr()));
        thread.join()
    }
}

impl Deref for Worker {
    type Target = WorkerHandle;

    fn deref(&self) -> &WorkerHandle {
        &self.handle
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Err(payload) = self.shut_down() {
            drop_payload(payload);
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Worker").field(&self.handle).finish()
    }
}
