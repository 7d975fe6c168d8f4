//! A watch's receiver for futures.
//!
//! Owns: nothing. Any thread. A party is only told to look, so one that leaves passes nothing on.
#![expect(unsafe_code, reason = "links polled parties into the watch's queue")]

use core::cell::Cell;
use core::task::{Poll, Waker, ready};

use super::RawWatch;
use crate::wait::{Polled, Reason};

impl<T> RawWatch<T> {
    /// Takes another version than the one seen for seen, or has `waker` called when it is worth to ask again. The same `party` is
    /// given until it is ready.
    ///
    /// # Errors
    ///
    /// [`Reason::Closed`] if the watch is closed and its last version was seen.
    pub fn poll_changed(
        &self,
        seen: &Cell<u64>,
        party: &mut Polled<()>,
        waker: &Waker,
    ) -> Poll<Result<(), Reason>> {
        let of = |found| match found {
            Reason::Woken => Poll::Ready(Ok(())),
            reason => Poll::Ready(Err(reason)),
        };
        if party.is_waiting() {
            ready!(party.poll(waker));
        }
        let found = self.state.lock().look(seen);
        if let Some(found) = found {
            return of(found);
        }
        party.prepare(waker);
        let mut state = self.state.lock();
        if let Some(found) = state.look(seen) {
            return of(found);
        }
        // SAFETY: under the lock; slots are not used.
        unsafe { party.link(&mut state.waiters, None) };
        Poll::Pending
    }

    /// Gives a [`poll_changed`](Self::poll_changed) up that was not ready.
    pub fn leave_changed(&self, party: &mut Polled<()>) {
        // SAFETY: waiters of this watch are in this queue. Nothing was handed over.
        let _ = unsafe { party.leave(&self.state, |state| &mut state.waiters) };
    }
}
