//! The reader-writer lock: std's shape, without poisoning, and with deadlines.
//!
//! Owns: a value and the raw lock around it. The policy (phases of reading and writing take turns) is `sinew_core`'s, see `RawRwLock`.
//!
//! Invariants
//! - I1. The value is reached through guards only; while a guard to write exists there is no other guard.
#![expect(
    unsafe_code,
    reason = "hands out references to a cell guarded by a raw lock"
)]

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use sinew_core::sharing::{Shared, Sharing};
use sinew_core::sync::RawRwLock;

use crate::error::WaitError;
use crate::scheduler::current::party_id;
use crate::scheduler::waiting::Waiting;
use crate::sys::clock;

/// A lock that many may hold to read, or one to write; it may be held across a suspend.
///
/// Neither side starves the other. Once a writer waits, readers that come wait too; when a writer is done all readers
/// that wait go in before the next writer. So a reader waits for one writer at most beside those who read, and a writer with *k*
/// writers before it for those and for *k* + 1 rounds of readers. The lock is handed to those whose turn it is, and nobody takes it past
/// them. It is not poisoned by a panic.
///
/// Who holds it to read and wants it once more may have to wait behind a writer that waits for the first to be given back: a
/// deadlock. Who holds it to write and wants it at all waits for itself.
///
/// `K` says whose parties share it, see [`kinds`](crate::sync::kinds).
///
/// # Examples
///
/// ```
/// use sinew::sync::RwLock;
///
/// static ROUTES: RwLock<Vec<&str>> = RwLock::new(Vec::new());
/// sinew::run(|| {
///     sinew::go_local(|| {
///         ROUTES.write()?.push("home");
///         Ok::<(), sinew::WaitError>(())
///     });
///     sinew::yield_now().unwrap();
///     let (one, other) = (ROUTES.read().unwrap(), ROUTES.read().unwrap());
///     assert_eq!((one[0], other.len()), ("home", 1));
/// });
/// ```
pub struct RwLock<T: ?Sized, K: Sharing> {
    raw: RawRwLock<K>,
    value: UnsafeCell<T>,
}

// SAFETY: I1: sending the lock sends the value.
unsafe impl<T: ?Sized + Send> Send for RwLock<T, Shared> {}
// SAFETY: I1: readers share the value, and a writer has it to itself, on any thread.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T, Shared> {}

impl<T, K: Sharing> RwLock<T, K> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        Self {
            raw: RawRwLock::of_kind(),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, out of the lock.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized, K: Sharing> RwLock<T, K> {
    /// Takes the lock to read.
    ///
    /// # Suspends
    ///
    /// While another holds it to write, or waits to.
    ///
    /// # Cancellation
    ///
    /// Ends early; the lock is not taken.
    ///
    /// # Errors
    ///
    /// `Cancelled`; `State` where nothing may wait; `Deadlock` on a plain thread if it is of one thread. A lock that can be had at once
    /// is taken in any case.
    #[inline]
    pub fn read(&self) -> Result<RwLockReadGuard<'_, T, K>, WaitError> {
        self.read_until(|| None)
    }

    /// As [`RwLock::read`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`RwLock::read`]; `Timeout` when the time is up.
    pub fn read_timeout(&self, timeout: Duration) -> Result<RwLockReadGuard<'_, T, K>, WaitError> {
        self.read_until(|| Some(clock::after_ns(timeout)))
    }

    /// As [`RwLock::read`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`RwLock::read`]; `Timeout` at the deadline.
    pub fn read_deadline(&self, deadline: Instant) -> Result<RwLockReadGuard<'_, T, K>, WaitError> {
        self.read_until(|| Some(clock::instant_ns(deadline)))
    }

    /// Takes the lock to read if nobody holds it to write, or waits to.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T, K>> {
        self.raw.try_read().then(|| self.read_guard())
    }

    /// Takes the lock to write.
    ///
    /// # Suspends
    ///
    /// While another holds it.
    ///
    /// # Cancellation
    ///
    /// Ends early; the lock is not taken, and readers that waited behind this writer alone go on.
    ///
    /// # Errors
    ///
    /// As [`RwLock::read`].
    #[inline]
    pub fn write(&self) -> Result<RwLockWriteGuard<'_, T, K>, WaitError> {
        self.write_until(|| None)
    }

    /// As [`RwLock::write`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`RwLock::write`]; `Timeout` when the time is up.
    pub fn write_timeout(
        &self,
        timeout: Duration,
    ) -> Result<RwLockWriteGuard<'_, T, K>, WaitError> {
        self.write_until(|| Some(clock::after_ns(timeout)))
    }

    /// As [`RwLock::write`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`RwLock::write`]; `Timeout` at the deadline.
    pub fn write_deadline(
        &self,
        deadline: Instant,
    ) -> Result<RwLockWriteGuard<'_, T, K>, WaitError> {
        self.write_until(|| Some(clock::instant_ns(deadline)))
    }

    /// Takes the lock to write if nobody holds it.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T, K>> {
        self.raw.try_write(party_id()).then(|| self.write_guard())
    }

    /// The value, without locking: the exclusive borrow says that nobody else can hold it.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[inline]
    fn read_until(
        &self,
        deadline_ns: impl FnOnce() -> Option<u64>,
    ) -> Result<RwLockReadGuard<'_, T, K>, WaitError> {
        if !self.raw.try_read() {
            let waiting = Waiting::at::<K>(deadline_ns())?;
            if let Err(reason) = self.raw.read(&waiting) {
                waiting.result(reason)?;
            }
        }
        Ok(self.read_guard())
    }

    #[inline]
    fn write_until(
        &self,
        deadline_ns: impl FnOnce() -> Option<u64>,
    ) -> Result<RwLockWriteGuard<'_, T, K>, WaitError> {
        if !self.raw.try_write(party_id()) {
            let waiting = Waiting::at::<K>(deadline_ns())?;
            if let Err(reason) = self.raw.write(&waiting, waiting.id()) {
                waiting.result(reason)?;
            }
        }
        Ok(self.write_guard())
    }

    fn read_guard(&self) -> RwLockReadGuard<'_, T, K> {
        RwLockReadGuard {
            lock: self,
            not_send: PhantomData,
        }
    }

    fn write_guard(&self) -> RwLockWriteGuard<'_, T, K> {
        RwLockWriteGuard {
            lock: self,
            not_send: PhantomData,
        }
    }
}

impl<T: Default, K: Sharing> Default for RwLock<T, K> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T, K: Sharing> From<T> for RwLock<T, K> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug, K: Sharing> fmt::Debug for RwLock<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("RwLock");
        match self.try_read() {
            Some(guard) => out.field("value", &&*guard),
            None => out.field("value", &format_args!("<locked>")),
        };
        out.finish_non_exhaustive()
    }
}

/// The right to read a lock's value; gives the lock back when dropped.
///
/// It stays on its thread, as std's does.
#[must_use = "the lock is given back when the guard is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized, K: Sharing = Shared> {
    lock: &'a RwLock<T, K>,
    not_send: PhantomData<*const ()>,
}

// SAFETY: by reference the guard gives out `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T, Shared> {}

impl<T: ?Sized, K: Sharing> Deref for RwLockReadGuard<'_, T, K> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: I1.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized, K: Sharing> Drop for RwLockReadGuard<'_, T, K> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this guard holds the lock to read.
        unsafe { self.lock.raw.unlock_read() };
    }
}

impl<T: ?Sized + fmt::Debug, K: Sharing> fmt::Debug for RwLockReadGuard<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display, K: Sharing> fmt::Display for RwLockReadGuard<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The right to reach a lock's value alone; gives the lock back when dropped.
///
/// It stays on its thread, as std's does.
#[must_use = "the lock is given back when the guard is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized, K: Sharing = Shared> {
    lock: &'a RwLock<T, K>,
    not_send: PhantomData<*const ()>,
}

impl<'a, T: ?Sized, K: Sharing> RwLockWriteGuard<'a, T, K> {
    /// Goes on from writing to reading, without another writer in between. The readers that wait are let in as well, even if
    /// writers wait: it is their turn.
    ///
    /// # Suspends
    ///
    /// Never.
    pub fn downgrade(self) -> RwLockReadGuard<'a, T, K> {
        let lock = self.lock;
        mem::forget(self);
        // SAFETY: the guard held the lock to write, and is not dropped.
        unsafe { lock.raw.downgrade() };
        lock.read_guard()
    }
}

// SAFETY: by reference the guard gives out `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T, Shared> {}

impl<T: ?Sized, K: Sharing> Deref for RwLockWriteGuard<'_, T, K> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: I1.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized, K: Sharing> DerefMut for RwLockWriteGuard<'_, T, K> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: I1.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized, K: Sharing> Drop for RwLockWriteGuard<'_, T, K> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this guard holds the lock to write.
        unsafe { self.lock.raw.unlock_write() };
    }
}

impl<T: ?Sized + fmt::Debug, K: Sharing> fmt::Debug for RwLockWriteGuard<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display, K: Sharing> fmt::Display for RwLockWriteGuard<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
