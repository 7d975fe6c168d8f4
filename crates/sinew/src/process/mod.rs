//! Child processes with std's names: waiting for one, and for its output, suspends the coroutine instead of the thread.
//!
//! Owns: nothing itself; see the parts. On a plain thread the same calls block the thread.
//!
//! No child is left unreaped: one that is dropped before it was waited for is waited for behind the scenes.

mod child;
mod collect;
mod command;
mod pipe;
mod reaper;

pub use std::process::{ExitStatus, Output, Stdio};

pub use child::Child;
pub use command::Command;
pub use pipe::{ChildStderr, ChildStdin, ChildStdout};
