//! AddressSanitizer: it knows which stack it is on, and keeps a fake stack for each flow (use after return).
//!
//! Owns: the bounds of a flow's stack and its fake stack, in the flow's context. Bounds of a stack that is not ours, a thread's,
//! are learned from the sanitizer when the flow is left, by whoever arrives.
//!
//! Leak detection reads the stacks of threads only, so each coroutine stack is a root while somebody owns it. (The whole
//! slab cannot be: reading a guard is a fault.) It does not read the fake stacks of suspended flows: what only a local there
//! refers to counts as leaked if the process ends before the flow does, unless it runs with
//! `ASAN_OPTIONS=detect_stack_use_after_return=0`, which does without fake stacks.
#![expect(unsafe_code, reason = "calls the sanitizer's run-time library")]

use core::ptr;

use crate::arch::Context;
use crate::tools::{Word, bounds};

unsafe extern "C" {
    fn __sanitizer_start_switch_fiber(fake_save: *mut usize, limit: usize, bytes: usize);
    fn __sanitizer_finish_switch_fiber(fake: usize, limit_old: *mut usize, bytes_old: *mut usize);
    fn __asan_unpoison_memory_region(address: usize, bytes: usize);
    fn __lsan_register_root_region(address: usize, bytes: usize);
    fn __lsan_unregister_root_region(address: usize, bytes: usize);
}

/// What the sanitizer keeps with a context.
#[derive(Debug, Clone, Copy)]
pub struct Notes {
    /// The fake stack, while the flow is suspended.
    fake: usize,
    limit: usize,
    bytes: usize,
}

impl Notes {
    /// Of a context that nothing was saved to.
    pub(crate) const EMPTY: Self = Self {
        fake: 0,
        limit: 0,
        bytes: 0,
    };

    /// Of a flow that has not run, on the stack with this base.
    pub(crate) fn of_new_flow(base: usize) -> Self {
        let (limit, bytes) = bounds(base);
        Self {
            fake: 0,
            limit,
            bytes,
        }
    }
}

/// # Safety
///
/// As for the switch between the two.
#[inline(always)]
pub(crate) unsafe fn leave(from: *mut Context, to: *const Context) -> Word {
    // SAFETY: valid, as for the switch.
    let notes = unsafe { (*to).notes };
    // SAFETY: as above.
    let fake = unsafe { &raw mut (*from).notes.fake };
    // SAFETY: the place for the fake stack is in the context that is saved to; the bounds are the target's.
    unsafe { __sanitizer_start_switch_fiber(fake, notes.limit, notes.bytes) };
    Word::new(from.expose_provenance())
}

/// The fake stack of this flow is released.
///
/// # Safety
///
/// As for the last switch to `to`.
#[inline(always)]
pub(crate) unsafe fn leave_for_good(to: *const Context) -> Word {
    // SAFETY: valid, as for the switch.
    let notes = unsafe { (*to).notes };
    // SAFETY: null: this flow is over.
    unsafe { __sanitizer_start_switch_fiber(ptr::null_mut(), notes.limit, notes.bytes) };
    Word::new(0)
}

/// # Safety
///
/// Right after the switch that resumed `me` and carried `note` over.
#[inline(always)]
pub(crate) unsafe fn arrive(me: *mut Context, note: Word) {
    // SAFETY: valid, as for the switch.
    let fake = unsafe { (*me).notes.fake };
    // SAFETY: all switches carry a word over.
    let left = unsafe { note.assume_init() };
    // SAFETY: `fake` was saved when `me` was left.
    unsafe { finish(fake, left) };
}

/// Called by the first frame.
///
/// # Safety
///
/// As for [`arrive`].
pub(crate) unsafe extern "C" fn arrive_first(left: usize) {
    // SAFETY: a new flow has no fake stack yet.
    unsafe { finish(0, left) };
}

/// # Safety
///
/// As for [`arrive`]; `left` is the context of the flow that was left, or null if that is over.
#[inline(always)]
unsafe fn finish(fake: usize, left: usize) {
    let mut limit = 0;
    let mut bytes = 0;
    // SAFETY: the second half of the switch that has been started.
    unsafe { __sanitizer_finish_switch_fiber(fake, &raw mut limit, &raw mut bytes) };
    let left = ptr::with_exposed_provenance_mut::<Context>(left);
    if left.is_null() {
        return;
    }
    // SAFETY: it stays in place until it is resumed, and nobody else touches its notes.
    unsafe { (*left).notes.limit = limit };
    // SAFETY: as above.
    unsafe { (*left).notes.bytes = bytes };
}

/// A stack has an owner: what is on it keeps allocations alive. Nothing on it is poisoned by who used it before, and
/// perhaps left it without returning from its frames.
pub(crate) fn stack_in_use(limit: usize, bytes: usize) {
    // SAFETY: memory of a slot that belongs to the caller.
    unsafe { __asan_unpoison_memory_region(limit, bytes) };
    // SAFETY: as above; it is readable until it is idle again.
    unsafe { __lsan_register_root_region(limit, bytes) };
}

/// A stack has no owner any more.
pub(crate) fn stack_idle(limit: usize, bytes: usize) {
    // SAFETY: registered when it was taken.
    unsafe { __lsan_unregister_root_region(limit, bytes) };
    // SAFETY: memory of a slot that belongs to the caller.
    unsafe { __asan_unpoison_memory_region(limit, bytes) };
}
