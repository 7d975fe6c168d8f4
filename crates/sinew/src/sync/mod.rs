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
//! A future that receives from a channel is woken in its turn and takes its value when it is polled. Who comes in between may be
//! served before it; the future is the first in line again then.
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

pub use barrier::BarrierWaitResult;
pub use lazy_lock::LazyLock;
pub use mutex::MutexGuard;
pub use once::InitError;
pub use rwlock::{RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::Permit;
pub use spin_lock::{SpinLock, SpinLockGuard};

/// A mutex for the parties of all threads; see [`kinds::Mutex`].
pub type Mutex<T> = mutex::Mutex<T, kinds::Shared>;

/// A reader-writer lock for the parties of all threads; see [`kinds::RwLock`].
pub type RwLock<T> = rwlock::RwLock<T, kinds::Shared>;

/// A condition variable for the parties of all threads; see [`kinds::Condvar`].
pub type Condvar = condvar::Condvar<kinds::Shared>;

/// A barrier for the parties of all threads; see [`kinds::Barrier`].
pub type Barrier = barrier::Barrier<kinds::Shared>;

/// What is done once, by one of the parties of all threads; see [`kinds::Once`].
pub type Once = once::Once<kinds::Shared>;

/// A cell that is filled once, by one of the parties of all threads; see [`kinds::OnceCell`].
pub type OnceCell<T> = once::OnceCell<T, kinds::Shared>;

/// A count of permits for the parties of all threads; see [`kinds::Semaphore`].
pub type Semaphore = semaphore::Semaphore<kinds::Shared>;

/// A wait group for the parties of all threads; see [`kinds::WaitGroup`].
pub type WaitGroup = wait_group::WaitGroup<kinds::Shared>;
