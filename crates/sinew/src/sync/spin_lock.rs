//! The spin lock: for a few instructions, never across a suspend.
//!
//! Owns: a value and the byte around it.
//!
//! Invariants
//! - I1. The value is reached through a guard only, and one guard exists at a time.
//! - I2. In a debug build the thread's count of held spin locks goes up with each guard and down with its drop; a guard stays on its
//!   thread.
#![expect(
    unsafe_code,
    reason = "hands out references to a cell guarded by an atomic byte"
)]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sinew_core::lock::SpinByte;

#[cfg(debug_assertions)]
use crate::scheduler::current;

/// A lock whose waiter spins instead of suspending: for sections of a few instructions.
///
/// Coroutines of one thread never meet in it, as long as none suspends while it holds the lock: the others could only
/// spin then, on the thread that the holder needs. So a debug build panics at any call that suspends, or could, while
/// the code that makes it holds a spin lock; likewise where a thread would spin for a lock that it holds itself. A release build
/// does not look. Use a [`Mutex`](crate::sync::Mutex) for what takes longer.
///
/// Who spins gives its time slice away now and then, so that a holder on the same processor can go on. There is no order
/// among those who spin.
///
/// # Examples
///
/// ```
/// use sinew::sync::SpinLock;
///
/// static LAST: SpinLock<u64> = SpinLock::new(0);
/// *LAST.lock() += 1;
/// assert!(!LAST.is_locked());
/// let held = LAST.lock();
/// assert!(LAST.is_locked() && LAST.try_lock().is_none());
/// assert_eq!(*held, 1);
/// ```
pub struct SpinLock<T: ?Sized> {
    byte: SpinByte,
    /// The number of the thread that holds it, or 0.
    #[cfg(debug_assertions)]
    holder: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: I1: one party at a time reaches the value, so sending it suffices.
unsafe impl<T: ?Sized + Send> Send for SpinLock<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            byte: SpinByte::new(),
            #[cfg(debug_assertions)]
            holder: AtomicU64::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, out of the lock.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> SpinLock<T> {
    /// Takes the lock, spinning while another holds it.
    ///
    /// # Suspends
    ///
    /// Never: it keeps its thread meanwhile. It may be called anywhere.
    ///
    /// # Panics
    ///
    /// In a debug build, if the calling thread holds it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        if !self.byte.try_lock() {
            self.expect_another();
            self.byte.lock();
        }
        self.guard()
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinLockGuard<'_, T>> {
        self.byte.try_lock().then(|| self.guard())
    }

    /// Whether somebody holds it. Out of date as soon as it is said, unless the caller does.
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.byte.is_locked()
    }

    /// The value, without locking: the exclusive borrow says that nobody else can hold it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Notes that the caller has the byte.
    #[inline]
    fn guard(&self) -> SpinLockGuard<'_, T> {
        #[cfg(debug_assertions)]
        {
            self.holder.store(current::thread_number(), Relaxed);
            current::set_spin_locks(current::spin_locks() + 1);
        }
        SpinLockGuard {
            lock: self,
            not_send: PhantomData,
        }
    }

    #[cfg(debug_assertions)]
    #[track_caller]
    fn expect_another(&self) {
        assert!(
            self.holder.load(Relaxed) != current::thread_number(),
            "SpinLock::lock on the thread that holds it would spin for ever"
        );
    }

    #[cfg(not(debug_assertions))]
    #[expect(clippy::unused_self, reason = "a debug build looks")]
    fn expect_another(&self) {}
}

impl<T: Default> Default for SpinLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for SpinLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("SpinLock");
        match self.try_lock() {
            Some(guard) => out.field("value", &&*guard),
            None => out.field("value", &format_args!("<locked>")),
        };
        out.finish_non_exhaustive()
    }
}

/// The right to reach a spin lock's value; gives the lock back when dropped.
///
/// It stays on its thread, and must be gone before anything suspends.
#[must_use = "the lock is given back when the guard is dropped"]
pub struct SpinLockGuard<'a, T: ?Sized> {
    lock: &'a SpinLock<T>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: by reference the guard gives out `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for SpinLockGuard<'_, T> {}

impl<T: ?Sized> Deref for SpinLockGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: I1.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for SpinLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: I1.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for SpinLockGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.lock.holder.store(0, Relaxed);
            // A body that ended with a guard forgotten has set it to zero.
            current::set_spin_locks(current::spin_locks().saturating_sub(1));
        }
        self.lock.byte.unlock();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for SpinLockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for SpinLockGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
