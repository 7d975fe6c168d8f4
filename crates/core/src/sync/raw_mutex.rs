//! The mutex: one word, and a queue of those who wait for it.
//!
//! Owns: the word's bits, the holder's id, the queue. Any thread may call anything here.
//!
//! | bit | meaning | set | cleared |
//! |---|---|---|---|
//! | `LOCKED` 1 | somebody holds the mutex | who takes it | who gives it back |
//! | `QUEUED` 2 | somebody may be in the queue | who waits, finding `LOCKED` | who finds the queue empty |
//! | `WOKEN` 4 | a waiter was woken and has not tried yet | who wakes it, under the queue's lock | the woken one, when it tries |
//! | `HAND_OVER` 8 | the first waiter must not lose again | that waiter, finding `LOCKED` | who hands over |
//!
//! Every combination of the first three may occur. `HAND_OVER` comes only with `LOCKED` and `QUEUED` and without `WOKEN`.
//!
//! # Policy: first come, first served, with bounded barging
//!
//! A party that arrives and finds the mutex free takes it, although others may wait: the holder that
//! gives it back and takes it again at once pays no switch, and with a thousand parties on one thread that is the
//! greater part of all locking. Whoever gives the mutex back wakes the first waiter, which tries; but nobody is woken while
//! a woken one has not tried yet, since it could only lose against it. A waiter that lost goes
//! back to the front. Having lost [`LOST_MAX`] times it sets `HAND_OVER`, and then the mutex is not given back but handed to it.
//!
//! *No waiter starves.* (1) Waiters are woken from the front only, one at a time: while `WOKEN` is set nobody else is woken, and
//! the woken one clears it either by taking the mutex or in the step in which it goes back to the front. So
//! those who wait and are neither timed out nor cancelled get the mutex in the order in which they came. (2) The first waiter is
//! woken by the next unlock (see below). When it has run, it either has the mutex or has lost once more; at the
//! `LOST_MAX`-th loss it sets `HAND_OVER` in the same step in which it finds `LOCKED`. (3) From then on the word cannot lose
//! `LOCKED` before the mutex has been handed over, for every unlock that sees the bit hands over, and an unlock that had
//! not seen it fails to exchange the word. Hence a waiter with *k* live waiters before it is itself woken at most
//! `LOST_MAX + 1` times, has the mutex the last time at the latest, and gets it after at most
//! `(k + 1) * (LOST_MAX + 1)` wakes in all. What bargers can do between a wake and the woken one's
//! try is bounded by how soon its scheduler runs it, and by nothing here.
//!
//! # Why no wake-up is lost
//!
//! A waiter sets `QUEUED` and finds `LOCKED` in one exchange, holding the queue's lock until it is linked. So the unlock
//! that follows in the word's order sees `QUEUED`. It needs to wake nobody if it sees `WOKEN`: the woken one is still going to try, and
//! clears `WOKEN` only by taking the mutex or by finding it `LOCKED`, in one exchange; either way another unlock
//! comes after it, which sees `QUEUED` without `WOKEN`. Otherwise it takes the queue's lock and wakes, unless somebody holds the
//! mutex by then or was woken: then the same argument applies to that one. A waiter that gave up
//! leaves at most a `QUEUED` or `HAND_OVER` without a node behind it, which the next unlock takes away or grants to the next waiter.
//! A waiter that is claimed as woken tries, whatever has happened to its deadline since, so a wake does not vanish with it.
//!
//! Not here: spinning before waiting (on one thread the holder cannot run meanwhile), poisoning, and the search for deadlocks.
//!
//! Source: the split of word and queue follows Drepper, "Futexes are tricky" (2011); waking one and
//! handing over after too long is the idea of Go's `sync.Mutex`, here counted in lost tries instead of time.
#![expect(
    unsafe_code,
    reason = "waits through the queue, and hands over through a waiter's frame"
)]

use core::fmt;
use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::facade::{AtomicU64, UnsafeCell, const_unless_loom};
use crate::lock::{Guard, Lock};
use crate::sharing::{Shared, Sharing, Word};
use crate::wait::{Kind, Queue, Reason, Record, Suspend, wait_in, wait_in_front};

const LOCKED: u32 = 1;
const QUEUED: u32 = 2;
const WOKEN: u32 = 4;
const HAND_OVER: u32 = 8;

/// How often a woken waiter may find the mutex taken by another before it is handed to it.
#[cfg(not(loom))]
pub const LOST_MAX: u32 = 16;

/// As above; small enough for a model to get there.
#[cfg(loom)]
pub const LOST_MAX: u32 = 1;

/// A mutex without a value.
///
/// `K` says whose parties share it: of all threads, or of one.
#[repr(C)]
pub struct RawMutex<K: Sharing = Shared> {
    /// Who holds it; a hint for whoever looks from outside, written by holders only. The first field, and an atomic in both
    /// kinds, for [`owner_at`](Self::owner_at): dumps look from any thread.
    owner: AtomicU64,
    word: K::Word,
    queue: Lock<Queue, K>,
}

/// What a waiter's slot points to.
struct Ticket {
    owner: u64,
    handed: UnsafeCell<bool>,
}

/// What came of a try under the queue's lock.
#[must_use]
enum Entry {
    /// The caller holds the mutex.
    Taken,
    /// Another does, and whoever gives it back will look into the queue, so the caller must link itself.
    Wait,
}

/// What the one who has given the mutex back owes.
#[must_use]
enum Duty {
    /// Nothing.
    Done,
    /// A look into the queue: somebody may have to be woken.
    Wake,
    /// The mutex was not given back: it must be handed over.
    HandOver,
}

impl RawMutex {
    const_unless_loom! {
        /// A free mutex, for all threads.
        pub fn new() -> Self {
            Self::of_kind()
        }
    }

    /// As [`owner`](Self::owner), of the mutex of either kind that a wait record names as its object.
    ///
    /// # Safety
    ///
    /// `object` is from a record of [`Kind::Mutex`], whose waiter has not gone on and cannot before this returns: it borrows
    /// the mutex while it waits, which keeps that in place.
    #[must_use]
    pub unsafe fn owner_at(object: usize) -> u64 {
        // SAFETY: `wait` exposed the address of a mutex, which begins with its owner and which the caller knows to be there still.
        let owner = unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(object) };
        owner.load(Relaxed)
    }
}

impl<K: Sharing> RawMutex<K> {
    /// A free mutex, of either kind.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn of_kind() -> Self {
        Self {
            owner: AtomicU64::new(0),
            word: K::Word::ZERO,
            queue: Lock::of_kind(Queue::new()),
        }
    }

    /// A free mutex, of either kind.
    #[cfg(loom)]
    #[must_use]
    pub fn of_kind() -> Self {
        Self {
            owner: AtomicU64::new(0),
            word: K::Word::zero(),
            queue: Lock::of_kind(Queue::new()),
        }
    }

    /// Takes the mutex if it is free, whoever may wait for it; says whether it did.
    ///
    /// `owner` is the id that [`owner`](Self::owner) reports meanwhile; 0 says nothing.
    #[inline]
    #[must_use]
    pub fn try_lock(&self, owner: u64) -> bool {
        let taken = self.take(0);
        if taken {
            self.owner.store(owner, Relaxed);
        }
        taken
    }

    /// Takes the mutex, waiting for it if need be.
    ///
    /// A free mutex is taken even if the party's deadline has passed or it is cancelled.
    ///
    /// # Errors
    ///
    /// The reason for which the party gave up: [`Reason::Timeout`] or [`Reason::Cancelled`]. It does not hold the mutex then.
    #[inline]
    pub fn lock<S: Suspend>(&self, party: &S, owner: u64) -> Result<(), Reason> {
        if self.try_lock(owner) {
            return Ok(());
        }
        self.lock_slow(party, owner)
    }

    /// Gives the mutex back, or to the waiter whose turn it is beyond doubt. Never waits.
    ///
    /// # Safety
    ///
    /// The mutex is held, and it is the caller's to give back.
    #[inline]
    pub unsafe fn unlock(&self) {
        self.owner.store(0, Relaxed);
        match self.release() {
            Duty::Done => {}
            Duty::Wake => self.wake_first(),
            Duty::HandOver => self.hand_over(),
        }
    }

    /// The id that the holder gave; 0 if nobody holds the mutex, if the holder gave none, or in the moment between.
    #[inline]
    #[must_use]
    pub fn owner(&self) -> u64 {
        self.owner.load(Relaxed)
    }

    /// Whether somebody holds the mutex. Out of date as soon as it is said, unless the caller does.
    #[inline]
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & LOCKED != 0
    }

    #[cold]
    fn lock_slow<S: Suspend>(&self, party: &S, owner: u64) -> Result<(), Reason> {
        let ticket = Ticket {
            owner,
            handed: UnsafeCell::new(false),
        };
        let mut guard = self.queue.lock();
        // The WOKEN bit, once it is this party's to clear.
        let mut woken = 0;
        let mut lost = 0;
        loop {
            if let Entry::Taken = self.take_or_queue(woken, lost >= LOST_MAX) {
                drop(guard);
                break;
            }
            let reason = self.wait(guard, &ticket, woken != 0, party);
            if reason != Reason::Woken {
                return Err(reason);
            }
            // SAFETY: the waiter goes on: its frame is its own again.
            if ticket.handed.with(|handed| unsafe { *handed }) {
                // The one who handed over has written the owner.
                return Ok(());
            }
            woken = WOKEN;
            if self.take(woken) {
                break;
            }
            lost += 1;
            guard = self.queue.lock();
        }
        self.owner.store(owner, Relaxed);
        Ok(())
    }

    /// Waits in the queue: at the end, or if it was woken before, at the front.
    fn wait<S: Suspend>(
        &self,
        guard: Guard<'_, Queue, K>,
        ticket: &Ticket,
        front: bool,
        party: &S,
    ) -> Reason {
        let slot = ptr::from_ref(ticket).cast_mut().cast();
        let record = Record {
            kind: Kind::Mutex,
            // Exposed for `owner_at`.
            object: ptr::from_ref(self).expose_provenance(),
            owner: self.owner(),
        };
        if front {
            // SAFETY: the same queue, and the ticket that hand_over expects, which outlives the wait.
            unsafe { wait_in_front(&self.queue, guard, |queue| queue, slot, party, record) }
        } else {
            // SAFETY: as above.
            unsafe { wait_in(&self.queue, guard, |queue| queue, slot, party, record) }
        }
    }

    /// Transition: sets `LOCKED` if it is clear, and clears `woken`, which is 0 or the caller's own `WOKEN`.
    #[inline]
    fn take(&self, woken: u32) -> bool {
        let mut word = self.word.load(Relaxed);
        while word & LOCKED == 0 {
            let taken = (word | LOCKED) & !woken;
            // ORDERING: Acquire pairs with the Release in release().
            match self.word.exchange_weak(word, taken, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Transition, under the queue's lock: as [`take`](Self::take), or else sets `QUEUED`, and `HAND_OVER` if the
    /// caller must not lose again; `woken` is cleared in any case.
    fn take_or_queue(&self, woken: u32, starving: bool) -> Entry {
        let mut word = self.word.load(Relaxed);
        loop {
            let (next, entry) = if word & LOCKED == 0 {
                (word | LOCKED, Entry::Taken)
            } else if starving {
                (word | QUEUED | HAND_OVER, Entry::Wait)
            } else {
                (word | QUEUED, Entry::Wait)
            };
            // ORDERING: Acquire pairs with the Release in release(), for the case that it is taken.
            match self
                .word
                .exchange_weak(word, next & !woken, Acquire, Relaxed)
            {
                Ok(_) => return entry,
                Err(now) => word = now,
            }
        }
    }

    /// Transition: clears `LOCKED`, unless `HAND_OVER` is set.
    #[inline]
    fn release(&self) -> Duty {
        let mut word = self.word.load(Relaxed);
        debug_assert!(word & LOCKED != 0, "a mutex is unlocked by its holder");
        while word & HAND_OVER == 0 {
            // ORDERING: Release pairs with the Acquire in take() and take_or_queue().
            match self
                .word
                .exchange_weak(word, word & !LOCKED, Release, Relaxed)
            {
                Ok(_) if word & (QUEUED | WOKEN) == QUEUED => return Duty::Wake,
                Ok(_) => return Duty::Done,
                Err(now) => word = now,
            }
        }
        Duty::HandOver
    }

    /// Wakes the first waiter, unless somebody is about to do without.
    #[cold]
    fn wake_first(&self) {
        let mut queue = self.queue.lock();
        // The holder by now, or the woken one, will see to those who wait.
        if self.word.load(Relaxed) & (LOCKED | WOKEN | QUEUED) != QUEUED {
            return;
        }
        let first = queue.claim_front(Reason::Woken);
        if queue.is_empty() {
            self.word.keep(!QUEUED, Relaxed);
        }
        let Some(first) = first else {
            return;
        };
        self.word.set_bits(WOKEN, Relaxed);
        drop(queue);
        first.wake();
    }

    /// Gives the mutex, which the caller holds, to the first waiter; back, if none waits any more.
    #[cold]
    fn hand_over(&self) {
        let mut queue = self.queue.lock();
        let first = queue.claim_front(Reason::Woken);
        let mut cleared = HAND_OVER;
        if queue.is_empty() {
            cleared |= QUEUED;
        }
        let Some(first) = first else {
            // ORDERING: Release pairs with the Acquire in take().
            self.word.keep(!(cleared | LOCKED), Release);
            return;
        };
        // SAFETY: every waiter here prepared its slot with a ticket in its frame, and it cannot go on before the wake.
        let ticket = unsafe { &*first.slot().cast::<Ticket>() };
        // SAFETY: claimed by this thread, so nobody else reaches the ticket.
        ticket.handed.with_mut(|handed| unsafe { *handed = true });
        // ORDERING: Release: who sees the new owner sees that it is claimed, so does not take it for one that waits here still.
        self.owner.store(ticket.owner, Release);
        self.word.keep(!cleared, Relaxed);
        drop(queue);
        // What the mutex guards goes over with the wake, as the slot does.
        first.wake();
    }
}

impl<K: Sharing> Default for RawMutex<K> {
    fn default() -> Self {
        Self::of_kind()
    }
}

impl<K: Sharing> fmt::Debug for RawMutex<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawMutex")
            .field("locked", &self.is_locked())
            .field("owner", &self.owner())
            .finish_non_exhaustive()
    }
}
