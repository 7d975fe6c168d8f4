//! ThreadSanitizer: it keeps a call stack and a clock for each flow, which it calls a fiber.
//!
//! Owns: the handle of a flow's fiber, in the flow's context. A switch is a synchronisation between the two flows, as one thread
//! runs both. The fiber of a flow that is over is destroyed by whoever arrives, since it cannot destroy itself.
#![expect(unsafe_code, reason = "calls the sanitizer's run-time library")]

use crate::arch::Context;
use crate::tools::Word;

unsafe extern "C" {
    fn __tsan_get_current_fiber() -> usize;
    fn __tsan_create_fiber(flags: u32) -> usize;
    fn __tsan_destroy_fiber(fiber: usize);
    fn __tsan_switch_to_fiber(fiber: usize, flags: u32);
}

/// What the sanitizer keeps with a context.
#[derive(Debug, Clone, Copy)]
pub struct Notes {
    fiber: usize,
}

impl Notes {
    /// Of a context that nothing was saved to.
    pub(crate) const EMPTY: Self = Self { fiber: 0 };

    /// Of a flow that has not run, on the stack with this base.
    pub(crate) fn of_new_flow(_base: usize) -> Self {
        // SAFETY: no preconditions.
        let fiber = unsafe { __tsan_create_fiber(0) };
        Self { fiber }
    }
}

/// # Safety
///
/// As for the switch between the two.
#[inline(always)]
pub(crate) unsafe fn leave(from: *mut Context, to: *const Context) -> Word {
    // SAFETY: no preconditions.
    let fiber = unsafe { __tsan_get_current_fiber() };
    // SAFETY: valid, as for the switch.
    unsafe { (*from).notes.fiber = fiber };
    // SAFETY: valid, as for the switch.
    let next = unsafe { (*to).notes.fiber };
    // SAFETY: made for that flow, or its thread's own.
    unsafe { __tsan_switch_to_fiber(next, 0) };
    Word::new(0)
}

/// # Safety
///
/// As for the last switch to `to`.
#[inline(always)]
pub(crate) unsafe fn leave_for_good(to: *const Context) -> Word {
    // SAFETY: no preconditions.
    let fiber = unsafe { __tsan_get_current_fiber() };
    // SAFETY: valid, as for the switch.
    let next = unsafe { (*to).notes.fiber };
    // SAFETY: as in `leave`.
    unsafe { __tsan_switch_to_fiber(next, 0) };
    Word::new(fiber)
}

/// # Safety
///
/// Right after the switch that resumed `me` and carried `note` over.
#[inline(always)]
pub(crate) unsafe fn arrive(_me: *mut Context, note: Word) {
    // SAFETY: all switches carry a word over.
    let dead = unsafe { note.assume_init() };
    // SAFETY: of a flow that is over, or zero.
    unsafe { bury(dead) };
}

/// Called by the first frame.
///
/// # Safety
///
/// As for [`arrive`].
pub(crate) unsafe extern "C" fn arrive_first(dead: usize) {
    // SAFETY: as in `arrive`.
    unsafe { bury(dead) };
}

/// # Safety
///
/// `dead` is zero, or the fiber of a flow that is over.
unsafe fn bury(dead: usize) {
    if dead != 0 {
        // SAFETY: nothing runs on it.
        unsafe { __tsan_destroy_fiber(dead) };
    }
}

/// Nothing to be told: what happens on a stack is ordered by the switches.
pub(crate) fn stack_in_use(_limit: usize, _bytes: usize) {}

/// As above.
pub(crate) fn stack_idle(_limit: usize, _bytes: usize) {}
