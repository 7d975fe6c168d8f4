//! `block_on`: a coroutine that polls a future.
//!
//! Owns: the loop, and the signal of a plain thread. A coroutine's signal is in its park cell.
//! Thread: the waiting one; signals come from any.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, fence};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use sinew_core::wait::{Kind, Reason, Suspend};

use super::own::OwnPolls;
use crate::coroutine::Fence;
use crate::error::WaitError;
use crate::park;
use crate::scheduler::block::Block;
use crate::scheduler::current;
use crate::scheduler::park_cell::Stop;
use crate::scheduler::waiting::Waiting;
use crate::scheduler::waker;
use crate::sys::clock;

/// Runs a future to its end in the current coroutine, or on the current thread where there is none.
///
/// Other coroutines of the thread go on meanwhile. The future may be of any kind that does not insist on an executor of its
/// own; it is polled on this stack, so one with a deep chain of polls wants a stack of that size.
///
/// # Suspends
///
/// While the future is pending: the coroutine only. A future that wakes itself lets the others have their turn between
/// two polls. A stand-alone coroutine cannot [suspend](crate::coroutine::suspend) in the future: that fails with `State`.
///
/// # Cancellation
///
/// A future that is ready wins. One that is pending is dropped, here, before this returns. To keep it, lend it:
/// `block_on(&mut future)`, or `block_on(pinned.as_mut())`.
///
/// # Errors
///
/// `Cancelled`; `State` on a scheduler's own frame, in a cleanup or in a callback, without having polled. `State` also on the only worker of
/// a pool if all that the future waits for are tasks of that pool, by their [futures](crate::future::SharedFuture) themselves.
///
/// # Examples
///
/// ```
/// let sum = sinew::run(|| {
///     let (sender, receiver) = sinew::sync::channel::rendezvous();
///     sinew::go_local(move || {
///         for n in 1..=3 {
///             sender.send(n).unwrap();
///         }
///     });
///     sinew::block_on(async {
///         let mut sum = 0;
///         while let Ok(n) = receiver.recv_async().await {
///             sum += n;
///         }
///         sum
///     })
/// });
/// assert_eq!(sum, Ok(6));
/// ```
pub fn block_on<F: Future>(future: F) -> Result<F::Output, WaitError> {
    block_on_until(future, None)
}

/// As [`block_on`], for at most `timeout`.
///
/// # Errors
///
/// As [`block_on`]; `Timeout` when the time is up and the future, which was polled once at least, is not ready.
pub fn block_on_timeout<F: Future>(future: F, timeout: Duration) -> Result<F::Output, WaitError> {
    block_on_until(future, Some(clock::after_ns(timeout)))
}

/// As [`block_on`], until `deadline`.
///
/// # Errors
///
/// As [`block_on_timeout`].
pub fn block_on_deadline<F: Future>(future: F, deadline: Instant) -> Result<F::Output, WaitError> {
    block_on_until(future, Some(clock::instant_ns(deadline)))
}

fn block_on_until<F: Future>(future: F, deadline_ns: Option<u64>) -> Result<F::Output, WaitError> {
    let waiting = Waiting::new(deadline_ns)?;
    // The future is whoever's code: were a stand-alone coroutine to suspend in a poll, it might go on in another party than
    // the one that waits here, or when that is gone.
    let _fence = Fence::raise();
    let mut future = pin!(future);
    match waiting.block() {
        Some(block) => {
            let polling = Polling::begin(block);
            let waker = waker::lend(block);
            drive(&waiting, &polling, &waker, |context| {
                future.as_mut().poll(context)
            })
        }
        None => {
            let bell = Arc::new(Bell {
                thread: thread::current(),
                rung: AtomicBool::new(false),
            });
            let waker = Waker::from(bell.clone());
            let signal = OfThread {
                bell: &bell,
                own: OwnPolls::begin(&waker),
            };
            drive(&waiting, &signal, &waker, |context| {
                future.as_mut().poll(context)
            })
        }
    }
}

/// What the waker's calls come to.
trait Signal {
    /// Stops until the waker is called. Not at all if it was called already.
    fn wait(&self, waiting: &Waiting<'_>) -> Reason;

    /// Takes a call that came and was not waited for.
    fn take(&self) -> bool;

    /// The future is about to be polled.
    fn next_poll(&self) {}

    /// Whether nobody is left to call the waker but who is about to wait. What can be ended here and now is.
    fn is_for_caller(&self) -> bool {
        false
    }
}

fn drive<T>(
    waiting: &Waiting<'_>,
    signal: &impl Signal,
    waker: &Waker,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Result<T, WaitError> {
    let mut context = Context::from_waker(waker);
    loop {
        signal.next_poll();
        if let Poll::Ready(value) = poll(&mut context) {
            waiting.take_turn();
            return Ok(value);
        }
        // A future that woke itself is not alone in the world.
        let woke_itself = signal.take();
        if !woke_itself && signal.is_for_caller() {
            return Err(WaitError::State);
        }
        let reason = if woke_itself {
            give_way(waiting)
        } else {
            signal.wait(waiting)
        };
        if reason == Reason::Woken {
            continue;
        }
        // The future may have got ready meanwhile: that wins.
        if (woke_itself || signal.take())
            && let Poll::Ready(value) = poll(&mut context)
        {
            return Ok(value);
        }
        return match waiting.result(reason) {
            Err(error) => Err(error),
            Ok(()) => continue,
        };
    }
}

/// A turn for the others, after which the wait may be over.
fn give_way(waiting: &Waiting<'_>) -> Reason {
    waiting.yield_turn();
    if let Some(reason) = waiting.refused() {
        return reason;
    }
    let is_over = waiting
        .deadline_ns()
        .is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns);
    if is_over {
        waiting.blame(Reason::Timeout)
    } else {
        Reason::Woken
    }
}

/// A `block_on` under way in a coroutine.
struct Polling<'a> {
    block: &'a Block,
    is_nested: bool,
}

impl<'a> Polling<'a> {
    fn begin(block: &'a Block) -> Self {
        let is_nested = block.park.lock().begin_polling();
        Self { block, is_nested }
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.block.park.lock().end_polling(self.is_nested);
    }
}

impl Signal for Polling<'_> {
    fn wait(&self, waiting: &Waiting<'_>) -> Reason {
        park::stop_at(waiting, self.block, Stop::Poll, Kind::Future)
    }

    fn take(&self) -> bool {
        self.block.park.lock().take_early(Stop::Poll)
    }
}

/// What wakes a plain thread that polls.
struct Bell {
    thread: Thread,
    rung: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // ORDERING: Release pairs with the Acquire in `take`: what was made ready is seen by the next poll.
        if !self.rung.swap(true, Release) {
            self.thread.unpark();
        }
    }
}

/// The bell of a thread that polls, where it waits.
struct OfThread<'a> {
    bell: &'a Arc<Bell>,
    own: Option<OwnPolls<'a>>,
}

impl Signal for OfThread<'_> {
    fn wait(&self, waiting: &Waiting<'_>) -> Reason {
        while !self.take() {
            if let Some(reason) = waiting.refused() {
                return reason;
            }
            match park::park_thread(waiting) {
                Ok(()) => {}
                Err(WaitError::Timeout) => return Reason::Timeout,
                Err(_) => return Reason::Cancelled,
            }
        }
        Reason::Woken
    }

    fn take(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `wake_by_ref`.
        self.bell.rung.swap(false, Acquire)
    }

    fn next_poll(&self) {
        if let Some(own) = &self.own {
            own.next_poll();
        }
    }

    fn is_for_caller(&self) -> bool {
        let Some(own) = &self.own else { return false };
        let count = own.count();
        // That of `bell` and that in the lent waker are there besides the clones.
        if count == 0 || Arc::strong_count(self.bell) != count + 2 {
            return false;
        }
        // ORDERING: pairs with the Release of a clone's end: whoever called one and dropped it is seen to have rung.
        fence(Acquire);
        if self.bell.rung.load(Relaxed) {
            return false;
        }
        current::purge_own_jobs();
        !self.bell.rung.load(Relaxed)
    }
}
