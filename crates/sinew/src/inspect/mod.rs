//! Looking inside a running program: figures, a listing and a dump of all live coroutines, and deadlocks, from any thread.
//!
//! Nothing here stops a scheduler or takes a lock that one holds while user code runs: a coroutine that never yields
//! can be listed from another thread.

mod deadlock;
mod dump;
mod listing;
mod stats;

pub use deadlock::{Cycle, Deadlock, DeadlockHook, Member, deadlocks, on_deadlock};
pub(crate) use deadlock::{look as look_for_deadlocks, standstill};
pub use dump::{Dump, Group, dump};
pub use listing::{Info, State, Wait, find, for_each};
pub use stats::{SchedulerStats, Stats, stats};

pub use crate::scheduler::unhandled::{Unhandled, UnhandledHook, on_unhandled};
