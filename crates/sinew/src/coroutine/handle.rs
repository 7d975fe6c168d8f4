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
use std::panic::Location;
use std::ptr::NonNull;

use sinew_context::stack::StackConfig;
use sinew_context::stack::provided::Provided;

use crate::cancel::CancelToken;
use crate::coroutine::anchor::{Anchor, Core};
use crate::coroutine::body::{self, Seat};
use crate::coroutine::control::{Birth, CANCELLED, Control, Entry, State, Stop, ValueTypes};
use crate::coroutine::suspender::{Suspender, value_types};
use crate::coroutine::unanchored;
use crate::coroutine::word::{is_inline, pack, unpack};
use crate::error::Error;
use crate::join::Outcome;
use crate::scheduler::current;
use crate::scheduler::spawn::SpawnError;
use crate::stack::{Choice, Refused, Stack};

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
        let core = anchor.core();
        let seat = Seat::take(core);
        Self::make(core, seat, Options::DEFAULT, core.default_config(), None, f)
    }

    /// Options for a coroutine.
    pub fn builder<'env>(anchor: &'a Anchor<'a, 'env>) -> Builder<'a, 'env, In, Out, Ret> {
        Builder::new(Some(anchor), None)
    }

    #[track_caller]
    #[inline(always)]
    fn make<F>(
        core: &Core,
        seat: Seat<F>,
        options: Options,
        config: StackConfig,
        provided: Option<Provided<'a>>,
        f: F,
    ) -> Self
    where
        F: FnOnce(&Suspender<In, Out>, In) -> Ret + 'a,
    {
        let location = Location::caller();
        // SAFETY: the record drops it at the coroutine's end, which comes before the anchor's, which is within `'a`.
        let provided = provided.map(|provided| unsafe { provided.outliving() });
        let id = seat.id();
        let control = body::allocate(
            core,
            seat,
            f,
            Birth {
                id,
                config,
                provided,
                name: options.name,
                fp_env: options.fp_env,
                types: options.types,
                token: options.token,
                location,
            },
        );
        // SAFETY: new.
        unsafe { core.adopt(control) };
        Self {
            control,
            anchor: PhantomData,
            values: PhantomData,
        }
    }
}

impl<In: 'static, Out: 'static, Ret: 'static> Coroutine<'static, In, Out, Ret> {
    /// A coroutine that belongs to no anchor: it can be kept anywhere on its thread, in a structure or a thread-local.
    ///
    /// For callbacks, and other places that no closure can be put around. The free [`suspend`](super::suspend) finds it. A
    /// panic of a body that is ended by the drop of its handle is told by the panic hook only, for there is no anchor to
    /// raise it. While a thread has such coroutines it keeps stacks and a signal stack for them; the last one takes them along.
    ///
    /// # Panics
    ///
    /// If the kernel refuses the thread an alternate signal stack, on which overflows are reported.
    ///
    /// # Safety
    ///
    /// A coroutine that has been resumed is Done, or its handle is dropped, before its thread ends: before the first
    /// thread-local is destroyed whose value something on its stack borrows. In particular a handle is not forgotten or leaked
    /// while its coroutine is suspended, nor kept in a thread-local that is destroyed later than one that is
    /// borrowed, nor in the main thread's beyond the end of `main`.
    ///
    /// What an anchor does for its coroutines is the caller's to do here. On a stack may lie what must not go without its
    /// destructor: a [`std::thread::scope`] whose threads have been lent a thread-local, for one.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::coroutine::{Coroutine, Step, Suspender};
    ///
    /// struct Counter {
    ///     ticks: Coroutine<'static, (), u64, ()>,
    /// }
    ///
    /// // SAFETY: the counter is a local variable, and goes with this frame.
    /// let ticks = unsafe {
    ///     Coroutine::new_unanchored(|s: &Suspender<(), u64>, ()| {
    ///         for n in 1.. {
    ///             if s.suspend(n).is_err() {
    ///                 break;
    ///             }
    ///         }
    ///     })
    /// };
    /// let mut counter = Counter { ticks };
    /// assert_eq!(counter.ticks.resume(()).unwrap(), Step::Suspended(1));
    /// assert_eq!(counter.ticks.resume(()).unwrap(), Step::Suspended(2));
    /// ```
    #[track_caller]
    pub unsafe fn new_unanchored<F>(f: F) -> Self
    where
        F: FnOnce(&Suspender<In, Out>, In) -> Ret + 'static,
    {
        let options = Options {
            types: Some(value_types::<In, Out>),
            ..Options::DEFAULT
        };
        let core = unanchored::keeper();
        // SAFETY: alive until its last record is freed; there is one at the end of `make`.
        let core = unsafe { core.as_ref() };
        let seat = Seat::take(core);
        Self::make(core, seat, options, core.default_config(), None, f)
    }

    /// Options for a coroutine that belongs to no anchor.
    ///
    /// # Safety
    ///
    /// The duty of [`Coroutine::new_unanchored`], for what the builder makes.
    pub unsafe fn builder_unanchored() -> Builder<'static, 'static, In, Out, Ret> {
        Builder::new(None, Some(value_types::<In, Out>))
    }
}

/// What a coroutine is made with, apart from its stack.
struct Options {
    name: Option<Box<str>>,
    fp_env: bool,
    types: Option<fn() -> ValueTypes>,
    token: Option<CancelToken>,
}

impl Options {
    const DEFAULT: Self = Self {
        name: None,
        fp_env: false,
        types: None,
        token: None,
    };
}

impl<In, Out, Ret> Coroutine<'_, In, Out, Ret> {
    #[inline]
    pub(super) fn control(&self) -> &Control {
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
        let value = ManuallyDrop::new(value);
        let mut word = pack(&value);
        if !control.try_enter() {
            let entry;
            (entry, word) = control.enter_slow(word);
            if entry != Entry::Entered {
                // SAFETY: it is still this side's.
                let value = unsafe { unpack::<In>(word) };
                return Err(match entry {
                    Entry::Unwanted => {
                        control.discard_loudly();
                        ResumeError::Cancelled(value)
                    }
                    Entry::NoMemory => ResumeError::NoMemory(value),
                    Entry::State | Entry::Entered => ResumeError::State(value),
                });
            }
        }
        let _outside = current::SpinLocksOutside::note();
        // SAFETY: it has just been entered; the body's side takes the value.
        let arrival = unsafe { control.switch_in(word) };
        // The same as before. PERF: the next resume starts without waiting for a load.
        self.control = Control::of_pair(arrival.pair);
        let control = self.control();
        let (stop, word) = control.note_stop(arrival.word, is_inline::<Ret>());
        match stop {
            // SAFETY: a suspend passes an `Out`, and leaves it to this side.
            Stop::Suspended => Ok(Step::Suspended(unsafe { unpack::<Out>(word) })),
            Stop::Ended => {
                // SAFETY: the end passes this, and leaves it to this side.
                let value = unsafe { unpack::<Ret>(word) };
                if !is_inline::<Ret>() {
                    control.release_stack();
                }
                Ok(Step::Done(value))
            }
            Stop::Panicked => control.raise_panic(),
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
    /// Its [token](Self::cancel_token) fires, if there is one; to give a reason, or from another thread, cancel that.
    ///
    /// # Suspends
    ///
    /// Never; runs nothing of the body.
    ///
    /// # Panics
    ///
    /// With the first panic of a callback of the token.
    pub fn cancel(&self) {
        if self.state() != State::Done {
            self.control().cancel(CANCELLED);
        }
    }

    /// The coroutine's cancel token.
    ///
    /// It is counted, outlives the coroutine, and fires from any thread: that asks the coroutine to stop, as
    /// [`cancel`](Self::cancel) does, and what waits for the token, or is below it, is told. A coroutine that is dropped while it is
    /// suspended, or never runs, or is suspended when its anchor ends, is asked to stop by its token, too.
    ///
    /// A request from another thread is seen at the latest by the first suspend that returns, or look at
    /// [`Suspender::stopping`], that comes after it. It does not interrupt a body that runs, or wake what that waits for.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        self.control().token()
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
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a record is not freed before its handle, which this was, as long as that can be used.
        unsafe { Control::let_go(self.control) };
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
    /// `None`: unanchored.
    anchor: Option<&'a Anchor<'a, 'env>>,
    stack: Choice,
    provided: Option<Provided<'a>>,
    options: Options,
    values: PhantomData<Invariant<In, Out, Ret>>,
}

impl<'a, 'env, In, Out, Ret> Builder<'a, 'env, In, Out, Ret> {
    fn new(anchor: Option<&'a Anchor<'a, 'env>>, types: Option<fn() -> ValueTypes>) -> Self {
        Self {
            anchor,
            stack: Choice::default(),
            provided: None,
            options: Options {
                types,
                ..Options::DEFAULT
            },
            values: PhantomData,
        }
    }
}

impl<In: 'static, Out: 'static, Ret> Builder<'_, '_, In, Out, Ret> {
    /// Lets the free [`suspend`](super::suspend) find the coroutine, as [`Suspender::publish`] does, from the start.
    pub fn published(mut self) -> Self {
        self.options.types = Some(value_types::<In, Out>);
        self
    }
}

impl<'a, In, Out, Ret> Builder<'a, '_, In, Out, Ret>
where
    In: 'a,
    Out: 'a,
    Ret: 'a,
{
    /// A name, for reports.
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// Cancelling `token` cancels the coroutine, whose own token will be a child of it.
    pub fn cancel_parent(mut self, token: &CancelToken) -> Self {
        self.options.token = Some(token.child());
        self
    }

    /// The usable size of the stack, in bytes; at least 32 KiB and at most 1 GiB; 0 means the default of 248 KiB.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack.set_size(bytes);
        self
    }

    /// The size of the guard below the stack, in bytes, at most 1 GiB; 0 means the default of one page. Make it as large as the
    /// largest frame of foreign code that is compiled without stack probes.
    pub fn guard_size(mut self, bytes: usize) -> Self {
        self.stack.set_guard(bytes);
        self
    }

    /// Does without a guard below the stack.
    ///
    /// # Safety
    ///
    /// What runs in the coroutine, signal handlers on its stack included, never needs more than the stack's size: below lies
    /// another coroutine's memory, and an overflow overwrites it silently.
    pub unsafe fn unguarded(mut self) -> Self {
        // SAFETY: passed on to the caller.
        unsafe { self.stack.set_unguarded() };
        self
    }

    /// Whether the stack is kept warm for others at the coroutine's end, which is the default. Otherwise it comes without memory
    /// and its memory goes back to the kernel at the end: about 4 µs more for each coroutine, and nothing lingers.
    pub fn pooled(mut self, is_pooled: bool) -> Self {
        self.stack.set_pooled(is_pooled);
        self
    }

    /// Has the coroutine run on memory of your own, instead of a stack of the size and guard said otherwise. The memory is dropped
    /// when the coroutine has ended, by whoever finds it at its end; a panic of that drop is raised by the anchor.
    ///
    /// If it has a guard, an overflow is reported as any other.
    ///
    /// # Errors
    ///
    /// `Invalid` if its size or its guard's is out of range; the memory comes back.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::coroutine::{Coroutine, Step, Suspender, anchor};
    /// use sinew::stack::Stack;
    /// use std::mem::MaybeUninit;
    /// use std::ptr::NonNull;
    ///
    /// struct Borrowed<'s>(&'s mut [MaybeUninit<u8>]);
    ///
    /// // SAFETY: borrowed for as long; there is no guard, and the body below needs little.
    /// unsafe impl Stack for Borrowed<'_> {
    ///     fn base(&self) -> NonNull<u8> {
    ///         NonNull::new(self.0.as_ptr_range().end.cast_mut().cast()).unwrap()
    ///     }
    ///     fn limit(&self) -> NonNull<u8> {
    ///         NonNull::new(self.0.as_ptr().cast_mut().cast()).unwrap()
    ///     }
    ///     fn guard_bytes(&self) -> usize {
    ///         0
    ///     }
    /// }
    ///
    /// let mut memory = Box::new_uninit_slice(256 * 1024);
    /// let memory = Borrowed(&mut memory);
    /// anchor(|a| {
    ///     let mut answer = Coroutine::builder(a)
    ///         .stack(memory)
    ///         .unwrap()
    ///         .build(|_: &Suspender<i32, ()>, n| n * 2)
    ///         .unwrap();
    ///     assert_eq!(answer.resume(21).unwrap(), Step::Done(42));
    /// });
    /// ```
    pub fn stack<S: Stack + 'a>(mut self, memory: S) -> Result<Self, Refused<S>> {
        self.provided = Some(Provided::new(memory)?);
        Ok(self)
    }

    /// Whether the coroutine has floating-point control words of its own: rounding modes, precision and exception masks,
    /// in MXCSR and the x87 unit. It starts with those in force at its first resume. A resume costs 20 ns more.
    ///
    /// Without it the words are the resumer's: foreign code in the body that changes them has to change them back before it
    /// suspends or returns. A debug build panics there if they are found changed, in the body.
    pub fn fp_env(mut self, own: bool) -> Self {
        self.options.fp_env = own;
        self
    }

    /// Makes the coroutine, as [`Coroutine::new`] does.
    ///
    /// # Errors
    ///
    /// `Invalid` if a size is out of range; the closure comes back.
    ///
    /// # Panics
    ///
    /// An unanchored one as [`Coroutine::new_unanchored`].
    #[track_caller]
    pub fn build<F>(self, f: F) -> Result<Coroutine<'a, In, Out, Ret>, SpawnError<F>>
    where
        F: FnOnce(&Suspender<In, Out>, In) -> Ret + 'a,
    {
        let config = match self.stack.config() {
            Ok(config) => config,
            Err(error) => return Err(SpawnError::invalid(error, f)),
        };
        let core = match self.anchor {
            Some(anchor) => NonNull::from(anchor.core()),
            None => unanchored::keeper(),
        };
        // SAFETY: the anchor is borrowed; a keeper is alive until its last record is freed, and gets one.
        let core = unsafe { core.as_ref() };
        let seat = Seat::take(core);
        Ok(Coroutine::make(
            core,
            seat,
            self.options,
            config,
            self.provided,
            f,
        ))
    }
}

impl<In, Out, Ret> fmt::Debug for Builder<'_, '_, In, Out, Ret> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.options.name)
            .field("stack", &self.stack)
            .field("provided", &self.provided)
            .field("fp_env", &self.options.fp_env)
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
