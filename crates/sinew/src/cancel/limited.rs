//! Deadlines around code, and shields: `timeout`, `timeout_deadline`, `shield`.
//!
//! Owns: nothing; the chain of limits is the scheduler's.

use std::time::{Duration, Instant};

use crate::error::Elapsed;
use crate::scheduler::limit::Limit;
use crate::sys::clock;

/// Runs `f` here, with a deadline over every wait inside it.
///
/// When the time is up, the wait that is under way ends with `Cancelled`, and so does every later one inside `f`. Nested
/// ones go by the earliest. A deadline inside, shorter than this one, is still a `Timeout`.
///
/// # Suspends
///
/// As `f` does. It is not interrupted while it computes.
///
/// # Errors
///
/// [`Elapsed`] if the deadline ended a wait of `f`; what `f` returned is dropped then. If `f` came through without,
/// its value counts, however late it is.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// sinew::run(|| {
///     let slow = sinew::timeout(Duration::from_millis(1), || sinew::sleep(Duration::from_secs(60)));
///     assert_eq!(slow, Err(sinew::Elapsed));
///     let fast = sinew::timeout(Duration::from_secs(60), || 7);
///     assert_eq!(fast, Ok(7));
/// });
/// ```
pub fn timeout<R>(timeout: Duration, f: impl FnOnce() -> R) -> Result<R, Elapsed> {
    until_ns(clock::after_ns(timeout), f)
}

/// As [`timeout`], until a point in time.
///
/// # Errors
///
/// As [`timeout`].
pub fn timeout_deadline<R>(deadline: Instant, f: impl FnOnce() -> R) -> Result<R, Elapsed> {
    until_ns(clock::instant_ns(deadline), f)
}

fn until_ns<R>(deadline_ns: u64, f: impl FnOnce() -> R) -> Result<R, Elapsed> {
    match Limit::around(false, deadline_ns, f) {
        (value, false) => Ok(value),
        (_, true) => Err(Elapsed),
    }
}

/// Runs `f` here, shielded: cancels and deadlines from around it do not end its waits. They take effect when it has
/// returned, at the next wait. For the part that must be finished.
///
/// A deadline set inside `f` works there. A scheduler whose main closure has panicked still waits for a shielded part
/// to end before it resorts to force.
///
/// # Suspends
///
/// As `f` does.
///
/// # Examples
///
/// ```
/// sinew::run(|| {
///     let handle = sinew::spawn_local(|| {
///         sinew::shield(|| sinew::sleep(std::time::Duration::from_millis(1))).unwrap();
///         sinew::yield_now()
///     });
///     sinew::yield_now().unwrap();
///     handle.cancel("stop");
///     assert_eq!(handle.join().unwrap(), Err(sinew::WaitError::Cancelled));
/// });
/// ```
pub fn shield<R>(f: impl FnOnce() -> R) -> R {
    Limit::around(true, u64::MAX, f).0
}
