//! The wheel: the slots, what is in which, and what comes next.
//!
//! Used by the thread that owns the timers; neither `Send` nor `Sync`. Words: a *digit* is ten bits of a
//! tick, or six (`BITS`), digit 0 the lowest; *current* is the tick up to which everything has been popped.
//!
//! - I1: a linked node whose tick is after `current` is in the slot named by the highest digit in
//!   which the two differ (`place`); any other linked node is in the slot of `current` at level 0.
//! - I2: hence the slot of `current` holds exactly the nodes that are due, and every other
//!   occupied slot of a level has a number greater than that digit of `current`.
//! - I3: `current` moves only when its slot is empty, and never past the start of an occupied slot.
//! - I4: `TICK_NS * current <= now_ns` (with 2⁶⁴ taken as `u64::MAX`), so what is due was not early.
//! - I5: the bit of a slot in `occupied` is set iff it has a node, the bit of a word of a level's in `words` iff that word is not
//!   zero, and bit `l` of `levels` iff `words[l]` is not zero.
//! - I6: a slot has sheaves and then a list, in order of insertion. The list is named by its last node, whose `next` is the first one; the
//!   first one's `prev` is `None`. Nodes of one tick are always in one slot, and a cascade keeps their order.
//! - I7: a node in a sheaf has `IN_SHEAF` for its `next`, and for its `prev` the address of its place.
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

use super::sheaf::{self, PLACES, Sheaf, Sheaves};
use super::{TICK_BITS, TICK_NS, TimerNode};

/// Levels: so many digits cover every tick of a 64-bit clock, and the tick after the last.
const LEVELS: usize = 8;
// PERF: the two lowest are wide: what falls due within a second is dealt out once, and the chase from node to node, each in a
// cache line of its own, is what a cascade costs. With digits of six bits throughout a timer below 2 s among a million took 1.4 times as long.
/// Bits of the digit of each level.
const BITS: [u32; LEVELS] = [10, 10, 6, 6, 6, 6, 6, 6];
/// Bits of the ticks that all slots of a level have in common with each other, from below.
const SHIFTS: [u32; LEVELS] = sums(BITS);
/// The first slot of each level.
const FIRSTS: [u32; LEVELS] = sums(slots());
/// Slots of all levels.
const SLOTS: usize = FIRSTS[LEVELS - 1] as usize + (1 << BITS[LEVELS - 1]);
/// Words of one bit for each slot.
const WORDS: usize = SLOTS / 64;
/// The tick after the last: where deadlines go that round up to 2⁶⁴.
const TICK_END: u64 = 1 << (u64::BITS - TICK_BITS);
/// See I7: where no node is.
const IN_SHEAF: NonNull<TimerNode> = NonNull::dangling();
/// How many nodes of a slot `next_deadline_ns` reads before it settles for the slot's start.
const PEEK_NODES_MAX: usize = 8;

/// The sum of all numbers before each one.
const fn sums(of: [u32; LEVELS]) -> [u32; LEVELS] {
    let mut sums = [0; LEVELS];
    let mut level = 1;
    while level < LEVELS {
        sums[level] = sums[level - 1] + of[level - 1];
        level += 1;
    }
    sums
}

/// How many slots each level has.
const fn slots() -> [u32; LEVELS] {
    let mut slots = [0; LEVELS];
    let mut level = 0;
    while level < LEVELS {
        slots[level] = 1 << BITS[level];
        level += 1;
    }
    slots
}

const _: () = assert!(
    SHIFTS[LEVELS - 1] + BITS[LEVELS - 1] > u64::BITS - TICK_BITS,
    "the last level has a slot for the tick after the last"
);
const _: () = assert!(BITS[0] == 10 && BITS[1] == 10, "see `level`");

/// From so many timers on they are kept in sheaves: fewer are in the cache, however they are linked.
const MANY: usize = 64;

/// How many nodes at each end of a slot are brought into the cache before it is dealt out: half a megabyte in all, at a line for each.
const WARM_MAX: usize = 4096;

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
    levels: u8,
    /// One bit for each word of a level's that is not zero.
    words: [u16; LEVELS],
    /// One bit for each occupied slot, level by level.
    occupied: [u64; WORDS],
    /// The last node of each slot, level by level.
    tails: Box<[Option<NonNull<TimerNode>>]>,
    /// The number of linked nodes.
    len: usize,
    /// How often a node has been moved by a cascade.
    cascades: u64,
    /// There once many timers have been armed by a caller that may allocate.
    sheaves: Option<Sheaves>,
}

impl Wheel {
    /// Makes an empty wheel whose time starts at `now_ns`. It allocates about 19 KiB;
    /// besides, only [`reserve`](Self::reserve) allocates.
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        Self {
            now_ns,
            current: tick_reached(now_ns),
            levels: 0,
            words: [0; LEVELS],
            occupied: [0; WORDS],
            tails: vec![None; SLOTS].into_boxed_slice(),
            len: 0,
            cascades: 0,
            sheaves: None,
        }
    }

    /// Allocates what makes many timers fast, unless it is there or they are few: to be called before an insertion by a caller that may
    /// allocate. Nothing else depends on it. It is a quarter of a kilobyte for each timer at the most, and 9 bytes if few are removed; all of
    /// it is used again at once when timers are popped or removed, and most given back when there are none left.
    #[inline]
    pub fn reserve(&mut self) {
        match &mut self.sheaves {
            Some(sheaves) => sheaves.reserve(),
            None if self.len < MANY => {}
            None => self.start_sheaves(),
        }
    }

    #[cold]
    fn start_sheaves(&mut self) {
        self.sheaves = Some(Sheaves::new(SLOTS));
        // Or what comes into the slots of those that are there already would join them in their lists.
        if self.len <= 2 * MANY {
            (0..SLOTS).for_each(|index| self.file_list(index));
        }
        self.reserve();
    }

    /// Moves the list of a slot without sheaves into sheaves.
    fn file_list(&mut self, index: usize) {
        let Some(tail) = self.tails[index].take() else {
            return;
        };
        self.set_vacant(index);
        // SAFETY: linked until now, so `insert`'s caller keeps it in place.
        let mut next = unsafe { deref(tail) }.next.get();
        while let Some(at) = next {
            // SAFETY: as above.
            let detached = unsafe { deref(at) };
            next = detached.next.get().filter(|_| at != tail);
            self.reserve();
            self.link(at, detached);
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
    #[inline]
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
            let index = self.current_slot();
            if let Some(first) = self.take_first(index) {
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
    /// slot out, so a sleeper that wakes at each time returned wakes at most seven times for each
    /// node. If nodes are due already, it is at or before the latest time given.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        if self.is_occupied(self.current_slot()) {
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
        let level = level((tick ^ self.current).ilog2());
        FIRSTS[level] as usize + digit(tick, level)
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
        let level = self.levels.trailing_zeros() as usize;
        let word = self.words[level].trailing_zeros() as usize;
        let bit = self.occupied[FIRSTS[level] as usize / 64 + word].trailing_zeros();
        let slot = word * 64 + bit as usize;
        let (shift, bits) = (SHIFTS[level], BITS[level]);
        let above = self.current >> (shift + bits) << bits;
        Some(NextSlot {
            level,
            index: FIRSTS[level] as usize + slot,
            start: (above | slot as u64) << shift,
        })
    }

    /// The earliest tick in an occupied slot, unless it holds too many nodes to look at.
    fn earliest_of_few(&self, index: usize) -> Option<u64> {
        let (mut left, mut earliest) = (PEEK_NODES_MAX, u64::MAX);
        let last = self.last_sheaf(index);
        let mut at = last;
        while let Some(before) = at {
            // SAFETY: of this wheel's sheaves.
            let next = unsafe { sheaf::deref(before) }.next()?;
            // SAFETY: as above.
            let sheaf = unsafe { sheaf::deref(next) };
            left = left.checked_sub(sheaf.live())?;
            for node in sheaf.nodes() {
                // SAFETY: a linked node, so `insert`'s caller keeps it in place.
                earliest = earliest.min(due(unsafe { deref(node) }));
            }
            at = Some(next).filter(|_| last != Some(next));
        }
        let Some(tail) = self.tails[index] else {
            return Some(earliest);
        };
        let mut at = tail;
        for _ in 0..left {
            // SAFETY: as above.
            let linked = unsafe { deref(at) };
            earliest = earliest.min(due(linked));
            at = linked.next.get()?;
            if at == tail {
                return Some(earliest);
            }
        }
        None
    }

    /// Deals the nodes of a slot that time has just entered out to lower levels, in their order.
    fn cascade(&mut self, index: usize) {
        self.set_vacant(index);
        let tail = self.tails[index].take();
        self.deal_sheaves(index);
        let Some(tail) = tail else {
            return;
        };
        warm_up(tail);
        // SAFETY: linked until now, so `insert`'s caller keeps it in place.
        let mut next = unsafe { deref(tail) }.next.get();
        while let Some(at) = next {
            // SAFETY: as above.
            let detached = unsafe { deref(at) };
            next = detached.next.get().filter(|_| at != tail);
            self.link(at, detached);
            self.cascades += 1;
        }
    }

    /// Deals out what a slot has in sheaves, which is what was inserted first.
    fn deal_sheaves(&mut self, index: usize) {
        let sheaves = self.sheaves.as_mut();
        let Some(last) = sheaves.and_then(|sheaves| sheaves.lasts[index].take()) else {
            return;
        };
        // SAFETY: of this wheel's sheaves.
        let mut at = unsafe { sheaf::deref(last) }.next();
        while let Some(this) = at {
            // SAFETY: as above; and `link` reuses only those that have been given back.
            let sheaf = unsafe { sheaf::deref(this) };
            let next = sheaf.next().filter(|_| this != last);
            at = next;
            // SAFETY: as above.
            let coming = next.map(|next| unsafe { sheaf::deref(next) });
            for ahead in 0..PLACES {
                if let Some(coming) = coming {
                    coming.fetch(ahead);
                }
                let Some(node) = sheaf.node(ahead) else {
                    continue;
                };
                // SAFETY: linked until now, so `insert`'s caller keeps it in place.
                let detached = unsafe { deref(node) };
                self.link(node, detached);
                self.cascades += 1;
            }
            if let Some(sheaves) = &mut self.sheaves {
                sheaves.give_back(this);
            }
        }
    }

    /// Puts a node into the slot it belongs in, as its last. `linked` is `node`, dereferenced.
    #[inline]
    fn link(&mut self, node: NonNull<TimerNode>, linked: &TimerNode) {
        let index = self.place(due(linked));
        let before = self.tails[index];
        // What is in a list came after what is in the sheaves.
        if before.is_none()
            && let Some(place) = self.file(index, node)
        {
            linked.next.set(Some(IN_SHEAF));
            linked.prev.set(Some(place));
            return;
        }
        self.tails[index] = Some(node);
        linked.prev.set(before);
        if let Some(before) = before {
            // SAFETY: a linked node, so `insert`'s caller keeps it in place.
            let first = unsafe { deref(before) }.next.replace(Some(node));
            linked.next.set(first);
        } else {
            linked.next.set(Some(node));
            self.set_occupied(index);
        }
    }

    /// Puts a node into a slot's last sheaf, or a new one, if there is room without allocating. Returns the address of the place.
    #[inline]
    fn file(&mut self, index: usize, node: NonNull<TimerNode>) -> Option<NonNull<TimerNode>> {
        let sheaves = self.sheaves.as_mut()?;
        let last = sheaves.lasts[index];
        // SAFETY: of this wheel's sheaves.
        let room = last.filter(|&last| !unsafe { sheaf::deref(last) }.is_full());
        let sheaf = match room {
            Some(sheaf) => sheaf,
            None => sheaves.add(index)?,
        };
        let place = Sheaf::push(sheaf, node);
        if last.is_none() {
            self.set_occupied(index);
        }
        Some(place.cast())
    }

    /// The last sheaf of a slot.
    #[inline]
    fn last_sheaf(&self, index: usize) -> Option<NonNull<Sheaf>> {
        self.sheaves.as_ref()?.lasts[index]
    }

    /// Whether a slot has a node.
    #[inline]
    fn is_occupied(&self, index: usize) -> bool {
        self.occupied[index / 64] & 1 << (index % 64) != 0
    }

    /// Takes the first node out of a slot, if it has any.
    #[inline]
    fn take_first(&mut self, index: usize) -> Option<NonNull<TimerNode>> {
        let Some(last) = self.last_sheaf(index) else {
            let tail = self.tails[index]?;
            return Some(self.unlink_first(index, tail));
        };
        // SAFETY: of this wheel's sheaves.
        let first = unsafe { sheaf::deref(last) }.next()?;
        // SAFETY: as above.
        let sheaf = unsafe { sheaf::deref(first) };
        let node = sheaf.pop()?;
        // SAFETY: a linked node, so `insert`'s caller keeps it in place.
        let linked = unsafe { deref(node) };
        linked.next.set(None);
        linked.prev.set(None);
        self.len -= 1;
        if sheaf.live() == 0 {
            if let Some(next) = sheaf.next() {
                // SAFETY: of this wheel's sheaves.
                unsafe { sheaf::deref(next) }.fetch_first();
            }
            self.drop_empty(first, index);
        }
        Some(node)
    }

    /// Frees a sheaf of a slot that has no node any more.
    fn drop_empty(&mut self, sheaf: NonNull<Sheaf>, index: usize) {
        let sheaves = self.sheaves.as_mut();
        let is_last = sheaves.is_some_and(|sheaves| sheaves.drop_empty(sheaf, index));
        if is_last && self.tails[index].is_none() {
            self.set_vacant(index);
        }
    }

    /// Takes the first node out of a slot whose last one is `tail`, and returns it.
    fn unlink_first(&mut self, index: usize, tail: NonNull<TimerNode>) -> NonNull<TimerNode> {
        // SAFETY: a linked node, so `insert`'s caller keeps it in place.
        let last = unsafe { deref(tail) };
        let first = last.next.get().unwrap_or(tail);
        // SAFETY: as for the last one.
        let linked = unsafe { deref(first) };
        let next = linked.next.take();
        if first == tail {
            self.tails[index] = None;
            if self.last_sheaf(index).is_none() {
                self.set_vacant(index);
            }
        } else if let Some(next) = next {
            last.next.set(Some(next));
            // SAFETY: as for the last one.
            unsafe { deref(next) }.prev.set(None);
        }
        self.len -= 1;
        first
    }

    /// Takes a linked node out of its slot. `linked` is `node`, dereferenced.
    fn unlink(&mut self, node: NonNull<TimerNode>, linked: &TimerNode) {
        let index = self.place(due(linked));
        if linked.next.get() == Some(IN_SHEAF) {
            linked.next.set(None);
            if let Some(place) = linked.prev.take() {
                self.len -= 1;
                // SAFETY: the place that `link` noted, of this wheel's sheaves.
                let sheaf = unsafe { Sheaf::clear(place.cast()) };
                // SAFETY: of this wheel's sheaves.
                if unsafe { sheaf::deref(sheaf) }.live() == 0 {
                    self.drop_empty(sheaf, index);
                }
            }
            return;
        }
        let Some(tail) = self.tails[index] else {
            return;
        };
        let Some(prev) = linked.prev.take() else {
            self.unlink_first(index, tail);
            return;
        };
        let next = linked.next.take();
        // SAFETY: a linked node, so `insert`'s caller keeps it in place.
        unsafe { deref(prev) }.next.set(next);
        if node == tail {
            self.tails[index] = Some(prev);
        } else if let Some(next) = next {
            // SAFETY: as for the one before.
            unsafe { deref(next) }.prev.set(Some(prev));
        }
        self.len -= 1;
    }

    /// Notes that a slot has its first node.
    #[inline]
    fn set_occupied(&mut self, index: usize) {
        let (word, level) = (index / 64, level_of(index));
        self.occupied[word] |= 1 << (index % 64);
        self.words[level] |= 1 << (word - FIRSTS[level] as usize / 64);
        self.levels |= 1 << level;
    }

    /// Notes that a slot has lost its last node.
    fn set_vacant(&mut self, index: usize) {
        let (word, level) = (index / 64, level_of(index));
        self.occupied[word] &= !(1 << (index % 64));
        if self.occupied[word] == 0 {
            self.words[level] &= !(1 << (word - FIRSTS[level] as usize / 64));
            if self.words[level] == 0 {
                self.levels &= !(1 << level);
            }
        }
    }
}

/// Has the nodes of a list brought into the cache, from both of its ends: two at a time, where going through it from its first would wait
/// for one after the other.
fn warm_up(tail: NonNull<TimerNode>) {
    // SAFETY: a linked node, so `insert`'s caller keeps it in place.
    let mut forth = unsafe { deref(tail) }.next.get();
    let mut back = Some(tail);
    for _ in 0..WARM_MAX {
        let (Some(low), Some(high)) = (forth, back) else {
            return;
        };
        if low == high {
            return;
        }
        // SAFETY: as above.
        forth = unsafe { deref(low) }.next.get();
        if forth == back {
            return;
        }
        // SAFETY: as above.
        back = unsafe { deref(high) }.prev.get();
        // Or the compiler would see that nothing comes of it.
        core::hint::black_box(back);
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
    level: usize,
    /// Its place among the tails.
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

/// The level of the digit that a bit of a tick lies in.
fn level(bit: u32) -> usize {
    if bit < SHIFTS[2] {
        usize::from(bit >= SHIFTS[1])
    } else {
        2 + ((bit - SHIFTS[2]) / BITS[2]) as usize
    }
}

/// The level of a slot.
fn level_of(index: usize) -> usize {
    let second = FIRSTS[2] as usize;
    if index < second {
        index >> BITS[0]
    } else {
        2 + ((index - second) >> BITS[2])
    }
}

/// The given digit of a tick.
fn digit(tick: u64, level: usize) -> usize {
    (tick >> SHIFTS[level]) as usize & ((1 << BITS[level]) - 1)
}

/// The tick at which a node is due.
#[inline]
fn due(linked: &TimerNode) -> u64 {
    tick_due(linked.deadline_ns.load(Relaxed))
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
