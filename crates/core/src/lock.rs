//! The short lock under which each primitive keeps its state and its wait queue.
//!
//! Owns: one byte. Any thread may take it. It is held for a few dozen instructions, never while user
//! code runs and never across a suspend.
//!
//! Invariants
//! - I1. The value is reached only by the holder of the byte.
//!
//! A waiter spins a bounded moment and then gives its time slice away through the function that
//! [`set_yield`] was given, so that a preempted holder on the same processor can go on. It does not sleep
//! in the kernel: the sections are shorter than the call would be.
#![expect(
    unsafe_code,
    reason = "hands out references to a cell guarded by an atomic byte"
)]

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::facade::{AtomicU8, UnsafeCell, const_unless_loom};

/// How many times a lock is looked at before the time slice is given away.
#[cfg(not(loom))]
const SPINS_MAX: u32 = 64;

/// A value behind a short spin lock.
pub struct Lock<T> {
    byte: AtomicU8,
    value: UnsafeCell<T>,
}

// SAFETY: I1: one thread at a time reaches the value, so sending it suffices.
unsafe impl<T: Send> Send for Lock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    const_unless_loom! {
        /// A free lock around `value`.
        pub fn new(value: T) -> Self {
            Self { byte: AtomicU8::new(0), value: UnsafeCell::new(value) }
        }
    }

    /// Takes the lock, spinning while another holds it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        // ORDERING: Acquire pairs with the Release in Guard::drop.
        if self.byte.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            self.lock_slow();
        }
        Guard {
            lock: self,
            not_send: PhantomData,
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // ORDERING: Acquire pairs with the Release in Guard::drop.
        self.byte
            .compare_exchange(0, 1, Acquire, Relaxed)
            .is_ok()
            .then_some(Guard {
                lock: self,
                not_send: PhantomData,
            })
    }

    #[cold]
    fn lock_slow(&self) {
        let mut spins = 0;
        loop {
            if self.byte.load(Relaxed) == 0
                // ORDERING: Acquire pairs with the Release in Guard::drop.
                && self.byte.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
            {
                return;
            }
            relax(&mut spins);
        }
    }
}

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("held", &(self.byte.load(Relaxed) != 0))
            .finish_non_exhaustive()
    }
}

/// The right to reach the value of a [`Lock`]; gives the lock back when dropped.
#[must_use]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    not_send: PhantomData<*const ()>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: I1: this guard is the only one.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: I1: this guard is the only one, and it is borrowed exclusively.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // ORDERING: Release pairs with the Acquire of the next lock().
        self.lock.byte.store(0, Release);
    }
}

impl<T: fmt::Debug> fmt::Debug for Guard<'_, T> {
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
    if *spins < SPINS_MAX {
        core::hint::spin_loop();
    } else if let Some(give_way) = yielding::get() {
        give_way();
    } else {
        core::hint::spin_loop();
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
