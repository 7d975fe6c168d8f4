//! What is known of an end beside the value.
//!
//! Owns: nothing. It is written once, with the value, and only read afterwards.

use super::{PromiseState, TaskError};
use crate::cancel::Cause;
use crate::error::Error;

/// What a promise's place is filled with.
pub(crate) struct Filled<T> {
    pub(super) result: Result<T, TaskError>,
    /// Who had asked to stop by then.
    pub(super) cause: Option<Box<Cause>>,
}

/// Which bits of an end's number are the state; a task's [`Begun`] is in the others.
pub(super) const STATE_MASK: u8 = 7;

/// Whether the work behind a promise ever started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Begun {
    /// It is no task's promise: who completes it knows.
    Unknown = 0,
    /// It never started.
    No = 8,
    /// It did.
    Yes = 16,
}

impl Begun {
    pub(super) fn of_end(end: u8) -> Option<bool> {
        match end & !STATE_MASK {
            8 => Some(false),
            16 => Some(true),
            _ => None,
        }
    }
}

/// How a promise ended: everything but the value. Made by [`SharedFuture::end`](super::SharedFuture::end).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EndRecord {
    /// Which end it is.
    pub state: PromiseState,
    /// Whether the task ever started; `None` for a promise that is no task's.
    pub has_started: Option<bool>,
    /// What it failed with.
    pub error: Option<Error>,
    /// Who had asked it to stop by then, from where, when and why. One that was asked may have succeeded all the same.
    pub cause: Option<Cause>,
}
