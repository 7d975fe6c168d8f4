//! A broadcast's receiver for futures.
//!
//! Owns: nothing. Any thread. What a party is woken for it takes for itself, so one that leaves passes nothing on.
#![expect(
    unsafe_code,
    reason = "links polled parties into the broadcast's queue"
)]

use core::cell::Cell;
use core::task::{Poll, Waker, ready};

use super::{Broadcast, Missing, News};
use crate::wait::Polled;

impl<T> Broadcast<T> {
    /// Receives what comes next at this position, or has `waker` called when it is worth to ask again. The same `party` is given
    /// until it is ready.
    ///
    /// # Errors
    ///
    /// [`Missing`] if values were lost, or the broadcast is closed and all were received; never [`Missing::Empty`].
    pub fn poll_recv(
        &self,
        position: &Cell<u64>,
        party: &mut Polled<()>,
        waker: &Waker,
    ) -> Poll<Result<News<T>, Missing>> {
        if party.is_waiting() {
            // Why it was woken is seen below; if another has received at this position meanwhile, it waits again.
            ready!(party.poll(waker));
        }
        match self.try_recv(position) {
            Err(Missing::Empty) => {}
            result => return Poll::Ready(result),
        }
        party.prepare(waker);
        let mut state = self.state.lock();
        match state.get(position, self.places) {
            Err(Missing::Empty) => {}
            result => return Poll::Ready(result),
        }
        // SAFETY: under the lock; slots are not used.
        unsafe { party.link(&mut state.waiters, None) };
        Poll::Pending
    }

    /// Gives a [`poll_recv`](Self::poll_recv) up that was not ready.
    pub fn leave_recv(&self, party: &mut Polled<()>) {
        // SAFETY: waiters of this broadcast are in this queue. Nothing was handed over.
        let _ = unsafe { party.leave(&self.state, |state| &mut state.waiters) };
    }
}
