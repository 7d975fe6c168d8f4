//! Synchronisation among coroutines of one scheduler or of several, and with plain threads.
//!
//! The names and shapes are std's. A wait suspends the coroutine, or blocks the plain thread; each waiting method `x` has
//! `try_x`, which never waits, and `x_timeout` and `x_deadline`. Nothing is poisoned: whether a thread panics says nothing
//! about a coroutine.
//!
//! Those who wait are served in the order in which they came. What is free may be taken past them in a [`Mutex`] only, and there a
//! bounded number of times; a [`Semaphore`] and an [`RwLock`] are handed over. An [`RwLock`] lets all its readers in at a time, by turns
//! with one writer. What was handed over stands: a deadline or a cancel that comes later changes nothing.
//!
//! A [`SpinLock`] never suspends, and the wait of a [`LazyLock`] does not end early.

mod barrier;
pub mod channel;
mod condvar;
pub mod kinds;
mod lazy_lock;
pub mod local;
mod mutex;
mod once;
mod rwlock;
pub mod select;
mod semaphore;
mod spin_lock;
mod wait_group;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::Condvar;
pub use lazy_lock::LazyLock;
pub use mutex::MutexGuard;
pub use once::{InitError, Once, OnceCell};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::Permit;
pub use spin_lock::{SpinLock, SpinLockGuard};

/// A mutex for the parties of all threads; see [`kinds::Mutex`].
pub type Mutex<T> = mutex::Mutex<T, kinds::Shared>;

/// A count of permits for the parties of all threads; see [`kinds::Semaphore`].
pub type Semaphore = semaphore::Semaphore<kinds::Shared>;

/// A wait group for the parties of all threads; see [`kinds::WaitGroup`].
pub type WaitGroup = wait_group::WaitGroup<kinds::Shared>;
