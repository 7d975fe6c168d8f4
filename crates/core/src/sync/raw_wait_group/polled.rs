//! A wait group's wait for futures.
//!
//! Owns: nothing. Any thread.
#![expect(unsafe_code, reason = "links polled parties into the group's queue")]

use core::task::{Poll, Waker};

use super::RawWaitGroup;
use crate::wait::Polled;

impl RawWaitGroup {
    /// Says whether the count is zero or has been since the first call, or has `waker` called when it is worth to ask again. The same
    /// `party` is given until it is ready.
    pub fn poll_wait(&self, party: &mut Polled<()>, waker: &Waker) -> Poll<()> {
        if party.is_waiting() {
            // Nobody claims a waiter of a group but at zero.
            return party.poll(waker).map(|_| ());
        }
        if self.count() == 0 {
            return Poll::Ready(());
        }
        party.prepare(waker);
        let mut state = self.state.lock();
        if state.count == 0 {
            return Poll::Ready(());
        }
        // SAFETY: under the lock; slots are not used.
        unsafe { party.link(&mut state.waiters, None) };
        Poll::Pending
    }

    /// Gives a [`poll_wait`](Self::poll_wait) up that was not ready.
    pub fn leave_wait(&self, party: &mut Polled<()>) {
        // SAFETY: waiters of this group are in this queue. Nothing was handed over.
        let _ = unsafe { party.leave(&self.state, |state| &mut state.waiters) };
    }
}
