//! The depot: all slots of the process that no cache holds, by size class.
//!
//! Any thread. One lock per class, held for a few list operations, and for mapping a slab or
//! installing a guard when fresh slots are needed; the per-thread caches keep it off hot paths.
//!
//! Invariants:
//! - I1: a slot is in exactly one place: not yet handed out, in the free list of its class, in one
//!   cache, or owned by one `Stack`.
//! - I2: every slot that was ever handed out has its guard, if its class has any; slots in the free list have it too.
//! - I3: slots in the free list hold no memory and no owner.
//! - I4: the free list has room for every slot of its class, so giving a slot back allocates
//!   nothing and cannot fail.
//! - I5: classes are spaced a quarter of a power of two apart and never removed; so however many
//!   sizes a program asks for, it makes at most about a hundred classes per guard size, pooled and not.

#![expect(
    unsafe_code,
    reason = "guards are installed on slots that nobody owns yet"
)]

#[cfg(test)]
mod tests;

use super::cache::Counts;
use super::error::{Limit, StackError};
use super::guard::{self, GuardKind};
use super::page_bytes;
use super::slab::{Slab, Slot, SlotLayout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Slots of a class's first slab.
const SLAB_SLOTS_MIN: usize = 16;
/// Slots of its largest.
const SLAB_SLOTS_MAX: usize = 16_384;
/// How many fresh slots are prepared at a time, in slabs of at least [`AHEAD_SLAB_SLOTS`]: their guards, and the page of each that its
/// coroutine will touch first.
// PERF: two system calls for sixteen stacks instead of a call and a fault for each: 0.5 of the 2.1 µs that the kernel takes for one.
const AHEAD: usize = 16;
const AHEAD_SLAB_SLOTS: usize = 256;
/// No slab is larger, unless one slot is.
const SLAB_BYTES_MAX: usize = 4 << 30;

/// All classes, and the counters of all caches.
#[derive(Debug)]
pub(super) struct Depot {
    /// `None`: what the process proved.
    guard_kind: Option<GuardKind>,
    classes: Mutex<Vec<&'static Class>>,
    caches: Mutex<Vec<Weak<Counts>>>,
}

static GLOBAL: Depot = Depot::new(None);

/// Whether no depot hands out anything, as if memory had run out.
static REFUSING: AtomicBool = AtomicBool::new(false);

/// From now on no depot hands out anything, or all do again.
pub(super) fn refuse(refuses: bool) {
    // ORDERING: relaxed; a switch for tests, which order their own threads.
    REFUSING.store(refuses, Ordering::Relaxed);
}

/// Locks; nothing that runs under these locks leaves a half-made change behind when it panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Depot {
    pub(super) const fn new(guard_kind: Option<GuardKind>) -> Depot {
        Depot {
            guard_kind,
            classes: Mutex::new(Vec::new()),
            caches: Mutex::new(Vec::new()),
        }
    }

    /// The depot of the process.
    pub(super) fn global() -> &'static Depot {
        &GLOBAL
    }

    pub(super) fn guard_kind(&self) -> GuardKind {
        self.guard_kind.unwrap_or_else(guard::chosen)
    }

    /// The class of this layout, made at its first use.
    pub(super) fn class(&'static self, layout: SlotLayout) -> &'static Class {
        let mut classes = lock(&self.classes);
        if let Some(class) = classes.iter().find(|class| class.layout == layout) {
            return class;
        }
        let class = Box::leak(Box::new(Class {
            depot: self,
            layout,
            pool: Mutex::default(),
        }));
        classes.push(class);
        class
    }

    /// Counts a cache in, for as long as it lives.
    pub(super) fn enrol(&self, counts: &Arc<Counts>) {
        let mut caches = lock(&self.caches);
        caches.retain(|cache| cache.strong_count() > 0);
        caches.push(Arc::downgrade(counts));
    }

    /// Totals of all classes.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for class in lock(&self.classes).iter() {
            let pool = lock(&class.pool);
            totals.reserved_bytes += pool.slots * class.layout.stride_bytes();
            totals.out += pool.out;
            totals.out_bytes += pool.out * class.layout.stride_bytes();
            totals.free += pool.free.len();
        }
        for counts in lock(&self.caches).iter().filter_map(Weak::upgrade) {
            totals.cached += counts.stacks();
            totals.cached_bytes += counts.bytes();
        }
        totals
    }
}

/// What a depot holds in all.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Totals {
    /// Address space of all slabs.
    pub(super) reserved_bytes: usize,
    /// Slots owned by stacks and caches.
    pub(super) out: usize,
    pub(super) out_bytes: usize,
    /// Guarded slots in the free lists.
    pub(super) free: usize,
    /// Slots in caches; part of `out`.
    pub(super) cached: usize,
    pub(super) cached_bytes: usize,
}

/// All stacks of one layout.
#[derive(Debug)]
pub(super) struct Class {
    depot: &'static Depot,
    layout: SlotLayout,
    pool: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    /// Recycled slots, the latest last.
    free: Vec<Slot>,
    /// The newest slab and its first slot never handed out.
    fresh: Option<(&'static Slab, usize)>,
    /// The first slot of that slab that has not been prepared.
    unprepared: usize,
    /// Slots in all slabs.
    slots: usize,
    /// Slots of the slab to come next; zero before the first.
    slots_next: usize,
    /// Slots handed out and not given back.
    out: usize,
}

impl std::fmt::Debug for Slab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slab")
            .field("slots", &self.slots())
            .finish_non_exhaustive()
    }
}

impl Class {
    pub(super) fn depot(&self) -> &'static Depot {
        self.depot
    }

    pub(super) fn layout(&self) -> SlotLayout {
        self.layout
    }

    /// Hands out one slot, guarded; a recycled one before a fresh one.
    ///
    /// # Errors
    ///
    /// `NoMemory`; the class is as it was.
    pub(super) fn take(&'static self) -> Result<Slot, StackError> {
        // ORDERING: relaxed; a switch for tests, thrown by the same thread.
        if REFUSING.load(Ordering::Relaxed) {
            return Err(StackError::of_mapping(
                self.layout.stride_bytes(),
                libc::ENOMEM,
            ));
        }
        let mut pool = lock(&self.pool);
        let slot = match pool.free.pop() {
            Some(slot) => slot,
            None => self.take_fresh(&mut pool)?,
        };
        pool.out += 1;
        slot.tell_out();
        Ok(slot)
    }

    /// Moves up to `count` recycled slots into `into`, coldest first. Makes no fresh ones.
    pub(super) fn take_recycled(&self, count: usize, into: &mut Vec<Slot>) {
        // ORDERING: relaxed, as above.
        if REFUSING.load(Ordering::Relaxed) {
            return;
        }
        let mut pool = lock(&self.pool);
        let from = pool.free.len().saturating_sub(count);
        let before = into.len();
        into.extend(pool.free.drain(from..));
        pool.out += into.len() - before;
        into[before..].iter().for_each(|slot| slot.tell_out());
    }

    /// Takes slots back. Their memory must have been discarded and their owner cleared (I3).
    pub(super) fn give(&self, slots: &[Slot]) {
        let mut pool = lock(&self.pool);
        debug_assert!(slots.iter().all(|slot| std::ptr::eq(slot.class(), self)));
        debug_assert!(pool.free.capacity() - pool.free.len() >= slots.len());
        slots.iter().for_each(|slot| slot.tell_home());
        pool.free.extend_from_slice(slots);
        pool.out -= slots.len();
    }

    fn take_fresh(&'static self, pool: &mut Pool) -> Result<Slot, StackError> {
        let (slab, index) = match pool.fresh {
            Some((slab, index)) if index < slab.slots() => (slab, index),
            _ => (self.grow(pool)?, 0),
        };
        if index >= pool.unprepared {
            // INVARIANT: I2; on an error the slot stays fresh.
            pool.unprepared = index + self.prepare(slab, index)?;
        }
        pool.fresh = Some((slab, index + 1));
        Ok(slab.slot(index))
    }

    /// Gives slots from this index on their guards; says how many.
    fn prepare(&self, slab: &'static Slab, index: usize) -> Result<usize, StackError> {
        let kind = self.depot.guard_kind();
        let (guard_bytes, is_pooled) = (self.layout.guard_bytes(), self.layout.is_pooled());
        if guard_bytes == 0 {
            return Ok(1);
        }
        let many = kind == GuardKind::Marked && is_pooled && slab.slots() >= AHEAD_SLAB_SLOTS;
        if many && index + AHEAD <= slab.slots() {
            let slots: [Slot; AHEAD] = std::array::from_fn(|at| slab.slot(index + at));
            // SAFETY: as below.
            if unsafe { guard::mark_all(slots.map(Slot::start), guard_bytes) } {
                let page = page_bytes();
                // SAFETY: the last page of a slot is a part of it.
                let tops = slots.map(|slot| unsafe { slot.end().sub(page) });
                guard::bring_in_all(tops, page);
                return Ok(AHEAD);
            }
        }
        let start = slab.slot(index).start();
        // SAFETY: the low end of a slot never handed out: nobody has put anything there.
        unsafe { guard::install(kind, start, guard_bytes) }?;
        Ok(1)
    }

    /// Maps the next slab: twice the last one, less where that much address space is refused.
    fn grow(&'static self, pool: &mut Pool) -> Result<&'static Slab, StackError> {
        let most = (SLAB_BYTES_MAX / self.layout.stride_bytes()).clamp(1, SLAB_SLOTS_MAX);
        let mut slots = (pool.slots_next).clamp(SLAB_SLOTS_MIN.min(most), most);
        // INVARIANT: I4; before mapping, so that a refusal leaves no slab without list room.
        let room = pool.slots + slots - pool.free.len();
        pool.free.try_reserve_exact(room).map_err(|_| {
            let bytes = room * size_of::<Slot>();
            let limit = Limit::of_mapping(bytes);
            StackError::NoMemory {
                call: "allocation",
                bytes,
                errno: libc::ENOMEM,
                limit,
            }
        })?;
        let slab = loop {
            match Slab::map(self, slots) {
                Ok(slab) => break slab,
                Err(error) if slots == 1 => return Err(error),
                Err(_) => slots /= 2,
            }
        };
        pool.fresh = Some((slab, 0));
        pool.unprepared = 0;
        pool.slots += slots;
        pool.slots_next = slots * 2;
        Ok(slab)
    }
}
