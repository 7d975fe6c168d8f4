//! The one-word inbox of a thread: what other threads hand in, and whether the owner sleeps.
//!
//! Owns: one atomic word. Any thread pushes; the owner alone drains, announces sleep and awakes.
//!
//! | word | meaning |
//! |---|---|
//! | 0 | empty, the owner is awake |
//! | 1 | empty, the owner sleeps or is about to: the pusher that replaces the 1 must wake it |
//! | else | the newest link of a chain, the owner is awake or being woken |
//!
//! Invariants
//! - I1. A link is pushed by the one party that owns it, and is the owner's from then on: it is in one chain at most.
//! - I2. Whoever replaces the 1 by a link is told so, and writes the wake descriptor; nobody else does.
//!
//! Nothing is allocated: the links are part of what is handed in. A link's lowest bits can carry a tag that tells
//! the owner what kind of thing it is part of.
//!
//! Why no wake-up is lost: sleep is announced by swapping 0 for 1, which fails if anything has been
//! pushed. A push after it finds the 1 and is told to wake. Both are compare-and-swaps of the one word.
//! Checked by `tests/loom_wait.rs`, alone and with waiters on top.
//!
//! Source: the chain is Treiber's stack (1986), taken whole; the sleeping value is the idea of the
//! "empty and asleep" state of futex-based mutexes (Drepper, 2003).
#![expect(unsafe_code, reason = "intrusive chain of links between threads")]

mod call;

pub use call::Call;

use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::facade::{AtomicPtr, UnsafeCell, const_unless_loom};

/// What is handed in; embedded in a larger thing.
#[repr(align(8))]
pub struct Link {
    next: UnsafeCell<*mut Link>,
}

// SAFETY: I1: one party at a time touches a link.
unsafe impl Send for Link {}
// SAFETY: as above.
unsafe impl Sync for Link {}

impl Link {
    const_unless_loom! {
        /// A link in no chain.
        pub fn new() -> Self {
            Self { next: UnsafeCell::new(ptr::null_mut()) }
        }
    }

    /// The link after `link`.
    ///
    /// # Safety
    ///
    /// The caller owns the link, which is alive.
    #[inline]
    pub unsafe fn next(link: NonNull<Self>) -> *mut Self {
        // SAFETY: alive.
        let link = unsafe { link.as_ref() };
        // SAFETY: the caller owns the link.
        link.next.with(|next| unsafe { *next })
    }

    /// Sets the link after `link`, for whoever chains links it owns.
    ///
    /// # Safety
    ///
    /// The caller owns the link, which is alive.
    #[inline]
    pub unsafe fn set_next(link: NonNull<Self>, after: *mut Self) {
        // SAFETY: alive.
        let link = unsafe { link.as_ref() };
        // SAFETY: the caller owns the link.
        link.next.with_mut(|next| unsafe { *next = after });
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

/// Tags that a pushed link can carry: the values 0, 2, 4, 6.
const TAG_MASK: usize = 0b110;
const ASLEEP: *mut Link = ptr::without_provenance_mut(1);

/// What the pusher owes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a sleeping owner must be woken by the pusher that found it asleep"]
pub enum Push {
    /// The owner is awake, or another pusher is waking it.
    Queued,
    /// The owner sleeps: write its wake descriptor.
    WakeOwner,
}

/// The word; see the file's head.
#[derive(Debug)]
pub struct Inbox {
    word: AtomicPtr<Link>,
}

impl Inbox {
    const_unless_loom! {
        /// An empty inbox whose owner is awake.
        pub fn new() -> Self {
            Self { word: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    /// Hands a link in, from any thread.
    ///
    /// # Safety
    ///
    /// The caller owns the link and gives it away; it stays in place until the owner has taken it. `tag` is 0, 2, 4 or 6.
    #[inline]
    pub unsafe fn push(&self, link: NonNull<Link>, tag: usize) -> Push {
        debug_assert_eq!(tag & !TAG_MASK, 0, "a tag is 0, 2, 4 or 6");
        let new = link.as_ptr().map_addr(|addr| addr | tag);
        let mut old = self.word.load(Relaxed);
        loop {
            let next = if old == ASLEEP { ptr::null_mut() } else { old };
            // SAFETY: the caller owns the link until the exchange below succeeds.
            unsafe { Link::set_next(link, next) };
            // ORDERING: Release pairs with the Acquire in drain: what was written before the push
            // (a filled slot, a claim) is seen by the owner.
            match self.word.compare_exchange_weak(old, new, Release, Relaxed) {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        if old == ASLEEP {
            Push::WakeOwner
        } else {
            Push::Queued
        }
    }

    /// Whether there is something to drain. A hint for any thread; exact for the owner as to
    /// what was pushed before its last drain.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let word = self.word.load(Relaxed);
        word.is_null() || word == ASLEEP
    }

    /// Takes everything out, oldest first. Owner only, awake.
    #[inline]
    pub fn drain(&self) -> Drain {
        if self.word.load(Relaxed).is_null() {
            return Drain {
                next: ptr::null_mut(),
            };
        }
        // ORDERING: Acquire pairs with the Release in push.
        let newest = self.word.swap(ptr::null_mut(), Acquire);
        debug_assert_ne!(newest, ASLEEP, "an owner drains while it is awake");
        Drain {
            next: reverse(newest),
        }
    }

    /// The owner announces that it will sleep. False if something is there: drain it instead.
    #[inline]
    pub fn announce_sleep(&self) -> bool {
        // ORDERING: AcqRel on the word that push replaces: the two exchange one word, nothing else is needed.
        self.word
            .compare_exchange(ptr::null_mut(), ASLEEP, AcqRel, Relaxed)
            .is_ok()
    }

    /// The owner is awake again, for whatever reason.
    #[inline]
    pub fn awake(&self) {
        // A failure means that a pusher replaced the 1: its chain stands, to be drained.
        // ORDERING: as in announce_sleep; a chain is acquired by drain.
        let _pushed_meanwhile = self
            .word
            .compare_exchange(ASLEEP, ptr::null_mut(), AcqRel, Relaxed)
            .is_err();
    }

    /// Whether the owner has announced sleep and nobody has pushed since.
    #[inline]
    pub fn is_asleep(&self) -> bool {
        self.word.load(Relaxed) == ASLEEP
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Self::new()
    }
}

/// Turns a chain round and returns its new head (tagged, as all pointers in a chain are).
fn reverse(mut newest: *mut Link) -> *mut Link {
    let mut oldest = ptr::null_mut();
    while let Some(link) = untag(newest) {
        // SAFETY: the chain is the owner's.
        let next = unsafe { Link::next(link) };
        // SAFETY: as above.
        unsafe { Link::set_next(link, oldest) };
        oldest = newest;
        newest = next;
    }
    oldest
}

fn untag(link: *mut Link) -> Option<NonNull<Link>> {
    NonNull::new(link.map_addr(|addr| addr & !TAG_MASK))
}

/// What was in the inbox, oldest first: links with their tags. All of it must be taken.
#[derive(Debug)]
#[must_use = "links that are not taken are lost"]
pub struct Drain {
    next: *mut Link,
}

impl Iterator for Drain {
    type Item = (NonNull<Link>, usize);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let link = untag(self.next)?;
        let tag = self.next.addr() & TAG_MASK;
        // SAFETY: the chain is the owner's. Read before the link is handed out.
        self.next = unsafe { Link::next(link) };
        Some((link, tag))
    }
}
