//! The handle of a single event.
//!
//! Owns: the handle. The flag, the queue and the order are `sinew_core`'s `RawEvent`.

use std::fmt;
use std::time::{Duration, Instant};

use sinew_core::sharing::{Shared, Sharing};
use sinew_core::sync::{Mode, RawEvent};
use sinew_core::wait::Course;

use crate::error::WaitError;
use crate::scheduler::brisk::{Brisk, Near};
use crate::scheduler::current::{Place, place};
use crate::scheduler::waiting::Waiting;
use crate::sync::select::EventArm;
use crate::sys::clock;

/// A signal that can be set and waited for.
///
/// An [auto-reset](Event::auto) event wakes one waiter for each `set`; a [manual-reset](Event::manual) event lets everyone
/// through until it is reset. Waiting allocates nothing. An unpark never passes for a signal: a coroutine that
/// waits here keeps it for its next [`park`](crate::park()).
///
/// `K` says whose parties share it, see [`kinds`](crate::sync::kinds).
///
/// # Examples
///
/// ```
/// use sinew::event::Event;
///
/// static READY: Event = Event::manual();
///
/// sinew::run(|| {
///     let waiter = sinew::spawn_local(|| READY.wait());
///     std::thread::spawn(|| READY.set());
///     waiter.join().unwrap().unwrap();
///     assert!(READY.is_set());
/// });
/// ```
pub struct Event<K: Sharing> {
    raw: RawEvent<K>,
}

impl Event<Shared> {
    pub(crate) fn raw(&self) -> &RawEvent {
        &self.raw
    }
}

impl<K: Sharing> Event<K> {
    /// To wait for a signal as one of several things of which one happens: an arm of a [`select`](crate::sync::select).
    pub fn wait_arm(&self) -> EventArm<'_, K> {
        EventArm::new(&self.raw)
    }

    /// An event that is not set and that each signal resets: whoever takes it is the only one.
    #[must_use]
    pub const fn auto() -> Self {
        Self {
            raw: RawEvent::of_kind(Mode::Auto),
        }
    }

    /// An event that is not set, and once it is stays so until [`reset`](Event::reset).
    #[must_use]
    pub const fn manual() -> Self {
        Self {
            raw: RawEvent::of_kind(Mode::Manual),
        }
    }

    /// Sets the event.
    ///
    /// Auto-reset: wakes the waiter that came first; if there is none, one signal is kept for who comes next, however often
    /// this was called. Manual-reset: wakes all, and whoever comes later does not wait.
    ///
    /// Who was woken has the signal, even if its deadline passes or it is cancelled before it runs.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    #[inline]
    pub fn set(&self) {
        self.raw.set_by(&Near::here());
    }

    /// Takes the signal back that nobody has taken; says whether there was one. Who was woken has it all the same.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    #[inline]
    pub fn reset(&self) -> bool {
        self.raw.reset()
    }

    /// Whether a wait would return at once. Another thread may change that at any time.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.raw.is_set()
    }

    /// Waits for a signal; not at all if one is kept. An auto-reset event is reset by that.
    ///
    /// # Suspends
    ///
    /// Until the event is set. If it is set already, only to let others have their turn now and then.
    ///
    /// # Cancellation
    ///
    /// Ends early, without having taken a signal. A signal that is there wins.
    ///
    /// # Errors
    ///
    /// `Cancelled`; `State` on a scheduler's own frame or in an event's callback, without having looked at the signal;
    /// `Deadlock` on a plain thread if the event is of one thread and no signal is kept.
    #[inline(always)]
    pub fn wait(&self) -> Result<(), WaitError> {
        let Some(party) = Brisk::here() else {
            return self.wait_until(None);
        };
        match self.raw.wait(&party) {
            Ok(signal) => {
                if !signal.was_waited_for() {
                    party.take_turn(Course::AtOnce);
                }
                // As in `wait_until`.
                signal.accept();
                Ok(())
            }
            Err(reason) => Err(party.error(reason)),
        }
    }

    /// As [`Event::wait`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Event::wait`]; `Timeout` when the time is up. A signal that is there wins over a time of zero.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.wait_until(Some(clock::after_ns(timeout)))
    }

    /// As [`Event::wait`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Event::wait`]; `Timeout` at the deadline.
    pub fn wait_deadline(&self, deadline: Instant) -> Result<(), WaitError> {
        self.wait_until(Some(clock::instant_ns(deadline)))
    }

    /// Takes a signal if one is kept; says whether it did. Never waits.
    #[inline]
    #[must_use]
    pub fn try_wait(&self) -> bool {
        self.raw.try_wait()
    }

    #[inline(never)]
    fn wait_until(&self, deadline_ns: Option<u64>) -> Result<(), WaitError> {
        // First of all: where nothing may wait, no signal is touched.
        let waiting = match Waiting::at::<K>(deadline_ns) {
            Ok(waiting) => waiting,
            Err(WaitError::Deadlock) if self.try_wait() => return Ok(()),
            Err(error) => return Err(error),
        };
        match self.raw.wait(&waiting) {
            Ok(signal) => {
                if !signal.was_waited_for() {
                    take_turn();
                }
                // Until here an unwind would pass the signal on; from here on the caller has it.
                signal.accept();
                Ok(())
            }
            Err(reason) => waiting.result(reason),
        }
    }
}

impl<K: Sharing> fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("mode", &self.raw.mode())
            .field("set", &self.is_set())
            .finish()
    }
}

/// A call that did not have to wait is a turn too, so that a loop over an event that is set does not starve the rest.
#[inline]
fn take_turn() {
    if let Place::Coroutine(scheduler, block) = place() {
        scheduler.take_turn(block);
    }
}
