//! The semaphore: a count of permits, and a line of those who wait for some.
//!
//! Owns: count, closing and queue, under the semaphore's lock. Any thread may call anything here.
//!
//! Invariants
//! - I1. Whenever the lock is given back, the first party in the line that nobody else has claimed wants more permits than there
//!   are. (While a party that gave up is on its way to say so, that may be broken by it; whoever comes first puts it right.)
//! - I2. A permit is in one place: in the count, or with a party that was claimed for it.
//! - I3. Once it is closed nobody waits here.
//!
//! # Policy: first come, first served, without barging
//!
//! Permits are handed to the first in the line under the lock, before it runs. A party that comes while others wait
//! goes to the end of the line, even if there are permits enough for it and not for the first one. So a party waits
//! for no more permits than those before it in the line and itself want, and one that wants many is not starved by those that want few. There is
//! nothing here for barging to save: with permits left, nobody waits, and nobody switches.
//!
//! A claim stands: who was handed permits has them, even if its deadline passes or it is cancelled before it runs. Who gives up
//! takes none, and those behind it are served at once if it was in their way.
#![expect(unsafe_code, reason = "waits through the queue")]

use core::error::Error;
use core::fmt;
use core::ptr;

use crate::facade::const_unless_loom;
use crate::lock::{Guard, Lock};
use crate::sharing::{Shared, Sharing};
use crate::wait::{Kind, Queue, Reason, Record, Suspend, WakeList, wait_in};

/// A count of permits that can be waited for.
///
/// `K` says whose parties share it: of all threads, or of one.
pub struct RawSemaphore<K: Sharing = Shared> {
    state: Lock<State, K>,
}

struct State {
    count: usize,
    closed: bool,
    waiters: Queue,
}

/// How an attempt to take permits went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "permits may have been taken"]
pub enum TryDown {
    /// The caller has them.
    Taken,
    /// There are not enough, or others wait for theirs.
    Short,
    /// The semaphore is closed.
    Closed,
}

/// The count would have gone beyond `usize::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow;

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the count of a semaphore would go beyond its range")
    }
}

impl Error for Overflow {}

impl RawSemaphore {
    const_unless_loom! {
        /// A semaphore with so many permits, for all threads.
        pub fn new(count: usize) -> Self {
            Self::of_kind(count)
        }
    }
}

impl<K: Sharing> RawSemaphore<K> {
    const_unless_loom! {
        /// A semaphore with so many permits, of either kind.
        pub fn of_kind(count: usize) -> Self {
            Self {
                state: Lock::of_kind(State { count, closed: false, waiters: Queue::new() }),
            }
        }
    }

    /// Takes `wanted` permits if there are so many and nobody waits for any. None are there at any time, until it is closed.
    #[inline]
    pub fn try_down(&self, wanted: usize) -> TryDown {
        let mut state = self.state.lock();
        // Somebody who gave up may be in the way.
        let served = state.serve();
        let result = state.take(wanted);
        drop(state);
        served.wake_all();
        result
    }

    /// Takes `wanted` permits, all at once, waiting for them if need be.
    ///
    /// Permits that are there are taken even if the party's deadline has passed or it is cancelled.
    ///
    /// # Errors
    ///
    /// [`Reason::Closed`] if the semaphore is closed, or is while the party waits; otherwise the reason for which it
    /// gave up: [`Reason::Timeout`] or [`Reason::Cancelled`]. It has taken no permit then.
    #[inline]
    pub fn down<S: Suspend>(&self, wanted: usize, party: &S) -> Result<(), Reason> {
        loop {
            let mut state = self.state.lock();
            let served = state.serve();
            if served.is_empty() {
                return match state.take(wanted) {
                    TryDown::Taken => Ok(()),
                    TryDown::Closed => Err(Reason::Closed),
                    TryDown::Short => self.wait(state, &wanted, party),
                };
            }
            // They are before this party, which has nothing to tell them once it waits.
            drop(state);
            served.wake_all();
        }
    }

    #[cold]
    fn wait<S: Suspend>(
        &self,
        state: Guard<'_, State, K>,
        wanted: &usize,
        party: &S,
    ) -> Result<(), Reason> {
        let record = Record {
            kind: Kind::Semaphore,
            object: ptr::from_ref(self).addr(),
            owner: 0,
        };
        let slot = ptr::from_ref(wanted).cast_mut().cast();
        // SAFETY: the same queue, and what `serve` expects: a number that outlives the wait.
        let reason = unsafe {
            wait_in(
                &self.state,
                state,
                |state| &mut state.waiters,
                slot,
                party,
                record,
            )
        };
        match reason {
            Reason::Woken => Ok(()),
            Reason::Closed => Err(reason),
            Reason::Timeout | Reason::Cancelled => {
                // INVARIANT: I1: this party may have been in the way of those behind it.
                let served = self.state.lock().serve();
                served.wake_all();
                Err(reason)
            }
        }
    }

    /// Gives `number` permits, to those who wait first.
    ///
    /// # Errors
    ///
    /// [`Overflow`] if that is more than a `usize` holds; nothing is changed then.
    #[inline]
    pub fn up(&self, number: usize) -> Result<(), Overflow> {
        let mut state = self.state.lock();
        state.count = state.count.checked_add(number).ok_or(Overflow)?;
        let served = state.serve();
        drop(state);
        served.wake_all();
        Ok(())
    }

    /// Closes the semaphore for good: who waits and who comes later gets [`Reason::Closed`]. Permits that are out can be given
    /// back. Says whether it was open.
    pub fn close(&self) -> bool {
        let mut state = self.state.lock();
        let was_open = !core::mem::replace(&mut state.closed, true);
        // INVARIANT: I3.
        let woken = state.waiters.claim_all(Reason::Closed);
        drop(state);
        woken.wake_all();
        was_open
    }

    /// Whether it was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// How many permits there are to take. Out of date as soon as it is said.
    #[must_use]
    pub fn value(&self) -> usize {
        self.state.lock().count
    }
}

impl State {
    /// Takes permits if nobody waits for any.
    #[inline]
    fn take(&mut self, wanted: usize) -> TryDown {
        if self.closed {
            return TryDown::Closed;
        }
        if wanted == 0 {
            return TryDown::Taken;
        }
        if self.count < wanted || !self.waiters.is_empty() {
            return TryDown::Short;
        }
        self.count -= wanted;
        TryDown::Taken
    }

    /// Hands permits to the first in the line as far as they go; those are to be woken without the lock.
    #[inline]
    fn serve(&mut self) -> WakeList {
        let mut served = WakeList::new();
        // SAFETY: the slot of everyone in this queue is the number that it wants, in its frame, and the lock is held.
        let wanted = |slot: *mut ()| unsafe { *slot.cast::<usize>() };
        let count = &mut self.count;
        while let Some(first) = self
            .waiters
            .claim_front_if(Reason::Woken, |slot| wanted(slot) <= *count)
        {
            // INVARIANT: I2.
            *count -= wanted(first.slot());
            served.push(first);
        }
        served
    }
}

impl<K: Sharing> fmt::Debug for RawSemaphore<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("RawSemaphore")
            .field("count", &state.count)
            .field("closed", &state.closed)
            .finish_non_exhaustive()
    }
}
