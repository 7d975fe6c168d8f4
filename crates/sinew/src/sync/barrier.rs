//! The barrier: so many parties wait for each other.
//!
//! Owns: the handle. The count is `sinew_core`'s `RawBarrier`.

use std::fmt;
use std::time::{Duration, Instant};

use sinew_core::sharing::Sharing;
use sinew_core::sync::{RawBarrier, Role};

use crate::error::WaitError;
use crate::scheduler::waiting::Waiting;
use crate::sys::clock;

/// Lets parties go on when so many of them have come; can be used again and again.
///
/// A party that times out or is cancelled leaves the barrier, and is not counted: the others wait until another one comes in its
/// place. If all have come before it is gone, it goes on with them.
///
/// `K` says whose parties share it, see [`kinds`](crate::sync::kinds).
///
/// # Examples
///
/// ```
/// use std::rc::Rc;
/// use sinew::sync::Barrier;
///
/// let leaders = sinew::run(|| {
///     let barrier = Rc::new(Barrier::new(3));
///     let parties: Vec<_> = (0..3)
///         .map(|_| {
///             let barrier = barrier.clone();
///             sinew::spawn_local(move || barrier.wait().unwrap().is_leader())
///         })
///         .collect();
///     parties.into_iter().map(|party| party.join().unwrap()).filter(|&leads| leads).count()
/// });
/// assert_eq!(leaders, 1);
/// ```
pub struct Barrier<K: Sharing> {
    raw: RawBarrier<K>,
}

impl<K: Sharing> Barrier<K> {
    /// A barrier for `parties`.
    ///
    /// # Panics
    ///
    /// If `parties` is 0: nobody could ever be the last to come.
    #[must_use]
    #[track_caller]
    pub const fn new(parties: usize) -> Self {
        assert!(parties > 0, "a barrier is for one party at least");
        Self {
            raw: RawBarrier::of_kind(parties),
        }
    }

    /// Waits until all have come. The last one to come does not wait, and is the leader.
    ///
    /// # Suspends
    ///
    /// Until the others have come.
    ///
    /// # Cancellation
    ///
    /// Ends early; the party is not counted then. The last one goes on all the same.
    ///
    /// # Errors
    ///
    /// `Cancelled`; `State` where nothing may wait, for the last one too; `Deadlock` on a plain thread if it is of one thread and
    /// others have not come.
    pub fn wait(&self) -> Result<BarrierWaitResult, WaitError> {
        self.wait_until(None)
    }

    /// As [`Barrier::wait`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Barrier::wait`]; `Timeout` when the time is up.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<BarrierWaitResult, WaitError> {
        self.wait_until(Some(clock::after_ns(timeout)))
    }

    /// As [`Barrier::wait`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Barrier::wait`]; `Timeout` at the deadline.
    pub fn wait_deadline(&self, deadline: Instant) -> Result<BarrierWaitResult, WaitError> {
        self.wait_until(Some(clock::instant_ns(deadline)))
    }

    /// Comes only if all others have: lets them go on, and is the leader.
    pub fn try_wait(&self) -> Option<BarrierWaitResult> {
        self.raw
            .try_wait()
            .then_some(BarrierWaitResult { role: Role::Leader })
    }

    fn wait_until(&self, deadline_ns: Option<u64>) -> Result<BarrierWaitResult, WaitError> {
        let waiting = match Waiting::at::<K>(deadline_ns) {
            Ok(waiting) => waiting,
            Err(WaitError::Deadlock) => return self.try_wait().ok_or(WaitError::Deadlock),
            Err(error) => return Err(error),
        };
        match self.raw.wait(&waiting) {
            Ok(role) => Ok(BarrierWaitResult { role }),
            Err(reason) => Err(waiting.error(reason)),
        }
    }
}

impl<K: Sharing> fmt::Debug for Barrier<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier")
            .field("parties", &self.raw.parties())
            .field("arrived", &self.raw.arrived())
            .finish()
    }
}

/// How a party came through a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BarrierWaitResult {
    role: Role,
}

impl BarrierWaitResult {
    /// Whether it was the last to come, of which there is one each time.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.role == Role::Leader
    }
}
