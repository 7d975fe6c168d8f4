//! The watch over a scheduler that sleeps: whether it can ever go on.
//!
//! Owns: when to look, and what was found. Thread: the scheduler's, on its own frame.
//!
//! A scheduler of [`crate::run`] that goes to sleep with nothing to wait for, no timer and no descriptor, is looked at when it has slept
//! for [`FIRST_NS`], and then each time that it has slept twice as long, so an idle one costs next to nothing. The looks
//! together take a hundredth of the time at most, however many coroutines there are.
//!
//! If none of its coroutines can ever go on, which is proven in `inspect::deadlock`, the report is kept for `run`, and
//! everything is cancelled: it ends as after a panic of the first coroutine. If on the way to an end nothing can go on, because those that
//! are left wait behind shields, that is reported at once, and the process aborts.

use std::cell::{Cell, RefCell};

use crate::inspect::{self, Deadlock};
use crate::scheduler::{Scheduler, Teardown, forced};

/// After how much sleep the first look comes.
const FIRST_NS: u64 = 20_000_000;
/// How many times as long as the last look takes the time to the next one is at least.
const COST_SHARE: u64 = 100;

/// See the file's head.
#[derive(Debug)]
pub(super) struct Vigil {
    /// Whether it is kept: the scheduler is a `run`'s, or its anchor ends.
    kept: Cell<bool>,
    /// How long the scheduler is to sleep until the next look.
    pause_ns: Cell<u64>,
    /// The least that `pause_ns` is set to.
    pause_min_ns: Cell<u64>,
    found: RefCell<Option<Box<Deadlock>>>,
}

impl Vigil {
    pub(super) const fn new() -> Self {
        Self {
            kept: Cell::new(false),
            pause_ns: Cell::new(FIRST_NS),
            pause_min_ns: Cell::new(FIRST_NS),
            found: RefCell::new(None),
        }
    }

    /// Keeps watch from now on.
    pub(super) fn keep(&self) {
        self.kept.set(true);
    }

    /// What was found, if anything.
    pub(super) fn take_found(&self) -> Option<Box<Deadlock>> {
        self.found.take()
    }

    /// Something went on.
    pub(super) fn restart(&self) {
        self.pause_ns.set(self.pause_min_ns.get());
    }
}

impl Scheduler {
    /// Until when a sleep with that deadline lasts before it is looked whether it would ever end. `None` if there is nothing to look for.
    pub(super) fn vigil_ns(&self, deadline_ns: Option<u64>) -> Option<u64> {
        let is_due =
            deadline_ns.is_none() && self.vigil.kept.get() && self.sources.borrow().waiting() == 0;
        is_due.then(|| {
            let now_ns = self.driver.borrow().now_ns();
            now_ns.saturating_add(self.vigil.pause_ns.get())
        })
    }

    /// A sleep begins, with a look due at its end or not: seals the door if nobody outside can have anything done here.
    pub(super) fn begin_vigil(&self, is_due: bool) {
        // In this order: what was posted by the last handle is seen.
        if is_due && self.has_no_handles() && self.has_nothing_posted() {
            self.door.seal();
        }
    }

    /// A sleep is over that a look was due at the end of.
    pub(super) fn end_vigil(&self, until_ns: u64) {
        let vigil = &self.vigil;
        let before_ns = self.driver.borrow().now_ns();
        if !self.ready.is_empty() || !self.has_nothing_posted() || before_ns < until_ns {
            vigil.restart();
            return;
        }
        let found = inspect::standstill(self);
        let cost_ns = self.driver.borrow().now_ns().saturating_sub(before_ns);
        let pause_min_ns = cost_ns.saturating_mul(COST_SHARE).max(FIRST_NS);
        vigil.pause_min_ns.set(pause_min_ns);
        let pause_ns = vigil.pause_ns.get().saturating_mul(2);
        vigil.pause_ns.set(pause_ns.max(pause_min_ns));
        if let Some(found) = found {
            if self.teardown.get() != Teardown::No {
                forced::report_standstill_and_abort(&found);
            }
            vigil.found.replace(Some(Box::new(found)));
            self.cancel_everything_because("nothing on this thread could go on");
        }
    }

    /// Whether no other thread has a way to post to this scheduler.
    pub(crate) fn has_no_handles(&self) -> bool {
        self.shared.is_alone()
    }

    /// Whether nothing has come in that was not looked at.
    pub(crate) fn has_nothing_posted(&self) -> bool {
        let door = self.door;
        self.shared.posts.is_empty() && door.inbox.is_empty() && door.orders.is_empty()
    }
}
