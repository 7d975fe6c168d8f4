//! What a coroutine keeps of its thread's state while others run: the error number, and if it asked for that, the
//! floating-point control words.
//!
//! Owns: the place where a coroutine stops, [`Scheduler::switch_out`], with what is saved and restored around it.
//! Thread: the scheduler's.
//!
//! Invariants
//! - I1. A coroutine has after a wait the `errno` that it had before.
//! - I2. Whatever runs next finds the control words that the scheduler began with: a coroutine built with `fp_env(true)`
//!   exchanges them, and of others they are not to be changed. Debug builds look, before anything is queued or armed: a panic
//!   there leaves nothing behind.
#![expect(
    unsafe_code,
    reason = "switches stacks and exchanges control registers"
)]

use std::thread;

use sinew_context::{Context, Errno, FpEnv, switch};

use crate::scheduler::Scheduler;
use crate::scheduler::block::{Block, flag};
use crate::scheduler::current::{self, Place};

/// What the scheduler knows of its thread.
#[derive(Debug)]
pub(super) struct ThreadState {
    errno: Errno,
    /// The control words when it began.
    fp_env: FpEnv,
}

impl ThreadState {
    /// Of the calling thread.
    pub(super) fn of_this_thread() -> Self {
        Self {
            errno: Errno::of_this_thread(),
            fp_env: FpEnv::current(),
        }
    }
}

impl Scheduler {
    /// The current coroutine stops here until it is made runnable and its turn comes.
    #[inline]
    pub(super) fn switch_out(&self, me: &Block) {
        if me.has(flag::FP_ENV) {
            self.switch_out_with_fp_env(me);
        } else {
            self.switch_away(me);
        }
    }

    #[inline(always)]
    pub(super) fn switch_away(&self, me: &Block) {
        self.switch_away_to(me, || self.next_target_or_new());
    }

    /// As [`switch_away`](Self::switch_away), to what `target` brings about and tells, as
    /// [`next_target_or_new`](Self::next_target_or_new) does.
    #[inline(always)]
    pub(super) fn switch_away_to(&self, me: &Block, target: impl FnOnce() -> *const Context) {
        let errno = self.thread_state.errno;
        let number = errno.get();
        let target = target();
        // SAFETY: `me` runs now; the target was saved when it stopped, is of this thread, and its stack is
        // intact: it is alive, or it is the scheduler's frame.
        unsafe { switch(me.context.get(), target, 0) };
        errno.set(number);
    }

    #[cold]
    fn switch_out_with_fp_env(&self, me: &Block) {
        // SAFETY: the words that this thread's Rust code runs with.
        let own = unsafe { self.thread_state.fp_env.replace() };
        self.switch_away(me);
        // SAFETY: the coroutine's own affair: it asked for that.
        unsafe { own.replace() };
    }

    /// Panics in a debug build if the coroutine has changed the control words without having asked to keep its own. They
    /// are as before then, so that the others do not suffer. The same if it holds a spin lock.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn check_fp_env(&self, me: &Block) {
        current::expect_no_spin_lock();
        if cfg!(debug_assertions) && !me.has(flag::FP_ENV) {
            expect_fp_env(self.thread_state.fp_env);
        }
    }
}

/// Panics if other words are in force than these, which are put in force before that.
#[track_caller]
pub(crate) fn expect_fp_env(expected: FpEnv) {
    // SAFETY: they were in force before.
    if unsafe { expected.replace() } != expected && !thread::panicking() {
        panic!(
            "the floating-point control words (MXCSR, x87) were changed and not restored before a switch; \
             a coroutine that keeps its own is built with `fp_env(true)`"
        );
    }
}

/// As [`Scheduler::check_fp_env`], wherever the caller runs.
#[inline(always)]
#[track_caller]
pub(crate) fn check_fp_env() {
    if cfg!(debug_assertions)
        && let Place::Coroutine(scheduler, block) = current::place()
    {
        scheduler.check_fp_env(block);
    }
}

/// A body is over: what it has done to the control words ends with it.
#[inline]
pub(super) fn end_of_body(block: &Block) {
    if cfg!(debug_assertions) || block.has(flag::FP_ENV) {
        // A spin lock whose guard was forgotten is not the next one's.
        current::set_spin_locks(0);
        current::with_scheduler(|scheduler| {
            // SAFETY: the words that this thread's Rust code runs with.
            unsafe { scheduler.thread_state.fp_env.replace() }
        });
    }
}

/// The coroutine that runs here is about to have code in it that changes the control words, and suspends with them: that
/// of a stand-alone coroutine that keeps its own.
#[cold]
pub(crate) fn keep_fp_env() {
    if let Place::Coroutine(_, block) = current::place() {
        block.set(flag::FP_ENV);
    }
}
