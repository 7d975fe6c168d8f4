//! Events: signals that coroutines and threads wait for, by themselves or by number.
//!
//! Owns: the names.
//!
//! An [`Event`] is set by hand: from any coroutine, scheduler or thread. An [`EventTable`] holds numbered events that
//! are triggered with an argument and run a callback first.

mod runs;
pub(crate) mod signal;
mod table;

use sinew_core::sharing::Shared;

pub use table::{CreateError, EventId, EventTable, Missing, Refusal, TableWaitError};

/// An event for the parties of all threads.
pub type Event = signal::Event<Shared>;
