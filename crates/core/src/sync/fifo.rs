//! The buffer of a channel: a ring of fixed size, or a chain of rings that grows.
//!
//! Owns: the buffered values. Thread: whoever holds the channel's lock, or the channel itself.
//!
//! Invariants
//! - I1. The `len` cells of a ring from `head` on, around its end and up to `tail`, are initialised, and no others. Both are less than the
//!   number of cells, or 0 if there are none.
//! - I2. `first` is empty only if the whole buffer is; rings between the first and the last are full.
//! - I3. `last` is null if `first` has no next; else it points to the end of the chain, which `first` owns. So it never points to `first`,
//!   which may be moved.
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
    tail: usize,
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
        Box::new(Self::of(Box::new_uninit_slice(capacity)))
    }

    const fn of(cells: Box<[MaybeUninit<T>]>) -> Self {
        Self {
            cells,
            head: 0,
            tail: 0,
            len: 0,
            next: None,
        }
    }

    #[inline(always)]
    fn is_full(&self) -> bool {
        self.len == self.cells.len()
    }

    /// Appends a value.
    ///
    /// # Safety
    ///
    /// The ring is not full.
    #[inline(always)]
    unsafe fn push(&mut self, value: T) {
        debug_assert!(!self.is_full(), "there is a place");
        // SAFETY: I1: it has cells, as it is not full.
        unsafe { self.cells.get_unchecked_mut(self.tail) }.write(value);
        // INVARIANT: I1.
        self.tail = self.behind(self.tail);
        self.len += 1;
    }

    /// Takes the first value out.
    ///
    /// # Safety
    ///
    /// The ring is not empty.
    #[inline(always)]
    unsafe fn pop(&mut self) -> T {
        debug_assert!(self.len > 0, "there is a value");
        // SAFETY: I1: it has cells, as it is not empty.
        let cell = unsafe { self.cells.get_unchecked(self.head) };
        // SAFETY: I1: the first of the initialised cells; it is not among them any more below.
        let value = unsafe { cell.assume_init_read() };
        // INVARIANT: I1.
        self.head = self.behind(self.head);
        self.len -= 1;
        value
    }

    /// The cell behind this one.
    #[inline(always)]
    fn behind(&self, at: usize) -> usize {
        if at + 1 == self.cells.len() {
            0
        } else {
            at + 1
        }
    }
}

/// Values in order.
pub(super) struct Fifo<T> {
    first: Ring<T>,
    last: *mut Ring<T>,
    spare: Option<Box<Ring<T>>>,
    len: usize,
}

// SAFETY: `last` points into what `first` owns; sending the buffer sends its values.
unsafe impl<T: Send> Send for Fifo<T> {}

impl<T> Fifo<T> {
    /// An empty buffer with place for `capacity` values.
    pub(super) fn new(capacity: usize) -> Self {
        Self::of(Box::new_uninit_slice(capacity))
    }

    const fn of(cells: Box<[MaybeUninit<T>]>) -> Self {
        Self {
            first: Ring::of(cells),
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
        Self::of(cells.into_boxed_slice())
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
        self.push_here(value).or_else(|value| self.push_next(value))
    }

    /// The same if there is place in the last ring.
    #[inline(always)]
    pub(super) fn push_here(&mut self, value: T) -> Result<(), T> {
        let last = self.last_mut();
        if last.is_full() {
            return Err(value);
        }
        // SAFETY: it is not full.
        unsafe { last.push(value) };
        self.len += 1;
        Ok(())
    }

    /// The same if the last ring is full, and there is a spare one.
    #[cold]
    #[inline(never)]
    fn push_next(&mut self, value: T) -> Result<(), T> {
        let Some(spare) = self.spare.take() else {
            return Err(value);
        };
        self.chain(spare);
        self.push_here(value)
    }

    /// Takes the first value. A ring that is not needed any more is left in `retired`, for the caller to
    /// drop when it has given the lock back.
    #[inline]
    pub(super) fn pop(&mut self, retired: &mut Option<Box<Ring<T>>>) -> Option<T> {
        if self.first.len == 0 {
            return None;
        }
        // SAFETY: it is not empty.
        let value = unsafe { self.first.pop() };
        self.len -= 1;
        if self.first.len == 0 && self.first.next.is_some() {
            *retired = self.advance();
        }
        Some(value)
    }

    /// The same if there is one, and no ring runs empty by it that has a next.
    #[inline(always)]
    pub(super) fn pop_here(&mut self) -> Option<T> {
        if self.first.len <= 1 && (self.first.len == 0 || self.first.next.is_some()) {
            return None;
        }
        self.len -= 1;
        // SAFETY: it is not empty.
        Some(unsafe { self.first.pop() })
    }

    /// The capacity of the ring to adopt next.
    pub(super) fn growth(&mut self) -> usize {
        let last = self.last_mut().cells.len();
        (last * 2).clamp(GROW_MIN, GROW_MAX)
    }

    /// Makes room by an empty ring; gives back the one that is not needed.
    pub(super) fn adopt(&mut self, mut ring: Box<Ring<T>>) -> Option<Box<Ring<T>>> {
        if self.len == 0 {
            self.last = ptr::null_mut();
            mem::swap(&mut self.first, &mut *ring);
            return Some(ring);
        }
        if self.spare.is_some() || !self.last_mut().is_full() {
            return Some(ring);
        }
        self.chain(ring);
        None
    }

    #[inline(always)]
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
        let mut ring = self.first.next.take()?;
        if ring.next.is_none() {
            // INVARIANT: I3.
            self.last = ptr::null_mut();
        }
        // From here on it is the old one.
        mem::swap(&mut self.first, &mut *ring);
        self.spare.replace(ring)
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
