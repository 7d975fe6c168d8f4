//! A thread whose whole work is its scheduler, and something beside it.
//!
//! Owns: nothing. Thread: the scheduler's, on its own frame.

use crate::scheduler::post::SchedulerHandle;
use crate::scheduler::step::Progress;
use crate::scheduler::{BUDGET, Scheduler};
use crate::sys::clock;

impl Scheduler {
    /// Runs what there is, a batch at least, whatever the deadline; then goes on, and sleeps where there is nothing to run, until the
    /// deadline, or until somebody calls ([`SchedulerHandle::rouse`]). Unlike [`run_until`](Self::run_until) it does not return because
    /// nothing is alive.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    pub(crate) fn serve(&self, deadline_ns: Option<u64>) {
        for _ in 0..BUDGET {
            if self.step() != Ok(Progress::Made) {
                break;
            }
        }
        if self.run_by_hand(deadline_ns) != Ok(Progress::Closed) {
            return;
        }
        let is_over = || deadline_ns.is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns);
        // Whoever called before the look above has left the wish; who calls after it is in the inbox, and there is no sleep.
        if !self.shared.take_stop() && !is_over() {
            self.sleep(deadline_ns);
        }
    }

    /// Accepts nothing any more, and runs the posts that were accepted. What is alive is asked to stop, and sees to it when it is next run.
    pub(crate) fn close_and_run_posts(&self) {
        self.close();
        while self.run_post() {}
    }
}

impl SchedulerHandle {
    /// Ends a [`Scheduler::serve`], or keeps the next one from sleeping.
    pub(crate) fn rouse(&self) {
        self.stop();
    }
}
