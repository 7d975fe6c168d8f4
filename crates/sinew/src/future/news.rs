//! The waits of channels for one value, of broadcasts and of watches as futures.
//!
//! Owns: each future's party. Any thread may poll.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use sinew_core::wait::Polled;

use super::RecvFuture;
use crate::error::WaitError;
use crate::sync::channel::{broadcast, oneshot, watch};

impl<T> oneshot::Receiver<T> {
    /// Receives the value. Polling it suspends nothing, and may be done anywhere.
    ///
    /// Dropped before it is ready, it has taken nothing: the value can still be received.
    ///
    /// # Errors
    ///
    /// `Closed` if the sender has gone without sending, or the value has been received before.
    pub fn recv_async(&self) -> RecvFuture<'_, T> {
        self.inner().recv_async()
    }
}

/// The next value of a broadcast. Made by [`broadcast::Receiver::recv_async`].
///
/// Dropped before it is ready, it has taken nothing.
#[must_use = "a future does nothing unless it is polled"]
pub struct BroadcastFuture<'a, T> {
    receiver: &'a mut broadcast::Receiver<T>,
    party: Polled<()>,
}

impl<T: Clone> broadcast::Receiver<T> {
    /// Receives the next value. Polling it suspends nothing, and may be done anywhere.
    ///
    /// It takes the receiver for itself, so that it goes from thread to thread as the receiver does.
    ///
    /// # Errors
    ///
    /// See [`RecvError`](broadcast::RecvError): what was lost, or `Closed`.
    ///
    /// # Examples
    ///
    /// ```
    /// let (sender, mut receiver) = sinew::sync::channel::broadcast(4);
    /// sender.send(1).unwrap();
    /// assert_eq!(sinew::block_on(receiver.recv_async()).unwrap(), Ok(1));
    /// ```
    pub fn recv_async(&mut self) -> BroadcastFuture<'_, T> {
        BroadcastFuture {
            receiver: self,
            party: Polled::new(super::call),
        }
    }
}

impl<T: Clone> Future for BroadcastFuture<'_, T> {
    type Output = Result<T, broadcast::RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if !this.party.is_waiting() {
            ready!(super::take_turn(context));
        }
        this.receiver.poll_recv(&mut this.party, context.waker())
    }
}

impl<T> Drop for BroadcastFuture<'_, T> {
    fn drop(&mut self) {
        self.receiver.leave_recv(&mut self.party);
    }
}

impl<T> fmt::Debug for BroadcastFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BroadcastFuture").finish_non_exhaustive()
    }
}

/// A value of a watch that was not seen. Made by [`watch::Receiver::changed_async`].
///
/// Dropped before it is ready, it has taken nothing for seen.
#[must_use = "a future does nothing unless it is polled"]
pub struct ChangeFuture<'a, T> {
    receiver: &'a mut watch::Receiver<T>,
    party: Polled<()>,
}

impl<T> watch::Receiver<T> {
    /// Waits until there is a value that was not seen; it is taken for seen then. Polling it suspends nothing, and may be done
    /// anywhere.
    ///
    /// It takes the receiver for itself, so that it goes from thread to thread as the receiver does.
    ///
    /// # Errors
    ///
    /// `Closed` when there will be no other value.
    ///
    /// # Examples
    ///
    /// ```
    /// let (sender, mut receiver) = sinew::sync::channel::watch(1);
    /// sender.send(2).unwrap();
    /// sinew::block_on(receiver.changed_async()).unwrap().unwrap();
    /// assert_eq!(*receiver.get(), 2);
    /// ```
    pub fn changed_async(&mut self) -> ChangeFuture<'_, T> {
        ChangeFuture {
            receiver: self,
            party: Polled::new(super::call),
        }
    }
}

impl<T> Future for ChangeFuture<'_, T> {
    type Output = Result<(), WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if !this.party.is_waiting() {
            ready!(super::take_turn(context));
        }
        this.receiver.poll_changed(&mut this.party, context.waker())
    }
}

impl<T> Drop for ChangeFuture<'_, T> {
    fn drop(&mut self) {
        self.receiver.leave_changed(&mut self.party);
    }
}

impl<T> fmt::Debug for ChangeFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeFuture").finish_non_exhaustive()
    }
}
