//! Limits around code that runs here: deadlines over all waits inside, and shields against cancels from outside.
//!
//! Owns: the chain of limits that a coroutine, or a plain thread, is inside of. Each lies in the frame of the function that
//! set it; the innermost comes first.
//! Thread: the one that runs inside.
//!
//! Invariants
//! - I1. A limit in the chain is alive: it is taken out before its frame ends, by unwinding too.
//! - I2. `effective_ns` of a limit is the earliest deadline of it and those around it, up to the nearest shield.
//!
//! A deadline that strikes marks the limits whose time is up; from then on every wait inside them is refused as
//! cancelled, until their functions return. A shield hides what is around it, the cancel flag of the coroutine included.
#![expect(
    unsafe_code,
    reason = "follows the chain of limits through stack frames"
)]

use std::cell::Cell;
use std::ptr;

use sinew_core::wait::Reason;

use crate::coroutine::Fence;
use crate::scheduler::block::flag;
use crate::scheduler::current::{self, Place, place};

/// One limit; see the file's head.
#[derive(Debug)]
pub(crate) struct Limit {
    around: *const Limit,
    is_shield: bool,
    /// `u64::MAX`: none.
    own_ns: u64,
    effective_ns: u64,
    has_struck: Cell<bool>,
}

/// The chain of the current party. `Frame` has none: nothing waits there.
#[inline]
pub(super) fn chain<'a>(place: Place<'a>) -> Option<&'a Cell<*const Limit>> {
    match place {
        Place::Coroutine(_, block) if block.has(flag::LIMITED) => {
            block.extra().map(|extra| &extra.limits)
        }
        Place::Coroutine(..) | Place::Frame => None,
        Place::Thread => Some(current::thread_limits()),
    }
}

/// The innermost limit of the current party.
#[inline]
pub(super) fn innermost<'a>(place: Place<'a>) -> Option<&'a Limit> {
    // SAFETY: I1.
    chain(place).and_then(|chain| unsafe { chain.get().as_ref() })
}

impl Limit {
    /// Runs `f` inside of a limit; says whether its deadline has ended a wait.
    pub(crate) fn around<R>(is_shield: bool, own_ns: u64, f: impl FnOnce() -> R) -> (R, bool) {
        // A stand-alone coroutine must not suspend while its frame is in the chain.
        let _fence = Fence::raise();
        let here = place();
        if let Place::Coroutine(_, block) = here {
            block.extra_or_new();
            block.set(flag::LIMITED);
        }
        let Some(chain) = chain(here) else {
            return (f(), false);
        };
        let around = chain.get();
        // SAFETY: I1.
        let outer_ns = unsafe { around.as_ref() }.map_or(u64::MAX, |outer| outer.effective_ns);
        let limit = Self {
            around,
            is_shield,
            own_ns,
            effective_ns: if is_shield {
                own_ns
            } else {
                own_ns.min(outer_ns)
            },
            has_struck: Cell::new(false),
        };
        let entered = Entered { chain, around };
        chain.set(ptr::from_ref(&limit));
        let value = f();
        drop(entered);
        (value, limit.has_struck.get())
    }

    /// The limits from this one outwards, up to the nearest shield, which is the last.
    fn outwards(&self) -> impl Iterator<Item = &Self> {
        let mut next = Some(self);
        std::iter::from_fn(move || {
            let limit = next?;
            // SAFETY: I1.
            let around = unsafe { limit.around.as_ref() };
            next = around.filter(|_| !limit.is_shield);
            Some(limit)
        })
    }

    /// Whether a wait inside is to be refused: `cancelled` says whether the coroutine is.
    pub(super) fn refuses(&self, cancelled: bool) -> bool {
        let mut shielded = false;
        for limit in self.outwards() {
            if limit.has_struck.get() {
                return true;
            }
            shielded = limit.is_shield;
        }
        cancelled && !shielded
    }

    /// The earliest deadline, if there is one.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        (self.effective_ns != u64::MAX).then_some(self.effective_ns)
    }

    /// A wait with the deadline `own_ns` has timed out inside: was it that deadline, or a limit's?
    pub(super) fn blame(&self, own_ns: Option<u64>) -> Reason {
        if own_ns.is_some_and(|own_ns| own_ns <= self.effective_ns) {
            return Reason::Timeout;
        }
        for limit in self.outwards() {
            if limit.own_ns <= self.effective_ns {
                limit.has_struck.set(true);
            }
        }
        Reason::Cancelled
    }
}

/// Takes a limit out of its chain again.
struct Entered<'a> {
    chain: &'a Cell<*const Limit>,
    around: *const Limit,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.chain.set(self.around);
    }
}
