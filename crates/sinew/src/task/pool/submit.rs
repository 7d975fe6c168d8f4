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

use std::time::{Duration, Instant};

use sinew_core::sync::Full;
use sinew_core::wait::{Arm, Kind, Reason, Record, Turn, wait_any};

use super::Shared;
use crate::cancel::CancelToken;
use crate::error::WaitError;
use crate::future::SharedFuture;
use crate::scheduler::crew::{Need, Progress};
use crate::scheduler::current;
use crate::scheduler::waiting::Waiting;
use crate::sys::clock;
use crate::task::job::{Job, Work};
use crate::task::refused::SubmitErrorKind;
use crate::task::{IntoOutcome, SubmitError, TaskContext};

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
    (kind, need, object): (Kind, &impl Need, *const ()),
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
    let wait = || {
        // SAFETY: different ones, just made.
        unsafe { wait_any(&arms[..count], Turn::from_arm(0), waiting, record) }
    };
    match current::awaiting(kind, need, wait) {
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
        future.set_executor(self.identity());
        let accepted = self.offer(job).or_else(|(full, job)| match full {
            Full::Closed => Err((SubmitErrorKind::Closed, job)),
            Full::Full => self.submit_slow(job, patience, tokens),
        });
        match accepted {
            Ok(()) => Ok(future),
            Err((kind, job)) => {
                self.raw.reject();
                Err(SubmitError::new(kind, job.into_body()))
            }
        }
    }

    #[inline]
    fn offer<F, R>(&self, job: Job<F, R>) -> Result<(), (Full, Job<F, R>)>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        self.raw.offer(job, |job| {
            let is_unwanted = job.is_unwanted();
            (job.forget(), is_unwanted)
        })
    }

    /// The queue was full.
    #[cold]
    fn submit_slow<F, R>(
        &self,
        mut job: Job<F, R>,
        patience: Patience,
        tokens: [Option<&CancelToken>; 2],
    ) -> Result<(), (SubmitErrorKind, Job<F, R>)>
    where
        F: FnOnce(&TaskContext<'_>) -> R + Send + 'static,
        R: IntoOutcome + 'static,
        R::Value: Send,
    {
        if self.purge() {
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
                self.fill(job.forget());
                Ok(())
            }
            Err(kind) => Err((kind, job)),
        }
    }

    /// Ends the queued jobs that were asked to stop; says whether there were any.
    pub(super) fn purge(&self) -> bool {
        let mark = CancelToken::fired_count();
        let purged = self.raw.purge(mark, Work::is_unwanted);
        let has_some = !purged.is_empty();
        if has_some {
            self.end_unrun(purged);
        }
        has_some
    }

    /// Queues a job in the place that is reserved for it.
    fn fill(&self, job: Work) {
        if let Err(job) = self.raw.fill(job, Work::is_unwanted) {
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
        let need = Progress(self.identity().addr());
        let awaited = (Kind::Room, &need, self.identity());
        let reason = match wait_for(&waiting, &arm, awaited, tokens) {
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
