//! A primitive's queue of waiting parties: doubly linked through their nodes, first in, first out.
//!
//! Owns: the ring of nodes. Guarded by the primitive's lock, as are the links of the nodes in it.
//!
//! Invariants
//! - I1. Every node in the queue is alive: its waiter unlinks it, under the same lock, before it goes away.
#![expect(
    unsafe_code,
    reason = "intrusive links between frames of different parties"
)]

use core::fmt;
use core::mem;
use core::ops;
use core::ptr::{self, NonNull};

use crate::wait::node::{Inner, Node, UNLINKED, Waiter};
use crate::wait::waking::Waking;
use crate::wait::word::{Claim, Reason};

/// A queue of waiting parties: one word, so that a primitive stays small.
#[derive(Debug)]
pub struct Queue {
    /// The newest node; its `next` is the oldest one, for the links form a ring. Null when empty.
    tail: *const Node,
}

// SAFETY: the queue is reached under its primitive's lock; the nodes' rules are in their file's head.
unsafe impl Send for Queue {}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self { tail: ptr::null() }
    }

    /// Whether nobody waits here.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tail.is_null()
    }

    /// The address of the newest node, if there is one: for hints.
    #[inline]
    #[must_use]
    pub fn newest(&self) -> *const Node {
        self.tail
    }

    /// Appends a node.
    ///
    /// # Safety
    ///
    /// The node is prepared, unlinked, its waiter is armed, and it stays in place until it is out of the queue, which its
    /// waiter sees to (I1).
    #[inline(always)]
    pub unsafe fn push_back(&mut self, node: NonNull<Node>) {
        let node = node.as_ptr().cast_const();
        let mut head = node;
        let mut prev = node;
        if !self.tail.is_null() {
            prev = self.tail;
            // SAFETY: I1.
            unsafe { edit(self.tail, |tail| head = mem::replace(&mut tail.next, node)) };
            // SAFETY: I1.
            unsafe { edit(head, |head| head.prev = node) };
        }
        // SAFETY: the node is alive, and under the primitive's lock from here on.
        unsafe { edit(node, |inner| (inner.next, inner.prev) = (head, prev)) };
        self.tail = node;
    }

    /// Puts a node before all others.
    ///
    /// # Safety
    ///
    /// As for [`push_back`](Self::push_back).
    #[inline]
    pub unsafe fn push_front(&mut self, node: NonNull<Node>) {
        let tail = self.tail;
        // SAFETY: the caller's duties are the same.
        unsafe { self.push_back(node) };
        if !tail.is_null() {
            // The last of a ring is before its first, so a node between the two is either.
            self.tail = tail;
        }
    }

    /// Takes a node out if it is in; says whether it was.
    ///
    /// # Safety
    ///
    /// The node is alive, and if it is in a queue it is this one.
    #[inline]
    pub unsafe fn remove(&mut self, node: NonNull<Node>) -> bool {
        let node = node.as_ptr().cast_const();
        let mut links = (ptr::null(), UNLINKED);
        // SAFETY: alive; the lock is held.
        unsafe {
            edit(node, |inner| {
                links = (inner.next, inner.prev);
                (inner.next, inner.prev) = (ptr::null(), UNLINKED);
            });
        }
        let (next, prev) = links;
        if prev == UNLINKED {
            return false;
        }
        if next == node {
            self.tail = ptr::null();
            return true;
        }
        // SAFETY: I1.
        unsafe { edit(prev, |inner| inner.next = next) };
        // SAFETY: I1.
        unsafe { edit(next, |inner| inner.prev = prev) };
        if self.tail == node {
            self.tail = prev;
        }
        true
    }

    /// Whether somebody other than `waiter` waits here: a party that waits at several primitives may have a node in
    /// this queue already, and does not count as its own other side.
    #[must_use]
    pub fn has_other(&self, waiter: NonNull<Waiter>) -> bool {
        self.find_other(waiter).is_some()
    }

    /// The slot of the first one other than `waiter`, who may have been claimed by others by now.
    #[must_use]
    pub fn first_other(&self, waiter: NonNull<Waiter>) -> Option<*mut ()> {
        let node = self.find_other(waiter)?;
        // SAFETY: I1.
        let node = unsafe { node.as_ref() };
        // SAFETY: the caller holds the lock.
        Some(unsafe { node.slot() })
    }

    /// As [`claim_front`](Self::claim_front), of those other than `waiter`.
    pub fn claim_other(&mut self, waiter: NonNull<Waiter>, reason: Reason) -> Option<Claimed> {
        loop {
            let node = self.find_other(waiter)?;
            // SAFETY: I1; it is in this queue.
            if let Some(claimed) = unsafe { self.claim_node(node, reason) } {
                return Some(claimed);
            }
        }
    }

    /// How many nodes are here of others than `waiter` who have not been claimed by others, counted up to `most`. A party that waits
    /// here with several nodes counts as often.
    #[must_use]
    pub fn count_others(&self, waiter: Option<NonNull<Waiter>>, most: usize) -> usize {
        let mine = waiter.map_or(ptr::null(), |waiter| waiter.as_ptr().cast_const());
        let mut count = 0;
        let Some(head) = self.head() else {
            return 0;
        };
        let mut at = head.as_ptr().cast_const();
        while count < most {
            let mut seen = (ptr::null(), ptr::null());
            // SAFETY: I1.
            unsafe { edit(at, |inner| seen = (inner.next, inner.waiter)) };
            let (next, owner) = seen;
            // SAFETY: a linked node has a waiter, alive as long as the node is.
            if owner != mine && unsafe { &*owner }.word.is_armed() {
                count += 1;
            }
            if at == self.tail {
                break;
            }
            at = next;
        }
        count
    }

    /// The oldest node that is not of `waiter`.
    fn find_other(&self, waiter: NonNull<Waiter>) -> Option<NonNull<Node>> {
        let head = self.head()?;
        let mut at = head.as_ptr().cast_const();
        loop {
            let mut seen = (ptr::null(), ptr::null());
            // SAFETY: I1.
            unsafe { edit(at, |inner| seen = (inner.next, inner.waiter)) };
            let (next, owner) = seen;
            if owner != waiter.as_ptr().cast_const() {
                return NonNull::new(at.cast_mut());
            }
            if at == self.tail {
                return None;
            }
            at = next;
        }
    }

    /// The oldest node.
    #[inline(always)]
    fn head(&self) -> Option<NonNull<Node>> {
        let mut head = ptr::null();
        if !self.tail.is_null() {
            // SAFETY: I1.
            unsafe { edit(self.tail, |tail| head = tail.next) };
        }
        NonNull::new(head.cast_mut())
    }

    /// Takes nodes out from the front until the waiter of one is claimed with `reason`.
    ///
    /// Nodes whose waiters were claimed by others (a timer, a cancel) are left unlinked on the way.
    #[inline]
    pub fn claim_front(&mut self, reason: Reason) -> Option<Claimed> {
        loop {
            let node = self.head()?;
            // SAFETY: I1; it is in this queue.
            if let Some(claimed) = unsafe { self.claim_node(node, reason) } {
                return Some(claimed);
            }
        }
    }

    /// Takes a node out, and claims its waiter unless others have.
    ///
    /// # Safety
    ///
    /// The node is in this queue.
    #[inline]
    unsafe fn claim_node(&mut self, node: NonNull<Node>, reason: Reason) -> Option<Claimed> {
        // SAFETY: alive, by I1, and in this queue.
        unsafe { self.remove(node) };
        // SAFETY: I1: alive until its waiter has taken the lock that the caller holds.
        let waiter = unsafe { node.as_ref() }.inner.with(|inner| {
            // SAFETY: the caller holds the lock.
            unsafe { (*inner).waiter }
        });
        // SAFETY: a linked node has a waiter.
        let waiter = unsafe { NonNull::new_unchecked(waiter.cast_mut()) };
        // SAFETY: the caller holds the lock, and the node was in the queue.
        let claim = unsafe { Waiter::claim_by(waiter, node, reason) };
        (claim == Claim::Won).then_some(Claimed { node, waiter })
    }

    /// Whether anybody waits here who has not been claimed by others. Nodes of those who have are taken out up to the first of these.
    pub fn has_claimable(&mut self) -> bool {
        let nobody = self.claim_front_if(Reason::Woken, |_| false);
        debug_assert!(nobody.is_none(), "nobody is wanted");
        !self.is_empty()
    }

    /// As [`claim_front`](Self::claim_front), if `wanted` says so of the slot of the first waiter who has not been claimed by
    /// others; that one keeps its place otherwise. Nodes of those who have are taken out up to it, so an empty queue means
    /// afterwards that nobody waited here who could still be claimed.
    pub fn claim_front_if(
        &mut self,
        reason: Reason,
        wanted: impl Fn(*mut ()) -> bool,
    ) -> Option<Claimed> {
        loop {
            let node = self.head()?;
            // SAFETY: I1.
            let first = unsafe { node.as_ref() };
            let waiter = first.inner.with(|inner| {
                // SAFETY: the caller holds the lock.
                unsafe { (*inner).waiter }
            });
            // SAFETY: a linked node has a waiter, alive as long as the node is.
            let is_armed = unsafe { &*waiter }.word.is_armed();
            // SAFETY: the caller holds the lock.
            if is_armed && !wanted(unsafe { first.slot() }) {
                return None;
            }
            // SAFETY: I1; it is in this queue.
            unsafe { self.remove(node) };
            // SAFETY: a linked node has a waiter.
            let waiter = unsafe { NonNull::new_unchecked(waiter.cast_mut()) };
            // SAFETY: the caller holds the lock, and the node was in the queue.
            if unsafe { Waiter::claim_by(waiter, node, reason) } == Claim::Won {
                return Some(Claimed { node, waiter });
            }
        }
    }

    /// As [`claim_front`](Self::claim_front), by a party that knows who is near.
    #[inline(always)]
    pub fn claim_front_by<'w, W: Waking>(
        &mut self,
        by: &'w W,
        reason: Reason,
    ) -> Option<ClaimedBy<'w, W>> {
        self.claim_front_if_by(by, reason, |_| true)
    }

    /// As [`claim_front_if`](Self::claim_front_if), by a party that knows who is near.
    #[inline(always)]
    pub fn claim_front_if_by<'w, W: Waking>(
        &mut self,
        by: &'w W,
        reason: Reason,
        wanted: impl Fn(*mut ()) -> bool,
    ) -> Option<ClaimedBy<'w, W>> {
        if self.tail.is_null() {
            return None;
        }
        if let Some(claimed) = self.claim_front_near(by, reason, &wanted) {
            return Some(claimed);
        }
        let claimed = self.claim_front_far(reason, wanted)?;
        Some(ClaimedBy {
            claimed,
            by,
            is_near: false,
        })
    }

    /// As [`claim_front_if_by`](Self::claim_front_if_by), if the first waiter is near and waits at this primitive only. Nothing
    /// changes otherwise, and nothing is said of the others.
    #[inline(always)]
    pub fn claim_front_near<'w, W: Waking>(
        &mut self,
        by: &'w W,
        reason: Reason,
        wanted: impl Fn(*mut ()) -> bool,
    ) -> Option<ClaimedBy<'w, W>> {
        let node = self.head()?;
        // SAFETY: I1.
        let first = unsafe { node.as_ref() };
        let waiter = first.inner.with(|inner| {
            // SAFETY: the caller holds the lock.
            unsafe { (*inner).waiter }
        });
        // SAFETY: a linked node has a waiter, alive as long as the node is.
        let waiter = unsafe { NonNull::new_unchecked(waiter.cast_mut()) };
        // SAFETY: as above.
        let word = unsafe { &waiter.as_ref().word };
        if !by.is_near(waiter) || !word.is_armed_for_one() {
            return None;
        }
        // SAFETY: the caller holds the lock.
        if !wanted(unsafe { first.slot() }) {
            return None;
        }
        self.pop_front(node);
        // It is near, waits at this primitive only, and the lock is held: nobody comes in between.
        word.claim_armed(reason);
        Some(ClaimedBy {
            claimed: Claimed { node, waiter },
            by,
            is_near: true,
        })
    }

    /// The same for a waiter that is not near, waits at several primitives or was claimed by others.
    #[inline(never)]
    fn claim_front_far(
        &mut self,
        reason: Reason,
        wanted: impl Fn(*mut ()) -> bool,
    ) -> Option<Claimed> {
        self.claim_front_if(reason, wanted)
    }

    /// Takes out the oldest node, which is this one.
    #[inline(always)]
    fn pop_front(&mut self, head: NonNull<Node>) {
        let head = head.as_ptr().cast_const();
        let mut next = ptr::null();
        // SAFETY: I1. Who is in no queue is told by `prev`.
        unsafe {
            edit(head, |inner| {
                next = inner.next;
                inner.prev = UNLINKED;
            });
        }
        if head == self.tail {
            self.tail = ptr::null();
            return;
        }
        let tail = self.tail;
        // SAFETY: I1.
        unsafe { edit(tail, |inner| inner.next = next) };
        // SAFETY: I1.
        unsafe { edit(next, |inner| inner.prev = tail) };
    }

    /// Takes every node out and claims its waiter with `reason`; those that were won are to be woken
    /// after the lock is given back.
    #[inline]
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

    #[inline(never)]
    fn wake_far(self) {
        self.wake();
    }
}

/// A [`Claimed`] waiter, with the party that claimed it and will wake it.
#[must_use = "a won claim owes the waiter exactly one wake"]
pub struct ClaimedBy<'w, W> {
    claimed: Claimed,
    by: &'w W,
    /// Whether the party has said so.
    is_near: bool,
}

impl<W: Waking> ClaimedBy<'_, W> {
    /// Makes the waiter runnable. Called without the primitive's lock.
    #[inline(always)]
    pub fn wake(self) {
        if self.is_near {
            // SAFETY: as the same party has said; and this value stands for the won claim, and is consumed.
            unsafe { self.by.wake_near(self.claimed.waiter) };
        } else {
            self.claimed.wake_far();
        }
    }
}

impl<W> ops::Deref for ClaimedBy<'_, W> {
    type Target = Claimed;

    #[inline(always)]
    fn deref(&self) -> &Claimed {
        &self.claimed
    }
}

impl<W> fmt::Debug for ClaimedBy<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.claimed.fmt(f)
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

    /// Whether nobody is to be woken.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.is_null()
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

    /// Adds the waiters of another list behind these.
    pub fn append(&mut self, other: Self) {
        if other.head.is_null() {
            return;
        }
        if self.tail.is_null() {
            self.head = other.head;
        } else {
            // SAFETY: claimed and not woken, as all in this list.
            unsafe { edit(self.tail, |inner| inner.next = other.head) };
        }
        self.tail = other.tail;
    }

    /// Wakes them all, in the order they were added. Called without the primitive's lock.
    #[inline]
    pub fn wake_all(mut self) -> usize {
        let mut count = 0;
        while !self.head.is_null() {
            // SAFETY: claimed and not woken, as all in this list.
            let (next, waiter) = unsafe { &*self.head }.inner.with(|inner| {
                // SAFETY: its fields are the winner's. Only read: a party that is polled may be looking whether it is linked.
                let inner = unsafe { &*inner };
                (inner.next, inner.waiter)
            });
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
