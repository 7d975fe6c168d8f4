//! The scheduler as an object: its anchor, its builder, its close and its end.
//!
//! Owns: the way in and the way out. Thread: the scheduler's; what other threads do is in `post`.
//!
//! # The end of an anchor, step by step
//!
//! 1. The queue of posts is closed; what was accepted runs, in order ([`Scheduler::end`]).
//! 2. Everything alive is cancelled, in the order of its making ([`Scheduler::cancel_everything`]).
//! 3. It runs to its end; what does not end is unwound, and what swallows that is reported (`escalate`, `note_refusal`).
//! 4. The closure's panic, or the first one that nobody joined, is raised.

#![expect(
    unsafe_code,
    reason = "passes on the promise of stacks without a guard"
)]

use std::panic::resume_unwind;
use std::time::Duration;
use std::{fmt, io, ptr};

use sinew_context::stack::overflow;
use sinew_context::unwind::catch_to_pass_on;
use sinew_core::timer::Slack;

use crate::coroutine::alternate_stack;
use crate::scheduler::body::drop_payload;
use crate::scheduler::exit::CLOSING;
use crate::scheduler::post::{LIMIT_DEFAULT, SchedulerHandle, Shared};
use crate::scheduler::run::RunError;
use crate::scheduler::{Scheduler, Until, current};
use crate::stack::{CacheLimits, Choice, Plan};
use crate::sys::clock;

/// This cannot be done here or now: inside of a coroutine, or while coroutines exist, or without a scheduler. The
/// documentation of each function says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateError;

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not possible in this place or state of the scheduler")
    }
}

impl std::error::Error for StateError {}

/// How a scheduler is set up.
///
/// # Examples
///
/// ```
/// let refused = sinew::Scheduler::builder().post_limit(1).anchor(|s| {
///     let handle = s.handle();
///     handle.post(|| ()).unwrap();
///     handle.post(|| ()).unwrap_err().is_again()
/// });
/// assert!(refused);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct SchedulerBuilder {
    post_limit: u64,
    stack: Choice,
    stack_cache: Option<CacheLimits>,
    timer_slack: Slack,
}

impl SchedulerBuilder {
    /// How many posted closures may wait for their turn; 1,024 if nothing is said. At 0 every post is refused.
    pub fn post_limit(mut self, closures: u64) -> Self {
        self.post_limit = closures;
        self
    }

    /// Takes the limit on waiting posts away.
    pub fn unlimited_posts(self) -> Self {
        self.post_limit(u64::MAX)
    }

    /// The usable size of its coroutines' stacks, in bytes, unless a coroutine's own builder says otherwise; at least 32 KiB and
    /// at most 1 GiB; 0 means the default, 248 KiB. Sizes are rounded up by at most a fifth.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack.set_size(bytes);
        self
    }

    /// The size of the guards below those stacks, in bytes, at most 1 GiB; rounded up to a power of two of pages; 0 means the
    /// default, one page.
    pub fn guard_size(mut self, bytes: usize) -> Self {
        self.stack.set_guard(bytes);
        self
    }

    /// Does without guards, unless a coroutine's own builder asks for one.
    ///
    /// # Safety
    ///
    /// No coroutine of the scheduler ever needs more than its stack's size, see [`Builder::unguarded`](crate::Builder::unguarded).
    pub unsafe fn unguarded(mut self) -> Self {
        // SAFETY: passed on to the caller.
        unsafe { self.stack.set_unguarded() };
        self
    }

    /// Whether stacks are kept warm for the next coroutine, which is the default, unless a coroutine's own builder says
    /// otherwise; see [`Builder::pooled`](crate::Builder::pooled). If not, a stack whose coroutine has just ended may all the same
    /// run the next one that has not started.
    pub fn pooled(mut self, is_pooled: bool) -> Self {
        self.stack.set_pooled(is_pooled);
        self
    }

    /// How many warm stacks the scheduler keeps; if nothing is said [`CacheLimits::of_process`].
    pub fn stack_cache(mut self, limits: CacheLimits) -> Self {
        self.stack_cache = Some(limits);
        self
    }

    /// How much later than asked a sleep, a timeout, a deadline of a wait or a [`Timer`](crate::time::Timer) of the scheduler may end, so
    /// that those near each other end together, by one wake of the thread: the larger, the less CPU many timers take. None ends early.
    ///
    /// Each ends at the first multiple of `slack` on the process's clock that is not before its time, and at most 1,024 ns after that, the
    /// width of the scheduler's ticks; so all timers of the process's schedulers with the same slack share their instants, and a
    /// loop over `sleep(1 ms)` with a slack of 10 ms goes round every 10 ms. What is due when it begins does not wait. The largest is
    /// one second: more is taken for that, and parts of a nanosecond do not exist. A slack of 1 ms is what runtimes have whose clock ticks by
    /// milliseconds; one of 1 ns is the most precise.
    ///
    /// Zero, or if nothing is said: as [`crate::time`] says, 1/1024 of each wait and less than 525 µs.
    ///
    /// How late a busy thread is comes on top. Not affected are [`Scheduler::run_until`] and its like,
    /// [`CancelToken::with_deadline`](crate::CancelToken::with_deadline), which is not a scheduler's, and plain threads.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let slack = Duration::from_millis(10);
    /// sinew::Scheduler::builder().timer_slack(slack).run(|| {
    ///     let sleeps = || sinew::SchedulerHandle::current().unwrap().stats().unwrap().sleeps;
    ///     let before = sleeps();
    ///     for us in 1..=1_000 {
    ///         sinew::go_local(move || sinew::sleep(Duration::from_micros(us)).unwrap());
    ///     }
    ///     sinew::sleep(Duration::from_millis(20)).unwrap();
    ///     assert!(sleeps() - before < 20);
    /// });
    /// ```
    pub fn timer_slack(mut self, slack: Duration) -> Self {
        self.timer_slack = Slack::of_ns(clock::to_ns(slack));
        self
    }

    /// Runs `f` with a scheduler of this thread, see [`Scheduler::anchor`].
    ///
    /// # Panics
    ///
    /// As for [`Scheduler::anchor`].
    #[track_caller]
    pub fn anchor<R>(self, f: impl FnOnce(&Scheduler) -> R) -> R {
        match self.try_anchor(f) {
            Ok(value) => value,
            Err(error) => error.raise(),
        }
    }

    /// As [`SchedulerBuilder::anchor`], with an error where that would panic for a reason of its own.
    ///
    /// # Errors
    ///
    /// [`RunError::State`] if this thread has a scheduler already, or inside of a stand-alone coroutine; [`RunError::Io`]
    /// if the kernel refuses a descriptor or memory; [`RunError::Invalid`] for a stack or guard size out of range. `f` has not
    /// run then.
    ///
    /// # Panics
    ///
    /// With the panic of `f`, or with the first panic that nobody joined.
    pub fn try_anchor<R>(self, f: impl FnOnce(&Scheduler) -> R) -> Result<R, RunError> {
        if !current::scheduler().is_null() || crate::coroutine::is_inside() {
            return Err(RunError::State);
        }
        let stack_plan = Plan {
            choice: self.stack,
            config: self.stack.config().map_err(RunError::Invalid)?,
            limits: self.stack_cache.unwrap_or_else(CacheLimits::of_process),
        };
        let to_io = |error: sinew_context::stack::StackError| RunError::Io(io::Error::other(error));
        overflow::install().map_err(to_io)?;
        let _alternate_stack = alternate_stack().map_err(to_io)?;
        let scheduler =
            Scheduler::new(self.post_limit, stack_plan, self.timer_slack).map_err(RunError::Io)?;
        let anchor = Anchor::set(&scheduler);
        // Caught, so that whatever ends `f`, everything has ended before the scheduler goes.
        let result = catch_to_pass_on(|| f(&scheduler));
        scheduler.end();
        drop(anchor);
        let kept = scheduler.kept_panic.take();
        drop(scheduler);
        match (result, kept) {
            (Ok(value), None) => Ok(value),
            (Ok(value), Some(payload)) => {
                drop(value);
                resume_unwind(payload)
            }
            (Err(payload), kept) => {
                if let Some(kept) = kept {
                    drop_payload(kept);
                }
                resume_unwind(payload)
            }
        }
    }
}

impl Scheduler {
    /// Runs `f` with a scheduler of this thread. `f` itself is not in a coroutine: it spawns, and runs what it has spawned
    /// with [`Scheduler::run`], [`Scheduler::step`] and the like. A wait in `f` would be one for itself: it fails with
    /// `State`.
    ///
    /// At its end the scheduler is closed: posts that were accepted run, coroutines that are alive are cancelled and run to
    /// their end; what does not end by itself is unwound; what swallows even that is reported, and the process aborts.
    ///
    /// # Suspends
    ///
    /// Never; its end blocks the thread until everything has ended.
    ///
    /// # Panics
    ///
    /// - With the panic of `f`, or with the first panic that nobody joined or of a post, if no hook is set
    ///   ([`crate::inspect::on_unhandled`]) and no [`Scheduler::run`] has raised it.
    /// - If this thread has a scheduler already, or inside of a stand-alone coroutine, or if the kernel refuses a descriptor;
    ///   [`SchedulerBuilder::try_anchor`] returns these.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::{Progress, Scheduler};
    ///
    /// let value = Scheduler::anchor(|s| {
    ///     let handle = sinew::spawn_local(|| 6 * 7);
    ///     assert_eq!(s.run(), Ok(Progress::Closed));
    ///     handle.join().unwrap()
    /// });
    /// assert_eq!(value, 42);
    /// ```
    #[track_caller]
    pub fn anchor<R>(f: impl FnOnce(&Self) -> R) -> R {
        Self::builder().anchor(f)
    }

    /// A builder with every default.
    pub fn builder() -> SchedulerBuilder {
        SchedulerBuilder {
            post_limit: LIMIT_DEFAULT,
            stack: Choice::default(),
            stack_cache: None,
            timer_slack: Slack::FINE,
        }
    }

    /// A way into this scheduler from any thread.
    #[must_use]
    pub fn handle(&self) -> SchedulerHandle {
        SchedulerHandle::new(self.shared.clone())
    }

    /// Whether nothing is alive and nothing is queued.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.alive() == 0 && self.shared.posts.is_empty()
    }

    /// Whether the scheduler accepts no more coroutines and posts.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_ending()
    }

    /// Accepts no more coroutines and posts, and asks everything alive to stop. Posts that were accepted still run, in
    /// order, when the scheduler runs the next time.
    ///
    /// From now on posts and [`crate::Builder::spawn_local`] are refused with `Closed`; a coroutine from
    /// [`crate::spawn_local`], [`crate::go_local`] or a scope is born cancelled: it never runs, and its handle says so.
    ///
    /// # Suspends
    ///
    /// Never.
    pub fn close(&self) {
        self.cancel_all(CLOSING);
    }

    /// Closes the scheduler if nothing would be lost by that: after an `Ok` its anchor ends without more ado.
    ///
    /// # Errors
    ///
    /// `State` if posts have not run or coroutines are alive; nothing has changed then.
    pub fn try_destroy(&self) -> Result<(), StateError> {
        if self.alive() != 0 || !self.shared.posts.close_if_empty() {
            return Err(StateError);
        }
        self.closed.set(true);
        Ok(())
    }

    /// The code that [`crate::exit_all`] was called with.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        self.exit_code.get()
    }

    /// The anchor's end: see the file's head.
    fn end(&self) {
        self.shared.posts.close();
        self.closed.set(true);
        while self.run_post() {}
        self.cancel_everything();
        self.vigil.keep();
        let _closed = self.run_loop(Until::EMPTY);
    }
}

/// Makes the [`Scheduler::run`] or [`Scheduler::run_until`] that runs the calling coroutine or post return, with everything
/// intact, as soon as the caller stops or ends. A later call goes on.
///
/// # Suspends
///
/// Never.
///
/// # Errors
///
/// `State` if none of these runs on this thread; so also inside of [`crate::run`], which returns when everything has
/// ended.
pub fn stop() -> Result<(), StateError> {
    current::with_scheduler(|scheduler| {
        if !scheduler.stoppable.get() {
            return Err(StateError);
        }
        scheduler.shared.ask_to_stop();
        // The next switch goes to the scheduler's frame, which looks; on that frame, in a timer's callback, its next round does.
        scheduler.count_switches(0);
        scheduler.attention.set(true);
        Ok(())
    })
    .unwrap_or(Err(StateError))
}

/// Frees what the runtime keeps for this thread.
///
/// There is nothing to free now: all that the runtime has on a thread belongs to a scheduler or an anchor, and goes with
/// it, so a thread cannot end with a suspended coroutine on it. The call checks that the thread has neither.
///
/// # Suspends
///
/// Never.
///
/// # Errors
///
/// `State` inside of a scheduler or a stand-alone coroutine.
pub fn thread_detach() -> Result<(), StateError> {
    if !current::scheduler().is_null() || crate::coroutine::is_inside() {
        return Err(StateError);
    }
    Ok(())
}

/// The thread's pointer to the scheduler, set for the length of an anchor.
struct Anchor;

impl Anchor {
    fn set(scheduler: &Scheduler) -> Self {
        current::set_scheduler(scheduler);
        Self
    }
}

impl Drop for Anchor {
    fn drop(&mut self) {
        current::set_scheduler(ptr::null());
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        debug_assert!(
            self.is_idle(),
            "an anchor ends with its last coroutine and post"
        );
        Shared::end(&self.shared);
        self.give_alarms_up();
        self.free.give_back();
        self.door.give_back();
    }
}
