//! Looking inside a running program.

pub use crate::scheduler::unhandled::{Unhandled, on_unhandled};
