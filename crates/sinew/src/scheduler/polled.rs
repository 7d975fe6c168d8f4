//! What a scheduler does for futures that are polled on its thread: readiness, turns, and wakers to be called later.
//!
//! Owns: the wakers that came while the scheduler's own parts were borrowed. Thread: the scheduler's.

use std::cell::RefCell;
use std::os::fd::RawFd;
use std::task::Waker;

use sinew_core::wait::Polled;

use crate::future;
use crate::io::Direction;
use crate::scheduler::{Scheduler, current};

/// Wakers to be called when nothing of the scheduler is borrowed: they run code of the user's.
#[derive(Debug, Default)]
pub(super) struct Deferred(RefCell<Vec<Waker>>);

impl Deferred {
    pub(super) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// Calls them; says whether there were any.
    #[inline]
    pub(super) fn call(&self) -> bool {
        let mut any = false;
        while let Some(waker) = self.take() {
            future::call(waker);
            any = true;
        }
        any
    }

    fn take(&self) -> Option<Waker> {
        self.0.borrow_mut().pop()
    }
}

/// Leaves a waker for the scheduler of this thread to call. How parties wake that wait for readiness.
pub(crate) fn call_later(waker: Waker) {
    let mut waker = Some(waker);
    current::with_scheduler(|scheduler| scheduler.deferred.0.borrow_mut().extend(waker.take()));
    if let Some(waker) = waker {
        future::call(waker);
    }
}

impl Scheduler {
    /// Links a prepared party at a watched descriptor, which is known to have nothing now.
    pub(crate) fn link_polled(
        &self,
        fd: RawFd,
        owner: u64,
        direction: Direction,
        party: &mut Polled<()>,
    ) {
        let mut sources = self.sources.borrow_mut();
        sources.exhausted(fd, owner, direction);
        sources.link_polled(fd, direction, party);
    }

    /// Takes a party out again.
    pub(crate) fn unlink_polled(&self, fd: RawFd, direction: Direction, party: &mut Polled<()>) {
        self.sources
            .borrow_mut()
            .unlink_polled(fd, direction, party);
    }

    /// Uses a turn up if any is left before the others have theirs.
    pub(crate) fn spend_turn(&self) -> bool {
        let budget = self.budget.get();
        if budget > 1 {
            self.budget.set(budget - 1);
        }
        budget > 1
    }
}
