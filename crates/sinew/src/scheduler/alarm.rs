//! Timers of coroutines and of callbacks: what happens when one is due.
//!
//! Owns: the record of a callback's timer, an [`Alarm`], which whoever armed it owns in turn ([`crate::time::Timer`]).
//! Thread: the scheduler's.
//!
//! Invariants
//! - I1. A node in a scheduler's wheel is a block's or an alarm's, and its address tells which: the two lie at different places modulo
//!   16, where both records begin.
//! - I2. A linked alarm's scheduler is alive: what is linked still when that ends is taken out of the wheel.
//! - I3. The callback is in its place until `ways` is cleared, by whoever moves it out: to run it, or to drop it. Of the alarm nothing
//!   is touched from there on, as the callback may own it.
#![expect(unsafe_code, reason = "finds a timer's owner by its address")]

mod home;

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::{MaybeUninit, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use sinew_core::timer::TimerNode;
use sinew_core::wait::{Claim, Reason};

pub(crate) use home::Alarms;
use home::Home;

use crate::scheduler::block::Block;
use crate::scheduler::{BUDGET, Scheduler, unhandled};

/// How many callbacks run at one look: as many as there are switches between two looks.
const BATCH: u32 = BUDGET;

/// Where a block's timer lies, modulo 16.
const OF_BLOCK: usize = offset_of!(Block, timer) % 16;
const _: () = assert!(OF_BLOCK.is_multiple_of(8));

/// How many words a callback may take that lies in its alarm; a larger one has a box of its own.
const WORDS: usize = 3 - APART;
/// See I1: a word that keeps the two apart, if need be.
const APART: usize = (OF_BLOCK == 0) as usize;

/// A callback's timer: one cache line.
#[repr(C, align(64))]
pub(crate) struct Alarm {
    _apart: [u64; APART],
    node: TimerNode,
    home: NonNull<Home>,
    /// None once the callback has been moved out.
    ways: Cell<Option<&'static Ways>>,
    callback: [MaybeUninit<u64>; WORDS],
}

const _: () = assert!(size_of::<Alarm>() == 64);

/// The functions that know the callback's type, for an alarm that has it still.
struct Ways {
    /// Moves the callback out and runs it.
    run: unsafe fn(NonNull<Alarm>),
    /// Gives the memory back, and drops the callback.
    discard: unsafe fn(NonNull<Alarm>),
}

/// The ways of a callback that lies in its alarm.
struct Typed<F>(PhantomData<F>);

impl<F: FnOnce() + 'static> Typed<F> {
    const FITS: bool = size_of::<F>() <= WORDS * 8 && align_of::<F>() <= 8;
    const WAYS: Ways = Ways {
        run: Self::run,
        discard: Self::discard,
    };

    /// Where the callback lies.
    fn place(alarm: NonNull<Alarm>) -> NonNull<F> {
        // SAFETY: inside of the alarm, at this offset.
        unsafe { alarm.byte_add(offset_of!(Alarm, callback)) }.cast()
    }

    /// # Safety
    ///
    /// The alarm has a callback of this type.
    #[inline]
    unsafe fn take(alarm: NonNull<Alarm>) -> F {
        // SAFETY: the caller's duty.
        unsafe { alarm.as_ref() }.ways.set(None);
        // SAFETY: I3.
        unsafe { Self::place(alarm).read() }
    }

    unsafe fn run(alarm: NonNull<Alarm>) {
        // SAFETY: passed on to the caller.
        let callback = unsafe { Self::take(alarm) };
        callback();
    }

    unsafe fn discard(alarm: NonNull<Alarm>) {
        // SAFETY: passed on to the caller.
        let callback = unsafe { Self::take(alarm) };
        // SAFETY: the caller owns the alarm, and it is in no wheel.
        unsafe { Alarm::give_back(alarm) };
        drop(callback);
    }

    /// An alarm that is not armed yet. The callback fits.
    #[inline]
    fn alarm(home: NonNull<Home>, callback: F) -> NonNull<Alarm> {
        debug_assert!(Self::FITS);
        // SAFETY: the scheduler keeps its home.
        let alarm = unsafe { home.as_ref() }.take();
        // SAFETY: memory for one, and nobody else's.
        unsafe {
            alarm.write(Alarm {
                _apart: [0; _],
                node: TimerNode::new(),
                home,
                ways: Cell::new(Some(const { &Self::WAYS })),
                callback: [MaybeUninit::uninit(); _],
            });
        }
        // SAFETY: it fits.
        unsafe { Self::place(alarm).write(callback) };
        alarm
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
        let home = scheduler.alarms.home(scheduler);
        let alarm = if Typed::<F>::FITS {
            Typed::alarm(home, callback)
        } else {
            Typed::alarm(home, Box::new(callback))
        };
        let deadline_ns = scheduler.with_slack(deadline_ns);
        // SAFETY: I4 of the scheduler: one call, no user code in it.
        let wheel = unsafe { &mut *scheduler.wheel.get() };
        wheel.reserve();
        // SAFETY: inside of the record, at this offset. The address has the right to the whole of it, which `of` relies on.
        let node = unsafe { alarm.byte_add(offset_of!(Self, node)) }.cast();
        // SAFETY: an alarm does not move, and is given back only when the node is unlinked.
        unsafe { wheel.insert(node, deadline_ns) };
        alarm
    }

    /// Whether the callback has yet to run.
    ///
    /// # Safety
    ///
    /// The caller owns the alarm.
    #[inline]
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
    #[inline]
    pub(crate) unsafe fn free(this: NonNull<Self>) {
        // SAFETY: the caller's.
        let alarm = unsafe { this.as_ref() };
        if alarm.node.is_linked() {
            // SAFETY: an alarm keeps its home.
            let scheduler = unsafe { alarm.home.as_ref() }.scheduler();
            // SAFETY: I2.
            let scheduler = unsafe { &*scheduler };
            // SAFETY: I4 of the scheduler.
            let wheel = unsafe { &mut *scheduler.wheel.get() };
            // SAFETY: it is in this wheel.
            unsafe { wheel.remove(NonNull::from(&alarm.node)) };
        }
        match alarm.ways.get() {
            // SAFETY: of this type; the record is the caller's to free, and in no wheel.
            Some(ways) => unsafe { (ways.discard)(this) },
            // SAFETY: as above.
            None => unsafe { Self::give_back(this) },
        }
    }

    /// Gives the memory back.
    ///
    /// # Safety
    ///
    /// It is the caller's, in no wheel, and its callback has been moved out.
    #[inline]
    unsafe fn give_back(this: NonNull<Self>) {
        // SAFETY: the caller's.
        let home = unsafe { this.as_ref() }.home;
        // SAFETY: an alarm keeps its home; nothing in it needs a drop.
        unsafe { Home::give_back(home, this) };
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
    /// A timer is about to be armed. Where its deadline may move far it is to be known whether it has passed; else an old look at the clock
    /// does: the wait seems longer, and the slack is still within its bound.
    #[inline]
    pub(crate) fn tell_time(&self, now_ns: impl FnOnce() -> u64) {
        if !self.slack.is_fine() {
            self.tick_ns.set(now_ns());
        }
    }

    /// The deadline that a timer is armed with.
    #[inline]
    fn with_slack(&self, deadline_ns: u64) -> u64 {
        self.slack.deadline_ns(deadline_ns, self.tick_ns.get())
    }

    /// Until when to sleep if nothing else comes: the next timer or `until_ns`.
    pub(super) fn next_wake_ns(&self, until_ns: Option<u64>) -> Option<u64> {
        // SAFETY: I4 of the scheduler.
        let next_ns = unsafe { &*self.wheel.get() }.next_deadline_ns();
        let timer_ns = next_ns.map(|next_ns| self.slack.wake_ns(next_ns, self.tick_ns.get()));
        timer_ns.into_iter().chain(until_ns).min()
    }

    /// Puts a coroutine's timer into the wheel.
    #[inline(never)]
    pub(super) fn start_timer(&self, me: &Block, deadline_ns: u64) {
        self.tell_time(|| self.driver.borrow().now_ns());
        let deadline_ns = self.with_slack(deadline_ns);
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
        self.alarms.give_up();
    }
}

/// Runs a callback that is due. Its panic goes where those go that nobody joins.
fn ring(alarm: NonNull<Alarm>) {
    // SAFETY: it was in the wheel until now, so it is armed, and its owner has not freed it.
    let Some(ways) = unsafe { alarm.as_ref() }.ways.get() else {
        return;
    };
    // SAFETY: as above; they are of its type.
    let run = || unsafe { (ways.run)(alarm) };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        unhandled::report_contained(0, payload);
    }
}
