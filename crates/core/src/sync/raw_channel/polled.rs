//! A channel's ends for futures: the same queues, with a [`Polled`] party in them.
//!
//! Owns: nothing. Any thread.
//!
//! A receiving future is given nothing: it is told that something is there, and takes it when it is polled. So a rendezvous' sender
//! goes on when the value has been taken, and there is nothing that a dropped future would have to give back; it tells the next.
//! A sending future lends its value to the queue as any sender does.
#![expect(unsafe_code, reason = "links polled parties into the channel's queues")]

use core::ptr;
use core::task::{Poll, Waker, ready};

use super::telling::wake;
use super::turns::Turn;
use super::{Channel, Got, Put, SendFailed, TryRecv, TrySend};
use crate::wait::{Call, Left, Polled, Reason};

/// A party that receives by being polled: its place in the queue, and how often others were faster.
#[derive(Debug)]
pub struct RecvParty {
    seat: Polled<()>,
    turn: Turn,
}

impl RecvParty {
    /// A party that does not wait. Allocates nothing.
    #[must_use]
    pub const fn new(call: Call) -> Self {
        Self {
            seat: Polled::new(call),
            turn: Turn::new(),
        }
    }

    /// Whether it is in a queue, or was claimed from one and has not looked since.
    #[inline]
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.seat.is_waiting()
    }
}

impl<T> Channel<T> {
    /// Receives a value, or has `waker` called when it is worth to ask again. The same `party` is given until it is ready.
    ///
    /// # Errors
    ///
    /// [`Reason::Closed`] if the channel is closed and nothing is left.
    pub fn poll_recv(&self, party: &mut RecvParty, waker: &Waker) -> Poll<Result<T, Reason>> {
        let RecvParty { seat, turn } = party;
        let was_told = seat.is_waiting();
        if was_told {
            // Any other reason than its being told is seen below.
            let reason = ready!(seat.poll(waker));
            turn.end(reason);
            match self.get_told(turn) {
                Got::Value(value) => return Poll::Ready(Ok(value)),
                Got::Closed => return Poll::Ready(Err(Reason::Closed)),
                Got::Empty(guard) => drop(guard),
            }
        } else {
            match self.try_recv() {
                Ok(value) => return Poll::Ready(Ok(value)),
                Err(TryRecv::Closed) => return Poll::Ready(Err(Reason::Closed)),
                Err(TryRecv::Empty) => {}
            }
        }
        seat.prepare(waker);
        match self.get() {
            Got::Value(value) => {
                *turn = Turn::new();
                Poll::Ready(Ok(value))
            }
            Got::Closed => Poll::Ready(Err(Reason::Closed)),
            Got::Empty(mut state) => {
                let mark = turn.slot_or(ptr::null_mut());
                // SAFETY: under the lock; receivers without a slot are given nothing.
                unsafe { seat.link_bare(&mut state.receivers, was_told, mark) };
                Poll::Pending
            }
        }
    }

    /// Gives a [`poll_recv`](Self::poll_recv) up that was not ready. If it was told of a value the next receiver is.
    pub fn leave_recv(&self, party: &mut RecvParty) {
        let RecvParty { seat, turn } = party;
        // SAFETY: receivers of this channel are in this queue.
        let (left, _) = unsafe { seat.leave(&self.state, |state| &mut state.receivers) };
        if let Left::Claimed(reason) = left {
            turn.end(reason);
            self.give_up(turn);
            self.tell_next();
        }
        *turn = Turn::new();
    }

    /// Tells the first receiver of what another was told of.
    #[cold]
    fn tell_next(&self) {
        let mut state = self.state.lock();
        if state.receivers.is_empty() || !state.has_values() {
            return;
        }
        let told = state.tell();
        drop(state);
        wake(told);
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
                let told = state.tell();
                drop(state);
                wake(told);
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
}

fn closed<T>(value: T) -> Poll<Result<(), SendFailed<T>>> {
    Poll::Ready(Err(SendFailed {
        value,
        reason: Reason::Closed,
    }))
}
