//! Posts: closures that any thread hands to a scheduler; and the handle by which it does.
//!
//! Owns: what a scheduler's handles share with it. Any thread; the owner alone takes closures out and runs them.
//!
//! Invariants
//! - I1. An accepted closure runs once, on the scheduler's own frame, in the order of acceptance: a scheduler ends only with
//!   its queue closed and empty. A refused one comes back to its caller.
//! - I2. A handle outlives its scheduler: the queue is its own, closed for ever; the door is never freed, and a call at one
//!   that has another owner by then makes that one look around once for nothing.
//!
//! Wake-ups do not come this way: their links lie in what they wake, see `door`.
#![expect(
    unsafe_code,
    reason = "gives a refused closure back out of its erased box"
)]

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::{AtomicBool, fence};

use sinew_core::post::{PostQueue, Refusal};

use crate::inspect::SchedulerStats;
use crate::scheduler::door::Door;
use crate::scheduler::step::Progress;
use crate::scheduler::{Scheduler, Until, current, unhandled};

/// How many closures may wait for their turn, if nothing else is said.
pub(super) const LIMIT_DEFAULT: u64 = 1_024;
/// How many posts run at one look: as many as there are switches between two looks.
const BATCH: u32 = super::BUDGET;

/// A closure that was posted.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// What a scheduler and its handles have in common.
pub(super) struct Shared {
    door: &'static Door,
    pub(super) posts: PostQueue<Job>,
    /// Somebody wants `run` to return.
    stop: AtomicBool,
    /// The scheduler is gone.
    ended: AtomicBool,
}

impl Shared {
    pub(super) fn new(door: &'static Door, limit: u64) -> Arc<Self> {
        Arc::new(Self {
            door,
            posts: PostQueue::new(limit),
            stop: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        })
    }

    /// The scheduler goes: its door may have another owner soon.
    pub(super) fn end(&self) {
        self.posts.close();
        // ORDERING: Release pairs with the Acquire in `stats`.
        self.ended.store(true, Release);
    }

    /// Whether the scheduler alone has it, so that no handle exists, nor ever will but by its own doing.
    pub(super) fn is_alone(self: &Arc<Self>) -> bool {
        let is_alone = Arc::strong_count(self) == 1;
        // ORDERING: what was posted by handles that are gone is seen: pairs with the Release of their drop.
        fence(Acquire);
        is_alone
    }

    pub(super) fn ask_to_stop(&self) {
        // ORDERING: Release: what the stopper did before is seen by whoever goes on behind `run`.
        self.stop.store(true, Release);
    }

    /// Takes the wish to stop, if there is one.
    pub(super) fn take_stop(&self) -> bool {
        // ORDERING: pairs with `ask_to_stop`.
        self.stop.load(Acquire) && self.stop.swap(false, AcqRel)
    }
}

impl Scheduler {
    /// Runs posts that wait, a batch at most: the rest has its turn at the next look. A wish to stop comes before each.
    pub(super) fn run_some_posts(&self, until: Until) -> Option<Progress> {
        for _ in 0..BATCH {
            if until.stoppable && self.shared.take_stop() {
                return Some(Progress::Made);
            }
            if !self.run_post() {
                break;
            }
        }
        None
    }

    /// Runs the oldest post, if there is one. Its panic goes where those go that nobody joins.
    pub(super) fn run_post(&self) -> bool {
        let Some(job) = self.shared.posts.take() else {
            return false;
        };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(job)) {
            unhandled::report_contained(0, payload);
        }
        true
    }
}

/// A way into a scheduler from any thread. Clones lead to the same one; it stays safe to use after the scheduler's end.
///
/// # Examples
///
/// ```
/// use sinew::{Scheduler, SchedulerHandle};
///
/// let told = Scheduler::anchor(|s| {
///     let (tx, rx) = std::sync::mpsc::channel();
///     let handle: SchedulerHandle = s.handle();
///     let thread = std::thread::spawn(move || handle.post(move || tx.send("posted").unwrap()).unwrap());
///     thread.join().unwrap();
///     s.run().unwrap();
///     rx.recv().unwrap()
/// });
/// assert_eq!(told, "posted");
/// ```
#[derive(Clone)]
pub struct SchedulerHandle {
    shared: Arc<Shared>,
}

impl SchedulerHandle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The handle of the scheduler of this thread, if there is one.
    #[must_use]
    pub fn current() -> Option<Self> {
        current::with_scheduler(Scheduler::handle)
    }

    /// Hands over a short closure, to be run once on the scheduler's thread, after those that were accepted before.
    ///
    /// It runs on the thread's plain stack, not in a coroutine: in it every wait, and `yield_now`, fails with `State`;
    /// it may spawn, wake and post. Its panic is contained: it goes to the hook of [`crate::inspect::on_unhandled`], with
    /// the id 0, or else is kept to be raised by [`crate::run`] or [`Scheduler::run`] at its end.
    ///
    /// # Suspends
    ///
    /// Never. From any thread, also from the scheduler's own.
    ///
    /// # Errors
    ///
    /// `Again` if as many closures wait as may ([`SchedulerBuilder::post_limit`](crate::SchedulerBuilder::post_limit)),
    /// `Closed` if the scheduler is closed or gone. `f` comes back inside the error, neither run nor dropped.
    pub fn post<F>(&self, f: F) -> Result<(), PostError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let job: Job = Box::new(f);
        self.offer(job).map_err(|(refusal, job)| {
            // SAFETY: it is the box made above, of an `F`, untouched.
            let refused = unsafe { Box::from_raw(Box::into_raw(job).cast::<F>()) };
            PostError::new(refusal, *refused)
        })
    }

    pub(super) fn offer(&self, job: Job) -> Result<(), (Refusal, Job)> {
        self.shared.posts.offer(job)?;
        self.shared.door.call();
        Ok(())
    }

    pub(super) fn door(&self) -> &'static Door {
        self.shared.door
    }

    /// How many posted closures wait for their turn.
    #[must_use]
    pub fn queued_posts(&self) -> u64 {
        self.shared.posts.len()
    }

    /// Makes the scheduler's [`Scheduler::run`] or [`Scheduler::run_until`] return with everything intact; a wait in
    /// [`Scheduler::poll`] ends. A stop that comes early is remembered: the next of these calls takes it. It changes nothing
    /// for [`crate::run`], which returns when everything has ended.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    pub fn stop(&self) {
        self.shared.ask_to_stop();
        self.shared.door.call();
    }

    /// The scheduler's figures, as it last published them (the posts: as of now); `None` after its end.
    #[must_use]
    pub fn stats(&self) -> Option<SchedulerStats> {
        let mut stats = self.shared.door.figures().read();
        stats.posts = self.queued_posts();
        // ORDERING: Acquire pairs with the Release in `end`. Looked at last: the figures of a door's next owner are not
        // taken for the scheduler's, unless it ends in between.
        (!self.shared.ended.load(Acquire)).then_some(stats)
    }
}

impl fmt::Debug for SchedulerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SchedulerHandle")
            .field("queued_posts", &self.queued_posts())
            .finish_non_exhaustive()
    }
}

/// A closure was not accepted; it comes back.
pub struct PostError<F> {
    refusal: Refusal,
    refused: F,
}

impl<F> PostError<F> {
    pub(super) fn new(refusal: Refusal, refused: F) -> Self {
        Self { refusal, refused }
    }

    /// The closure that was refused; nothing of it has run.
    pub fn into_inner(self) -> F {
        self.refused
    }

    /// Whether as many closures wait as may: try again when some have run.
    #[must_use]
    pub fn is_again(&self) -> bool {
        self.refusal == Refusal::Full
    }

    /// Whether the scheduler accepts nothing any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.refusal == Refusal::Closed
    }
}

impl<F> fmt::Debug for PostError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostError")
            .field("refusal", &self.refusal)
            .finish_non_exhaustive()
    }
}

impl<F> fmt::Display for PostError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.refusal {
            Refusal::Full => "the scheduler has as many posts waiting as it may: try again later",
            Refusal::Closed => "the scheduler is closed and accepts no more posts",
        })
    }
}

impl<F> std::error::Error for PostError<F> {}
