//! The wait word: a waiter's one atomic.
//!
//! Owns: the bits. No other file knows them.
//!
//! | bits 0–1 | bits 30–31 | meaning |
//! |---|---|---|
//! | `IDLE` 0 | 0 | the waiter runs, or is runnable; only it touches the word |
//! | `ARMED` 1 | 0 | it waits at one primitive; anyone who found it by a linked node (or its own thread) may claim |
//! | `SPREAD` 3 | 0 | the same at several primitives, whose wakers may come at the same time |
//! | `CLAIMED` 2 | a [`Reason`] | one party has won and owes it one wake |
//!
//! | from | to | who |
//! |---|---|---|
//! | `IDLE` | `ARMED` | the waiter ([`WaitWord::arm`]) |
//! | `IDLE` | `SPREAD` | the waiter ([`WaitWord::arm_spread`]) |
//! | `ARMED` | `IDLE` | the waiter, before anyone can know of it ([`WaitWord::disarm`]) |
//! | `ARMED`, `SPREAD` | `CLAIMED` | a waker, a timer, a cancel ([`WaitWord::claim`]); if spread, the waiter too |
//! | `CLAIMED` | `IDLE` | the waiter, once runnable ([`WaitWord::finish`]) |

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::facade::{AtomicU32, const_unless_loom};

const IDLE: u32 = 0;
const ARMED: u32 = 1;
const CLAIMED: u32 = 2;
const SPREAD: u32 = 3;
const STATE: u32 = 0b11;
const REASON_SHIFT: u32 = 30;

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// What was waited for came.
    Woken = 0,
    /// The deadline passed first.
    Timeout = 1,
    /// The waiter was cancelled first.
    Cancelled = 2,
    /// The other side is gone, or the thing waited at was closed.
    Closed = 3,
}

/// What a claim brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a won claim owes the waiter exactly one wake"]
pub enum Claim {
    /// The waiter is the caller's to wake, exactly once.
    Won,
    /// Another was first; the waiter must not be touched again.
    Lost,
}

/// What the waiter finds when it goes on.
pub type Outcome = Reason;

/// A waiter's one atomic; see the file's head for its states.
#[derive(Debug)]
pub struct WaitWord(AtomicU32);

impl WaitWord {
    /// Whether zeroed memory is the word of a party that does not wait.
    #[cfg(not(loom))]
    pub(crate) const IDLE_IS_ZERO: bool = IDLE == 0;

    const_unless_loom! {
        /// The word of a party that does not wait.
        pub fn new() -> Self {
            Self(AtomicU32::new(IDLE))
        }
    }

    /// The waiter is about to wait: from the moment its node can be found, it can be claimed.
    #[inline]
    pub fn arm(&self) {
        debug_assert_eq!(
            self.0.load(Relaxed),
            IDLE,
            "a waiter waits for one thing at a time"
        );
        // ORDERING: Relaxed: published by the unlock of the primitive whose queue gets the node.
        self.0.store(ARMED, Relaxed);
    }

    /// As [`arm`](Self::arm), for a wait at several primitives: none of their locks keeps the wakers of the others out, so
    /// every claim is a compare-and-swap, and the waiter may claim itself while it still links its nodes.
    #[inline]
    pub fn arm_spread(&self) {
        debug_assert_eq!(
            self.0.load(Relaxed),
            IDLE,
            "a waiter waits for one thing at a time"
        );
        // ORDERING: Relaxed: published by the unlocks of the primitives whose queues get the nodes.
        self.0.store(SPREAD, Relaxed);
    }

    /// Takes an [`arm`](Self::arm) back. Only while no node of the waiter is linked.
    #[inline]
    pub fn disarm(&self) {
        debug_assert_eq!(self.0.load(Relaxed) & STATE, ARMED);
        self.0.store(IDLE, Relaxed);
    }

    /// Tries to win the right to wake the waiter.
    #[inline]
    pub fn claim(&self, reason: Reason) -> Claim {
        let claimed = CLAIMED | (reason as u32) << REASON_SHIFT;
        // ORDERING: AcqRel: Acquire sees the waiter's frame as of arm (through the lock it was published
        // under, or the thread itself); Release lets finish see the winner's reason.
        match self.0.compare_exchange(ARMED, claimed, AcqRel, Relaxed) {
            Ok(_) => Claim::Won,
            Err(SPREAD) => self.claim_spread(reason),
            Err(_) => Claim::Lost,
        }
    }

    /// The same for a waiter that is known to wait at one primitive or to be claimed, or for which a waker that lost asks
    /// again by [`claim_spread`](Self::claim_spread).
    #[inline]
    pub(super) fn claim_one(&self, reason: Reason) -> Claim {
        let claimed = CLAIMED | (reason as u32) << REASON_SHIFT;
        // ORDERING: as in `claim`.
        match self.0.compare_exchange(ARMED, claimed, AcqRel, Relaxed) {
            Ok(_) => Claim::Won,
            Err(_) => Claim::Lost,
        }
    }

    /// Claims a waiter that waits at several primitives; any other is lost.
    #[cold]
    pub(super) fn claim_spread(&self, reason: Reason) -> Claim {
        let claimed = CLAIMED | (reason as u32) << REASON_SHIFT;
        // ORDERING: as in `claim`.
        match self.0.compare_exchange(SPREAD, claimed, AcqRel, Relaxed) {
            Ok(_) => Claim::Won,
            Err(_) => Claim::Lost,
        }
    }

    /// As [`claim`](Self::claim), by a party of which no other claim can come at the same time: it runs on the waiter's own
    /// thread, where timers and cancels run too, and holds the lock of the one primitive that the waiter waits at,
    /// which keeps that primitive's other wakers out.
    ///
    /// PERF: saves the locked instruction: 12 ns of a ping-pong's 80 where that was measured.
    #[inline(always)]
    pub fn claim_alone(&self, reason: Reason) -> Claim {
        if !self.is_armed_for_one() {
            return Claim::Lost;
        }
        self.claim_armed(reason);
        Claim::Won
    }

    /// As [`claim_alone`](Self::claim_alone), of a word that such a party has just seen to be [armed for
    /// one](Self::is_armed_for_one): the claim is won.
    #[inline(always)]
    pub(super) fn claim_armed(&self, reason: Reason) {
        debug_assert!(self.is_armed_for_one(), "nobody came in between");
        // ORDERING: Relaxed: the waiter goes on on this very thread.
        self.0
            .store(CLAIMED | (reason as u32) << REASON_SHIFT, Relaxed);
    }

    /// Whether the waiter is armed for one primitive. A hint, as [`is_armed`](Self::is_armed).
    #[inline(always)]
    pub(super) fn is_armed_for_one(&self) -> bool {
        self.0.load(Relaxed) == ARMED
    }

    /// Whether the waiter is armed. A hint, unless asked by the waiter's own thread for a
    /// waiter that only that thread claims.
    #[inline]
    pub fn is_armed(&self) -> bool {
        matches!(self.0.load(Relaxed), ARMED | SPREAD)
    }

    /// The waiter goes on: why? The word is idle afterwards.
    ///
    /// # Panics
    ///
    /// Panics if the word was not claimed: the waiter was made runnable by someone who had no right to.
    #[inline(always)]
    #[track_caller]
    pub fn finish(&self) -> Outcome {
        // ORDERING: Acquire pairs with the Release of the winning claim.
        let word = self.0.load(Acquire);
        self.0.store(IDLE, Relaxed);
        // PERF: one comparison for what is common, where the four ways are a jump through a table.
        if word == CLAIMED | (Reason::Woken as u32) << REASON_SHIFT {
            return Reason::Woken;
        }
        Self::reason_in(word)
    }

    /// The reason in a word that was claimed.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn reason_in(word: u32) -> Reason {
        assert!(
            word & STATE == CLAIMED,
            "a waiter was resumed without a claim"
        );
        match word >> REASON_SHIFT {
            0 => Reason::Woken,
            1 => Reason::Timeout,
            2 => Reason::Cancelled,
            _ => Reason::Closed,
        }
    }
}

impl Default for WaitWord {
    fn default() -> Self {
        Self::new()
    }
}
