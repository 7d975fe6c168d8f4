//! Where control blocks come from: chunks that are never unmapped.
//!
//! Owns: the list of chunks and the free blocks. A free block is in exactly one free list: a scheduler's own
//! (owner thread only) or the global one.
//!
//! Invariants
//! - I1. A block's memory stays a block for the life of the process, so a listing may read the atomic fields of any block at
//!   any time, and a waker may look at one that has just ended.
//! - I2. Blocks that are not below a chunk's `used` are all zeros. Those below have been laid, or are in a scheduler's hands to be: zeros too, which to a
//!   listing are those of a free block.
//!
//! Recycling costs no system call and no lock while a scheduler's own list has a block.
#![expect(unsafe_code, reason = "carves typed blocks out of raw chunks")]

use std::alloc::{Layout, handle_alloc_error};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};
use std::sync::{Mutex, PoisonError};

use sinew_core::inbox::Link;

use crate::scheduler::block::{Block, BlockRef, GROUP_BLOCKS, HALF_BYTES, PAYLOAD_BYTES};
use crate::scheduler::park_cell::Park;
use crate::scheduler::{current, unhandled};
use crate::sys::ahead::{self, PAGE_BYTES};
use crate::sys::zeroed;

/// Groups in the largest chunk; the first has one, each later one twice as many as the one before.
// PERF: small pages. Huge ones made 1,000,000 spawns a third faster (155 ns each, not 222) while the machine had them at hand, and twice as slow on a
// virtual machine that gives free huge pages back to its host and has to ask for them again.
const CHUNK_GROUPS_MAX: usize = 32;
/// How many blocks a scheduler takes at a time from the global list, at least if they are there, or of those that were never in use, at most.
const BATCH: usize = 64;
// PERF: to bring a fresh page in takes 1.0 µs in a call for sixteen of them, and 1.4 to 1.8 by a fault for each, on a virtual machine.
/// The least number of groups of a chunk whose near halves are brought in, a group at a time.
const AHEAD_GROUPS_MIN: usize = 4;
/// What a group takes.
const GROUP_BYTES: usize = 2 * GROUP_BLOCKS * HALF_BYTES;
/// How many free blocks a scheduler keeps.
const KEPT_MAX: usize = 64 * 1024;
/// How many blocks more it gives back at a time.
const SURPLUS_MAX: usize = 1024;

struct Chunk {
    memory: NonNull<u8>,
    groups: usize,
    used: AtomicUsize,
    next: *const Chunk,
}

// SAFETY: a chunk is immutable but for its atomic counter; its blocks have their own rules.
unsafe impl Sync for Chunk {}
// SAFETY: as above.
unsafe impl Send for Chunk {}

/// The newest chunk; the older ones follow by `next`. Read without a lock by listings.
static CHUNKS: AtomicPtr<Chunk> = AtomicPtr::new(ptr::null_mut());

/// The free blocks that no scheduler has. The lock also serialises the growth of chunks.
static GLOBAL: Mutex<Chains> = Mutex::new(Chains::new());

/// A chain of free blocks.
#[derive(Debug)]
struct Chain {
    head: Cell<*mut Link>,
    /// Of no meaning while the chain is empty.
    tail: Cell<*mut Link>,
    len: Cell<usize>,
}

/// Chains that are given and taken whole. The first block of each has in its payload, which is empty: the first link of the chain below; the last
/// link of its own; the length of it.
///
/// PERF: to take blocks out of one long chain is to walk it, and each step a cache miss: 30 ns of a spawn.
#[derive(Debug)]
struct Chains {
    top: Cell<*mut Link>,
}

/// The free blocks of a scheduler.
#[derive(Debug)]
pub(crate) struct Free {
    kept: Chain,
    /// What is more than it keeps, on its way to the global list.
    surplus: Chain,
    /// Blocks that were never in use, side by side: the first, and how many.
    fresh: Cell<(*mut Block, usize)>,
}

// SAFETY: the blocks in the chain belong to whoever owns the chain.
unsafe impl Send for Chain {}
// SAFETY: as above.
unsafe impl Send for Chains {}

impl Chunk {
    fn len(&self) -> usize {
        self.groups * GROUP_BLOCKS
    }

    /// Where a block is, of those below `len`.
    fn block(&self, index: usize) -> NonNull<Block> {
        debug_assert!(index < self.len());
        let offset = index / GROUP_BLOCKS * GROUP_BYTES + index % GROUP_BLOCKS * HALF_BYTES;
        // SAFETY: inside of the chunk.
        unsafe { self.memory.add(offset) }.cast()
    }
}

impl Chain {
    const fn new() -> Self {
        Self {
            head: Cell::new(ptr::null_mut()),
            tail: Cell::new(ptr::null_mut()),
            len: Cell::new(0),
        }
    }

    #[inline]
    fn pop(&self) -> Option<NonNull<Block>> {
        let link = NonNull::new(self.head.get())?;
        // SAFETY: the chain owns its links, which are parts of blocks.
        self.head.set(unsafe { Link::next(link) });
        self.len.set(self.len.get() - 1);
        // SAFETY: as above.
        Some(unsafe { Block::of_link(link) })
    }

    #[inline]
    fn push(&self, block: NonNull<Block>) {
        // SAFETY: a free block belongs to whoever frees it.
        let link = NonNull::from(unsafe { &block.as_ref().link });
        // SAFETY: as above.
        unsafe { Link::set_next(link, self.head.get()) };
        if self.head.replace(link.as_ptr()).is_null() {
            self.tail.set(link.as_ptr());
        }
        self.len.set(self.len.get() + 1);
    }

    /// Takes all blocks of another chain over, however many.
    fn take_over(&self, other: &Self) {
        let head = other.head.replace(ptr::null_mut());
        let Some(tail) = NonNull::new(other.tail.get()).filter(|_| !head.is_null()) else {
            return;
        };
        // SAFETY: the last link of a chain that is not empty, which is this one's from here on.
        unsafe { Link::set_next(tail, self.head.get()) };
        if self.head.replace(head).is_null() {
            self.tail.set(tail.as_ptr());
        }
        self.len.set(self.len.get() + other.len.replace(0));
    }
}

impl Chains {
    const fn new() -> Self {
        let top = Cell::new(ptr::null_mut());
        Self { top }
    }

    /// What the first block of a chain says.
    ///
    /// # Safety
    ///
    /// The block is free, and the caller's.
    unsafe fn words(first: NonNull<Link>) -> *mut [*mut Link; PAYLOAD_BYTES / 8] {
        // SAFETY: all links here are blocks'.
        let block = unsafe { Block::of_link(first) };
        // SAFETY: never unmapped.
        unsafe { block.as_ref() }.payload.get().cast()
    }

    /// Puts a whole chain on top. None of it is left.
    fn push(&self, chain: &Chain) {
        let Some(first) = NonNull::new(chain.head.replace(ptr::null_mut())) else {
            return;
        };
        let len = ptr::without_provenance_mut(chain.len.replace(0));
        let below = self.top.replace(first.as_ptr());
        // SAFETY: the chain's blocks are free, and it owns them.
        let words = unsafe { Self::words(first) };
        // SAFETY: nobody else touches it.
        unsafe { words.write([below, chain.tail.get(), len]) };
    }

    /// Takes the chain on top over into another.
    fn pop_into(&self, chain: &Chain) -> bool {
        let Some(first) = NonNull::new(self.top.get()) else {
            return false;
        };
        // SAFETY: the blocks are free, and these chains own them.
        let words = unsafe { Self::words(first) };
        // SAFETY: written when the chain was put here.
        let [below, tail, len] = unsafe { words.read() };
        self.top.set(below);
        chain.take_over(&Chain {
            head: Cell::new(first.as_ptr()),
            tail: Cell::new(tail),
            len: Cell::new(len.addr()),
        });
        true
    }

    fn push_one(&self, block: NonNull<Block>) {
        let one = Chain::new();
        one.push(block);
        self.push(&one);
    }

    fn pop_one(&self) -> Option<NonNull<Block>> {
        let some = Chain::new();
        self.pop_into(&some);
        let block = some.pop();
        self.push(&some);
        block
    }
}

impl Free {
    pub(super) const fn new() -> Self {
        Self {
            kept: Chain::new(),
            surplus: Chain::new(),
            fresh: Cell::new((ptr::null_mut(), 0)),
        }
    }

    #[inline]
    fn push(&self, block: NonNull<Block>) {
        if self.kept.len.get() < KEPT_MAX {
            self.kept.push(block);
        } else {
            self.surplus.push(block);
            if self.surplus.len.get() == SURPLUS_MAX {
                lock_global().push(&self.surplus);
            }
        }
    }

    /// Gives everything back to the global list. At a scheduler's end.
    pub(super) fn give_back(&self) {
        while let Some(block) = self.take_fresh() {
            self.kept.push(block);
        }
        let global = lock_global();
        global.push(&self.surplus);
        global.push(&self.kept);
    }

    /// A block for a new coroutine, with one reference, which the caller owns.
    #[inline]
    pub(super) fn take(&self) -> NonNull<Block> {
        match self.kept.pop() {
            Some(block) => block,
            None => self.take_more(),
        }
    }

    #[inline(never)]
    fn take_more(&self) -> NonNull<Block> {
        self.take_fresh().unwrap_or_else(|| self.refill())
    }

    fn take_fresh(&self) -> Option<NonNull<Block>> {
        let (first, len) = self.fresh.get();
        if len == 0 {
            return None;
        }
        let block = NonNull::new(first)?;
        self.fresh
            .set((first.wrapping_byte_add(HALF_BYTES), len - 1));
        // SAFETY: in the zeroed memory of a chunk, not yet in use, nobody else's.
        unsafe { Block::lay(block) };
        Some(block)
    }

    #[cold]
    fn refill(&self) -> NonNull<Block> {
        let kept = &self.kept;
        kept.take_over(&self.surplus);
        if kept.len.get() == 0 {
            let global = lock_global();
            while kept.len.get() < BATCH && global.pop_into(kept) {}
            if kept.len.get() == 0 {
                let (first, len) = carve(BATCH);
                self.fresh.set((first.as_ptr(), len));
            }
        }
        kept.pop()
            .or_else(|| self.take_fresh())
            .unwrap_or_else(|| unreachable!("a batch was added"))
    }
}

/// A block for a new coroutine of another thread's scheduler. As for [`Free::take`].
pub(super) fn take() -> NonNull<Block> {
    let here = current::with_scheduler(|scheduler| scheduler.free_blocks().take());
    here.unwrap_or_else(|| {
        let global = lock_global();
        global.pop_one().unwrap_or_else(|| {
            let (block, _one) = carve(1);
            // SAFETY: in the zeroed memory of a chunk, not yet in use, nobody else's.
            unsafe { Block::lay(block) };
            block
        })
    })
}

fn lock_global() -> std::sync::MutexGuard<'static, Chains> {
    // A panic cannot come between the two stores of a push or pop.
    GLOBAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes more blocks of the newest chunk, or of a new one, into use: at least one and at most `count`, side by side. They are yet to be
/// [laid](Block::lay). The caller holds the global lock.
fn carve(count: usize) -> (NonNull<Block>, usize) {
    // ORDERING: Relaxed: written under the global lock only.
    let newest = CHUNKS.load(Relaxed);
    // SAFETY: chunks are never freed.
    let chunk = match unsafe { newest.as_ref() } {
        Some(chunk) if chunk.used.load(Relaxed) < chunk.len() => chunk,
        newest => add_chunk(newest),
    };
    let used = chunk.used.load(Relaxed);
    if used.is_multiple_of(GROUP_BLOCKS) && chunk.groups >= AHEAD_GROUPS_MIN {
        bring_in(chunk, used);
    }
    let len = count.min(GROUP_BLOCKS - used % GROUP_BLOCKS);
    // ORDERING: Release, as in `add_chunk`: the memory is there.
    chunk.used.store(used + len, Release);
    (chunk.block(used), len)
}

/// Has the memory of a group's near halves brought in, given the first: all pages that they begin in.
#[cold]
fn bring_in(chunk: &Chunk, first: usize) {
    let bytes = GROUP_BLOCKS * HALF_BYTES;
    // Inside of the group: behind them are the far halves.
    ahead::bring_in(
        chunk.block(first).cast(),
        bytes.next_multiple_of(PAGE_BYTES),
    );
}

fn add_chunk(newest: Option<&'static Chunk>) -> &'static Chunk {
    let groups = newest.map_or(1, |chunk| (chunk.groups * 2).min(CHUNK_GROUPS_MAX));
    let memory = zeroed::pages(groups * GROUP_BYTES)
        .unwrap_or_else(|| handle_alloc_error(Layout::new::<[u8; GROUP_BYTES]>()));
    let next = newest.map_or(ptr::null(), ptr::from_ref);
    let chunk: &'static Chunk = Box::leak(Box::new(Chunk {
        memory,
        groups,
        used: AtomicUsize::new(0),
        next,
    }));
    // ORDERING: Release publishes the chunk to listings.
    CHUNKS.store(ptr::from_ref(chunk).cast_mut(), Release);
    chunk
}

/// Every block that was ever in use, for listings: most are free or have ended, which their fields tell.
pub(crate) fn for_each_block(f: impl FnMut(&'static Block)) {
    Cursor::new().for_each(f);
}

/// Goes through every block that was ever in use, with as many stops as one likes. Those that are made meanwhile may be left out.
#[derive(Debug)]
pub(crate) struct Cursor {
    chunk: *const Chunk,
    index: usize,
}

// SAFETY: chunks are shared, see there, and never freed.
unsafe impl Send for Cursor {}

impl Cursor {
    pub(crate) fn new() -> Self {
        Self {
            // ORDERING: Acquire pairs with the Release in `add_chunk`.
            chunk: CHUNKS.load(Acquire),
            index: 0,
        }
    }
}

impl Iterator for Cursor {
    type Item = &'static Block;

    fn next(&mut self) -> Option<&'static Block> {
        loop {
            // SAFETY: chunks are never freed.
            let chunk = unsafe { self.chunk.as_ref() }?;
            // ORDERING: Acquire pairs with the Release in `carve`.
            if self.index < chunk.used.load(Acquire) {
                let block = chunk.block(self.index);
                self.index += 1;
                // SAFETY: I1, I2.
                return Some(unsafe { &*block.as_ptr() });
            }
            self.chunk = chunk.next;
            self.index = 0;
        }
    }
}

/// Takes back a block whose last reference has gone.
///
/// # Safety
///
/// The reference count has reached zero.
pub(super) unsafe fn release(block: NonNull<Block>) {
    // SAFETY: I1.
    let this = unsafe { block.as_ref() };
    let id = this.id();
    this.change(|| this.id.store(0, Relaxed));
    let extra = this.extra.load(Relaxed);
    // A wake that was left over is not the next coroutine's.
    // SAFETY: whoever can park or unpark has a reference; listings do not touch the value.
    if unsafe { *this.park.peek() } != Park::EMPTY {
        *this.park.lock() = Park::EMPTY;
    }
    if !extra.is_null() {
        this.extra.store(ptr::null_mut(), Relaxed);
        // A listing may be reading the name: it holds this lock while it does.
        let park = this.park.lock();
        drop(park);
        // SAFETY: made by `extra_or_new`; nobody references the block any more.
        let extra = unsafe { Box::from_raw(extra) };
        // Its token may be the last one, and then callbacks of the user's go with it.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(extra))) {
            unhandled::report(id, payload);
        }
    }
    let kept = current::with_scheduler(|scheduler| scheduler.free_blocks().push(block));
    if kept.is_none() {
        lock_global().push_one(block);
    }
}

/// Makes a reference out of the count that a taken block comes with.
///
/// # Safety
///
/// The block's count was set to include this reference.
pub(super) unsafe fn first_ref(block: NonNull<Block>) -> BlockRef {
    // SAFETY: the caller vouches for the count.
    unsafe { BlockRef::adopt(block) }
}
