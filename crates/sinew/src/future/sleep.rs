//! Time to pass, for futures.
//!
//! Owns: the point in time, and a cancel token that fires then. Thread: any.
//!
//! A scheduler's timers are its coroutines'. The deadlines of tokens are those of the process, so such a future can be polled, moved and
//! dropped anywhere, as the timers of async libraries have to be.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use sinew_core::wait::Polled;

use crate::cancel::CancelToken;
use crate::sys::clock;

/// Time to pass. Made by [`sleep_async`] and [`sleep_until_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct SleepFuture {
    deadline_ns: u64,
    /// Made by the first poll that is pending.
    token: Option<CancelToken>,
    party: Polled<()>,
}

/// As [`sleep`](crate::sleep), as a future: it is ready when `duration` is over, counted from now. Polling it suspends nothing, and may be
/// done anywhere.
pub fn sleep_async(duration: Duration) -> SleepFuture {
    SleepFuture::until_ns(clock::after_ns(duration))
}

/// As [`sleep_until`](crate::sleep_until), as a future. See [`sleep_async`].
pub fn sleep_until_async(deadline: Instant) -> SleepFuture {
    SleepFuture::until_ns(clock::instant_ns(deadline))
}

impl SleepFuture {
    const fn until_ns(deadline_ns: u64) -> Self {
        Self {
            deadline_ns,
            token: None,
            party: Polled::new(super::call),
        }
    }
}

impl Future for SleepFuture {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if clock::now_ns() >= this.deadline_ns {
            return Poll::Ready(());
        }
        let deadline_ns = this.deadline_ns;
        let token = this
            .token
            .get_or_insert_with(|| CancelToken::with_deadline(clock::to_instant(deadline_ns)));
        token.poll_fired(&mut this.party, context.waker())
    }
}

impl Drop for SleepFuture {
    fn drop(&mut self) {
        if let Some(token) = &self.token {
            token.leave(&mut self.party);
        }
    }
}

impl fmt::Debug for SleepFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SleepFuture")
            .field("deadline", &clock::to_instant(self.deadline_ns))
            .finish_non_exhaustive()
    }
}
