//! A promise's wait for futures.
//!
//! Owns: nothing. Any thread.
#![expect(unsafe_code, reason = "links polled parties into the promise's queue")]

use core::task::{Poll, Waker};

use super::{Chained, RawPromise};
use crate::wait::Polled;

impl<V, C: Chained> RawPromise<V, C> {
    /// Says whether there is a value, or has `waker` called when it is worth to ask again. The same `party` is given until it is ready.
    #[inline]
    pub fn poll_wait(&self, party: &mut Polled<()>, waker: &Waker) -> Poll<()> {
        if self.end().is_some() && !party.is_waiting() {
            return Poll::Ready(());
        }
        self.poll_wait_slow(party, waker)
    }

    #[cold]
    fn poll_wait_slow(&self, party: &mut Polled<()>, waker: &Waker) -> Poll<()> {
        if party.is_waiting() {
            return party.poll(waker).map(|_| ());
        }
        party.prepare(waker);
        let mut list = self.list.lock();
        if self.is_done_or_waited() {
            return Poll::Ready(());
        }
        // SAFETY: under the lock; slots are not used.
        unsafe { party.link(&mut list.waiters, None) };
        Poll::Pending
    }

    /// Gives a [`poll_wait`](Self::poll_wait) up that was not ready.
    pub fn leave_wait(&self, party: &mut Polled<()>) {
        // SAFETY: waiters of this promise are in this queue. Nothing was handed over.
        let _ = unsafe { party.leave(&self.list, |list| &mut list.waiters) };
    }
}
