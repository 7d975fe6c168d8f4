//! Memory that is taken before it is needed.
//!
//! Owns: the memory of one value. Any thread.
#![expect(
    unsafe_code,
    reason = "asks the allocator, which std does only where it may fail the process"
)]

use std::alloc::{Layout, alloc};
use std::mem::MaybeUninit;

/// A box without its value: to put that in cannot fail.
pub(super) struct Room<T>(Box<MaybeUninit<T>>);

impl<T> Room<T> {
    /// `None` if there is no memory.
    pub(super) fn try_new() -> Option<Self> {
        let layout = Layout::new::<T>();
        if layout.size() == 0 {
            return Some(Self(Box::new_uninit()));
        }
        // SAFETY: not of size zero.
        let memory = unsafe { alloc(layout) }.cast::<MaybeUninit<T>>();
        if memory.is_null() {
            return None;
        }
        // SAFETY: just taken from the global allocator with this layout; it need not be initialised.
        Some(Self(unsafe { Box::from_raw(memory) }))
    }

    /// Puts the value in.
    pub(super) fn fill(self, value: T) -> Box<T> {
        Box::write(self.0, value)
    }
}
