//! A sender that tells a receiver to look, once its value is there to be seen.
//!
//! Owns: the receiver's claim until its wake. Thread: the sender's.
#![expect(unsafe_code, reason = "stands for a party that waits")]

use core::cell::Cell;
use core::ptr::NonNull;

use crate::wait::{Claimed, Node, Reason, Record, Suspend, Waiter};

/// A party that wakes another when it is in its queue and has given the lock back.
pub(super) struct Telling<'a, S> {
    party: &'a S,
    told: Cell<Option<Claimed>>,
}

impl<'a, S> Telling<'a, S> {
    pub(super) fn new(party: &'a S, told: Claimed) -> Self {
        Self {
            party,
            told: Cell::new(Some(told)),
        }
    }
}

// SAFETY: it is the party, which keeps these duties; a wake neither unwinds nor suspends.
unsafe impl<S: Suspend> Suspend for Telling<'_, S> {
    fn party(&self) -> (NonNull<Waiter>, NonNull<Node>) {
        self.party.party()
    }

    fn refused(&self) -> Option<Reason> {
        self.party.refused()
    }

    fn expired(&self) -> Option<Reason> {
        self.party.expired()
    }

    fn suspend(&self, record: Record) -> Reason {
        wake(self.told.take());
        self.party.suspend(record)
    }

    fn withdraw(&self) {
        self.party.withdraw();
    }
}

impl<S> Drop for Telling<'_, S> {
    /// The party was refused: the receiver looks for nothing, and waits again.
    fn drop(&mut self) {
        wake(self.told.take());
    }
}

/// Wakes a receiver that was told. Without the lock.
pub(super) fn wake(told: Option<Claimed>) {
    if let Some(told) = told {
        told.wake();
    }
}
