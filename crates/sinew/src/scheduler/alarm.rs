//! Timers of coroutines and of callbacks: what happens when one is due.
//!
//! Owns: the record of a callback's timer, an [`Alarm`], which whoever armed it owns in turn ([`crate::time::Timer`]).
//! Thread: the scheduler's.
//!
//! Invariants
//! - I1. A node in a scheduler's wheel is a block's or an alarm's, and its address tells which: the two lie at different places modulo
//!   16, where both records begin.
//! - I2. A linked alarm's scheduler is alive: what is linked still when that ends is taken out of the wheel.
//! - I3. The callback is in its place until `scheduler` is cleared, by whoever moves it out: to run it, or to drop it. Of the alarm nothing
//!   is touched from there on, as the callback may own it.
#![expect(unsafe_code, reason = "finds a timer's owner by its address")]

use std::alloc::{Layout, dealloc};
use std::cell::Cell;
use std::mem::{ManuallyDrop, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use sinew_core::timer::{TimerNode, with_slack};
use sinew_core::wait::{Claim, Reason};

use crate::scheduler::block::Block;
use crate::scheduler::{BUDGET, Scheduler, unhandled};

/// How many callbacks run at one look: as many as there are switches between two looks.
const BATCH: u32 = BUDGET;

/// Where a block's timer lies, modulo 16.
const OF_BLOCK: usize = offset_of!(Block, timer) % 16;
const _: () = assert!(OF_BLOCK.is_multiple_of(8));

/// A callback's timer, at the head of a record that knows the callback's type.
#[repr(C, align(16))]
pub(crate) struct Alarm {
    /// I1.
    _apart: [u64; (OF_BLOCK == 0) as usize],
    node: TimerNode,
    /// Null once the callback has been moved out.
    scheduler: Cell<*const Scheduler>,
    ways: &'static Ways,
}

/// The functions that know the type.
struct Ways {
    /// Moves the callback out and runs it.
    run: unsafe fn(NonNull<Alarm>),
    /// Frees the record, and drops the callback if it is in it.
    free: unsafe fn(NonNull<Alarm>),
}

#[repr(C)]
struct Typed<F> {
    alarm: Alarm,
    callback: ManuallyDrop<F>,
}

impl<F: FnOnce() + 'static> Typed<F> {
    const WAYS: Ways = Ways {
        run: Self::run,
        free: Self::free,
    };

    /// # Safety
    ///
    /// The alarm is at the head of a record of this type, and armed.
    unsafe fn take(alarm: NonNull<Alarm>) -> F {
        // SAFETY: inside of the record, at this offset.
        let callback = unsafe { alarm.byte_add(offset_of!(Self, callback)) }.cast::<F>();
        // SAFETY: the caller's duty.
        unsafe { alarm.as_ref() }.scheduler.set(ptr::null());
        // SAFETY: I3.
        unsafe { callback.read() }
    }

    unsafe fn run(alarm: NonNull<Alarm>) {
        // SAFETY: passed on to the caller.
        let callback = unsafe { Self::take(alarm) };
        callback();
    }

    unsafe fn free(alarm: NonNull<Alarm>) {
        // SAFETY: the caller owns the record.
        let is_armed = !unsafe { alarm.as_ref() }.scheduler.get().is_null();
        // SAFETY: of this type, and armed.
        let callback = is_armed.then(|| unsafe { Self::take(alarm) });
        // SAFETY: allocated as a box of this type; nothing in it needs a drop any more, and nobody uses it.
        unsafe { dealloc(alarm.as_ptr().cast(), Layout::new::<Self>()) };
        drop(callback);
    }
}

impl Alarm {
    /// A timer that runs `callback` on the scheduler's frame at `deadline_ns`. To be freed by its owner.
    #[inline]
    pub(crate) fn arm<F: FnOnce() + 'static>(
        scheduler: &Scheduler,
        deadline_ns: u64,
        callback: F,
    ) -> NonNull<Self> {
        let record = Box::new(Typed {
            alarm: Self {
                _apart: [0; _],
                node: TimerNode::new(),
                scheduler: Cell::new(scheduler),
                ways: const { &Typed::<F>::WAYS },
            },
            callback: ManuallyDrop::new(callback),
        });
        let alarm = NonNull::from(Box::leak(record)).cast::<Self>();
        let deadline_ns = with_slack(deadline_ns, scheduler.tick_ns.get());
        // SAFETY: I4 of the scheduler: one call, no user code in it.
        let wheel = unsafe { &mut *scheduler.wheel.get() };
        // SAFETY: inside of the record, at this offset. The address has the right to the whole of it, which `of` relies on.
        let node = unsafe { alarm.byte_add(offset_of!(Self, node)) }.cast();
        // SAFETY: a box does not move, and is freed only when the node is unlinked.
        unsafe { wheel.insert(node, deadline_ns) };
        alarm
    }

    /// Whether the callback has yet to run.
    ///
    /// # Safety
    ///
    /// The caller owns the alarm.
    pub(crate) unsafe fn is_armed(this: NonNull<Self>) -> bool {
        // SAFETY: the caller's.
        let alarm = unsafe { this.as_ref() };
        alarm.node.is_linked()
    }

    /// Takes the timer out of the wheel, if it is in, and frees it; the callback is dropped, unless it has run.
    ///
    /// # Safety
    ///
    /// The caller owns the alarm, and does not use it any more.
    pub(crate) unsafe fn free(this: NonNull<Self>) {
        // SAFETY: the caller's.
        let alarm = unsafe { this.as_ref() };
        if alarm.node.is_linked() {
            // SAFETY: I2.
            let scheduler = unsafe { &*alarm.scheduler.get() };
            // SAFETY: I4 of the scheduler.
            let wheel = unsafe { &mut *scheduler.wheel.get() };
            // SAFETY: it is in this wheel.
            unsafe { wheel.remove(NonNull::from(&alarm.node)) };
        }
        // SAFETY: the record is the caller's to free, and in no wheel.
        unsafe { (alarm.ways.free)(this) };
    }

    /// The alarm that a node is of, if it is not a block's.
    fn of(node: NonNull<TimerNode>) -> Option<NonNull<Self>> {
        let is_blocks = node.addr().get() % 16 == OF_BLOCK;
        // SAFETY: I1: it is inside of an alarm, at this offset.
        (!is_blocks).then(|| unsafe { node.byte_sub(offset_of!(Self, node)) }.cast())
    }
}

const _: () = assert!(offset_of!(Alarm, node) % 16 != OF_BLOCK, "see I1");

impl Scheduler {
    /// Puts a coroutine's timer into the wheel.
    #[inline(never)]
    pub(super) fn start_timer(&self, me: &Block, deadline_ns: u64) {
        // PERF: the look at the clock may be old: then the wait seems longer, and the slack is still within its bound.
        let deadline_ns = with_slack(deadline_ns, self.tick_ns.get());
        // SAFETY: I4 of the scheduler: one call, no user code in it.
        let wheel = unsafe { &mut *self.wheel.get() };
        // SAFETY: the node is in place until `stop_timer` removes it, or it has fired.
        unsafe { wheel.insert(NonNull::from(&me.timer), deadline_ns) };
    }

    /// Takes it out again: it has not fired.
    #[inline(never)]
    pub(super) fn stop_timer(&self, me: &Block) {
        // SAFETY: I4 of the scheduler.
        let wheel = unsafe { &mut *self.wheel.get() };
        // SAFETY: it is in this wheel.
        unsafe { wheel.remove(NonNull::from(&me.timer)) };
    }

    /// Ends the waits whose time is up, and runs callbacks, a batch at most: the rest has its turn at the next look. Says whether any ran.
    pub(super) fn fire_timers(&self) -> bool {
        // SAFETY: I4 of the scheduler.
        if unsafe { &*self.wheel.get() }.is_empty() {
            return false;
        }
        let now_ns = self.driver.borrow().now_ns();
        self.tick_ns.set(now_ns);
        let mut rung = 0;
        while rung < BATCH {
            // SAFETY: I4 of the scheduler.
            let wheel = unsafe { &mut *self.wheel.get() };
            let Some(timer) = wheel.pop_due(now_ns) else {
                break;
            };
            if let Some(alarm) = Alarm::of(timer) {
                rung += 1;
                ring(alarm);
                continue;
            }
            // SAFETY: I1: it is a block's.
            let block = unsafe { Block::of_timer(timer) };
            // SAFETY: a waiting coroutine's block is alive.
            let block = unsafe { block.as_ref() };
            if block.waiter.word.claim(Reason::Timeout) == Claim::Won {
                self.ready.push(block);
            }
        }
        rung > 0
    }

    /// The scheduler goes: callbacks that are still to run never do. Their owners free them.
    pub(super) fn give_alarms_up(&mut self) {
        let wheel = self.wheel.get_mut();
        while wheel.pop_due(u64::MAX).is_some() {}
    }
}

/// Runs a callback that is due. Its panic goes where those go that nobody joins.
fn ring(alarm: NonNull<Alarm>) {
    // SAFETY: it was in the wheel until now, so it is armed, and its owner has not freed it.
    let run = unsafe { alarm.as_ref() }.ways.run;
    // SAFETY: as above; `run` is of its type.
    let run = || unsafe { run(alarm) };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        unhandled::report_contained(0, payload);
    }
}
