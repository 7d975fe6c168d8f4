//! What a waiter publishes of itself: words that anyone may read while the waiter's own thread changes them.
//!
//! Owns: the sequence number and the kind of the wait. The other words are the caller's: relaxed atomics, changed in
//! [`Sequence::change`] and read in [`Sequence::read`].
//! Thread: one writer at a time, the waiter's own thread; any number of readers. No reader ever holds the writer up.
//!
//! Invariants
//! - I1. The number is odd while the words are being changed, and never the same before and after a change (for 2³¹ changes).
//! - I2. A kind is set after the waiter has armed its word, by a change; it is cleared after the word was
//!   [finished](super::WaitWord::finish), without one, and before the word is armed again.
//!
//! # Two looks
//!
//! | the waiter | word | kind | number |
//! |---|---|---|---|
//! | runs | idle | nothing | n |
//! | arms | armed | nothing | n |
//! | publishes | armed | k | n + 2 |
//! | is woken | claimed | k | n + 2 |
//! | goes on | idle | k, then nothing | n + 2 |
//!
//! A [`Look`] that finds the word armed and the kind set may still have put together the kind of one wait and the armed
//! word of the next; not if it is the same as a later one ([`Look::is_still`]). Proof: let the two looks be equal, with number m, armed, kind k, and
//! let W be the wait that published m. (1) The first look saw m, so it sees all that the waiter did before W was published. (2) Had
//! the reader, between the looks, seen anything that the waiter did after W, then that was after the release fence of
//! [`PublishedKind::clear`], and the acquire fence at the start of the second look makes that see the cleared kind, or the one of a
//! later wait; but that comes with a number that is not m. So whatever the reader saw between the looks, the waiter did before
//! it went on from W: to the reader it was suspended in W all the time.
//!
//! Source: sequence locks are H.-J. Boehm's "Can seqlocks get along with programming language memory models?"; the second look is
//! this runtime's.

use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};

use crate::facade::{AtomicU8, AtomicU32, const_unless_loom, fence};
use crate::wait::{Kind, WaitWord};

/// How often a read is tried: a writer that is always faster is given up on.
const TRIES: u32 = if cfg!(loom) { 1 } else { 64 };

/// The number of a waiter's published words.
#[derive(Debug)]
pub struct Sequence(AtomicU32);

impl Sequence {
    const_unless_loom! {
        /// Nothing was changed yet.
        pub fn new() -> Self {
            Self(AtomicU32::new(0))
        }
    }

    /// The number as of now: another one after each change.
    #[inline]
    pub fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    /// Changes the words. The writer's thread.
    #[inline]
    pub fn change(&self, f: impl FnOnce()) {
        let number = self.0.load(Relaxed);
        self.0.store(number.wrapping_add(1), Relaxed);
        // ORDERING: the fence keeps the changes after the odd number; pairs with the one in `read`.
        fence(Release);
        f();
        // ORDERING: Release keeps the changes before the even number; pairs with the Acquire in `read`.
        self.0.store(number.wrapping_add(2), Release);
    }

    /// Reads what `change` writes, consistently, from any thread; `None` if the writer was always faster.
    pub fn read<T>(&self, f: impl Fn() -> T) -> Option<T> {
        for _ in 0..TRIES {
            // ORDERING: Acquire pairs with the Release at the end of `change`.
            let before = self.0.load(Acquire);
            if before.is_multiple_of(2) {
                let value = f();
                // ORDERING: the fence keeps the reads before the second look; pairs with `change`'s.
                fence(Acquire);
                if self.0.load(Relaxed) == before {
                    return Some(value);
                }
            }
            core::hint::spin_loop();
        }
        None
    }
}

impl Default for Sequence {
    fn default() -> Self {
        Self::new()
    }
}

/// The kind of the wait, with one bit of the caller's beside it; nothing while the waiter does not wait.
#[derive(Debug)]
pub struct PublishedKind(AtomicU8);

impl PublishedKind {
    const_unless_loom! {
        /// Of a party that does not wait.
        pub fn new() -> Self {
            Self(AtomicU8::new(0))
        }
    }

    /// The number of the kind, and the caller's bit.
    #[inline]
    pub fn load(&self, order: Ordering) -> u8 {
        self.0.load(order)
    }

    /// Publishes a kind. Within [`Sequence::change`], after the word was armed.
    #[inline]
    pub fn set(&self, kind: u8) {
        self.0.store(kind, Relaxed);
    }

    /// The wait is over. The other published words stay and say nothing.
    #[inline]
    pub fn clear(&self) {
        self.0.store(Kind::Nothing as u8, Relaxed);
        // ORDERING: Release keeps this before whatever the waiter does from here on, its next arming included; pairs with the Acquire
        // fence in `Look::is_still`. Costs nothing on x86-64.
        fence(Release);
    }
}

impl Default for PublishedKind {
    fn default() -> Self {
        Self::new()
    }
}

/// One look at a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Whether nobody had claimed it.
    pub is_armed: bool,
    /// What was published as the kind.
    pub kind: u8,
    /// The number of that.
    pub number: u32,
}

impl Look {
    /// At nobody: it never [stands](Self::is_still).
    pub const NOTHING: Self = Self {
        is_armed: false,
        kind: Kind::Nothing as u8,
        number: 0,
    };

    /// Looks, and reads other published words with `f` at the same time.
    pub fn with<T>(
        sequence: &Sequence,
        word: &WaitWord,
        kind: &PublishedKind,
        f: impl Fn() -> T,
    ) -> Option<(Self, T)> {
        sequence.read(|| {
            let this = Self {
                is_armed: word.is_armed(),
                kind: kind.load(Relaxed),
                number: sequence.load(Relaxed),
            };
            (this, f())
        })
    }

    /// Whether the waiter has been in the same wait ever since, see the file's head.
    pub fn is_still(self, sequence: &Sequence, word: &WaitWord, kind: &PublishedKind) -> bool {
        // ORDERING: what was read before stays before: it is of the time before this look. Pairs with the fence in
        // `PublishedKind::clear`.
        fence(Acquire);
        let is_waiting = self.is_armed && self.kind != Kind::Nothing as u8;
        is_waiting && Self::with(sequence, word, kind, || ()) == Some((self, ()))
    }
}
