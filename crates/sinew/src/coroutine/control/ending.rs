//! The end of a record: its frames are ended or its closure is dropped, then its memory goes.
//!
//! Owns: nothing; the record is its parent's, whose invariants count here. Thread: the anchor's.
#![expect(unsafe_code, reason = "switches stacks, and frees what others named")]

use std::panic::resume_unwind;
use std::ptr::NonNull;

use crate::coroutine::control::{Control, Left, Phase};
use crate::coroutine::unanchored;
use crate::coroutine::word::Word;
use crate::error::Error;
use crate::join::Outcome;
use crate::scheduler::body::{Payload, drop_payload, drop_quietly};

impl Control {
    /// Ends the coroutine, whatever its state; afterwards it is Done, unless it runs: then nothing has happened.
    /// Hands out what it panicked with meanwhile.
    ///
    /// The record may be freed by others as soon as this has returned.
    pub(in crate::coroutine) fn end(&self) -> Option<Payload> {
        match self.phase.get() {
            Phase::Ready => self.discard(),
            Phase::Suspended | Phase::SuspendedApart => {
                let of_callback = self.cancel_quietly();
                self.ending.set(true);
                self.reach.set(0);
                self.set_running();
                // SAFETY: it has just been entered, and is being ended.
                let arrival = unsafe { self.switch_in(Word::uninit()) };
                // While ending nothing switches out, so the body has ended.
                let (has_suspended, _) = self.note_stop(arrival.word);
                assert!(!has_suspended, "an ended body is done");
                self.release_stack();
                let of_body = match self.left.take() {
                    Left::Panic(payload) => Some(payload),
                    other => {
                        self.left.set(other);
                        None
                    }
                };
                first_of(of_callback, of_body)
            }
            Phase::Running | Phase::RunningApart | Phase::RunningInPanic | Phase::Done => None,
        }
    }

    /// Ends a Ready coroutine that somebody wants to resume; raises the panic of its closure's drop.
    #[cold]
    #[inline(never)]
    pub(in crate::coroutine) fn discard_loudly(&self) {
        if let Some(payload) = self.discard() {
            resume_unwind(payload);
        }
    }

    /// Ends a Ready coroutine: drops its closure unrun.
    pub(in crate::coroutine) fn discard(&self) -> Option<Payload> {
        debug_assert_eq!(self.phase.get(), Phase::Ready);
        let of_callback = self.cancel_quietly();
        // The closure may hold this very handle: I3.
        self.phase.set(Phase::Running);
        // SAFETY: Ready: the closure is in the record, and the state above keeps everyone else from it.
        let payload = unsafe { (self.vtable.drop_closure)(self) };
        let outcome = match payload {
            None => Outcome::Cancelled,
            Some(_) => Outcome::Error,
        };
        self.set_done(outcome);
        // One that was provided goes now.
        self.release_stack();
        first_of(of_callback, payload)
    }

    /// Drops the error that was left; what panics meanwhile is the anchor's to tell.
    #[cold]
    fn drop_error(&self, error: Error) {
        if let Some(payload) = drop_quietly(error) {
            self.core().keep_panic(payload);
        }
    }

    /// Whether it is Done and leaves no more than memory.
    #[inline(always)]
    pub(in crate::coroutine) fn is_done_and_bare(&self) -> bool {
        self.phase.get() == Phase::Done && self.is_bare.get()
    }

    /// Frees a record.
    ///
    /// # Safety
    ///
    /// It is Done, and nobody uses it afterwards.
    #[inline]
    pub(in crate::coroutine) unsafe fn free(this: NonNull<Self>) {
        // SAFETY: the caller's last use.
        let control = unsafe { this.as_ref() };
        if !control.is_done_and_bare() {
            // SAFETY: passed on to the caller.
            return unsafe { Self::free_slow(this) };
        }
        control.unlink();
        let anchor = control.anchor;
        let whole = control.whole.get().cast::<u8>();
        // SAFETY: a record's address.
        let whole = unsafe { NonNull::new_unchecked(whole) };
        // SAFETY: it outlives the record by its own count, which goes below.
        let core = unsafe { anchor.as_ref() };
        // SAFETY: it is a block, and nothing in it is to be dropped: it has no stack any more, and its closure is gone.
        unsafe { core.spares().give_block(whole) };
        if core.unanchored.is_some() {
            // SAFETY: the record was its.
            unsafe { unanchored::note_freed(anchor) };
        }
    }

    /// The same for what leaves more than memory.
    ///
    /// # Safety
    ///
    /// As for `free`.
    #[cold]
    #[inline(never)]
    unsafe fn free_slow(this: NonNull<Self>) {
        // SAFETY: the caller's last use.
        let control = unsafe { this.as_ref() };
        debug_assert_eq!(control.phase.get(), Phase::Done);
        control.unlink();
        if let Left::Error(error) = control.left.take() {
            control.drop_error(error);
        }
        let (free, whole) = (control.vtable.free, control.whole.get());
        let anchor = control.anchor;
        // Callbacks go with the last reference to a token, and they are the user's.
        let token = control.token.take();
        // SAFETY: it outlives the record by its own count, which goes below.
        let core = unsafe { anchor.as_ref() };
        // SAFETY: the table is that of the record's own type.
        unsafe { free(whole, core.spares()) };
        if token.is_some()
            && let Some(payload) = drop_quietly(token)
        {
            core.keep_panic(payload);
        }
        if core.unanchored.is_some() {
            // SAFETY: the record was its.
            unsafe { unanchored::note_freed(anchor) };
        }
    }
}

/// Of two panics the first counts.
fn first_of(first: Option<Payload>, second: Option<Payload>) -> Option<Payload> {
    match (first, second) {
        (Some(first), Some(second)) => {
            drop_payload(second);
            Some(first)
        }
        (first, second) => first.or(second),
    }
}
