//! How every other error of the crate becomes an [`Error`], and how that becomes an I/O error.
//!
//! Owns: nothing. What an error gives back (a value, a closure, a panic's payload) is dropped by the conversion.
//! The place of the new error is that of the `?` or of the call that converts.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use crate::coroutine::cleanup::{CleanupError, DeferError};
use crate::coroutine::{ResumeError, SuspendError};
use crate::error::{Cancelled, Closed, Elapsed, Error, ErrorKind, WaitError};
use crate::event::{CreateError, Missing, Refusal, TableWaitError};
use crate::join::JoinError;
use crate::local::AccessError;
use crate::net::{ReuniteError, Split};
use crate::scheduler::object::StateError;
use crate::scheduler::order::NotFound;
use crate::scheduler::post::PostError;
use crate::scheduler::run::RunError;
use crate::scheduler::spawn::SpawnError;
use crate::stack::{Refused, StackError};
use crate::sync::InitError;
use crate::sync::channel::{SendError, TryRecvError, TrySendError};

impl WaitError {
    fn kind(self) -> ErrorKind {
        match self {
            Self::Timeout => ErrorKind::Timeout,
            Self::Cancelled => ErrorKind::Cancelled,
            Self::Closed => ErrorKind::Closed,
            Self::Deadlock => ErrorKind::Deadlock,
            Self::State => ErrorKind::State,
        }
    }
}

/// Conversions of errors that own nothing: their words are the message.
macro_rules! from_plain {
    ($($type:ty: $kind:expr;)+) => {$(
        impl From<$type> for Error {
            #[track_caller]
            fn from(error: $type) -> Self {
                let kind: fn(&$type) -> ErrorKind = $kind;
                Self::new(kind(&error), error.to_string())
            }
        }
    )+};
}

from_plain! {
    WaitError: |error| error.kind();
    Cancelled: |_| ErrorKind::Cancelled;
    Closed: |_| ErrorKind::Closed;
    Elapsed: |_| ErrorKind::Timeout;
    TryRecvError: |error| match error {
        TryRecvError::Empty => ErrorKind::Again,
        TryRecvError::Closed => ErrorKind::Closed,
    };
    Missing: |_| ErrorKind::NotFound;
    TableWaitError: |error| match error {
        TableWaitError::Missing(_) => ErrorKind::NotFound,
        TableWaitError::Wait(error) => error.kind(),
    };
    Refusal: |refusal| match refusal {
        Refusal::OutOfRange { .. } => ErrorKind::Invalid,
        Refusal::Taken(_) => ErrorKind::Exists,
        Refusal::Full { .. } => ErrorKind::Again,
    };
    StackError: |error| match error {
        StackError::Invalid { .. } => ErrorKind::Invalid,
        StackError::NoMemory { .. } => ErrorKind::NoMemory,
        _ => ErrorKind::Internal,
    };
    CleanupError: |_| ErrorKind::State;
    StateError: |_| ErrorKind::State;
    AccessError: |_| ErrorKind::State;
    NotFound: |_| ErrorKind::NotFound;
}

/// The same for errors that give something back.
macro_rules! from_generous {
    ($($type:ident<$($parameter:ident),+>: $kind:expr;)+) => {$(
        impl<$($parameter),+> From<$type<$($parameter),+>> for Error {
            #[track_caller]
            fn from(error: $type<$($parameter),+>) -> Self {
                let kind: fn(&$type<$($parameter),+>) -> ErrorKind = $kind;
                Self::new(kind(&error), error.to_string())
            }
        }
    )+};
}

from_generous! {
    SendError<T>: |error| error.reason.kind();
    TrySendError<T>: |error| if error.is_full() { ErrorKind::Again } else { ErrorKind::Closed };
    SpawnError<F>: |error| if error.is_state() {
        ErrorKind::State
    } else if error.is_invalid() {
        ErrorKind::Invalid
    } else {
        ErrorKind::Closed
    };
    PostError<F>: |error| if error.is_again() { ErrorKind::Again } else { ErrorKind::Closed };
    DeferError<F>: |_| ErrorKind::State;
    Refused<S>: |_| ErrorKind::Invalid;
    ResumeError<In>: |error| match error {
        ResumeError::State(_) => ErrorKind::State,
        ResumeError::Cancelled(_) => ErrorKind::Cancelled,
        ResumeError::NoMemory(_) => ErrorKind::NoMemory,
    };
    SuspendError<In, Out>: |error| match error {
        SuspendError::Cancelled(_) | SuspendError::Ending => ErrorKind::Cancelled,
        SuspendError::State(_) => ErrorKind::State,
    };
}

impl<E: fmt::Display> From<InitError<E>> for Error {
    #[track_caller]
    fn from(error: InitError<E>) -> Self {
        let kind = match &error {
            InitError::Wait(error) => error.kind(),
            InitError::Init(_) => ErrorKind::Internal,
        };
        Self::new(kind, error.to_string())
    }
}

impl<F> From<CreateError<F>> for Error {
    #[track_caller]
    fn from(error: CreateError<F>) -> Self {
        Self::from(error.reason)
    }
}

impl<S: Split> From<ReuniteError<S>> for Error {
    #[track_caller]
    fn from(error: ReuniteError<S>) -> Self {
        Self::new(ErrorKind::Invalid, error.to_string())
    }
}

impl From<RunError> for Error {
    #[track_caller]
    fn from(error: RunError) -> Self {
        let message = error.to_string();
        match error {
            RunError::State => Self::new(ErrorKind::State, message),
            RunError::Io(error) => Self::from(error).context(message),
            RunError::Invalid(_) => Self::new(ErrorKind::Invalid, message),
            RunError::Exited(code) => Self::new(ErrorKind::Cancelled, message).with_code(code),
            RunError::Cancelled => Self::new(ErrorKind::Cancelled, message),
            RunError::Deadlock(_) => Self::new(ErrorKind::Deadlock, message),
        }
    }
}

impl From<JoinError> for Error {
    /// The error that the coroutine left, if it did, as the source; of a panic the message.
    #[track_caller]
    fn from(error: JoinError) -> Self {
        let message = error.to_string();
        let kind = if error.is_panic() {
            ErrorKind::Panic
        } else if error.is_cancelled() {
            ErrorKind::Cancelled
        } else if error.is_no_memory() {
            ErrorKind::NoMemory
        } else if let Some(wait) = error.wait_error() {
            wait.kind()
        } else {
            ErrorKind::Internal
        };
        match error.into_error() {
            Some(left) => left.context("a coroutine ended with an error in its context"),
            None => Self::new(kind, message),
        }
    }
}

impl From<io::Error> for Error {
    /// An error that was wrapped comes out again; otherwise the kind is that of the cause, the code its `errno`.
    #[track_caller]
    fn from(error: io::Error) -> Self {
        let inner = error.get_ref();
        if inner.is_some_and(|inner| inner.is::<Self>()) {
            match error.downcast::<Self>() {
                Ok(wrapped) => return wrapped,
                Err(_) => unreachable!("its type was looked at"),
            }
        }
        let kind = match inner {
            Some(inner) if inner.is::<Cancelled>() => ErrorKind::Cancelled,
            Some(inner) if inner.is::<Closed>() => ErrorKind::Closed,
            Some(inner) => match inner.downcast_ref::<WaitError>() {
                Some(wait) => wait.kind(),
                None => kind_of_io(error.kind()),
            },
            None => kind_of_io(error.kind()),
        };
        let code = error.raw_os_error();
        Self::make(kind, code, error.to_string().into(), cause_of(error))
    }
}

fn kind_of_io(kind: io::ErrorKind) -> ErrorKind {
    match kind {
        io::ErrorKind::TimedOut => ErrorKind::Timeout,
        io::ErrorKind::WouldBlock => ErrorKind::Again,
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::AlreadyExists => ErrorKind::Exists,
        io::ErrorKind::InvalidInput => ErrorKind::Invalid,
        io::ErrorKind::OutOfMemory => ErrorKind::NoMemory,
        io::ErrorKind::Deadlock => ErrorKind::Deadlock,
        _ => ErrorKind::Io,
    }
}

/// What an I/O error was caused by in turn; its own words are the message already.
fn cause_of(error: io::Error) -> Option<Box<dyn StdError + Send + Sync>> {
    let inner = error.into_inner()?;
    // An I/O error with a custom cause speaks with that one's words: only what lies below it is news.
    inner.source().is_some().then_some(inner)
}

/// Those that end a function of I/O by `?`: by way of an [`Error`], which can be had back.
macro_rules! into_io {
    ($([$($parameter:ident)?] $type:ty;)+) => {$(
        impl$(<$parameter>)? From<$type> for io::Error {
            /// As [`Error`]'s conversion, which the I/O error wraps.
            #[track_caller]
            fn from(error: $type) -> Self {
                Error::from(error).into()
            }
        }
    )+};
}

into_io! {
    [] JoinError;
    [F] SpawnError<F>;
    [T] SendError<T>;
}

impl From<Closed> for io::Error {
    /// As that of [`WaitError::Closed`].
    fn from(_: Closed) -> Self {
        WaitError::Closed.into()
    }
}

impl From<Elapsed> for io::Error {
    /// `TimedOut`, as that of [`WaitError::Timeout`].
    fn from(_: Elapsed) -> Self {
        WaitError::Timeout.into()
    }
}

impl From<Error> for io::Error {
    /// An I/O error that wraps this one; it can be had back by `Error::from`.
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Invalid => io::ErrorKind::InvalidInput,
            ErrorKind::Again => io::ErrorKind::WouldBlock,
            ErrorKind::Timeout => io::ErrorKind::TimedOut,
            ErrorKind::Closed => io::ErrorKind::NotConnected,
            ErrorKind::Deadlock => io::ErrorKind::Deadlock,
            ErrorKind::NoMemory => io::ErrorKind::OutOfMemory,
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::Exists => io::ErrorKind::AlreadyExists,
            // Never `Interrupted`, which std retries.
            ErrorKind::State
            | ErrorKind::Cancelled
            | ErrorKind::Io
            | ErrorKind::Panic
            | ErrorKind::Internal => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
