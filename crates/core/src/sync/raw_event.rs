//! The event: a signal that parties wait for, taken by one of them (auto-reset) or seen by all (manual-reset).
//!
//! Owns: the flag and the queue, under the event's lock. Any thread may call anything here.
//!
//! Invariants
//! - I1. While the event is set the queue holds nobody who could still be claimed.
//! - I2. Auto-reset: a signal is in one place: the flag, or a party that was claimed for it and its [`Signal`].
//!
//! A claim stands: who was claimed by a `set` has the signal, even if its deadline passes, it is cancelled or
//! the event is reset before it runs.
//!
//! What was claimed is not lost with who was chosen. A wait returns a [`Signal`], and a signal that is
//! dropped, by an unwind for one, goes to the next party as if it were set then. So whoever builds a wait on this one calls
//! [`Signal::accept`] where nothing can come between it and its own return.
//!
//! `set` touches the event under its lock only, and a waiter can run only after that lock was given back. So who has
//! waited for the one `set` there is may let go of the event, though `set` has not returned.
#![expect(unsafe_code, reason = "waits through the queue")]

mod polled;

use core::fmt;
use core::mem;
use core::ptr;

use crate::facade::const_unless_loom;
use crate::lock::Lock;
use crate::sharing::{Shared, Sharing};
use crate::wait::{Anyone, Kind, Probe, Queue, QueueArm, Reason, Record, Suspend, Waking, wait_in};

/// Who takes a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// One party, the first that waits; the event is reset by that.
    Auto,
    /// All that wait and all that come later, until the event is reset.
    Manual,
}

/// How an arm looks at an event.
#[derive(Debug)]
pub struct EventProbe(Mode);

/// Waits for an event as one of several things. Who takes the arm's outcome has the signal.
pub type EventArm<'a, K = Shared> = QueueArm<'a, State, EventProbe, K>;

/// A signal that can be waited for.
///
/// `K` says whose parties share it: of all threads, or of one.
pub struct RawEvent<K: Sharing = Shared> {
    mode: Mode,
    state: Lock<State, K>,
}

/// What is under an event's lock.
#[derive(Debug)]
pub struct State {
    set: bool,
    waiters: Queue,
}

impl RawEvent {
    const_unless_loom! {
        /// An event that is not set, for all threads.
        pub fn new(mode: Mode) -> Self {
            Self::of_kind(mode)
        }
    }
}

impl<K: Sharing> RawEvent<K> {
    /// An arm that waits for a signal.
    #[must_use]
    pub fn arm(&self) -> EventArm<'_, K> {
        QueueArm::new(&self.state, EventProbe(self.mode))
    }

    const_unless_loom! {
        /// An event that is not set, of either kind.
        pub fn of_kind(mode: Mode) -> Self {
            Self {
                mode,
                state: Lock::of_kind(State { set: false, waiters: Queue::new() }),
            }
        }
    }

    /// Who takes a signal.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Sets the event.
    ///
    /// Auto-reset: the party that has waited longest is woken; if none waits one signal is kept, however often this
    /// is called. Manual-reset: all are woken, and the event stays set.
    #[inline]
    pub fn set(&self) {
        self.set_by(&Anyone);
    }

    /// As [`set`](Self::set), by a party that knows who is near.
    #[inline(always)]
    pub fn set_by<W: Waking>(&self, by: &W) {
        match self.mode {
            Mode::Auto => self.signal_one(by),
            Mode::Manual => self.signal_all(),
        }
    }

    /// Takes the signal back, if one is kept; says whether it was.
    ///
    /// Those who were woken before have it all the same.
    #[inline]
    pub fn reset(&self) -> bool {
        mem::take(&mut self.state.lock().set)
    }

    /// Whether a signal is kept. Out of date as soon as it is said.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.state.lock().set
    }

    /// Takes a signal if one is kept; says whether it did.
    #[inline]
    #[must_use]
    pub fn try_wait(&self) -> bool {
        self.take(&mut self.state.lock())
    }

    /// Waits for a signal; returns at once if one is kept.
    ///
    /// A signal wins over a deadline that has passed and over a cancel.
    ///
    /// # Errors
    ///
    /// The reason for which the party gave up: [`Reason::Timeout`] or [`Reason::Cancelled`]. It has taken no signal then.
    ///
    /// PERF: in the caller's frame, see the runtime's suspension.
    #[inline(always)]
    pub fn wait<S: Suspend>(&self, party: &S) -> Result<Signal<'_, K>, Reason> {
        let mut state = self.state.lock();
        if self.take(&mut state) {
            return Ok(Signal {
                event: self,
                waited: false,
            });
        }
        let record = Record {
            kind: Kind::Event,
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
            Reason::Woken => Ok(Signal {
                event: self,
                waited: true,
            }),
            reason => Err(reason),
        }
    }

    /// Takes the signal that is kept; a manual-reset event keeps it nevertheless.
    #[inline]
    fn take(&self, state: &mut State) -> bool {
        match self.mode {
            Mode::Auto => mem::take(&mut state.set),
            Mode::Manual => state.set,
        }
    }

    #[inline(always)]
    fn signal_one<W: Waking>(&self, by: &W) {
        let mut state = self.state.lock();
        let Some(first) = state.waiters.claim_front_by(by, Reason::Woken) else {
            // INVARIANT: I1: the queue is empty.
            state.set = true;
            return;
        };
        drop(state);
        first.wake();
    }

    fn signal_all(&self) {
        let mut state = self.state.lock();
        state.set = true;
        // INVARIANT: I1.
        let woken = state.waiters.claim_all(Reason::Woken);
        drop(state);
        woken.wake_all();
    }

    /// Passes on a signal that was taken and is not wanted: to the first party that waits, else it is kept.
    #[cold]
    fn give_back(&self) {
        match self.mode {
            Mode::Auto => self.signal_one(&Anyone),
            // It was not taken from anybody: the event keeps it until it is reset.
            Mode::Manual => {}
        }
    }
}

// SAFETY: the one queue; who is claimed from it has the signal.
unsafe impl Probe<State> for EventProbe {
    fn take(&self, state: &mut State) -> Option<Reason> {
        let is_taken = match self.0 {
            Mode::Auto => mem::take(&mut state.set),
            Mode::Manual => state.set,
        };
        is_taken.then_some(Reason::Woken)
    }

    fn is_there(&self, state: &mut State) -> bool {
        state.set
    }

    fn queue<'a>(&self, state: &'a mut State) -> &'a mut Queue {
        &mut state.waiters
    }
}

impl<K: Sharing> fmt::Debug for RawEvent<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawEvent")
            .field("mode", &self.mode)
            .field("set", &self.is_set())
            .finish_non_exhaustive()
    }
}

/// A signal on its way from the event to who has waited for it: it is [accepted](Self::accept), or passed on when
/// dropped.
#[must_use = "a signal that is not accepted goes to the next party"]
pub struct Signal<'a, K: Sharing = Shared> {
    event: &'a RawEvent<K>,
    waited: bool,
}

impl<K: Sharing> Signal<'_, K> {
    /// Whether the party has been suspended for it: if not, a signal was kept.
    #[inline]
    #[must_use]
    pub fn was_waited_for(&self) -> bool {
        self.waited
    }

    /// The signal has arrived: the wait returns to its caller.
    #[inline]
    pub fn accept(self) {
        mem::forget(self);
    }
}

impl<K: Sharing> Drop for Signal<'_, K> {
    fn drop(&mut self) {
        self.event.give_back();
    }
}

impl<K: Sharing> fmt::Debug for Signal<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal").finish_non_exhaustive()
    }
}
