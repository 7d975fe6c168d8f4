//! A task that was not accepted.
//!
//! Owns: the task, for whoever submitted it.

use std::fmt;

use crate::error::{Error, ErrorKind};

/// A task was not accepted; it comes back.
pub struct SubmitError<F> {
    kind: SubmitErrorKind,
    task: F,
}

/// Why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubmitErrorKind {
    Again,
    Timeout,
    Cancelled,
    Closed,
    State,
    NoMemory,
}

impl<F> SubmitError<F> {
    pub(crate) fn new(kind: SubmitErrorKind, task: F) -> Self {
        Self { kind, task }
    }

    /// The task that was refused; nothing of it has run.
    pub fn into_inner(self) -> F {
        self.task
    }

    /// Why, as an error's kind: `Again`, `Timeout`, `Cancelled`, `Closed`, `State` or `NoMemory`.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self.kind {
            SubmitErrorKind::Again => ErrorKind::Again,
            SubmitErrorKind::Timeout => ErrorKind::Timeout,
            SubmitErrorKind::Cancelled => ErrorKind::Cancelled,
            SubmitErrorKind::Closed => ErrorKind::Closed,
            SubmitErrorKind::State => ErrorKind::State,
            SubmitErrorKind::NoMemory => ErrorKind::NoMemory,
        }
    }

    /// Whether there was no room.
    #[must_use]
    pub fn is_again(&self) -> bool {
        self.kind == SubmitErrorKind::Again
    }

    /// Whether there was no room in time.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.kind == SubmitErrorKind::Timeout
    }

    /// Whether the wait for room was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.kind == SubmitErrorKind::Cancelled
    }

    /// Whether nothing is accepted any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.kind == SubmitErrorKind::Closed
    }

    /// Whether there was no memory for the task's place in its group.
    #[must_use]
    pub fn is_no_memory(&self) -> bool {
        self.kind == SubmitErrorKind::NoMemory
    }

    /// Whether room cannot be waited for here: on the pool's own worker, or where nothing may wait.
    #[must_use]
    pub fn is_state(&self) -> bool {
        self.kind == SubmitErrorKind::State
    }
}

impl<F> fmt::Debug for SubmitError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitError")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl<F> fmt::Display for SubmitError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            SubmitErrorKind::Again => "the queue is full, or as many of the group are active as may be: try again later",
            SubmitErrorKind::Timeout => "the queue was full until the deadline",
            SubmitErrorKind::Cancelled => "the wait for room in the queue was cancelled",
            SubmitErrorKind::Closed => "it is closed and accepts no more tasks",
            SubmitErrorKind::NoMemory => "there is no memory for one more in the group",
            SubmitErrorKind::State => {
                "the queue is full, and room cannot be waited for here: on the pool's own worker, or where nothing may wait"
            }
        })
    }
}

impl<F> std::error::Error for SubmitError<F> {}

impl<F> From<SubmitError<F>> for Error {
    #[track_caller]
    fn from(error: SubmitError<F>) -> Self {
        Self::new(error.kind(), error.to_string())
    }
}
