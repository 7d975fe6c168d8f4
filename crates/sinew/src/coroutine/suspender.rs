//! The body's side: how it suspends, and what it can ask.
//!
//! Owns: nothing; a suspender names the record. It lies on the coroutine's stack, and is borrowed for as long as the body runs.
//!
//! Invariants
//! - I1. The types that a record has published outlive everything (only then two types with one `TypeId` are the same,
//!   lifetimes included) and are its own, or those that subtyping allows for its suspender.
#![expect(unsafe_code, reason = "switches stacks")]

use std::any::TypeId;
use std::cell::Cell;
use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ptr::{self, NonNull};

use sinew_context::Pair;
use sinew_context::arch::stack_pointer;
use sinew_context::stack;

use crate::cancel::CancelToken;
use crate::coroutine::control::{self, Asked, Control, ValueTypes};
use crate::coroutine::word::{Word, pack, unpack};
use crate::error::WaitError;

/// A coroutine's way back to whoever resumed it. Its body is given one, and cannot keep it.
///
/// `In` is what each resume hands in, `Out` what each suspend hands out. It belongs to its thread: it is neither `Send` nor `Sync`.
///
/// ```compile_fail,E0277
/// use sinew::coroutine::{Coroutine, Suspender, anchor};
///
/// anchor(|a| {
///     let _ = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
///         std::thread::scope(|scope| {
///             scope.spawn(|| s.suspend(()).is_ok());
///         });
///     });
/// });
/// ```
pub struct Suspender<In, Out> {
    /// Its record. PERF: written again at each resume, though it is always the same: the compiler then has it in the register that it
    /// came in, instead of in memory or in one that went through memory.
    control: Cell<NonNull<Control>>,
    /// It takes an `Out` and gives an `In`. Neither `Send` nor `Sync`, as the record.
    values: PhantomData<fn(Out) -> In>,
}

impl<In, Out> Suspender<In, Out> {
    /// The suspender of this record's coroutine.
    ///
    /// # Safety
    ///
    /// The record's coroutine is resumed with `In` and suspends with `Out`. The caller runs on its stack, and keeps the
    /// suspender there.
    #[inline(always)]
    pub(super) unsafe fn new(control: &Control) -> Self {
        Self {
            control: Cell::new(NonNull::from(control)),
            values: PhantomData,
        }
    }

    #[inline(always)]
    pub(super) fn control(&self) -> &Control {
        // SAFETY: the suspender is on the coroutine's stack, and the record outlives its use of that.
        unsafe { self.control.get().as_ref() }
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
    ///   this coroutine panics or is being unwound, in a panic hook, in a cleanup or a callback of an event, and inside a limit,
    ///   a scope or a [`block_on`](crate::block_on) that this coroutine has opened.
    /// - [`SuspendError::Ending`] if the coroutine is being ended and cannot be unwound from here: a frame lies in between that lets
    ///   no panic through, as that of an `extern "C"` callback, or the program is built with `panic = "abort"`. The body has to
    ///   return. No value has come in. Later calls fail with `State`, or unwind where that has become possible.
    #[inline]
    pub fn suspend(&self, out: Out) -> Result<In, SuspendError<In, Out>> {
        // PERF: a word goes through every call beside the plain path, so that it can stay in its register on that.
        let out = ManuallyDrop::new(out);
        let mut word = pack(&out);
        let control = self.control();
        if !control.may_suspend() {
            let stays;
            (stays, word) = refuse::<Out>(control, word);
            if stays {
                // SAFETY: it is still this side's.
                return Err(SuspendError::State(unsafe { unpack(word) }));
            }
        }
        control.check_fp_env();
        let number = control.errno().get();
        // SAFETY: this is the coroutine's own stack, so it runs, and is the innermost one; the `switch_in` that runs it entered the
        // pair. The other side takes `out`.
        let arrival = unsafe { Pair::leave(control.pair(), word) };
        self.control.set(Control::of_pair(arrival.pair));
        let control = self.control();
        word = arrival.word;
        control.errno().set(number);
        if control.may_be_cancelled() {
            let asked;
            (asked, word) = control.look_for_cancel(word);
            match asked {
                Asked::Nothing => {}
                // SAFETY: not ended, so resumed with an `In`, for this side to take.
                Asked::ToStop => return Err(SuspendError::Cancelled(unsafe { unpack(word) })),
                Asked::ToEnd => return Err(SuspendError::Ending),
            }
        }
        // SAFETY: as above.
        Ok(unsafe { unpack(word) })
    }

    /// Whether this coroutine was asked to stop.
    #[must_use]
    #[inline]
    pub fn stopping(&self) -> bool {
        self.control().is_cancelled()
    }

    /// The coroutine's cancel token, as [`Coroutine::cancel_token`](super::Coroutine::cancel_token) gives it.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        self.control().token()
    }

    /// Records that the body stops because it was asked to: the outcome will be [`crate::Outcome::Cancelled`]. The value
    /// that the body returns is handed over nevertheless.
    ///
    /// # Errors
    ///
    /// `State` if nothing was requested, and inside a cleanup of this coroutine.
    pub fn confirm_cancel(&self) -> Result<(), WaitError> {
        if self.control().confirm() {
            Ok(())
        } else {
            Err(WaitError::State)
        }
    }
}

impl<In: 'static, Out: 'static> Suspender<In, Out> {
    /// Lets the free [`suspend`] find this coroutine, from now on. Its types have to outlive everything for that.
    pub fn publish(&self) {
        self.control().set_types(value_types::<In, Out>);
    }
}

/// As [`Control::refuse`], with the word for the `Out` that was to go out: it passes through, or if this unwinds is dropped.
#[cold]
#[inline(never)]
fn refuse<Out>(control: &Control, word: Word) -> (bool, Word) {
    struct Kept<Out>(Word, PhantomData<Out>);
    impl<Out> Drop for Kept<Out> {
        fn drop(&mut self) {
            // SAFETY: nobody else takes it.
            drop(unsafe { unpack::<Out>(self.0) });
        }
    }
    let kept = Kept::<Out>(word, PhantomData);
    let stays = control.refuse();
    mem::forget(kept);
    (stays, word)
}

/// What identifies the types of a coroutine's values.
pub(super) fn value_types<In: 'static, Out: 'static>() -> ValueTypes {
    (TypeId::of::<In>(), TypeId::of::<Out>())
}

/// As [`Suspender::suspend`] of the innermost running coroutine: for deep chains of calls, and callbacks, that no suspender is
/// handed through.
///
/// The coroutine has to be one that has [published](Suspender::publish) its types: by that method, by
/// [`Builder::published`](super::Builder::published), or because it is [unanchored](super::Coroutine::new_unanchored). Then
/// `In` and `Out` have to be exactly those types, which is looked at when this is called.
///
/// # Suspends
///
/// Always, unless it fails with `State`.
///
/// # Cancellation
///
/// As [`Suspender::suspend`].
///
/// # Errors
///
/// As [`Suspender::suspend`]; also [`SuspendError::State`], with `out` in it, outside of a stand-alone coroutine, in one of a
/// scheduler that was started in it, and if the innermost coroutine has not published its types or has others.
///
/// # Examples
///
/// ```
/// use sinew::coroutine::{self, Coroutine, Step, Suspender, anchor};
///
/// fn report(done: u32) -> bool {
///     // `true`: go on.
///     coroutine::suspend::<bool, u32>(done).unwrap_or(false)
/// }
///
/// anchor(|a| {
///     let mut work = Coroutine::new(a, |s: &Suspender<bool, u32>, _go| {
///         s.publish();
///         (1..100).take_while(|n| report(*n)).count()
///     });
///     assert_eq!(work.resume(true).unwrap(), Step::Suspended(1));
///     assert_eq!(work.resume(true).unwrap(), Step::Suspended(2));
///     assert_eq!(work.resume(false).unwrap(), Step::Done(1));
/// });
/// assert!(!report(7), "nobody to report to");
/// ```
pub fn suspend<In: 'static, Out: 'static>(out: Out) -> Result<In, SuspendError<In, Out>> {
    let owner = stack::lookup(stack_pointer()).and_then(stack::owner_of);
    let control = owner
        .filter(|(_, describe)| ptr::fn_addr_eq(*describe, control::DESCRIBE))
        // SAFETY: a record outlives its hold on the stack, which the caller runs on.
        .map(|(owner, _)| unsafe { &*owner.cast::<Control>() });
    match control {
        Some(control) if control.types() == Some(value_types::<In, Out>()) => {
            // SAFETY: I1: these are its types; the caller runs on its stack, and the reference stays here.
            unsafe { Suspender::new(control) }.suspend(out)
        }
        _ => Err(SuspendError::State(out)),
    }
}

impl<In, Out> fmt::Debug for Suspender<In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Suspender").field(self.control()).finish()
    }
}

/// Why a suspend gave no value, or not simply one.
#[non_exhaustive]
pub enum SuspendError<In, Out> {
    /// The coroutine was asked to stop. This is the value that came in.
    Cancelled(In),
    /// Not possible here or now; this is the value that was to go out.
    State(Out),
    /// The coroutine is being ended, and cannot be unwound from here: it has to return.
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
