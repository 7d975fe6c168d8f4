//! Time: sleeping, timers, and the clock that deadlines are measured by.
//!
//! Deadlines are [`Instant`]s. A timer never fires early. It fires at the first look at the clock after its deadline, which
//! is rounded up so that timers of about the same time are one wake: by 1/1024 of the wait, no more than half a millisecond, and at least
//! to a multiple of 1,024 ns. [`SchedulerBuilder::timer_slack`](crate::SchedulerBuilder::timer_slack) makes that more, so that fewer wakes do.

mod timer;

use std::time::{Duration, Instant};

use sinew_core::wait::{Kind, Reason, Record};

pub use timer::Timer;

use crate::error::WaitError;
use crate::scheduler::waiting::Waiting;
use crate::sys::clock;

/// Stops the current coroutine for at least `duration`. On a plain thread it sleeps the thread.
///
/// # Suspends
///
/// Always, also for a duration of zero: others get their turn.
///
/// # Cancellation
///
/// Ends early; nothing is left behind.
///
/// # Errors
///
/// `Cancelled`; `State` on a scheduler's own frame.
pub fn sleep(duration: Duration) -> Result<(), WaitError> {
    sleep_until_ns(clock::after_ns(duration))
}

/// Stops the current coroutine until `deadline`, or not at all if that has passed. See [`sleep`].
///
/// # Errors
///
/// As [`sleep`].
pub fn sleep_until(deadline: Instant) -> Result<(), WaitError> {
    sleep_until_ns(clock::instant_ns(deadline))
}

fn sleep_until_ns(deadline_ns: u64) -> Result<(), WaitError> {
    let waiting = Waiting::new(Some(deadline_ns))?;
    match waiting.sleep(Record {
        kind: Kind::Sleep,
        object: 0,
        owner: 0,
    }) {
        Reason::Timeout => Ok(()),
        reason => waiting.result(reason),
    }
}

/// The current time, by the runtime's clock.
#[must_use]
pub fn now() -> Instant {
    clock::now()
}
