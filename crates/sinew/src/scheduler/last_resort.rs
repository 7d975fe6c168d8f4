//! The last resort of a scheduler that ends: when a coroutine that is refused all the time and cannot be unwound ends the process.
//!
//! Owns: the count of such refusals, and what is remembered of the scheduler's coroutines meanwhile. Thread: the scheduler's.
//!
//! Invariants
//! - I1. The process ends only if all coroutines were ready at every look, and none of those that were there at the first one has started, waited or
//!   ended since.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;

use crate::scheduler::block::Block;
use crate::scheduler::{REFUSALS_PER_TURN, Scheduler, forced};

/// After how many refused waits in a row where none can be raised, as on a panicking thread, while nobody else waits, the process ends.
const REFUSED_MAX: u32 = 100_000;
/// After how many of them it is remembered how far everyone is. A walk over all blocks: not for a wait of a moment.
const REFUSED_SOME: u32 = 1_000;

const _: () = assert!(
    REFUSED_MAX.is_multiple_of(REFUSALS_PER_TURN as u32)
        && REFUSED_SOME.is_multiple_of(REFUSALS_PER_TURN as u32)
);

/// See the file's head.
#[derive(Debug)]
pub(super) struct LastResort {
    /// How many waits were refused on a panicking thread when they were to be unwound.
    refused: Cell<u32>,
    /// How far everyone was.
    before: Cell<Standing>,
}

/// How far the coroutines of a scheduler are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    /// Of those with a smaller id. Those that are made meanwhile count for nothing: they only end, and one that is refused may go on to make them.
    below: u64,
    count: u64,
    /// All of their changes so far.
    changes: u64,
}

impl LastResort {
    pub(super) const fn new() -> Self {
        Self {
            refused: Cell::new(0),
            before: Cell::new(Standing {
                below: 0,
                count: 0,
                changes: 0,
            }),
        }
    }
}

impl Scheduler {
    /// The forced unwind is due and cannot be raised: a frame lies in between that lets no panic through, or a destructor runs because of a panic,
    /// perhaps a neighbour's that waits in it. If for so many refusals nobody has waited for anything but a turn, that will not change. A look at
    /// who is ready would not do, nor many: whoever was woken in between has only its turn to wait for each time.
    #[cold]
    pub(super) fn note_refusal_without_unwind(&self, me: &Block) {
        let LastResort { refused, before } = &self.last_resort;
        refused.set(refused.get() + 1);
        if !refused.get().is_multiple_of(u32::from(REFUSALS_PER_TURN)) {
            return;
        }
        if self.ready.len() + 1 < self.alive() {
            refused.set(0);
        } else if refused.get() == REFUSED_SOME {
            before.set(self.standing_of(self.ids_so_far()));
        } else if refused.get() >= REFUSED_MAX {
            if self.standing_of(before.get().below) == before.get() {
                forced::report_and_abort(me.id(), me.name().as_deref(), "scheduler");
            }
            refused.set(0);
        }
        self.ready.push_last(me);
        self.switch_out(me);
    }

    fn standing_of(&self, below: u64) -> Standing {
        let (mut count, mut changes) = (0, 0_u64);
        self.for_each_alive(|block| {
            if block.id() < below {
                count += 1;
                // A start and each wait is a change. They never become fewer, so that a sum tells whether there was one.
                changes = changes.wrapping_add(block.seq.load(Relaxed).into());
            }
        });
        Standing {
            below,
            count,
            changes,
        }
    }
}
