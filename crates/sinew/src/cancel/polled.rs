//! A token's wait for futures.
//!
//! Owns: nothing. Any thread.
#![expect(unsafe_code, reason = "links polled parties into the token's queue")]

use std::sync::atomic::Ordering::Acquire;
use std::task::{Poll, Waker};

use sinew_core::wait::Polled;

use super::CancelToken;

impl CancelToken {
    pub(crate) fn poll_fired(&self, party: &mut Polled<()>, waker: &Waker) -> Poll<()> {
        if party.is_waiting() {
            return party.poll(waker).map(|_| ());
        }
        if self.is_cancelled() {
            return Poll::Ready(());
        }
        party.prepare(waker);
        let mut queue = self.shared.waiters.lock();
        // ORDERING: Acquire, under the lock: `fire_one` sets the flag before it takes the lock to wake.
        if self.shared.fired.load(Acquire) {
            return Poll::Ready(());
        }
        // SAFETY: under the lock; the waiters' slots are not used.
        unsafe { party.link(&mut queue, None) };
        Poll::Pending
    }

    pub(crate) fn leave(&self, party: &mut Polled<()>) {
        // SAFETY: waiters of this token are in this queue. Nothing was handed over.
        let _ = unsafe { party.leave(&self.shared.waiters, |queue| queue) };
    }
}
