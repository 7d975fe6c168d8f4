//! Running a scheduler by hand: to its end, for a while, or step by step.
//!
//! Owns: the public ways into the loop, each from the anchor's own frame. Thread: the scheduler's.
//!
//! Invariants
//! - I1. One of these calls at a time is under way, and none from inside of a coroutine.
//! - I2. While a single step runs the budget is 0: a coroutine that stops or ends gives the thread back to the scheduler's
//!   frame, so one is resumed at most.

use std::panic::resume_unwind;
use std::time::Instant;

use crate::scheduler::door::Figures;
use crate::scheduler::object::StateError;
use crate::scheduler::{Scheduler, Until};
use crate::sys::clock;

/// What a scheduler has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Progress {
    /// Something was run, and there may be more to run now.
    Made,
    /// Nothing is alive and nothing is queued: there is nothing to wait for.
    Closed,
    /// Something is alive, but nothing is ready.
    Timeout,
}

/// Marks a call as being under way.
struct Running<'a>(&'a Scheduler);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.set(false);
    }
}

impl Scheduler {
    /// Runs what was posted and spawned, and everything that comes of it, until nothing is alive and nothing is queued
    /// ([`Progress::Closed`]), or until someone stops it ([`Progress::Made`]): [`crate::stop`] and
    /// [`SchedulerHandle::stop`](crate::SchedulerHandle::stop) leave everything intact, and a later call goes on.
    ///
    /// # Suspends
    ///
    /// Never: it blocks the thread, which runs the coroutines meanwhile.
    ///
    /// # Errors
    ///
    /// `State` inside of a coroutine, or while such a call is under way.
    ///
    /// # Panics
    ///
    /// With the first panic that nobody joined, or of a post, if no hook is set
    /// ([`crate::inspect::on_unhandled`]). Everything is intact then, and another call goes on.
    pub fn run(&self) -> Result<Progress, StateError> {
        self.run_by_hand(None)
    }

    /// As [`Scheduler::run`], until `deadline`: then [`Progress::Made`] if something is ready, else [`Progress::Timeout`].
    ///
    /// The deadline is looked at between coroutines, every 64 switches: a coroutine that does not stop delays it.
    ///
    /// # Errors
    ///
    /// As for [`Scheduler::run`].
    ///
    /// # Panics
    ///
    /// As for [`Scheduler::run`].
    pub fn run_until(&self, deadline: Instant) -> Result<Progress, StateError> {
        self.run_by_hand(Some(clock::instant_ns(deadline)))
    }

    /// Runs at most one post and resumes at most one coroutine, without waiting; before these, the callbacks of
    /// [timers](crate::time::Timer) that are due. A coroutine that has been resumed runs until it stops or ends.
    ///
    /// # Errors
    ///
    /// As for [`Scheduler::run`].
    ///
    /// # Panics
    ///
    /// As for [`Scheduler::run`].
    pub fn step(&self) -> Result<Progress, StateError> {
        let running = self.enter()?;
        let progress = self.step_once();
        drop(running);
        self.raise_kept();
        Ok(progress)
    }

    /// As [`Scheduler::step`], but waits first, at most until `deadline`, for something to do. It looks at least once, also
    /// if the deadline has passed.
    ///
    /// # Errors
    ///
    /// As for [`Scheduler::run`].
    ///
    /// # Panics
    ///
    /// As for [`Scheduler::run`].
    pub fn poll(&self, deadline: Instant) -> Result<Progress, StateError> {
        let running = self.enter()?;
        let deadline_ns = clock::instant_ns(deadline);
        let progress = loop {
            let progress = self.step_once();
            let over = progress != Progress::Timeout
                || clock::now_ns() >= deadline_ns
                || self.shared.take_stop();
            if over {
                break progress;
            }
            if self.sleep(Some(deadline_ns)) {
                break Progress::Made;
            }
        };
        drop(running);
        self.raise_kept();
        Ok(progress)
    }

    pub(super) fn run_by_hand(&self, deadline_ns: Option<u64>) -> Result<Progress, StateError> {
        let running = self.enter()?;
        self.stoppable.set(true);
        let progress = self.run_loop(Until {
            deadline_ns,
            stoppable: true,
        });
        self.stoppable.set(false);
        drop(running);
        self.raise_kept();
        Ok(progress)
    }

    /// I1.
    fn enter(&self) -> Result<Running<'_>, StateError> {
        let in_coroutine = !self.current().is_null() || crate::coroutine::is_inside();
        if in_coroutine || self.running.replace(true) {
            return Err(StateError);
        }
        Ok(Running(self))
    }

    fn step_once(&self) -> Progress {
        // I2.
        self.count_switches(0);
        let was_called = self.attention.replace(false);
        let rang = self.look();
        if was_called || self.attention.get() {
            self.let_visitors_in();
        }
        let posted = self.run_post();
        let resumed = self.ready.pop();
        if let Some(block) = resumed {
            Figures::add(&self.door.figures.switches, 1);
            self.resume_queued(block);
        }
        if posted || rang || resumed.is_some() {
            Progress::Made
        } else if self.is_idle() {
            Progress::Closed
        } else {
            Progress::Timeout
        }
    }

    /// Raises the panic that was kept, if there is one. No borrow is held then.
    fn raise_kept(&self) {
        let kept = self.kept_panic.take();
        if let Some(payload) = kept {
            resume_unwind(payload);
        }
    }
}
