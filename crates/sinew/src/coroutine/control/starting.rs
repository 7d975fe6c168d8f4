//! The start of a coroutine: a stack is bound to its record, and what the first switch finds is laid down there.
//!
//! Owns: nothing; the record is its parent's, whose invariants count here. Thread: the anchor's.
#![expect(unsafe_code, reason = "writes to a stack that nobody runs on")]

use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};

use sinew_context::FpEnv;
use sinew_context::frame::prepare;
use sinew_context::stack::StackError;

use crate::coroutine::control::{Control, DESCRIBE, Entry, Phase, Request, odd};
use crate::coroutine::estate::Estate;
use crate::coroutine::word::Word;

impl Control {
    /// As `try_enter`, for every case. The word passes through.
    // PERF: cold, though each coroutine comes here once: otherwise the loop that resumes one keeps in registers what only a start needs.
    #[cold]
    #[inline(never)]
    pub(in crate::coroutine) fn enter_slow(&self, word: Word) -> (Entry, Word) {
        let is_plain = self.phase.get() == Phase::Ready
            && self.request.get() == Request::No
            && !self.has(odd::PROVIDED | odd::KEEPS_FP_ENV)
            && !cfg!(debug_assertions)
            && !std::thread::panicking();
        if !is_plain {
            return self.enter_oddly(word);
        }
        if self.start_on_own().is_err() {
            return (Entry::NoMemory, word);
        }
        self.phase.set(Phase::Running);
        (Entry::Entered, word)
    }

    #[cold]
    #[inline(never)]
    fn enter_oddly(&self, word: Word) -> (Entry, Word) {
        let phase = self.phase.get();
        if phase == Phase::Ready {
            if self.is_cancelled() {
                return (Entry::Unwanted, word);
            }
            if self.start().is_err() {
                return (Entry::NoMemory, word);
            }
        } else if !matches!(phase, Phase::Suspended | Phase::SuspendedApart) {
            return (Entry::State, word);
        }
        self.set_running();
        (Entry::Entered, word)
    }

    /// What its stack's header names, with `DESCRIBE`.
    #[inline(always)]
    fn owner(&self) -> *const () {
        ptr::from_ref(self).cast()
    }

    /// Binds the stack that was provided, or one of the anchor's, to a Ready coroutine: it can be entered afterwards. If there is no stack
    /// nothing has changed.
    fn start(&self) -> Result<(), StackError> {
        debug_assert_eq!(self.phase.get(), Phase::Ready);
        if self.is_apart() {
            self.fp_env.set(FpEnv::current());
        }
        if !self.has(odd::PROVIDED) {
            return self.start_on_own();
        }
        let (owner, provided) = (self.owner(), self.provided.as_ptr());
        // SAFETY: nobody else has a reference to it.
        if let Some(stack) = unsafe { &mut *provided } {
            // SAFETY: the record outlives its hold on the stack; `describe` reads what never changes.
            unsafe { stack.set_owner(owner, DESCRIBE) };
            let (base, limit) = (stack.base(), stack.limit());
            // SAFETY: the coroutine's alone until it has ended.
            unsafe { self.lay(base, limit) };
        }
        Ok(())
    }

    /// The same on one of the anchor's.
    #[inline(always)]
    fn start_on_own(&self) -> Result<(), StackError> {
        let stack = self.core().take_stack(&self.config)?;
        // SAFETY: the record outlives its hold on the stack; `describe` reads what never changes.
        unsafe { stack.set_owner(self.owner(), DESCRIBE) };
        let (base, limit) = (stack.base(), stack.limit());
        // SAFETY: nobody else has a reference to it. It held none: there is nothing to be dropped.
        unsafe { self.stack.as_ptr().write(Some(stack)) };
        // SAFETY: the coroutine's alone until it has ended.
        unsafe { self.lay(base, limit) };
        Ok(())
    }

    /// Lays the estate and the first frame.
    ///
    /// # Safety
    ///
    /// Between the addresses is a stack that the coroutine holds, and nothing lies there.
    #[inline(always)]
    unsafe fn lay(&self, base: NonNull<u8>, limit: NonNull<u8>) {
        let record = NonNull::from(self);
        // SAFETY: passed on to the caller; the record outlives its hold on the stack.
        let base = unsafe { Estate::lay_for(base, Some(record)) };
        self.limit.set(limit.addr().get());
        self.base.set(base.addr());
        self.reach.set(base.addr());
        let entry = self.vtable.entry;
        let argument = self.owner().expose_provenance();
        let pair = self.pair();
        // SAFETY: a field's address.
        let outer = unsafe { &raw const (*pair).outer };
        // SAFETY: passed on to the caller; the record outlives that.
        let context = unsafe { prepare(base, entry, argument, UnsafeCell::raw_get(outer)) };
        // SAFETY: a field's address.
        let inner = unsafe { &raw const (*pair).inner };
        // SAFETY: the body does not run.
        unsafe { UnsafeCell::raw_get(inner).write(context) };
    }
}
