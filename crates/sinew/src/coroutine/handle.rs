//! The handle of a coroutine: the side that resumes.
//!
//! Owns: the right to resume, cancel and end one coroutine. Dropping it ends the coroutine.
//!
//! Invariants
//! - I1. There is one handle to a record, so a record is Running only while its handle is borrowed by `resume`, or while its
//!   anchor ends it.
#![expect(unsafe_code, reason = "enters another stack and reads what it left")]

use std::error::Error as StdError;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{Location, resume_unwind};
use std::ptr::NonNull;

use sinew_context::stack::StackConfig;

use crate::coroutine::anchor::Anchor;
use crate::coroutine::body::{self, End};
use crate::coroutine::control::{Birth, Control, Entry, State};
use crate::coroutine::suspender::Suspender;
use crate::coroutine::word::{pack, unpack};
use crate::error::Error;
use crate::join::Outcome;
use crate::scheduler::current;
use crate::scheduler::spawn::SpawnError;

/// A closure on a stack of its own, which suspends with an `Out`, is resumed with an `In` and ends with a `Ret`.
///
/// It belongs to an anchor and to its thread: it is neither `Send` nor `Sync`.
///
/// Dropping one that is suspended asks it to cancel and unwinds its stack, so that every destructor on it runs once; see
/// [`anchor`](super::anchor) for bodies that resist. Dropping one that has not run drops its closure. A panic
/// meanwhile is kept, and raised by the anchor at its end.
pub struct Coroutine<'a, In, Out, Ret> {
    control: NonNull<Control>,
    /// Invariant in everything: a value of a shorter life must not get onto the stack.
    anchor: PhantomData<&'a mut &'a ()>,
    values: PhantomData<Invariant<In, Out, Ret>>,
}

/// Invariant in all three.
type Invariant<In, Out, Ret> = fn(In, Out, Ret) -> (In, Out, Ret);

/// How a resume came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<Out, Ret> {
    /// The body suspended with this value.
    Suspended(Out),
    /// The body returned this value.
    Done(Ret),
}

impl<Out, Ret> Step<Out, Ret> {
    /// What the body suspended with.
    pub fn suspended(self) -> Option<Out> {
        match self {
            Self::Suspended(value) => Some(value),
            Self::Done(_) => None,
        }
    }

    /// What the body returned.
    pub fn done(self) -> Option<Ret> {
        match self {
            Self::Suspended(_) => None,
            Self::Done(value) => Some(value),
        }
    }
}

impl<'a, In, Out, Ret> Coroutine<'a, In, Out, Ret>
where
    In: 'a,
    Out: 'a,
    Ret: 'a,
{
    /// A coroutine that will run `f` with its suspender and the first value that it is resumed with.
    ///
    /// Runs nothing and takes no stack: that happens at the first resume. One allocation.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::coroutine::{Coroutine, Step, Suspender, anchor};
    ///
    /// anchor(|a| {
    ///     let mut echo = Coroutine::new(a, |s: &Suspender<&str, usize>, first: &str| {
    ///         let second = s.suspend(first.len()).unwrap();
    ///         second.to_uppercase()
    ///     });
    ///     assert_eq!(echo.resume("four").unwrap(), Step::Suspended(4));
    ///     assert_eq!(echo.resume("five").unwrap(), Step::Done("FIVE".to_owned()));
    /// });
    /// ```
    #[track_caller]
    #[inline]
    pub fn new<'env, F>(anchor: &'a Anchor<'a, 'env>, f: F) -> Self
    where
        F: FnOnce(&Suspender<In, Out>, In) -> Ret + 'a,
    {
        Self::make(anchor, None, false, anchor.core().default_config(), f)
    }

    /// Options for a coroutine.
    pub fn builder<'env>(anchor: &'a Anchor<'a, 'env>) -> Builder<'a, 'env, In, Out, Ret> {
        Builder {
            anchor,
            name: None,
            stack_bytes: 0,
            guard_bytes: 0,
            fp_env: false,
            values: PhantomData,
        }
    }

    #[track_caller]
    #[inline]
    fn make<F>(
        anchor: &'a Anchor<'a, '_>,
        name: Option<Box<str>>,
        fp_env: bool,
        config: StackConfig,
        f: F,
    ) -> Self
    where
        F: FnOnce(&Suspender<In, Out>, In) -> Ret + 'a,
    {
        let location = Location::caller();
        let core = anchor.core();
        let control = body::allocate(core, f, |vtable| Birth {
            vtable,
            config,
            name,
            fp_env,
            location,
        });
        // SAFETY: new.
        unsafe { core.adopt(control) };
        Self {
            control,
            anchor: PhantomData,
            values: PhantomData,
        }
    }
}

impl<In, Out, Ret> Coroutine<'_, In, Out, Ret> {
    #[inline]
    fn control(&self) -> &Control {
        // SAFETY: a record is not freed before its handle, as long as that can be used.
        unsafe { self.control.as_ref() }
    }

    /// Runs the body until it suspends or ends, handing it `value`.
    ///
    /// The first resume takes a stack, and hands `value` to the closure as its argument.
    ///
    /// # Suspends
    ///
    /// Never by itself: it returns when the body suspends. In a coroutine of a scheduler, what the body waits for is
    /// waited for by that coroutine.
    ///
    /// # Cancellation
    ///
    /// One that was cancelled before its first resume never runs: its closure is dropped here.
    ///
    /// # Errors
    ///
    /// The value comes back in each, and nothing of the body has run.
    ///
    /// - [`ResumeError::State`]: it is Done, or Running.
    /// - [`ResumeError::Cancelled`]: as above; it is Done from now on.
    /// - [`ResumeError::NoMemory`]: no stack could be had; it is still Ready.
    ///
    /// # Panics
    ///
    /// With the panic of the body. The coroutine is Done then, with the outcome Error.
    #[inline(always)]
    pub fn resume(&mut self, value: In) -> Result<Step<Out, Ret>, ResumeError<In>> {
        let control = self.control();
        if !control.try_enter() {
            match control.enter_slow() {
                Entry::Entered => {}
                Entry::State => return Err(ResumeError::State(value)),
                Entry::NoMemory => return Err(ResumeError::NoMemory(value)),
                Entry::Unwanted => {
                    control.discard_loudly();
                    return Err(ResumeError::Cancelled(value));
                }
            }
        }
        let _outside = current::SpinLocksOutside::note();
        let value = ManuallyDrop::new(value);
        // SAFETY: it has just been entered; the body's side takes the value.
        let word = unsafe { control.switch_in(pack(&value)) };
        if control.note_suspended() {
            // SAFETY: a suspend passes an `Out`, and leaves it to this side.
            return Ok(Step::Suspended(unsafe { unpack::<Out>(word) }));
        }
        // SAFETY: the end passes this, and leaves it to this side.
        let end = unsafe { unpack::<End<Ret>>(word) };
        control.release_stack();
        match end {
            Ok(value) => Ok(Step::Done(value)),
            Err(payload) => resume_unwind(payload),
        }
    }

    /// Where the coroutine is in its life.
    #[must_use]
    pub fn state(&self) -> State {
        self.control().state()
    }

    /// How it ended; `None` before.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.control().outcome()
    }

    /// The error that the body left in its [context](super::error) when it ended, if it did.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        self.control().left_error()
    }

    /// Asks the coroutine to stop: from now on its suspends fail with `Cancelled` when they are resumed. One that has not
    /// run will not: its next resume, or its drop, drops the closure.
    ///
    /// # Suspends
    ///
    /// Never; runs nothing of the body.
    pub fn cancel(&self) {
        if self.state() != State::Done {
            self.control().cancel();
        }
    }

    /// The id: unique in the process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.control().id()
    }

    /// The name that it was given.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.control().name()
    }

    /// Lets go of a coroutine that has not run, whose closure is dropped, or that is Done.
    ///
    /// # Errors
    ///
    /// An active one comes back, intact and resumable.
    pub fn try_destroy(self) -> Result<(), Self> {
        match self.state() {
            State::Ready | State::Done => Ok(()),
            State::Running | State::Suspended => Err(self),
        }
    }
}

impl<In, Out, Ret> Drop for Coroutine<'_, In, Out, Ret> {
    fn drop(&mut self) {
        let control = self.control();
        if control.state() == State::Running {
            // Its anchor is ending it, further out on this thread, and frees the record afterwards.
            return;
        }
        if let Some(payload) = control.end() {
            control.core().keep_panic(payload);
        }
        // SAFETY: Done; this was the handle, and whoever ended it does not use the record any more.
        unsafe { Control::free(self.control) };
    }
}

impl<In, Out, Ret> fmt::Debug for Coroutine<'_, In, Out, Ret> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.control().fmt(f)
    }
}

/// Options for a [`Coroutine`]; made by [`Coroutine::builder`].
#[must_use = "nothing is made before `build`"]
pub struct Builder<'a, 'env, In, Out, Ret> {
    anchor: &'a Anchor<'a, 'env>,
    name: Option<Box<str>>,
    stack_bytes: usize,
    guard_bytes: usize,
    fp_env: bool,
    values: PhantomData<Invariant<In, Out, Ret>>,
}

impl<'a, In, Out, Ret> Builder<'a, '_, In, Out, Ret>
where
    In: 'a,
    Out: 'a,
    Ret: 'a,
{
    /// A name, for reports.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The usable size of the stack, in bytes; 0 means the default of 248 KiB.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes;
        self
    }

    /// The size of the guard below the stack, in bytes; 0 means the default of one page. Make it as large as the
    /// largest frame of foreign code that is compiled without stack probes.
    pub fn guard_size(mut self, bytes: usize) -> Self {
        self.guard_bytes = bytes;
        self
    }

    /// Whether the coroutine has floating-point control words of its own: rounding modes, precision and exception masks,
    /// in MXCSR and the x87 unit. It starts with those in force at its first resume. A resume costs 20 ns more.
    ///
    /// Without it the words are the resumer's: foreign code in the body that changes them has to change them back before it
    /// suspends or returns. A debug build panics there if they are found changed, in the body.
    pub fn fp_env(mut self, own: bool) -> Self {
        self.fp_env = own;
        self
    }

    /// Makes the coroutine, as [`Coroutine::new`] does.
    ///
    /// # Errors
    ///
    /// `Invalid` if a size is out of range; the closure comes back.
    #[track_caller]
    pub fn build<F>(self, f: F) -> Result<Coroutine<'a, In, Out, Ret>, SpawnError<F>>
    where
        F: FnOnce(&Suspender<In, Out>, In) -> Ret + 'a,
    {
        match StackConfig::new(self.stack_bytes, self.guard_bytes) {
            Ok(config) => {
                let Self {
                    anchor,
                    name,
                    fp_env,
                    ..
                } = self;
                Ok(Coroutine::make(anchor, name, fp_env, config, f))
            }
            Err(error) => Err(SpawnError::invalid(error, f)),
        }
    }
}

impl<In, Out, Ret> fmt::Debug for Builder<'_, '_, In, Out, Ret> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("stack_bytes", &self.stack_bytes)
            .field("guard_bytes", &self.guard_bytes)
            .field("fp_env", &self.fp_env)
            .finish_non_exhaustive()
    }
}

/// Why a resume ran nothing; the value is in it.
#[non_exhaustive]
pub enum ResumeError<In> {
    /// The coroutine is Done, or Running.
    State(In),
    /// The coroutine was cancelled before it had run, and is Done now.
    Cancelled(In),
    /// No stack could be had; the coroutine is Ready as before.
    NoMemory(In),
}

impl<In> ResumeError<In> {
    /// The value that was to be handed in.
    pub fn into_value(self) -> In {
        match self {
            Self::State(value) | Self::Cancelled(value) | Self::NoMemory(value) => value,
        }
    }
}

impl<In> fmt::Debug for ResumeError<In> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::State(_) => "State(..)",
            Self::Cancelled(_) => "Cancelled(..)",
            Self::NoMemory(_) => "NoMemory(..)",
        })
    }
}

impl<In> fmt::Display for ResumeError<In> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::State(_) => "the coroutine has ended, or runs already",
            Self::Cancelled(_) => "the coroutine was cancelled before it had run",
            Self::NoMemory(_) => "no stack could be had for the coroutine",
        })
    }
}

impl<In> StdError for ResumeError<In> {}
