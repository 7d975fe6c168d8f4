//! The door of a scheduler: all that other threads may touch of it.
//!
//! Owns: the inbox, the wake descriptor and the published figures. Any thread.
//!
//! Invariants
//! - I1. Doors are never freed: a waker may still write the wake descriptor after the coroutine it woke has
//!   run, ended, and its scheduler with it. Such a late knock wakes the door's next owner once for nothing.
//! - I2. A door has one owner at a time.
#![expect(unsafe_code, reason = "passes the duty of Inbox::push on")]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence};
use std::sync::{Mutex, PoisonError};
use std::{io, ptr};

use rustix::event::{EventfdFlags, eventfd};
use sinew_core::inbox::{Call, Inbox, Link, Push};

use crate::scheduler::block::Block;
use crate::scheduler::order::{Order, Orders};
use crate::scheduler::seen::Seen;
use crate::scheduler::visit::Visits;
use crate::scheduler::{Scheduler, current};

/// Tags of the links in an inbox.
pub(crate) mod tag {
    /// A block that was made runnable.
    pub(crate) const RUN: usize = 0;
    /// An extra part whose block has a cancel to be told of.
    pub(crate) const CANCEL: usize = 2;
    /// The door's own call: there is a post to run, an order to follow, or a wish to stop.
    pub(crate) const CALL: usize = 4;
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Door {
    pub(super) inbox: Inbox,
    call: Call,
    /// What the owner is to do when it is called.
    pub(super) orders: Orders,
    /// Which descriptors its owners have watched.
    pub(super) watched: Seen,
    knock: OwnedFd,
    /// Which coroutine runs now; an identity for listings.
    pub(super) current: AtomicPtr<Block>,
    pub(super) figures: Figures,
    pub(super) visits: Visits,
    /// Odd while it is [sealed](Self::seal).
    seals: AtomicU32,
    /// Whether a scheduler owns it.
    in_use: AtomicBool,
}

/// What a scheduler publishes of itself: written by the owner with plain stores, read by anyone.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) alive: AtomicUsize,
    pub(crate) created: AtomicU64,
    pub(crate) switches: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    pub(crate) timers: AtomicUsize,
    pub(crate) posts: AtomicU64,
    pub(crate) io_waits: AtomicUsize,
}

impl Figures {
    /// Adds to a figure that only the caller's thread writes.
    #[inline]
    pub(super) fn add(figure: &AtomicU64, by: u64) {
        figure.store(figure.load(Relaxed).wrapping_add(by), Relaxed);
    }
}

/// Every door ever made, and those without an owner.
static DOORS: Mutex<Vec<&'static Door>> = Mutex::new(Vec::new());

impl Door {
    /// A door for a new scheduler.
    pub(super) fn claim() -> io::Result<&'static Self> {
        let mut doors = DOORS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(door) = doors.iter().find(|door| !door.in_use.load(Relaxed)) {
            door.in_use.store(true, Relaxed);
            door.visits.open();
            return Ok(door);
        }
        let door: &'static Self = Box::leak(Box::new(Self {
            inbox: Inbox::new(),
            call: Call::new(),
            orders: Orders::default(),
            watched: Seen::new(),
            knock: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            current: AtomicPtr::new(ptr::null_mut()),
            figures: Figures::default(),
            visits: Visits::default(),
            seals: AtomicU32::new(0),
            in_use: AtomicBool::new(true),
        }));
        door.visits.open();
        doors.push(door);
        Ok(door)
    }

    /// The owner is done with it. Totals (`created`, `switches`, `sleeps`) stay: they are the process's history.
    pub(super) fn give_back(&'static self) {
        self.visits.close();
        let doors = DOORS.lock().unwrap_or_else(PoisonError::into_inner);
        self.in_use.store(false, Relaxed);
        drop(doors);
    }

    /// The doors of all schedulers that were ever there, with whether one owns it now.
    pub(crate) fn all() -> Vec<&'static Self> {
        DOORS.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A descriptor number was closed on this thread: the schedulers of other threads that may wait for it are told.
    pub(crate) fn tell_closed(fd: RawFd) {
        let here = current::with_scheduler(Scheduler::door);
        for door in Self::all() {
            let is_other = here.is_none_or(|here| !ptr::eq(here, door));
            if is_other && door.in_use.load(Relaxed) && door.watched.has(fd) {
                door.order(Order::Closed { fd });
            }
        }
    }

    /// Whether a scheduler owns it now.
    pub(crate) fn has_owner(&self) -> bool {
        self.in_use.load(Relaxed)
    }

    pub(crate) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The owner sleeps in a [`crate::run`], nothing is posted, and nobody has a handle: until the seal is broken, no code of the
    /// user's runs on its thread but a coroutine that somebody wakes. Owner thread.
    pub(super) fn seal(&self) {
        if self.seals.load(Relaxed).is_multiple_of(2) {
            self.turn_seal();
        }
    }

    /// The owner goes on. Owner thread, before it runs anything.
    pub(super) fn break_seal(&self) {
        if !self.seals.load(Relaxed).is_multiple_of(2) {
            self.turn_seal();
            // ORDERING: what is done behind the broken seal is not seen before it is: pairs with the fence in `is_still_sealed`.
            fence(Release);
        }
    }

    fn turn_seal(&self) {
        let next = self.seals.load(Relaxed).wrapping_add(1);
        // ORDERING: Release: who sees the seal sees what the owner did before; pairs with `seal_now`.
        self.seals.store(next, Release);
    }

    /// The seal, if it is sealed now. Any thread.
    pub(crate) fn seal_now(&self) -> Option<u32> {
        // ORDERING: Acquire: see `turn_seal`.
        let seal = self.seals.load(Acquire);
        (!seal.is_multiple_of(2)).then_some(seal)
    }

    /// Whether that seal was not broken before anything that the caller has read. Any thread.
    pub(crate) fn is_still_sealed(&self, seal: u32) -> bool {
        // ORDERING: what was read before stays before; see `break_seal`.
        fence(Acquire);
        self.seals.load(Relaxed) == seal
    }

    /// How many coroutines are alive; exact on the owner's thread.
    pub(crate) fn alive(&self) -> usize {
        self.figures.alive.load(Relaxed)
    }

    /// The coroutine that runs now, as an identity.
    pub(crate) fn running(&self) -> *const Block {
        self.current.load(Relaxed)
    }

    pub(super) fn knocker(&self) -> BorrowedFd<'_> {
        self.knock.as_fd()
    }

    /// Hands a link in and wakes the owner if it sleeps.
    ///
    /// # Safety
    ///
    /// As for [`Inbox::push`].
    pub(super) unsafe fn hand_in(&self, link: NonNull<Link>, tag: usize) {
        // SAFETY: passed on to the caller.
        if unsafe { self.inbox.push(link, tag) } == Push::WakeOwner {
            self.knock();
        }
    }

    /// Calls the owner to look at its posts, unless it has been called and not looked yet.
    pub(super) fn call(&self) {
        // SAFETY: doors are never freed, and have one inbox.
        if unsafe { self.call.raise(&self.inbox, tag::CALL) } == Push::WakeOwner {
            self.knock();
        }
    }

    /// Raises another call than the door's own.
    ///
    /// # Safety
    ///
    /// As for [`Call::raise_with`].
    pub(super) unsafe fn call_by(&self, call: &Call, tag: usize, give: impl FnOnce()) {
        // SAFETY: passed on to the caller.
        if unsafe { call.raise_with(&self.inbox, tag, give) } == Push::WakeOwner {
            self.knock();
        }
    }

    /// The owner has taken the call out of its inbox.
    pub(super) fn answer(&self) {
        self.call.answer();
    }

    #[cold]
    fn knock(&self) {
        // The descriptor is ours and non-blocking; a write fails only if the count is full (2^64 - 2 knocks
        // unread), and then it is readable, which is all that is wanted.
        let _count_is_full = rustix::io::write(&self.knock, &1_u64.to_ne_bytes()).is_err();
    }
}
