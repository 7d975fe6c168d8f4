//! What a task can end with.
//!
//! Owns: nothing.

use crate::coroutine::error;
use crate::error::{Error, ErrorKind};

/// What a task says that it came to.
#[derive(Debug, Clone)]
#[must_use = "an outcome counts when it is returned"]
pub enum Outcome<T> {
    /// It did what it was to do.
    Success(T),
    /// It failed.
    Failed(Error),
    /// It stopped because it was asked to.
    Cancelled,
}

impl<T> Outcome<T> {
    /// A failure with the error in the task's [context](crate::coroutine::error), which is taken out; of kind
    /// [`Internal`](ErrorKind::Internal) if there is none.
    #[track_caller]
    pub fn failed() -> Self {
        Self::Failed(error::take().unwrap_or_else(|| {
            Error::new(ErrorKind::Internal, "the task failed and did not say why")
        }))
    }

    /// Whether it is a success.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Success(_))
    }
}

impl<T> From<T> for Outcome<T> {
    fn from(value: T) -> Self {
        Self::Success(value)
    }
}

impl<T, E: Into<Error>> From<Result<T, E>> for Outcome<T> {
    /// An error of kind [`Cancelled`](ErrorKind::Cancelled) is a cancel, so that the `?` of a wait that was cancelled
    /// comes to that; every other one is a failure.
    fn from(result: Result<T, E>) -> Self {
        match result.map_err(Into::into) {
            Ok(value) => Self::Success(value),
            Err(error) if error.kind() == ErrorKind::Cancelled => Self::Cancelled,
            Err(error) => Self::Failed(error),
        }
    }
}

/// What a task's function may return: `()`, a [`Result`], or an [`Outcome`], by which any value can be given.
///
/// The error of a `Result` has to become an [`Error`], as all of this crate's and `std::io::Error` do. One of your own says how:
///
/// ```
/// use sinew::task::scope;
/// use sinew::{Error, ErrorKind};
///
/// struct Missing(u32);
///
/// impl From<Missing> for Error {
///     fn from(missing: Missing) -> Self {
///         Self::new(ErrorKind::NotFound, format!("no page {}", missing.0))
///     }
/// }
///
/// sinew::run(|| {
///     let failed = scope().all_succeed(|group| {
///         group.spawn(|_| Err::<(), _>(Missing(7)))?;
///         Ok(())
///     });
///     assert_eq!(failed.unwrap_err().message(), "no page 7");
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "a task cannot return `{Self}`",
    label = "returns `{Self}`",
    note = "a task returns `()`, a `Result` whose error becomes a `sinew::Error` by `From`, or a `sinew::task::Outcome`: \
            `Outcome::Success(value)` for a value alone"
)]
pub trait IntoOutcome {
    /// The value of a success.
    type Value;

    /// What that comes to.
    fn into_outcome(self) -> Outcome<Self::Value>;
}

impl<T> IntoOutcome for Outcome<T> {
    type Value = T;

    fn into_outcome(self) -> Self {
        self
    }
}

impl<T, E: Into<Error>> IntoOutcome for Result<T, E> {
    type Value = T;

    /// As [`Outcome::from`] does.
    fn into_outcome(self) -> Outcome<T> {
        self.into()
    }
}

impl IntoOutcome for () {
    type Value = ();

    /// A success.
    fn into_outcome(self) -> Outcome<()> {
        Outcome::Success(())
    }
}
