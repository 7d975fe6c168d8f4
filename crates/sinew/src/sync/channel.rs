//! Channels, many producers to many consumers: [`rendezvous()`], [`bounded`] and [`unbounded()`]; for one value
//! ([`oneshot()`]); to every receiver ([`broadcast()`]); and of the latest value only ([`watch()`]).
//!
//! Owns: the two ends. What is between them is `sinew_core`'s `Channel`.
//!
//! A channel closes when the last end of one side is dropped, or by `close`. What was buffered by then is still
//! received; what is sent afterwards comes back in the error.

pub mod broadcast;
pub mod oneshot;
pub mod watch;
mod weak;

use std::fmt;
use std::iter::FusedIterator;
use std::time::{Duration, Instant};

use sinew_core::sharing::{Shared, Sharing};
use sinew_core::sync::{Begun, Channel, TryRecv, TrySend};
use sinew_core::wait::{Course, Reason};

use crate::error::WaitError;
use crate::scheduler::brisk::Brisk;
use crate::scheduler::current;
use crate::scheduler::waiting::Waiting;
use crate::sync::select::{RecvArm, SendArm};
use crate::sys::clock;

pub use broadcast::broadcast;
pub use oneshot::oneshot;
pub use watch::watch;
pub use weak::WeakSender;

/// A channel without a buffer: a send returns only when a receiver has taken the value.
#[must_use]
pub fn rendezvous<T>() -> (Sender<T>, Receiver<T>) {
    ends(Channel::rendezvous())
}

/// A channel that buffers up to `capacity` values; a capacity of zero is a [`rendezvous`].
///
/// # Panics
///
/// If the memory for so many values cannot be had. [`unbounded()`] has no limit and takes memory as it is needed.
///
/// # Examples
///
/// ```
/// sinew::run(|| {
///     let (sender, receiver) = sinew::sync::channel::bounded(2);
///     sinew::go_local(move || {
///         for n in 0..10 {
///             sender.send(n).unwrap();
///         }
///     });
///     assert_eq!(receiver.iter().sum::<i32>(), 45);
/// });
/// ```
#[must_use]
#[track_caller]
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    if capacity == 0 {
        rendezvous()
    } else {
        ends(Channel::bounded(capacity))
    }
}

/// A channel whose buffer grows: a send never waits.
#[must_use]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    ends(Channel::unbounded())
}

pub(super) fn ends<T, K: Sharing>(channel: Channel<T, K>) -> (Sender<T, K>, Receiver<T, K>) {
    let channel = K::Ref::from(channel);
    (
        Sender {
            channel: channel.clone(),
        },
        Receiver { channel },
    )
}

/// A value could not be sent; it comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T> {
    /// The value.
    pub value: T,
    /// Why: `Closed`, `Timeout`, `Cancelled` or `State`.
    pub reason: WaitError,
}

impl<T> SendError<T> {
    /// The value.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the value was not sent: {}", self.reason)
    }
}

impl<T> std::error::Error for SendError<T> {}

/// A value could not be sent without waiting; it comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// The buffer is full, or no receiver waits at a rendezvous. (A future that waits may be dropped: it takes a value when it is
    /// polled, from a sender that waits.)
    Full(T),
    /// The channel is closed.
    Closed(T),
}

impl<T> TrySendError<T> {
    /// The value.
    pub fn into_inner(self) -> T {
        match self {
            Self::Full(value) | Self::Closed(value) => value,
        }
    }

    /// Whether waiting might help.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_full() {
            "Full(..)"
        } else {
            "Closed(..)"
        })
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_full() {
            "the channel is full"
        } else {
            "the channel is closed"
        })
    }
}

impl<T> std::error::Error for TrySendError<T> {}

/// Nothing could be received without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TryRecvError {
    /// Nothing is there yet, but for what is kept for a receive whose turn it is, see [`RecvFuture`](crate::future::RecvFuture).
    Empty,
    /// Nothing is there, and the channel is closed: nothing will come.
    Closed,
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the channel is empty",
            Self::Closed => "the channel is empty and closed",
        })
    }
}

impl std::error::Error for TryRecvError {}

/// The sending end. Clones send into the same channel.
///
/// `K` says whose parties share the channel, see [`kinds`](crate::sync::kinds).
pub struct Sender<T, K: Sharing = Shared> {
    channel: K::Ref<Channel<T, K>>,
}

impl<T> Sender<T> {
    pub(crate) fn channel(&self) -> &Channel<T> {
        &self.channel
    }
}

impl<T, K: Sharing> Sender<T, K> {
    /// To send, as one of several things of which one happens: an arm of a [`select`](crate::sync::select). The value
    /// is taken out of `value` when it is sent, and stays there otherwise; while there is none the arm does not take effect.
    pub fn send_arm<'a>(&'a self, value: &'a mut Option<T>) -> SendArm<'a, T, K> {
        SendArm::new(&self.channel, value)
    }

    /// A way back to a sender that does not keep the channel open.
    #[must_use]
    pub fn downgrade(&self) -> WeakSender<T, K> {
        WeakSender::new(&self.channel)
    }

    /// Sends a value.
    ///
    /// # Suspends
    ///
    /// While the buffer is full; at a rendezvous until a receiver has taken the value.
    ///
    /// # Cancellation
    ///
    /// Ends early; the value comes back and was not received.
    ///
    /// # Errors
    ///
    /// [`SendError`] with the value, and why: `Closed`, `Cancelled`, `State` on a scheduler's own frame, or `Deadlock` on a plain
    /// thread if the channel is of one thread and full.
    #[inline(always)]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let Some(party) = Brisk::here() else {
            return self.send_within(value, None);
        };
        let (value, begun) = match self.channel.send_begin(value) {
            Ok(()) => {
                party.take_turn(Course::AtOnce);
                return Ok(());
            }
            Err(begun) => begun,
        };
        match self.channel.send_on_by(value, begun, party, &party) {
            Ok(course) => {
                party.take_turn(course);
                Ok(())
            }
            Err(failed) => Err(SendError {
                value: failed.value,
                reason: party.error(failed.reason),
            }),
        }
    }

    /// As [`Sender::send`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Sender::send`]; `Timeout` when the time is up.
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendError<T>> {
        self.send_until(value, || clock::after_ns(timeout))
    }

    /// As [`Sender::send`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Sender::send`]; `Timeout` at the deadline.
    pub fn send_deadline(&self, value: T, deadline: Instant) -> Result<(), SendError<T>> {
        self.send_until(value, || clock::instant_ns(deadline))
    }

    /// Sends a value if that needs no wait.
    ///
    /// # Errors
    ///
    /// [`TrySendError`] with the value.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.channel.try_send(value).map_err(|error| match error {
            TrySend::Full(value) => TrySendError::Full(value),
            TrySend::Closed(value) => TrySendError::Closed(value),
        })
    }

    /// Tries before it looks at the clock.
    fn send_until(&self, value: T, deadline_ns: impl FnOnce() -> u64) -> Result<(), SendError<T>> {
        match self.channel.try_send(value) {
            Ok(()) => {
                current::take_turn();
                Ok(())
            }
            Err(TrySend::Closed(value)) => Err(SendError {
                value,
                reason: WaitError::Closed,
            }),
            Err(TrySend::Full(value)) => self.send_within(value, Some(deadline_ns())),
        }
    }

    #[inline(never)]
    fn send_within(&self, value: T, deadline_ns: Option<u64>) -> Result<(), SendError<T>> {
        current::check_call();
        match self.channel.send_begin(value) {
            Ok(()) => {
                current::take_turn();
                Ok(())
            }
            Err((value, begun)) => self.send_on(value, begun, deadline_ns),
        }
    }

    /// Goes on with a send that has the channel's lock, and may have to wait.
    ///
    /// PERF: called from the user's own frame, see the runtime's suspension.
    #[inline(never)]
    fn send_on(
        &self,
        value: T,
        begun: Begun<'_, T, K>,
        deadline_ns: Option<u64>,
    ) -> Result<(), SendError<T>> {
        let waiting = match Waiting::at::<K>(deadline_ns) {
            Ok(waiting) => waiting,
            Err(reason) => {
                drop(begun);
                return self.send_here(value, reason);
            }
        };
        let Err(failed) = self.channel.send_on(value, begun, &waiting) else {
            waiting.take_turn();
            return Ok(());
        };
        let reason = waiting
            .result(failed.reason)
            .err()
            .unwrap_or(WaitError::Closed);
        Err(SendError {
            value: failed.value,
            reason,
        })
    }

    /// Sends where nothing may wait; `reason` says why not.
    #[cold]
    fn send_here(&self, value: T, reason: WaitError) -> Result<(), SendError<T>> {
        self.channel.try_send(value).map_err(|error| match error {
            TrySend::Full(value) => SendError { value, reason },
            TrySend::Closed(value) => SendError {
                value,
                reason: WaitError::Closed,
            },
        })
    }

    /// Closes the channel for all ends: those who wait are woken, what is buffered is still received.
    /// False if it was closed already.
    pub fn close(&self) -> bool {
        self.channel.close()
    }

    /// Whether the channel is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.channel.is_closed()
    }

    /// How many values are buffered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.channel.len()
    }

    /// Whether nothing is buffered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channel.is_empty()
    }

    /// How many values can be buffered; `None` if any number.
    #[must_use]
    pub fn capacity(&self) -> Option<usize> {
        self.channel.capacity()
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
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// The receiving end. Clones share what comes: each value goes to one of them.
///
/// `K` says whose parties share the channel, see [`kinds`](crate::sync::kinds).
pub struct Receiver<T, K: Sharing = Shared> {
    channel: K::Ref<Channel<T, K>>,
}

impl<T> Receiver<T> {
    pub(crate) fn channel(&self) -> &Channel<T> {
        &self.channel
    }
}

impl<T, K: Sharing> Receiver<T, K> {
    /// To receive, as one of several things of which one happens: an arm of a [`select`](crate::sync::select).
    ///
    /// An arm that is woken for a value which another takes before it looks is the first in line again, 16 times at most; then one
    /// value is reserved for it from its wake on.
    pub fn recv_arm(&self) -> RecvArm<'_, T, K> {
        RecvArm::new(&self.channel)
    }

    /// Receives a value.
    ///
    /// # Suspends
    ///
    /// While nothing is there.
    ///
    /// # Cancellation
    ///
    /// Ends early; nothing was taken.
    ///
    /// # Errors
    ///
    /// `Closed` when nothing is there and nothing will come; `Cancelled`; `State` on a scheduler's own frame; `Deadlock` on a plain
    /// thread if the channel is of one thread and empty.
    #[inline(always)]
    pub fn recv(&self) -> Result<T, WaitError> {
        let Some(party) = Brisk::here() else {
            return self.recv_within(None);
        };
        let begun = match self.channel.recv_begin() {
            Ok(value) => {
                party.take_turn(Course::AtOnce);
                return Ok(value);
            }
            Err(begun) => begun,
        };
        match self.channel.recv_on_by(begun, party, &party) {
            Ok((value, course)) => {
                party.take_turn(course);
                Ok(value)
            }
            Err(reason) => Err(party.error(reason)),
        }
    }

    /// As [`Receiver::recv`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Receiver::recv`]; `Timeout` when the time is up.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, WaitError> {
        self.recv_until(|| clock::after_ns(timeout))
    }

    /// As [`Receiver::recv`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Receiver::recv`]; `Timeout` at the deadline.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, WaitError> {
        self.recv_until(|| clock::instant_ns(deadline))
    }

    /// Receives a value if one is there.
    ///
    /// # Errors
    ///
    /// `Empty` or `Closed`.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.channel.try_recv().map_err(|error| match error {
            TryRecv::Empty => TryRecvError::Empty,
            TryRecv::Closed => TryRecvError::Closed,
        })
    }

    /// Tries before it looks at the clock.
    fn recv_until(&self, deadline_ns: impl FnOnce() -> u64) -> Result<T, WaitError> {
        match self.channel.try_recv() {
            Ok(value) => {
                current::take_turn();
                Ok(value)
            }
            Err(TryRecv::Closed) => Err(WaitError::Closed),
            Err(TryRecv::Empty) => self.recv_within(Some(deadline_ns())),
        }
    }

    #[inline(never)]
    fn recv_within(&self, deadline_ns: Option<u64>) -> Result<T, WaitError> {
        current::check_call();
        match self.channel.recv_begin() {
            Ok(value) => {
                current::take_turn();
                Ok(value)
            }
            Err(begun) => self.recv_on(begun, deadline_ns),
        }
    }

    /// Goes on with a receive that has the channel's lock, and may have to wait.
    ///
    /// PERF: as [`Sender::send_on`].
    #[inline(never)]
    fn recv_on(&self, begun: Begun<'_, T, K>, deadline_ns: Option<u64>) -> Result<T, WaitError> {
        let waiting = match Waiting::at::<K>(deadline_ns) {
            Ok(waiting) => waiting,
            Err(reason) => {
                drop(begun);
                return self.recv_here(reason);
            }
        };
        match self.channel.recv_on(begun, &waiting) {
            Ok(value) => {
                waiting.take_turn();
                Ok(value)
            }
            Err(Reason::Woken) => Err(WaitError::Closed),
            Err(reason) => Err(waiting.result(reason).err().unwrap_or(WaitError::Closed)),
        }
    }

    /// Receives where nothing may wait; `reason` says why not.
    #[cold]
    fn recv_here(&self, reason: WaitError) -> Result<T, WaitError> {
        self.channel.try_recv().map_err(|error| match error {
            TryRecv::Empty => reason,
            TryRecv::Closed => WaitError::Closed,
        })
    }

    /// An iterator that receives until the channel is closed and empty, or the coroutine is cancelled.
    pub fn iter(&self) -> Iter<'_, T, K> {
        Iter { receiver: self }
    }

    /// An iterator over what is there now: it never waits.
    pub fn try_iter(&self) -> TryIter<'_, T, K> {
        TryIter { receiver: self }
    }

    /// Closes the channel for all ends: those who wait are woken, what is buffered is still received.
    /// False if it was closed already.
    pub fn close(&self) -> bool {
        self.channel.close()
    }

    /// Whether the channel is closed. What is buffered can still be received.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.channel.is_closed()
    }

    /// How many values are buffered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.channel.len()
    }

    /// Whether nothing is buffered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.channel.is_empty()
    }

    /// How many values can be buffered; `None` if any number.
    #[must_use]
    pub fn capacity(&self) -> Option<usize> {
        self.channel.capacity()
    }
}

impl<T, K: Sharing> Clone for Receiver<T, K> {
    fn clone(&self) -> Self {
        self.channel.add_receiver();
        Self {
            channel: self.channel.clone(),
        }
    }
}

impl<T, K: Sharing> Drop for Receiver<T, K> {
    fn drop(&mut self) {
        self.channel.remove_receiver();
    }
}

impl<T, K: Sharing> fmt::Debug for Receiver<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// Receives until the channel is closed and empty. Made by [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T, K: Sharing = Shared> {
    receiver: &'a Receiver<T, K>,
}

impl<T, K: Sharing> Iterator for Iter<'_, T, K> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T, K: Sharing> FusedIterator for Iter<'_, T, K> {}

impl<'a, T, K: Sharing> IntoIterator for &'a Receiver<T, K> {
    type Item = T;
    type IntoIter = Iter<'a, T, K>;

    fn into_iter(self) -> Iter<'a, T, K> {
        self.iter()
    }
}

/// What is there now. Made by [`Receiver::try_iter`].
#[derive(Debug)]
pub struct TryIter<'a, T, K: Sharing = Shared> {
    receiver: &'a Receiver<T, K>,
}

impl<T, K: Sharing> Iterator for TryIter<'_, T, K> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

/// Receives until the channel is closed and empty; owns the receiver.
#[derive(Debug)]
pub struct IntoIter<T, K: Sharing = Shared> {
    receiver: Receiver<T, K>,
}

impl<T, K: Sharing> Iterator for IntoIter<T, K> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T, K: Sharing> FusedIterator for IntoIter<T, K> {}

impl<T, K: Sharing> IntoIterator for Receiver<T, K> {
    type Item = T;
    type IntoIter = IntoIter<T, K>;

    fn into_iter(self) -> IntoIter<T, K> {
        IntoIter { receiver: self }
    }
}
