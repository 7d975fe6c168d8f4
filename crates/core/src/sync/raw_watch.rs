//! The watch: one value that is replaced, and those who wait for it to change.
//!
//! Owns: the value, its version, the queue and the counts, under the watch's lock. Any thread may call anything here; which
//! version a receiver has seen is its own.
//!
//! Invariants
//! - I1. While somebody waits who could still be claimed, it has seen the present version, and the watch is open.
//! - I2. No code of the user's runs under the lock: the value is a counted reference, dropped outside.
//!
//! Who waits is told that there is something new, not what: it looks afterwards, and sees the latest. What came in
//! between is never seen.
#![expect(unsafe_code, reason = "waits through the queue")]

mod polled;

use core::cell::Cell;
use core::fmt;
use core::mem;
use core::ptr;

use crate::lock::{Guard, Lock};
use crate::sharing::{Shared, Sharing};
use crate::wait::{Kind, Probe, Queue, QueueArm, Reason, Record, Suspend, wait_in};

/// A value that is replaced, and that others watch.
///
/// `K` says whose parties share it: of all threads, or of one.
pub struct RawWatch<T, K: Sharing = Shared> {
    state: Lock<State<T, K>, K>,
}

/// What is under a watch's lock.
pub struct State<T, K: Sharing> {
    value: K::Ref<T>,
    version: u64,
    waiters: Queue,
    closed: bool,
    sender_count: usize,
    receiver_count: usize,
}

impl<T> RawWatch<T> {
    /// A watch of this value, which is version 0, with one sender and one receiver; for all threads.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self::of_kind(value)
    }
}

impl<T, K: Sharing> RawWatch<T, K> {
    /// As [`new`](RawWatch::new), of either kind.
    #[must_use]
    pub fn of_kind(value: T) -> Self {
        Self {
            state: Lock::of_kind(State {
                value: value.into(),
                version: 0,
                waiters: Queue::new(),
                closed: false,
                sender_count: 1,
                receiver_count: 1,
            }),
        }
    }

    /// Replaces the value if there is a receiver and the watch is open; returns the one before.
    ///
    /// # Errors
    ///
    /// The value comes back otherwise.
    pub fn send(&self, value: T) -> Result<K::Ref<T>, T> {
        let value = K::Ref::from(value);
        let state = self.state.lock();
        if state.closed || state.receiver_count == 0 {
            drop(state);
            return match K::try_unwrap(value) {
                Ok(value) => Err(value),
                Err(_) => unreachable!("the reference was given to nobody"),
            };
        }
        Ok(self.put(value, state))
    }

    /// Replaces the value in any case; returns the one before.
    pub fn replace(&self, value: T) -> K::Ref<T> {
        let value = K::Ref::from(value);
        self.put(value, self.state.lock())
    }

    fn put(&self, value: K::Ref<T>, mut state: Guard<'_, State<T, K>, K>) -> K::Ref<T> {
        let before = mem::replace(&mut state.value, value);
        state.version += 1;
        let woken = state.waiters.claim_all(Reason::Woken);
        drop(state);
        woken.wake_all();
        before
    }

    /// The value, and its version.
    #[must_use]
    pub fn get(&self) -> (K::Ref<T>, u64) {
        let state = self.state.lock();
        (state.value.clone(), state.version)
    }

    /// Whether there is another version than this one.
    #[must_use]
    pub fn has_changed(&self, seen: u64) -> bool {
        self.state.lock().version != seen
    }

    /// Takes another version than the one seen for seen, if there is one; says so.
    ///
    /// # Errors
    ///
    /// [`Reason::Closed`] if the watch is closed and its last version was seen.
    pub fn try_changed(&self, seen: &Cell<u64>) -> Result<bool, Reason> {
        match self.state.lock().look(seen) {
            Some(Reason::Woken) => Ok(true),
            Some(reason) => Err(reason),
            None => Ok(false),
        }
    }

    /// Waits for another version than the one seen; that is the one seen then.
    ///
    /// # Errors
    ///
    /// [`Reason::Closed`] if the watch is closed and its last version was seen, else the reason for which the party gave up.
    pub fn changed<S: Suspend>(&self, seen: &Cell<u64>, party: &S) -> Result<(), Reason> {
        loop {
            let state = self.state.lock();
            match state.look(seen) {
                Some(Reason::Woken) => return Ok(()),
                Some(reason) => return Err(reason),
                None => {}
            }
            let record = Record {
                kind: Kind::Receive,
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
            if matches!(reason, Reason::Timeout | Reason::Cancelled) {
                return Err(reason);
            }
        }
    }

    /// An arm that waits for another version than the one seen.
    #[must_use]
    pub fn arm<'a>(&'a self, seen: &'a Cell<u64>) -> ChangeArm<'a, T, K> {
        QueueArm::new(&self.state, ChangeProbe(seen))
    }

    /// Ends the watch: the value stays. Says whether it was open.
    pub fn close(&self) -> bool {
        self.shut(self.state.lock())
    }

    fn shut(&self, mut state: Guard<'_, State<T, K>, K>) -> bool {
        let opened = !mem::replace(&mut state.closed, true);
        let woken = state.waiters.claim_all(Reason::Closed);
        drop(state);
        woken.wake_all();
        opened
    }

    /// Whether the watch has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// The receivers.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        self.state.lock().receiver_count
    }

    /// Counts one more sender.
    pub fn add_sender(&self) {
        self.state.lock().sender_count += 1;
    }

    /// Counts one sender less; after the last one the watch [closes](Self::close).
    pub fn remove_sender(&self) {
        let mut state = self.state.lock();
        state.sender_count -= 1;
        if state.sender_count == 0 {
            self.shut(state);
        }
    }

    /// Counts one more receiver; returns the present version.
    pub fn add_receiver(&self) -> u64 {
        let mut state = self.state.lock();
        state.receiver_count += 1;
        state.version
    }

    /// Counts one receiver less.
    pub fn remove_receiver(&self) {
        self.state.lock().receiver_count -= 1;
    }
}

impl<T, K: Sharing> State<T, K> {
    /// Whether there is something new, or never will be; what is new is seen then.
    fn look(&self, seen: &Cell<u64>) -> Option<Reason> {
        if self.version != seen.get() {
            seen.set(self.version);
            return Some(Reason::Woken);
        }
        self.closed.then_some(Reason::Closed)
    }
}

/// How an arm looks at a watch.
#[derive(Debug)]
pub struct ChangeProbe<'a>(&'a Cell<u64>);

/// Waits for another version, as one of several things.
pub type ChangeArm<'a, T, K = Shared> = QueueArm<'a, State<T, K>, ChangeProbe<'a>, K>;

// SAFETY: the one queue; who is claimed from it looks again.
unsafe impl<T, K: Sharing> Probe<State<T, K>> for ChangeProbe<'_> {
    const IS_HINT: bool = true;

    fn take(&self, state: &mut State<T, K>) -> Option<Reason> {
        state.look(self.0)
    }

    fn is_there(&self, state: &mut State<T, K>) -> bool {
        state.closed || state.version != self.0.get()
    }

    fn queue<'b>(&self, state: &'b mut State<T, K>) -> &'b mut Queue {
        &mut state.waiters
    }
}

impl<T, K: Sharing> fmt::Debug for State<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl<T, K: Sharing> fmt::Debug for RawWatch<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawWatch")
            .field("version", &self.get().1)
            .finish_non_exhaustive()
    }
}
