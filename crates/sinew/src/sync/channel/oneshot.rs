//! A channel for one value.
//!
//! Owns: the two ends. Between them is a channel with a buffer of one, into which one value is sent: sending never waits.

use std::fmt;
use std::time::{Duration, Instant};

use sinew_core::sharing::{Shared, Sharing};
use sinew_core::sync::Channel;

use super::{SendError, TryRecvError, TrySendError};
use crate::error::WaitError;
use crate::sync::select::RecvArm;

/// A channel for one value.
///
/// # Examples
///
/// ```
/// sinew::run(|| {
///     let (sender, receiver) = sinew::sync::channel::oneshot();
///     sinew::go_local(move || sender.send(7).unwrap());
///     assert_eq!(receiver.recv(), Ok(7));
/// });
/// ```
#[must_use]
pub fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    of_kind()
}

pub(in crate::sync) fn of_kind<T, K: Sharing>() -> (Sender<T, K>, Receiver<T, K>) {
    let (sender, receiver) = super::ends(Channel::bounded_of_kind(1));
    (Sender { inner: sender }, Receiver { inner: receiver })
}

/// Sends the one value. Dropped without, it closes the channel.
///
/// `K` says whose parties share the channel, see [`kinds`](crate::sync::kinds).
pub struct Sender<T, K: Sharing = Shared> {
    inner: super::Sender<T, K>,
}

impl<T, K: Sharing> Sender<T, K> {
    /// Sends the value. Never waits.
    ///
    /// # Errors
    ///
    /// The value comes back, with the reason `Closed`, if the receiver has gone or has closed the channel.
    pub fn send(self, value: T) -> Result<(), SendError<T>> {
        // There is room: this end is consumed by its one send.
        self.inner.try_send(value).map_err(|error| match error {
            TrySendError::Full(value) | TrySendError::Closed(value) => SendError {
                value,
                reason: WaitError::Closed,
            },
        })
    }

    /// Whether nobody will receive the value.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }
}

impl<T, K: Sharing> fmt::Debug for Sender<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// Receives the one value.
///
/// `K` says whose parties share the channel, see [`kinds`](crate::sync::kinds).
pub struct Receiver<T, K: Sharing = Shared> {
    inner: super::Receiver<T, K>,
}

impl<T> Receiver<T> {
    pub(crate) fn inner(&self) -> &super::Receiver<T> {
        &self.inner
    }
}

impl<T, K: Sharing> Receiver<T, K> {
    /// Receives the value.
    ///
    /// # Suspends
    ///
    /// Until it is sent, or the sender is gone.
    ///
    /// # Cancellation
    ///
    /// Ends early; nothing was taken.
    ///
    /// # Errors
    ///
    /// `Closed` if the sender has gone without sending, or the value has been received before; `Cancelled`; `State` on a
    /// scheduler's own frame.
    pub fn recv(&self) -> Result<T, WaitError> {
        self.inner.recv()
    }

    /// As [`Receiver::recv`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Receiver::recv`]; `Timeout` when the time is up.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, WaitError> {
        self.inner.recv_timeout(timeout)
    }

    /// As [`Receiver::recv`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Receiver::recv`]; `Timeout` at the deadline.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, WaitError> {
        self.inner.recv_deadline(deadline)
    }

    /// Receives the value if it is there.
    ///
    /// # Errors
    ///
    /// `Empty` or `Closed`.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.inner.try_recv()
    }

    /// To receive as one of several things of which one happens: an arm of a [`select`](crate::sync::select).
    pub fn recv_arm(&self) -> RecvArm<'_, T, K> {
        self.inner.recv_arm()
    }

    /// Refuses the value if it has not been sent yet; one that was can still be received. False if nothing was to be
    /// refused: it was sent, or the sender has gone.
    pub fn close(&self) -> bool {
        self.inner.close()
    }
}

impl<T, K: Sharing> IntoIterator for Receiver<T, K> {
    type Item = T;
    type IntoIter = super::IntoIter<T, K>;

    /// The value, if there will be one.
    fn into_iter(self) -> super::IntoIter<T, K> {
        self.inner.into_iter()
    }
}

impl<T, K: Sharing> fmt::Debug for Receiver<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
