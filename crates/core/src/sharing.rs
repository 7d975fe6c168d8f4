//! Who may share a primitive: the parties of any thread, or those of one.
//!
//! Owns: the words and bytes that a primitive is made of, in both kinds. The primitive's code is the same for both.
//!
//! [`Shared`] ones are atomics. [`Local`] ones are cells: what is made of them is neither `Send` nor `Sync`, so its parties
//! run on one thread, by turns, and no step of one can come between those of another. The orderings of the calls say nothing there.
//!
//! A waiter's own word, which waits of both kinds use, stays an atomic; it is claimed by plain loads and stores on its own
//! thread, see [`WaitWord::claim_alone`](crate::wait::WaitWord::claim_alone).

use alloc::rc::Rc;
use alloc::sync::Arc;
use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::sync::atomic::Ordering;

use crate::facade::AtomicU32;
use crate::lock::SpinByte;

/// One of the two kinds, [`Shared`] and [`Local`].
pub trait Sharing: sealed::Sealed + fmt::Debug + Sized + 'static {
    /// Whether the parties run on one thread.
    const IS_LOCAL: bool;
    /// What a short lock is.
    type Byte: Byte;
    /// What a state word is.
    type Word: Word;
    /// A counted pointer.
    type Ref<T>: Deref<Target = T> + Clone + From<T>;
    /// The value of the only such pointer.
    ///
    /// # Errors
    ///
    /// The pointer comes back if there are others.
    fn try_unwrap<T>(pointer: Self::Ref<T>) -> Result<T, Self::Ref<T>>;
    /// The value of the only such pointer, or a clone of it if there are others.
    fn unwrap_or_clone<T: Clone>(pointer: Self::Ref<T>) -> T;
}

/// For the parties of all threads: by atomics.
#[derive(Debug)]
pub struct Shared;

/// For the parties of one thread: by cells.
#[derive(Debug)]
pub struct Local(PhantomData<*const ()>);

impl Sharing for Shared {
    const IS_LOCAL: bool = false;
    type Byte = SpinByte;
    type Word = AtomicU32;
    type Ref<T> = Arc<T>;

    fn try_unwrap<T>(pointer: Arc<T>) -> Result<T, Arc<T>> {
        Arc::try_unwrap(pointer)
    }

    fn unwrap_or_clone<T: Clone>(pointer: Arc<T>) -> T {
        Arc::unwrap_or_clone(pointer)
    }
}

impl Sharing for Local {
    const IS_LOCAL: bool = true;
    type Byte = Held;
    type Word = Cell<u32>;
    type Ref<T> = Rc<T>;

    fn try_unwrap<T>(pointer: Rc<T>) -> Result<T, Rc<T>> {
        Rc::try_unwrap(pointer)
    }

    fn unwrap_or_clone<T: Clone>(pointer: Rc<T>) -> T {
        Rc::unwrap_or_clone(pointer)
    }
}

/// What a short lock is made of; see [`SpinByte`].
pub trait Byte: sealed::Sealed + fmt::Debug {
    /// A free one.
    #[cfg(not(loom))]
    const FREE: Self;
    /// Takes it.
    fn lock(&self);
    /// Takes it if it is free.
    fn try_lock(&self) -> bool;
    /// Takes it where it is free and no other thread takes it meanwhile.
    #[cfg(not(loom))]
    fn lock_alone(&self);
    /// Gives it back. Only by its holder.
    fn unlock(&self);
}

impl Byte for SpinByte {
    #[cfg(not(loom))]
    const FREE: Self = Self::new();

    #[inline]
    fn lock(&self) {
        self.lock();
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.try_lock()
    }

    #[cfg(not(loom))]
    #[inline]
    fn lock_alone(&self) {
        self.lock_alone();
    }

    #[inline]
    fn unlock(&self) {
        self.unlock();
    }
}

/// Whether a short lock of one thread is held. Nobody can wait for it: who finds it held holds it itself.
#[derive(Debug)]
pub struct Held(Cell<bool>);

impl Byte for Held {
    #[cfg(not(loom))]
    const FREE: Self = Self(Cell::new(false));

    /// # Panics
    ///
    /// Panics if it is held: its own holder would wait for itself.
    #[inline]
    fn lock(&self) {
        assert!(self.try_lock(), "a short lock is taken once at a time");
    }

    #[inline]
    fn try_lock(&self) -> bool {
        !self.0.replace(true)
    }

    #[cfg(not(loom))]
    #[inline]
    fn lock_alone(&self) {
        self.lock();
    }

    #[inline]
    fn unlock(&self) {
        self.0.set(false);
    }
}

/// What a state word is made of; as `core`'s atomics.
pub trait Word: sealed::Sealed + fmt::Debug {
    /// A word of 0.
    #[cfg(not(loom))]
    const ZERO: Self;
    /// A word of 0.
    #[cfg(loom)]
    fn zero() -> Self;
    /// Reads it.
    fn load(&self, order: Ordering) -> u32;
    /// Writes it.
    fn store(&self, value: u32, order: Ordering);
    /// Changes it from `current` to `new`, or says what it is instead.
    ///
    /// # Errors
    ///
    /// What it is; of an atomic, perhaps `current`.
    fn exchange_weak(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32>;
    /// Keeps the bits that are set in `bits`, too.
    fn keep(&self, bits: u32, order: Ordering);
    /// Sets bits.
    fn set_bits(&self, bits: u32, order: Ordering);
}

impl Word for AtomicU32 {
    #[cfg(not(loom))]
    const ZERO: Self = Self::new(0);

    #[cfg(loom)]
    fn zero() -> Self {
        Self::new(0)
    }

    #[inline]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }

    #[inline]
    fn exchange_weak(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.compare_exchange_weak(current, new, success, failure)
    }

    #[inline]
    fn keep(&self, bits: u32, order: Ordering) {
        self.fetch_and(bits, order);
    }

    #[inline]
    fn set_bits(&self, bits: u32, order: Ordering) {
        self.fetch_or(bits, order);
    }
}

impl Word for Cell<u32> {
    #[cfg(not(loom))]
    const ZERO: Self = Self::new(0);

    #[cfg(loom)]
    fn zero() -> Self {
        Self::new(0)
    }

    #[inline]
    fn load(&self, _: Ordering) -> u32 {
        self.get()
    }

    #[inline]
    fn store(&self, value: u32, _: Ordering) {
        self.set(value);
    }

    #[inline]
    fn exchange_weak(&self, current: u32, new: u32, _: Ordering, _: Ordering) -> Result<u32, u32> {
        let now = self.get();
        if now != current {
            return Err(now);
        }
        self.set(new);
        Ok(now)
    }

    #[inline]
    fn keep(&self, bits: u32, _: Ordering) {
        self.set(self.get() & bits);
    }

    #[inline]
    fn set_bits(&self, bits: u32, _: Ordering) {
        self.set(self.get() | bits);
    }
}

mod sealed {
    /// The two kinds, and what they are made of.
    pub trait Sealed {}

    impl Sealed for super::Shared {}
    impl Sealed for super::Local {}
    impl Sealed for super::SpinByte {}
    impl Sealed for super::Held {}
    impl Sealed for super::AtomicU32 {}
    impl Sealed for core::cell::Cell<u32> {}
}
