//! A channel's ends for futures: the same queues, with a [`Polled`] party in them.
//!
//! Owns: nothing. Any thread.
//!
//! A future that is dropped after a value was handed over to it gives the value back: to the first waiting receiver, or
//! before everything that is buffered. There it may be one more than the limit; no sender comes in before that is made up for.
//! (Of several that come back the last one is first.)
#![expect(unsafe_code, reason = "links polled parties into the channel's queues")]

use core::mem;
use core::task::{Poll, Waker};

use super::{Channel, Got, Put, Ring, SendFailed, TryRecv, TrySend, exchange};
use crate::wait::{Left, Polled, Reason};

impl<T> Channel<T> {
    /// Receives a value, or has `waker` called when it is worth to ask again. The same `party` is given until it is ready.
    ///
    /// # Errors
    ///
    /// [`Reason::Closed`] if the channel is closed and nothing is left.
    pub fn poll_recv(&self, party: &mut Polled<T>, waker: &Waker) -> Poll<Result<T, Reason>> {
        if party.is_waiting() {
            return party.poll(waker).map(|reason| party.take().ok_or(reason));
        }
        match self.try_recv() {
            Ok(value) => return Poll::Ready(Ok(value)),
            Err(TryRecv::Closed) => return Poll::Ready(Err(Reason::Closed)),
            Err(TryRecv::Empty) => {}
        }
        party.prepare(waker);
        match self.get() {
            Got::Value(value) => Poll::Ready(Ok(value)),
            Got::Closed => Poll::Ready(Err(Reason::Closed)),
            Got::Empty(mut state) => {
                // SAFETY: under the lock; receivers wait with a slot for a T.
                unsafe { party.link(&mut state.receivers, None) };
                Poll::Pending
            }
        }
    }

    /// Gives a [`poll_recv`](Self::poll_recv) up that was not ready. A value that was handed over meanwhile stays in the channel.
    pub fn leave_recv(&self, party: &mut Polled<T>) {
        // SAFETY: receivers of this channel are in this queue.
        let (_, value) = unsafe { party.leave(&self.state, |state| &mut state.receivers) };
        if let Some(value) = value {
            self.give_back(value);
        }
    }

    /// Sends the value, or has `waker` called when it is worth to ask again. The same `party` is given until it is ready. The value is
    /// taken at the first call.
    ///
    /// # Errors
    ///
    /// The value comes back if the channel is or becomes closed.
    ///
    /// # Panics
    ///
    /// Panics if there is neither a value nor a wait that has begun.
    pub fn poll_send(
        &self,
        party: &mut Polled<T>,
        value: &mut Option<T>,
        waker: &Waker,
    ) -> Poll<Result<(), SendFailed<T>>> {
        if party.is_waiting() {
            return party.poll(waker).map(|reason| match party.take() {
                None => Ok(()),
                Some(value) => Err(SendFailed { value, reason }),
            });
        }
        let taken = value.take().expect("a value is sent once");
        match self.try_send(taken) {
            Ok(()) => return Poll::Ready(Ok(())),
            Err(TrySend::Closed(value)) => return closed(value),
            // Kept there, in case that the waker's clone panics.
            Err(TrySend::Full(back)) => *value = Some(back),
        }
        party.prepare(waker);
        let taken = value.take().expect("it was just put back");
        match self.put(taken) {
            Put::Done => Poll::Ready(Ok(())),
            Put::Closed(value) => closed(value),
            Put::Full(value, mut state) => {
                // SAFETY: under the lock; senders wait with their value in the slot.
                unsafe { party.link(&mut state.senders, Some(value)) };
                Poll::Pending
            }
        }
    }

    /// Gives a [`poll_send`](Self::poll_send) up that was not ready. The value comes back unless a receiver has it.
    pub fn leave_send(&self, party: &mut Polled<T>) -> Option<T> {
        // SAFETY: senders of this channel are in this queue.
        let (left, value) = unsafe { party.leave(&self.state, |state| &mut state.senders) };
        debug_assert!(
            left != Left::Claimed(Reason::Woken) || value.is_none(),
            "a sender is woken when its value was taken"
        );
        value
    }

    /// Puts a value that was received back to where it came from.
    #[cold]
    fn give_back(&self, value: T) {
        let mut value = value;
        let mut ring = None;
        loop {
            let mut state = self.state.lock();
            if let Some(receiver) = state.receivers.claim_front(Reason::Woken) {
                // SAFETY: claimed from the receivers of this channel.
                let before = unsafe { exchange(&receiver, Some(value)) };
                debug_assert!(before.is_none(), "a receiver waits with an empty slot");
                mem::forget(before);
                drop(state);
                receiver.wake();
                return;
            }
            let Err(back) = state.buffer.push_front(value) else {
                return;
            };
            if let Some(ring) = ring {
                let unneeded = state.buffer.adopt_front(ring, back);
                drop(state);
                drop(unneeded);
                return;
            }
            drop(state);
            value = back;
            ring = Some(Ring::boxed(1));
        }
    }
}

fn closed<T>(value: T) -> Poll<Result<(), SendFailed<T>>> {
    Poll::Ready(Err(SendFailed {
        value,
        reason: Reason::Closed,
    }))
}
