//! Something that is done once: by one party at a time, until one has succeeded.
//!
//! Owns: the status, who is at it, and the lines. Any thread may call anything here.
//!
//! | status | meaning | next |
//! |---|---|---|
//! | `EMPTY` 0 | nobody has succeeded, nobody is at it | `RUNNING`: whoever comes to do it |
//! | `RUNNING` 1 | one party is at it and has a [`Turn`] | `DONE`: its turn is [completed](Turn::complete); `EMPTY` or again `RUNNING`: it is dropped |
//! | `DONE` 2 | done for good | `EMPTY`, by an exclusive borrow |
//!
//! Invariants
//! - I1. While the status is `RUNNING` there is one [`Turn`], or a party that was claimed for one.
//! - I2. While it is not, nobody who could still be claimed waits in the line of those who would do it.
//! - I3. While it is `DONE` nobody who could still be claimed waits at all.
//!
//! A turn that is dropped without being completed, by a failure, a panic or a forced unwind, goes to the party that has waited longest to
//! do it; if none waits, to whoever comes next. Those who only wait for the outcome go on waiting.
//!
//! Everybody names itself by a number other than 0 that is its alone, so that who is at it and comes again, from within, is told so
//! instead of waiting for itself. Numbers from [`NOT_AN_ID`] on are no coroutine's, and wait records do not tell them.
#![expect(
    unsafe_code,
    reason = "waits through queues, and hands over through a waiter's frame"
)]

use core::fmt;
use core::mem;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::facade::{AtomicU64, const_unless_loom};
use crate::lock::{Guard, Lock};
use crate::sharing::{Shared, Sharing, Word};
use crate::wait::{Kind, Queue, Reason, Record, Suspend, WakeList, wait_in};

const EMPTY: u32 = 0;
const RUNNING: u32 = 1;
const DONE: u32 = 2;

/// The first number that is not an id of a coroutine; those from here on can be given to threads.
pub const NOT_AN_ID: u64 = 1 << 63;

/// Something to be done once.
///
/// `K` says whose parties share it: of all threads, or of one.
#[repr(C)]
pub struct RawOnce<K: Sharing = Shared> {
    /// Who is at it; 0 while nobody is. Changed under the lock only. The first field, and an atomic in both kinds, for
    /// [`runner_at`](Self::runner_at): dumps look from any thread.
    runner: AtomicU64,
    /// Changed under the lock only.
    status: K::Word,
    lines: Lock<Lines, K>,
}

struct Lines {
    /// Those who would do it. The slot of each is its number, in its frame.
    doers: Queue,
    /// Those who wait for the outcome.
    watchers: Queue,
}

/// What a party finds that has come to do it.
#[derive(Debug)]
#[must_use = "a turn that is dropped goes to the next party"]
pub enum Begin<'a, K: Sharing = Shared> {
    /// It is done.
    Done,
    /// It is this party's to do.
    Turn(Turn<'a, K>),
    /// The party is at it already: it would wait for itself.
    Reentered,
}

/// Who is at it when nobody waits for that to end.
#[derive(Debug)]
#[must_use = "a turn that is dropped goes to the next party"]
pub enum TryBegin<'a, K: Sharing = Shared> {
    /// It is done.
    Done,
    /// It is this party's to do.
    Turn(Turn<'a, K>),
    /// Another is at it, or the party itself.
    Busy,
}

impl RawOnce {
    const_unless_loom! {
        /// Nothing is done yet; for all threads.
        pub fn new() -> Self {
            Self::of_kind()
        }
    }

    /// As [`runner`](Self::runner), of the one of either kind that a wait record names as its object.
    ///
    /// # Safety
    ///
    /// `object` is from a record of [`Kind::Once`], whose waiter has not gone on and cannot before this returns: it borrows
    /// what it waits for, which keeps that in place.
    #[must_use]
    pub unsafe fn runner_at(object: usize) -> u64 {
        // SAFETY: `record` exposed the address of what begins with its runner, and the caller knows that it is there still.
        let runner = unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(object) };
        runner.load(Relaxed)
    }
}

impl<K: Sharing> RawOnce<K> {
    /// Nothing is done yet; of either kind.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn of_kind() -> Self {
        Self {
            runner: AtomicU64::new(0),
            status: K::Word::ZERO,
            lines: Lock::of_kind(Lines {
                doers: Queue::new(),
                watchers: Queue::new(),
            }),
        }
    }

    /// Nothing is done yet; of either kind.
    #[cfg(loom)]
    #[must_use]
    pub fn of_kind() -> Self {
        Self {
            runner: AtomicU64::new(0),
            status: K::Word::zero(),
            lines: Lock::of_kind(Lines {
                doers: Queue::new(),
                watchers: Queue::new(),
            }),
        }
    }

    /// Whether it is done. What was done then happened before this returns.
    #[inline]
    #[must_use]
    pub fn is_done(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `complete`.
        self.status.load(Acquire) == DONE
    }

    /// Makes the party `me` the one to do it, waiting while another is at it.
    ///
    /// # Errors
    ///
    /// The reason for which the party gave up waiting: [`Reason::Timeout`] or [`Reason::Cancelled`].
    pub fn begin<S: Suspend>(&self, me: u64, party: &S) -> Result<Begin<'_, K>, Reason> {
        let lines = self.lines.lock();
        match self.take(me, &lines) {
            TryBegin::Done => return Ok(Begin::Done),
            TryBegin::Turn(turn) => return Ok(Begin::Turn(turn)),
            TryBegin::Busy if self.runner() == me => return Ok(Begin::Reentered),
            TryBegin::Busy => {}
        }
        let slot = (&raw const me).cast_mut().cast();
        let record = self.record();
        // SAFETY: the same queue, and what `abandon` expects: a number that outlives the wait.
        let reason = unsafe {
            wait_in(
                &self.lines,
                lines,
                |lines| &mut lines.doers,
                slot,
                party,
                record,
            )
        };
        match reason {
            Reason::Woken if self.is_done() => Ok(Begin::Done),
            // It was handed on: had another completed it in between, this party would not have been chosen.
            Reason::Woken => Ok(Begin::Turn(Turn { once: self })),
            reason => Err(reason),
        }
    }

    /// Makes the party `me` the one to do it, unless another is at it.
    pub fn try_begin(&self, me: u64) -> TryBegin<'_, K> {
        self.take(me, &self.lines.lock())
    }

    /// Waits until it is done.
    ///
    /// # Errors
    ///
    /// The reason for which the party gave up: [`Reason::Timeout`] or [`Reason::Cancelled`].
    pub fn wait<S: Suspend>(&self, party: &S) -> Result<(), Reason> {
        let lines = self.lines.lock();
        if self.is_done() {
            return Ok(());
        }
        let record = self.record();
        // SAFETY: the same queue, and nothing is handed over through the slot.
        let reason = unsafe {
            wait_in(
                &self.lines,
                lines,
                |lines| &mut lines.watchers,
                ptr::null_mut(),
                party,
                record,
            )
        };
        match reason {
            Reason::Woken => Ok(()),
            reason => Err(reason),
        }
    }

    /// Undoes it: nothing is done any more. Says whether it was done.
    pub fn reset(&mut self) -> bool {
        let was_done = self.is_done();
        if was_done {
            self.status.store(EMPTY, Relaxed);
        }
        was_done
    }

    /// Who is at it; 0 if nobody is.
    #[inline]
    #[must_use]
    pub fn runner(&self) -> u64 {
        self.runner.load(Relaxed)
    }

    fn record(&self) -> Record {
        Record {
            kind: Kind::Once,
            // Exposed for `runner_at`.
            object: ptr::from_ref(self).expose_provenance(),
            owner: match self.runner() {
                id if id < NOT_AN_ID => id,
                _ => 0,
            },
        }
    }

    /// Transition: from `EMPTY` to `RUNNING`.
    fn take(&self, me: u64, _locked: &Guard<'_, Lines, K>) -> TryBegin<'_, K> {
        // ORDERING: Acquire pairs with the Release in `complete`, for the case that it is done.
        match self.status.load(Acquire) {
            DONE => TryBegin::Done,
            RUNNING => TryBegin::Busy,
            _ => {
                self.status.store(RUNNING, Relaxed);
                self.runner.store(me, Relaxed);
                TryBegin::Turn(Turn { once: self })
            }
        }
    }

    /// Transition: from `RUNNING` to `DONE`.
    fn complete(&self) {
        let mut lines = self.lines.lock();
        self.runner.store(0, Relaxed);
        // ORDERING: Release pairs with the Acquire in `is_done` and `take`.
        self.status.store(DONE, Release);
        // INVARIANT: I3.
        let mut woken = lines.doers.claim_all(Reason::Woken);
        woken.append(lines.watchers.claim_all(Reason::Woken));
        drop(lines);
        woken.wake_all();
    }

    /// Transition: from `RUNNING` to `EMPTY`, or to the next party's `RUNNING`.
    fn abandon(&self) {
        let mut lines = self.lines.lock();
        let mut woken = WakeList::new();
        if let Some(first) = lines.doers.claim_front(Reason::Woken) {
            // SAFETY: the slot of everyone in this queue is its number, in its frame, and it cannot go on before the wake.
            let next = unsafe { *first.slot().cast::<u64>() };
            // ORDERING: Release: who sees the new runner sees that it is claimed, so does not take it for one that waits here.
            self.runner.store(next, Release);
            woken.push(first);
        } else {
            // INVARIANT: I2.
            self.runner.store(0, Relaxed);
            self.status.store(EMPTY, Relaxed);
        }
        drop(lines);
        woken.wake_all();
    }
}

impl<K: Sharing> Default for RawOnce<K> {
    fn default() -> Self {
        Self::of_kind()
    }
}

impl<K: Sharing> fmt::Debug for RawOnce<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawOnce")
            .field("is_done", &self.is_done())
            .finish_non_exhaustive()
    }
}

/// The right and the duty to do it: [completed](Self::complete), or passed on when dropped.
#[must_use = "a turn that is dropped goes to the next party"]
pub struct Turn<'a, K: Sharing = Shared> {
    once: &'a RawOnce<K>,
}

impl<K: Sharing> Turn<'_, K> {
    /// It is done: all who wait are woken.
    pub fn complete(self) {
        self.once.complete();
        mem::forget(self);
    }
}

impl<K: Sharing> Drop for Turn<'_, K> {
    fn drop(&mut self) {
        self.once.abandon();
    }
}

impl<K: Sharing> fmt::Debug for Turn<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}
