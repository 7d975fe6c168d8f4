//! Looking inside a running program: figures, and a listing of all live coroutines, from any thread.
//!
//! Nothing here stops a scheduler or takes a lock that one holds while user code runs: a coroutine that never yields
//! can be listed from another thread.

mod listing;
mod stats;

pub use listing::{Info, State, Wait, find, for_each};
pub use stats::{SchedulerStats, Stats, stats};

pub use crate::scheduler::unhandled::{Unhandled, UnhandledHook, on_unhandled};
