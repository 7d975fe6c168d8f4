//! Handing tasks to a pool.
//!
//! Owns: a task until it is accepted. Thread: the submitter's.
//!
//! # How it goes
//!
//! 1. If there is room the task is queued, whatever else is the case. A closed pool refuses it.
//! 2. Else the queued tasks that were asked to stop are ended, unless no token of the process has fired since that was last
//!    done, and it is tried again. What they own is dropped here, and may come back to this pool.
//! 3. Else, if the submitter may wait, it waits for a place to be reserved for it, and queues the task there.
//! 4. If the wait ends otherwise, a last look: a place that has become free meanwhile wins.
#![expect(unsafe_code, reason = "lends arms to the wait protocol")]

use std::fmt;
use std::time::{Duration, Instant};

use sinew_core::sync::Full;
use sinew_core::wait::{Arm, Kind, Reason, Record, Turn, wait_any};

use super::Shared;
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind, WaitError};
use crate::future::SharedFuture;
use crate::scheduler::waiting::Waiting;
use crate::sys::clock;
use crate::task::job::{Job, Work};
use crate::task::{IntoOutcome, TaskContext};

/// Whether a submitter waits for room.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience {
    /// Not at all.
    Try,
    /// At most until then.
    Until(Option<u64>),
}

/// Waits for one arm, or for one of the tokens to fire.
///
/// Fails with `None` if a token fired, else with what ended the party's wait.
pub(super) fn wait_for<A: Arm>(
    waiting: &Waiting<'_>,
    arm: &A,
    (kind, object): (Kind, *const ()),
    tokens: [Option<&CancelToken>; 2],
) -> Result<(), Option<Reason>> {
    let tokens = tokens.map(|token| token.map(CancelToken::wait_arm));
    let mut arms: [&dyn Arm; 3] = [arm; 3];
    let mut count = 1;
    for token in tokens.iter().flatten() {
        arms[count] = token;
        count += 1;
    }
    let record = Record {
        kind,
        object: object.addr(),
        owner: 0,
    };
    // SAFETY: different ones, just made.
    match unsafe { wait_any(&arms[..count], Turn::from_arm(0), waiting, record) } {
        Ok(0) => Ok(()),
        Ok(_) => Err(None),
        Err(reason) => Err(Some(reason)),
    }
}

impl Shared {
    /// Hands a task over; any of the tokens ends the wait for room.
    pub(crate) fn submit<F, R>(
        &self,
        parent: Option<&CancelToken>,
        task: F,
        patience: Patience,
        tokens: [Option<&CancelToken>; 2],
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        let (job, future) = Job::new(parent, task);
        let accepted = self.offer(job).or_else(|(full, job)| match full {
            Full::Closed => Err((SubmitErrorKind::Closed, job)),
            Full::Full => self.submit_slow(job, patience, tokens),
        });
        match accepted {
            Ok(()) => Ok(future),
            Err((kind, job)) => {
                self.raw.reject();
                Err(SubmitError {
                    kind,
                    task: job.into_body(),
                })
            }
        }
    }

    fn offer<J: Work + 'static>(&self, job: Box<J>) -> Result<(), (Full, Box<J>)> {
        self.raw.offer(job, |job| {
            let is_unwanted = job.is_unwanted();
            (job, is_unwanted)
        })
    }

    /// The queue was full.
    #[cold]
    fn submit_slow<J: Work + 'static>(
        &self,
        mut job: Box<J>,
        patience: Patience,
        tokens: [Option<&CancelToken>; 2],
    ) -> Result<(), (SubmitErrorKind, Box<J>)> {
        let purged = self
            .raw
            .purge(CancelToken::fired_count(), |job| job.is_unwanted());
        if !purged.is_empty() {
            self.end_unrun(purged);
            job = match self.offer(job) {
                Ok(()) => return Ok(()),
                Err((Full::Closed, job)) => return Err((SubmitErrorKind::Closed, job)),
                Err((Full::Full, job)) => job,
            };
        }
        let Patience::Until(deadline_ns) = patience else {
            return Err((SubmitErrorKind::Again, job));
        };
        match self.wait_for_room(deadline_ns, tokens) {
            Ok(()) => {
                self.fill(job);
                Ok(())
            }
            Err(kind) => Err((kind, job)),
        }
    }

    /// Queues a job in the place that is reserved for it.
    fn fill(&self, job: Box<dyn Work>) {
        if let Err(job) = self.raw.fill(job, |job| job.is_unwanted()) {
            self.end_unrun([job]);
        }
    }

    /// Waits for a place to be reserved.
    fn wait_for_room(
        &self,
        deadline_ns: Option<u64>,
        tokens: [Option<&CancelToken>; 2],
    ) -> Result<(), SubmitErrorKind> {
        if self.is_own_worker() {
            return Err(SubmitErrorKind::State);
        }
        let Ok(waiting) = Waiting::new(deadline_ns) else {
            return Err(SubmitErrorKind::State);
        };
        let arm = self.raw.room_arm();
        let reason = match wait_for(&waiting, &arm, (Kind::Room, self.identity()), tokens) {
            Ok(()) if arm.take() == Some(Reason::Closed) => return Err(SubmitErrorKind::Closed),
            Ok(()) => return Ok(()),
            Err(reason) => reason,
        };
        match self.raw.reserve() {
            Ok(()) => return Ok(()),
            Err(Full::Closed) => return Err(SubmitErrorKind::Closed),
            Err(Full::Full) => {}
        }
        Err(match reason.map(|reason| waiting.result(reason)) {
            Some(Err(WaitError::Timeout)) => SubmitErrorKind::Timeout,
            _ => SubmitErrorKind::Cancelled,
        })
    }
}

/// Submits tasks that have a parent token. Made by [`TaskPool::under`](super::TaskPool::under).
#[derive(Debug, Clone, Copy)]
pub struct Submitter<'a> {
    pool: &'a Shared,
    parent: Option<&'a CancelToken>,
}

impl<'a> Submitter<'a> {
    pub(super) fn new(pool: &'a Shared, parent: Option<&'a CancelToken>) -> Self {
        Self { pool, parent }
    }

    /// As [`TaskPool::submit`](super::TaskPool::submit).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn submit<F, R>(self, task: F) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        self.pool
            .submit(self.parent, task, Patience::Until(None), [None; 2])
    }

    /// As [`TaskPool::try_submit`](super::TaskPool::try_submit).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn try_submit<F, R>(self, task: F) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        self.pool
            .submit(self.parent, task, Patience::Try, [None; 2])
    }

    /// As [`TaskPool::submit_timeout`](super::TaskPool::submit_timeout).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn submit_timeout<F, R>(
        self,
        timeout: Duration,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        let until = Patience::Until(Some(clock::after_ns(timeout)));
        self.pool.submit(self.parent, task, until, [None; 2])
    }

    /// As [`TaskPool::submit_deadline`](super::TaskPool::submit_deadline).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn submit_deadline<F, R>(
        self,
        deadline: Instant,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        let until = Patience::Until(Some(clock::instant_ns(deadline)));
        self.pool.submit(self.parent, task, until, [None; 2])
    }

    /// As [`TaskPool::submit_cancel`](super::TaskPool::submit_cancel).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn submit_cancel<F, R>(
        self,
        token: &CancelToken,
        task: F,
    ) -> Result<SharedFuture<R::Value>, SubmitError<F>>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        self.pool.submit(
            self.parent,
            task,
            Patience::Until(None),
            [Some(token), None],
        )
    }
}

/// A task was not accepted; it comes back.
pub struct SubmitError<F> {
    kind: SubmitErrorKind,
    task: F,
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubmitErrorKind {
    Again,
    Timeout,
    Cancelled,
    Closed,
    State,
}

impl<F> SubmitError<F> {
    pub(crate) fn new(kind: SubmitErrorKind, task: F) -> Self {
        Self { kind, task }
    }

    /// The task that was refused; nothing of it has run.
    pub fn into_inner(self) -> F {
        self.task
    }

    /// Why, as an error's kind: `Again`, `Timeout`, `Cancelled`, `Closed` or `State`.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self.kind {
            SubmitErrorKind::Again => ErrorKind::Again,
            SubmitErrorKind::Timeout => ErrorKind::Timeout,
            SubmitErrorKind::Cancelled => ErrorKind::Cancelled,
            SubmitErrorKind::Closed => ErrorKind::Closed,
            SubmitErrorKind::State => ErrorKind::State,
        }
    }

    /// Whether there was no room.
    #[must_use]
    pub fn is_again(&self) -> bool {
        self.kind == SubmitErrorKind::Again
    }

    /// Whether there was no room in time.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.kind == SubmitErrorKind::Timeout
    }

    /// Whether the wait for room was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.kind == SubmitErrorKind::Cancelled
    }

    /// Whether nothing is accepted any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.kind == SubmitErrorKind::Closed
    }

    /// Whether room cannot be waited for here: on the pool's own worker, or where nothing may wait.
    #[must_use]
    pub fn is_state(&self) -> bool {
        self.kind == SubmitErrorKind::State
    }
}

impl<F> fmt::Debug for SubmitError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitError")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl<F> fmt::Display for SubmitError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            SubmitErrorKind::Again => "the queue is full: try again later",
            SubmitErrorKind::Timeout => "the queue was full until the deadline",
            SubmitErrorKind::Cancelled => "the wait for room in the queue was cancelled",
            SubmitErrorKind::Closed => "it is closed and accepts no more tasks",
            SubmitErrorKind::State => {
                "the queue is full, and room cannot be waited for here: on the pool's own worker, or where nothing may wait"
            }
        })
    }
}

impl<F> std::error::Error for SubmitError<F> {}

impl<F> From<SubmitError<F>> for Error {
    #[track_caller]
    fn from(error: SubmitError<F>) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}
