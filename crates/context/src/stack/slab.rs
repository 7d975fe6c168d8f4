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

/// The geometry that all slots of a class share: the stride, and in the bits that are free because it is whole pages what else there is.
///
/// | bits | |
/// |---|---|
/// | 12 and up | the stride, in bytes |
/// | 6 | whether caches keep its stacks warm |
/// | 0 to 5 | the guard: the exponent of its size in bytes, which is a power of two; zero where there is none |
///
/// PERF: one comparison where three fields took three, for each stack that is handed out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotLayout(usize);

/// The bits below the stride.
const LOW_BITS: usize = 0xfff;
const POOLED: usize = 1 << 6;
const GUARD: usize = POOLED - 1;

impl SlotLayout {
    /// Of no slot.
    pub(super) const NONE: Self = Self(0);

    /// Of slots that are kept warm. The stride is whole pages; the guard is a power of two, or zero where there is none.
    pub(super) fn new(stride_bytes: usize, guard_bytes: usize) -> Self {
        debug_assert!(stride_bytes & LOW_BITS == 0 && stride_bytes > guard_bytes);
        debug_assert!(guard_bytes == 0 || guard_bytes.is_power_of_two());
        let guard = guard_bytes.checked_ilog2().unwrap_or(0) as usize;
        Self(stride_bytes | POOLED | guard)
    }

    /// Whether caches keep its stacks warm. Slots of both kinds are kept apart.
    pub(super) fn is_pooled(self) -> bool {
        self.0 & POOLED != 0
    }

    pub(super) fn set_pooled(&mut self, is_pooled: bool) {
        self.0 &= !POOLED;
        if is_pooled {
            self.0 |= POOLED;
        }
    }

    /// From one slot to the next: guard, stack, header and colour.
    #[inline]
    pub(super) fn stride_bytes(self) -> usize {
        self.0 & !LOW_BITS
    }

    /// The inaccessible low end; zero where there is none.
    pub(super) fn guard_bytes(self) -> usize {
        match self.0 & GUARD {
            0 => 0,
            exponent => 1 << exponent,
        }
    }
}

impl fmt::Debug for SlotLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotLayout")
            .field("stride_bytes", &self.stride_bytes())
            .field("guard_bytes", &self.guard_bytes())
            .field("is_pooled", &self.is_pooled())
            .finish()
    }
}

/// One reserved mapping of `slots` slots.
pub(super) struct Slab {
    start: NonNull<u8>,
    /// The layout's, at hand.
    stride_bytes: usize,
    guard_bytes: usize,
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
        let index = offset / slab.stride_bytes;
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
        let bytes = layout.stride_bytes() * slots;
        let start = map_pages(bytes).map_err(|errno| StackError::of_mapping(bytes, errno))?;
        // A huge page would make all of its slots resident at the first touch of one. Kernels
        // without huge pages refuse the advice; nothing depends on the answer.
        // SAFETY: the range was mapped just now and holds nothing.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_NOHUGEPAGE) };
        Ok(Slab::publish(Slab {
            start,
            stride_bytes: layout.stride_bytes(),
            guard_bytes: layout.guard_bytes(),
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
    /// The base, and in the bits that are free because it is a multiple of a line how many lines lie above it, up to the end. PERF: every
    /// other address of the slot is a sum or two from here. From its index they took a product each, and the colour a remainder.
    marked: NonNull<u8>,
}

const _: () = assert!(COLOURS < LINE_BYTES);

impl Slot {
    /// The slot of this index, which is less than the number of slots.
    fn of(slab: &'static Slab, index: usize) -> Self {
        // The header and the colour.
        let lines = 1 + index % COLOURS;
        let offset = (index + 1) * slab.stride_bytes - lines * LINE_BYTES;
        // SAFETY: `index < slots`, so the offset stays inside the slab's mapping; and so does what follows, which is less than a line.
        let marked = unsafe { slab.start.add(offset + lines) };
        Self { slab, marked }
    }

    /// Reads a slot of a list.
    ///
    /// PERF: as two words, as it was written; where it was read as one vector, just after, the load waited for both stores: 2 ns of a get.
    ///
    /// # Safety
    ///
    /// There is one.
    #[inline(always)]
    pub(super) unsafe fn read_by_words(place: *const Slot) -> Slot {
        // SAFETY: passed on to the caller.
        let slab = unsafe { &raw const (*place).slab };
        // SAFETY: as above.
        let slab = unsafe { slab.read_volatile() };
        // SAFETY: as above.
        let marked = unsafe { &raw const (*place).marked };
        // SAFETY: as above.
        let marked = unsafe { marked.read_volatile() };
        Slot { slab, marked }
    }

    fn index(self) -> usize {
        (self.start().addr().get() - self.slab.start.addr().get()) / self.slab.stride_bytes
    }

    /// How many bytes lie above the base.
    #[inline]
    fn above_bytes(self) -> usize {
        self.marked.addr().get() % LINE_BYTES * LINE_BYTES
    }

    /// The lowest address, where the guard begins.
    #[inline]
    pub(super) fn start(self) -> NonNull<u8> {
        let below_bytes = self.slab.stride_bytes - self.above_bytes();
        // SAFETY: a slot is a stride, inside the slab's mapping.
        unsafe { self.base().sub(below_bytes) }
    }

    /// One past the highest address, where the next slot begins.
    pub(super) fn end(self) -> NonNull<u8> {
        // SAFETY: at most the end of the slab's mapping.
        unsafe { self.base().add(self.above_bytes()) }
    }

    /// The lowest usable address.
    #[inline]
    pub(super) fn limit(self) -> NonNull<u8> {
        // SAFETY: the guard is smaller than the stride.
        unsafe { self.start().add(self.slab.guard_bytes) }
    }

    /// One past the highest usable address; a multiple of 64. The stack grows down from here.
    #[inline]
    pub(super) fn base(self) -> NonNull<u8> {
        let lines = self.marked.addr().get() % LINE_BYTES;
        // SAFETY: the mark on top of the base.
        unsafe { self.marked.sub(lines) }
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
        self.slab.stride_bytes
    }

    /// Where it is.
    pub(super) fn place(self) -> SlotRef {
        let start = self.start().addr().get();
        SlotRef {
            start,
            limit: self.limit().addr().get(),
            base: self.base(),
            end: start + self.slab.stride_bytes,
            header: self.header(),
        }
    }

    /// Where Valgrind's number of the stack is kept.
    fn number(self) -> Option<&'static AtomicUsize> {
        if self.slab.numbers.is_empty() {
            return None;
        }
        self.slab.numbers.get(self.index())
    }

    /// The slot leaves the depot: a stack will run here.
    pub(super) fn tell_out(self) {
        if let Some(number) = self.number() {
            let (limit, base) = (self.limit().addr().get(), self.base().addr().get());
            // ORDERING: relaxed; under the class's lock, as in `tell_home`.
            number.store(valgrind::register(limit, base), Ordering::Relaxed);
        }
    }

    /// The slot is back in the depot.
    pub(super) fn tell_home(self) {
        if let Some(number) = self.number() {
            // ORDERING: relaxed, as above.
            valgrind::deregister(number.load(Ordering::Relaxed));
        }
    }

    #[inline]
    pub(super) fn class(self) -> &'static Class {
        self.slab.class
    }

    /// Where the header lies: immediately above the base.
    #[inline]
    pub(super) fn header(self) -> NonNull<StackHeader> {
        self.base().cast()
    }

    /// The order of addresses, for coalescing.
    fn order(self) -> usize {
        self.base().addr().get()
    }

    /// Whether `next` is the slot immediately above.
    fn precedes(self, next: Slot) -> bool {
        ptr::eq(self.slab, next.slab) && self.end() == next.start()
    }
}

// SAFETY: a slot names a place, as its slab does, and gives nobody the right to read or write there.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl PartialEq for Slot {
    fn eq(&self, other: &Slot) -> bool {
        self.marked == other.marked
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
