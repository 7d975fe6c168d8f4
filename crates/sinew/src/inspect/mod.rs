//! Looking inside a running program: figures, a listing and a dump of all live coroutines, and deadlocks, from any thread.
//!
//! Nothing here stops a scheduler or takes a lock that one holds while user code runs: a coroutine that never yields
//! can be listed from another thread.

mod backtrace;
mod deadlock;
mod dump;
mod listing;
mod on_signal;
mod stats;
mod survey;
#[cfg(feature = "backtrace")]
mod symbols;
#[cfg(feature = "backtrace")]
mod unwind;

#[cfg(feature = "backtrace")]
pub(crate) use backtrace::walk_alone;
pub use backtrace::{Backtrace, Frame};
#[cfg(feature = "backtrace")]
pub use backtrace::{BacktraceError, backtrace};
pub use deadlock::{Cycle, Deadlock, DeadlockHook, Member, deadlocks, on_deadlock};
pub(crate) use deadlock::{look as look_for_deadlocks, standstill};
pub use dump::{Answered, Dump, Group, dump, full_dump};
pub use listing::{Info, State, Wait, find, for_each};
pub use on_signal::{DumpOnSignal, dump_on_signal, write_to_stderr};
pub use stats::{SchedulerStats, Stats, stats};
pub use survey::{LOOKS_PER_VISIT, WALKS_PER_VISIT};
#[cfg(feature = "backtrace")]
pub use unwind::FRAMES_MAX;

pub use crate::scheduler::unhandled::{Unhandled, UnhandledHook, on_unhandled};
