//! The waits of channels, events, wait groups and cancel tokens as futures.
//!
//! Owns: each future's party. Any thread may poll.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use sinew_core::sync::{Channel, RawEvent, RawWaitGroup, RecvParty};
use sinew_core::wait::Polled;

use crate::cancel::CancelToken;
use crate::error::WaitError;
use crate::event::Event;
use crate::sync::WaitGroup;
use crate::sync::channel::{Receiver, SendError, Sender};

/// A value to come from a channel. Made by [`Receiver::recv_async`].
///
/// It takes its value when it is polled, not before: until then the value is in the buffer or, at a rendezvous, with its sender, who
/// waits. So one that is dropped has taken nothing, and whoever was told that a value was taken was told the truth; the next in
/// line is woken in its place.
///
/// A receive that comes between the future's wake and its poll may be served before it; the future is then the first in line again.
/// That happens 16 times at most: then one value is reserved for it from its wake on, and others find the channel empty rather than take
/// the last one. A future that was woken and is neither polled nor dropped thereby keeps one value that is there from others, until
/// the channel is closed.
#[must_use = "a future does nothing unless it is polled"]
pub struct RecvFuture<'a, T> {
    channel: &'a Channel<T>,
    party: RecvParty,
}

impl<T> Receiver<T> {
    /// Receives a value.
    ///
    /// A value goes before the channel's being closed. Polling it suspends nothing, and may be done anywhere.
    ///
    /// # Errors
    ///
    /// `Closed` when nothing is there and nothing will come.
    ///
    /// # Examples
    ///
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::bounded(1);
    /// let sending = std::thread::spawn(move || sender.send("from a thread").unwrap());
    /// let received = sinew::block_on(receiver.recv_async()).unwrap();
    /// assert_eq!(received, Ok("from a thread"));
    /// sending.join().unwrap();
    /// ```
    pub fn recv_async(&self) -> RecvFuture<'_, T> {
        RecvFuture {
            channel: self.channel(),
            party: RecvParty::new(super::call),
        }
    }
}

impl<T> Future for RecvFuture<'_, T> {
    type Output = Result<T, WaitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.party.is_waiting() {
            ready!(super::take_turn(context));
        }
        let channel = self.channel;
        channel
            .poll_recv(&mut self.party, context.waker())
            .map_err(|_| WaitError::Closed)
    }
}

impl<T> Unpin for RecvFuture<'_, T> {}

impl<T> Drop for RecvFuture<'_, T> {
    fn drop(&mut self) {
        self.channel.leave_recv(&mut self.party);
    }
}

impl<T> fmt::Debug for RecvFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvFuture").finish_non_exhaustive()
    }
}

/// A value on its way into a channel. Made by [`Sender::send_async`].
///
/// Dropped before it is ready, it either has sent the value (a receiver took it meanwhile) or drops it.
/// [`SendFuture::give_up`] tells which.
#[must_use = "a future does nothing unless it is polled"]
pub struct SendFuture<'a, T> {
    channel: &'a Channel<T>,
    value: Option<T>,
    party: Polled<T>,
}

impl<T> Sender<T> {
    /// Sends a value.
    ///
    /// Polling it suspends nothing, and may be done anywhere.
    ///
    /// # Errors
    ///
    /// [`SendError`] with the value when the channel is closed.
    ///
    /// # Examples
    ///
    /// ```
    /// let (sender, receiver) = sinew::sync::channel::rendezvous();
    /// let receiving = std::thread::spawn(move || receiver.recv());
    /// sinew::block_on(sender.send_async(1)).unwrap().unwrap();
    /// assert_eq!(receiving.join().unwrap(), Ok(1));
    /// ```
    pub fn send_async(&self, value: T) -> SendFuture<'_, T> {
        SendFuture {
            channel: self.channel(),
            value: Some(value),
            party: Polled::new(super::call),
        }
    }
}

impl<T> SendFuture<'_, T> {
    /// Does not send the value after all, and gives it back; `None` if it was sent already.
    #[must_use = "the value may come back"]
    pub fn give_up(mut self) -> Option<T> {
        self.value
            .take()
            .or_else(|| self.channel.leave_send(&mut self.party))
    }
}

impl<T> Future for SendFuture<'_, T> {
    type Output = Result<(), SendError<T>>;

    /// # Panics
    ///
    /// If it was ready before.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if !this.party.is_waiting() {
            ready!(super::take_turn(context));
        }
        this.channel
            .poll_send(&mut this.party, &mut this.value, context.waker())
            .map_err(|failed| SendError {
                value: failed.value,
                reason: WaitError::Closed,
            })
    }
}

impl<T> Unpin for SendFuture<'_, T> {}

impl<T> Drop for SendFuture<'_, T> {
    fn drop(&mut self) {
        drop(self.channel.leave_send(&mut self.party));
    }
}

impl<T> fmt::Debug for SendFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendFuture").finish_non_exhaustive()
    }
}

/// A signal to come. Made by [`Event::wait_async`].
///
/// Dropped before it is ready, it has taken no signal: one that was on its way to it goes to the next in line.
#[must_use = "a future does nothing unless it is polled"]
pub struct EventFuture<'a> {
    event: &'a RawEvent,
    party: Polled<()>,
}

impl Event {
    /// Waits for a signal; an auto-reset event is reset by that. Polling it suspends nothing, and may be done anywhere.
    pub fn wait_async(&self) -> EventFuture<'_> {
        EventFuture {
            event: self.raw(),
            party: Polled::new(super::call),
        }
    }
}

impl Future for EventFuture<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if !self.party.is_waiting() {
            ready!(super::take_turn(context));
        }
        let event = self.event;
        event.poll_wait(&mut self.party, context.waker())
    }
}

impl Drop for EventFuture<'_> {
    fn drop(&mut self) {
        self.event.leave_wait(&mut self.party);
    }
}

impl fmt::Debug for EventFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventFuture").finish_non_exhaustive()
    }
}

/// A wait group's count to reach zero. Made by [`WaitGroup::wait_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct WaitGroupFuture<'a> {
    group: &'a RawWaitGroup,
    party: Polled<()>,
}

impl WaitGroup {
    /// Waits until the count is zero. Polling it suspends nothing, and may be done anywhere.
    pub fn wait_async(&self) -> WaitGroupFuture<'_> {
        WaitGroupFuture {
            group: self.raw(),
            party: Polled::new(super::call),
        }
    }
}

impl Future for WaitGroupFuture<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let group = self.group;
        group.poll_wait(&mut self.party, context.waker())
    }
}

impl Drop for WaitGroupFuture<'_> {
    fn drop(&mut self) {
        self.group.leave_wait(&mut self.party);
    }
}

impl fmt::Debug for WaitGroupFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitGroupFuture").finish_non_exhaustive()
    }
}

/// A cancel token to fire. Made by [`CancelToken::wait_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct CancelFuture<'a> {
    token: &'a CancelToken,
    party: Polled<()>,
}

impl CancelToken {
    /// Waits until the token fires. Polling it suspends nothing, and may be done anywhere.
    pub fn wait_async(&self) -> CancelFuture<'_> {
        CancelFuture {
            token: self,
            party: Polled::new(super::call),
        }
    }
}

impl Future for CancelFuture<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let token = self.token;
        token.poll_fired(&mut self.party, context.waker())
    }
}

impl Drop for CancelFuture<'_> {
    fn drop(&mut self) {
        self.token.leave(&mut self.party);
    }
}

impl fmt::Debug for CancelFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelFuture")
            .field("token", self.token)
            .finish_non_exhaustive()
    }
}
