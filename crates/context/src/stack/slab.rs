//! Slabs: large reserved mappings cut into slots of one size, one slot for each stack.
//!
//! ```text
//!        start                                                        start + stride
//!          |<- guard ->|<------------- usable -------------->|<- header ->|<- colour ->|
//! slot:    |inaccessible| limit                          base |            |            |
//!                                     the stack grows down <--|
//! ```
//!
//! The base of slot *n* is lowered by *n* mod 25 cache lines (its colour). Slots lie at multiples
//! of a page, so without it the hot lines of all suspended stacks would compete for the same few
//! cache sets. The header lies immediately above the base: in the page that is touched anyway, and
//! coloured with it.
//!
//! Slabs are made under their class's lock; reading one, and `lookup`, is free to any thread at any
//! time, signal handlers included.
//!
//! Invariants:
//! - I1: a published slab never moves, changes or ends; its mapping is never unmapped.
//! - I2: slabs do not overlap, so an address lies in at most one slot.
//! - I3: a slot's geometry follows from its slab and index alone.
//!
//! Not here: who owns a slot (`depot`), what a guard is made of (`guard`).

#![expect(unsafe_code, reason = "mapping calls; raw addresses of slots")]

#[cfg(test)]
mod tests;

use super::depot::Class;
use super::error::StackError;
use super::{SlotRef, StackHeader, residency};
use crate::tools::valgrind;
use std::fmt;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// A cache line, and the size of a stack's header.
pub(super) const LINE_BYTES: usize = 64;

/// How many different bases slots have.
pub(super) const COLOURS: usize = 25;

/// The geometry that all slots of a class share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotLayout {
    /// From one slot to the next: guard, stack, header and colour.
    pub(super) stride_bytes: usize,
    /// The inaccessible low end; zero where there is none.
    pub(super) guard_bytes: usize,
    /// Whether caches keep its stacks warm. Slots of both kinds are kept apart.
    pub(super) is_pooled: bool,
}

/// One reserved mapping of `slots` slots.
pub(super) struct Slab {
    start: NonNull<u8>,
    layout: SlotLayout,
    slots: usize,
    class: &'static Class,
    next: Option<&'static Slab>,
    /// Valgrind's numbers of those stacks that are out of the depot; empty where there is no Valgrind.
    numbers: Box<[AtomicUsize]>,
}

// SAFETY: a slab is immutable after its publication (I1); `start` is an address range that nobody
// reads or writes through a slab.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

/// The newest slab; each leads to the one before it.
static NEWEST: AtomicPtr<Slab> = AtomicPtr::new(ptr::null_mut());

/// All slabs of the process, newest first; lock-free, safe in a signal handler.
pub(super) fn slabs() -> impl Iterator<Item = &'static Slab> {
    // ORDERING: acquire, pairs with the release in `Slab::publish`: the slab's fields are seen.
    let newest = NEWEST.load(Ordering::Acquire);
    // SAFETY: the list holds only leaked slabs, which live for ever (I1).
    let newest: Option<&'static Slab> = unsafe { newest.as_ref() };
    std::iter::successors(newest, |slab| slab.next)
}

/// Finds the slot that `addr` lies in; see [`lookup`](super::lookup).
pub(super) fn lookup(addr: usize) -> Option<Slot> {
    slabs().find_map(|slab| {
        let offset = addr.checked_sub(slab.start.addr().get())?;
        let index = offset / slab.layout.stride_bytes;
        (index < slab.slots).then(|| Slot::of(slab, index))
    })
}

impl Slab {
    /// Reserves a slab of `slots` slots and publishes it.
    ///
    /// # Errors
    ///
    /// `NoMemory` if the kernel refuses the mapping.
    pub(super) fn map(class: &'static Class, slots: usize) -> Result<&'static Slab, StackError> {
        let layout = class.layout();
        let bytes = layout.stride_bytes * slots;
        let start = map_pages(bytes).map_err(|errno| StackError::of_mapping(bytes, errno))?;
        // A huge page would make all of its slots resident at the first touch of one. Kernels
        // without huge pages refuse the advice; nothing depends on the answer.
        // SAFETY: the range was mapped just now and holds nothing.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_NOHUGEPAGE) };
        Ok(Slab::publish(Slab {
            start,
            layout,
            slots,
            class,
            next: None,
            numbers: if valgrind::is_here() {
                (0..slots).map(|_| AtomicUsize::new(0)).collect()
            } else {
                Box::default()
            },
        }))
    }

    fn publish(slab: Slab) -> &'static Slab {
        let slab = Box::into_raw(Box::new(slab));
        // ORDERING: acquire, pairs with the release below of whoever published the slab found.
        let mut newest = NEWEST.load(Ordering::Acquire);
        loop {
            // SAFETY: the list holds only leaked slabs, which live for ever (I1).
            let next = unsafe { newest.as_ref() };
            // SAFETY: leaked above, and not published yet: nobody else reads or writes it.
            unsafe { (*slab).next = next };
            // ORDERING: release, pairs with the acquire in `slabs`; acquire on failure as above.
            match NEWEST.compare_exchange_weak(newest, slab, Ordering::Release, Ordering::Acquire) {
                // INVARIANT: I1 begins here.
                // SAFETY: leaked above, never written again.
                Ok(_) => return unsafe { &*slab },
                Err(found) => newest = found,
            }
        }
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// The slot of this index.
    pub(super) fn slot(&'static self, index: usize) -> Slot {
        assert!(
            index < self.slots,
            "slot {index} of a slab of {}",
            self.slots
        );
        Slot::of(self, index)
    }

    /// Bytes of the slab's stacks that are resident, guards left out.
    pub(super) fn resident_bytes(&'static self) -> usize {
        (0..self.slots)
            .map(|index| residency::resident_bytes(self.slot(index).place()))
            .sum()
    }
}

/// Names one slot: a place for a stack. Copying it confers no ownership.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    slab: &'static Slab,
    /// The index, shifted left by [`ABOVE_BITS`], and below it the bytes above the base. PERF: at hand, because a remainder takes a dozen
    /// instructions, several times for each coroutine; in one word, because two halves that are stored one by one and loaded
    /// together stall.
    packed: usize,
}

/// Bits for the bytes above a base.
const ABOVE_BITS: u32 = 16;
const _: () = assert!(LINE_BYTES * (1 + COLOURS) < 1 << ABOVE_BITS);

impl Slot {
    /// The slot of this index, which is less than the number of slots.
    fn of(slab: &'static Slab, index: usize) -> Self {
        Self {
            slab,
            // The address space is too small for an index of so many bits.
            packed: (index << ABOVE_BITS) + LINE_BYTES * (1 + index % COLOURS),
        }
    }

    #[inline]
    fn index(self) -> usize {
        self.packed >> ABOVE_BITS
    }

    /// The lowest address, where the guard begins.
    pub(super) fn start(self) -> NonNull<u8> {
        let offset = self.index() * self.slab.layout.stride_bytes;
        // SAFETY: `index < slots`, so the offset stays inside the slab's mapping.
        unsafe { self.slab.start.add(offset) }
    }

    /// One past the highest address, where the next slot begins.
    pub(super) fn end(self) -> NonNull<u8> {
        // SAFETY: at most the end of the slab's mapping.
        unsafe { self.start().add(self.slab.layout.stride_bytes) }
    }

    /// The lowest usable address.
    #[inline]
    pub(super) fn limit(self) -> NonNull<u8> {
        // SAFETY: the guard is smaller than the stride.
        unsafe { self.start().add(self.slab.layout.guard_bytes) }
    }

    /// One past the highest usable address; a multiple of 64. The stack grows down from here.
    #[inline]
    pub(super) fn base(self) -> NonNull<u8> {
        let above = self.packed & ((1 << ABOVE_BITS) - 1);
        // SAFETY: header and colour fit into one page, which a layout adds to the usable size.
        unsafe { self.start().add(self.slab.layout.stride_bytes - above) }
    }

    /// The inaccessible range below the stack.
    pub(super) fn guard(self) -> Range<usize> {
        self.start().addr().get()..self.limit().addr().get()
    }

    /// Usable bytes, from limit to base.
    #[inline]
    pub(super) fn size_bytes(self) -> usize {
        self.base().addr().get() - self.limit().addr().get()
    }

    /// Bytes of address space, guard and header included.
    #[inline]
    pub(super) fn reserved_bytes(self) -> usize {
        self.slab.layout.stride_bytes
    }

    /// Where it is.
    pub(super) fn place(self) -> SlotRef {
        let start = self.start().addr().get();
        SlotRef {
            start,
            limit: self.limit().addr().get(),
            base: self.base(),
            end: start + self.slab.layout.stride_bytes,
            header: self.header(),
        }
    }

    /// The slot leaves the depot: a stack will run here.
    pub(super) fn tell_out(self) {
        if let Some(number) = self.slab.numbers.get(self.index()) {
            let (limit, base) = (self.limit().addr().get(), self.base().addr().get());
            // ORDERING: relaxed; under the class's lock, as in `tell_home`.
            number.store(valgrind::register(limit, base), Ordering::Relaxed);
        }
    }

    /// The slot is back in the depot.
    pub(super) fn tell_home(self) {
        if let Some(number) = self.slab.numbers.get(self.index()) {
            // ORDERING: relaxed, as above.
            valgrind::deregister(number.load(Ordering::Relaxed));
        }
    }

    pub(super) fn class(self) -> &'static Class {
        self.slab.class
    }

    /// Where the header lies: immediately above the base.
    pub(super) fn header(self) -> NonNull<StackHeader> {
        self.base().cast()
    }

    /// The order of addresses within a class, for coalescing.
    fn order(self) -> (usize, usize) {
        (self.slab.start.addr().get(), self.index())
    }

    /// Whether `next` is the slot immediately above.
    fn precedes(self, next: Slot) -> bool {
        ptr::eq(self.slab, next.slab) && self.index() + 1 == next.index()
    }
}

impl PartialEq for Slot {
    fn eq(&self, other: &Slot) -> bool {
        ptr::eq(self.slab, other.slab) && self.packed == other.packed
    }
}

impl Eq for Slot {}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("limit", &self.limit())
            .field("base", &self.base())
            .finish_non_exhaustive()
    }
}

/// Returns the memory of these slots to the kernel; their guards stay. Sorts them, so that
/// neighbours go in one call.
///
/// # Safety
///
/// The caller owns the slots, and nothing on them will be read again.
pub(super) unsafe fn discard(slots: &mut [Slot]) {
    slots.sort_unstable_by_key(|slot| slot.order());
    for run in slots.chunk_by(|low, high| low.precedes(*high)) {
        let start = run[0].limit();
        let bytes = run.len() * run[0].reserved_bytes() - run[0].guard().len();
        // Locked memory refuses (EINVAL) and stays resident: harmless, nobody relies on zeroes.
        // SAFETY: the run lies in one slab, and the caller owns all of its slots.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTNEED) };
    }
}

/// Reserves `bytes` of zeroed, writable, unaccounted memory; the error is the errno.
pub(super) fn map_pages(bytes: usize) -> Result<NonNull<u8>, i32> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping, placed by the kernel, disturbs nobody.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return Err(super::errno());
    }
    NonNull::new(start.cast()).ok_or(libc::ENOMEM)
}
