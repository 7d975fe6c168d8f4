//! A thread's warm stacks: the most recently used one first, no lock, no system call.
//!
//! A `StackCache` is a plain value used by one thread at a time; only its counters are read by
//! others. Stacks may come from one cache and go into another.
//!
//! Invariants:
//! - I1: after each call the cache holds at most `stacks_max` stacks and `bytes_max` reserved
//!   bytes; reserved bytes bound the memory that warm stacks can hold.
//! - I2: a cached slot has no owner, so an overflow report never describes a finished coroutine.
//! - I3: what leaves for the depot, by spilling or by drop, holds no memory.
//! - I4: stacks that are not pooled are never on a shelf.
//! - I5: `room` is how many stacks the front shelf may hold before anything else has to be looked at: what its memory has place for,
//!   and what I1 leaves it beside the other shelves. Those change, and it with them, on the slow paths only.

#![expect(
    unsafe_code,
    reason = "memory of slots that the cache owns is discarded, and a place that is known to be there is written"
)]

#[cfg(test)]
mod tests;

use super::depot::{Class, Depot};
use super::slab::{self, Slot, SlotLayout};
use super::{Stack, StackConfig, StackError};
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many recycled stacks are fetched from the depot at a time.
const REFILL_STACKS: usize = 16;

/// Bounds of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// The most stacks it keeps; zero makes a cache that keeps none. Default 1,024.
    pub stacks_max: usize,
    /// The most reserved bytes it keeps. Default 256 MiB.
    pub bytes_max: usize,
}

impl CacheLimits {
    const INITIAL: CacheLimits = CacheLimits {
        stacks_max: 1024,
        bytes_max: 256 << 20,
    };

    /// The bounds of caches that are made without any: those last given to
    /// [`set_for_process`](CacheLimits::set_for_process).
    #[must_use]
    pub fn of_process() -> CacheLimits {
        // ORDERING: relaxed, here and below; two bounds that are valid by themselves.
        CacheLimits {
            stacks_max: STACKS_MAX.load(Ordering::Relaxed),
            bytes_max: BYTES_MAX.load(Ordering::Relaxed),
        }
    }

    /// From now on caches that are made without bounds, in any thread, have these; those that exist keep theirs.
    pub fn set_for_process(self) {
        // ORDERING: relaxed, as above.
        STACKS_MAX.store(self.stacks_max, Ordering::Relaxed);
        // ORDERING: relaxed, as above.
        BYTES_MAX.store(self.bytes_max, Ordering::Relaxed);
    }
}

static STACKS_MAX: AtomicUsize = AtomicUsize::new(CacheLimits::INITIAL.stacks_max);
static BYTES_MAX: AtomicUsize = AtomicUsize::new(CacheLimits::INITIAL.bytes_max);

impl Default for CacheLimits {
    fn default() -> CacheLimits {
        CacheLimits::INITIAL
    }
}

/// What a cache holds and did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Stacks kept now.
    pub stacks: usize,
    /// Address space of those, in bytes.
    pub reserved_bytes: usize,
    /// Stacks handed out from the cache, warm.
    pub hits: u64,
    /// Stacks that had to come from the depot.
    pub misses: u64,
    /// Stacks whose memory was returned because a bound was reached.
    pub spilled: u64,
}

/// A cache's size, readable by other threads.
///
/// One writer, which stores plain values: no read-modify-write on the hot path, and one store. The parts are not of one instant.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// On the front shelf.
    front: AtomicUsize,
    /// The reserved bytes of each of those.
    stride_bytes: AtomicUsize,
    /// On the others.
    stacks: AtomicUsize,
    bytes: AtomicUsize,
}

impl Counts {
    pub(super) fn stacks(&self) -> usize {
        // ORDERING: relaxed, here and below: a statistic; nothing is read on the strength of it.
        self.stacks.load(Ordering::Relaxed) + self.front.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> usize {
        // ORDERING: relaxed, as above.
        let front = self.front.load(Ordering::Relaxed) * self.stride_bytes.load(Ordering::Relaxed);
        // ORDERING: relaxed, as above.
        self.bytes.load(Ordering::Relaxed) + front
    }

    #[inline]
    fn set_front(&self, stacks: usize) {
        // ORDERING: relaxed, as above.
        self.front.store(stacks, Ordering::Relaxed);
    }

    fn set(&self, front: &Shelf, stacks: usize, bytes: usize) {
        self.set_front(front.warm.len());
        let stride_bytes = front.layout.stride_bytes();
        // ORDERING: relaxed, here and below, as above.
        self.stride_bytes.store(stride_bytes, Ordering::Relaxed);
        self.stacks.store(stacks, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

/// The warm stacks of one class, the warmest last.
#[derive(Debug)]
struct Shelf {
    /// The class's, at hand.
    layout: SlotLayout,
    /// `None` before a cache has had any stack.
    class: Option<&'static Class>,
    warm: Vec<Slot>,
}

impl Shelf {
    const NONE: Shelf = Shelf {
        layout: SlotLayout::NONE,
        class: None,
        warm: Vec::new(),
    };

    fn bytes(&self) -> usize {
        self.warm.len() * self.layout.stride_bytes()
    }

    #[inline]
    fn is_of(&self, class: &'static Class) -> bool {
        self.class.is_some_and(|own| ptr::eq(own, class))
    }

    /// The `count` coldest stacks go to the depot, without their memory.
    fn give(&mut self, count: usize) {
        let Some(class) = self.class else {
            return;
        };
        let cold = &mut self.warm[..count];
        // SAFETY: cached slots belong to the cache, nobody reads them.
        unsafe { slab::discard(cold) };
        class.give(cold);
        self.warm.drain(..count);
    }
}

/// Warm stacks kept for reuse by one thread; dropping it gives all of them back.
#[derive(Debug)]
pub struct StackCache {
    /// Of the class used last.
    front: Shelf,
    /// I5.
    room: usize,
    hits: u64,
    counts: Arc<Counts>,
    others: Vec<Shelf>,
    misses: u64,
    spilled: u64,
    limits: CacheLimits,
    depot: &'static Depot,
}

impl Default for StackCache {
    fn default() -> StackCache {
        StackCache::new(CacheLimits::of_process())
    }
}

impl StackCache {
    /// An empty cache.
    #[must_use]
    pub fn new(limits: CacheLimits) -> StackCache {
        StackCache::in_depot(Depot::global(), limits)
    }

    pub(super) fn in_depot(depot: &'static Depot, limits: CacheLimits) -> StackCache {
        let counts = Arc::new(Counts::default());
        depot.enrol(&counts);
        StackCache {
            front: Shelf::NONE,
            room: 0,
            hits: 0,
            counts,
            others: Vec::new(),
            misses: 0,
            spilled: 0,
            limits,
            depot,
        }
    }

    // PERF: to take a warm stack, run a coroutine on it and put it back: 12.6 ns when totals were kept at each step and a slot was an index, 7.6 ns so.
    /// Hands out a stack of at least the configured size: the one put back last, if there is one.
    ///
    /// Its contents are arbitrary, and its high-water mark is that of all of its uses since it was
    /// last cleaned.
    ///
    /// # Errors
    ///
    /// `NoMemory` when the kernel refuses a new one; nothing changed.
    #[inline]
    pub fn get(&mut self, config: &StackConfig) -> Result<Stack, StackError> {
        if self.front.layout == config.layout()
            && let Some(count) = self.front.warm.len().checked_sub(1)
        {
            // SAFETY: there are `count` before the last.
            let last = unsafe { self.front.warm.as_ptr().add(count) };
            // SAFETY: there is one.
            let slot = unsafe { Slot::read_by_words(last) };
            // SAFETY: fewer than there were.
            unsafe { self.front.warm.set_len(count) };
            self.hits += 1;
            self.counts.set_front(count);
            return Ok(Stack::from_slot(slot));
        }
        self.get_slow(config)
    }

    /// Another class than the last one's, or no warm stack.
    #[cold]
    #[inline(never)]
    fn get_slow(&mut self, config: &StackConfig) -> Result<Stack, StackError> {
        let layout = config.layout();
        if !layout.is_pooled() {
            // I4; what lies in the depot holds no memory.
            return Ok(Stack::from_slot(self.depot.class(layout).take()?));
        }
        if self.front.layout != layout {
            let class = match self.others.iter().find(|shelf| shelf.layout == layout) {
                Some(Shelf {
                    class: Some(class), ..
                }) => class,
                _ => self.depot.class(layout),
            };
            self.bring_front(class);
        }
        if self.front.warm.is_empty() {
            self.misses += 1;
            self.refill();
        } else {
            self.hits += 1;
        }
        let slot = self.front.warm.pop();
        self.recount();
        match (slot, self.front.class) {
            (Some(slot), _) => Ok(Stack::from_slot(slot)),
            (None, Some(class)) => Ok(Stack::from_slot(class.take()?)),
            (None, None) => unreachable!("the front shelf is of the class asked for"),
        }
    }

    /// Fetches recycled stacks for the front shelf, which is empty, as many as there is room for. `recount` comes next.
    fn refill(&mut self) {
        let Some(class) = self.front.class else {
            return;
        };
        let (stacks, bytes) = self.beside();
        let room = (self.limits.stacks_max - stacks)
            .min((self.limits.bytes_max - bytes) / self.front.layout.stride_bytes());
        class.take_recycled(room.min(REFILL_STACKS), &mut self.front.warm);
    }

    /// Takes a stack back, to be handed out again first.
    ///
    /// Clears its owner. Beyond a bound, the colder half of the largest class loses its memory and
    /// goes to the depot.
    #[inline]
    pub fn put(&mut self, stack: Stack) {
        let slot = stack.into_slot();
        let count = self.front.warm.len();
        if count < self.room && self.front.is_of(slot.class()) {
            // SAFETY: I5: its memory has place for more than there are.
            let place = unsafe { self.front.warm.as_mut_ptr().add(count) };
            // SAFETY: as above.
            unsafe { place.write(slot) };
            // SAFETY: just written.
            unsafe { self.front.warm.set_len(count + 1) };
            self.counts.set_front(count + 1);
        } else {
            self.put_slow(slot);
        }
    }

    /// Another class than the last one's, no place for one more, or a bound that is reached.
    #[cold]
    #[inline(never)]
    fn put_slow(&mut self, slot: Slot) {
        let class = slot.class();
        if !self.front.is_of(class) {
            // One that is not pooled goes home by its own drop, as does one of another depot (only tests have one).
            if !class.layout().is_pooled() || !ptr::eq(class.depot(), self.depot) {
                drop(Stack::from_slot(slot));
                return;
            }
            self.bring_front(class);
        }
        self.front.warm.push(slot);
        while {
            let CacheStats {
                stacks,
                reserved_bytes,
                ..
            } = self.stats();
            stacks > self.limits.stacks_max || reserved_bytes > self.limits.bytes_max
        } {
            self.spill();
        }
        self.recount();
    }

    /// What the cache holds and did.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let (stacks, bytes) = self.beside();
        CacheStats {
            stacks: stacks + self.front.warm.len(),
            reserved_bytes: bytes + self.front.bytes(),
            hits: self.hits,
            misses: self.misses,
            spilled: self.spilled,
        }
    }

    /// Gives every cached stack back to the depot, its memory to the kernel.
    pub fn clear(&mut self) {
        for shelf in self.others.iter_mut().chain([&mut self.front]) {
            shelf.give(shelf.warm.len());
        }
        self.recount();
    }

    /// What the shelves beside the front one hold: stacks, and bytes.
    fn beside(&self) -> (usize, usize) {
        self.others.iter().fold((0, 0), |(stacks, bytes), shelf| {
            (stacks + shelf.warm.len(), bytes + shelf.bytes())
        })
    }

    /// Establishes I5, and tells the counters, after a change of the shelves.
    fn recount(&mut self) {
        let (stacks, bytes) = self.beside();
        let of_stacks = self.limits.stacks_max.saturating_sub(stacks);
        let of_bytes = self.limits.bytes_max.saturating_sub(bytes);
        // INVARIANT: I5.
        self.room = of_bytes
            .checked_div(self.front.layout.stride_bytes())
            .unwrap_or(0)
            .min(of_stacks)
            .min(self.front.warm.capacity());
        self.counts.set(&self.front, stacks, bytes);
    }

    /// Brings the shelf of this class, which is another than the front one's, to the front. `recount` comes next.
    fn bring_front(&mut self, class: &'static Class) {
        let shelf = Shelf {
            layout: class.layout(),
            class: Some(class),
            warm: Vec::new(),
        };
        match self.others.iter_mut().find(|other| other.is_of(class)) {
            Some(other) => mem::swap(other, &mut self.front),
            None if self.front.class.is_none() => self.front = shelf,
            None => self.others.push(mem::replace(&mut self.front, shelf)),
        }
    }

    /// Sends the colder half, at least one, of the shelf that holds most to the depot. `recount` comes next.
    #[cold]
    fn spill(&mut self) {
        let shelves = self.others.iter_mut().chain([&mut self.front]);
        let Some(shelf) = shelves.max_by_key(|shelf| shelf.bytes()) else {
            return;
        };
        let count = shelf.warm.len().div_ceil(2);
        shelf.give(count);
        self.spilled += count as u64;
    }
}

impl Drop for StackCache {
    fn drop(&mut self) {
        self.clear();
    }
}
