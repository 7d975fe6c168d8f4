//! The wait group: a count of things to be done, and the wait for none to be left.
//!
//! Owns: the handle. The count is `sinew_core`'s `RawWaitGroup`.

use std::fmt;
use std::time::{Duration, Instant};

use sinew_core::sharing::{Shared, Sharing};
use sinew_core::sync::RawWaitGroup;

use crate::error::WaitError;
use crate::scheduler::waiting::Waiting;
use crate::sync::select::WaitGroupArm;
use crate::sys::clock;

/// Counts what is under way and lets others wait until nothing is. Clones count together.
///
/// # Examples
///
/// ```
/// sinew::run(|| {
///     let group = sinew::sync::WaitGroup::new();
///     for _ in 0..3 {
///         group.add(1);
///         let group = group.clone();
///         sinew::go_local(move || group.done());
///     }
///     group.wait().unwrap();
/// });
/// ```
///
/// `K` says whose parties share it, see [`kinds`](crate::sync::kinds).
pub struct WaitGroup<K: Sharing> {
    raw: K::Ref<RawWaitGroup<K>>,
}

impl WaitGroup<Shared> {
    pub(crate) fn raw(&self) -> &RawWaitGroup {
        &self.raw
    }
}

impl<K: Sharing> WaitGroup<K> {
    /// To wait as one of several things of which one happens: an arm of a [`select`](crate::sync::select).
    #[must_use]
    pub fn wait_arm(&self) -> WaitGroupArm<'_, K> {
        WaitGroupArm::new(&self.raw)
    }

    /// A group with a count of zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds to the count.
    ///
    /// # Panics
    ///
    /// If the count would overflow; nothing is changed then.
    #[track_caller]
    pub fn add(&self, number: usize) {
        if self.raw.add(number).is_err() {
            panic!(
                "WaitGroup::add({number}) overflows the count of {}",
                self.count()
            );
        }
    }

    /// Takes one from the count; at zero all who wait are woken.
    ///
    /// # Panics
    ///
    /// If the count is zero; nothing is changed then.
    #[track_caller]
    pub fn done(&self) {
        if self.raw.done().is_err() {
            panic!("WaitGroup::done called more often than add announced");
        }
    }

    /// The count.
    #[must_use]
    pub fn count(&self) -> usize {
        self.raw.count()
    }

    /// Waits until the count is zero; not at all if it is.
    ///
    /// # Suspends
    ///
    /// While the count is above zero.
    ///
    /// # Cancellation
    ///
    /// Ends early; the count is not changed.
    ///
    /// # Errors
    ///
    /// `Cancelled`; `State` on a scheduler's own frame; `Deadlock` on a plain thread if the group is of one thread and its
    /// count above zero.
    pub fn wait(&self) -> Result<(), WaitError> {
        self.wait_until(None)
    }

    /// As [`WaitGroup::wait`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`WaitGroup::wait`]; `Timeout` when the time is up.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.wait_until(Some(clock::after_ns(timeout)))
    }

    /// As [`WaitGroup::wait`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`WaitGroup::wait`]; `Timeout` at the deadline.
    pub fn wait_deadline(&self, deadline: Instant) -> Result<(), WaitError> {
        self.wait_until(Some(clock::instant_ns(deadline)))
    }

    /// Whether the count is zero now.
    #[must_use]
    pub fn try_wait(&self) -> bool {
        self.count() == 0
    }

    fn wait_until(&self, deadline_ns: Option<u64>) -> Result<(), WaitError> {
        let waiting = match Waiting::at::<K>(deadline_ns) {
            Ok(waiting) => waiting,
            Err(WaitError::Deadlock) if self.try_wait() => return Ok(()),
            Err(error) => return Err(error),
        };
        match self.raw.wait(&waiting) {
            Ok(()) => Ok(()),
            Err(reason) => waiting.result(reason),
        }
    }
}

impl<K: Sharing> Clone for WaitGroup<K> {
    fn clone(&self) -> Self {
        Self {
            raw: self.raw.clone(),
        }
    }
}

impl<K: Sharing> Default for WaitGroup<K> {
    fn default() -> Self {
        Self {
            raw: RawWaitGroup::of_kind().into(),
        }
    }
}

impl<K: Sharing> fmt::Debug for WaitGroup<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitGroup")
            .field("count", &self.count())
            .finish()
    }
}
