//! Coroutines that another thread starts here: `SchedulerHandle::spawn`.
//!
//! Owns: the way of a new block from the thread that fills it to the scheduler that runs it, which is that of a post. Any thread.
//!
//! Invariants
//! - I1. A block on its way is the post's: it has the scheduler's count, but is not among those alive there before it has arrived.
//!   The scheduler takes no hold of it before: it may be refused, and is another coroutine's block then. Orders for it are kept.
//! - I2. An accepted block arrives: accepted posts run. If the scheduler is closed by then the coroutine is born cancelled.
#![expect(
    unsafe_code,
    reason = "fills in new control blocks and hands them over"
)]

use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use crate::join::JoinHandle;
use crate::scheduler::block::{Block, BlockRef, life};
use crate::scheduler::current::{self, Place, place};
use crate::scheduler::door::Figures;
use crate::scheduler::order::{self, NotFound};
use crate::scheduler::post::{PostError, SchedulerHandle};
use crate::scheduler::{Scheduler, body, slab, spawn};

/// A block on its way to its scheduler.
struct Arrival(BlockRef);

impl Arrival {
    fn arrive(self) {
        let block = self.0.into_raw();
        // A post runs on its scheduler's frame.
        current::with_scheduler(|scheduler| scheduler.welcome(block));
    }
}

impl Scheduler {
    /// Takes on a block that was filled in elsewhere, with the scheduler's count of it.
    fn welcome(&self, block: NonNull<Block>) {
        // SAFETY: counted.
        let block = unsafe { block.as_ref() };
        block.life.arrive();
        if self.is_ending() {
            block.cancel.store(true, Relaxed);
        }
        self.count_new();
        self.follow_kept(&BlockRef::of(block));
        self.push_ready(block);
    }

    /// One more is alive.
    #[inline]
    pub(super) fn count_new(&self) {
        let figures = self.door.figures();
        figures
            .alive
            .store(figures.alive.load(Relaxed) + 1, Relaxed);
        Figures::add(&figures.created, 1);
    }
}

impl SchedulerHandle {
    /// Starts a coroutine on the scheduler, from any thread, and returns a handle to its end.
    ///
    /// It gets in line behind the posts that were accepted before, takes a place among them until it has arrived, and runs on the
    /// scheduler's thread. It inherits no coroutine-locals. If the scheduler is closed before it has arrived it never runs, and its
    /// outcome is [`crate::Outcome::Cancelled`].
    ///
    /// # Suspends
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// As for [`SchedulerHandle::post`]; `f` comes back inside the error, and nothing of it has run.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::Scheduler;
    ///
    /// Scheduler::anchor(|s| {
    ///     let handle = s.handle();
    ///     let thread = std::thread::spawn(move || handle.spawn(|| 6 * 7).unwrap().join().unwrap());
    ///     while !thread.is_finished() {
    ///         s.poll(std::time::Instant::now() + std::time::Duration::from_millis(1)).unwrap();
    ///     }
    ///     assert_eq!(thread.join().unwrap(), 42);
    /// });
    /// ```
    #[track_caller]
    pub fn spawn<F, T>(&self, f: F) -> Result<JoinHandle<T>, PostError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let location = Location::caller();
        let parent = match place() {
            Place::Coroutine(_, block) => block.id(),
            Place::Thread | Place::Frame => 0,
        };
        let raw = slab::take();
        // SAFETY: a free block that was taken is initialised and the caller's.
        let block = unsafe { raw.as_ref() };
        let life = life::HANDLE | life::STATIC | life::AWAY;
        // SAFETY: both are 'static.
        unsafe {
            spawn::fill(
                block,
                self.door(),
                f,
                life,
                false,
                location,
                spawn::one_id(),
                parent,
            )
        };
        // SAFETY: the scheduler's count, of two.
        let arrival = Arrival(unsafe { slab::first_ref(raw) });
        match self.offer(Box::new(move || arrival.arrive())) {
            // SAFETY: the block was made for `T`, with a count for the handle.
            Ok(()) => Ok(unsafe { JoinHandle::new(raw) }),
            Err((refusal, job)) => {
                // SAFETY: the closure is in the block, and nobody else will take it out.
                let refused = unsafe { body::take_back::<F, T>(block) };
                // The arrival's count goes with it.
                drop(job);
                // SAFETY: the handle's count.
                drop(unsafe { slab::first_ref(raw) });
                Err(PostError::new(refusal, refused))
            }
        }
    }

    /// Unparks the coroutine of this scheduler that has this id, from any thread, as [`crate::Unparker::unpark`] does. Looks at all
    /// coroutines; an [`crate::Unparker`] does not have to.
    ///
    /// # Suspends
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// `NotFound` if no such coroutine lives on this scheduler.
    pub fn unpark(&self, id: u64) -> Result<(), NotFound> {
        order::unpark(self.door(), id)
    }
}
