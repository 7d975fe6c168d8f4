//! What a wait, a spawn or a run can end with other than its value.
//!
//! Owns: the error types that every part of the crate shares. One small type per operation; what an
//! operation did not consume comes back inside its error.

mod conversion;
mod structured;

use std::error::Error as StdError;
use std::{fmt, io};

pub use structured::{Error, ErrorKind};

/// The wait was ended by a cancel request to the coroutine that waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled;

/// The other side is gone, or the thing was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

/// The time was up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

/// Why a wait ended without what it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The deadline passed first.
    Timeout,
    /// The waiting coroutine was cancelled first.
    Cancelled,
    /// The other side is gone, or the thing was closed.
    Closed,
    /// What is waited for would never come: the coroutine would wait for itself, directly or around a cycle of joins.
    Deadlock,
    /// Waiting is not possible here: this code runs on the scheduler's own frame (a destructor of something that
    /// never started, for one), in a cleanup, or in the callback of an event.
    State,
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the coroutine was cancelled")
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other side is closed")
    }
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time is up")
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Timeout => "the deadline passed while waiting",
            Self::Cancelled => "the coroutine was cancelled while waiting",
            Self::Closed => "the other side was closed while waiting",
            Self::Deadlock => "the wait would be in vain: the coroutine would wait for itself",
            Self::State => {
                "waiting is not possible here: on a scheduler's own frame, in a cleanup or in a callback"
            }
        })
    }
}

impl StdError for Cancelled {}
impl StdError for Closed {}
impl StdError for Elapsed {}
impl StdError for WaitError {}

impl From<Cancelled> for WaitError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<Closed> for WaitError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<Elapsed> for WaitError {
    fn from(_: Elapsed) -> Self {
        Self::Timeout
    }
}

impl From<Cancelled> for io::Error {
    /// An error that wraps [`Cancelled`]. Its kind is never `Interrupted`, which std retries.
    fn from(cancelled: Cancelled) -> Self {
        Self::other(cancelled)
    }
}

impl From<WaitError> for io::Error {
    /// `TimedOut` for a timeout; `NotConnected` for closed; otherwise an error that wraps the cause.
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Timeout => Self::new(io::ErrorKind::TimedOut, Elapsed),
            WaitError::Cancelled => Self::other(Cancelled),
            WaitError::Closed => Self::new(io::ErrorKind::NotConnected, Closed),
            WaitError::Deadlock | WaitError::State => Self::other(error),
        }
    }
}

/// Whether an I/O error says that the coroutine was cancelled while it waited.
///
/// # Examples
///
/// ```
/// let error = std::io::Error::from(sinew::Cancelled);
/// assert!(sinew::is_cancelled(&error));
/// ```
#[must_use]
pub fn is_cancelled(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| {
        inner.is::<Cancelled>()
            || inner
                .downcast_ref::<Error>()
                .is_some_and(|error| error.kind() == ErrorKind::Cancelled)
    })
}
