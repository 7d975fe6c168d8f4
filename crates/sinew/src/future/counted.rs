//! A counted pointer that begins with two counts: one for each side of a promise.
//!
//! Owns: what it points to, with the others. Any thread; whether it may be sent is for the two sides to say.
//!
//! `std`'s `Arc` would do, but for its price: it counts weak references too, so its last drop is a locked instruction, and so
//! is the making of the second reference.
//!
//! There is room beside the value for something that one side alone uses: what takes two allocations else takes one. It is not this
//! pointer's to drop.
//!
//! `sinew-core`'s `tests/loom_counted.rs` compiles this file with loom's atomics.
#![expect(unsafe_code, reason = "frees what it points to with the last count")]

use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
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
    /// Frees the block that this begins.
    free: unsafe fn(NonNull<Self>),
    value: T,
}

/// What is allocated.
#[repr(C)]
struct Block<T, X> {
    shared: Shared<T>,
    beside: MaybeUninit<X>,
}

impl<T, X> Block<T, X> {
    /// Drops the value and frees the block.
    ///
    /// # Safety
    ///
    /// It was allocated as this type, and nobody uses it any more.
    unsafe fn free(shared: NonNull<Shared<T>>) {
        // SAFETY: as the caller says; the pointer is that to the block, which begins with `shared`.
        drop(unsafe { Box::from_raw(shared.cast::<Self>().as_ptr()) });
    }
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
        Self::pair_beside(value, ())
    }

    /// The same, with something in the block beside the value, for [`beside`](Self::beside). It is forgotten with the last reference.
    #[inline]
    pub(super) fn pair_beside<X>(value: T, beside: X) -> (Self, Self) {
        let block = Box::new(Block {
            shared: Shared {
                count: AtomicUsize::new(2),
                free: Block::<T, X>::free,
                value,
            },
            beside: MaybeUninit::new(beside),
        });
        let shared = NonNull::from(Box::leak(block)).cast();
        let one = || Self {
            shared,
            owns: PhantomData,
        };
        (one(), one())
    }

    /// What is in the block beside the value, for the one that uses it.
    ///
    /// # Safety
    ///
    /// The block was made with such a thing.
    #[inline]
    pub(super) unsafe fn beside<X>(&self) -> NonNull<X> {
        let block = self.shared.cast::<Block<T, X>>().as_ptr();
        // SAFETY: the pointer is that to the whole block, which is in place while this reference is counted.
        let beside = unsafe { &raw mut (*block).beside };
        // SAFETY: a place in a block.
        unsafe { NonNull::new_unchecked(beside.cast()) }
    }

    /// The reference as a pointer, for [`from_raw`](Self::from_raw); it stays counted.
    #[inline]
    pub(super) fn into_raw(self) -> NonNull<()> {
        ManuallyDrop::new(self).shared.cast()
    }

    /// # Safety
    ///
    /// The pointer came from [`into_raw`](Self::into_raw) of this type, and makes one reference at a time.
    #[inline]
    pub(super) unsafe fn from_raw(shared: NonNull<()>) -> Self {
        Self {
            shared: shared.cast(),
            owns: PhantomData,
        }
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
            let free = self.shared().free;
            // SAFETY: it is that of the block's own type; nobody else knows the block.
            unsafe { free(self.shared) };
        }
    }
}
