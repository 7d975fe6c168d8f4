//! The reader-writer lock: many who read, or one who writes, and a line of each.
//!
//! Owns: who is in, the lines, the writer's id. Any thread may call anything here.
//!
//! | readers in | writer in | meaning |
//! |---|---|---|
//! | 0 | no | free |
//! | n | no | n read |
//! | 0 | yes | one writes |
//!
//! Invariants
//! - I1. While it is free nobody who could still be claimed waits.
//! - I2. While readers are in and no such writer waits, no such reader waits.
//! - I3. Who is let in by another is in before it runs: the lock is handed over.
//!
//! (I1 and I2 may be broken by a party that gave up and is on its way to say so; whoever comes first puts it right.)
//!
//! # Policy: phases take turns
//!
//! Readers that find no writer waiting go in beside others that read. Once a writer waits, readers that come wait too.
//! When the last reader is out the first writer is let in; when a writer is out *all* readers that wait are let in, and the next writer
//! only when they are out again. So a phase of reading and one of writing take turns while both sides want in:
//!
//! - A reader waits for the rest of one phase of reading and one writer at most, however many writers wait.
//! - A writer with *k* writers before it waits for those *k* and *k* + 1 phases of reading at most, however many readers come.
//!
//! Nobody barges: the lock is handed over to those whose turn it is, so these bounds are exact and count nothing but what holders
//! do. Writers go in the order in which they came; so do readers, all at once.
//!
//! A claim stands: who was let in is in, even if its deadline passes or it is cancelled before it runs. A writer that gives up
//! lets in those that it alone was in the way of.
//!
//! Source: phase-fairness is Brandenburg and Anderson's ("Reader-writer synchronization for shared-memory multiprocessor real-time
//! systems", 2009), here with waiting parties instead of spinning ones.
#![expect(
    unsafe_code,
    reason = "waits through queues, and hands over through a waiter's frame"
)]

use core::fmt;
use core::ptr;
use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::facade::{AtomicU64, const_unless_loom};
use crate::lock::{Guard, Lock};
use crate::sharing::{Shared, Sharing};
use crate::wait::{Kind, Queue, Reason, Record, Suspend, WakeList, wait_in};

/// A reader-writer lock without a value.
///
/// `K` says whose parties share it: of all threads, or of one.
#[repr(C)]
pub struct RawRwLock<K: Sharing = Shared> {
    /// Who writes; a hint for whoever looks from outside, changed under the lock only. The first field, and an atomic in both
    /// kinds, for [`owner_at`](Self::owner_at): dumps look from any thread.
    owner: AtomicU64,
    state: Lock<State, K>,
}

struct State {
    readers: usize,
    writing: bool,
    waiting_readers: Queue,
    /// The slot of each is its id, in its frame.
    waiting_writers: Queue,
}

/// Whose turn it is when both sides wait and nobody is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Readers,
    Writer,
}

impl RawRwLock {
    const_unless_loom! {
        /// A free lock, for all threads.
        pub fn new() -> Self {
            Self::of_kind()
        }
    }

    /// As [`owner`](Self::owner), of the lock of either kind that a wait record names as its object.
    ///
    /// # Safety
    ///
    /// `object` is from a record of [`Kind::Read`] or [`Kind::Write`], whose waiter has not gone on and cannot before this
    /// returns: it borrows the lock while it waits, which keeps that in place.
    #[must_use]
    pub unsafe fn owner_at(object: usize) -> u64 {
        // SAFETY: `record` exposed the address of a lock, which begins with its owner and which the caller knows to be there still.
        let owner = unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(object) };
        owner.load(Relaxed)
    }
}

impl<K: Sharing> RawRwLock<K> {
    const_unless_loom! {
        /// A free lock, of either kind.
        pub fn of_kind() -> Self {
            Self {
                owner: AtomicU64::new(0),
                state: Lock::of_kind(State {
                    readers: 0,
                    writing: false,
                    waiting_readers: Queue::new(),
                    waiting_writers: Queue::new(),
                }),
            }
        }
    }

    /// Goes in to read if no writer is in or waits; says whether it did.
    #[inline]
    #[must_use]
    pub fn try_read(&self) -> bool {
        let mut state = self.state.lock();
        let woken = self.admit(&mut state, Turn::Writer);
        let entered = state.enter_to_read();
        drop(state);
        woken.wake_all();
        entered
    }

    /// Goes in to write if nobody is in; says whether it did.
    ///
    /// `owner` is the id that [`owner`](Self::owner) reports meanwhile; 0 says nothing.
    #[inline]
    #[must_use]
    pub fn try_write(&self, owner: u64) -> bool {
        self.enter_to_write(&mut self.state.lock(), owner)
    }

    /// Goes in to read, waiting for its turn if need be.
    ///
    /// A lock that can be had is taken even if the party's deadline has passed or it is cancelled.
    ///
    /// # Errors
    ///
    /// The reason for which the party gave up: [`Reason::Timeout`] or [`Reason::Cancelled`]. It is not in then.
    #[inline]
    pub fn read<S: Suspend>(&self, party: &S) -> Result<(), Reason> {
        if self.try_read() {
            return Ok(());
        }
        self.read_slow(party)
    }

    /// Goes in to write, waiting for its turn if need be. `owner` as for [`try_write`](Self::try_write).
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    #[inline]
    pub fn write<S: Suspend>(&self, party: &S, owner: u64) -> Result<(), Reason> {
        let mut state = self.state.lock();
        if self.enter_to_write(&mut state, owner) {
            return Ok(());
        }
        self.write_slow(state, party, owner)
    }

    /// Goes out after reading. Never waits.
    ///
    /// # Safety
    ///
    /// The caller is in to read.
    #[inline]
    pub unsafe fn unlock_read(&self) {
        let mut state = self.state.lock();
        debug_assert!(
            state.readers > 0 && !state.writing,
            "readers go out who are in"
        );
        state.readers -= 1;
        let woken = if state.readers == 0 {
            self.admit(&mut state, Turn::Writer)
        } else {
            WakeList::new()
        };
        drop(state);
        woken.wake_all();
    }

    /// Goes out after writing. Never waits.
    ///
    /// # Safety
    ///
    /// The caller is in to write.
    #[inline]
    pub unsafe fn unlock_write(&self) {
        let mut state = self.state.lock();
        debug_assert!(
            state.writing && state.readers == 0,
            "a writer goes out who is in"
        );
        state.writing = false;
        self.owner.store(0, Relaxed);
        let woken = self.admit(&mut state, Turn::Readers);
        drop(state);
        woken.wake_all();
    }

    /// Goes on from writing to reading: no writer comes between, and the readers that wait are let in as well.
    ///
    /// # Safety
    ///
    /// The caller is in to write; it is in to read from here on.
    pub unsafe fn downgrade(&self) {
        let mut state = self.state.lock();
        debug_assert!(
            state.writing && state.readers == 0,
            "a writer goes on who is in"
        );
        state.writing = false;
        self.owner.store(0, Relaxed);
        state.readers = 1;
        // Whatever writers wait: it is the readers' turn.
        let mut woken = WakeList::new();
        state.admit_readers(&mut woken);
        drop(state);
        woken.wake_all();
    }

    /// The id that the writer gave; 0 if nobody writes, or if the writer gave none.
    #[inline]
    #[must_use]
    pub fn owner(&self) -> u64 {
        self.owner.load(Relaxed)
    }

    /// How many are in to read, and whether one is in to write. Out of date as soon as it is said, unless the caller is
    /// one of them.
    #[must_use]
    pub fn holders(&self) -> (usize, bool) {
        let state = self.state.lock();
        (state.readers, state.writing)
    }

    #[cold]
    fn read_slow<S: Suspend>(&self, party: &S) -> Result<(), Reason> {
        let mut state = self.state.lock();
        if state.enter_to_read() {
            return Ok(());
        }
        let record = self.record(Kind::Read);
        // SAFETY: the same queue, and nothing is handed over through the slot.
        let reason = unsafe {
            wait_in(
                &self.state,
                state,
                |state| &mut state.waiting_readers,
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

    #[cold]
    fn write_slow<S: Suspend>(
        &self,
        state: Guard<'_, State, K>,
        party: &S,
        owner: u64,
    ) -> Result<(), Reason> {
        let record = self.record(Kind::Write);
        let slot = (&raw const owner).cast_mut().cast();
        // SAFETY: the same queue, and what `admit` expects: a number that outlives the wait.
        let reason = unsafe {
            wait_in(
                &self.state,
                state,
                |state| &mut state.waiting_writers,
                slot,
                party,
                record,
            )
        };
        if reason == Reason::Woken {
            return Ok(());
        }
        // INVARIANT: I2: this writer may have been what readers waited behind.
        let woken = self.admit(&mut self.state.lock(), Turn::Writer);
        woken.wake_all();
        Err(reason)
    }

    fn record(&self, kind: Kind) -> Record {
        Record {
            kind,
            // Exposed for `owner_at`.
            object: ptr::from_ref(self).expose_provenance(),
            owner: self.owner(),
        }
    }

    #[inline]
    fn enter_to_write(&self, state: &mut State, owner: u64) -> bool {
        // I1: nobody waits if it is free.
        let is_free = !state.writing && state.readers == 0;
        if is_free {
            state.writing = true;
            self.owner.store(owner, Relaxed);
        }
        is_free
    }

    /// Lets in whoever may go in by now; those are to be woken without the lock.
    #[inline]
    fn admit(&self, state: &mut State, turn: Turn) -> WakeList {
        if state.writing || (state.waiting_readers.is_empty() && state.waiting_writers.is_empty()) {
            return WakeList::new();
        }
        self.admit_slow(state, turn)
    }

    #[cold]
    fn admit_slow(&self, state: &mut State, turn: Turn) -> WakeList {
        let mut woken = WakeList::new();
        if state.readers == 0 && turn == Turn::Readers {
            state.admit_readers(&mut woken);
        }
        if state.readers == 0
            && let Some(first) = state.waiting_writers.claim_front(Reason::Woken)
        {
            state.writing = true;
            // SAFETY: the slot of everyone in this queue is its id, in its frame, and it cannot go on before the wake.
            let owner = unsafe { *first.slot().cast::<u64>() };
            // ORDERING: Release: who sees the new owner sees that it is claimed, so does not take it for one that waits here.
            self.owner.store(owner, Release);
            woken.push(first);
            return woken;
        }
        // Nobody is claimed by this, but those who gave up go.
        let live_writer = state
            .waiting_writers
            .claim_front_if(Reason::Woken, |_| false);
        debug_assert!(live_writer.is_none());
        if state.waiting_writers.is_empty() {
            state.admit_readers(&mut woken);
        }
        woken
    }
}

impl State {
    #[inline]
    fn enter_to_read(&mut self) -> bool {
        let may_enter = !self.writing && self.waiting_writers.is_empty();
        self.readers += usize::from(may_enter);
        may_enter
    }

    fn admit_readers(&mut self, woken: &mut WakeList) {
        while let Some(reader) = self.waiting_readers.claim_front(Reason::Woken) {
            self.readers += 1;
            woken.push(reader);
        }
    }
}

impl<K: Sharing> Default for RawRwLock<K> {
    fn default() -> Self {
        Self::of_kind()
    }
}

impl<K: Sharing> fmt::Debug for RawRwLock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (readers, writing) = self.holders();
        f.debug_struct("RawRwLock")
            .field("readers", &readers)
            .field("writing", &writing)
            .finish_non_exhaustive()
    }
}
