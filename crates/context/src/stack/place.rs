//! Where a stack is: addresses, by value, whoever owns it.
//!
//! Any thread; async-signal-safe. What is known here is a copy: it says nothing about how long the stack will be there.
//!
//! Invariants:
//! - I1: `start <= limit <= base <= end`; the header is never unmapped, so the owner can be asked for at any time.
//!
//! Not here: how an address is looked up (`slab`, `provided`).

#![expect(
    unsafe_code,
    reason = "the header of a stack is reached by its address"
)]

use super::{DescribeFn, StackHeader, provided, residency, slab};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

/// Names the place of one stack. Copying it confers no ownership.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SlotRef {
    /// The lowest address, where the guard begins.
    pub(super) start: usize,
    /// The lowest usable address.
    pub(super) limit: usize,
    /// One past the highest usable one, with the right to all of them.
    pub(super) base: NonNull<u8>,
    /// One past all that belongs to the stack.
    pub(super) end: usize,
    pub(super) header: NonNull<StackHeader>,
}

// SAFETY: addresses and the way to a header, all of whose fields are atomic.
unsafe impl Send for SlotRef {}
// SAFETY: as above.
unsafe impl Sync for SlotRef {}

impl SlotRef {
    /// The lowest usable address.
    #[must_use]
    pub fn limit(self) -> NonNull<u8> {
        let limit = self.base.as_ptr().with_addr(self.limit);
        NonNull::new(limit).unwrap_or(self.base)
    }

    /// One past the highest usable address; a multiple of 64. The stack grows down from here.
    #[must_use]
    #[inline]
    pub fn base(self) -> NonNull<u8> {
        self.base
    }

    /// The inaccessible range below the stack; empty if it has no guard.
    #[must_use]
    pub fn guard(self) -> Range<usize> {
        self.start..self.limit
    }

    /// Usable bytes, from limit to base.
    #[must_use]
    pub fn size_bytes(self) -> usize {
        self.base.addr().get() - self.limit
    }

    /// Bytes of address space, guard and header included.
    #[must_use]
    pub fn reserved_bytes(self) -> usize {
        self.end - self.start
    }

    /// The deepest use since the stack was last cleaned, in bytes below the base, see
    /// [`Stack::high_water_bytes`](super::Stack::high_water_bytes). From any thread.
    #[must_use]
    pub fn high_water_bytes(self) -> usize {
        residency::high_water_bytes(self)
    }

    /// Whether the memory is the caller's own, see [`provided`].
    #[must_use]
    pub fn is_provided(self) -> bool {
        !(self.start..self.end).contains(&self.header.addr().get())
    }

    /// The addresses of the whole.
    pub(super) fn span(self) -> Range<usize> {
        self.start..self.end
    }
}

impl fmt::Debug for SlotRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotRef")
            .field("limit", &self.limit())
            .field("base", &self.base())
            .finish_non_exhaustive()
    }
}

/// Finds the stack that `addr` lies in, its guard and header included.
///
/// Lock-free and async-signal-safe; takes time linear in the number of slabs, of which a million
/// stacks of one size make about seventy. A stack that another thread gives up or takes meanwhile may be found or not.
#[must_use]
pub fn lookup(addr: usize) -> Option<SlotRef> {
    match slab::lookup(addr) {
        Some(slot) => Some(slot.place()),
        None => provided::lookup(addr),
    }
}

/// Who runs on a stack, as given to [`Stack::set_owner`](super::Stack::set_owner): async-signal-safe.
#[must_use]
pub fn owner_of(slot: SlotRef) -> Option<(*const (), DescribeFn)> {
    // SAFETY: I1; it is zero or was written by `StackHeader`.
    unsafe { slot.header.as_ref() }.owner()
}
