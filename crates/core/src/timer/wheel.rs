//! The wheel: the slots, what is in which, and what comes next.
//!
//! Used by the thread that owns the timers; neither `Send` nor `Sync`. Words: a *digit* is six bits of a
//! tick, digit 0 the lowest; *current* is the tick up to which everything has been popped.
//!
//! - I1: a linked node whose tick is after `current` is in the slot named by the highest digit in
//!   which the two differ (`place`); any other linked node is in the slot of `current` at level 0.
//! - I2: hence the slot of `current` holds exactly the nodes that are due, and every other
//!   occupied slot of a level has a number greater than that digit of `current`.
//! - I3: `current` moves only when its slot is empty, and never past the start of an occupied slot.
//! - I4: `TICK_NS * current <= now_ns` (with 2⁶⁴ taken as `u64::MAX`), so what is due was not early.
//! - I5: bit `s` of `occupied[l]` is set iff the slot `s` of level `l` has a head, and bit `l` of
//!   `levels` iff `occupied[l]` is not zero.
//! - I6: a slot is a circular list in order of insertion; its last node is the head's `prev`. Nodes of one
//!   tick are always in one slot, and a cascade keeps their order.
//!
//! Not here: the clock, sleeping, and what firing means.

#![expect(
    unsafe_code,
    reason = "nodes are linked by address and belong to the caller; `node` is the one place that \
              dereferences them"
)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::vec;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use super::{TICK_BITS, TICK_NS, TimerNode};

/// Bits of a digit.
const DIGIT_BITS: u32 = 6;
/// Slots of a level.
const SLOTS: usize = 1 << DIGIT_BITS;
/// Levels: nine digits cover every tick of a 64-bit clock, the tenth the tick after the last.
const LEVELS: usize = 10;
/// The tick after the last: where deadlines go that round up to 2⁶⁴.
const TICK_END: u64 = 1 << (u64::BITS - TICK_BITS);
/// Heads: the last level has only the slots 0 (never used) and 1.
const HEADS: usize = (LEVELS - 1) * SLOTS + 2;
/// How many nodes of a slot `next_deadline_ns` reads before it settles for the slot's start.
const PEEK_NODES_MAX: usize = 8;

/// A set of timers ordered by deadline.
///
/// The caller links nodes with [`insert`](Self::insert), unlinks them with
/// [`remove`](Self::remove), and calls [`pop_due`](Self::pop_due) until it returns `None` each time it
/// looks at the clock. Between two such calls anything may be inserted or removed, so what is
/// done about a popped node is free to touch other timers.
///
/// # Promises
///
/// - No node is popped before its deadline: it was at or before the latest time given.
/// - A node is popped by the first `pop_due` loop given a time at or after its deadline rounded up
///   to a multiple of [`TICK_NS`](super::TICK_NS), or given any time if the deadline had passed when the
///   node was inserted. (The multiple 2⁶⁴ counts as `u64::MAX`.)
/// - Nodes come out in order of their rounded deadlines, and in order of insertion where those are
///   equal. A node whose deadline had passed when it was inserted queues by the tick it
///   lies in, or last among those being popped if that tick is over.
///
/// # Examples
///
/// ```
/// use core::ptr::NonNull;
/// use sinew_core::timer::{TimerNode, Wheel};
///
/// let node = TimerNode::new();
/// let mut wheel = Wheel::new(0);
/// // SAFETY: the node is not linked, and stays in place until it has been popped below.
/// unsafe { wheel.insert(NonNull::from(&node), 5_000) };
/// assert_eq!(wheel.next_deadline_ns(), Some(5_120));
/// assert_eq!(wheel.pop_due(4_999), None);
/// assert_eq!(wheel.pop_due(5_120), Some(NonNull::from(&node)));
/// assert!(!node.is_linked());
/// ```
pub struct Wheel {
    /// The latest time given, in nanoseconds.
    now_ns: u64,
    /// The tick up to which everything has been popped.
    current: u64,
    /// One bit for each level with an occupied slot.
    levels: u16,
    /// One bit for each occupied slot of each level.
    occupied: [u64; LEVELS],
    /// The first node of each slot, level by level.
    heads: Box<[Option<NonNull<TimerNode>>]>,
    /// The number of linked nodes.
    len: usize,
    /// How often a node has been moved by a cascade.
    cascades: u64,
}

impl Wheel {
    /// Makes an empty wheel whose time starts at `now_ns`. This is the one call that allocates
    /// (about 4.6 KiB).
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        Self {
            now_ns,
            current: tick_reached(now_ns),
            levels: 0,
            occupied: [0; LEVELS],
            heads: vec![None; HEADS].into_boxed_slice(),
            len: 0,
            cascades: 0,
        }
    }

    /// Links `node`, to be popped once `deadline_ns` has been reached.
    ///
    /// A deadline at or before the latest time given is due at the next [`pop_due`](Self::pop_due).
    /// A caller that inserts such nodes from within its `pop_due` loop is to bound that loop itself.
    ///
    /// # Panics
    ///
    /// If the node is linked already.
    ///
    /// # Safety
    ///
    /// Until the node has been popped or removed, or the wheel has been dropped, it must not be
    /// moved or freed, nor its memory borrowed exclusively.
    pub unsafe fn insert(&mut self, node: NonNull<TimerNode>, deadline_ns: u64) {
        // SAFETY: the caller vouches that the node is there and is not borrowed exclusively.
        let linked = unsafe { deref(node) };
        assert!(!linked.is_linked(), "a timer node was inserted twice");
        // A deadline that has passed is due now, not at the end of its tick: round it down.
        let passed = deadline_ns <= self.now_ns;
        let kept_ns = if passed {
            deadline_ns & !(TICK_NS - 1)
        } else {
            deadline_ns
        };
        linked.deadline_ns.store(kept_ns, Relaxed);
        self.link(node, linked);
        self.len += 1;
    }

    /// Unlinks `node`, and tells whether it was linked. It will not be popped any more.
    ///
    /// # Safety
    ///
    /// `node` points to a node that is not borrowed exclusively and that, if it is linked, is
    /// linked into this wheel.
    pub unsafe fn remove(&mut self, node: NonNull<TimerNode>) -> bool {
        // SAFETY: the caller vouches that the node is there and is not borrowed exclusively.
        let linked = unsafe { deref(node) };
        let was_linked = linked.is_linked();
        if was_linked {
            self.unlink(node, linked);
        }
        was_linked
    }

    /// Moves time on to `now_ns`, then unlinks and returns the next node that is due, if any.
    ///
    /// To be called until it returns `None`. A time before the latest one given counts as that
    /// one: time does not go back.
    #[must_use = "the node has been unlinked, and whoever waits for it is to be told"]
    pub fn pop_due(&mut self, now_ns: u64) -> Option<NonNull<TimerNode>> {
        self.now_ns = self.now_ns.max(now_ns);
        let target = tick_reached(self.now_ns);
        loop {
            if let Some(first) = self.heads[self.current_slot()] {
                // SAFETY: a linked node, so `insert`'s caller keeps it in place.
                let linked = unsafe { deref(first) };
                self.unlink(first, linked);
                return Some(first);
            }
            match self.next_slot() {
                Some(next) if next.start <= target => {
                    // INVARIANT: I3, for this is the first occupied slot, and the current one is
                    // empty. I1 breaks for the nodes of a higher level until the cascade.
                    self.current = next.start;
                    if next.level > 0 {
                        self.cascade(next.index);
                    }
                }
                _ => {
                    self.current = target;
                    return None;
                }
            }
        }
    }

    /// Returns until when the owner may sleep: the next time at which [`pop_due`](Self::pop_due)
    /// has something to do, or `None` if the wheel is empty.
    ///
    /// It is never later than the earliest deadline rounded up to a multiple of
    /// [`TICK_NS`](super::TICK_NS), so nobody oversleeps. It may be earlier: the start of a slot of
    /// a higher level that holds more than a few nodes. A `pop_due` loop given that time then deals the
    /// slot out, so a sleeper that wakes at each time returned wakes at most nine times for each
    /// node. If nodes are due already, it is at or before the latest time given.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        if self.heads[self.current_slot()].is_some() {
            return Some(tick_ns(self.current));
        }
        let next = self.next_slot()?;
        let tick = if next.level == 0 {
            None
        } else {
            self.earliest_of_few(next.index)
        };
        Some(tick_ns(tick.unwrap_or(next.start)))
    }

    /// The number of linked nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no node is linked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How often a node has been moved from one level to a lower one since the wheel was made: the
    /// work done beyond inserting and popping.
    #[must_use]
    pub fn cascades(&self) -> u64 {
        self.cascades
    }

    /// The slot that a tick belongs in now.
    fn place(&self, tick: u64) -> usize {
        if tick <= self.current {
            return self.current_slot();
        }
        let level = (tick ^ self.current).ilog2() / DIGIT_BITS;
        level as usize * SLOTS + digit(tick, level)
    }

    /// The slot of level 0 that holds what is due.
    fn current_slot(&self) -> usize {
        digit(self.current, 0)
    }

    /// The occupied slot that time enters first, given that nothing is due.
    fn next_slot(&self) -> Option<NextSlot> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros();
        let slot = self.occupied[level as usize].trailing_zeros();
        let shift = level * DIGIT_BITS;
        let above = self.current >> (shift + DIGIT_BITS) << DIGIT_BITS;
        Some(NextSlot {
            level,
            index: level as usize * SLOTS + slot as usize,
            start: (above | u64::from(slot)) << shift,
        })
    }

    /// The earliest tick in an occupied slot, unless it holds too many nodes to look at.
    fn earliest_of_few(&self, index: usize) -> Option<u64> {
        let head = self.heads[index]?;
        let (mut at, mut earliest) = (head, u64::MAX);
        for _ in 0..PEEK_NODES_MAX {
            // SAFETY: a linked node, so `insert`'s caller keeps it in place.
            let linked = unsafe { deref(at) };
            earliest = earliest.min(tick_due(linked.deadline_ns.load(Relaxed)));
            at = linked.next.get()?;
            if at == head {
                return Some(earliest);
            }
        }
        None
    }

    /// Deals the nodes of a slot that time has just entered out to lower levels, in their order.
    fn cascade(&mut self, index: usize) {
        let Some(head) = self.heads[index].take() else {
            return;
        };
        self.set_vacant(index);
        let mut at = head;
        loop {
            // SAFETY: it was linked until now, so `insert`'s caller keeps it in place.
            let detached = unsafe { deref(at) };
            let next = detached.next.get();
            self.link(at, detached);
            self.cascades += 1;
            match next {
                Some(next) if next != head => at = next,
                _ => return,
            }
        }
    }

    /// Appends a node to the slot it belongs in. `linked` is `node`, dereferenced.
    fn link(&mut self, node: NonNull<TimerNode>, linked: &TimerNode) {
        let index = self.place(tick_due(linked.deadline_ns.load(Relaxed)));
        if let Some(head) = self.heads[index] {
            // SAFETY: a linked node, so `insert`'s caller keeps it in place.
            let first = unsafe { deref(head) };
            let tail = first.prev.replace(Some(node)).unwrap_or(head);
            // SAFETY: as for the head.
            let last = unsafe { deref(tail) };
            last.next.set(Some(node));
            linked.prev.set(Some(tail));
            linked.next.set(Some(head));
        } else {
            linked.prev.set(Some(node));
            linked.next.set(Some(node));
            self.heads[index] = Some(node);
            self.occupied[index / SLOTS] |= 1 << (index % SLOTS);
            self.levels |= 1 << (index / SLOTS);
        }
    }

    /// Takes a linked node out of its slot. `linked` is `node`, dereferenced.
    fn unlink(&mut self, node: NonNull<TimerNode>, linked: &TimerNode) {
        let index = self.place(tick_due(linked.deadline_ns.load(Relaxed)));
        if let (Some(next), Some(prev)) = (linked.next.take(), linked.prev.take()) {
            if next == node {
                self.heads[index] = None;
                self.set_vacant(index);
            } else {
                // SAFETY: a linked node, so `insert`'s caller keeps it in place.
                let after = unsafe { deref(next) };
                after.prev.set(Some(prev));
                // SAFETY: as for the next one.
                let before = unsafe { deref(prev) };
                before.next.set(Some(next));
                if self.heads[index] == Some(node) {
                    self.heads[index] = Some(next);
                }
            }
            self.len -= 1;
        }
    }

    /// Notes that a slot has lost its last node.
    fn set_vacant(&mut self, index: usize) {
        let level = index / SLOTS;
        self.occupied[level] &= !(1 << (index % SLOTS));
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
    }
}

impl fmt::Debug for Wheel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("now_ns", &self.now_ns)
            .field("len", &self.len)
            .field("next_deadline_ns", &self.next_deadline_ns())
            .field("cascades", &self.cascades)
            .finish_non_exhaustive()
    }
}

/// An occupied slot and the tick at which time enters it.
struct NextSlot {
    /// Its level.
    level: u32,
    /// Its place among the heads.
    index: usize,
    /// The first tick that belongs in it.
    start: u64,
}

/// Dereferences a node. All access is by shared reference (the fields are cells), so any number of
/// these may live at once.
///
/// # Safety
///
/// The node is there for as long as the result is used, and not borrowed exclusively.
unsafe fn deref<'a>(node: NonNull<TimerNode>) -> &'a TimerNode {
    // SAFETY: passed on to the caller.
    unsafe { node.as_ref() }
}

/// The given digit of a tick.
fn digit(tick: u64, level: u32) -> usize {
    (tick >> (level * DIGIT_BITS)) as usize % SLOTS
}

/// The tick at which a deadline is due: rounded up, so that it is never early.
fn tick_due(deadline_ns: u64) -> u64 {
    (deadline_ns >> TICK_BITS) + u64::from(deadline_ns & (TICK_NS - 1) != 0)
}

/// The latest tick that has been reached: rounded down, but the end of time reaches the last.
fn tick_reached(now_ns: u64) -> u64 {
    if now_ns == u64::MAX {
        TICK_END
    } else {
        now_ns >> TICK_BITS
    }
}

/// The time of a tick.
fn tick_ns(tick: u64) -> u64 {
    if tick >= TICK_END {
        u64::MAX
    } else {
        tick << TICK_BITS
    }
}
