//! A join handle as a future.
//!
//! Owns: the handle until the coroutine has ended. Any thread may poll.
#![expect(unsafe_code, reason = "waits in the coroutine's queue of joiners")]

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

use sinew_core::life::Join;
use sinew_core::wait::Polled;

use crate::join::{JoinError, JoinHandle};
use crate::scheduler::block::Block;

/// The end of a coroutine, as a future. Made by awaiting a [`JoinHandle`].
///
/// Dropping it detaches the coroutine, as dropping the handle does.
#[must_use = "a future does nothing unless it is polled"]
pub struct JoinFuture<T> {
    handle: Option<JoinHandle<T>>,
    party: Polled<()>,
}

impl<T> JoinFuture<T> {
    /// The handle, unless the result was taken.
    #[must_use]
    pub fn handle(&self) -> Option<&JoinHandle<T>> {
        self.handle.as_ref()
    }

    fn poll_end(block: &Block, party: &mut Polled<()>, context: &Context<'_>) -> Poll<()> {
        if party.is_waiting() {
            return party.poll(context.waker()).map(|_| ());
        }
        if block.is_done() {
            return Poll::Ready(());
        }
        party.prepare(context.waker());
        let mut queue = block.joiners.lock();
        if block.life.join(false) == Join::Ended {
            return Poll::Ready(());
        }
        // SAFETY: under the lock; joiners' slots are not used.
        unsafe { party.link(&mut queue, None) };
        Poll::Pending
    }
}

impl<T> Future for JoinFuture<T> {
    type Output = Result<T, JoinError>;

    /// # Panics
    ///
    /// If it was ready before.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let handle = this
            .handle
            .as_ref()
            .expect("a future is not polled after its end");
        if Self::poll_end(handle.block(), &mut this.party, context).is_pending() {
            return Poll::Pending;
        }
        let handle = this.handle.take().expect("it was there before");
        Poll::Ready(handle.join())
    }
}

/// The handle is not pinned by being polled.
impl<T> Unpin for JoinFuture<T> {}

impl<T> Drop for JoinFuture<T> {
    fn drop(&mut self) {
        if let Some(handle) = &self.handle {
            // SAFETY: joiners of this block are in this queue. Nothing was handed over.
            let _ = unsafe { self.party.leave(&handle.block().joiners, |queue| queue) };
        }
    }
}

impl<T> IntoFuture for JoinHandle<T> {
    type Output = Result<T, JoinError>;
    type IntoFuture = JoinFuture<T>;

    /// The coroutine's end, to be awaited on any executor.
    ///
    /// # Examples
    ///
    /// ```
    /// let value = sinew::run(|| {
    ///     let handle = sinew::spawn_local(|| 6 * 7);
    ///     sinew::block_on(async { handle.await.unwrap() })
    /// });
    /// assert_eq!(value, Ok(42));
    /// ```
    fn into_future(self) -> JoinFuture<T> {
        JoinFuture {
            handle: Some(self),
            party: Polled::new(super::call),
        }
    }
}

impl<T> fmt::Debug for JoinFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinFuture")
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}
