//! The thread-locals of the runtime: which scheduler runs on this thread, the limits around its plain code, whether
//! that may wait, how many spin locks are held, its estate, the tasks that run on it, whose worker it is, and what keeps its
//! coroutines without an anchor.
//!
//! Owns: the pointers, the flag and the thread's estate. The scheduler's pointer is set for the length of an anchor and never dangles: the anchor takes it back before
//! the scheduler goes. Coroutines never change their thread once started, so code may rely on the value across a suspend.
#![expect(unsafe_code, reason = "follows the thread's scheduler pointer")]

use std::cell::Cell;
use std::ptr;

use sinew_core::sync::NOT_AN_ID;
use sinew_core::wait::Kind;

use crate::coroutine::{Estate, TaskEstate};
use crate::scheduler::Scheduler;
use crate::scheduler::block::{Block, flag};
use crate::scheduler::crew::{self, Awaited, Need, Purge};
use crate::scheduler::limit::Limit;
use crate::scheduler::linger::Habit;

thread_local! {
    static SCHEDULER: Cell<*const Scheduler> = const { Cell::new(ptr::null()) };
    static LIMITS: Cell<*const Limit> = const { Cell::new(ptr::null()) };
    /// Whether the thread itself, outside of any coroutine, runs a callback in which nothing may wait.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
    /// What keeps the thread's unanchored coroutines, while there are any.
    static KEEPER: Cell<*const ()> = const { Cell::new(ptr::null()) };
    /// How many spin locks the code that runs holds. Counted in debug builds only.
    static SPIN_LOCKS: Cell<u32> = const { Cell::new(0) };
    /// How many of them were held when the innermost stand-alone coroutine was resumed.
    static SPIN_LOCKS_OUTSIDE: Cell<u32> = const { Cell::new(0) };
    /// Counts the selects of the thread, in steps that spread over the whole range.
    static SELECTS: Cell<u32> = const { Cell::new(0) };
    /// The estates of the tasks that run on the thread, the newest first.
    static TASKS: Cell<*const TaskEstate> = const { Cell::new(ptr::null()) };
    /// The pool that the thread is a worker of, as an identity.
    static POOL: Cell<*const ()> = const { Cell::new(ptr::null()) };
    /// The thread's place in the crew of that pool.
    static CREW_PLACE: Cell<*const crew::Place> = const { Cell::new(ptr::null()) };
    /// If it is the only worker of that pool: what ends the jobs that were asked to stop and have not begun.
    static IS_SOLE: Cell<Option<Purge>> = const { Cell::new(None) };
    /// Whether what the thread runs is none of that pool's jobs.
    static IS_ASIDE: Cell<bool> = const { Cell::new(false) };
    /// What the thread is about to wait for.
    static AWAITED: Cell<Option<Awaited>> = const { Cell::new(None) };
    /// The thread's innermost `block_on`, if the thread is the only worker of its pool.
    static POLLS: Cell<*const ()> = const { Cell::new(ptr::null()) };
    /// Whether what the thread's plain code waits for comes soon.
    static HABIT: Cell<Habit> = const { Cell::new(Habit::new()) };
    /// What the worker that the thread is has for its tasks.
    static WORKER: Cell<*const ()> = const { Cell::new(ptr::null()) };
    /// The error context and the arena of the thread's plain code. The only one with a destructor.
    static ESTATE: Estate = const { Estate::of_thread() };
}

/// Runs `f` with the estate of the thread's plain code; with `None` if the thread is ending and has dropped it.
pub(crate) fn with_thread_estate<R>(f: impl FnOnce(Option<&Estate>) -> R) -> R {
    match ESTATE.try_with(ptr::from_ref) {
        // SAFETY: thread-locals are dropped after the thread's last frame, or by a destructor of another one, which this
        // then is part of and which ends first.
        Ok(estate) => f(Some(unsafe { &*estate })),
        Err(_) => f(None),
    }
}

/// What keeps the thread's unanchored coroutines; null while there are none.
pub(crate) fn keeper() -> *const () {
    KEEPER.get()
}

/// Sets that.
pub(crate) fn set_keeper(keeper: *const ()) {
    KEEPER.set(keeper);
}

/// The thread's scheduler, as a raw pointer; null outside of an anchor.
#[inline]
pub(super) fn scheduler() -> *const Scheduler {
    // A thread-local without a destructor is reachable to the thread's end.
    SCHEDULER.get()
}

/// The chain of limits that the thread's own code is inside of.
pub(super) fn thread_limits<'a>() -> &'a Cell<*const Limit> {
    // SAFETY: a thread-local without a destructor lives as long as its thread, and the reference stays on it: a cell
    // is not `Sync`.
    LIMITS.with(|limits| unsafe { &*ptr::from_ref(limits) })
}

/// How many spin locks the code that runs holds; set by what takes and releases them.
#[cfg(debug_assertions)]
#[inline]
pub(crate) fn spin_locks() -> u32 {
    SPIN_LOCKS.get()
}

/// Sets the number of [`spin_locks`], and returns the one before.
#[inline]
pub(crate) fn set_spin_locks(count: u32) -> u32 {
    SPIN_LOCKS.replace(count)
}

const HELD_ACROSS: &str =
    "a spin lock is held across a call that can suspend; whoever wants it meanwhile would spin";

/// Panics in a debug build if the code that runs holds a spin lock: it is about to suspend, or could be.
#[inline(always)]
#[track_caller]
pub(crate) fn expect_no_spin_lock() {
    if cfg!(debug_assertions) && SPIN_LOCKS.get() != 0 && !std::thread::panicking() {
        panic!(
            "a spin lock is held across a call that can suspend; whoever wants it meanwhile would spin"
        );
    }
}

/// The same for a stand-alone coroutine that suspends: what its resumer holds is the resumer's affair.
#[inline(always)]
#[track_caller]
pub(crate) fn expect_no_spin_lock_of_body() {
    if cfg!(debug_assertions)
        && SPIN_LOCKS.get() > SPIN_LOCKS_OUTSIDE.get()
        && !std::thread::panicking()
    {
        panic!("{HELD_ACROSS}");
    }
}

/// A stand-alone coroutine is resumed: the spin locks that are held until here are not its own. Until this is dropped.
#[must_use]
pub(crate) struct SpinLocksOutside(u32);

impl SpinLocksOutside {
    #[inline(always)]
    pub(crate) fn note() -> Self {
        Self(if cfg!(debug_assertions) {
            SPIN_LOCKS_OUTSIDE.replace(SPIN_LOCKS.get())
        } else {
            0
        })
    }
}

impl Drop for SpinLocksOutside {
    #[inline(always)]
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            SPIN_LOCKS_OUTSIDE.set(self.0);
        }
    }
}

/// A number of the calling thread that no other live one has, and no coroutine.
#[inline]
pub(crate) fn thread_number() -> u64 {
    SPIN_LOCKS.with(|own| NOT_AN_ID | ptr::from_ref(own).addr() as u64)
}

/// The id of the current coroutine; 0 where there is none.
#[inline]
pub(crate) fn party_id() -> u64 {
    match place() {
        Place::Coroutine(_, block) => block.id(),
        Place::Thread | Place::Frame => 0,
    }
}

/// Who the calling code is run by: the id of the coroutine, or a thread's number.
#[inline]
pub(crate) fn party_number() -> u64 {
    match place() {
        Place::Coroutine(_, block) => block.id(),
        Place::Thread | Place::Frame => thread_number(),
    }
}

/// A number for a select's turn. A golden section further each time: whoever takes every second one, or every
/// third, of a thread's numbers gets them spread over the whole range too.
pub(crate) fn next_select() -> u32 {
    let number = SELECTS.get().wrapping_add(0x9E37_79B9);
    SELECTS.set(number);
    number
}

/// The tasks that run on this thread, in its plain code or in coroutines, the newest first.
pub(crate) fn tasks<'a>() -> &'a Cell<*const TaskEstate> {
    // SAFETY: as in `thread_limits`.
    TASKS.with(|tasks| unsafe { &*ptr::from_ref(tasks) })
}

/// Says that the thread is a worker of this pool, whether the only one, and what its place in the pool's crew is.
pub(super) fn set_pool(pool: *const (), place: *const crew::Place, sole: Option<Purge>) {
    POOL.set(pool);
    CREW_PLACE.set(place);
    IS_SOLE.set(sole);
}

/// The thread's place in its crew; null if it is in none.
pub(crate) fn place_in_crew() -> *const crew::Place {
    CREW_PLACE.get()
}

/// Whether the thread is the only one that could do what this executor is to do.
pub(crate) fn is_sole_worker_of(executor: usize) -> bool {
    IS_SOLE.get().is_some() && POOL.get().addr() == executor
}

/// Whether the thread is the only one of some pool.
pub(crate) fn is_sole_worker() -> bool {
    IS_SOLE.get().is_some()
}

/// Whether there is anything that the calling thread might have to bring about: it runs a task, or is the only worker of a pool.
pub(crate) fn has_duties() -> bool {
    is_sole_worker() || !TASKS.get().is_null()
}

/// The thread's innermost `block_on`, if the thread is the only worker of its pool; null without.
pub(crate) fn polls() -> *const () {
    POLLS.get()
}

/// Sets that, and returns what it was before.
pub(crate) fn set_polls(polls: *const ()) -> *const () {
    POLLS.replace(polls)
}

/// On the only worker of a pool: ends the pool's jobs that were asked to stop and have not begun, as nobody else is there to do it.
pub(crate) fn purge_own_jobs() {
    if let Some(purge) = IS_SOLE.get() {
        purge(POOL.get());
    }
}

/// What the thread's plain code is about to wait for, if an executor is to do it.
pub(super) fn awaited() -> Option<Awaited> {
    AWAITED.get()
}

/// Whether the calling code is a thread's in a crew, and plain: a wait of it is to be told of by [`awaiting`].
pub(crate) fn is_in_crew() -> bool {
    !CREW_PLACE.get().is_null() && matches!(place(), Place::Thread)
}

/// Runs a wait of the thread's plain code for something that an executor is to do.
pub(crate) fn awaiting<N: Need, R>(kind: Kind, need: &N, wait: impl FnOnce() -> R) -> R {
    if !is_in_crew() {
        return wait();
    }
    awaiting_blocked(kind, need, wait)
}

/// The same for a wait that blocks the thread wherever its code runs.
pub(crate) fn awaiting_blocked<N: Need, R>(kind: Kind, need: &N, wait: impl FnOnce() -> R) -> R {
    let before = AWAITED.replace(Some(Awaited::new(kind, need)));
    let result = wait();
    AWAITED.set(before);
    result
}

/// Whether what the thread runs is none of its pool's jobs.
pub(super) fn is_aside() -> bool {
    IS_ASIDE.get()
}

/// Runs something on a pool's thread that is none of the pool's jobs; it must not unwind.
pub(crate) fn aside(f: impl FnOnce()) {
    let before = IS_ASIDE.replace(true);
    f();
    IS_ASIDE.set(before);
}

/// What the thread remembers of the waits of its plain code.
pub(super) fn habit<'a>() -> &'a Cell<Habit> {
    // SAFETY: as in `thread_limits`.
    HABIT.with(|habit| unsafe { &*ptr::from_ref(habit) })
}

/// Says what the tasks of the worker find that the thread is; null if it is none any more.
pub(crate) fn set_worker(local: *const ()) {
    WORKER.set(local);
}

/// What [`set_worker`] said last.
pub(crate) fn worker() -> *const () {
    WORKER.get()
}

/// Whether the thread is a worker of this pool.
pub(crate) fn is_worker_of(pool: *const ()) -> bool {
    ptr::eq(POOL.get(), pool)
}

/// Sets the thread's scheduler and returns the one before.
pub(super) fn set_scheduler(scheduler: *const Scheduler) -> *const Scheduler {
    SCHEDULER.replace(scheduler)
}

/// Runs `f` with the thread's scheduler, if there is one.
#[inline]
pub(crate) fn with_scheduler<R>(f: impl FnOnce(&Scheduler) -> R) -> Option<R> {
    // SAFETY: not null means that the anchor that set it is still on this thread's stack.
    unsafe { scheduler().as_ref() }.map(f)
}

/// Where the calling code runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    /// On a plain thread, outside of any scheduler.
    Thread,
    /// On a scheduler's own frame, not in a coroutine.
    Frame,
    /// In this coroutine of this scheduler.
    Coroutine(&'a Scheduler, &'a Block),
}

/// Where the calling code runs. The references are good as long as the caller stays in the coroutine.
#[inline]
pub(crate) fn place<'a>() -> Place<'a> {
    // SAFETY: as in `with_scheduler`; a coroutine that runs keeps its scheduler.
    let Some(scheduler) = (unsafe { scheduler().as_ref() }) else {
        return Place::Thread;
    };
    // SAFETY: the current block is referenced by its scheduler until the coroutine has ended.
    match unsafe { scheduler.current().as_ref() } {
        Some(block) => Place::Coroutine(scheduler, block),
        None => Place::Frame,
    }
}

/// A call that did not have to wait is a turn too, so that a pair that never waits does not starve the rest.
///
/// PERF: on a scheduler's own frame too it uses the budget up, where that means nothing: only who has used it up asks where it is.
#[inline(always)]
pub(crate) fn take_turn() {
    // SAFETY: as in `with_scheduler`.
    let Some(scheduler) = (unsafe { scheduler().as_ref() }) else {
        return;
    };
    let budget = scheduler.budget.get();
    if budget > 1 {
        scheduler.budget.set(budget - 1);
    } else {
        take_last_turn();
    }
}

/// The budget is spent: the others have their turn.
#[cold]
#[inline(never)]
fn take_last_turn() {
    if let Place::Coroutine(scheduler, block) = place() {
        scheduler.take_turn(block);
    }
}

/// Before a call that could wait: panics in a debug build where a coroutine has changed what is not its own, see
/// [`Waiting`](crate::scheduler::waiting::Waiting).
#[inline(always)]
#[track_caller]
pub(crate) fn check_call() {
    if cfg!(debug_assertions) {
        let place = place();
        match place {
            Place::Coroutine(scheduler, block) if place.may_wait() => scheduler.check_fp_env(block),
            Place::Thread if place.may_wait() => expect_no_spin_lock(),
            _ => {}
        }
    }
}

/// The scheduler of which the calling code runs in a coroutine, and on that coroutine's own stack. On the stack of a
/// stand-alone coroutine there is none: it may go on when the scheduler around it is gone.
pub(crate) fn scheduler_of_this_stack<'a>() -> Option<&'a Scheduler> {
    let Place::Coroutine(scheduler, block) = place() else {
        return None;
    };
    // SAFETY: owner thread, and the coroutine runs: nobody changes its stack now.
    let stack = unsafe { &*block.stack.get() }.as_ref()?;
    let address = sinew_context::arch::stack_pointer();
    let own = stack.limit().addr().get()..stack.base().addr().get();
    own.contains(&address).then_some(scheduler)
}

impl Place<'_> {
    /// Whether code may wait here: not on a scheduler's own frame, nor in a callback.
    #[inline]
    pub(crate) fn may_wait(self) -> bool {
        match self {
            Self::Frame => false,
            Self::Coroutine(_, block) => !block.has(flag::IN_CALLBACK),
            Self::Thread => !IN_CALLBACK.get(),
        }
    }

    /// Says whether what runs here is such a callback, and a cleanup; returns what it was before.
    fn set_restrained(self, (in_callback, in_cleanup): (bool, bool)) -> (bool, bool) {
        match self {
            Self::Frame => (false, false),
            Self::Coroutine(_, block) => {
                let was_in_callback = block.has(flag::IN_CALLBACK);
                if in_callback {
                    block.set(flag::IN_CALLBACK);
                } else {
                    block.clear(flag::IN_CALLBACK);
                }
                let was_in_cleanup = block
                    .estate()
                    .is_some_and(|estate| estate.set_in_cleanup(in_cleanup));
                (was_in_callback, was_in_cleanup)
            }
            // A thread has no cancel that a cleanup could confirm.
            Self::Thread => (IN_CALLBACK.replace(in_callback), false),
        }
    }

    fn is_in_cleanup(self) -> bool {
        matches!(self, Self::Coroutine(_, block) if block.is_in_cleanup())
    }
}

/// Runs a callback in which every wait of the calling party fails with `State`, and so does a suspend of the stand-alone
/// coroutine that it runs in. It may unwind.
pub(crate) fn without_waits<R>(f: impl FnOnce() -> R) -> R {
    restrained(false, f)
}

/// The same for a cleanup, in which moreover no cancel can be confirmed.
pub(crate) fn in_cleanup<R>(f: impl FnOnce() -> R) -> R {
    restrained(true, f)
}

fn restrained<R>(is_cleanup: bool, f: impl FnOnce() -> R) -> R {
    /// The place, and how it was before.
    struct Restore<'a>(Place<'a>, (bool, bool));

    impl Drop for Restore<'_> {
        fn drop(&mut self) {
            self.0.set_restrained(self.1);
        }
    }

    let place = place();
    let in_cleanup = is_cleanup || place.is_in_cleanup();
    let _restore = Restore(place, place.set_restrained((true, in_cleanup)));
    let _held = Estate::hold_suspends(is_cleanup);
    f()
}
