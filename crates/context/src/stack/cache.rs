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

#![expect(
    unsafe_code,
    reason = "memory of slots that the cache owns is discarded"
)]

#[cfg(test)]
mod tests;

use super::depot::{Class, Depot};
use super::slab::{self, Slot, SlotLayout};
use super::{Stack, StackConfig, StackError};
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
/// One writer, which stores plain sums: no read-modify-write on the hot path.
#[derive(Debug, Default)]
pub(super) struct Counts {
    stacks: AtomicUsize,
    bytes: AtomicUsize,
}

impl Counts {
    pub(super) fn stacks(&self) -> usize {
        // ORDERING: relaxed, a statistic; nothing is read on the strength of it.
        self.stacks.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> usize {
        // ORDERING: relaxed, as above.
        self.bytes.load(Ordering::Relaxed)
    }

    #[inline]
    fn set(&self, stacks: usize, bytes: usize) {
        // ORDERING: relaxed, as above.
        self.stacks.store(stacks, Ordering::Relaxed);
        // ORDERING: relaxed, as above.
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

/// The warm stacks of one class, the warmest last.
#[derive(Debug)]
struct Shelf {
    /// The class's, at hand.
    layout: SlotLayout,
    class: &'static Class,
    warm: Vec<Slot>,
}

impl Shelf {
    fn bytes(&self) -> usize {
        self.warm.len() * self.layout.stride_bytes
    }
}

/// Warm stacks kept for reuse by one thread; dropping it gives all of them back.
#[derive(Debug)]
pub struct StackCache {
    depot: &'static Depot,
    limits: CacheLimits,
    /// The class used last comes first.
    shelves: Vec<Shelf>,
    stacks: usize,
    bytes: usize,
    hits: u64,
    misses: u64,
    spilled: u64,
    counts: Arc<Counts>,
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
            depot,
            limits,
            shelves: Vec::new(),
            stacks: 0,
            bytes: 0,
            hits: 0,
            misses: 0,
            spilled: 0,
            counts,
        }
    }

    // PERF: 6.5 ns for a get and a put of a warm stack; 31 ns when each call moved a shelf.
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
        if let Some(shelf) = self.shelves.first_mut()
            && shelf.layout == config.layout()
            && let Some(slot) = shelf.warm.pop()
        {
            self.hits += 1;
            return Ok(self.hand_out(slot));
        }
        self.get_slow(config)
    }

    /// Another class than the last one's, or no warm stack.
    #[cold]
    fn get_slow(&mut self, config: &StackConfig) -> Result<Stack, StackError> {
        if !config.layout().is_pooled {
            // I4; what lies in the depot holds no memory.
            return Ok(Stack::from_slot(self.depot.class(config.layout()).take()?));
        }
        let shelf = self.shelf(config);
        if let Some(slot) = shelf.warm.pop() {
            self.hits += 1;
            return Ok(self.hand_out(slot));
        }
        let shelf = &mut self.shelves[0];
        let class = shelf.class;
        let stride_bytes = shelf.layout.stride_bytes;
        let room = (self.limits.stacks_max - self.stacks)
            .min((self.limits.bytes_max - self.bytes) / stride_bytes);
        class.take_recycled(room.min(REFILL_STACKS), &mut shelf.warm);
        self.misses += 1;
        if let Some(slot) = shelf.warm.pop() {
            self.stacks += shelf.warm.len() + 1;
            self.bytes += (shelf.warm.len() + 1) * stride_bytes;
            return Ok(self.hand_out(slot));
        }
        Ok(Stack::from_slot(class.take()?))
    }

    #[inline]
    fn hand_out(&mut self, slot: Slot) -> Stack {
        self.stacks -= 1;
        self.bytes -= slot.reserved_bytes();
        self.counts.set(self.stacks, self.bytes);
        Stack::from_slot(slot)
    }

    /// Takes a stack back, to be handed out again first.
    ///
    /// Clears its owner. Beyond a bound, the colder half of the largest class loses its memory and
    /// goes to the depot.
    #[inline]
    pub fn put(&mut self, stack: Stack) {
        let slot = stack.into_slot();
        let (stacks, bytes) = (self.stacks + 1, self.bytes + slot.reserved_bytes());
        if stacks <= self.limits.stacks_max
            && bytes <= self.limits.bytes_max
            && let Some(shelf) = self.shelves.first_mut()
            && ptr::eq(shelf.class, slot.class())
            && shelf.warm.len() < shelf.warm.capacity()
        {
            shelf.warm.push(slot);
            (self.stacks, self.bytes) = (stacks, bytes);
            self.counts.set(stacks, bytes);
        } else {
            self.put_slow(slot);
        }
    }

    /// Another class than the last one's, no room for one more, or a bound that is reached.
    #[cold]
    #[inline(never)]
    fn put_slow(&mut self, slot: Slot) {
        let class = slot.class();
        match self.shelves.first_mut() {
            Some(shelf) if ptr::eq(shelf.class, class) => shelf.warm.push(slot),
            _ => {
                // One that is not pooled goes home by its own drop, as does one of another depot (only tests have one).
                if !class.layout().is_pooled || !ptr::eq(class.depot(), self.depot) {
                    drop(Stack::from_slot(slot));
                    return;
                }
                let mut shelves = self.shelves.iter();
                let found = shelves.position(|shelf| ptr::eq(shelf.class, class));
                self.bring_first(found, class).warm.push(slot);
            }
        }
        self.stacks += 1;
        self.bytes += slot.reserved_bytes();
        while self.stacks > self.limits.stacks_max || self.bytes > self.limits.bytes_max {
            self.spill();
        }
        self.counts.set(self.stacks, self.bytes);
    }

    /// What the cache holds and did.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            stacks: self.stacks,
            reserved_bytes: self.bytes,
            hits: self.hits,
            misses: self.misses,
            spilled: self.spilled,
        }
    }

    /// Gives every cached stack back to the depot, its memory to the kernel.
    pub fn clear(&mut self) {
        for shelf in &mut self.shelves {
            // SAFETY: cached slots belong to the cache, nobody reads them.
            unsafe { slab::discard(&mut shelf.warm) };
            shelf.class.give(&shelf.warm);
            shelf.warm.clear();
        }
        self.stacks = 0;
        self.bytes = 0;
        self.counts.set(0, 0);
    }

    /// Brings the shelf for this configuration to the front.
    fn shelf(&mut self, config: &StackConfig) -> &mut Shelf {
        let layout = config.layout();
        let found = self.shelves.iter().position(|shelf| shelf.layout == layout);
        let class = match found {
            Some(at) => self.shelves[at].class,
            None => self.depot.class(layout),
        };
        self.bring_first(found, class)
    }

    fn bring_first(&mut self, found: Option<usize>, class: &'static Class) -> &mut Shelf {
        let at = found.unwrap_or_else(|| {
            self.shelves.push(Shelf {
                layout: class.layout(),
                class,
                warm: Vec::new(),
            });
            self.shelves.len() - 1
        });
        self.shelves.swap(0, at);
        &mut self.shelves[0]
    }

    /// Sends the colder half, at least one, of the shelf that holds most to the depot.
    #[cold]
    fn spill(&mut self) {
        let Some(shelf) = self.shelves.iter_mut().max_by_key(|shelf| shelf.bytes()) else {
            return;
        };
        let count = shelf.warm.len().div_ceil(2);
        let cold = &mut shelf.warm[..count];
        // SAFETY: cached slots belong to the cache, nobody reads them.
        unsafe { slab::discard(cold) };
        shelf.class.give(cold);
        shelf.warm.drain(..count);
        self.stacks -= count;
        self.bytes -= count * shelf.layout.stride_bytes;
        self.spilled += count as u64;
    }
}

impl Drop for StackCache {
    fn drop(&mut self) {
        self.clear();
    }
}
