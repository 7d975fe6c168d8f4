//! The mutex: std's shape, without poisoning, and with deadlines.
//!
//! Owns: a value and the raw mutex around it. The policy (first come, first served, with bounded barging) is
//! `sinew_core`'s, see `RawMutex`.
//!
//! Invariants
//! - I1. The value is reached through a guard only, and one guard exists at a time.
#![expect(
    unsafe_code,
    reason = "hands out references to a cell guarded by a raw mutex"
)]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use sinew_core::sharing::{Shared, Sharing};
use sinew_core::sync::RawMutex;

use crate::error::WaitError;
use crate::scheduler::current::party_id;
use crate::scheduler::waiting::Waiting;
use crate::sys::clock;

/// A mutual exclusion lock that may be held across a suspend.
///
/// Waiting suspends the coroutine, not the thread. An arriving coroutine may take a free lock although others wait,
/// a bounded number of times; nobody is starved. It is not poisoned by a panic.
///
/// `K` says whose parties share it, see [`kinds`](crate::sync::kinds).
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use sinew::sync::Mutex;
///
/// let total = Arc::new(Mutex::new(0));
/// sinew::run(|| {
///     for n in 1..=10 {
///         let total = total.clone();
///         sinew::go_local(move || {
///             let mut total = total.lock()?;
///             sinew::yield_now()?;
///             *total += n;
///             Ok::<(), sinew::WaitError>(())
///         });
///     }
/// });
/// assert_eq!(*total.lock().unwrap(), 55);
/// ```
pub struct Mutex<T: ?Sized, K: Sharing> {
    raw: RawMutex<K>,
    value: UnsafeCell<T>,
}

// SAFETY: I1: one party at a time reaches the value, so sending it suffices.
unsafe impl<T: ?Sized + Send> Send for Mutex<T, Shared> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T, Shared> {}

impl<T, K: Sharing> Mutex<T, K> {
    /// A free mutex around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            raw: RawMutex::of_kind(),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, out of the mutex.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, K: Sharing> Mutex<T, K> {
    /// Takes the lock.
    ///
    /// # Suspends
    ///
    /// While another holds it.
    ///
    /// # Cancellation
    ///
    /// Ends early; the lock is not taken.
    ///
    /// # Errors
    ///
    /// `Cancelled`; `State` on a scheduler's own frame; `Deadlock` on a plain thread if it is of one thread. A free lock is taken
    /// in any case.
    #[inline]
    pub fn lock(&self) -> Result<MutexGuard<'_, T, K>, WaitError> {
        self.lock_until(|| None)
    }

    /// As [`Mutex::lock`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`]; `Timeout` when the time is up.
    pub fn lock_timeout(&self, timeout: Duration) -> Result<MutexGuard<'_, T, K>, WaitError> {
        self.lock_until(|| Some(clock::after_ns(timeout)))
    }

    /// As [`Mutex::lock`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`]; `Timeout` at the deadline.
    pub fn lock_deadline(&self, deadline: Instant) -> Result<MutexGuard<'_, T, K>, WaitError> {
        self.lock_until(|| Some(clock::instant_ns(deadline)))
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, K>> {
        self.raw.try_lock(party_id()).then(|| self.guard())
    }

    #[inline]
    fn lock_until(
        &self,
        deadline_ns: impl FnOnce() -> Option<u64>,
    ) -> Result<MutexGuard<'_, T, K>, WaitError> {
        if !self.raw.try_lock(party_id()) {
            let waiting = Waiting::at::<K>(deadline_ns())?;
            if let Err(reason) = self.raw.lock(&waiting, waiting.id()) {
                waiting.result(reason)?;
            }
        }
        Ok(self.guard())
    }

    fn guard(&self) -> MutexGuard<'_, T, K> {
        MutexGuard {
            mutex: self,
            not_send: PhantomData,
        }
    }

    /// The value, without locking: the exclusive borrow says that nobody else can hold it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default, K: Sharing> Default for Mutex<T, K> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T, K: Sharing> From<T> for Mutex<T, K> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug, K: Sharing> fmt::Debug for Mutex<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Mutex");
        match self.try_lock() {
            Some(guard) => out.field("value", &&*guard),
            None => out.field("value", &format_args!("<locked>")),
        };
        out.finish_non_exhaustive()
    }
}

/// The right to reach a mutex's value; gives the lock back when dropped.
///
/// It stays on its thread, as std's does.
#[must_use = "the lock is given back when the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized, K: Sharing = Shared> {
    mutex: &'a Mutex<T, K>,
    not_send: PhantomData<*const ()>,
}

impl<T: ?Sized, K: Sharing> MutexGuard<'_, T, K> {
    /// The lock that is held.
    pub(super) fn raw(&self) -> &RawMutex<K> {
        &self.mutex.raw
    }
}

// SAFETY: by reference the guard gives out `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T, Shared> {}

impl<T: ?Sized, K: Sharing> Deref for MutexGuard<'_, T, K> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: I1.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized, K: Sharing> DerefMut for MutexGuard<'_, T, K> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: I1.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized, K: Sharing> Drop for MutexGuard<'_, T, K> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this guard holds the lock.
        unsafe { self.mutex.raw.unlock() };
    }
}

impl<T: ?Sized + fmt::Debug, K: Sharing> fmt::Debug for MutexGuard<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display, K: Sharing> fmt::Display for MutexGuard<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
