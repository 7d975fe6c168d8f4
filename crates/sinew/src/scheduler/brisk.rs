//! The party that waits in the common case: a coroutine without a deadline, a limit, a callback around it or control words of its own.
//!
//! Owns: nothing. Thread: the scheduler's. What is decided here once, by one look at the flags, [`Waiting`] asks at every step of a wait.
//! Whoever waits often tries this party first; what it does is what `Waiting` would do.
//!
//! Invariants
//! - I1. None of the [`UNUSUAL`] flags is set while the party is in use: the coroutine alone sets them, and it waits.
//!
//! [`Waiting`]: crate::scheduler::waiting::Waiting
#![expect(unsafe_code, reason = "lends the waiting block to the wait protocol")]

use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::Relaxed;

use sinew_context::Context;
use sinew_core::wait::{Course, Kind, Node, Reason, Record, Suspend, Waiter, Waking};

use crate::error::WaitError;
use crate::scheduler::block::{Block, flag};
use crate::scheduler::current::{self, Place, place};
use crate::scheduler::{Scheduler, WAYS};

/// What `Waiting` sees to.
const UNUSUAL: u8 = flag::LIMITED | flag::IN_CALLBACK | flag::FP_ENV;

/// See the file's head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Brisk<'a> {
    scheduler: &'a Scheduler,
    block: &'a Block,
}

impl Brisk<'_> {
    /// The current coroutine, if nothing about it is unusual.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn here() -> Option<Self> {
        let Place::Coroutine(scheduler, block) = place() else {
            return None;
        };
        if block.has(UNUSUAL) {
            return None;
        }
        scheduler.check_fp_env(block);
        Some(Self { scheduler, block })
    }

    /// A call is over that could have waited: if it did not, it is a turn all the same.
    #[inline(always)]
    pub(crate) fn take_turn(self, course: Course) {
        if course == Course::AtOnce {
            self.scheduler.take_turn(self.block);
        }
    }

    /// What a finished wait that has failed means for the caller; `Closed` also if it was woken for nothing. Raises the forced unwind where
    /// one is due.
    #[cold]
    #[inline(never)]
    pub(crate) fn error(self, reason: Reason) -> WaitError {
        match reason {
            Reason::Timeout => WaitError::Timeout,
            Reason::Woken | Reason::Closed => WaitError::Closed,
            Reason::Cancelled => {
                self.scheduler.note_refusal(self.block);
                WaitError::Cancelled
            }
        }
    }
}

// SAFETY: the waiter and the node are in the block, idle and unlinked whenever user code runs, as `wait_in` sees to.
// `suspend` goes on only after the claimer's wake.
unsafe impl Suspend for Brisk<'_> {
    #[inline(always)]
    fn party(&self) -> (NonNull<Waiter>, NonNull<Node>) {
        (
            NonNull::from(&self.block.waiter),
            NonNull::from(&self.block.node),
        )
    }

    #[inline(always)]
    fn refused(&self) -> Option<Reason> {
        self.block.is_cancelled().then_some(Reason::Cancelled)
    }

    #[inline(always)]
    fn suspend(&self, record: Record) -> Reason {
        self.scheduler.wait_briskly(self.block, record)
    }
}

// SAFETY: as for `Near`.
unsafe impl Waking for Brisk<'_> {
    #[inline(always)]
    fn is_near(&self, waiter: NonNull<Waiter>) -> bool {
        self.scheduler.is_near(waiter)
    }

    #[inline(always)]
    unsafe fn wake_near(&self, waiter: NonNull<Waiter>) {
        // SAFETY: passed on to the caller.
        unsafe { self.scheduler.wake_near(waiter) };
    }
}

/// Who wakes without waiting: what runs on the calling thread, be it a coroutine or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Near<'a>(Option<&'a Scheduler>);

impl Near<'_> {
    /// The calling thread. Good as long as the caller does not leave its scheduler.
    #[inline(always)]
    pub(crate) fn here() -> Self {
        // SAFETY: not null means that the anchor that set it is still on this thread's stack.
        Self(unsafe { current::scheduler().as_ref() })
    }
}

// SAFETY: the coroutines of the thread's scheduler go on on this thread, and their timers and cancels run there.
unsafe impl Waking for Near<'_> {
    #[inline(always)]
    fn is_near(&self, waiter: NonNull<Waiter>) -> bool {
        self.0.is_some_and(|scheduler| scheduler.is_near(waiter))
    }

    #[inline(always)]
    unsafe fn wake_near(&self, waiter: NonNull<Waiter>) {
        if let Some(scheduler) = self.0 {
            // SAFETY: passed on to the caller.
            unsafe { scheduler.wake_near(waiter) };
        }
    }
}

impl Scheduler {
    /// Whether the waiter is that of a coroutine of this scheduler.
    #[inline(always)]
    fn is_near(&self, waiter: NonNull<Waiter>) -> bool {
        // SAFETY: whoever asks has found it alive.
        if !unsafe { waiter.as_ref() }.has_ways(&WAYS) {
            return false;
        }
        // SAFETY: only blocks' waiters are woken in these ways.
        let block = unsafe { Block::of_waiter(waiter) };
        // SAFETY: blocks are never unmapped.
        ptr::eq(unsafe { block.as_ref() }.door.load(Relaxed), self.door)
    }

    /// Makes a claimed coroutine of this scheduler runnable.
    ///
    /// # Safety
    ///
    /// It [is near](Self::is_near), and the caller has won its claim and does this once.
    #[inline(always)]
    unsafe fn wake_near(&self, waiter: NonNull<Waiter>) {
        // SAFETY: it is near: a block's.
        let block = unsafe { Block::of_waiter(waiter) };
        // SAFETY: alive: it is claimed, and cannot go on before it is pushed.
        self.push_ready(unsafe { block.as_ref() });
    }

    /// As [`wait`](Self::wait), for a party of this file: no timer, and no control words.
    #[inline(always)]
    fn wait_briskly(&self, me: &Block, record: Record) -> Reason {
        self.switch_away_to(me, || {
            self.stop_briskly(me, record.kind, record.object, record.owner)
        });
        let reason = me.waiter.word.finish();
        me.clear_record();
        if record.kind.has_owner() {
            me.leave_lock();
        }
        reason
    }

    /// What comes before the switch: it says what `me` waits for, and who runs next.
    ///
    /// PERF: out of the user's frame, of which it would be a third: there is no switch between this call and its return. It calls
    /// nothing but in place of its return, so that it saves no registers.
    #[inline(never)]
    fn stop_briskly(&self, me: &Block, kind: Kind, object: usize, owner: u64) -> *const Context {
        let record = Record {
            kind,
            object,
            owner,
        };
        me.write_record(record, self.tick_ns.get(), false);
        self.next_started()
    }

    /// Who runs next: most often one that has started.
    #[inline(always)]
    fn next_started(&self) -> *const Context {
        let budget = self.budget.get();
        if budget > 0
            && let Some(next) = self.ready.pop_started()
        {
            self.budget.set(budget - 1);
            self.set_current(next.as_ptr());
            // SAFETY: a queued block is alive.
            return unsafe { next.as_ref() }.context.get();
        }
        self.next_unusual()
    }

    #[cold]
    #[inline(never)]
    fn next_unusual(&self) -> *const Context {
        self.next_target_or_new()
    }

    /// The budget is spent: the others have their turn.
    #[cold]
    #[inline(never)]
    pub(super) fn take_last_turn(&self, me: &Block) {
        if !me.has(flag::IN_CALLBACK) {
            self.budget.set(0);
            self.ready.push_last(me);
            self.switch_out(me);
        }
    }
}
