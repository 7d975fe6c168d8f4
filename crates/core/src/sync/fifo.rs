//! The buffer of a channel: a ring of fixed size, or a chain of rings that grows.
//!
//! Owns: the buffered values. Thread: whoever holds the channel's lock, or the channel itself.
//!
//! Invariants
//! - I1. The cells `head .. head + len` of a ring, around its end, are initialised, and no others.
//! - I2. `first` is empty only if the whole buffer is; rings between the first and the last are full.
//! - I3. `last` is null if `first` has no next; else it points to the end of the chain, which `first` owns.
//! - I4. `len` is the number of values in all rings.
//!
//! Rings are made and unmade by the caller, outside of the lock ([`Fifo::adopt`], the `retired` of [`Fifo::pop`]). One
//! that ran empty is kept to be used again, so a buffer whose fill wanders by less than a ring allocates nothing.
#![expect(
    unsafe_code,
    reason = "a ring of cells some of which are uninitialised; a pointer to the end of the chain"
)]

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::{self, MaybeUninit};
use core::ptr;

/// Capacity of the first ring of a growing buffer, and the most that a ring of one has.
const GROW_MIN: usize = 32;
const GROW_MAX: usize = 512;

/// A ring of cells.
pub(super) struct Ring<T> {
    cells: Box<[MaybeUninit<T>]>,
    head: usize,
    len: usize,
    next: Option<Box<Ring<T>>>,
}

impl<T> Ring<T> {
    /// An empty ring with place for `capacity` values.
    ///
    /// # Panics
    ///
    /// Panics if that many values are more than an address space holds.
    pub(super) fn boxed(capacity: usize) -> Box<Self> {
        Box::new(Self {
            cells: Box::new_uninit_slice(capacity),
            head: 0,
            len: 0,
            next: None,
        })
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.len == self.cells.len()
    }

    /// Appends a value to a ring that is not full.
    #[inline]
    fn push(&mut self, value: T) {
        let to_end = self.cells.len() - self.head;
        let at = if self.len < to_end {
            self.head + self.len
        } else {
            self.len - to_end
        };
        self.cells[at].write(value);
        // INVARIANT: I1.
        self.len += 1;
    }

    #[inline]
    fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        // SAFETY: I1: the first of the initialised cells; it is not among them any more below.
        let value = unsafe { self.cells[self.head].assume_init_read() };
        // INVARIANT: I1.
        self.head += 1;
        if self.head == self.cells.len() {
            self.head = 0;
        }
        self.len -= 1;
        Some(value)
    }
}

/// Values in order.
pub(super) struct Fifo<T> {
    first: Box<Ring<T>>,
    last: *mut Ring<T>,
    spare: Option<Box<Ring<T>>>,
    len: usize,
}

// SAFETY: `last` points into what `first` owns; sending the buffer sends its values.
unsafe impl<T: Send> Send for Fifo<T> {}

impl<T> Fifo<T> {
    /// An empty buffer with place for `capacity` values.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            first: Ring::boxed(capacity),
            last: ptr::null_mut(),
            spare: None,
            len: 0,
        }
    }

    /// An empty buffer with place for `capacity` values, perhaps very many.
    ///
    /// # Panics
    ///
    /// Panics if the memory cannot be had.
    #[track_caller]
    pub(super) fn reserved(capacity: usize) -> Self {
        let mut cells = Vec::<MaybeUninit<T>>::new();
        if cells.try_reserve_exact(capacity).is_err() {
            panic!("no memory for a channel's buffer of {capacity} values");
        }
        // SAFETY: reserved, and such cells need no initialising.
        unsafe { cells.set_len(capacity) };
        let mut this = Self::new(0);
        this.first.cells = cells.into_boxed_slice();
        this
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends a value if there is place for it.
    ///
    /// # Errors
    ///
    /// Gives the value back if not: a ring must be [adopted](Self::adopt) first.
    #[inline]
    pub(super) fn push(&mut self, value: T) -> Result<(), T> {
        let mut last = self.last_mut();
        if last.is_full() {
            let Some(spare) = self.spare.take() else {
                return Err(value);
            };
            self.chain(spare);
            last = self.last_mut();
        }
        last.push(value);
        self.len += 1;
        Ok(())
    }

    /// Takes the first value. A ring that is not needed any more is left in `retired`, for the caller to
    /// drop when it has given the lock back.
    #[inline]
    pub(super) fn pop(&mut self, retired: &mut Option<Box<Ring<T>>>) -> Option<T> {
        let value = self.first.pop()?;
        self.len -= 1;
        if self.first.len == 0 && self.first.next.is_some() {
            *retired = self.advance();
        }
        Some(value)
    }

    /// The capacity of the ring to adopt next.
    pub(super) fn growth(&mut self) -> usize {
        let last = self.last_mut().cells.len();
        (last * 2).clamp(GROW_MIN, GROW_MAX)
    }

    /// Makes room by an empty ring; gives back the one that is not needed.
    pub(super) fn adopt(&mut self, ring: Box<Ring<T>>) -> Option<Box<Ring<T>>> {
        if self.len == 0 {
            self.last = ptr::null_mut();
            return Some(mem::replace(&mut self.first, ring));
        }
        if self.spare.is_some() || !self.last_mut().is_full() {
            return Some(ring);
        }
        self.chain(ring);
        None
    }

    #[inline]
    fn last_mut(&mut self) -> &mut Ring<T> {
        if self.last.is_null() {
            return &mut self.first;
        }
        // SAFETY: I3: alive, and reached through the exclusive borrow of its owner.
        unsafe { &mut *self.last }
    }

    /// Puts an empty ring at the end.
    fn chain(&mut self, ring: Box<Ring<T>>) {
        let next = self.last_mut().next.insert(ring);
        // INVARIANT: I3.
        self.last = &raw mut **next;
    }

    /// Goes on from a first ring that ran empty to the next; keeps it, or gives it back.
    #[cold]
    fn advance(&mut self) -> Option<Box<Ring<T>>> {
        let next = self.first.next.take()?;
        if next.next.is_none() {
            // INVARIANT: I3.
            self.last = ptr::null_mut();
        }
        let old = mem::replace(&mut self.first, next);
        self.spare.replace(old)
    }
}

impl<T> Drop for Fifo<T> {
    /// Drops the values in order. If the drop of one panics the others are dropped nevertheless.
    fn drop(&mut self) {
        struct Rest<'a, T>(&'a mut Fifo<T>);
        impl<T> Rest<'_, T> {
            fn drop_all(&mut self) {
                while let Some(value) = self.0.pop(&mut None) {
                    drop(value);
                }
            }
        }
        impl<T> Drop for Rest<'_, T> {
            fn drop(&mut self) {
                self.drop_all();
            }
        }
        Rest(self).drop_all();
    }
}

#[cfg(test)]
mod tests;
