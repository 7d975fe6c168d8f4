//! The bridge to `std` futures, in both directions.
//!
//! Owns: nothing.
//!
//! - Async code in a coroutine: [`block_on`] polls a future and suspends the coroutine, nothing else, while it is pending.
//! - Coroutines in async code: what can be waited for can be awaited, on any executor, and from [`block_on`] too.
//!
//! # Names
//!
//! A call `x` that waits has a twin `x_async`, which takes the same arguments and returns a future of the same result:
//! [`recv_async`](crate::sync::channel::Receiver::recv_async), [`send_async`](crate::sync::channel::Sender::send_async),
//! [`wait_async`](crate::event::Event::wait_async), [`sleep_async`]. It has no timeout and no deadline forms: executors have their own. What stands for
//! one result is awaited itself: [`JoinHandle`](crate::JoinHandle) and [`SharedFuture`] are `IntoFuture`.
//!
//! All of these futures are `Unpin`. They wait in the same queue as coroutines and threads do, in the order of their first polls that
//! were pending, and that first one allocates their place. One that is dropped leaves the queue; what it was
//! woken for goes to the next in line. Only one that is forgotten (`mem::forget`) keeps it, as a forgotten box does.
//!
//! A coroutine is started from async code through the handle of its scheduler, see
//! [`SchedulerHandle::post`](crate::SchedulerHandle::post).
//!
//! # Wakers
//!
//! The waker that [`block_on`] polls with in a coroutine is a counted reference: making it and cloning it allocates nothing, it
//! may be called on any thread, and after the coroutine's end it does nothing. An unpark is never taken for a wake, nor a wake
//! for an unpark. The other way round, a foreign waker is called without any lock held; it must not wait (that fails with
//! `State`), and if it panics the panic goes to the unhandled hook.

mod block_on;
mod callback;
mod combine;
mod counted;
mod driven;
mod end;
#[cfg(feature = "hyper")]
pub mod hyper;
mod io;
mod join;
mod news;
mod own;
mod promise;
mod send_async;
mod sleep;
mod waits;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

pub use block_on::{block_on, block_on_deadline, block_on_timeout};
pub(crate) use callback::{Callback, OnDone};
pub use combine::{all, any, race};
pub use driven::{Driven, shared};
pub use end::EndRecord;
pub(crate) use end::{Begun, Filled};
#[cfg(feature = "tls")]
pub(crate) use io::sealed;
pub use io::{Async, AsyncStream};
pub use join::JoinFuture;
pub use news::{BroadcastFuture, ChangeFuture};
pub use promise::{Promise, PromiseFuture, PromiseState, PromiseWait, SharedFuture, TaskError};
pub use send_async::SendAsync;
pub use sleep::{SleepFuture, sleep_async, sleep_until_async};
pub use waits::{CancelFuture, EventFuture, RecvFuture, SendFuture, WaitGroupFuture};

use crate::scheduler::current::{Place, place};
use crate::scheduler::{current, unhandled, waker};

/// Calls a foreign waker: nothing unwinds into who wakes, and nothing waits.
pub(crate) fn call(waker: Waker) {
    let called = catch_unwind(AssertUnwindSafe(|| {
        current::without_waits(|| waker.wake());
    }));
    if let Err(payload) = called {
        unhandled::report_contained(0, payload);
    }
}

/// A poll that is about to succeed at once is a turn too, so that a future which is always ready does not starve the other
/// coroutines: when the turns are used up it is pending once, and woken.
///
/// That is for `block_on` to see, so it happens only where its waker is polled with: another executor may have no way to
/// give turns.
#[inline]
pub(crate) fn take_turn(context: &Context<'_>) -> Poll<()> {
    if let Place::Coroutine(scheduler, block) = place()
        && waker::is_of(context.waker(), block)
        && !scheduler.spend_turn()
    {
        context.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(())
}
