//! Backtraces of suspended coroutines, by name and line.
//!
//! Owns: the frames as values. The walk is [`super::unwind`]'s, the names are [`super::symbols`]'s.

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "backtrace")]
mod asked;

#[cfg(feature = "backtrace")]
pub(crate) use asked::walk_alone;
#[cfg(feature = "backtrace")]
pub use asked::{BacktraceError, backtrace};

/// A function call that a suspended coroutine is in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Frame {
    /// Where the call goes on: an address inside the instruction before that place, or the place itself for the innermost frame.
    pub address: usize,
    /// The function's name; without one, the file of the image that the address is in.
    pub name: Option<Arc<str>>,
    /// The source file.
    pub file: Option<Arc<str>>,
    /// The line in it.
    pub line: Option<u32>,
    /// The column in that.
    pub column: Option<u32>,
    /// Whether the compiler has put the function into the next one of the list.
    pub is_inlined: bool,
}

impl Frame {
    #[cfg(feature = "backtrace")]
    pub(super) fn unknown(address: usize) -> Self {
        Self {
            address,
            name: None,
            file: None,
            line: None,
            column: None,
            is_inlined: false,
        }
    }

    #[cfg(feature = "backtrace")]
    pub(super) fn in_image(self, path: &std::path::Path) -> Self {
        Self {
            name: Some(format!("<unknown> in {}", path.display()).into()),
            ..self
        }
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.write_str(name)?,
            None => write!(f, "<unknown> at {:#x}", self.address)?,
        }
        if let Some(file) = &self.file {
            write!(f, " at {file}")?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
        }
        Ok(())
    }
}

/// The calls that a suspended coroutine is in, the innermost first.
///
/// `Display` writes a line for each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Backtrace {
    frames: Arc<[Frame]>,
    is_whole: bool,
}

impl Backtrace {
    #[cfg(feature = "backtrace")]
    pub(super) fn new(frames: Vec<Frame>, is_whole: bool) -> Self {
        Self {
            frames: frames.into(),
            is_whole,
        }
    }

    /// The calls, the innermost first.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Whether it goes to the coroutine's first frame. Otherwise the tables of some code were missing or wrong there, or there
    /// are more frames than `FRAMES_MAX`.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }
}

impl fmt::Display for Backtrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, frame) in self.frames.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{number:4}: {frame}")?;
        }
        if !self.is_whole {
            f.write_str("\n      …: the rest could not be walked")?;
        }
        Ok(())
    }
}
