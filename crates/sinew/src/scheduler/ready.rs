//! The ready queue: coroutines of one scheduler that can run, first in, first out.
//!
//! Owns: the chain of links. Thread: the scheduler's only. Started and unstarted ones share the queue. A build for tests can change the
//! order (`shuffle`).
#![expect(unsafe_code, reason = "intrusive chain of control blocks")]

use std::cell::Cell;
use std::ptr::{self, NonNull};

use sinew_core::inbox::Link;

use crate::scheduler::block::{Block, flag};
#[cfg(sinew_shuffle)]
use crate::scheduler::shuffle::Shuffle;

/// See the file's head.
#[derive(Debug)]
pub(super) struct ReadyQueue {
    head: Cell<*mut Link>,
    tail: Cell<*mut Link>,
    #[cfg(sinew_shuffle)]
    shuffle: Shuffle,
}

impl ReadyQueue {
    pub(super) fn new() -> Self {
        Self {
            head: Cell::new(ptr::null_mut()),
            tail: Cell::new(ptr::null_mut()),
            #[cfg(sinew_shuffle)]
            shuffle: Shuffle::from_environment(),
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head.get().is_null()
    }

    /// Appends a coroutine. The caller owes it this one push: it won the claim, or it is the coroutine itself,
    /// or its maker.
    #[inline(always)]
    pub(super) fn push(&self, block: &Block) {
        #[cfg(sinew_shuffle)]
        block.yielded.set(false);
        self.append(block);
    }

    /// As [`push`](Self::push), for one that gives its turn away: it runs after all that are in the queue.
    #[inline]
    pub(super) fn push_last(&self, block: &Block) {
        #[cfg(sinew_shuffle)]
        block.yielded.set(true);
        self.append(block);
    }

    #[inline(always)]
    fn append(&self, block: &Block) {
        let link = NonNull::from(&block.link);
        // SAFETY: the link of a block that is not in a chain belongs to whoever makes it runnable.
        unsafe { Link::set_next(link, ptr::null_mut()) };
        match NonNull::new(self.tail.replace(link.as_ptr())) {
            // SAFETY: the queue owns its links.
            Some(tail) => unsafe { Link::set_next(tail, link.as_ptr()) },
            None => self.head.set(link.as_ptr()),
        }
    }

    /// How many there are: walks the chain.
    pub(super) fn len(&self) -> usize {
        let mut len = 0;
        let mut next = self.head.get();
        while let Some(link) = NonNull::new(next) {
            // SAFETY: the queue owns its links.
            next = unsafe { Link::next(link) };
            len += 1;
        }
        len
    }

    /// The next one after a queued one.
    #[inline]
    pub(super) fn after(&self, block: NonNull<Block>) -> Option<NonNull<Block>> {
        // SAFETY: a queued block is alive.
        let link = NonNull::from(unsafe { &block.as_ref().link });
        // SAFETY: the queue owns its links.
        let next = NonNull::new(unsafe { Link::next(link) })?;
        // SAFETY: all links here are blocks'.
        Some(unsafe { Block::of_link(next) })
    }

    /// The oldest one, left in place.
    #[inline]
    pub(super) fn peek(&self) -> Option<NonNull<Block>> {
        let head = NonNull::new(self.head.get())?;
        // SAFETY: all links here are blocks'.
        Some(unsafe { Block::of_link(head) })
    }

    /// Takes the oldest one out.
    #[inline]
    pub(super) fn pop(&self) -> Option<NonNull<Block>> {
        self.pop_if(|_| true)
    }

    /// Takes the oldest one out if it has started.
    #[inline(always)]
    pub(super) fn pop_started(&self) -> Option<NonNull<Block>> {
        self.pop_if(|block| block.has(flag::STARTED))
    }

    /// Takes the oldest one out if it has not started and wants a stack of the common size.
    #[inline]
    pub(super) fn pop_for_reuse(&self) -> Option<NonNull<Block>> {
        self.pop_if(|block| !block.has(flag::STARTED | flag::OWN_STACK))
    }

    /// Brings another one than the oldest to the front, perhaps. Nobody passes one that gave its turn away, nor does that one pass
    /// anybody.
    #[cfg(sinew_shuffle)]
    fn stir(&self) {
        let has_yielded = |link: NonNull<Link>| {
            // SAFETY: all links here are blocks'.
            let block = unsafe { Block::of_link(link) };
            // SAFETY: a queued block is alive.
            unsafe { block.as_ref() }.yielded.get()
        };
        let Some(mut link) = NonNull::new(self.head.get()) else {
            return;
        };
        let mut before = link;
        for _ in 0..self.shuffle.choose() {
            // SAFETY: the queue owns its links.
            match NonNull::new(unsafe { Link::next(link) }) {
                Some(next) if !has_yielded(link) && !has_yielded(next) => {
                    before = link;
                    link = next;
                }
                _ => break,
            }
        }
        if before == link || link.as_ptr() == self.head.get() {
            return;
        }
        // SAFETY: as above.
        let after = unsafe { Link::next(link) };
        // SAFETY: as above.
        unsafe { Link::set_next(before, after) };
        if after.is_null() {
            self.tail.set(before.as_ptr());
        }
        // SAFETY: as above.
        unsafe { Link::set_next(link, self.head.get()) };
        self.head.set(link.as_ptr());
    }

    #[inline(always)]
    fn pop_if(&self, wanted: impl FnOnce(&Block) -> bool) -> Option<NonNull<Block>> {
        #[cfg(sinew_shuffle)]
        self.stir();
        let block = self.peek()?;
        // SAFETY: a queued block is alive: the scheduler has a reference until it has ended.
        if !wanted(unsafe { block.as_ref() }) {
            return None;
        }
        let head = NonNull::new(self.head.get())?;
        // SAFETY: the queue owns its links.
        let next = unsafe { Link::next(head) };
        self.head.set(next);
        if next.is_null() {
            self.tail.set(ptr::null_mut());
        }
        Some(block)
    }
}
