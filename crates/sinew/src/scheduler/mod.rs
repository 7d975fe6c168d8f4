//! The scheduler of one thread: it owns and runs the coroutines of that thread.
//!
//! Owns: the ready queue, the timers, the stacks, the driver and the loop.
//! Thread: its own, for all of it but the [`door::Door`], which is what other threads may touch.
//!
//! Invariants
//! - I1. `current` is the block whose stack the thread runs on; null on the scheduler's own frame.
//! - I2. A runnable coroutine is in exactly one of: the ready queue, the inbox, `current`.
//! - I3. `alive` counts the blocks that were spawned and have not ended; the scheduler has one reference to each.
//! - I4. No reference into `wheel`, `stacks`, `driver` or `sources` is held across a switch or while user code runs.
//! - I5. `dying` holds the stack of the coroutine that ended last: someone may still be
//!   leaving it. Nobody takes it, except from the scheduler's own frame, from another coroutine's stack or when another coroutine ends.
//!
//! # How it runs
//!
//! A coroutine that stops switches straight to the next ready one ([`Scheduler::switch_out`]), also to an unstarted one on
//! the stack of one that has ended; one that ends
//! runs the next unstarted one in place, on the same stack ([`coroutine_main`]). The scheduler's own frame
//! ([`Scheduler::run_loop`]) is entered when nothing is ready, when an unstarted coroutine needs a stack, and after
//! every [`BUDGET`] switches, to look at the inbox, the timers, the descriptors and the posts, of which it runs as many at
//! a time at most. With a budget of 0 every switch goes there: that is how single steps are made (`step`).
//!
//! # How it ends
//!
//! `run` returns when nothing is alive and no post waits. If its main closure panicked, or an anchor ends earlier, everything
//! else is cancelled; what does not end within
//! [`PATIENCE`] rounds of the loop has a forced unwind raised at its waits; what swallows that
//! [`SWALLOWED_MAX`] times is reported, and the process aborts: no coroutine outlives its anchor.
#![expect(
    unsafe_code,
    reason = "switches between stacks and follows pointers to control blocks"
)]

pub(crate) mod alarm;
pub(crate) mod block;
pub(crate) mod body;
pub(crate) mod brisk;
pub(crate) mod crew;
pub(crate) mod current;
pub(crate) mod cycle;
pub(crate) mod door;
pub(crate) mod exit;
pub(crate) mod extra;
pub(crate) mod forced;
mod foresight;
mod last_resort;
pub(crate) mod limit;
pub(crate) mod linger;
pub(crate) mod object;
pub(crate) mod order;
pub(crate) mod park_cell;
pub(crate) mod polled;
pub(crate) mod post;
mod ready;
mod remote;
pub(crate) mod run;
pub(crate) mod seen;
mod serve;
#[cfg(sinew_shuffle)]
mod shuffle;
pub(crate) mod slab;
pub(crate) mod spawn;
pub(crate) mod step;
pub(crate) mod thread_state;
pub(crate) mod unhandled;
mod vigil;
pub(crate) mod visit;
pub(crate) mod waiting;
pub(crate) mod waker;
mod watching;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::{fmt, io};

use sinew_context::frame::prepare;
use sinew_context::stack::{Stack, StackCache};
use sinew_context::{Context, switch, switch_final};
use sinew_core::timer::{Slack, Wheel};
use sinew_core::wait::{Claim, Reason, Record, Waiter, Ways};

use crate::coroutine::Estate;
use crate::driver::Driver;
use crate::driver::epoll::Epoll;
use crate::io::source::Sources;
use crate::join::JoinError;
use crate::scheduler::block::{Block, BlockRef, flag};
use crate::scheduler::body::Payload;
use crate::scheduler::door::{Door, Figures, tag};
use crate::scheduler::extra::Extra;
use crate::scheduler::last_resort::LastResort;
use crate::scheduler::polled::Deferred;
use crate::scheduler::post::Shared;
use crate::scheduler::ready::ReadyQueue;
use crate::scheduler::slab::Free;
use crate::scheduler::step::Progress;
use crate::scheduler::thread_state::ThreadState;
use crate::scheduler::vigil::Vigil;
use crate::stack::{Choice, Plan};

/// After how many switches the scheduler's frame looks at timers, descriptors and the inbox.
const BUDGET: u32 = 64;
/// How often an idle scheduler looks at its inbox before it sleeps, if another thread woke it last.
const SPINS: u32 = 100;
/// A timer that is due so soon is waited for without sleeping: the kernel would take longer to wake the thread.
const CLOSE_NS: u64 = 5_000;
/// How many rounds of the loop a cancelled coroutine has to end before the forced unwind.
const PATIENCE: u32 = 1_000;
/// How often a coroutine may swallow a forced unwind before the process ends.
const SWALLOWED_MAX: u8 = 16;
/// Every how many refused waits in a row the others get a turn.
const REFUSALS_PER_TURN: u8 = 8;

/// How far a scheduler is on its way to an early end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Teardown {
    /// It is not.
    No,
    /// Everything has a cancel request; this many rounds are over.
    Cancelling(u32),
    /// Waits raise the forced unwind.
    Unwinding,
}

/// When the loop returns although something is alive.
#[derive(Debug, Clone, Copy)]
struct Until {
    deadline_ns: Option<u64>,
    /// Whether a wish to stop ends it.
    stoppable: bool,
}

impl Until {
    /// Never.
    const EMPTY: Self = Self {
        deadline_ns: None,
        stoppable: false,
    };
}

/// The scheduler of a thread: it owns the coroutines of the thread, their timers and what they wait for.
///
/// It lives for the length of an anchor, [`Scheduler::anchor`], and stays on its thread; [`crate::run`] is an anchor whose
/// closure is itself a coroutine. Other threads come in by a [`SchedulerHandle`](crate::SchedulerHandle).
pub struct Scheduler {
    door: &'static Door,
    /// What its handles have of it.
    shared: Arc<Shared>,
    ready: ReadyQueue,
    /// Where the scheduler's own frame goes on.
    context: UnsafeCell<Context>,
    /// Where one begins that is entered at once. Not in its block, whose far half is left alone until it stops.
    beginning: UnsafeCell<Context>,
    /// How many more switches until the scheduler's frame looks around.
    budget: Cell<u32>,
    /// What the budget was when it was last granted.
    granted: Cell<u32>,
    /// The time as of the last look at the clock: what wait records call "since".
    tick_ns: Cell<u64>,
    wheel: UnsafeCell<Wheel>,
    slack: Slack,
    alarms: alarm::Alarms,
    stacks: UnsafeCell<StackCache>,
    dying: Cell<Option<Stack>>,
    driver: RefCell<Box<dyn Driver>>,
    sources: RefCell<Sources>,
    deferred: Deferred,
    free: Free,
    ids: Cell<std::ops::Range<u64>>,
    teardown: Cell<Teardown>,
    last_resort: LastResort,
    /// The first panic that nobody joined.
    kept_panic: RefCell<Option<Payload>>,
    stack_plan: Plan,
    /// Whether the last sleep was ended by another thread.
    knocked: Cell<bool>,
    /// Another thread has called for a look at the posts and the wish to stop, or the deadline of a run is to be looked at.
    attention: Cell<bool>,
    /// Nothing new is accepted.
    closed: Cell<bool>,
    /// It is being run by hand, see `step`.
    running: Cell<bool>,
    /// What runs it can be stopped.
    stoppable: Cell<bool>,
    /// What `exit_all` was called with.
    exit_code: Cell<Option<i32>>,
    vigil: Vigil,
    thread_state: ThreadState,
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("alive", &self.alive())
            .finish_non_exhaustive()
    }
}

impl Scheduler {
    fn new(post_limit: u64, stack_plan: Plan, slack: Slack) -> io::Result<Box<Self>> {
        sinew_core::lock::set_yield(std::thread::yield_now);
        let door = Door::claim()?;
        let driver = match Epoll::new(door.knocker()) {
            Ok(driver) => Box::new(driver),
            Err(error) => {
                door.give_back();
                return Err(error);
            }
        };
        let now_ns = driver.now_ns();
        Ok(Box::new(Self {
            door,
            shared: Shared::new(door, post_limit),
            ready: ReadyQueue::new(),
            context: UnsafeCell::new(Context::EMPTY),
            beginning: UnsafeCell::new(Context::EMPTY),
            budget: Cell::new(0),
            granted: Cell::new(0),
            tick_ns: Cell::new(now_ns),
            wheel: UnsafeCell::new(Wheel::new(now_ns)),
            slack,
            alarms: alarm::Alarms::new(),
            stacks: UnsafeCell::new(StackCache::new(stack_plan.limits)),
            dying: Cell::new(None),
            driver: RefCell::new(driver),
            sources: RefCell::new(Sources::new()),
            deferred: Deferred::new(),
            free: Free::new(),
            ids: Cell::new(0..0),
            teardown: Cell::new(Teardown::No),
            last_resort: LastResort::new(),
            kept_panic: RefCell::new(None),
            stack_plan,
            knocked: Cell::new(false),
            attention: Cell::new(false),
            closed: Cell::new(false),
            running: Cell::new(false),
            stoppable: Cell::new(false),
            exit_code: Cell::new(None),
            vigil: Vigil::new(),
            thread_state: ThreadState::of_this_thread(),
        }))
    }

    #[inline]
    pub(crate) fn current(&self) -> *const Block {
        self.door.current.load(Relaxed)
    }

    #[inline]
    fn set_current(&self, block: *const Block) {
        self.door.current.store(block.cast_mut(), Relaxed);
    }

    pub(crate) fn alive(&self) -> usize {
        self.door.alive()
    }

    pub(super) fn free_blocks(&self) -> &Free {
        &self.free
    }

    /// The warm stacks, for anchors inside: whoever follows the pointer keeps I4.
    pub(crate) fn stacks(&self) -> NonNull<StackCache> {
        NonNull::from(&self.stacks).cast()
    }

    /// What its builder said about stacks.
    pub(super) fn stack_choice(&self) -> Choice {
        self.stack_plan.choice
    }

    pub(crate) fn door(&self) -> &'static Door {
        self.door
    }

    /// Keeps a panic that nobody joined for `run` to raise; the first one counts.
    pub(super) fn keep_panic(&self, payload: Payload) {
        let mut kept = self.kept_panic.borrow_mut();
        if kept.is_none() {
            *kept = Some(payload);
        } else {
            drop(kept);
            body::drop_payload(payload);
        }
    }

    /// Makes a coroutine of this scheduler runnable.
    #[inline(always)]
    pub(super) fn push_ready(&self, block: &Block) {
        self.ready.push(block);
    }

    /// Who runs next: the oldest ready coroutine if it has started and the budget lasts, else the scheduler's
    /// frame.
    #[inline]
    fn next_target(&self) -> *const Context {
        self.next_target_or(|| None)
    }

    /// The same, from the stack of a coroutine that stops: one that has not started runs next, too, if the stack of one that has ended is
    /// at hand for it.
    #[inline(always)]
    fn next_target_or_new(&self) -> *const Context {
        self.next_target_or(|| self.begin_next())
    }

    #[inline(always)]
    fn next_target_or(&self, new: impl FnOnce() -> Option<NonNull<Block>>) -> *const Context {
        let budget = self.budget.get();
        if budget > 0 {
            if let Some(next) = self.ready.pop_started() {
                self.budget.set(budget - 1);
                self.set_current(next.as_ptr());
                // SAFETY: a queued block is alive.
                return unsafe { next.as_ref() }.context.get();
            }
            if let Some(next) = new() {
                self.budget.set(budget - 1);
                self.set_current(next.as_ptr());
                return self.beginning.get();
            }
        }
        self.set_current(ptr::null());
        self.context.get()
    }

    /// Takes the oldest ready coroutine out and gives it the stack of the one that ended last, if it has not started and may have it.
    #[inline(never)]
    fn begin_next(&self) -> Option<NonNull<Block>> {
        // I5: it was left before what runs here was entered.
        let stack = self.dying.take()?;
        if self.stack_plan.config.is_of(&stack)
            && let Some(next) = self.ready.pop_for_reuse()
        {
            // SAFETY: a queued block is alive.
            self.begin(unsafe { next.as_ref() }, stack);
            return Some(next);
        }
        self.dying.set(Some(stack));
        None
    }

    /// Lets everything else that is ready have its turn.
    #[inline]
    pub(super) fn yield_turn(&self, me: &Block) {
        self.check_fp_env(me);
        let budget = self.budget.get();
        if budget > 0 && self.ready.is_empty() {
            self.budget.set(budget - 1);
            return;
        }
        self.ready.push_last(me);
        self.switch_out(me);
    }

    /// The coroutine has done something that could have waited but did not: a turn of its budget is used up, and the
    /// others have theirs when it is spent.
    #[inline(always)]
    pub(crate) fn take_turn(&self, me: &Block) {
        self.check_fp_env(me);
        let budget = self.budget.get();
        if budget > 1 {
            self.budget.set(budget - 1);
        } else {
            self.take_last_turn(me);
        }
    }

    /// Suspends the current coroutine, whose waiter is armed, until someone's claim wakes it.
    ///
    /// PERF: in the caller's frame, as is the caller in its own: the processor does not foresee where a return after a switch
    /// goes, so that each frame between the switch and the user's code costs some 5 ns.
    #[inline(always)]
    pub(super) fn wait(&self, me: &Block, record: Record, deadline_ns: Option<u64>) -> Reason {
        me.write_record(record, self.tick_ns.get(), deadline_ns.is_some());
        if let Some(deadline_ns) = deadline_ns {
            self.start_timer(me, deadline_ns);
        }
        self.switch_out(me);
        let reason = me.waiter.word.finish();
        if deadline_ns.is_some() && me.timer.is_linked() {
            self.stop_timer(me);
        }
        me.clear_record();
        if record.kind.has_owner() {
            me.leave_lock();
        }
        reason
    }

    /// The loop: returns when nothing is alive and nothing is queued, or as `until` says.
    fn run_loop(&self, until: Until) -> Progress {
        if until.deadline_ns.is_some() {
            self.attention.set(true);
        }
        loop {
            if self.budget.get() == 0 || self.attention.get() {
                self.look_around();
                if let Some(progress) = self.attend(until) {
                    self.count_switches(0);
                    return progress;
                }
            } else {
                self.drain_inbox();
            }
            if let Some(block) = self.ready.pop() {
                self.resume_queued(block);
            } else if !self.shared.posts.is_empty() || self.attention.get() {
                // The next round looks at everything, so that posts which post starve nobody.
                self.count_switches(0);
            } else if self.alive() == 0 {
                self.count_switches(0);
                return Progress::Closed;
            } else {
                self.sleep(until.deadline_ns);
                self.attention
                    .set(until.deadline_ns.is_some() || self.attention.get());
            }
        }
    }

    /// What a look around is for beside coroutines: the wish to stop, the deadline, posts.
    fn attend(&self, until: Until) -> Option<Progress> {
        if self.attention.replace(false) {
            self.let_visitors_in();
        }
        if until
            .deadline_ns
            .is_some_and(|deadline_ns| self.driver.borrow().now_ns() >= deadline_ns)
        {
            return Some(if self.is_idle() {
                Progress::Closed
            } else if self.ready.is_empty() && self.shared.posts.is_empty() {
                Progress::Timeout
            } else {
                Progress::Made
            });
        }
        self.run_some_posts(until)
    }

    fn resume_queued(&self, block: NonNull<Block>) {
        // SAFETY: a queued block is alive.
        self.resume(unsafe { block.as_ref() });
    }

    /// Runs a coroutine until someone switches back to the scheduler's frame.
    fn resume(&self, block: &Block) {
        self.budget.set(self.budget.get().saturating_sub(1));
        let target = if block.has(flag::STARTED) {
            block.context.get()
        } else if self.start(block) {
            self.beginning.get()
        } else {
            return;
        };
        self.set_current(block);
        // SAFETY: the context was prepared or saved; it is of this thread and not running.
        unsafe { switch(self.context.get(), target, 0) };
    }

    /// Gives an unstarted coroutine a stack. If there is none, its end is that nothing of it ran.
    fn start(&self, block: &Block) -> bool {
        let config = block.extra().and_then(|extra| extra.stack.get());
        let own = block.has(flag::OWN_STACK);
        let stack = match self.dying.take() {
            Some(stack) if !own && self.stack_plan.config.is_of(&stack) => Ok(stack),
            dying => {
                // SAFETY: I4.
                let stacks = unsafe { &mut *self.stacks.get() };
                if let Some(stack) = dying {
                    stacks.put(stack);
                }
                stacks.get(config.unwrap_or(&self.stack_plan.config))
            }
        };
        match stack {
            Ok(mut stack) => {
                if block
                    .extra()
                    .is_some_and(|extra| extra.clean_stack.load(Relaxed))
                {
                    stack.clean();
                }
                self.begin(block, stack);
                true
            }
            Err(error) => {
                // One that was cancelled would not have run anyway: the stack was for what its closure's drop does.
                let end = if block.is_cancelled() {
                    JoinError::cancelled()
                } else {
                    JoinError::no_stack(&error)
                };
                // SAFETY: it has not started: its closure is still there.
                unsafe { (block.vtable.get().refuse)(block, end) };
                self.finish(block);
                // SAFETY: the scheduler's reference, which I3 gives up with the end.
                drop(unsafe { BlockRef::adopt(NonNull::from(block)) });
                false
            }
        }
    }

    /// Makes a coroutine begin on a stack that nobody is on: `beginning` is to be switched to next.
    #[inline]
    fn begin(&self, block: &Block, stack: Stack) {
        // SAFETY: a new stack: nothing lies there.
        let base = unsafe { Estate::lay(stack.base()) };
        self.bind(block, stack);
        let address = ptr::from_ref(block).expose_provenance();
        // SAFETY: the stack is the block's alone; the scheduler's context outlives its coroutines.
        let context = unsafe { prepare(base, coroutine_main, address, self.context.get()) };
        // SAFETY: owner thread, and nobody begins meanwhile.
        unsafe { *self.beginning.get() = context };
    }

    /// Makes the stack the block's: from here on it is started, and pinned.
    fn bind(&self, block: &Block, stack: Stack) {
        let owner = ptr::from_ref(block).cast();
        // SAFETY: blocks are never unmapped, and `describe` reads atomics only; the owner is
        // replaced or cleared when the stack changes hands.
        unsafe { stack.set_owner(owner, describe) };
        block.set_stack(stack);
        block.set(flag::STARTED);
    }

    /// What every end has in common: the result is there, now the world is told.
    #[inline]
    fn finish(&self, block: &Block) {
        if let Some((token, key)) = block.extra().and_then(|extra| extra.token.get()) {
            token.forget_coroutine(*key);
        }
        // A joiner that is not seen here sees DONE: both set their bit in the same word before they look.
        if block.life.is_waited() {
            let mut joiners = if block.life.is_joined_here() {
                // SAFETY: that is what it says; and the joiner does not run meanwhile.
                unsafe { block.joiners.lock_alone() }
            } else {
                block.joiners.lock()
            };
            let waiting = joiners.claim_all(Reason::Woken);
            drop(joiners);
            waiting.wake_all();
        }
        let alive = &self.door.figures.alive;
        alive.store(alive.load(Relaxed) - 1, Relaxed);
        if let Some(family) = block.extra().and_then(|extra| extra.family.take()) {
            // SAFETY: its scope waits for this child.
            unsafe { family.as_ref() }.child_ended();
        }
    }

    /// Looks at everything that can make coroutines runnable, without waiting, and grants a new budget.
    fn look_around(&self) {
        self.count_switches(BUDGET);
        self.look();
    }

    /// Says whether a timer's callback ran.
    fn look(&self) -> bool {
        self.drain_inbox();
        self.escalate();
        if self.sources.borrow().watched() > 0 {
            self.poll_driver(Some(0));
        }
        self.fire_timers()
    }

    fn poll_driver(&self, deadline_ns: Option<u64>) {
        // What woke by a waker may be ready already.
        let deadline_ns = if self.deferred.call() {
            Some(0)
        } else {
            deadline_ns
        };
        let mut driver = self.driver.borrow_mut();
        let sources = &self.sources;
        let mut ahead = |token, is_near| sources.borrow().expect(token, is_near);
        driver.poll(deadline_ns, &mut ahead, &mut |token, ready| {
            sources.borrow_mut().report(token, ready)
        });
        drop(driver);
        self.deferred.call();
    }

    /// Publishes how many switches there were since the budget was granted, and grants `next`.
    fn count_switches(&self, next: u32) {
        let left = self.budget.replace(next);
        let granted = self.granted.replace(next);
        let figures = &self.door.figures;
        Figures::add(&figures.switches, u64::from(granted - left));
        // SAFETY: I4.
        let timers = unsafe { &*self.wheel.get() }.len();
        figures.timers.store(timers, Relaxed);
        figures.posts.store(self.shared.posts.len(), Relaxed);
        figures
            .io_waits
            .store(self.sources.borrow().waiting(), Relaxed);
    }

    fn drain_inbox(&self) {
        for (link, kind) in self.door.inbox.drain() {
            if kind == tag::RUN {
                // SAFETY: the tag says so.
                let block = unsafe { Block::of_link(link) };
                // SAFETY: it is alive: it has just been claimed and not run since.
                self.ready.push(unsafe { block.as_ref() });
            } else if kind == tag::CALL {
                self.door.answer();
                self.attention.set(true);
            } else {
                // SAFETY: the tag says so.
                let extra = unsafe { Extra::of_cancel_link(link) };
                // SAFETY: the block that is referenced by the message keeps it.
                let block = unsafe { extra.as_ref() }.block;
                // SAFETY: whoever posted it gave a reference to the block along.
                let block = unsafe { BlockRef::adopt(block) };
                // The next caller's request is seen by the look at `cancel` below.
                block.extra_or_new().cancel_call.answer();
                self.tell_cancel(&block);
            }
        }
        self.follow_orders();
    }

    /// A coroutine of this scheduler has a cancel request: if it waits, its wait ends.
    pub(super) fn tell_cancel(&self, block: &Block) {
        let mine = ptr::eq(block.door.load(Relaxed), self.door);
        let listens = mine && !block.is_done() && !block.has(flag::DEAF) && block.is_refused();
        if listens && block.waiter.word.claim(Reason::Cancelled) == Claim::Won {
            self.ready.push(block);
        }
    }

    /// Sleeps until a timer, a descriptor, another thread or `until_ns`. Says whether a timer's callback ran.
    fn sleep(&self, until_ns: Option<u64>) -> bool {
        if self.knocked.get() {
            for _ in 0..SPINS {
                if !self.door.inbox.is_empty() {
                    return false;
                }
                std::hint::spin_loop();
            }
        }
        self.count_switches(0);
        let deadline_ns = self.next_wake_ns(until_ns);
        let vigil_ns = self.vigil_ns(deadline_ns);
        let deadline_ns = deadline_ns.or(vigil_ns);
        self.begin_vigil(vigil_ns.is_some());
        if self.is_too_close(deadline_ns) {
            self.poll_driver(Some(0));
        } else if self.door.inbox.announce_sleep() {
            Figures::add(&self.door.figures.sleeps, 1);
            // A deadline of 0 means "do not wait"; the wheel gives no such time but in the first
            // nanosecond of the clock.
            self.poll_driver(deadline_ns.map(|deadline_ns| deadline_ns.max(1)));
            self.door.inbox.awake();
        }
        self.knocked.set(!self.door.inbox.is_empty());
        self.drain_inbox();
        let rang = self.fire_timers();
        if let Some(vigil_ns) = vigil_ns {
            self.end_vigil(vigil_ns);
            self.door.break_seal();
        }
        self.count_switches(BUDGET);
        rang
    }

    /// Whether a deadline comes sooner than a sleep in the kernel takes.
    fn is_too_close(&self, deadline_ns: Option<u64>) -> bool {
        deadline_ns.is_some_and(|deadline_ns| {
            deadline_ns <= self.driver.borrow().now_ns().saturating_add(CLOSE_NS)
        })
    }

    /// Takes the early end a step further, if there is one.
    fn escalate(&self) {
        let Teardown::Cancelling(rounds) = self.teardown.get() else {
            return;
        };
        if rounds < PATIENCE {
            self.teardown.set(Teardown::Cancelling(rounds + 1));
        } else {
            self.teardown.set(Teardown::Unwinding);
            // From here on the count is of swallowed unwinds.
            self.for_each_alive(|block| block.refusals.set(0));
        }
    }

    /// Whether a new coroutine is born cancelled.
    pub(super) fn is_ending(&self) -> bool {
        self.closed.get()
    }

    /// A wait of `me` was refused or ended because of a cancel. Others get a turn now and then, so that a loop over
    /// refused waits does not hold the thread; on the way to an early end the forced unwind is raised.
    pub(super) fn note_refusal(&self, me: &Block) {
        me.notice_cancel();
        let unwinding = self.teardown.get() == Teardown::Unwinding;
        let due = unwinding || me.has(flag::UNWIND);
        let possible = due && !std::thread::panicking() && forced::is_possible(me.stack_base());
        if unwinding && !possible {
            self.note_refusal_without_unwind(me);
            return;
        }
        let refusals = me.refusals.get().wrapping_add(1);
        me.refusals.set(refusals);
        if possible {
            if unwinding && refusals > SWALLOWED_MAX {
                forced::report_and_abort(me.id(), me.name().as_deref(), "scheduler");
            }
            forced::unwind();
        }
        if refusals.is_multiple_of(REFUSALS_PER_TURN) {
            self.ready.push_last(me);
            self.switch_out(me);
        }
    }
}

/// How a coroutine is made runnable.
static WAYS: Ways = Ways {
    wake: wake_block,
    is_here: is_block_here,
};

/// Whether the block's coroutine is of the calling thread's scheduler.
unsafe fn is_block_here(waiter: NonNull<Waiter>) -> bool {
    // SAFETY: this function is only given to blocks' waiters.
    let block = unsafe { Block::of_waiter(waiter) };
    // SAFETY: blocks are never unmapped.
    let door = unsafe { block.as_ref() }.door.load(Relaxed);
    current::with_scheduler(|scheduler| ptr::eq(scheduler.door, door)) == Some(true)
}

/// Makes a claimed coroutine runnable, from any thread.
unsafe fn wake_block(waiter: NonNull<Waiter>) {
    // SAFETY: this function is only given to blocks' waiters.
    let block = unsafe { Block::of_waiter(waiter) };
    // SAFETY: alive: it is claimed, and cannot go on before it is pushed below.
    let block = unsafe { block.as_ref() };
    let door = block.door.load(Relaxed);
    let local = current::with_scheduler(|scheduler| {
        ptr::eq(scheduler.door, door) && {
            scheduler.ready.push(block);
            true
        }
    });
    if local != Some(true) {
        // SAFETY: doors are never freed.
        let door = unsafe { &*door };
        // SAFETY: the winner of the claim owns the link; the block stays until it has run.
        unsafe { door.hand_in(NonNull::from(&block.link), tag::RUN) };
    }
}

/// Asks a coroutine to stop, from any thread that holds a reference.
pub(crate) fn request_cancel(block: &BlockRef) {
    // ORDERING: the message below carries it to the owner; a look without it may come late.
    if block.cancel.swap(true, AcqRel) || block.is_done() {
        return;
    }
    let door = block.door.load(Relaxed);
    let local = current::with_scheduler(|scheduler| {
        ptr::eq(scheduler.door, door) && {
            scheduler.tell_cancel(block);
            true
        }
    });
    if local == Some(true) {
        return;
    }
    let call = &block.extra_or_new().cancel_call;
    // The message has a reference, which the owner gives up.
    let give = || {
        block.clone().into_raw();
    };
    // SAFETY: doors are never freed.
    let door = unsafe { &*door };
    // SAFETY: the counted reference keeps it in place.
    unsafe { door.call_by(call, tag::CANCEL, give) };
}

/// The first frame's function: runs the coroutine, then unstarted ones in place, then leaves the stack for good.
unsafe extern "C" fn coroutine_main(block: usize, _value: usize) -> ! {
    let block = ptr::with_exposed_provenance_mut::<Block>(block);
    // SAFETY: `start` passed a block.
    let mut block = unsafe { NonNull::new_unchecked(block) };
    let scheduler = current::scheduler();
    // SAFETY: a coroutine runs on its scheduler's thread, whose pointer is set while it runs.
    let scheduler = unsafe { &*scheduler };
    // SAFETY: `start` has bound a stack to it, and laid an estate there.
    let estate = unsafe { block.as_ref().estate() };
    // SAFETY: it stays at this stack's base, whoever runs on it.
    let estate = unsafe { estate.unwrap_unchecked() };
    while let Some(next) = run_body(scheduler, block, estate) {
        block = next;
    }
    let target = scheduler.next_target();
    // SAFETY: the target was saved when it stopped; nothing is left to be dropped on this stack.
    unsafe { switch_final(target, 0) }
}

/// Runs one coroutine to its end on the stack it is bound to. Returns the next one to run on the same
/// stack, or `None` when the stack has been given up.
#[inline(never)]
fn run_body(
    scheduler: &Scheduler,
    block: NonNull<Block>,
    estate: &Estate,
) -> Option<NonNull<Block>> {
    // SAFETY: I3.
    let this = unsafe { block.as_ref() };
    // SAFETY: its closure is there: it has just started.
    unsafe { (this.vtable.get().run)(this, estate) };
    scheduler.finish(this);
    let stack = this.take_stack();
    let reusable = !this.has(flag::OWN_STACK);
    // What goes with the block may run code of the user's, which must not wait as a coroutine that has ended.
    scheduler.set_current(ptr::null());
    if this.life.is_joined_here() {
        this.life.leave();
    } else {
        // SAFETY: the scheduler's reference, which I3 gives up with the end.
        drop(unsafe { BlockRef::adopt(block) });
    }
    let budget = scheduler.budget.get();
    if reusable
        && budget > 0
        && let Some(next) = scheduler.ready.pop_for_reuse()
    {
        scheduler.budget.set(budget - 1);
        // SAFETY: a queued block is alive.
        let next_block = unsafe { next.as_ref() };
        if let Some(stack) = stack {
            scheduler.bind(next_block, stack);
        }
        scheduler.set_current(next_block);
        return Some(next);
    }
    // I5: the stack before this one has been left; this one is being left.
    if let Some(before) = scheduler.dying.replace(stack) {
        // SAFETY: I4.
        unsafe { &mut *scheduler.stacks.get() }.put(before);
    }
    None
}

/// Writes who a block is into the overflow report. Reads atomics only. Its address also says that the owner of a stack is
/// a block.
#[inline(never)]
pub(crate) unsafe fn describe(owner: *const (), out: &mut dyn fmt::Write) {
    // SAFETY: blocks are never unmapped.
    let block = unsafe { &*owner.cast::<Block>() };
    let location = block.location.load(Acquire);
    let mut write = || -> fmt::Result {
        write!(out, "{}", block.id())?;
        if let Some(name) = block.extra().and_then(|extra| extra.name.get()) {
            write!(out, " \"{name}\"")?;
        }
        // SAFETY: a location is a static.
        if let Some(location) = unsafe { location.as_ref() } {
            write!(out, ", spawned at {location}")?;
        }
        Ok(())
    };
    // The report's writer does not fail; if it did, the rest of the report would still come.
    let _cut_short = write().is_err();
}
