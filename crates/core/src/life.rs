//! The life of a coroutine as those outside see it: whether it has ended, whether somebody waits for that, and whose its result is.
//!
//! Owns: one word. The coroutine's own thread ends it; the one holder of its handle takes, or gives up; any thread waits.
//!
//! | bit | meaning | set | cleared |
//! |---|---|---|---|
//! | `HANDLE` 1 | a handle exists | at the beginning | when the handle goes before the end |
//! | `DONE` 2 | the coroutine has ended; if a handle exists the result is there | at the end | at the next beginning |
//! | `WAITED` 8 | the queue of joiners is worth a look | by a joiner, under the queue's lock | at the next beginning |
//! | `STATIC` 16 | the type of the result is `'static` | at the beginning | at the next beginning |
//! | `AWAY` 4 | another thread has made it, and its scheduler does not have it yet | at the beginning | when it arrives |
//! | `SOLE` 32 | the handle is consumed by the join that waits, or kept by who runs the scheduler | with `WAITED`, or at the beginning | at the next beginning |
//! | `HERE` 64 | that join is by the coroutine's own thread: nobody else changes the word any more, nor takes the lock of the queue of joiners | with `SOLE` | when the handle goes before the end is over, or at the next beginning |
//! | `LEFT` 128 | the end is over, and has left its scheduler's reference to that join | after `DONE` | at the next beginning |
//!
//! Every combination may occur. A handle that has taken the result leaves the word as it is: it is gone, and so nobody else asks.
//!
//! # Why the result is dropped or taken once
//!
//! The end sets `DONE` in one exchange that finds `HANDLE`, or finds that there is none: then nobody else can ask for the result, and the
//! coroutine drops it before it sets `DONE`. The handle that goes clears `HANDLE` in one exchange that finds `DONE` or not. Both
//! are exchanges of the one word, so exactly one of them sees the other's.
//!
//! # Why nobody touches what is on its way
//!
//! A coroutine that another thread makes may be refused, and then its memory is another coroutine's. Its scheduler passes over it until it has
//! arrived, which the scheduler does itself. It looks at the number, this word and whose it is in one [`Sequence::read`](crate::wait::Sequence::read):
//! the number is changed before the memory is used again, so the three belong together. One after the other they could be of several
//! coroutines: of one that lives elsewhere, then of the next, which is on its way here.
//!
//! # Why no joiner is left waiting
//!
//! A joiner sets `WAITED` under the lock of the queue, in one exchange that does not find `DONE`, and links itself before it gives the lock
//! back. The end sets `DONE`, then looks for `WAITED`: in the order of that word either the joiner's exchange came first, and the end sees
//! `WAITED` and takes the lock, which it gets when the joiner is linked; or the joiner finds `DONE`.
//! Checked by `tests/loom_life.rs`.
//!
//! # A join on the coroutine's own thread
//!
//! The handle is consumed, so no other join, wait or drop of it comes, on any thread, and those that were are over. What is left to
//! change the word is the join, the end, and the drop of the handle should the join give up: all by one thread. So none of them needs a
//! locked instruction; others only read.

use core::fmt;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::facade::{AtomicU8, const_unless_loom};

/// A handle exists.
pub const HANDLE: u8 = 1;
const DONE: u8 = 2;
const WAITED: u8 = 8;
/// Made by another thread, and not yet its scheduler's.
pub const AWAY: u8 = 4;
/// The type of the result is `'static`.
pub const STATIC: u8 = 16;
/// The handle is consumed by the join that waits, or kept by who runs the scheduler: nobody does anything else by it.
pub const SOLE: u8 = 32;
/// The join that has consumed the handle is by the coroutine's own thread.
const HERE: u8 = 64;
/// The scheduler's reference is that join's.
const LEFT: u8 = 128;

/// Whose the result is at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum End {
    /// The handle's, which can ask for it from now on.
    Kept,
    /// The coroutine's own, to be dropped; then it says so by [`Life::end_unclaimed`].
    Unclaimed,
}

/// What a joiner finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Join {
    /// The coroutine lives: link, and give the lock back.
    Wait,
    /// It has ended, and the result is there.
    Ended,
}

/// What a handle that goes leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Abandon {
    /// The coroutine sees to the result.
    Nothing,
    /// The result, which is the caller's to drop.
    Result,
}

/// The word; see the file's head.
pub struct Life(AtomicU8);

impl Life {
    const_unless_loom! {
        /// Of nothing.
        pub fn new() -> Self {
            Self(AtomicU8::new(0))
        }
    }

    /// A coroutine begins: with a handle or not, and of what kind, as `bits` says: [`HANDLE`], [`STATIC`], [`SOLE`], [`AWAY`]. Its
    /// maker.
    #[inline]
    pub fn begin(&self, bits: u8) {
        debug_assert_eq!(
            bits & !(HANDLE | STATIC | SOLE | AWAY),
            0,
            "what there is at the beginning"
        );
        // ORDERING: Release: who sees the new life sees what was made for it before.
        self.0.store(bits, Release);
    }

    /// Whether it has ended. Then the result is there, if a handle exists.
    #[inline]
    pub fn is_done(&self) -> bool {
        // ORDERING: Acquire pairs with the Release that sets DONE.
        self.0.load(Acquire) & DONE != 0
    }

    /// Whether it lives where it belongs: it has neither ended nor is it on its way. One look, so it is true of one moment; the caller
    /// makes sure that it is the life of whom it means (blocks are used again, see [`Sequence::read`](crate::wait::Sequence::read)).
    #[inline]
    pub fn is_present(&self) -> bool {
        // ORDERING: Acquire pairs with the Release that begins it: what was made before is seen.
        self.0.load(Acquire) & (DONE | AWAY) == 0
    }

    /// Whether it is on its way to its scheduler still.
    #[inline]
    pub fn is_away(&self) -> bool {
        self.0.load(Relaxed) & AWAY != 0
    }

    /// Transition: clears `AWAY`. The coroutine's own thread.
    #[inline]
    pub fn arrive(&self) {
        self.0.fetch_and(!AWAY, Relaxed);
    }

    /// Whether the type of the result is `'static`.
    #[inline]
    pub fn is_static(&self) -> bool {
        self.0.load(Relaxed) & STATIC != 0
    }

    /// Whether somebody waits, or has waited, for the end. The coroutine's own thread asks after the end; before it, it is a hint.
    #[inline]
    pub fn is_waited(&self) -> bool {
        self.0.load(Relaxed) & WAITED != 0
    }

    /// Whether a handle exists that nobody can use for anything but the join that it is in.
    pub fn is_sole(&self) -> bool {
        // ORDERING: Acquire pairs with the Release of whoever changed it: what was done by the handle before is seen.
        self.0.load(Acquire) & (HANDLE | SOLE) == HANDLE | SOLE
    }

    /// Transition: sets `DONE` if `HANDLE` is set. The result is in place. The coroutine's own thread, once.
    #[inline]
    pub fn end(&self) -> End {
        // ORDERING: Acquire pairs with the Release of a handle that went on another thread.
        let mut now = self.0.load(Acquire);
        if now & (HANDLE | HERE) == HANDLE | HERE {
            // ORDERING: Release: who sees the end sees what came before. Nobody else changes the word.
            self.0.store(now | DONE, Release);
            return End::Kept;
        }
        while now & HANDLE != 0 {
            // ORDERING: Release publishes the result to the handle; Acquire as above, and sees that someone waits.
            match self
                .0
                .compare_exchange_weak(now, now | DONE, AcqRel, Acquire)
            {
                Ok(_) => return End::Kept,
                Err(changed) => now = changed,
            }
        }
        End::Unclaimed
    }

    /// Transition: sets `DONE`; the result is gone. `is_alone` says that nobody has a reference who could change the word.
    #[inline]
    pub fn end_unclaimed(&self, is_alone: bool) {
        if is_alone {
            let now = self.0.load(Relaxed);
            self.0.store(now | DONE, Relaxed);
        } else {
            // ORDERING: Release: who sees the end sees what came before; Acquire: that someone waits.
            self.0.fetch_or(DONE, AcqRel);
        }
    }

    /// Transition: sets `WAITED`, and `SOLE` if the handle is the joiner's alone. The caller holds the lock of the queue of joiners, and links
    /// itself under it if it is to wait.
    #[inline]
    pub fn join(&self, is_sole: bool) -> Join {
        let bits = if is_sole { WAITED | SOLE } else { WAITED };
        // ORDERING: AcqRel on the word that the end sets DONE in: either the end sees WAITED and looks into the
        // queue, for which it must take the lock, or DONE is seen here, with the result.
        if self.0.fetch_or(bits, AcqRel) & DONE == 0 {
            Join::Wait
        } else {
            Join::Ended
        }
    }

    /// The same, with `HERE` and `SOLE` too: the handle is the joiner's alone, and the joiner runs on the coroutine's own thread, where it has
    /// arrived.
    #[inline]
    pub fn join_here(&self) -> Join {
        // This thread alone changes the word from here on: whoever had the handle before is over with it.
        let now = self.0.load(Relaxed);
        if now & DONE != 0 {
            return Join::Ended;
        }
        // ORDERING: Release: who sees that the handle is the join's alone sees what was done by it before.
        self.0.store(now | WAITED | SOLE | HERE, Release);
        Join::Wait
    }

    /// Whether the join that waits, or has waited, is by the coroutine's own thread and has consumed the handle, which has not gone: nobody else
    /// takes the lock of the queue of joiners. The coroutine's own thread.
    #[inline]
    pub fn is_joined_here(&self) -> bool {
        self.0.load(Relaxed) & (HANDLE | HERE) == HANDLE | HERE
    }

    /// Transition: sets `LEFT`. The end is over, and [`is_joined_here`](Self::is_joined_here). The coroutine's own thread.
    #[inline]
    pub fn leave(&self) {
        debug_assert!(self.is_joined_here() && self.is_done());
        // ORDERING: Release: DONE is in this store, too, and who sees it here sees what came before the end.
        self.0.store(self.0.load(Relaxed) | LEFT, Release);
    }

    /// Whether the scheduler's reference was left to the handle, which goes. If it has not been yet, it will not be: transition: clears
    /// `HERE`. The holder of the handle, once.
    #[inline]
    pub fn take_left(&self) -> bool {
        let now = self.0.load(Relaxed);
        // Without HERE another thread may change the word meanwhile, but nobody sets either bit.
        if now & (HERE | LEFT) == HERE {
            // ORDERING: Release, as in `leave`: DONE may be set.
            self.0.store(now & !HERE, Release);
        }
        now & LEFT != 0
    }

    /// Transition: clears `HANDLE`, unless the coroutine has ended. The holder of the handle, which goes without having taken the
    /// result, once.
    #[inline]
    pub fn abandon(&self) -> Abandon {
        // ORDERING: Acquire sees the result.
        let now = self.0.load(Acquire);
        let before = if now & DONE != 0 {
            now
        } else {
            // ORDERING: Acquire sees the result; Release pairs with the coroutine's look at HANDLE.
            self.0.fetch_and(!HANDLE, AcqRel)
        };
        if before & DONE == 0 {
            Abandon::Nothing
        } else {
            Abandon::Result
        }
    }
}

impl Default for Life {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Life")
            .field("done", &self.is_done())
            .finish_non_exhaustive()
    }
}
