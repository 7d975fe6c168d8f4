//! The anchor of a scheduler: `run`, the frame that none of its coroutines outlives.
//!
//! Owns: the scheduler while it runs, the first coroutine's value, and what is raised at the end.
//! Thread: the one that calls.
//!
//! Invariants
//! - I1. [`try_run`] returns, or unwinds, only when every coroutine has ended.
#![expect(
    unsafe_code,
    reason = "starts a coroutine that borrows from its anchor's frame"
)]

use std::{fmt, io, ptr};

use sinew_context::stack::overflow::{self, AltStack};

use crate::join::JoinError;
use crate::scheduler::{Scheduler, body, current, spawn};

/// Why [`try_run`] could not run.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// This thread runs a scheduler already.
    State,
    /// The kernel refused what a scheduler needs: a descriptor or memory.
    Io(io::Error),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State => {
                f.write_str("this thread runs a scheduler already; spawn a coroutine instead")
            }
            Self::Io(error) => write!(f, "the scheduler could not be set up: {error}"),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::State => None,
            Self::Io(error) => Some(error),
        }
    }
}

/// Runs `f` in the first coroutine of a scheduler on this thread, and returns its value once everything
/// that was started has ended.
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
/// - If this thread runs a scheduler already, or the kernel refuses a descriptor; [`try_run`] returns these.
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
    match try_run(f) {
        Ok(value) => value,
        Err(error) => panic!("{error}"),
    }
}

/// As [`run`], with an error where that would panic for a reason of its own.
///
/// # Errors
///
/// [`RunError::State`] if this thread runs a scheduler already; [`RunError::Io`] if the kernel refuses a
/// descriptor or memory. `f` has not run then.
///
/// # Panics
///
/// With the panic of `f`, or with the first panic that nobody joined.
#[track_caller]
pub fn try_run<F: FnOnce() -> T, T>(f: F) -> Result<T, RunError> {
    if !current::scheduler().is_null() || crate::coroutine::is_inside() {
        return Err(RunError::State);
    }
    let to_io = |error: sinew_context::stack::StackError| RunError::Io(io::Error::other(error));
    overflow::install().map_err(to_io)?;
    let _alternate_stack = AltStack::ensure().map_err(to_io)?;
    let scheduler = Scheduler::new().map_err(RunError::Io)?;
    let anchor = Anchor::set(&scheduler);
    // The value goes by here, not by the join: one that confirmed a cancel returns it all the same.
    let mut ended = None;
    let main = || {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        if result.is_err() {
            scheduler.cancel_everything();
        }
        ended = Some(result);
    };
    // SAFETY: `run` below returns only when this coroutine, like all others, has ended, so what `f` borrows and what
    // it returns outlive it.
    let handle = unsafe { spawn::spawn_main(&scheduler, main) };
    scheduler.run();
    let result = handle.join();
    drop(anchor);
    let kept = scheduler.kept_panic.take();
    drop(scheduler);
    let panicked = match (ended, result) {
        (Some(Ok(value)), _) => match kept {
            None => return Ok(value),
            Some(payload) => {
                drop(value);
                Some(payload)
            }
        },
        (Some(Err(payload)), _) => {
            if let Some(kept) = kept {
                // A panic of this drop must not meet the one below.
                body::drop_payload(kept);
            }
            Some(payload)
        }
        // Nothing of it has run; the drop of `f` may have panicked.
        (None, result) => result.err().and_then(JoinError::into_payload),
    };
    match panicked {
        Some(payload) => std::panic::resume_unwind(payload),
        None => Err(RunError::Io(io::Error::other(
            "no stack could be had for the first coroutine",
        ))),
    }
}

/// The thread's pointer to the scheduler, set for the length of a `run`.
struct Anchor;

impl Anchor {
    fn set(scheduler: &Scheduler) -> Self {
        current::set_scheduler(scheduler);
        Self
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        current::set_scheduler(ptr::null());
    }
}
