//! For the coroutines of one thread: without atomics, and neither `Send` nor `Sync`.
//!
//! Owns: the names, and the making of channels. The code is that of [`sync`](crate::sync), for the kind
//! [`kinds::Local`](crate::sync::kinds::Local): the same order, deadlines, cancels and errors. These cannot be waited for by a
//! [`select`](crate::sync::select) or as futures.
//!
//! Who waits here is woken by a party on its own thread, so it must be a coroutine. On a plain thread what can be had at once is
//! had; a wait with a deadline ends at that, and one without fails with [`Deadlock`](crate::WaitError::Deadlock) at once.
//!
//! # Examples
//!
//! ```
//! use std::rc::Rc;
//! use sinew::sync::local;
//!
//! sinew::run(|| {
//!     let total = Rc::new(local::Mutex::new(0));
//!     let (sender, receiver) = local::channel::bounded(2);
//!     for part in 0..3 {
//!         let (total, sender) = (total.clone(), sender.clone());
//!         sinew::go_local(move || {
//!             *total.lock().unwrap() += part;
//!             sender.send(part).unwrap();
//!         });
//!     }
//!     drop(sender);
//!     assert_eq!(receiver.iter().count(), 3);
//!     assert_eq!(*total.lock().unwrap(), 3);
//! });
//! ```

use sinew_core::sharing::Local;

/// A mutex for the coroutines of one thread; see [`kinds::Mutex`](crate::sync::kinds::Mutex).
pub type Mutex<T> = super::mutex::Mutex<T, Local>;

/// The right to reach the value of a [`Mutex`].
pub type MutexGuard<'a, T> = super::mutex::MutexGuard<'a, T, Local>;

/// An event for the coroutines of one thread; see [`kinds::Event`](crate::sync::kinds::Event).
pub type Event = crate::event::signal::Event<Local>;

/// A count of permits for the coroutines of one thread; see [`kinds::Semaphore`](crate::sync::kinds::Semaphore).
pub type Semaphore = super::semaphore::Semaphore<Local>;

/// Permits of a [`Semaphore`].
pub type Permit<'a> = super::semaphore::Permit<'a, Local>;

/// A wait group for the coroutines of one thread; see [`kinds::WaitGroup`](crate::sync::kinds::WaitGroup).
pub type WaitGroup = super::wait_group::WaitGroup<Local>;

/// Channels between the coroutines of one thread.
pub mod channel {
    use sinew_core::sharing::Local;
    use sinew_core::sync::Channel;

    use crate::sync::channel as shared;

    /// The sending end; see [`channel::Sender`](crate::sync::channel::Sender).
    pub type Sender<T> = shared::Sender<T, Local>;

    /// The receiving end; see [`channel::Receiver`](crate::sync::channel::Receiver).
    pub type Receiver<T> = shared::Receiver<T, Local>;

    /// A channel without a buffer: a send returns only when a receiver has taken the value.
    #[must_use]
    pub fn rendezvous<T>() -> (Sender<T>, Receiver<T>) {
        shared::ends(Channel::rendezvous_of_kind())
    }

    /// A channel that buffers up to `capacity` values; a capacity of zero is a [`rendezvous`].
    ///
    /// # Panics
    ///
    /// If the memory for so many values cannot be had.
    #[must_use]
    #[track_caller]
    pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
        shared::ends(Channel::bounded_of_kind(capacity))
    }

    /// A channel whose buffer grows: a send never waits.
    #[must_use]
    pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
        shared::ends(Channel::unbounded_of_kind())
    }
}
