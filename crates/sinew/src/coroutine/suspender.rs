//! The body's side: how it suspends, and what it can ask.
//!
//! Owns: nothing; a suspender is the record seen from inside, borrowed for as long as the body runs.
#![expect(unsafe_code, reason = "switches stacks")]

use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr;

use sinew_context::switch_word;

use crate::coroutine::control::Control;
use crate::coroutine::word::{pack, unpack};
use crate::error::WaitError;

/// A coroutine's way back to whoever resumed it. Its body is given one, and cannot keep it.
///
/// `In` is what each resume hands in, `Out` what each suspend hands out.
#[repr(transparent)]
pub struct Suspender<In, Out> {
    control: Control,
    /// It takes an `Out` and gives an `In`. Neither `Send` nor `Sync`, as the record.
    values: PhantomData<fn(Out) -> In>,
}

impl<In, Out> Suspender<In, Out> {
    /// The record as a suspender.
    ///
    /// # Safety
    ///
    /// The record's coroutine is resumed with `In` and suspends with `Out`. The caller runs on its stack, and keeps the
    /// reference there.
    pub(super) unsafe fn new(control: &Control) -> &Self {
        // SAFETY: transparent over the record.
        unsafe { &*ptr::from_ref(control).cast::<Self>() }
    }

    /// Hands `out` to whoever resumed this coroutine, and returns what the next resume hands in.
    ///
    /// Works at any depth of calls, through recursion, iterator adaptors and foreign code that calls
    /// back, if the callback is `extern "C-unwind"`. No allocation, no lock. The body has its `errno` again afterwards (to
    /// the one who resumes, a resume is a call like any other, and may change it).
    ///
    /// # Suspends
    ///
    /// Always, unless it fails with `State`.
    ///
    /// # Cancellation
    ///
    /// After a cancel request each call still hands its value out, stops, and fails with `Cancelled` when it is resumed;
    /// what came in is in the error. If the coroutine is dropped, or its anchor ends, this call unwinds the stack
    /// instead of returning, by a panic with a private payload that no panic hook sees.
    ///
    /// # Errors
    ///
    /// - [`SuspendError::Cancelled`] as above.
    /// - [`SuspendError::State`], with `out` in it, if the caller does not run on this coroutine's own stack: it is in
    ///   another coroutine that this one has resumed, or in one of a scheduler; also in a destructor that runs because
    ///   this coroutine panics or is being unwound, in a panic hook, in a cleanup or a callback of an event, and inside a limit
    ///   or a scope that this coroutine has opened.
    /// - [`SuspendError::Ending`] under `panic = "abort"` only: the coroutine is being ended, and has to return.
    #[inline]
    pub fn suspend(&self, out: Out) -> Result<In, SuspendError<In, Out>> {
        if !self.control.may_suspend() && self.control.refuse() {
            return Err(SuspendError::State(out));
        }
        self.control.check_fp_env();
        let number = self.control.errno().get();
        let out = ManuallyDrop::new(out);
        let body = self.control.body.get();
        let caller = self.control.caller.get();
        // SAFETY: this is the coroutine's own stack, so it runs, and is the innermost one; the caller's context was saved
        // by the `switch_in` that runs it. The other side takes `out`.
        let word = unsafe { switch_word(body, caller, pack(&out)).word };
        self.control.errno().set(number);
        if self.control.is_cancelled() {
            if self.control.must_end() {
                return Err(SuspendError::Ending);
            }
            // SAFETY: not ended, so resumed with an `In`, for this side to take.
            return Err(SuspendError::Cancelled(unsafe { unpack(word) }));
        }
        // SAFETY: as above.
        Ok(unsafe { unpack(word) })
    }

    /// Whether this coroutine was asked to stop.
    #[must_use]
    #[inline]
    pub fn stopping(&self) -> bool {
        self.control.is_cancelled()
    }

    /// Records that the body stops because it was asked to: the outcome will be [`crate::Outcome::Cancelled`]. The value
    /// that the body returns is handed over nevertheless.
    ///
    /// # Errors
    ///
    /// `State` if nothing was requested, and inside a cleanup of this coroutine.
    pub fn confirm_cancel(&self) -> Result<(), WaitError> {
        if self.control.confirm() {
            Ok(())
        } else {
            Err(WaitError::State)
        }
    }
}

impl<In, Out> fmt::Debug for Suspender<In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Suspender").field(&self.control).finish()
    }
}

/// Why a suspend gave no value, or not simply one.
#[non_exhaustive]
pub enum SuspendError<In, Out> {
    /// The coroutine was asked to stop. This is the value that came in.
    Cancelled(In),
    /// Not possible here or now; this is the value that was to go out.
    State(Out),
    /// The coroutine is being ended and cannot be unwound, under `panic = "abort"`: it has to return.
    Ending,
}

impl<In, Out> SuspendError<In, Out> {
    /// The value that came in with a cancel.
    pub fn into_value(self) -> Option<In> {
        match self {
            Self::Cancelled(value) => Some(value),
            Self::State(_) | Self::Ending => None,
        }
    }
}

impl<In, Out> fmt::Debug for SuspendError<In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled(_) => "Cancelled(..)",
            Self::State(_) => "State(..)",
            Self::Ending => "Ending",
        })
    }
}

impl<In, Out> fmt::Display for SuspendError<In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled(_) => "the coroutine was cancelled",
            Self::State(_) => {
                "suspending is not possible here: not on the coroutine's own stack, or while it unwinds"
            }
            Self::Ending => "the coroutine is being ended and has to return",
        })
    }
}

impl<In, Out> StdError for SuspendError<In, Out> {}

impl<In, Out> From<SuspendError<In, Out>> for WaitError {
    /// Drops the value.
    fn from(error: SuspendError<In, Out>) -> Self {
        match error {
            SuspendError::Cancelled(_) | SuspendError::Ending => Self::Cancelled,
            SuspendError::State(_) => Self::State,
        }
    }
}
