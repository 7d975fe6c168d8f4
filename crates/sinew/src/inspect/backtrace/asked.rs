//! The backtrace of one coroutine: asked for by its id, or of a stand-alone one.
#![expect(
    unsafe_code,
    reason = "passes the duty on that a coroutine does not run"
)]

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use sinew_context::Context;

use crate::error::WaitError;
use crate::inspect::backtrace::Backtrace;
use crate::inspect::find;
use crate::inspect::listing::door_of;
use crate::inspect::survey::{Question, ask};
use crate::inspect::symbols::Resolver;
use crate::inspect::unwind::{Images, Walker};

/// Why there is no backtrace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BacktraceError {
    /// No live coroutine has this id; or it has ended.
    NotFound,
    /// It has not run yet: it has no frames.
    NotStarted,
    /// It runs: it is the caller itself, or runs a callback that the caller is.
    Running,
    /// Its scheduler did not answer in time: a coroutine has the thread and does not stop, or nobody runs the scheduler.
    NoAnswer,
    /// A cancel was requested of the caller, who would have had to wait for another thread.
    Cancelled,
    /// The coroutine is another thread's, and the caller may not wait: it is a post or a callback.
    State,
}

impl fmt::Display for BacktraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "no live coroutine has this id",
            Self::NotStarted => "the coroutine has not started: it has no frames",
            Self::Running => "the coroutine is running: it has to stop before it can be walked",
            Self::NoAnswer => {
                "the coroutine's scheduler did not answer in time: its thread is busy, or nobody runs it"
            }
            Self::Cancelled => "cancelled while waiting for the coroutine's scheduler",
            Self::State => "the coroutine is another thread's, and nothing may wait for that here",
        })
    }
}

impl std::error::Error for BacktraceError {}

/// The calls that a suspended coroutine is in, by name and line.
///
/// Its stack is walked by its own thread, while it does not run, from where it stopped to its first frame. It is not
/// resumed for that, and no lock is taken that it could hold. Names and lines come from the debug
/// information of the program and its libraries: `debug = "line-tables-only"` is enough. The first call reads the unwind tables of all
/// loaded images, which takes milliseconds.
///
/// `patience` is how long to wait for another thread's scheduler to answer. A scheduler answers when it makes a
/// round of its loop, at the latest after 64 switches.
///
/// # Suspends
///
/// Until the coroutine's scheduler has answered. Blocks a plain thread.
///
/// # Errors
///
/// See [`BacktraceError`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// #[inline(never)]
/// fn wait_for_better_times() {
///     sinew::park().unwrap();
/// }
///
/// sinew::run(|| {
///     let optimist = sinew::spawn_local(wait_for_better_times);
///     sinew::yield_now().unwrap();
///     let backtrace = sinew::inspect::backtrace(optimist.id(), Duration::from_secs(1)).unwrap();
///     assert!(backtrace.to_string().contains("wait_for_better_times"));
///     optimist.unparker().unpark();
/// });
/// ```
pub fn backtrace(id: u64, patience: Duration) -> Result<Backtrace, BacktraceError> {
    let door = door_of(id).ok_or(BacktraceError::NotFound)?;
    let question = Question::about(Some(id));
    let (answers, waited) = ask(&question, &[(0, door)], patience);
    if let Some((_, answer)) = answers.into_iter().next() {
        let (info, trace) = answer
            .coroutines
            .into_iter()
            .next()
            .ok_or(BacktraceError::NotFound)?;
        return match trace.and_then(|place| answer.traces.get(place)) {
            Some(trace) => Ok(Resolver::new(&question.images).resolve(trace)),
            None if info.stack_bytes.is_none() => Err(BacktraceError::NotStarted),
            None => Err(BacktraceError::Running),
        };
    }
    if find(id).is_none() {
        return Err(BacktraceError::NotFound);
    }
    Err(match waited {
        Err(WaitError::Cancelled) => BacktraceError::Cancelled,
        Err(WaitError::State) => BacktraceError::State,
        _ => BacktraceError::NoAnswer,
    })
}

/// The backtrace of a stand-alone coroutine.
///
/// # Safety
///
/// As for [`Walker::walk_from`].
pub(crate) unsafe fn walk_alone(context: Context, own: Range<usize>) -> Backtrace {
    let images = Images::now();
    // SAFETY: passed on to the caller.
    let trace = unsafe { Walker::new(images.clone()).walk_from(context, own) };
    Resolver::new(&images).resolve(&trace)
}
