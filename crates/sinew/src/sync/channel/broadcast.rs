//! A channel that gives each value to every receiver.
//!
//! Owns: the two ends. What is between them is `sinew_core`'s `Broadcast`.

use std::cell::Cell;
use std::fmt;
use std::iter::FusedIterator;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use sinew_core::sharing::{Shared, Sharing};
use sinew_core::sync::{BegunNews, Broadcast, Missing, News};
use sinew_core::wait::Polled;

use super::SendError;
use crate::error::WaitError;
use crate::scheduler::current;
use crate::scheduler::waiting::Waiting;
use crate::sync::select::BroadcastArm;
use crate::sys::clock;

/// A channel that gives each value to every receiver and keeps the last `capacity` of them. Sending never waits: a
/// receiver that falls behind by more loses the oldest, and is told how many.
///
/// A receiver gets what is sent after it was made. The values are cloned for all receivers but the last.
///
/// # Panics
///
/// If `capacity` is zero, or the memory for so many values cannot be had.
///
/// # Examples
///
/// ```
/// use sinew::sync::channel::broadcast::{self, RecvError};
///
/// let (sender, first) = sinew::sync::channel::broadcast(2);
/// let second = sender.subscribe();
/// for n in 1..=3 {
///     assert_eq!(sender.send(n), Ok(2));
/// }
/// assert_eq!(first.recv(), Err(RecvError::Lagged(1)));
/// assert_eq!(first.recv(), Ok(2));
/// drop(sender);
/// let rest: Vec<_> = second.into_iter().map(|n| n.unwrap_or(0)).collect();
/// assert_eq!(rest, [0, 2, 3]);
/// ```
#[must_use]
#[track_caller]
pub fn broadcast<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    of_kind(capacity)
}

#[track_caller]
pub(in crate::sync) fn of_kind<T, K: Sharing>(capacity: usize) -> (Sender<T, K>, Receiver<T, K>) {
    let channel = K::Ref::from(Broadcast::of_kind(capacity));
    (
        Sender {
            channel: channel.clone(),
        },
        Receiver {
            channel,
            position: Cell::new(0),
        },
    )
}

/// Nothing was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecvError {
    /// So many values were lost to this receiver, because it fell behind. The next receive gets the oldest that is left.
    Lagged(u64),
    /// The wait failed: `Closed` when everything was received and nothing will come, `Timeout`, `Cancelled` or `State`.
    Wait(WaitError),
}

impl From<WaitError> for RecvError {
    fn from(error: WaitError) -> Self {
        Self::Wait(error)
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lagged(count) => write!(f, "the receiver fell behind and lost {count} values"),
            Self::Wait(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RecvError {}

/// Nothing could be received without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TryRecvError {
    /// Nothing is there yet.
    Empty,
    /// Everything was received, and nothing will come.
    Closed,
    /// So many values were lost to this receiver, because it fell behind.
    Lagged(u64),
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("nothing was sent since"),
            Self::Closed => f.write_str("everything was received and the channel is closed"),
            Self::Lagged(count) => RecvError::Lagged(*count).fmt(f),
        }
    }
}

impl std::error::Error for TryRecvError {}

/// Sends to every receiver. Clones send the same way.
///
/// `K` says whose parties share the channel, see [`kinds`](crate::sync::kinds).
pub struct Sender<T, K: Sharing = Shared> {
    channel: K::Ref<Broadcast<T, K>>,
}

impl<T, K: Sharing> Sender<T, K> {
    /// Sends a value to every receiver there is; returns how many those are. Never waits.
    ///
    /// # Errors
    ///
    /// The value comes back, with the reason `Closed`, if there is no receiver or the channel is closed.
    pub fn send(&self, value: T) -> Result<usize, SendError<T>> {
        let sent = self.channel.send(value);
        current::take_turn();
        sent.map_err(|value| SendError {
            value,
            reason: WaitError::Closed,
        })
    }

    /// A receiver of what is sent from now on.
    #[must_use]
    pub fn subscribe(&self) -> Receiver<T, K> {
        Receiver {
            channel: self.channel.clone(),
            position: Cell::new(self.channel.add_receiver()),
        }
    }

    /// How many receivers there are.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        self.channel.receiver_count()
    }

    /// How many values are kept for receivers that fall behind.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.channel.capacity()
    }

    /// Ends sending for all; what was sent can still be received. False if it had ended before.
    pub fn close(&self) -> bool {
        self.channel.close()
    }

    /// Whether sending has ended.
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

impl<T, K: Sharing> fmt::Debug for Sender<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("receivers", &self.receiver_count())
            .finish_non_exhaustive()
    }
}

/// Receives every value. A clone receives the same from here on. It goes from thread to thread, but is one party's at a time.
///
/// `K` says whose parties share the channel, see [`kinds`](crate::sync::kinds).
pub struct Receiver<T, K: Sharing = Shared> {
    channel: K::Ref<Broadcast<T, K>>,
    /// The number of the value that comes next.
    position: Cell<u64>,
}

impl<T: Clone> Receiver<T> {
    /// [`Receiver::recv`] for a future.
    pub(crate) fn poll_recv(
        &self,
        party: &mut Polled<()>,
        waker: &Waker,
    ) -> Poll<Result<T, RecvError>> {
        let received = self.channel.poll_recv(&self.position, party, waker);
        received.map(|result| result.map(News::into_owned).map_err(of_missing))
    }
}

impl<T> Receiver<T> {
    pub(crate) fn leave_recv(&self, party: &mut Polled<()>) {
        self.channel.leave_recv(party);
    }
}

impl<T: Clone, K: Sharing> Receiver<T, K> {
    /// Receives the next value.
    ///
    /// # Suspends
    ///
    /// While there is none.
    ///
    /// # Cancellation
    ///
    /// Ends early; nothing was taken.
    ///
    /// # Errors
    ///
    /// See [`RecvError`].
    #[inline(always)]
    pub fn recv(&self) -> Result<T, RecvError> {
        current::check_call();
        match self.channel.recv_begin(&self.position) {
            Ok(news) => {
                let value = news.into_owned();
                current::take_turn();
                Ok(value)
            }
            Err(begun) => self.recv_on(begun, None),
        }
    }

    /// As [`Receiver::recv`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Receiver::recv`]; `Timeout` when the time is up.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvError> {
        self.recv_within(Some(clock::after_ns(timeout)))
    }

    /// As [`Receiver::recv`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Receiver::recv`]; `Timeout` at the deadline.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvError> {
        self.recv_within(Some(clock::instant_ns(deadline)))
    }

    /// Receives the next value if it is there.
    ///
    /// # Errors
    ///
    /// See [`TryRecvError`].
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        match self.channel.try_recv(&self.position) {
            Ok(news) => Ok(news.into_owned()),
            Err(Missing::Empty) => Err(TryRecvError::Empty),
            Err(Missing::Closed) => Err(TryRecvError::Closed),
            Err(Missing::Lagged(count)) => Err(TryRecvError::Lagged(count)),
        }
    }

    fn recv_within(&self, deadline_ns: Option<u64>) -> Result<T, RecvError> {
        match self.channel.recv_begin(&self.position) {
            Ok(news) => {
                current::take_turn();
                Ok(news.into_owned())
            }
            Err(begun) => self.recv_on(begun, deadline_ns),
        }
    }

    /// Goes on with a receive that has the broadcast's lock, and may have to wait.
    ///
    /// PERF: called from the user's own frame, see the runtime's suspension.
    #[inline(never)]
    fn recv_on(
        &self,
        begun: BegunNews<'_, T, K>,
        deadline_ns: Option<u64>,
    ) -> Result<T, RecvError> {
        let waiting = match Waiting::at::<K>(deadline_ns) {
            Ok(waiting) => waiting,
            Err(reason) => {
                drop(begun);
                return self.try_recv().map_err(|error| match error {
                    TryRecvError::Empty => reason.into(),
                    TryRecvError::Closed => WaitError::Closed.into(),
                    TryRecvError::Lagged(count) => RecvError::Lagged(count),
                });
            }
        };
        match self.channel.recv_on(begun, &self.position, &waiting) {
            Ok(result) => {
                waiting.take_turn();
                result.map(News::into_owned).map_err(of_missing)
            }
            Err(reason) => {
                let error = waiting.result(reason).err();
                Err(error.unwrap_or(WaitError::Closed).into())
            }
        }
    }

    /// To receive as one of several things of which one happens: an arm of a [`select`](crate::sync::select).
    pub fn recv_arm(&self) -> BroadcastArm<'_, T, K> {
        BroadcastArm::new(self.channel.arm(&self.position))
    }

    /// An iterator that receives until everything was received and nothing will come, or the coroutine is cancelled. Where values
    /// were lost it says how many.
    pub fn iter(&self) -> Iter<'_, T, K> {
        Iter { receiver: self }
    }
}

/// What the absence of a value means for one who does not wait any more.
pub(crate) fn of_missing(missing: Missing) -> RecvError {
    match missing {
        Missing::Lagged(count) => RecvError::Lagged(count),
        Missing::Empty | Missing::Closed => RecvError::Wait(WaitError::Closed),
    }
}

impl<T, K: Sharing> Receiver<T, K> {
    /// How many values wait for this receiver; lost ones are not counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.channel.len(self.position.get())
    }

    /// Whether no value waits for this receiver.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends sending for all; what was sent can still be received. False if it had ended before.
    pub fn close(&self) -> bool {
        self.channel.close()
    }
}

impl<T, K: Sharing> Clone for Receiver<T, K> {
    fn clone(&self) -> Self {
        self.channel.add_receiver_at(self.position.get());
        Self {
            channel: self.channel.clone(),
            position: self.position.clone(),
        }
    }
}

impl<T, K: Sharing> Drop for Receiver<T, K> {
    fn drop(&mut self) {
        self.channel.remove_receiver(self.position.get());
    }
}

impl<T, K: Sharing> fmt::Debug for Receiver<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// What an iterator gives: a value, or how many were lost.
fn next<T: Clone, K: Sharing>(receiver: &Receiver<T, K>) -> Option<Result<T, u64>> {
    match receiver.recv() {
        Ok(value) => Some(Ok(value)),
        Err(RecvError::Lagged(count)) => Some(Err(count)),
        Err(RecvError::Wait(_)) => None,
    }
}

/// Receives until the channel is closed and everything was received. Made by [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T, K: Sharing = Shared> {
    receiver: &'a Receiver<T, K>,
}

impl<T: Clone, K: Sharing> Iterator for Iter<'_, T, K> {
    /// A value, or how many were lost.
    type Item = Result<T, u64>;

    fn next(&mut self) -> Option<Self::Item> {
        next(self.receiver)
    }
}

impl<T: Clone, K: Sharing> FusedIterator for Iter<'_, T, K> {}

/// Receives until the channel is closed and everything was received; owns the receiver.
#[derive(Debug)]
pub struct IntoIter<T, K: Sharing = Shared> {
    receiver: Receiver<T, K>,
}

impl<T: Clone, K: Sharing> Iterator for IntoIter<T, K> {
    /// A value, or how many were lost.
    type Item = Result<T, u64>;

    fn next(&mut self) -> Option<Self::Item> {
        next(&self.receiver)
    }
}

impl<T: Clone, K: Sharing> FusedIterator for IntoIter<T, K> {}

impl<T: Clone, K: Sharing> IntoIterator for Receiver<T, K> {
    type Item = Result<T, u64>;
    type IntoIter = IntoIter<T, K>;

    fn into_iter(self) -> IntoIter<T, K> {
        IntoIter { receiver: self }
    }
}

impl<'a, T: Clone, K: Sharing> IntoIterator for &'a Receiver<T, K> {
    type Item = Result<T, u64>;
    type IntoIter = Iter<'a, T, K>;

    fn into_iter(self) -> Iter<'a, T, K> {
        self.iter()
    }
}
