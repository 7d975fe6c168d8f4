//! MemorySanitizer: it knows the bounds of the stack that it is on.
//!
//! Owns: the bounds of a flow's stack, in the flow's context; see `asan` for how a thread's are learned.
//! Its runs take an instrumented standard library. What code without instruments writes, assembly and C libraries but libc's
//! intercepted functions, counts as never written.
#![expect(unsafe_code, reason = "calls the sanitizer's run-time library")]

use core::ptr;

use crate::arch::Context;
use crate::tools::{Word, bounds};

unsafe extern "C" {
    fn __msan_start_switch_fiber(limit: usize, bytes: usize);
    fn __msan_finish_switch_fiber(limit_old: *mut usize, bytes_old: *mut usize);
    fn __msan_unpoison(address: usize, bytes: usize);
}

/// What the sanitizer keeps with a context.
#[derive(Debug, Clone, Copy)]
pub struct Notes {
    limit: usize,
    bytes: usize,
}

impl Notes {
    /// Of a context that nothing was saved to.
    pub(crate) const EMPTY: Self = Self { limit: 0, bytes: 0 };

    /// Of a flow that has not run, on the stack with this base.
    pub(crate) fn of_new_flow(base: usize) -> Self {
        let (limit, bytes) = bounds(base);
        Self { limit, bytes }
    }
}

/// A word is handed over by assembly, whose operands the sanitizer wants written, all bits of them: those that were not count as
/// written from here on. (What lies behind the pointers that most words are is still looked at.)
#[inline(always)]
pub(crate) fn take_as_written(word: &mut core::mem::MaybeUninit<usize>) {
    // SAFETY: a word that belongs to the caller.
    unsafe { __msan_unpoison(word.as_mut_ptr().expose_provenance(), size_of::<usize>()) };
}

/// # Safety
///
/// As for the switch between the two.
#[inline(always)]
pub(crate) unsafe fn leave(from: *mut Context, to: *const Context) -> Word {
    // SAFETY: valid, as for the switch.
    let notes = unsafe { (*to).notes };
    // SAFETY: the bounds are the target's.
    unsafe { __msan_start_switch_fiber(notes.limit, notes.bytes) };
    Word::new(from.expose_provenance())
}

/// # Safety
///
/// As for the last switch to `to`.
#[inline(always)]
pub(crate) unsafe fn leave_for_good(to: *const Context) -> Word {
    // SAFETY: valid, as for the switch.
    let notes = unsafe { (*to).notes };
    // SAFETY: the bounds are the target's.
    unsafe { __msan_start_switch_fiber(notes.limit, notes.bytes) };
    Word::new(0)
}

/// # Safety
///
/// Right after the switch that resumed `me` and carried `note` over.
#[inline(always)]
pub(crate) unsafe fn arrive(_me: *mut Context, note: Word) {
    // SAFETY: all switches carry a word over.
    let left = unsafe { note.assume_init() };
    // SAFETY: the switch that has been started is over.
    unsafe { arrive_first(left) };
}

/// Called by the first frame.
///
/// # Safety
///
/// As for [`arrive`].
pub(crate) unsafe extern "C" fn arrive_first(left: usize) {
    let mut limit = 0;
    let mut bytes = 0;
    // SAFETY: the second half of the switch that has been started.
    unsafe { __msan_finish_switch_fiber(&raw mut limit, &raw mut bytes) };
    let left = ptr::with_exposed_provenance_mut::<Context>(left);
    if left.is_null() {
        return;
    }
    // SAFETY: it stays in place until it is resumed, and nobody else touches its notes.
    unsafe { (*left).notes.limit = limit };
    // SAFETY: as above.
    unsafe { (*left).notes.bytes = bytes };
}

/// What assembly writes onto a stack is not instrumented.
pub(crate) fn stack_in_use(limit: usize, bytes: usize) {
    // SAFETY: memory of a slot that belongs to the caller.
    unsafe { __msan_unpoison(limit, bytes) };
}

/// Nothing to be told.
pub(crate) fn stack_idle(_limit: usize, _bytes: usize) {}
