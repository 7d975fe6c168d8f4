//! Stacks for coroutines: guarded, recycled, a million at once.
//!
//! A [`Stack`] is one slot of a large reserved mapping. Its memory is committed by first touch; an
//! inaccessible guard lies below it; when it is no longer used it is kept warm in a
//! [`StackCache`], or emptied and kept for any thread. [`overflow::install`] turns running into a
//! guard into a report that names the coroutine.
//!
//! | file | owns |
//! |---|---|
//! | `mod` | configuration, the owned handle, the header above the base, totals |
//! | `slab` | reserved mappings, their geometry, the lock-free look-up by address |
//! | `guard` | what a guard is made of, and the proof that it holds |
//! | `depot` | free slots of the process, by size class |
//! | `cache` | warm stacks of one thread |
//! | `place` | where a stack is, by value, and who runs there |
//! | `provided` | stacks that the caller provides |
//! | `residency` | which pages of a stack are committed |
//! | `shadow` | whether the kernel keeps a shadow stack, with which nothing here works |
//! | `overflow` | the fault handler, its report, the alternate signal stack |
//! | `error` | what can go wrong, with the limit that caused it |
//!
//! Invariants:
//! - I1: a slot has one `Stack` at most; dropping that gives the slot back, with no memory and no
//!   owner.
//! - I2: usable bytes are at least those configured.
//!
//! Not here: what runs on a stack, and the first frame put there. Size classes, the growth of slabs
//! and the colouring of bases are our own design on `MADV_GUARD_INSTALL`.

#![expect(
    unsafe_code,
    reason = "the header of a stack is reached by its address"
)]

mod cache;
mod depot;
mod error;
mod guard;
pub mod overflow;
mod place;
pub mod provided;
mod residency;
mod shadow;
mod slab;
#[cfg(test)]
mod tests;

pub use cache::{CacheLimits, CacheStats, StackCache};
pub use error::{Limit, StackError};
pub use guard::GuardKind;
pub use place::{SlotRef, lookup, owner_of};

use crate::tools;
use depot::Depot;
use slab::{Slot, SlotLayout};
use std::fmt;
use std::mem;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The smallest usable size that may be asked for, in bytes.
///
/// What a body needs that only panics (std's hook, its message, the unwinding), measured in a debug
/// build on x86-64: 8 KiB; 24 KiB with `RUST_BACKTRACE=1` in the process's first panic. A smaller
/// stack would turn a contained panic into an overflow. Address space is all that it costs.
pub const SIZE_BYTES_MIN: usize = 32 * 1024;
/// The largest, in bytes.
pub const SIZE_BYTES_MAX: usize = 1 << 30;
/// The usable size when none is asked for, in bytes: with guard and header it reserves 256 KiB.
pub const SIZE_BYTES_DEFAULT: usize = 248 * 1024;
/// The largest guard, in bytes. The smallest, and the default, is one page.
pub const GUARD_BYTES_MAX: usize = 1 << 30;

/// The validated size of a stack and of its guard.
///
/// Sizes are rounded up: the guard to a power of two of pages, the whole slot to a quarter of a
/// power of two. So a stack may be up to a fifth larger than asked for; it is never smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackConfig {
    layout: SlotLayout,
}

impl StackConfig {
    /// A stack with at least `size_bytes` usable above a guard of at least `guard_bytes`. Zero
    /// means the default: 248 KiB, and one page.
    ///
    /// Frames of code compiled without stack probes (C, by default) that are larger than the guard
    /// can step over it: with such code on the stack, choose a guard as large as its largest frame.
    /// Each guard page costs 8 bytes of page table.
    ///
    /// # Errors
    ///
    /// `Invalid` if a size is not zero and lies outside [`SIZE_BYTES_MIN`]..=[`SIZE_BYTES_MAX`],
    /// or a guard is larger than [`GUARD_BYTES_MAX`].
    pub fn new(size_bytes: usize, guard_bytes: usize) -> Result<StackConfig, StackError> {
        let size_bytes = checked_size(size_bytes)?;
        checked_guard(guard_bytes)?;
        Ok(StackConfig::rounded(size_bytes, guard_bytes.max(1)))
    }

    /// A stack with at least `size_bytes` usable and no guard below. Zero means the default.
    ///
    /// # Errors
    ///
    /// `Invalid` as for [`StackConfig::new`].
    ///
    /// # Safety
    ///
    /// What runs on such a stack, signal handlers on it included, never needs more than its size: the memory below is
    /// another stack's.
    pub unsafe fn unguarded(size_bytes: usize) -> Result<StackConfig, StackError> {
        Ok(StackConfig::rounded(checked_size(size_bytes)?, 0))
    }

    /// Whether a cache may keep such stacks warm, which is the default. Those that are not pooled are handed out without
    /// memory, and lose it as soon as they are put back: two system calls and the first touches for each use.
    #[must_use]
    pub fn pooled(mut self, is_pooled: bool) -> StackConfig {
        self.layout.set_pooled(is_pooled);
        self
    }

    /// Lays out a slot; the sizes are in range, so no sum overflows. A guard of zero bytes is none.
    fn rounded(size_bytes: usize, guard_bytes: usize) -> StackConfig {
        let page = page_bytes();
        let guard_bytes = match guard_bytes.next_multiple_of(page) {
            0 => 0,
            bytes => bytes.next_power_of_two(),
        };
        // Header and colour take less than a page above the base.
        let total = guard_bytes + size_bytes.next_multiple_of(page) + page;
        let step = page.max((1 << total.ilog2()) / 4);
        let stride_bytes = total.next_multiple_of(step);
        StackConfig {
            layout: SlotLayout::new(stride_bytes, guard_bytes),
        }
    }

    /// Address space that each stack takes, guard and header included, in bytes.
    #[must_use]
    pub fn reserved_bytes(&self) -> usize {
        self.layout.stride_bytes()
    }

    /// The guard's size after rounding, in bytes; zero if there is none.
    #[must_use]
    pub fn guard_bytes(&self) -> usize {
        self.layout.guard_bytes()
    }

    /// Whether `stack` is of this configuration, or of one that rounds to the same.
    #[must_use]
    #[inline]
    pub fn is_of(&self, stack: &Stack) -> bool {
        stack.slot.class().layout() == self.layout
    }

    #[inline]
    fn layout(&self) -> SlotLayout {
        self.layout
    }
}

/// The size that is meant, if it is one that a stack can have.
fn checked_size(size_bytes: usize) -> Result<usize, StackError> {
    let (min, max) = (SIZE_BYTES_MIN, SIZE_BYTES_MAX);
    match size_bytes {
        0 => Ok(SIZE_BYTES_DEFAULT),
        _ if (min..=max).contains(&size_bytes) => Ok(size_bytes),
        found => Err(StackError::Invalid {
            what: "stack size",
            found,
            min,
            max,
        }),
    }
}

fn checked_guard(found: usize) -> Result<(), StackError> {
    let max = GUARD_BYTES_MAX;
    if found <= max {
        return Ok(());
    }
    Err(StackError::Invalid {
        what: "guard size",
        found,
        min: 1,
        max,
    })
}

impl Default for StackConfig {
    fn default() -> StackConfig {
        StackConfig::rounded(SIZE_BYTES_DEFAULT, 1)
    }
}

/// Writes who owns a stack (id, name, where it was spawned) into the overflow report.
///
/// Runs in a signal handler: it must not allocate, lock, or call anything that does.
pub type DescribeFn = unsafe fn(owner: *const (), out: &mut dyn fmt::Write);

/// What lies above the base of each stack: who runs on it. One cache line.
///
/// Written by the thread that owns the stack; read by the overflow handler on the thread that runs
/// on the stack.
#[repr(C, align(64))]
struct StackHeader {
    /// Null when there is no owner.
    owner: AtomicPtr<()>,
    /// A `DescribeFn`, valid while `owner` is not null.
    describe: AtomicPtr<()>,
}

impl StackHeader {
    const fn new() -> StackHeader {
        StackHeader {
            owner: AtomicPtr::new(ptr::null_mut()),
            describe: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[inline]
    fn set_owner(&self, owner: *const (), describe: DescribeFn) {
        // ORDERING: relaxed; published by the store below.
        self.describe.store(describe as *mut (), Ordering::Relaxed);
        // ORDERING: release, pairs with the acquire in `owner`.
        self.owner.store(owner.cast_mut(), Ordering::Release);
    }

    #[inline]
    fn clear_owner(&self) {
        // ORDERING: release, pairs with the acquire in `owner`: what the owner's thread did
        // before is not seen later than this.
        self.owner.store(ptr::null_mut(), Ordering::Release);
    }

    fn owner(&self) -> Option<(*const (), DescribeFn)> {
        // ORDERING: acquire, pairs with the release in `set_owner`: the describe function is seen.
        let owner = self.owner.load(Ordering::Acquire);
        if owner.is_null() {
            return None;
        }
        // ORDERING: relaxed, ordered by the load above.
        let describe = self.describe.load(Ordering::Relaxed);
        // SAFETY: written by `set_owner` from a `DescribeFn` before the owner was.
        let describe = unsafe { mem::transmute::<*mut (), DescribeFn>(describe) };
        Some((owner, describe))
    }
}

const _: () = assert!(size_of::<StackHeader>() == slab::LINE_BYTES);

/// One stack, owned. Dropping it gives its memory back; [`StackCache::put`] keeps it warm.
///
/// Whoever runs code on it must keep it alive and unborrowed for as long as frames lie there.
#[derive(PartialEq, Eq)]
pub struct Stack {
    slot: Slot,
}

impl Stack {
    /// A stack straight from the process's depot, without a cache.
    ///
    /// # Errors
    ///
    /// `NoMemory` when the kernel refuses a new one.
    pub fn new(config: &StackConfig) -> Result<Stack, StackError> {
        Depot::global()
            .class(config.layout())
            .take()
            .map(Stack::from_slot)
    }

    /// Takes on the slot, which the caller owned.
    #[inline]
    fn from_slot(slot: Slot) -> Stack {
        tools::stack_in_use(slot.limit().addr().get(), slot.size_bytes());
        Stack { slot }
    }

    /// Gives up the handle but not the slot; there is no owner afterwards.
    #[inline]
    fn into_slot(self) -> Slot {
        self.clear_owner();
        tools::stack_idle(self.slot.limit().addr().get(), self.slot.size_bytes());
        mem::ManuallyDrop::new(self).slot
    }

    /// One past the highest usable address, a multiple of 64: where the first frame is put.
    #[must_use]
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.slot.base()
    }

    /// The lowest usable address.
    #[must_use]
    #[inline]
    pub fn limit(&self) -> NonNull<u8> {
        self.slot.limit()
    }

    /// The inaccessible addresses below the limit.
    #[must_use]
    pub fn guard(&self) -> Range<usize> {
        self.slot.guard()
    }

    /// Usable bytes, from limit to base; differs by up to 1,536 between stacks of one
    /// configuration.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.slot.size_bytes()
    }

    /// Bytes of address space, guard and header included.
    #[must_use]
    pub fn reserved_bytes(&self) -> usize {
        self.slot.reserved_bytes()
    }

    /// The deepest use since the stack was last cleaned, in bytes below the base, rounded up to
    /// whole pages. Costs the switch nothing: the kernel is asked which pages are committed.
    ///
    /// Counts every use since the stack was fresh or [`clean`](Stack::clean)ed. Pages that were
    /// swapped out count, as long as `/proc/self/pagemap` can be read. Where the kernel does not
    /// tell, the whole size is returned: the mark is never too low because of an error.
    #[must_use]
    pub fn high_water_bytes(&self) -> usize {
        residency::high_water_bytes(self.slot.place())
    }

    /// Returns the stack's memory to the kernel, so that the high-water mark starts anew. Its
    /// contents are lost; its owner stays.
    pub fn clean(&mut self) {
        let owner = self.header().owner();
        // SAFETY: the stack is ours, and borrowed exclusively: no frames lie there.
        unsafe { slab::discard(&mut [self.slot]) };
        if let Some((owner, describe)) = owner {
            self.header().set_owner(owner, describe);
        }
    }

    /// Names who runs on this stack from now on, for the overflow report.
    ///
    /// # Safety
    ///
    /// Until [`clear_owner`](Stack::clear_owner), or until the stack is put into a cache or
    /// dropped, `describe(owner, …)` may be called at any instant, in a signal handler; it must be
    /// sound and async-signal-safe throughout.
    #[inline]
    pub unsafe fn set_owner(&self, owner: *const (), describe: DescribeFn) {
        self.header().set_owner(owner, describe);
    }

    /// Forgets the owner: an overflow is then reported of "a coroutine".
    #[inline]
    pub fn clear_owner(&self) {
        self.header().clear_owner();
    }

    #[inline]
    fn header(&self) -> &StackHeader {
        // SAFETY: the header lies in this slot above the base, on writable memory that stays
        // mapped; it is zero (no owner) or was written through this type, and all of its fields
        // are atomic.
        unsafe { self.slot.header().as_ref() }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.clear_owner();
        tools::stack_idle(self.slot.limit().addr().get(), self.slot.size_bytes());
        // SAFETY: the slot is ours, and nobody reads it again before it is handed out anew.
        unsafe { slab::discard(&mut [self.slot]) };
        self.slot.class().give(&[self.slot]);
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("limit", &self.limit())
            .field("base", &self.base())
            .field("guard_bytes", &self.guard().len())
            .finish()
    }
}

/// Totals of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackStats {
    /// Address space reserved for stacks, used or not, in bytes.
    pub reserved_bytes: usize,
    /// Stacks owned by somebody.
    pub stacks_in_use: usize,
    /// Address space of those, guards and headers included, in bytes.
    pub in_use_bytes: usize,
    /// Warm stacks in the caches of all threads.
    pub stacks_cached: usize,
    /// Stacks without memory that any thread may take.
    pub stacks_idle: usize,
}

/// Totals of the process: reserved address space and stacks by state.
///
/// Not async-signal-safe. The figures of running threads are taken one after another, so they may
/// be off by what changes hands meanwhile.
#[must_use]
pub fn stats() -> StackStats {
    let totals = Depot::global().totals();
    StackStats {
        reserved_bytes: totals.reserved_bytes,
        stacks_in_use: totals.out.saturating_sub(totals.cached),
        in_use_bytes: totals.out_bytes.saturating_sub(totals.cached_bytes),
        stacks_cached: totals.cached,
        stacks_idle: totals.free,
    }
}

/// Bytes of all stacks that are resident now, asked of the kernel: about half a microsecond for each
/// stack ever made. Pages in swap do not count.
#[must_use]
pub fn committed_bytes() -> usize {
    slab::slabs().map(slab::Slab::resident_bytes).sum()
}

/// How guards are made in this process; proved at the first call.
#[must_use]
pub fn guard_kind() -> GuardKind {
    Depot::global().guard_kind()
}

/// Makes this process guard its stacks by `mprotect`, as on kernels before 6.13; says whether it
/// was called in time, before the first stack. For tests of that path.
#[doc(hidden)]
#[must_use]
pub fn use_protected_guards() -> bool {
    guard::choose_protected()
}

/// From now on there are no stacks but warm ones, as if memory had run out; or there are again. For tests of what happens then.
#[doc(hidden)]
pub fn refuse_stacks(refuses: bool) {
    depot::refuse(refuses);
}

/// The size of a page, in bytes.
fn page_bytes() -> usize {
    static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);
    // ORDERING: relaxed; whoever sees zero computes the same value.
    let known = PAGE_BYTES.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: sysconf has no preconditions.
    let asked = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let bytes = usize::try_from(asked).unwrap_or(4096);
    // ORDERING: relaxed, as above.
    PAGE_BYTES.store(bytes, Ordering::Relaxed);
    bytes
}

/// The calling thread's error number.
fn errno() -> i32 {
    // SAFETY: libc returns a valid pointer to the calling thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *place }
}

fn set_errno(value: i32) {
    // SAFETY: libc returns a valid pointer to the calling thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *place = value };
}
