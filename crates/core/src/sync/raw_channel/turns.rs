//! The turns of receivers that were told of a value: how often others may take it first.
//!
//! Owns: a receiver's count of the times. Thread: the receiver's; the channel's count of reserved values is under its lock.
//!
//! | a receiver | it waits with | when it is told |
//! |---|---|---|
//! | has looked in vain fewer than [`OVERTAKEN_MAX`] times | its slot, or none | the first to look takes the value |
//! | is starving | the mark | one value is reserved until it looks or leaves |

use core::mem;
use core::ptr::{self, NonNull};

use super::{Channel, Got, State};
use crate::lock::Guard;
use crate::sharing::Sharing;
use crate::wait::{Claimed, Reason, Waiter};

/// How often a receiver that was told of a value may find that another has taken it before one is reserved for it.
#[cfg(not(loom))]
pub const OVERTAKEN_MAX: u32 = 16;

/// As above; small enough for a model to get there.
#[cfg(loom)]
pub const OVERTAKEN_MAX: u32 = 1;

/// The slot of a starving receiver, to which nothing is given. Nothing lies there, nor before it.
const MARK: *mut () = ptr::without_provenance_mut(1);

/// Whether a receiver with this slot is given values, rather than told of them.
#[inline(always)]
pub(super) fn is_given(slot: *mut ()) -> bool {
    // PERF: both are told from a place by one comparison.
    slot.addr() > MARK.addr()
}

fn is_mark(slot: *mut ()) -> bool {
    ptr::eq(slot, MARK)
}

/// What a receiver knows of its turns, from its first wait until it has a value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    /// How often it has looked in vain.
    overtaken: u32,
    /// Whether a value is reserved for it.
    is_reserved: bool,
}

impl Turn {
    pub(crate) const fn new() -> Self {
        Self {
            overtaken: 0,
            is_reserved: false,
        }
    }

    /// The slot to wait with: `usual`, unless it is starving.
    pub(super) fn slot_or(&self, usual: *mut ()) -> *mut () {
        match self.is_starving() {
            true => MARK,
            false => usual,
        }
    }

    /// Whether it has looked in vain: it waits before all others.
    pub(super) fn was_overtaken(&self) -> bool {
        self.overtaken > 0
    }

    fn is_starving(&self) -> bool {
        self.overtaken >= OVERTAKEN_MAX
    }

    /// Its wait is over for this reason: was it told with a value reserved?
    pub(super) fn end(&mut self, reason: Reason) {
        self.is_reserved = self.is_starving() && reason == Reason::Woken;
    }
}

impl<T, K: Sharing> Channel<T, K> {
    /// As [`get`](Self::get), for one that was told: what is reserved for it is not any more.
    pub(super) fn get_told(&self, turn: &mut Turn) -> Got<'_, T, K> {
        let mut state = self.state.lock();
        let got = match mem::take(&mut turn.is_reserved) {
            true => {
                state.reserved -= 1;
                // By I6 one of the values is its own.
                self.get_first(state)
            }
            false if state.reserved > 0 => self.get_unreserved(state),
            false => self.get_first(state),
        };
        match got {
            Got::Empty(_) => turn.overtaken = turn.overtaken.saturating_add(1),
            Got::Value(_) | Got::Closed => *turn = Turn::new(),
        }
        got
    }

    /// Gives up what is reserved for a receiver that leaves.
    pub(super) fn give_up(&self, turn: &mut Turn) {
        if mem::take(&mut turn.is_reserved) {
            self.state.lock().reserved -= 1;
        }
    }

    /// As [`get`](Self::get), while values are reserved for others.
    #[cold]
    pub(super) fn get_unreserved<'a>(&'a self, state: Guard<'a, State<T>, K>) -> Got<'a, T, K> {
        match state.closed || state.has_unreserved(None) {
            true => self.get_first(state),
            false => Got::Empty(state),
        }
    }
}

impl<T> State<T> {
    /// Reserves a value for the receiver that was just claimed to look, if it is starving.
    pub(super) fn reserve_for(&mut self, told: Option<Claimed>) -> Option<Claimed> {
        if told.as_ref().is_some_and(|told| is_mark(told.slot())) {
            self.reserved += 1;
        }
        told
    }

    /// Whether there are more values, in the buffer and of senders other than `waiter`, than are reserved.
    pub(super) fn has_unreserved(&self, waiter: Option<NonNull<Waiter>>) -> bool {
        let reserved = usize::try_from(self.reserved).unwrap_or(usize::MAX);
        let Some(wanted) = reserved.checked_sub(self.buffer.len()) else {
            return true;
        };
        self.senders.count_others(waiter, wanted + 1) > wanted
    }
}
