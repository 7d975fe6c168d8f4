//! For the coroutines of one thread: without atomics, and neither `Send` nor `Sync`.
//!
//! Owns: the names, and the making of channels. The code is that of [`sync`](crate::sync), for the kind
//! [`kinds::Local`](crate::sync::kinds::Local): the same order, deadlines, cancels and errors. Their arms are those of
//! a [`select`](crate::sync::select) too. These cannot be waited for as futures, which any thread may poll.
//!
//! A coroutine's own word, by which it is woken, is an atomic in every wait: here it is claimed by plain loads and stores. A select's
//! is claimed by compare-and-swap, whatever it waits for.
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

/// A reader-writer lock for the coroutines of one thread; see [`kinds::RwLock`](crate::sync::kinds::RwLock).
pub type RwLock<T> = super::rwlock::RwLock<T, Local>;

/// The right to read the value of an [`RwLock`].
pub type RwLockReadGuard<'a, T> = super::rwlock::RwLockReadGuard<'a, T, Local>;

/// The right to reach the value of an [`RwLock`] alone.
pub type RwLockWriteGuard<'a, T> = super::rwlock::RwLockWriteGuard<'a, T, Local>;

/// A condition variable for the coroutines of one thread; see [`kinds::Condvar`](crate::sync::kinds::Condvar).
pub type Condvar = super::condvar::Condvar<Local>;

/// A barrier for the coroutines of one thread; see [`kinds::Barrier`](crate::sync::kinds::Barrier).
pub type Barrier = super::barrier::Barrier<Local>;

/// What is done once, by one of the coroutines of one thread; see [`kinds::Once`](crate::sync::kinds::Once).
pub type Once = super::once::Once<Local>;

/// A cell that is filled once, by one of the coroutines of one thread; see [`kinds::OnceCell`](crate::sync::kinds::OnceCell).
pub type OnceCell<T> = super::once::OnceCell<T, Local>;

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

    /// A way back to a sender; see [`channel::WeakSender`](crate::sync::channel::WeakSender).
    pub type WeakSender<T> = shared::WeakSender<T, Local>;

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

    /// A channel for one value.
    pub mod oneshot {
        use sinew_core::sharing::Local;

        use crate::sync::channel::oneshot as shared;

        /// The sending end; see [`oneshot::Sender`](crate::sync::channel::oneshot::Sender).
        pub type Sender<T> = shared::Sender<T, Local>;

        /// The receiving end; see [`oneshot::Receiver`](crate::sync::channel::oneshot::Receiver).
        pub type Receiver<T> = shared::Receiver<T, Local>;
    }

    /// A channel for one value.
    #[must_use]
    pub fn oneshot<T>() -> (oneshot::Sender<T>, oneshot::Receiver<T>) {
        shared::oneshot::of_kind()
    }

    /// A channel that gives each value to every receiver.
    pub mod broadcast {
        use sinew_core::sharing::Local;

        use crate::sync::channel::broadcast as shared;

        /// The sending end; see [`broadcast::Sender`](crate::sync::channel::broadcast::Sender).
        pub type Sender<T> = shared::Sender<T, Local>;

        /// The receiving end; see [`broadcast::Receiver`](crate::sync::channel::broadcast::Receiver).
        pub type Receiver<T> = shared::Receiver<T, Local>;
    }

    /// A channel that gives each value to every receiver and keeps the last `capacity` of them, as
    /// [`channel::broadcast`](crate::sync::channel::broadcast()).
    ///
    /// # Panics
    ///
    /// If `capacity` is zero, or the memory for so many values cannot be had.
    #[must_use]
    #[track_caller]
    pub fn broadcast<T>(capacity: usize) -> (broadcast::Sender<T>, broadcast::Receiver<T>) {
        shared::broadcast::of_kind(capacity)
    }

    /// A value that is replaced, and that others watch.
    pub mod watch {
        use sinew_core::sharing::Local;

        use crate::sync::channel::watch as shared;

        /// The sending end; see [`watch::Sender`](crate::sync::channel::watch::Sender).
        pub type Sender<T> = shared::Sender<T, Local>;

        /// The receiving end; see [`watch::Receiver`](crate::sync::channel::watch::Receiver).
        pub type Receiver<T> = shared::Receiver<T, Local>;
    }

    /// A value that is replaced, and that others watch, as [`channel::watch`](crate::sync::channel::watch()).
    #[must_use]
    pub fn watch<T>(value: T) -> (watch::Sender<T>, watch::Receiver<T>) {
        shared::watch::of_kind(value)
    }
}
