//! A counted pointer that begins with two counts: one for each side of a promise.
//!
//! Owns: what it points to, with the others. Any thread; whether it may be sent is for the two sides to say.
//!
//! `std`'s `Arc` would do, but for its price: it counts weak references too, so its last drop is a locked instruction, and so
//! is the making of the second reference.
//!
//! `sinew-core`'s `tests/loom_counted.rs` compiles this file with loom's atomics.
#![expect(unsafe_code, reason = "frees what it points to with the last count")]

use std::marker::PhantomData;
use std::ops::Deref;
use std::process::abort;
use std::ptr::NonNull;
#[cfg(not(loom))]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

#[cfg(loom)]
use loom::sync::atomic::AtomicUsize;

/// More counts than can be meant: somebody clones and forgets, and the count is not to overflow.
const COUNT_MAX: usize = usize::MAX / 2;

struct Shared<T> {
    count: AtomicUsize,
    value: T,
}

/// See the file's head.
pub(super) struct Counted<T> {
    shared: NonNull<Shared<T>>,
    owns: PhantomData<Shared<T>>,
}

impl<T> Counted<T> {
    /// Two references to one value.
    #[inline]
    pub(super) fn pair(value: T) -> (Self, Self) {
        let shared = Box::new(Shared {
            count: AtomicUsize::new(2),
            value,
        });
        let shared = NonNull::from(Box::leak(shared));
        let one = || Self {
            shared,
            owns: PhantomData,
        };
        (one(), one())
    }

    fn shared(&self) -> &Shared<T> {
        // SAFETY: this reference is counted.
        unsafe { self.shared.as_ref() }
    }

    /// The value to be changed, if this is the only reference.
    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        // ORDERING: Acquire pairs with the Release in `drop`: what the others did is seen, and nobody is left to make another.
        if self.shared().count.load(Acquire) != 1 {
            return None;
        }
        // SAFETY: the only reference, exclusively borrowed.
        let shared = unsafe { self.shared.as_mut() };
        Some(&mut shared.value)
    }
}

impl<T> Deref for Counted<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.shared().value
    }
}

impl<T> Clone for Counted<T> {
    #[inline]
    fn clone(&self) -> Self {
        if self.shared().count.fetch_add(1, Relaxed) > COUNT_MAX {
            abort();
        }
        Self {
            shared: self.shared,
            owns: PhantomData,
        }
    }
}

impl<T> Drop for Counted<T> {
    #[inline]
    fn drop(&mut self) {
        let count = &self.shared().count;
        // ORDERING: Acquire: a count of one is this reference, and nobody is left to make another: what the others did is seen.
        // ORDERING: Release: what this one did is before its end; Acquire: the last one sees all of it. (Not by a fence, of which
        // ThreadSanitizer knows nothing.)
        if count.load(Acquire) == 1 || count.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: made by `pair`; nobody else knows it.
            drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
        }
    }
}
