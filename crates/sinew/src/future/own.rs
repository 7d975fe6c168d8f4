//! What a `block_on` on the only worker of a pool waits for: whether that worker itself would have to bring it.
//!
//! Owns: the count of a `block_on`'s waits for jobs of the thread's own pool. Thread: the polling one; a wait that was moved away may be
//! dropped on another.
//!
//! # Why a refusal is right
//!
//! Nobody wakes a `block_on` but by a clone of its waker. If there are just as many clones as waits for the pool's jobs were found pending in
//! the last poll, each of which has one, then only an end of such a job wakes it, and the only thread that runs them is the one that
//! is about to stop. A clone that anybody else has makes the numbers differ, and so does one that lies behind another waker, as
//! some combinators have them: then nothing is refused.
//!
//! Invariants
//! - I1. A wait is counted once in a poll at most, and not any more when it is dropped.
#![expect(
    unsafe_code,
    reason = "follows the thread's pointer to the innermost `block_on`"
)]

use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use crate::scheduler::current;

/// The waits of a `block_on` for jobs of the thread's own pool, of its last poll.
#[derive(Debug, Default)]
struct Waits {
    /// Which poll that is.
    poll: AtomicUsize,
    count: AtomicUsize,
}

/// A `block_on` on the only worker of a pool; it is the thread's innermost one until it is dropped.
pub(super) struct OwnPolls<'a> {
    polls: Box<Polls>,
    before: *const (),
    waker: PhantomData<&'a Waker>,
}

struct Polls {
    waits: Arc<Waits>,
    waker: *const Waker,
}

impl<'a> OwnPolls<'a> {
    /// Of the `block_on` with this waker; `None` where nobody waits for itself.
    pub(super) fn begin(waker: &'a Waker) -> Option<Self> {
        if !current::is_sole_worker() {
            return None;
        }
        let polls = Box::new(Polls {
            waits: Arc::default(),
            waker,
        });
        Some(Self {
            before: current::set_polls(ptr::from_ref(&*polls).cast()),
            polls,
            waker: PhantomData,
        })
    }

    /// A poll begins.
    pub(super) fn next_poll(&self) {
        self.polls.waits.poll.fetch_add(1, Relaxed);
        self.polls.waits.count.store(0, Relaxed);
    }

    /// How many waits were found pending in this poll.
    pub(super) fn count(&self) -> usize {
        self.polls.waits.count.load(Relaxed)
    }
}

impl Drop for OwnPolls<'_> {
    fn drop(&mut self) {
        current::set_polls(self.before);
    }
}

/// What a wait that is polled keeps of having been counted. It is dropped before the wait gives its clone of the waker back.
#[derive(Debug, Default)]
pub(super) struct OwnWait(Option<(Arc<Waits>, usize)>);

impl OwnWait {
    /// The wait was found pending, and keeps a clone of `waker`.
    pub(super) fn note(&mut self, executor: usize, waker: &Waker) {
        if !current::is_sole_worker_of(executor) {
            return;
        }
        // SAFETY: set by an `OwnPolls`, which takes it back before it goes.
        let Some(polls) = (unsafe { current::polls().cast::<Polls>().as_ref() }) else {
            return;
        };
        // SAFETY: lent to the `OwnPolls`.
        if !waker.will_wake(unsafe { &*polls.waker }) {
            return;
        }
        let poll = polls.waits.poll.load(Relaxed);
        if let Some((waits, counted)) = &self.0
            && Arc::ptr_eq(waits, &polls.waits)
            && *counted == poll
        {
            return;
        }
        self.forget();
        polls.waits.count.fetch_add(1, Relaxed);
        self.0 = Some((polls.waits.clone(), poll));
    }

    /// The wait is over, or goes on elsewhere.
    pub(super) fn forget(&mut self) {
        if let Some((waits, counted)) = self.0.take()
            && waits.poll.load(Relaxed) == counted
        {
            waits.count.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for OwnWait {
    fn drop(&mut self) {
        self.forget();
    }
}
