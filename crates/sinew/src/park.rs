//! Parking: a coroutine stops until someone unparks it. The smallest wait, and the one others can be built on.
//!
//! Owns: the park cell of each block (empty, a permit, or parked).
//!
//! The cell is a primitive like any other, see `sinew_core::wait`: its own short lock, and "parked" as the linked
//! node, the live ticket. So a late unpark cannot touch another wait: it leaves a permit instead.
#![expect(unsafe_code, reason = "wakes a claimed waiter")]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sinew_core::wait::{Claim, Kind, Reason, Record, Suspend, Waiter};

use crate::cancel::CancelToken;
use crate::error::WaitError;
use crate::scheduler::block::{BlockRef, Park, flag};
use crate::scheduler::current::{Place, place};
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
    let mut cell = block.park.lock();
    if *cell == Park::Permit {
        *cell = Park::Empty;
        return Ok(());
    }
    if let Some(reason) = waiting.refused() {
        drop(cell);
        return waiting.result(reason);
    }
    block.waiter.word.arm();
    *cell = Park::Parked;
    drop(cell);
    let reason = waiting.suspend(Record {
        kind: Kind::Park,
        object: 0,
        owner: 0,
    });
    if reason != Reason::Woken {
        let mut cell = block.park.lock();
        // An unparker that came after the timer or cancel has left a permit: it stays.
        if *cell == Park::Parked {
            *cell = Park::Empty;
        }
    }
    waiting.result(reason)
}

fn park_thread(waiting: &Waiting<'_>) -> Result<(), WaitError> {
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
        let mut cell = self.block.park.lock();
        let parked = std::mem::replace(&mut *cell, Park::Permit) == Park::Parked;
        let waiter = NonNull::from(&self.block.waiter);
        // SAFETY: the cell is the one primitive that a parked coroutine waits at, and it is locked.
        if parked && unsafe { Waiter::claim(waiter, Reason::Woken) } == Claim::Won {
            *cell = Park::Empty;
            drop(cell);
            // SAFETY: the claim was won here.
            unsafe { Waiter::wake(waiter) };
        }
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
