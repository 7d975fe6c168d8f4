//! Memory of records that have ended, for the next ones.
//!
//! Owns: a short list of blocks of one size. Thread: the anchor's.
//!
//! Invariants
//! - I1. Every block has the layout [`BLOCK`]; its first word names the next one, and nothing else of it is in use.
//! - I2. There are at most [`BLOCKS_MAX`]; what is larger, or more than that, goes to the allocator at once.
//!
//! Not under AddressSanitizer, which is to see each record's end.
#![expect(unsafe_code, reason = "allocates memory and casts it")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::{self, NonNull};

/// What a record with a closure of a few words takes.
const BLOCK: Layout = match Layout::from_size_align(384, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("a size and a power of two"),
};
const BLOCKS_MAX: usize = 64;

/// See the file's head.
pub(super) struct Spares {
    first: Cell<*mut u8>,
    count: Cell<usize>,
}

/// Whether records of this type are blocks.
pub(super) const fn is_block<T>() -> bool {
    !cfg!(sinew_asan) && size_of::<T>() <= BLOCK.size() && align_of::<T>() <= BLOCK.align()
}

impl Spares {
    pub(super) const fn new() -> Self {
        Self {
            first: Cell::new(ptr::null_mut()),
            count: Cell::new(0),
        }
    }

    // PERF: to make a coroutine, run it and drop it: 64 ns by the allocator, 37 ns by the list, in an earlier version.
    /// Memory for one `T`, to be returned by `give`.
    #[inline(always)]
    pub(super) fn take<T>(&self) -> NonNull<T> {
        if !is_block::<T>() {
            return allocate(Layout::new::<T>()).cast();
        }
        let Some(first) = NonNull::new(self.first.get()) else {
            return allocate(BLOCK).cast();
        };
        // SAFETY: I1.
        let next = unsafe { first.cast::<*mut u8>().read() };
        self.first.set(next);
        self.count.set(self.count.get() - 1);
        first.cast()
    }

    /// Takes memory back.
    ///
    /// # Safety
    ///
    /// It is from `take` of the same type, and nobody uses it any more.
    #[inline(always)]
    pub(super) unsafe fn give<T>(&self, place: NonNull<T>) {
        let place = place.cast::<u8>();
        if !is_block::<T>() {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(place.as_ptr(), Layout::new::<T>()) };
        } else {
            // SAFETY: passed on to the caller.
            unsafe { self.give_block(place) };
        }
    }

    /// Takes a block back.
    ///
    /// # Safety
    ///
    /// As for `give`, of a type that is a block.
    #[inline(always)]
    pub(super) unsafe fn give_block(&self, place: NonNull<u8>) {
        if self.count.get() == BLOCKS_MAX {
            // SAFETY: I1.
            unsafe { dealloc(place.as_ptr(), BLOCK) };
        } else {
            // SAFETY: a block is large enough, and aligned, for a pointer.
            unsafe { place.cast::<*mut u8>().write(self.first.get()) };
            self.first.set(place.as_ptr());
            self.count.set(self.count.get() + 1);
        }
    }
}

#[cold]
#[inline(never)]
fn allocate(layout: Layout) -> NonNull<u8> {
    // SAFETY: a record has a size.
    let place = unsafe { alloc(layout) };
    NonNull::new(place).unwrap_or_else(|| handle_alloc_error(layout))
}

impl Drop for Spares {
    fn drop(&mut self) {
        while let Some(first) = NonNull::new(self.first.get()) {
            // SAFETY: I1.
            self.first.set(unsafe { first.cast::<*mut u8>().read() });
            // SAFETY: I1.
            unsafe { dealloc(first.as_ptr(), BLOCK) };
        }
    }
}
