//! A descriptor's readiness as one of several things that are waited for.
//!
//! Owns: the arm. Thread: the waiting one: a coroutine's node is linked at its own scheduler's sources only. On a plain
//! thread nothing is linked; the select asks poll(2).
#![expect(unsafe_code, reason = "links the arm's node into a descriptor's queue")]

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::{fmt, io};

use sinew_core::wait::{Arm, ArmNode, Linking, Reason, Waiter};

use crate::io::Interest;
use crate::io::named::named;
use crate::io::raw::{is_pollable, not_pollable};
use crate::io::readiness::{closed, poll_until};
use crate::io::source::Direction;
use crate::scheduler::Scheduler;
use crate::scheduler::current::{Place, place};
use crate::sync::select::Common;

/// Waits for a descriptor to become ready, as one of several things. Made by
/// [`select::ready`](crate::sync::select::ready).
pub struct ReadyArm<'a> {
    fd: BorrowedFd<'a>,
    direction: Direction,
    node: ArmNode,
    /// Which life of the number the linked node waits for.
    life: Cell<Option<u32>>,
    outcome: Cell<Option<io::Result<()>>>,
    common: Common,
}

impl<'a> ReadyArm<'a> {
    pub(crate) fn new<Fd: AsFd + ?Sized>(fd: &'a Fd, interest: Interest) -> Self {
        let fd = fd.as_fd();
        let refused = (!is_pollable(fd)).then(|| Err(not_pollable(fd)));
        Self {
            fd,
            direction: interest.into(),
            node: ArmNode::new(),
            life: Cell::new(None),
            outcome: Cell::new(refused),
            common: Common::new(),
        }
    }

    /// What became of the wait, if the arm was the one that took effect.
    #[must_use]
    pub fn take(&self) -> Option<io::Result<()>> {
        self.outcome.take()
    }

    pub(crate) fn common(&self) -> &Common {
        &self.common
    }

    /// What a plain thread is to ask poll(2) for.
    pub(crate) fn descriptor(&self) -> (BorrowedFd<'a>, Direction) {
        (self.fd, self.direction)
    }

    /// The arm takes effect with an error.
    pub(crate) fn fail(&self, error: io::Error) {
        self.outcome.set(Some(Err(error)));
    }

    fn has_outcome(&self) -> bool {
        let outcome = self.outcome.take();
        let has_outcome = outcome.is_some();
        self.outcome.set(outcome);
        has_outcome
    }

    /// Takes the node out; says whether the descriptor is what it was when the node was linked.
    fn leave(&self, life: u32) -> bool {
        let Some(scheduler) = scheduler() else {
            return false;
        };
        let (number, node) = (self.fd.as_raw_fd(), self.node.as_node());
        // SAFETY: linked by `link` with the same, by this coroutine's scheduler.
        unsafe { scheduler.unlink_source(number, self.direction, node, life) }
    }
}

fn scheduler<'a>() -> Option<&'a Scheduler> {
    match place() {
        Place::Coroutine(scheduler, _) => Some(scheduler),
        Place::Thread | Place::Frame => None,
    }
}

// SAFETY: linked and unlinked at the sources of the waiter's own scheduler, which is their lock. A registration reports what
// is ready when it is made or renewed, so nothing that comes after `attempt` is missed.
unsafe impl Arm for ReadyArm<'_> {
    fn attempt(&self) -> bool {
        if self.has_outcome() {
            return true;
        }
        let outcome = match poll_until(self.fd, self.direction, Some(0)) {
            Ok(false) => return false,
            outcome => outcome.map(drop),
        };
        self.outcome.set(Some(outcome));
        true
    }

    fn node(&self) -> &ArmNode {
        &self.node
    }

    unsafe fn link(&self, waiter: NonNull<Waiter>) -> Linking {
        let Some(scheduler) = scheduler() else {
            return Linking::Linked;
        };
        let number = self.fd.as_raw_fd();
        if let Err(error) = scheduler.watch(number, 0) {
            self.fail(named(error, || format!("descriptor {number}")));
            return Linking::Ready;
        }
        // SAFETY: unlinked, and the caller is its waiter.
        let node = unsafe { self.node.prepare(waiter, ptr::null_mut()) };
        // SAFETY: prepared, spread; `unlink` and `settle` take it out.
        let life = unsafe { scheduler.link_source(number, 0, self.direction, node) };
        self.life.set(Some(life));
        Linking::Linked
    }

    unsafe fn unlink(&self) {
        if let Some(life) = self.life.take() {
            self.leave(life);
        }
    }

    unsafe fn settle(&self, reason: Reason) -> bool {
        let Some(life) = self.life.take() else {
            // A plain thread: poll(2) has said that a look is worth while.
            return self.attempt();
        };
        let outcome = if self.leave(life) && reason == Reason::Woken {
            Ok(())
        } else {
            Err(closed(self.fd.as_raw_fd()))
        };
        self.outcome.set(Some(outcome));
        true
    }
}

impl fmt::Debug for ReadyArm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyArm")
            .field("fd", &self.fd)
            .field("direction", &self.direction)
            .finish_non_exhaustive()
    }
}
