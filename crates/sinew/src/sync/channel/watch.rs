//! A value that is replaced, and that others watch.
//!
//! Owns: the two ends. What is between them is `sinew_core`'s `RawWatch`.

use std::cell::Cell;
use std::fmt;
use std::iter::FusedIterator;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use sinew_core::sharing::{Shared, Sharing};
use sinew_core::sync::RawWatch;
use sinew_core::wait::Polled;

use super::SendError;
use crate::error::WaitError;
use crate::scheduler::current;
use crate::scheduler::waiting::Waiting;
use crate::sync::select::ChangeArm;
use crate::sys::clock;

/// A channel that holds one value, the latest. Sending replaces it and never waits; a receiver sees the latest, and can wait for
/// another than it has seen. What was replaced before a receiver looked is not seen by it.
///
/// # Examples
///
/// ```
/// sinew::run(|| {
///     let (sender, receiver) = sinew::sync::channel::watch("starting");
///     let watcher = sinew::spawn_local(move || {
///         assert_eq!(*receiver.get(), "starting");
///         receiver.changed()?;
///         let seen = *receiver.get();
///         Ok::<_, sinew::WaitError>(seen)
///     });
///     sinew::yield_now().unwrap();
///     sender.send("running").unwrap();
///     assert_eq!(watcher.join().unwrap(), Ok("running"));
/// });
/// ```
#[must_use]
pub fn watch<T>(value: T) -> (Sender<T>, Receiver<T>) {
    of_kind(value)
}

pub(in crate::sync) fn of_kind<T, K: Sharing>(value: T) -> (Sender<T, K>, Receiver<T, K>) {
    let channel = K::Ref::from(RawWatch::of_kind(value));
    (
        Sender {
            channel: channel.clone(),
        },
        Receiver {
            channel,
            seen: Cell::new(0),
        },
    )
}

/// Replaces the value. Clones replace the same one.
///
/// `K` says whose parties share the channel, see [`kinds`](crate::sync::kinds).
pub struct Sender<T, K: Sharing = Shared> {
    channel: K::Ref<RawWatch<T, K>>,
}

impl<T, K: Sharing> Sender<T, K> {
    /// Replaces the value. Never waits.
    ///
    /// # Errors
    ///
    /// The new value comes back, with the reason `Closed`, if there is no receiver or the channel is closed; see
    /// [`Sender::replace`].
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let sent = self.channel.send(value);
        current::take_turn();
        match sent {
            Ok(_before) => Ok(()),
            Err(value) => Err(SendError {
                value,
                reason: WaitError::Closed,
            }),
        }
    }

    /// Replaces the value, whether or not there are receivers; returns the one before.
    pub fn replace(&self, value: T) -> K::Ref<T> {
        self.channel.replace(value)
    }

    /// The value.
    #[must_use]
    pub fn get(&self) -> K::Ref<T> {
        self.channel.get().0
    }

    /// A receiver that has seen the present value.
    #[must_use]
    pub fn subscribe(&self) -> Receiver<T, K> {
        Receiver {
            channel: self.channel.clone(),
            seen: Cell::new(self.channel.add_receiver()),
        }
    }

    /// How many receivers there are.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        self.channel.receiver_count()
    }

    /// Ends the changes for all: the value stays. False if they had ended before.
    pub fn close(&self) -> bool {
        self.channel.close()
    }

    /// Whether the changes have ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.channel.is_closed()
    }
}

impl<T, K: Sharing> Clone for Sender<T, K> {
    fn clone(&self) -> Self {
        self.channel.add_sender();
        Self {
            channel: self.channel.clone(),
        }
    }
}

impl<T, K: Sharing> Drop for Sender<T, K> {
    fn drop(&mut self) {
        self.channel.remove_sender();
    }
}

impl<T: fmt::Debug, K: Sharing> fmt::Debug for Sender<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("value", &*self.get())
            .finish_non_exhaustive()
    }
}

/// Watches the value. A clone has seen the same. It goes from thread to thread, but is one party's at a time.
///
/// `K` says whose parties share the channel, see [`kinds`](crate::sync::kinds).
pub struct Receiver<T, K: Sharing = Shared> {
    channel: K::Ref<RawWatch<T, K>>,
    /// The version that was seen last.
    seen: Cell<u64>,
}

impl<T> Receiver<T> {
    /// [`Receiver::changed`] for a future.
    pub(crate) fn poll_changed(
        &self,
        party: &mut Polled<()>,
        waker: &Waker,
    ) -> Poll<Result<(), WaitError>> {
        let changed = self.channel.poll_changed(&self.seen, party, waker);
        changed.map_err(|_| WaitError::Closed)
    }

    pub(crate) fn leave_changed(&self, party: &mut Polled<()>) {
        self.channel.leave_changed(party);
    }
}

impl<T, K: Sharing> Receiver<T, K> {
    /// The latest value, which is seen by that.
    #[must_use]
    pub fn get(&self) -> K::Ref<T> {
        let (value, version) = self.channel.get();
        self.seen.set(version);
        value
    }

    /// The latest value; whether it was seen before does not change.
    #[must_use]
    pub fn peek(&self) -> K::Ref<T> {
        self.channel.get().0
    }

    /// Whether there is a value that was not seen.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.channel.has_changed(self.seen.get())
    }

    /// Waits until there is a value that was not seen; it is taken for seen then.
    ///
    /// # Suspends
    ///
    /// While the latest value is the one that was seen.
    ///
    /// # Cancellation
    ///
    /// Ends early; nothing is taken for seen.
    ///
    /// # Errors
    ///
    /// `Closed` when there will be no other value; `Cancelled`; `State` on a scheduler's own frame.
    pub fn changed(&self) -> Result<(), WaitError> {
        self.changed_within(None)
    }

    /// As [`Receiver::changed`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Receiver::changed`]; `Timeout` when the time is up.
    pub fn changed_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.changed_within(Some(clock::after_ns(timeout)))
    }

    /// As [`Receiver::changed`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Receiver::changed`]; `Timeout` at the deadline.
    pub fn changed_deadline(&self, deadline: Instant) -> Result<(), WaitError> {
        self.changed_within(Some(clock::instant_ns(deadline)))
    }

    fn changed_within(&self, deadline_ns: Option<u64>) -> Result<(), WaitError> {
        let waiting = match Waiting::at::<K>(deadline_ns) {
            Ok(waiting) => waiting,
            Err(WaitError::Deadlock) => {
                return match self.channel.try_changed(&self.seen) {
                    Ok(true) => Ok(()),
                    Ok(false) => Err(WaitError::Deadlock),
                    Err(_) => Err(WaitError::Closed),
                };
            }
            Err(error) => return Err(error),
        };
        match self.channel.changed(&self.seen, &waiting) {
            Ok(()) => {
                waiting.take_turn();
                Ok(())
            }
            Err(reason) => waiting.result(reason),
        }
    }

    /// To wait for a change as one of several things of which one happens: an arm of a [`select`](crate::sync::select).
    #[must_use]
    pub fn changed_arm(&self) -> ChangeArm<'_, T, K> {
        ChangeArm::new(self.channel.arm(&self.seen))
    }

    /// An iterator over the values that come: it waits for each and gives the latest, until there will be no other or the
    /// coroutine is cancelled.
    pub fn iter(&self) -> Iter<'_, T, K> {
        Iter { receiver: self }
    }

    /// Ends the changes for all: the value stays. False if they had ended before.
    pub fn close(&self) -> bool {
        self.channel.close()
    }
}

impl<T, K: Sharing> Clone for Receiver<T, K> {
    fn clone(&self) -> Self {
        self.channel.add_receiver();
        Self {
            channel: self.channel.clone(),
            seen: self.seen.clone(),
        }
    }
}

impl<T, K: Sharing> Drop for Receiver<T, K> {
    fn drop(&mut self) {
        self.channel.remove_receiver();
    }
}

impl<T: fmt::Debug, K: Sharing> fmt::Debug for Receiver<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("value", &*self.peek())
            .finish_non_exhaustive()
    }
}

/// The values that come. Made by [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T, K: Sharing = Shared> {
    receiver: &'a Receiver<T, K>,
}

impl<T, K: Sharing> Iterator for Iter<'_, T, K> {
    type Item = K::Ref<T>;

    fn next(&mut self) -> Option<K::Ref<T>> {
        self.receiver.changed().ok()?;
        Some(self.receiver.get())
    }
}

impl<T, K: Sharing> FusedIterator for Iter<'_, T, K> {}

impl<'a, T, K: Sharing> IntoIterator for &'a Receiver<T, K> {
    type Item = K::Ref<T>;
    type IntoIter = Iter<'a, T, K>;

    fn into_iter(self) -> Iter<'a, T, K> {
        self.iter()
    }
}
