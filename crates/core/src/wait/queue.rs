//! A primitive's queue of waiting parties: doubly linked through their nodes, first in, first out.
//!
//! Owns: head and tail. Guarded by the primitive's lock, as are the links of the nodes in it.
//!
//! Invariants
//! - I1. Every node in the queue is alive: its waiter unlinks it, under the same lock, before it goes away.
//! - I2. `head` is null if and only if `tail` is.
#![expect(
    unsafe_code,
    reason = "intrusive links between frames of different parties"
)]

use core::ptr::{self, NonNull};

use crate::wait::node::{Inner, Node, UNLINKED, Waiter};
use crate::wait::word::{Claim, Reason};

/// A queue of waiting parties.
#[derive(Debug)]
pub struct Queue {
    head: *const Node,
    tail: *const Node,
}

// SAFETY: the queue is reached under its primitive's lock; the nodes' rules are in their file's head.
unsafe impl Send for Queue {}

impl Queue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self {
            head: ptr::null(),
            tail: ptr::null(),
        }
    }

    /// Whether nobody waits here.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Appends a node.
    ///
    /// # Safety
    ///
    /// The node is prepared, unlinked, its waiter is armed, and it stays in place until it is out of the queue, which its
    /// waiter sees to (I1).
    #[inline]
    pub unsafe fn push_back(&mut self, node: NonNull<Node>) {
        // SAFETY: the node is alive, and under the primitive's lock from here on.
        unsafe {
            edit(node.as_ptr(), |inner| {
                (inner.next, inner.prev) = (ptr::null(), self.tail)
            })
        };
        if self.tail.is_null() {
            self.head = node.as_ptr();
        } else {
            // SAFETY: I1.
            unsafe { edit(self.tail, |inner| inner.next = node.as_ptr()) };
        }
        self.tail = node.as_ptr();
    }

    /// Puts a node before all others.
    ///
    /// # Safety
    ///
    /// As for [`push_back`](Self::push_back).
    #[inline]
    pub unsafe fn push_front(&mut self, node: NonNull<Node>) {
        // SAFETY: the node is alive, and under the primitive's lock from here on.
        unsafe {
            edit(node.as_ptr(), |inner| {
                (inner.next, inner.prev) = (self.head, ptr::null())
            })
        };
        if self.head.is_null() {
            self.tail = node.as_ptr();
        } else {
            // SAFETY: I1.
            unsafe { edit(self.head, |inner| inner.prev = node.as_ptr()) };
        }
        self.head = node.as_ptr();
    }

    /// Takes a node out if it is in; says whether it was.
    ///
    /// # Safety
    ///
    /// The node is alive, and if it is in a queue it is this one.
    #[inline]
    pub unsafe fn remove(&mut self, node: NonNull<Node>) -> bool {
        let mut links = (ptr::null(), UNLINKED);
        // SAFETY: alive; the lock is held.
        unsafe { edit(node.as_ptr(), |inner| links = (inner.next, inner.prev)) };
        let (next, prev) = links;
        if prev == UNLINKED {
            return false;
        }
        if prev.is_null() {
            self.head = next;
        } else {
            // SAFETY: I1.
            unsafe { edit(prev, |inner| inner.next = next) };
        }
        if next.is_null() {
            self.tail = prev;
        } else {
            // SAFETY: I1.
            unsafe { edit(next, |inner| inner.prev = prev) };
        }
        // SAFETY: alive; the lock is held.
        unsafe {
            edit(node.as_ptr(), |inner| {
                (inner.next, inner.prev) = (ptr::null(), UNLINKED)
            })
        };
        true
    }

    /// Takes nodes out from the front until the waiter of one is claimed with `reason`.
    ///
    /// Nodes whose waiters were claimed by others (a timer, a cancel) are left unlinked on the way.
    #[inline]
    pub fn claim_front(&mut self, reason: Reason) -> Option<Claimed> {
        loop {
            let node = NonNull::new(self.head.cast_mut())?;
            // SAFETY: I1; it is in this queue.
            unsafe { self.remove(node) };
            // SAFETY: I1: alive until its waiter has taken the lock that the caller holds.
            let waiter = unsafe { node.as_ref() }.inner.with(|inner| {
                // SAFETY: the caller holds the lock.
                unsafe { (*inner).waiter }
            });
            // SAFETY: a linked node has a waiter, and it is alive as long as the node is.
            if unsafe { (*waiter).word.claim(reason) } == Claim::Won {
                // SAFETY: not null, as it was just used.
                let waiter = unsafe { NonNull::new_unchecked(waiter.cast_mut()) };
                return Some(Claimed { node, waiter });
            }
        }
    }

    /// Takes every node out and claims its waiter with `reason`; those that were won are to be woken
    /// after the lock is given back.
    pub fn claim_all(&mut self, reason: Reason) -> WakeList {
        let mut list = WakeList::new();
        while let Some(claimed) = self.claim_front(reason) {
            list.push(claimed);
        }
        list
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

/// A waiter whose claim was won, with its node, which is out of the queue.
///
/// Owes one call of [`wake`](Self::wake), to be made after the primitive's lock is given back.
#[derive(Debug)]
#[must_use = "a won claim owes the waiter exactly one wake"]
pub struct Claimed {
    node: NonNull<Node>,
    waiter: NonNull<Waiter>,
}

impl Claimed {
    /// The slot that the waiter prepared.
    #[inline]
    pub fn slot(&self) -> *mut () {
        // SAFETY: the waiter is claimed and not woken: the node is alive.
        let node = unsafe { self.node.as_ref() };
        // SAFETY: and it is the winner's.
        unsafe { node.slot() }
    }

    /// Makes the waiter runnable. Called without the primitive's lock.
    #[inline]
    pub fn wake(self) {
        // SAFETY: this value stands for the won claim, and is consumed.
        unsafe { Waiter::wake(self.waiter) };
    }
}

/// Claimed waiters, chained through their own nodes: waking many allocates nothing.
#[derive(Debug)]
#[must_use = "a won claim owes the waiter exactly one wake"]
pub struct WakeList {
    head: *const Node,
    tail: *const Node,
}

impl WakeList {
    /// An empty list.
    pub const fn new() -> Self {
        Self {
            head: ptr::null(),
            tail: ptr::null(),
        }
    }

    /// Adds a claimed waiter.
    #[inline]
    pub fn push(&mut self, claimed: Claimed) {
        let node = claimed.node.as_ptr().cast_const();
        // SAFETY: the node is out of the queue and the winner's: its `next` is free to use.
        unsafe { edit(node, |inner| inner.next = ptr::null()) };
        if self.tail.is_null() {
            self.head = node;
        } else {
            // SAFETY: claimed and not woken, as all in this list.
            unsafe { edit(self.tail, |inner| inner.next = node) };
        }
        self.tail = node;
    }

    /// Wakes them all, in the order they were added. Called without the primitive's lock.
    pub fn wake_all(mut self) -> usize {
        let mut count = 0;
        while !self.head.is_null() {
            let mut taken = (ptr::null(), ptr::null());
            // SAFETY: claimed and not woken, as all in this list.
            unsafe { edit(self.head, |inner| taken = (inner.next, inner.waiter)) };
            let (next, waiter) = taken;
            self.head = next;
            // SAFETY: a linked node had a waiter.
            let waiter = unsafe { NonNull::new_unchecked(waiter.cast_mut()) };
            // SAFETY: it was claimed when it came into the list, and is out of the list now.
            unsafe { Waiter::wake(waiter) };
            count += 1;
        }
        count
    }
}

impl Default for WakeList {
    fn default() -> Self {
        Self::new()
    }
}

/// Edits the content of a node.
///
/// # Safety
///
/// The node is alive and the caller may touch its fields, see the node's file head.
#[inline]
unsafe fn edit(node: *const Node, f: impl FnOnce(&mut Inner)) {
    // SAFETY: the caller vouches for the node.
    let node = unsafe { &*node };
    // SAFETY: the caller may touch the fields, and nobody else does meanwhile.
    node.inner.with_mut(|inner| f(unsafe { &mut *inner }));
}
