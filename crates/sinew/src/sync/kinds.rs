//! What is shared among all threads and what is of one, by one name each: for code that is written for both.
//!
//! Owns: the names. [`sync`](crate::sync) has those of kind [`Shared`], [`local`](crate::sync::local) those of kind [`Local`].
//!
//! # Examples
//!
//! ```
//! use sinew::sync::kinds::{Mutex, Sharing};
//!
//! fn next<K: Sharing>(counter: &Mutex<u32, K>) -> Result<u32, sinew::WaitError> {
//!     let mut counter = counter.lock()?;
//!     *counter += 1;
//!     Ok(*counter)
//! }
//!
//! assert_eq!(next(&sinew::sync::Mutex::new(0)), Ok(1));
//! assert_eq!(next(&sinew::sync::local::Mutex::new(1)), Ok(2));
//! ```

pub use sinew_core::sharing::{Local, Shared, Sharing};

pub use super::barrier::Barrier;
pub use super::channel::{Receiver, Sender, WeakSender};
pub use super::condvar::Condvar;
pub use super::mutex::{Mutex, MutexGuard};
pub use super::once::{Once, OnceCell};
pub use super::rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use super::semaphore::{Permit, Semaphore};
pub use super::wait_group::WaitGroup;
pub use crate::event::signal::Event;
