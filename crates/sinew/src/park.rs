//! Parking: a coroutine stops until someone unparks it. The smallest wait, and the one others can be built on.
//!
//! Owns: what is done with the park cell of each block (`scheduler::park_cell`). `block_on` stops there too.
//!
//! The cell is a primitive like any other, see `sinew_core::wait`: its own short lock, and "stopped" as the linked
//! node, the live ticket. So a late unpark cannot touch another wait: it leaves a permit instead.
#![expect(unsafe_code, reason = "wakes a claimed waiter")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sinew_core::wait::{Claim, Kind, Reason, Record, Suspend, Waiter};

use crate::cancel::CancelToken;
use crate::error::WaitError;
use crate::scheduler::block::{Block, BlockRef, flag};
use crate::scheduler::current::{Place, place};
use crate::scheduler::park_cell::Stop;
use crate::scheduler::waiting::Waiting;
use crate::sys::clock;

/// Stops the current coroutine until it is unparked. A wake that came before is remembered; several are one.
///
/// On a plain thread this is [`std::thread::park`].
///
/// # Suspends
///
/// Until unparked, unless a permit is there.
///
/// # Cancellation
///
/// Ends early; a permit that comes later is kept.
///
/// # Errors
///
/// `Cancelled`; `State` on a scheduler's own frame.
pub fn park() -> Result<(), WaitError> {
    park_until(None)
}

/// As [`park`], for at most `timeout`.
///
/// # Errors
///
/// As [`park`]; `Timeout` when the time is up.
pub fn park_timeout(timeout: Duration) -> Result<(), WaitError> {
    park_until(Some(clock::after_ns(timeout)))
}

/// As [`park`], until `deadline`.
///
/// # Errors
///
/// As [`park`]; `Timeout` at the deadline.
pub fn park_deadline(deadline: Instant) -> Result<(), WaitError> {
    park_until(Some(clock::instant_ns(deadline)))
}

fn park_until(deadline_ns: Option<u64>) -> Result<(), WaitError> {
    let waiting = Waiting::new(deadline_ns)?;
    let Some(block) = waiting.block() else {
        return park_thread(&waiting);
    };
    let reason = stop_at(&waiting, block, Stop::Park, Kind::Park);
    waiting.result(reason)
}

/// Stops the current coroutine at its park cell until a signal of this kind; not at all if one is there.
pub(crate) fn stop_at(waiting: &Waiting<'_>, block: &Block, stop: Stop, kind: Kind) -> Reason {
    let mut cell = block.park.lock();
    if cell.take_early(stop) {
        return Reason::Woken;
    }
    if let Some(reason) = waiting.refused() {
        return reason;
    }
    block.waiter.word.arm();
    cell.stop(stop);
    drop(cell);
    let reason = waiting.suspend(Record {
        kind,
        object: 0,
        owner: 0,
    });
    if reason != Reason::Woken {
        // A signal that came after the timer or cancel is an early one: it stays.
        block.park.lock().go_on(stop);
    }
    reason
}

/// Brings a coroutine a signal of this kind: wakes it if it has stopped for it, else it is kept.
pub(crate) fn signal(block: &Block, stop: Stop) {
    let mut cell = block.park.lock();
    let had_stopped = cell.signal(stop);
    let waiter = NonNull::from(&block.waiter);
    // SAFETY: the cell is the one primitive that a coroutine which stopped there waits at, and it is locked.
    if had_stopped && unsafe { Waiter::claim(waiter, Reason::Woken) } == Claim::Won {
        cell.deliver(stop);
        drop(cell);
        // SAFETY: the claim was won here.
        unsafe { Waiter::wake(waiter) };
    }
}

/// Stops the current thread until an unpark of its std handle, a spurious wake-up or the deadline.
pub(crate) fn park_thread(waiting: &Waiting<'_>) -> Result<(), WaitError> {
    if let Some(reason) = waiting.refused() {
        return waiting.result(reason);
    }
    let Some(deadline_ns) = waiting.deadline_ns() else {
        std::thread::park();
        return Ok(());
    };
    let left_ns = deadline_ns.saturating_sub(clock::now_ns());
    std::thread::park_timeout(Duration::from_nanos(left_ns));
    if clock::now_ns() >= deadline_ns {
        waiting.result(waiting.blame(Reason::Timeout))
    } else {
        Ok(())
    }
}

/// Ends a coroutine's [`park`], or leaves it a permit. Counted: safe to use after the coroutine's end.
#[derive(Clone)]
pub struct Unparker {
    block: BlockRef,
}

impl Unparker {
    pub(crate) fn new(block: BlockRef) -> Self {
        Self { block }
    }

    /// Wakes the coroutine if it is parked; otherwise its next `park` returns at once. Never touches a wait for
    /// anything else.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    pub fn unpark(&self) {
        signal(&self.block, Stop::Park);
    }

    /// The coroutine's id.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.block.id()
    }
}

impl fmt::Debug for Unparker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unparker")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

/// The current coroutine, as seen by itself.
#[derive(Debug, Clone)]
pub struct CoroutineRef {
    block: BlockRef,
}

impl CoroutineRef {
    /// The id: unique in the process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.block.id()
    }

    /// The name that it was given.
    #[must_use]
    pub fn name(&self) -> Option<Arc<str>> {
        self.block.name()
    }

    /// A reference by which its `park` can be ended.
    #[must_use]
    pub fn unparker(&self) -> Unparker {
        Unparker::new(self.block.clone())
    }

    /// Its cancel token.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        CancelToken::attach(&self.block, None)
    }
}

/// The current coroutine; `None` on a plain thread.
#[must_use]
pub fn current() -> Option<CoroutineRef> {
    match place() {
        Place::Coroutine(_, block) => Some(CoroutineRef {
            block: BlockRef::of(block),
        }),
        Place::Thread | Place::Frame => None,
    }
}

/// Whether the calling code runs in a coroutine of a scheduler.
#[must_use]
pub fn in_coroutine() -> bool {
    matches!(place(), Place::Coroutine(..))
}

/// Whether the current coroutine was asked to stop. False on a plain thread.
#[must_use]
pub fn stopping() -> bool {
    match place() {
        Place::Coroutine(scheduler, block) => {
            let stopping = scheduler.is_stopping(block);
            if stopping {
                block.notice_cancel();
            }
            stopping
        }
        Place::Thread | Place::Frame => false,
    }
}

/// Records that the current coroutine stops because it was asked to: its outcome will be
/// [`crate::Outcome::Cancelled`], and the value it returns is dropped.
///
/// # Errors
///
/// `State` if nothing was requested, on a plain thread, and inside a cleanup.
pub fn confirm_cancel() -> Result<(), WaitError> {
    match place() {
        Place::Coroutine(scheduler, block)
            if scheduler.is_asked(block) && !block.is_in_cleanup() =>
        {
            block.notice_cancel();
            block.set(flag::CONFIRMED);
            Ok(())
        }
        _ => Err(WaitError::State),
    }
}

/// Lets every other ready coroutine have its turn. On a plain thread it does nothing.
///
/// # Suspends
///
/// Always, unless nothing else is ready.
///
/// # Errors
///
/// `Cancelled` if the coroutine was asked to stop; `State` on a scheduler's own frame or in an event's callback.
#[inline]
pub fn yield_now() -> Result<(), WaitError> {
    match place() {
        place if !place.may_wait() => Err(WaitError::State),
        Place::Coroutine(scheduler, block) => {
            scheduler.yield_turn(block);
            if block.is_refused() {
                scheduler.note_refusal(block);
                return Err(WaitError::Cancelled);
            }
            Ok(())
        }
        Place::Thread => Ok(()),
        Place::Frame => Err(WaitError::State),
    }
}
