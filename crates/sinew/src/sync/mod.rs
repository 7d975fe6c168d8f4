//! Synchronisation among coroutines of one scheduler or of several, and with plain threads.
//!
//! The names and shapes are std's. A wait suspends the coroutine, or blocks the plain thread; each waiting method `x` has
//! `try_x`, which never waits, and `x_timeout` and `x_deadline`. Nothing is poisoned: whether a thread panics says nothing
//! about a coroutine.

mod barrier;
pub mod channel;
mod condvar;
mod lazy_lock;
mod mutex;
mod once;
mod rwlock;
mod semaphore;
mod spin_lock;
mod wait_group;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::Condvar;
pub use lazy_lock::LazyLock;
pub use mutex::{Mutex, MutexGuard};
pub use once::{InitError, Once, OnceCell};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Permit, Semaphore};
pub use spin_lock::{SpinLock, SpinLockGuard};
pub use wait_group::WaitGroup;
