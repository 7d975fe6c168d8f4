//! The kernel's errors with the name of what they are about.
//!
//! Owns: nothing. The kind stays what it was, and the kernel's error is the source of the named one.

use std::error::Error as StdError;
use std::{fmt, io};

#[derive(Debug)]
struct Named {
    what: String,
    error: io::Error,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.error)
    }
}

impl StdError for Named {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.error)
    }
}

/// Adds a name to an error of the kernel's. The runtime's own (a timeout, a cancel) are left as they are, for they are
/// recognised by what they wrap.
#[cold]
pub(crate) fn named(error: io::Error, what: impl FnOnce() -> String) -> io::Error {
    if error.raw_os_error().is_none() {
        return error;
    }
    io::Error::new(
        error.kind(),
        Named {
            what: what(),
            error,
        },
    )
}
