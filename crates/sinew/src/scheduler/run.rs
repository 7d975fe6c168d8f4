//! `run`: a scheduler for the length of one closure, which is its first coroutine.
//!
//! Owns: what becomes of that coroutine's value. Thread: the scheduler's.
#![expect(unsafe_code, reason = "spawns a coroutine that borrows")]

use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::{fmt, io};

use crate::inspect::Deadlock;
use crate::scheduler::body::{drop_payload, drop_quietly};
use crate::scheduler::object::SchedulerBuilder;
use crate::scheduler::{Scheduler, Until, current, exit, forced, spawn};
use crate::stack::StackError;

/// Why [`try_run`] has no value.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// This thread runs a scheduler already, or the caller is inside of a stand-alone coroutine: if that suspended, the frames of a
    /// scheduler would stop in the middle of it, so they have to stand on the thread's own stack.
    State,
    /// The kernel refused what a scheduler needs: a descriptor or memory.
    Io(io::Error),
    /// A size that no stack can have was asked for ([`SchedulerBuilder::stack_size`](crate::SchedulerBuilder::stack_size)).
    Invalid(StackError),
    /// [`crate::exit_all`] was called with this code, and the closure has not returned.
    Exited(i32),
    /// The closure was unwound, or never started, because of a cancel.
    Cancelled,
    /// No coroutine of the thread could ever have gone on. All of them were cancelled; whatever the closure came to was
    /// dropped.
    Deadlock(Box<Deadlock>),
}

impl RunError {
    /// Panics with it, where it has just come about.
    #[track_caller]
    pub(super) fn raise(&self) -> ! {
        if matches!(self, Self::State) && current::scheduler().is_null() {
            panic!(
                "a scheduler cannot start inside of a stand-alone coroutine, whose suspend would stop it in the middle; start it on the \
                 thread's own stack, and the coroutine inside of it"
            );
        }
        panic!("{self}");
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State => {
                f.write_str("a scheduler cannot start here: this thread runs one already (spawn a coroutine instead), or the caller is inside of a stand-alone coroutine")
            }
            Self::Io(error) => write!(f, "the scheduler could not be set up: {error}"),
            Self::Invalid(error) => error.fmt(f),
            Self::Exited(code) => write!(f, "everything was ended by exit_all({code})"),
            Self::Cancelled => f.write_str("the first coroutine was cancelled"),
            Self::Deadlock(deadlock) => deadlock.fmt(f),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Invalid(error) => Some(error),
            Self::State | Self::Exited(_) | Self::Cancelled | Self::Deadlock(_) => None,
        }
    }
}

/// Runs `f` in the first coroutine of a scheduler on this thread, and returns its value once everything
/// that was started has ended and every accepted post has run.
///
/// # Suspends
///
/// Never: it blocks the thread, which runs the coroutines meanwhile.
///
/// # Cancellation
///
/// If `f` panics everything else that lives is cancelled, ends, and then the panic goes on. What
/// does not end by itself is unwound; what swallows even that is reported, and the process aborts.
///
/// # Panics
///
/// - With the panic of `f`, or with the first panic that nobody joined, if no hook is set
///   ([`crate::inspect::on_unhandled`]).
/// - If this thread runs a scheduler already, or inside of a stand-alone coroutine, or if the kernel refuses a descriptor, or
///   [`crate::exit_all`] ended `f` before it could return; [`try_run`] returns these.
/// - With a report, if none of the coroutines can ever go on. That is looked for when the thread has had nothing to do for 20 ms, and
///   said only if it is proven: [`Deadlock`] tells what that takes. Everything is cancelled first, as after a panic of `f`, and panics
///   that this leads to give way to the report. [`try_run`] returns it. If no cancel reaches those who are left, because
///   they wait behind a [`crate::shield`], the process aborts with the report.
///
/// # Examples
///
/// ```
/// let sum = sinew::run(|| {
///     let a = sinew::spawn_local(|| 20);
///     let b = sinew::spawn_local(|| 22);
///     a.join().unwrap() + b.join().unwrap()
/// });
/// assert_eq!(sum, 42);
/// ```
#[track_caller]
pub fn run<F: FnOnce() -> T, T>(f: F) -> T {
    Scheduler::builder().run(f)
}

/// As [`run`], with an error where that would panic for a reason of its own.
///
/// # Errors
///
/// [`RunError::State`] if this thread runs a scheduler already, or inside of a stand-alone coroutine; [`RunError::Io`] if the kernel refuses a
/// descriptor or memory. `f` has not run then. [`RunError::Exited`] and [`RunError::Cancelled`] if `f` has run without
/// coming to a value. [`RunError::Deadlock`] if nothing could ever have gone on, see [`run`].
///
/// # Panics
///
/// With the panic of `f`, or with the first panic that nobody joined.
#[track_caller]
pub fn try_run<F: FnOnce() -> T, T>(f: F) -> Result<T, RunError> {
    Scheduler::builder().try_run(f)
}

/// As [`run`], for a closure whose value is the exit code of a program: if [`crate::exit_all`] is called its code is
/// returned instead.
///
/// # Panics
///
/// As for [`run`], but for the code.
///
/// # Examples
///
/// ```
/// let code = sinew::run_code(|| {
///     sinew::go_local(|| sinew::exit_all(3).unwrap());
///     // Ends as cancelled.
///     let _ = sinew::sleep(std::time::Duration::from_secs(60));
///     0
/// });
/// assert_eq!(code, 3);
/// ```
#[track_caller]
pub fn run_code<F: FnOnce() -> i32>(f: F) -> i32 {
    let place = Location::caller();
    let ended = Scheduler::builder().try_anchor(|scheduler| {
        let ended = scheduler.run_first(f, place);
        scheduler.exit_code().map_or(ended, Ok)
    });
    match ended.flatten() {
        Ok(code) => code,
        Err(error) => error.raise(),
    }
}

impl SchedulerBuilder {
    /// As [`run`], with a scheduler that is set up like this.
    ///
    /// # Suspends
    ///
    /// Never: it blocks the thread, which runs the coroutines meanwhile.
    ///
    /// # Panics
    ///
    /// As for [`run`], and for a stack or guard size out of range.
    #[track_caller]
    pub fn run<F: FnOnce() -> T, T>(self, f: F) -> T {
        match self.try_run(f) {
            Ok(value) => value,
            Err(error) => error.raise(),
        }
    }

    /// As [`try_run`], with a scheduler that is set up like this.
    ///
    /// # Errors
    ///
    /// As for [`try_run`]; besides [`RunError::Invalid`] for a stack or guard size out of range. `f` has not run then.
    ///
    /// # Panics
    ///
    /// With the panic of `f`, or with the first panic that nobody joined.
    #[track_caller]
    pub fn try_run<F: FnOnce() -> T, T>(self, f: F) -> Result<T, RunError> {
        let place = Location::caller();
        self.try_anchor(|scheduler| scheduler.run_first(f, place))?
    }
}

impl Scheduler {
    /// Runs `f` as the first coroutine, until everything has ended; closes the queue of posts with nothing in it.
    ///
    /// `place` is where its caller was called: the coroutine is said to have been spawned there.
    fn run_first<F: FnOnce() -> T, T>(
        &self,
        f: F,
        place: &'static Location<'static>,
    ) -> Result<T, RunError> {
        // The value goes by here, not by the join: one that confirmed a cancel returns it all the same.
        let mut ended = None;
        let first = || {
            let result = catch_unwind(AssertUnwindSafe(f)).or_else(exit::land);
            if result
                .as_ref()
                .is_err_and(|payload| !forced::is_forced(&**payload))
            {
                self.cancel_everything();
            }
            ended = Some(result);
        };
        self.vigil.keep();
        // SAFETY: the loop below ends only when this coroutine, like all others, has ended, so what `f` borrows and what
        // it returns outlive it.
        let handle = unsafe { spawn::spawn_main(self, first, place) };
        loop {
            let _closed = self.run_loop(Until::EMPTY);
            if self.shared.posts.close_if_empty() {
                break;
            }
        }
        let no_value = || {
            self.exit_code()
                .map_or(RunError::Cancelled, RunError::Exited)
        };
        if let Some(deadlock) = self.vigil.take_found() {
            // What the cancels led to is nobody's concern any more.
            let panics = [self.kept_panic.take(), drop_quietly((handle.join(), ended))];
            panics.into_iter().flatten().for_each(drop_payload);
            return Err(RunError::Deadlock(deadlock));
        }
        match (handle.join(), ended) {
            (_, Some(Ok(value))) => Ok(value),
            (_, Some(Err(payload))) if forced::is_forced(&*payload) => Err(no_value()),
            (_, Some(Err(payload))) => resume_unwind(payload),
            // Nothing of it has run; the drop of `f` may have panicked.
            (Ok(()), None) => Err(no_value()),
            (Err(error), None) if error.is_cancelled() => Err(no_value()),
            (Err(error), None) => match error.into_payload() {
                Some(payload) => resume_unwind(payload),
                None => Err(RunError::Io(io::Error::other(
                    "no stack could be had for the first coroutine",
                ))),
            },
        }
    }
}
