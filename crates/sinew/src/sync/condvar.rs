//! The condition variable.
//!
//! Owns: the handle. Line and order are `sinew_core`'s `RawCondvar`.
#![expect(
    unsafe_code,
    reason = "gives the mutex of a borrowed guard back for the length of the wait"
)]

use std::fmt;
use std::time::{Duration, Instant};

use sinew_core::sharing::Sharing;
use sinew_core::sync::RawCondvar;

use crate::error::WaitError;
use crate::scheduler::waiting::{Deaf, Waiting};
use crate::sync::mutex::MutexGuard;
use crate::sys::clock;

/// Lets parties that hold a [`Mutex`](crate::sync::Mutex) wait until others have changed what it guards.
///
/// A wait borrows the guard, where std's takes it and gives it back: so the lock is held on every way out of it, an error
/// and an unwind by force too. Taking it again cannot be cancelled and has no deadline, so a wait whose time is up
/// returns when the lock can be had.
///
/// Those who wait are woken in the order in which they came, and nobody is woken without having been notified. A
/// notification is never lost to a wait that has timed out or was cancelled. As with every condition variable others may take the lock
/// first and change the value back, so a wait belongs into a loop; [`wait_while`](Self::wait_while) is one. There are no
/// `try_` forms: a condition is tried by looking at it under the lock. Waits with several mutexes at one variable are allowed.
///
/// `K` says whose parties share it, see [`kinds`](crate::sync::kinds).
///
/// # Examples
///
/// ```
/// use std::rc::Rc;
/// use sinew::sync::{Condvar, Mutex};
///
/// sinew::run(|| {
///     let shared = Rc::new((Mutex::new(Vec::new()), Condvar::new()));
///     let producer = shared.clone();
///     sinew::go_local(move || {
///         let (queue, changed) = &*producer;
///         queue.lock()?.push(7);
///         changed.notify_one();
///         Ok::<(), sinew::WaitError>(())
///     });
///     let (queue, changed) = &*shared;
///     let mut queue = queue.lock().unwrap();
///     changed.wait_while(&mut queue, |queue| queue.is_empty()).unwrap();
///     assert_eq!(queue.pop(), Some(7));
/// });
/// ```
pub struct Condvar<K: Sharing> {
    raw: RawCondvar<K>,
}

impl<K: Sharing> Condvar<K> {
    /// A condition variable nobody waits at.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            raw: RawCondvar::of_kind(),
        }
    }

    /// Gives the lock back, waits to be notified, and takes the lock again.
    ///
    /// # Suspends
    ///
    /// Always, until notified and until the lock can be had.
    ///
    /// # Cancellation
    ///
    /// Ends the wait early, without taking a notification. The lock is held again.
    ///
    /// # Errors
    ///
    /// `Cancelled`; `State` where nothing may wait; `Deadlock` on a plain thread if it is of one thread. The lock is held in any case.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T, K>) -> Result<(), WaitError> {
        self.wait_until(guard, None)
    }

    /// As [`Condvar::wait`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait`]; `Timeout` when the time is up.
    pub fn wait_timeout<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, K>,
        timeout: Duration,
    ) -> Result<(), WaitError> {
        self.wait_until(guard, Some(clock::after_ns(timeout)))
    }

    /// As [`Condvar::wait`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait`]; `Timeout` at the deadline.
    pub fn wait_deadline<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, K>,
        deadline: Instant,
    ) -> Result<(), WaitError> {
        self.wait_until(guard, Some(clock::instant_ns(deadline)))
    }

    /// Waits as long as `condition` holds: not at all if it does not.
    ///
    /// # Suspends
    ///
    /// While the condition holds.
    ///
    /// # Cancellation
    ///
    /// As [`Condvar::wait`]; a condition that has come false by then counts more.
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait`]; the condition holds then.
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, K>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> Result<(), WaitError> {
        self.wait_while_until(guard, None, condition)
    }

    /// As [`Condvar::wait_while`], for at most `timeout` in all.
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait_while`]; `Timeout` when the time is up.
    pub fn wait_timeout_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, K>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> Result<(), WaitError> {
        self.wait_while_until(guard, Some(clock::after_ns(timeout)), condition)
    }

    /// As [`Condvar::wait_while`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Condvar::wait_while`]; `Timeout` at the deadline.
    pub fn wait_deadline_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, K>,
        deadline: Instant,
        condition: impl FnMut(&mut T) -> bool,
    ) -> Result<(), WaitError> {
        self.wait_while_until(guard, Some(clock::instant_ns(deadline)), condition)
    }

    /// Wakes the party that has waited longest; says whether there was one. A notification without one is not kept.
    ///
    /// # Suspends
    ///
    /// Never. The lock need not be held.
    pub fn notify_one(&self) -> bool {
        self.raw.notify_one()
    }

    /// Wakes all who wait; says how many.
    ///
    /// # Suspends
    ///
    /// Never. The lock need not be held.
    pub fn notify_all(&self) -> usize {
        self.raw.notify_all()
    }

    fn wait_while_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, K>,
        deadline_ns: Option<u64>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> Result<(), WaitError> {
        let mut result = Ok(());
        while condition(&mut *guard) {
            result?;
            result = self.wait_until(guard, deadline_ns);
        }
        Ok(())
    }

    fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T, K>,
        deadline_ns: Option<u64>,
    ) -> Result<(), WaitError> {
        let waiting = Waiting::at::<K>(deadline_ns)?;
        let mutex = guard.raw();
        // SAFETY: the guard says that the lock is held by the caller, who lends it exclusively.
        match unsafe {
            self.raw
                .wait(mutex, waiting.id(), &waiting, &Deaf(&waiting))
        } {
            Ok(()) => Ok(()),
            Err(reason) => waiting.result(reason),
        }
    }
}

impl<K: Sharing> Default for Condvar<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Sharing> fmt::Debug for Condvar<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condvar").finish_non_exhaustive()
    }
}
