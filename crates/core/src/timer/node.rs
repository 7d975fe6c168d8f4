//! The timer node: the part of a timer that is embedded in whatever waits for it.
//!
//! Owned by its embedder, linked and unlinked by [`Wheel`](super::Wheel) only, on one thread.
//!
//! - I1: `next` is `Some` while the node is linked, and `None` otherwise.
//! - I2: a node's fields change only under a `&mut Wheel`, through shared references, so an
//!   embedder may hold `&TimerNode` throughout.
//!
//! Not here: what to do when the timer fires. The embedder finds itself from the node's address.

use core::cell::Cell;
use core::marker::PhantomPinned;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// A place in a [`Wheel`](super::Wheel), to be embedded in a larger structure.
///
/// It is three words long, never allocates, and must not be moved or dropped while it is linked;
/// that duty comes with the unsafe [`Wheel::insert`](super::Wheel::insert).
#[derive(Debug)]
pub struct TimerNode {
    /// The next node of the same slot, circularly.
    pub(super) next: Cell<Option<NonNull<TimerNode>>>,
    /// The previous node of the same slot; `None` for the first.
    pub(super) prev: Cell<Option<NonNull<TimerNode>>>,
    /// When to fire, in nanoseconds. With the wheel's current tick it gives the node's slot. Atomic only so that an
    /// embedder may let other threads look at it.
    pub(super) deadline_ns: AtomicU64,
    /// A wheel points at the node while it is linked.
    _pinned: PhantomPinned,
}

impl TimerNode {
    /// Makes a node that is not linked.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            next: Cell::new(None),
            prev: Cell::new(None),
            deadline_ns: AtomicU64::new(0),
            _pinned: PhantomPinned,
        }
    }

    /// Tells whether the node is in a wheel: inserted, and neither popped nor removed since.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.next.get().is_some()
    }

    /// Returns the deadline of the latest insertion, in nanoseconds (0 before the first).
    ///
    /// A deadline that had already passed when it was inserted is given rounded down to a multiple
    /// of [`TICK_NS`](super::TICK_NS).
    #[must_use]
    pub fn deadline_ns(&self) -> u64 {
        self.deadline_ns.load(Relaxed)
    }
}

impl Default for TimerNode {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = assert!(
    size_of::<TimerNode>() <= 40,
    "a timer node is to stay small"
);
