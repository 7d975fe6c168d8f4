//! The notes of a build without a sanitizer: nothing.
#![expect(unsafe_code, reason = "the other notes' functions have duties")]

use crate::arch::Context;
use crate::tools::Word;

/// What a tool keeps with a context.
#[derive(Debug, Clone, Copy)]
pub struct Notes;

impl Notes {
    /// Of a context that nothing was saved to.
    pub(crate) const EMPTY: Self = Self;

    /// Of a flow that has not run, on the stack with this base.
    #[inline(always)]
    pub(crate) fn of_new_flow(_base: usize) -> Self {
        Self
    }
}

/// # Safety
///
/// None here.
#[inline(always)]
pub(crate) unsafe fn leave(_from: *mut Context, _to: *const Context) -> Word {
    Word::uninit()
}

/// # Safety
///
/// None here.
#[inline(always)]
pub(crate) unsafe fn leave_for_good(_to: *const Context) -> Word {
    Word::uninit()
}

/// # Safety
///
/// None here.
#[inline(always)]
pub(crate) unsafe fn arrive(_me: *mut Context, _note: Word) {}

#[inline(always)]
pub(crate) fn stack_in_use(_limit: usize, _bytes: usize) {}

#[inline(always)]
pub(crate) fn stack_idle(_limit: usize, _bytes: usize) {}
