//! Synchronisation among coroutines of one scheduler or of several, and with plain threads.
//!
//! The names and shapes are std's. A wait suspends the coroutine, or blocks the plain thread; each waiting method `x` has
//! `try_x`, which never waits, and `x_timeout` and `x_deadline`. Nothing is poisoned: whether a thread panics says nothing
//! about a coroutine.

pub mod channel;
mod mutex;
pub mod select;
mod wait_group;

pub use mutex::{Mutex, MutexGuard};
pub use wait_group::WaitGroup;
