//! A waiter, and its place in one primitive's queue.
//!
//! Owns: the links of a node and the way to its waiter.
//! Thread: the fields of a node belong to the waiter while the node is unlinked, to whoever holds the
//! primitive's lock while it is linked, and to the winner of the claim from the claim to the wake.
//!
//! Invariants
//! - I1. A linked node's waiter is armed or claimed.
//! - I2. A node is in one queue at most, and in none when its waiter goes on with its caller's code.
#![expect(
    unsafe_code,
    reason = "intrusive links between frames of different parties"
)]

use core::fmt;
use core::ptr::{self, NonNull};

use crate::facade::{UnsafeCell, const_unless_loom};
use crate::wait::arm::ArmNode;
use crate::wait::word::{Claim, Reason, WaitWord};

/// How a kind of waiter is made runnable.
#[derive(Debug)]
pub struct Ways {
    /// Makes the waiter runnable. Called once per won claim, by the winner, on any thread, with the waiter's own address.
    /// From the moment the waiter can go on, it must not rely on the waiter beyond what it has itself arranged: the waiter
    /// may be gone.
    pub wake: unsafe fn(NonNull<Waiter>),
    /// Whether the calling thread is the one that the waiter goes on on, and the only one that its timers and cancels
    /// claim on. Called while the waiter is alive.
    pub is_here: unsafe fn(NonNull<Waiter>) -> bool,
}

/// A party that can wait: its word, and how to make it runnable.
#[derive(Debug)]
pub struct Waiter {
    /// The waiter's one atomic.
    pub word: WaitWord,
    ways: &'static Ways,
}

impl Waiter {
    /// An idle waiter that is made runnable in these ways.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new(ways: &'static Ways) -> Self {
        Self {
            word: WaitWord::new(),
            ways,
        }
    }

    /// An idle waiter that is made runnable in these ways.
    #[cfg(loom)]
    #[must_use]
    pub fn new(ways: &'static Ways) -> Self {
        Self {
            word: WaitWord::new(),
            ways,
        }
    }

    /// Makes an idle waiter out of memory that is all zeros. The word is not written: others may be looking at it already.
    ///
    /// # Safety
    ///
    /// It is zeroed memory for a waiter, and nobody but for such looks uses it.
    #[cfg(not(loom))]
    pub unsafe fn lay(at: NonNull<Self>, ways: &'static Ways) {
        // SAFETY: in bounds.
        let place = unsafe { &raw mut (*at.as_ptr()).ways };
        // SAFETY: passed on to the caller.
        unsafe { place.write(ways) };
    }

    /// Whether the waiter is made runnable in these ways, which tell what it is part of.
    #[inline(always)]
    #[must_use]
    pub fn has_ways(&self, ways: &'static Ways) -> bool {
        ptr::eq(self.ways, ways)
    }

    /// Claims the waiter for the party that found its node.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the one primitive that the waiter waits at, and the waiter is alive. One that waits at
    /// several is not claimed by this.
    #[inline]
    pub unsafe fn claim(waiter: NonNull<Self>, reason: Reason) -> Claim {
        // SAFETY: alive.
        let this = unsafe { waiter.as_ref() };
        // SAFETY: alive, and at one primitive.
        if unsafe { (this.ways.is_here)(waiter) } {
            this.word.claim_alone(reason)
        } else {
            this.word.claim_one(reason)
        }
    }

    /// As [`claim`](Self::claim), by a node that was taken out of the primitive's queue.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of a primitive in whose queue the waiter's node was until now.
    #[inline]
    pub(super) unsafe fn claim_by(
        waiter: NonNull<Self>,
        node: NonNull<Node>,
        reason: Reason,
    ) -> Claim {
        // SAFETY: the waiter is alive: it takes this lock before it forgets the node. If it waits at several primitives, it
        // is neither armed for one nor claimed by this.
        match unsafe { Self::claim(waiter, reason) } {
            Claim::Won => Claim::Won,
            // SAFETY: as above.
            Claim::Lost => unsafe { Self::claim_arm(waiter, node, reason) },
        }
    }

    /// Claims a waiter that waits at several primitives, for the arm that the node is of.
    ///
    /// # Safety
    ///
    /// As for [`claim_by`](Self::claim_by).
    #[cold]
    unsafe fn claim_arm(waiter: NonNull<Self>, node: NonNull<Node>, reason: Reason) -> Claim {
        // SAFETY: alive, as `claim_by` says.
        let claim = unsafe { waiter.as_ref() }.word.claim_spread(reason);
        if claim == Claim::Won {
            // SAFETY: the nodes of a waiter that is spread are those of arms; claimed here, and not woken.
            unsafe { ArmNode::choose(node) };
        }
        claim
    }

    /// Makes the waiter runnable.
    ///
    /// # Safety
    ///
    /// The caller has won a claim on this waiter's word and has not called this for it yet.
    #[inline]
    pub unsafe fn wake(waiter: NonNull<Self>) {
        // SAFETY: the waiter is alive: it cannot go on before it is woken, which the caller alone may do.
        let ways = unsafe { waiter.as_ref() }.ways;
        // SAFETY: the caller has the right, and has it once.
        unsafe { (ways.wake)(waiter) };
    }
}

/// The links and the content of a node.
pub(super) struct Inner {
    pub(super) next: *const Node,
    pub(super) prev: *const Node,
    pub(super) waiter: *const Waiter,
    pub(super) slot: *mut (),
}

/// A waiter's place in a [`crate::wait::Queue`].
pub struct Node {
    pub(super) inner: UnsafeCell<Inner>,
}

/// Stands in `prev` of a node that is in no queue; a queue is a ring, so that no node in one has it. A node of all zeros is in none.
pub(super) const UNLINKED: *const Node = ptr::null();

// SAFETY: who may touch the fields when is the protocol's matter, see the file's head.
unsafe impl Send for Node {}
// SAFETY: as above.
unsafe impl Sync for Node {}

impl Node {
    const_unless_loom! {
        /// A node in no queue.
        pub fn new() -> Self {
            Self {
                inner: UnsafeCell::new(Inner {
                    next: ptr::null(),
                    prev: UNLINKED,
                    waiter: ptr::null(),
                    slot: ptr::null_mut(),
                }),
            }
        }
    }

    /// Prepares the node for one wait: whose it is, and where what is handed over lies or goes.
    ///
    /// # Safety
    ///
    /// The node is unlinked, and the caller is its waiter.
    #[inline]
    pub unsafe fn prepare(&self, waiter: NonNull<Waiter>, slot: *mut ()) {
        self.inner.with_mut(|inner| {
            // SAFETY: an unlinked node belongs to its waiter.
            let inner = unsafe { &mut *inner };
            debug_assert_eq!(inner.prev, UNLINKED, "a node is in one queue at most");
            inner.waiter = waiter.as_ptr();
            inner.slot = slot;
        });
    }

    /// Whether the node is in a queue.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the queue's primitive, or is the waiter and the node was never linked.
    #[inline]
    pub unsafe fn is_linked(&self) -> bool {
        // SAFETY: the caller may read the links.
        self.inner
            .with(|inner| unsafe { (*inner).prev } != UNLINKED)
    }

    /// The slot's address as it was prepared.
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the queue that the node is in, or has claimed its waiter, or is its waiter.
    #[inline]
    pub unsafe fn slot(&self) -> *mut () {
        // SAFETY: the caller may read the content.
        self.inner.with(|inner| unsafe { (*inner).slot })
    }
}

impl Default for Node {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}
