//! The condition variable: a line of those who have given a mutex back to wait for what its value says.
//!
//! Owns: the queue. Any thread may call anything here.
//!
//! # Why no notification is lost
//!
//! A party is linked before it gives the mutex back. So who takes the mutex after it, changes what it waits for and
//! notifies finds it in the queue. Being notified is a claim, and stands: a deadline or a cancel that comes later
//! changes nothing, and one that came first leaves the notification to the next party.
//!
//! # Why the mutex is held on every way out
//!
//! The wait ends in one place for all reasons, with taking the mutex again by a party that neither has a deadline nor
//! can be cancelled. One that must not wait at all never gave the mutex back. Nobody is woken without having been notified.
#![expect(
    unsafe_code,
    reason = "waits through the queue, and gives a mutex back on behalf of its holder"
)]

use core::cell::Cell;
use core::fmt;
use core::ptr::{self, NonNull};

use crate::facade::const_unless_loom;
use crate::lock::Lock;
use crate::sharing::{Shared, Sharing};
use crate::sync::RawMutex;
use crate::wait::{Kind, Node, Queue, Reason, Record, Suspend, Waiter, wait_in};

/// A condition variable.
///
/// `K` says whose parties share it: of all threads, or of one.
pub struct RawCondvar<K: Sharing = Shared> {
    queue: Lock<Queue, K>,
}

/// A party that gives a mutex back once it is linked.
struct Releasing<'a, S, K: Sharing> {
    party: &'a S,
    mutex: &'a RawMutex<K>,
    has_released: Cell<bool>,
}

// SAFETY: as the party itself; what `suspend` does before does not unwind.
unsafe impl<S: Suspend, K: Sharing> Suspend for Releasing<'_, S, K> {
    fn party(&self) -> (NonNull<Waiter>, NonNull<Node>) {
        self.party.party()
    }

    fn refused(&self) -> Option<Reason> {
        self.party.refused()
    }

    fn suspend(&self, record: Record) -> Reason {
        self.has_released.set(true);
        // SAFETY: the caller of `wait` holds the mutex, and lends it.
        unsafe { self.mutex.unlock() };
        self.party.suspend(record)
    }

    fn withdraw(&self) {
        self.party.withdraw();
    }
}

impl RawCondvar {
    const_unless_loom! {
        /// A condition variable nobody waits at, for all threads.
        pub fn new() -> Self {
            Self::of_kind()
        }
    }
}

impl<K: Sharing> RawCondvar<K> {
    const_unless_loom! {
        /// A condition variable nobody waits at, of either kind.
        pub fn of_kind() -> Self {
            Self { queue: Lock::of_kind(Queue::new()) }
        }
    }

    /// Gives the mutex back, waits to be notified, and takes the mutex again, whatever ended the wait: by `relocking`, the same
    /// party without deadline and cancel, which does not give up. `owner` is for the mutex then.
    ///
    /// # Errors
    ///
    /// The reason for which the party gave up: [`Reason::Timeout`] or [`Reason::Cancelled`]. It has taken no
    /// notification then.
    ///
    /// # Safety
    ///
    /// The caller holds the mutex, and has nothing borrowed from what it guards.
    pub unsafe fn wait<S: Suspend, R: Suspend>(
        &self,
        mutex: &RawMutex<K>,
        owner: u64,
        party: &S,
        relocking: &R,
    ) -> Result<(), Reason> {
        let party = Releasing {
            party,
            mutex,
            has_released: Cell::new(false),
        };
        let record = Record {
            kind: Kind::Condvar,
            object: ptr::from_ref(self).addr(),
            owner: 0,
        };
        // SAFETY: the same queue, and nothing is handed over through the slot.
        let reason = unsafe {
            wait_in(
                &self.queue,
                self.queue.lock(),
                |queue| queue,
                ptr::null_mut(),
                &party,
                record,
            )
        };
        if party.has_released.get() {
            while mutex.lock(relocking, owner).is_err() {
                debug_assert!(false, "who takes the mutex again does not give up");
            }
        }
        match reason {
            Reason::Woken => Ok(()),
            reason => Err(reason),
        }
    }

    /// Wakes the party that has waited longest; says whether there was one.
    pub fn notify_one(&self) -> bool {
        let first = self.queue.lock().claim_front(Reason::Woken);
        match first {
            Some(first) => {
                first.wake();
                true
            }
            None => false,
        }
    }

    /// Wakes all who wait; says how many.
    pub fn notify_all(&self) -> usize {
        let all = self.queue.lock().claim_all(Reason::Woken);
        all.wake_all()
    }
}

impl<K: Sharing> Default for RawCondvar<K> {
    fn default() -> Self {
        Self::of_kind()
    }
}

impl<K: Sharing> fmt::Debug for RawCondvar<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawCondvar").finish_non_exhaustive()
    }
}
