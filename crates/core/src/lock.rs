//! The short lock under which each primitive keeps its state and its wait queue.
//!
//! Owns: one byte. Any thread may take it; of a [`Local`] lock, which is a cell, one thread. It is held for a few dozen instructions, never while user
//! code runs and never across a suspend.
//!
//! Invariants
//! - I1. The value is reached only by the holder of the byte.
//!
//! A waiter spins a bounded moment and then gives its time slice away through the function that
//! [`set_yield`] was given, so that a preempted holder on the same processor can go on. It does not sleep
//! in the kernel: the sections are shorter than the call would be.
//!
//! [`Local`]: crate::sharing::Local
//!
//! Under loom a [`Lock`] is loom's mutex, because a spinning model does not end; the byte itself has a model of its
//! own (`tests/loom_wait.rs`).
#![cfg_attr(
    not(loom),
    expect(
        unsafe_code,
        reason = "hands out references to a cell guarded by an atomic byte"
    )
)]

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

#[cfg(not(loom))]
use crate::facade::UnsafeCell;
use crate::facade::{AtomicU8, const_unless_loom};
#[cfg(not(loom))]
use crate::sharing::Byte;
use crate::sharing::{Shared, Sharing};

/// How many times a lock is looked at before the time slice is given away.
#[cfg(not(loom))]
const SPINS_MAX: u32 = 64;

/// One byte that one thread at a time holds.
#[derive(Debug)]
pub struct SpinByte(AtomicU8);

impl SpinByte {
    const_unless_loom! {
        /// A free byte.
        pub fn new() -> Self {
            Self(AtomicU8::new(0))
        }
    }

    /// Takes the byte, spinning while another holds it.
    #[inline]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.lock_slow();
        }
    }

    /// Takes the byte if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in unlock.
        self.0.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    /// Takes the byte, which is free and which no other thread takes meanwhile.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn lock_alone(&self) {
        debug_assert!(!self.is_locked(), "nobody has it");
        self.0.store(1, Relaxed);
    }

    /// Gives the byte back. Only by its holder; by another it would let two in at once, so
    /// it is kept from users behind [`Guard`].
    #[inline]
    pub fn unlock(&self) {
        // ORDERING: Release pairs with the Acquire of the next lock.
        self.0.store(0, Release);
    }

    /// Whether someone holds it. A hint.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self) {
        let mut spins = 0;
        while self.is_locked() || !self.try_lock() {
            relax(&mut spins);
        }
    }
}

impl Default for SpinByte {
    fn default() -> Self {
        Self::new()
    }
}

/// A value behind a short lock: one that spins, or of one thread.
pub struct Lock<T, K: Sharing = Shared> {
    #[cfg(not(loom))]
    byte: K::Byte,
    #[cfg(not(loom))]
    value: UnsafeCell<T>,
    #[cfg(loom)]
    mutex: loom::sync::Mutex<T>,
    kind: PhantomData<K>,
}

#[cfg(not(loom))]
// SAFETY: I1: one thread at a time reaches the value, so sending it suffices.
unsafe impl<T: Send> Send for Lock<T, Shared> {}
#[cfg(not(loom))]
// SAFETY: as above.
unsafe impl<T: Send> Sync for Lock<T, Shared> {}

impl<T> Lock<T> {
    const_unless_loom! {
        /// A free lock around `value`, for all threads.
        pub fn new(value: T) -> Self {
            Self::of_kind(value)
        }
    }
}

impl<T, K: Sharing> Lock<T, K> {
    /// A free lock around `value`, of either kind.
    #[cfg(not(loom))]
    pub const fn of_kind(value: T) -> Self {
        Self {
            byte: K::Byte::FREE,
            value: UnsafeCell::new(value),
            kind: PhantomData,
        }
    }

    /// A free lock around `value`, of either kind.
    #[cfg(loom)]
    pub fn of_kind(value: T) -> Self {
        Self {
            mutex: loom::sync::Mutex::new(value),
            kind: PhantomData,
        }
    }

    /// Takes the lock, spinning while another holds it.
    #[cfg(not(loom))]
    #[inline]
    pub fn lock(&self) -> Guard<'_, T, K> {
        self.byte.lock();
        Guard {
            lock: self,
            not_send: PhantomData,
        }
    }

    /// Takes the lock where nobody contends for it, without a locked instruction.
    ///
    /// # Safety
    ///
    /// Nobody has the lock, and no other thread takes it until the guard is dropped.
    #[cfg(not(loom))]
    #[inline]
    pub unsafe fn lock_alone(&self) -> Guard<'_, T, K> {
        self.byte.lock_alone();
        Guard {
            lock: self,
            not_send: PhantomData,
        }
    }

    /// Looks at the value without the lock.
    ///
    /// # Safety
    ///
    /// Nobody changes the value meanwhile.
    #[cfg(not(loom))]
    #[inline]
    pub unsafe fn peek(&self) -> &T {
        // SAFETY: the caller vouches for it.
        self.value.with(|value| unsafe { &*value })
    }

    /// Takes the lock if it is free.
    #[cfg(not(loom))]
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T, K>> {
        self.byte.try_lock().then_some(Guard {
            lock: self,
            not_send: PhantomData,
        })
    }

    /// As [`Lock::lock`].
    ///
    /// # Safety
    ///
    /// Nobody has the lock, and no other thread takes it until the guard is dropped.
    #[cfg(loom)]
    #[expect(unsafe_code, reason = "the same interface as without loom")]
    pub unsafe fn lock_alone(&self) -> Guard<'_, T, K> {
        self.lock()
    }

    /// Takes the lock.
    #[cfg(loom)]
    pub fn lock(&self) -> Guard<'_, T, K> {
        // A panic in one model thread ends the model: poisoning says nothing more.
        let guard = self
            .mutex
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        Guard {
            guard,
            not_send: PhantomData,
        }
    }

    /// Takes the lock if it is free.
    #[cfg(loom)]
    pub fn try_lock(&self) -> Option<Guard<'_, T, K>> {
        let guard = self.mutex.try_lock().ok()?;
        Some(Guard {
            guard,
            not_send: PhantomData,
        })
    }
}

impl<T, K: Sharing> fmt::Debug for Lock<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

/// The right to reach the value of a [`Lock`]; gives the lock back when dropped.
#[must_use]
pub struct Guard<'a, T, K: Sharing = Shared> {
    #[cfg(not(loom))]
    lock: &'a Lock<T, K>,
    #[cfg(loom)]
    guard: loom::sync::MutexGuard<'a, T>,
    not_send: PhantomData<*const K>,
}

#[cfg(not(loom))]
impl<T, K: Sharing> Deref for Guard<'_, T, K> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: I1: this guard is the only one.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

#[cfg(not(loom))]
impl<T, K: Sharing> DerefMut for Guard<'_, T, K> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: I1: this guard is the only one, and it is borrowed exclusively.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

#[cfg(not(loom))]
impl<T, K: Sharing> Drop for Guard<'_, T, K> {
    #[inline]
    fn drop(&mut self) {
        self.lock.byte.unlock();
    }
}

#[cfg(loom)]
impl<T, K: Sharing> Deref for Guard<'_, T, K> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

#[cfg(loom)]
impl<T, K: Sharing> DerefMut for Guard<'_, T, K> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: fmt::Debug, K: Sharing> fmt::Debug for Guard<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(loom)]
fn relax(_spins: &mut u32) {
    loom::thread::yield_now();
}

#[cfg(not(loom))]
fn relax(spins: &mut u32) {
    *spins += 1;
    match yielding::get() {
        Some(give_way) if *spins > SPINS_MAX => give_way(),
        _ => core::hint::spin_loop(),
    }
}

/// Says how a thread gives its time slice away (`std::thread::yield_now`, for one). Until it is
/// said, locks only spin.
#[cfg(not(loom))]
pub fn set_yield(give_way: fn()) {
    yielding::set(give_way);
}

#[cfg(not(loom))]
mod yielding {
    use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

    static GIVE_WAY: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

    pub(super) fn set(give_way: fn()) {
        GIVE_WAY.store(give_way as *mut (), Relaxed);
    }

    pub(super) fn get() -> Option<fn()> {
        let pointer = GIVE_WAY.load(Relaxed);
        if pointer.is_null() {
            return None;
        }
        // SAFETY: only `set` stores here, and what it stores is a `fn()`.
        Some(unsafe { core::mem::transmute::<*mut (), fn()>(pointer) })
    }
}
