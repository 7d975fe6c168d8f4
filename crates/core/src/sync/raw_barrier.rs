//! The barrier: parties wait for each other until so many have come.
//!
//! Owns: the count, the generation and the queue, under the barrier's lock. Any thread may call anything here.
//!
//! Invariants
//! - I1. `arrived` is the number of parties that have come in this generation and have not left it; it is below `parties`.
//! - I2. Every party that came in this generation and has not left is on its way to the queue's end, in the queue, or was ended by its
//!   deadline or a cancel and has not said so.
//!
//! The last party to come opens the barrier: the generation ends, and all who came in it are through. A party that gives up
//! leaves in the step in which it takes the lock and finds its generation unended: from then on it is not counted. If it finds that
//! ended, it was counted, the others went on relying on that, and it is through like them: its claim by the deadline came
//! before the last party, but its leaving came after. So nobody goes through without `parties` having come, and nobody who
//! was told that it gave up was counted.
#![expect(unsafe_code, reason = "waits through the queue")]

use core::fmt;
use core::ptr;

use crate::facade::const_unless_loom;
use crate::lock::{Guard, Lock};
use crate::sharing::{Shared, Sharing};
use crate::wait::{Kind, Queue, Reason, Record, Suspend, wait_in};

/// Lets parties through when so many have come.
///
/// `K` says whose parties share it: of all threads, or of one.
pub struct RawBarrier<K: Sharing = Shared> {
    parties: usize,
    state: Lock<State, K>,
}

struct State {
    arrived: usize,
    generation: u64,
    waiters: Queue,
}

/// What a party is that is through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The last to come: one in each generation.
    Leader,
    /// One of the others.
    Follower,
}

impl RawBarrier {
    const_unless_loom! {
        /// A barrier for so many parties of all threads, at least 1: with 0 it is as with 1.
        pub fn new(parties: usize) -> Self {
            Self::of_kind(parties)
        }
    }
}

impl<K: Sharing> RawBarrier<K> {
    const_unless_loom! {
        /// As [`new`](RawBarrier::new), of either kind.
        pub fn of_kind(parties: usize) -> Self {
            Self {
                parties: if parties == 0 { 1 } else { parties },
                state: Lock::of_kind(State { arrived: 0, generation: 0, waiters: Queue::new() }),
            }
        }
    }

    /// Comes, and waits until all have come.
    ///
    /// The last one goes through even if its deadline has passed or it is cancelled.
    ///
    /// # Errors
    ///
    /// The reason for which the party gave up: [`Reason::Timeout`] or [`Reason::Cancelled`]. It has left the barrier then.
    pub fn wait<S: Suspend>(&self, party: &S) -> Result<Role, Reason> {
        let state = self.state.lock();
        let mut state = match self.open(state) {
            Ok(()) => return Ok(Role::Leader),
            Err(state) => state,
        };
        if let Some(reason) = party.refused() {
            return Err(reason);
        }
        state.arrived += 1;
        let generation = state.generation;
        let record = Record {
            kind: Kind::Barrier,
            object: ptr::from_ref(self).addr(),
            owner: 0,
        };
        // SAFETY: the same queue, and nothing is handed over through the slot.
        let reason = unsafe {
            wait_in(
                &self.state,
                state,
                |state| &mut state.waiters,
                ptr::null_mut(),
                party,
                record,
            )
        };
        if reason == Reason::Woken {
            return Ok(Role::Follower);
        }
        let mut state = self.state.lock();
        if state.generation != generation {
            return Ok(Role::Follower);
        }
        // INVARIANT: I1.
        state.arrived -= 1;
        Err(reason)
    }

    /// Comes only if it is the last: then it opens the barrier, and this says so.
    #[must_use]
    pub fn try_wait(&self) -> bool {
        self.open(self.state.lock()).is_ok()
    }

    /// For how many parties it is.
    #[must_use]
    pub fn parties(&self) -> usize {
        self.parties
    }

    /// How many have come and wait for the others. Out of date as soon as it is said.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.state.lock().arrived
    }

    /// Ends the generation if only the caller was missing; else gives the lock back to it.
    fn open<'a>(&self, mut state: Guard<'a, State, K>) -> Result<(), Guard<'a, State, K>> {
        if state.arrived + 1 < self.parties {
            return Err(state);
        }
        state.arrived = 0;
        state.generation = state.generation.wrapping_add(1);
        let all = state.waiters.claim_all(Reason::Woken);
        drop(state);
        all.wake_all();
        Ok(())
    }
}

impl<K: Sharing> fmt::Debug for RawBarrier<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawBarrier")
            .field("parties", &self.parties)
            .field("arrived", &self.arrived())
            .finish_non_exhaustive()
    }
}
