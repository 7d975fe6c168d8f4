//! The end of a record: its frames are ended or its closure is dropped, then its memory goes.
//!
//! Owns: nothing; the record is its parent's, whose invariants count here. Thread: the anchor's.
#![expect(unsafe_code, reason = "switches stacks, and frees what others named")]

use std::panic::resume_unwind;
use std::ptr::NonNull;

use crate::coroutine::control::{Control, Left, Phase, State, Stop, odd};
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
                self.set(odd::ENDING);
                self.reach.set(0);
                self.set_running();
                // SAFETY: it has just been entered, and is being ended.
                let arrival = unsafe { self.switch_in(Word::uninit()) };
                // While ending nothing switches out, so the body has ended.
                let (stop, _) = self.note_stop(arrival.word, true);
                assert!(stop != Stop::Suspended, "an ended body is done");
                // Unless it was.
                self.release_stack();
                first_of(of_callback, self.take_panic())
            }
            Phase::Running
            | Phase::RunningApart
            | Phase::RunningInPanic
            | Phase::Done
            | Phase::DoneBare => None,
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

    /// The handle is dropped: ends the coroutine, and frees the record unless the coroutine's anchor is about to.
    ///
    /// # Safety
    ///
    /// The record has not been freed, and the handle is not used afterwards.
    #[inline(always)]
    pub(in crate::coroutine) unsafe fn let_go(this: NonNull<Self>) {
        // SAFETY: passed on to the caller.
        let control = unsafe { this.as_ref() };
        if control.phase.get() == Phase::DoneBare {
            // SAFETY: as above; Done and bare.
            unsafe { Self::free_bare(this) };
        } else {
            // SAFETY: passed on to the caller.
            unsafe { Self::let_go_slow(this) };
        }
    }

    /// # Safety
    ///
    /// As for `let_go`.
    #[cold]
    #[inline(never)]
    unsafe fn let_go_slow(this: NonNull<Self>) {
        // SAFETY: passed on to the caller.
        let control = unsafe { this.as_ref() };
        if control.state() == State::Running {
            // Its anchor is ending it, further out on this thread, and frees the record afterwards.
            return;
        }
        if let Some(payload) = control.end() {
            control.core().keep_panic(payload);
        }
        // SAFETY: Done; this was the handle, and whoever ended it does not use the record any more.
        unsafe { Self::free(this) };
    }

    /// Frees a record.
    ///
    /// # Safety
    ///
    /// It is Done, and nobody uses it afterwards.
    pub(in crate::coroutine) unsafe fn free(this: NonNull<Self>) {
        // SAFETY: the caller's last use.
        if unsafe { this.as_ref() }.phase.get() == Phase::DoneBare {
            // SAFETY: passed on to the caller.
            unsafe { Self::free_bare(this) };
        } else {
            // SAFETY: passed on to the caller.
            unsafe { Self::free_slow(this) };
        }
    }

    /// Frees a record that leaves no more than memory.
    ///
    /// # Safety
    ///
    /// It is Done and bare, and nobody uses it afterwards.
    #[inline]
    unsafe fn free_bare(this: NonNull<Self>) {
        // SAFETY: the caller's last use.
        let control = unsafe { this.as_ref() };
        control.unlink();
        let anchor = control.anchor;
        let whole = control.pair().cast_mut().cast::<u8>();
        // SAFETY: the address of a block (I5), which begins with the pair.
        let whole = unsafe { NonNull::new_unchecked(whole) };
        // SAFETY: a keeper outlives the record, which was in its list, until below.
        let core = unsafe { anchor.as_ref() };
        // SAFETY: it is a block (I5), and nothing in it is to be dropped: it has no stack any more, and its closure is gone.
        unsafe { core.spares().give_block(whole) };
        if core.is_keeper {
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
        if let Some(left) = control.left.take()
            && let Left::Error(error) = *left
        {
            control.drop_error(error);
        }
        // Callbacks go with the last reference to a token, and they are the user's.
        if let Some(token) = control.token.take()
            && let Some(payload) = drop_quietly(token)
        {
            control.core().keep_panic(payload);
        }
        // No code of the user's runs from here on, and a keeper stays while the record is in its list.
        control.unlink();
        let (free, place) = (control.vtable.free, control.place());
        let anchor = control.anchor;
        // SAFETY: it outlives the record; a keeper goes below.
        let core = unsafe { anchor.as_ref() };
        // SAFETY: the table is that of the record's own type.
        unsafe { free(place, core.spares()) };
        if core.is_keeper {
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
