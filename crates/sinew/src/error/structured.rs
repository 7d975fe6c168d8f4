//! The error with a kind, a place and causes: what error contexts, tasks and the C API carry.
//!
//! Owns: nothing shared: an error is an immutable value, counted, so that a copy of it is one more count. Any thread.
//!
//! Invariants
//! - I1. An error never changes: adding context makes a new one, whose source is the old one.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// What kind of thing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Not possible here or now.
    State,
    /// An argument is out of range, or makes no sense.
    Invalid,
    /// Not possible at once, but perhaps later.
    Again,
    /// The time was up.
    Timeout,
    /// It was cancelled.
    Cancelled,
    /// The other side is gone, or the thing was closed.
    Closed,
    /// A wait would never end.
    Deadlock,
    /// Memory, or a stack, could not be had.
    NoMemory,
    /// There is nothing by that name or number.
    NotFound,
    /// There is something by that name or number already.
    Exists,
    /// The operating system reported an error.
    Io,
    /// Code panicked.
    Panic,
    /// Something that should not be possible.
    Internal,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::State => "not possible here or now",
            Self::Invalid => "invalid argument",
            Self::Again => "not possible at once",
            Self::Timeout => "the time is up",
            Self::Cancelled => "cancelled",
            Self::Closed => "closed",
            Self::Deadlock => "deadlock",
            Self::NoMemory => "out of memory",
            Self::NotFound => "not found",
            Self::Exists => "exists already",
            Self::Io => "input or output",
            Self::Panic => "panic",
            Self::Internal => "internal error",
        })
    }
}

/// An error with a kind, a message, the place in the source where it was made, perhaps a code, and what it was caused by.
///
/// It is one pointer wide, immutable, and cheap to clone.
///
/// # Examples
///
/// ```
/// use sinew::{Error, ErrorKind};
///
/// fn read_config() -> Result<String, Error> {
///     let text = std::fs::read_to_string("/no/such/file")
///         .map_err(|error| Error::from(error).context("reading the configuration"))?;
///     Ok(text)
/// }
/// let error = read_config().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::NotFound);
/// assert_eq!(error.code(), Some(2));
/// assert_eq!(error.to_string(), "reading the configuration");
/// assert!(format!("{error:#}").starts_with("reading the configuration: "));
/// ```
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

struct Inner {
    kind: ErrorKind,
    code: Option<i32>,
    message: Cow<'static, str>,
    location: &'static Location<'static>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of this kind, made where this is called.
    #[track_caller]
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self::make(kind, None, message.into(), None)
    }

    /// An error of this kind that `source` is the cause of.
    #[track_caller]
    #[must_use]
    pub fn caused_by(
        kind: ErrorKind,
        message: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::make(kind, None, message.into(), Some(source.into()))
    }

    #[track_caller]
    pub(super) fn make(
        kind: ErrorKind,
        code: Option<i32>,
        message: Cow<'static, str>,
        source: Option<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                kind,
                code,
                message,
                location: Location::caller(),
                source,
            }),
        }
    }

    /// The same error with a code, such as an `errno`. Its place stays.
    #[must_use]
    pub fn with_code(self, code: i32) -> Self {
        match Arc::try_unwrap(self.inner) {
            Ok(inner) => Self {
                inner: Arc::new(Inner {
                    code: Some(code),
                    ..inner
                }),
            },
            // Others hold it: the causes are theirs as well, so they are reached through it.
            Err(shared) => Self {
                inner: Arc::new(Inner {
                    kind: shared.kind,
                    code: Some(code),
                    message: shared.message.clone(),
                    location: shared.location,
                    source: shared
                        .source
                        .is_some()
                        .then(|| Box::new(Self { inner: shared }) as Box<_>),
                }),
            },
        }
    }

    /// An error that says what was attempted when this one happened: of the same kind and code, made where this is called,
    /// with this one as its source.
    #[track_caller]
    #[must_use]
    pub fn context(self, message: impl Into<Cow<'static, str>>) -> Self {
        let (kind, code) = (self.kind(), self.code());
        Self::make(kind, code, message.into(), Some(Box::new(self)))
    }

    /// What kind of thing went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// The code, if it has one: for an error of the operating system its `errno`.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.inner.code
    }

    /// The message, without those of its causes.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// Where it was made.
    #[must_use]
    pub fn location(&self) -> &'static Location<'static> {
        self.inner.location
    }

    /// This error, what it was caused by, what that was caused by, and so on.
    pub fn chain(&self) -> impl Iterator<Item = &(dyn StdError + 'static)> {
        let mut next = Some(self as &(dyn StdError + 'static));
        std::iter::from_fn(move || {
            let error = next?;
            next = error.source();
            Some(error)
        })
    }
}

impl fmt::Display for Error {
    /// The message; with `{:#}` followed by those of its causes, each after a colon.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())?;
        if f.alternate() {
            for cause in self.chain().skip(1) {
                write!(f, ": {cause}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("kind", &self.kind());
        if let Some(code) = self.code() {
            debug.field("code", &code);
        }
        debug
            .field("message", &self.message())
            .field("location", &format_args!("{}", self.location()));
        if let Some(source) = &self.inner.source {
            debug.field("source", source);
        }
        debug.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner
            .source
            .as_deref()
            .map(|source| source as &(dyn StdError + 'static))
    }
}
