//! The wait group: a count, and those who wait for it to reach zero.
//!
//! Owns: count and queue, under the group's lock. Any thread may call anything here.
//!
//! Invariants
//! - I1. While the count is zero the queue holds nobody who could still be claimed.
//!
//! A wait that has begun ends with the first zero after it, even if the count is raised again before the waiter runs:
//! a claim stands. A group can be used again.
#![expect(unsafe_code, reason = "waits through the queue")]

mod polled;

use core::error::Error;
use core::fmt;
use core::ptr;

use crate::facade::const_unless_loom;
use crate::lock::Lock;
use crate::sharing::{Shared, Sharing};
use crate::wait::{Kind, Probe, Queue, QueueArm, Reason, Record, Suspend, WakeList, wait_in};

/// A count that can be waited for to reach zero.
///
/// `K` says whose parties share it: of all threads, or of one.
#[derive(Debug)]
pub struct RawWaitGroup<K: Sharing = Shared> {
    state: Lock<State, K>,
}

/// What is under a group's lock.
#[derive(Debug)]
pub struct State {
    count: usize,
    waiters: Queue,
}

/// How an arm looks at a group.
#[derive(Debug)]
pub struct ZeroProbe;

/// Waits for a group's count to be zero, as one of several things.
pub type WaitGroupArm<'a, K = Shared> = QueueArm<'a, State, ZeroProbe, K>;

// SAFETY: the one queue; who is claimed from it was there when the count was zero.
unsafe impl Probe<State> for ZeroProbe {
    fn take(&self, state: &mut State) -> Option<Reason> {
        (state.count == 0).then_some(Reason::Woken)
    }

    fn is_there(&self, state: &mut State) -> bool {
        state.count == 0
    }

    fn queue<'a>(&self, state: &'a mut State) -> &'a mut Queue {
        &mut state.waiters
    }
}

/// Why a count was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CountError {
    /// It would have gone below zero: more was done than added.
    Below,
    /// It would have gone beyond `usize::MAX`.
    Beyond,
}

impl fmt::Display for CountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Below => "the count of a wait group would go below zero",
            Self::Beyond => "the count of a wait group would go beyond its range",
        })
    }
}

impl Error for CountError {}

impl RawWaitGroup {
    const_unless_loom! {
        /// A group with nothing to wait for, for all threads.
        pub fn new() -> Self {
            Self::of_kind()
        }
    }
}

impl<K: Sharing> RawWaitGroup<K> {
    /// An arm that waits until the count is zero.
    #[must_use]
    pub fn arm(&self) -> WaitGroupArm<'_, K> {
        QueueArm::new(&self.state, ZeroProbe)
    }

    const_unless_loom! {
        /// A group with nothing to wait for, of either kind.
        pub fn of_kind() -> Self {
            Self {
                state: Lock::of_kind(State { count: 0, waiters: Queue::new() }),
            }
        }
    }

    /// Raises the count by `number`.
    ///
    /// # Errors
    ///
    /// [`CountError::Beyond`] if that is more than a `usize` holds; the count stays.
    pub fn add(&self, number: usize) -> Result<(), CountError> {
        let mut state = self.state.lock();
        state.count = state.count.checked_add(number).ok_or(CountError::Beyond)?;
        Ok(())
    }

    /// Lowers the count by one, and wakes all who wait if that makes it zero.
    ///
    /// # Errors
    ///
    /// [`CountError::Below`] if the count is zero already; it stays so.
    pub fn done(&self) -> Result<(), CountError> {
        let mut state = self.state.lock();
        state.count = state.count.checked_sub(1).ok_or(CountError::Below)?;
        let woken = if state.count == 0 {
            state.waiters.claim_all(Reason::Woken)
        } else {
            WakeList::new()
        };
        drop(state);
        woken.wake_all();
        Ok(())
    }

    /// Waits until the count is zero; returns at once if it is.
    ///
    /// # Errors
    ///
    /// The reason for which the party gave up: [`Reason::Timeout`] or [`Reason::Cancelled`].
    pub fn wait<S: Suspend>(&self, party: &S) -> Result<(), Reason> {
        let state = self.state.lock();
        if state.count == 0 {
            return Ok(());
        }
        let record = Record {
            kind: Kind::WaitGroup,
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
        match reason {
            Reason::Woken => Ok(()),
            reason => Err(reason),
        }
    }

    /// The count. Out of date as soon as it is said.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state.lock().count
    }
}

impl<K: Sharing> Default for RawWaitGroup<K> {
    fn default() -> Self {
        Self::of_kind()
    }
}
