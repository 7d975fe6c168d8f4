//! An event's wait for futures.
//!
//! Owns: nothing. Any thread.
#![expect(unsafe_code, reason = "links polled parties into the event's queue")]

use core::task::{Poll, Waker};

use super::RawEvent;
use crate::wait::{Left, Polled, Reason};

impl RawEvent {
    /// Takes a signal, or has `waker` called when it is worth to ask again. The same `party` is given until it is ready. Who is ready has
    /// the signal.
    pub fn poll_wait(&self, party: &mut Polled<()>, waker: &Waker) -> Poll<()> {
        if party.is_waiting() {
            // Nobody claims a waiter of an event but to give it a signal.
            return party.poll(waker).map(|_| ());
        }
        if self.try_wait() {
            return Poll::Ready(());
        }
        party.prepare(waker);
        let mut state = self.state.lock();
        if self.take(&mut state) {
            return Poll::Ready(());
        }
        // SAFETY: under the lock; slots are not used.
        unsafe { party.link(&mut state.waiters, None) };
        Poll::Pending
    }

    /// Gives a [`poll_wait`](Self::poll_wait) up that was not ready. A signal that was meant for it goes to the next party.
    pub fn leave_wait(&self, party: &mut Polled<()>) {
        // SAFETY: waiters of this event are in this queue.
        let (left, _) = unsafe { party.leave(&self.state, |state| &mut state.waiters) };
        if left == Left::Claimed(Reason::Woken) {
            self.give_back();
        }
    }
}
