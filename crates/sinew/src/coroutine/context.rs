//! The error context: the last error of a coroutine, or of a thread's plain code.
//!
//! Owns: nothing; the error is in the [estate](super::estate). Thread: any, each its own.

use std::borrow::Cow;

use crate::coroutine::estate::Estate;
use crate::error::Error;

/// Puts an error into the context of the current coroutine, or of the thread where there is none. One that was there is
/// dropped.
///
/// Each coroutine has a context of its own, a stand-alone one and one of a scheduler alike, and so has the plain code of each
/// thread; it begins empty. If a coroutine returns while an error is in its context, its outcome is
/// [`Outcome::Error`](crate::Outcome::Error), and whoever joins it gets the error. A confirmed cancel goes before that, and
/// so does a panic.
///
/// # Suspends
///
/// Never.
///
/// # Examples
///
/// ```
/// use sinew::coroutine::error;
/// use sinew::{Error, ErrorKind};
///
/// sinew::run(|| {
///     let handle = sinew::spawn_local(|| {
///         error::set(Error::new(ErrorKind::Invalid, "no such column"));
///         error::with_context(|| "sorting the table");
///     });
///     let failure = handle.join().unwrap_err();
///     assert_eq!(failure.error().unwrap().message(), "sorting the table");
///     assert!(error::last().is_none());
/// });
/// ```
#[track_caller]
pub fn set(error: impl Into<Error>) {
    let error = error.into();
    // Whatever was there is dropped outside: its causes may have destructors.
    let before = Estate::with_current(|estate| match estate {
        Some(estate) => estate.replace_error(Some(error)),
        None => Some(error),
    });
    drop(before);
}

/// Adds to the error in the current context what was attempted, as [`Error::context`] does. Does nothing, and does not
/// call `message`, if there is none. Says whether there was one.
///
/// # Suspends
///
/// Never by itself.
#[track_caller]
pub fn with_context<M: Into<Cow<'static, str>>>(message: impl FnOnce() -> M) -> bool {
    if last().is_none() {
        return false;
    }
    let message = message();
    match take() {
        Some(error) => {
            set(error.context(message));
            true
        }
        // `message` has taken it.
        None => false,
    }
}

/// A copy of the error in the current context, which stays there.
///
/// # Suspends
///
/// Never.
#[must_use]
pub fn last() -> Option<Error> {
    Estate::with_current(|estate| {
        let estate = estate?;
        let error = estate.replace_error(None);
        let copy = error.clone();
        estate.replace_error(error);
        copy
    })
}

/// Takes the error out of the current context: it is handled.
///
/// # Suspends
///
/// Never.
#[must_use = "an error that is taken no longer counts"]
pub fn take() -> Option<Error> {
    Estate::with_current(|estate| estate?.replace_error(None))
}
