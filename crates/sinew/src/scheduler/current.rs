//! The one thread-local of the runtime: which scheduler runs on this thread.
//!
//! Owns: the pointer. It is set for the length of an anchor and never dangles: the anchor takes it back before
//! the scheduler goes. Coroutines never change their thread once started, so code may rely on the value across a suspend.
#![expect(unsafe_code, reason = "follows the thread's scheduler pointer")]

use std::cell::Cell;
use std::ptr;

use crate::scheduler::Scheduler;
use crate::scheduler::block::Block;

thread_local! {
    static SCHEDULER: Cell<*const Scheduler> = const { Cell::new(ptr::null()) };
}

/// The thread's scheduler, as a raw pointer; null outside of an anchor.
#[inline]
pub(super) fn scheduler() -> *const Scheduler {
    // A thread-local without a destructor is reachable to the thread's end.
    SCHEDULER.get()
}

/// Sets the thread's scheduler and returns the one before.
pub(super) fn set_scheduler(scheduler: *const Scheduler) -> *const Scheduler {
    SCHEDULER.replace(scheduler)
}

/// Runs `f` with the thread's scheduler, if there is one.
#[inline]
pub(crate) fn with_scheduler<R>(f: impl FnOnce(&Scheduler) -> R) -> Option<R> {
    // SAFETY: not null means that the anchor that set it is still on this thread's stack.
    unsafe { scheduler().as_ref() }.map(f)
}

/// Where the calling code runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    /// On a plain thread, outside of any scheduler.
    Thread,
    /// On a scheduler's own frame, not in a coroutine.
    Frame,
    /// In this coroutine of this scheduler.
    Coroutine(&'a Scheduler, &'a Block),
}

/// Where the calling code runs. The references are good as long as the caller stays in the coroutine.
#[inline]
pub(crate) fn place<'a>() -> Place<'a> {
    // SAFETY: as in `with_scheduler`; a coroutine that runs keeps its scheduler.
    let Some(scheduler) = (unsafe { scheduler().as_ref() }) else {
        return Place::Thread;
    };
    // SAFETY: the current block is referenced by its scheduler until the coroutine has ended.
    match unsafe { scheduler.current().as_ref() } {
        Some(block) => Place::Coroutine(scheduler, block),
        None => Place::Frame,
    }
}
