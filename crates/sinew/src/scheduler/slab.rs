//! Where control blocks come from: chunks that are never unmapped.
//!
//! Owns: the list of chunks and the free blocks. A free block is in exactly one free list: a scheduler's own
//! (owner thread only) or the global one.
//!
//! Invariants
//! - I1. A block's memory stays a block for the life of the process, so a listing may read the atomic fields of any block at
//!   any time, and a waker may look at one that has just ended.
//! - I2. Only blocks below a chunk's `used` have been initialised.
//!
//! Recycling costs no system call and no lock while a scheduler's own list has a block.
#![expect(unsafe_code, reason = "carves typed blocks out of raw chunks")]

use std::alloc::{Layout, alloc, handle_alloc_error};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};
use std::sync::{Mutex, PoisonError};

use sinew_core::inbox::Link;

use crate::scheduler::block::{Block, BlockRef};
use crate::scheduler::park_cell::Park;
use crate::scheduler::{current, unhandled};
use crate::sys::ahead::{self, PAGE_BYTES};

/// Blocks in the first chunk; each later one is twice the one before, up to the most.
const CHUNK_BLOCKS_MIN: usize = 256;
// PERF: small pages. Huge ones made 1,000,000 spawns a third faster (155 ns each, not 222) while the machine had them at hand, and twice as slow on a
// virtual machine that gives free huge pages back to its host and has to ask for them again.
const CHUNK_BLOCKS_MAX: usize = 16 * 1024;
/// How many blocks a scheduler takes from the global list at a time.
const BATCH: usize = 64;
// PERF: to bring a fresh page in takes 1.0 µs in a call for sixteen of them, and 1.4 to 1.8 by a fault for each, on a virtual machine: 25 to 50 ns
// of a spawn.
/// How many fresh blocks the memory is brought in for at a time, in chunks of at least four times as many.
const AHEAD: usize = 256;
/// How many free blocks a scheduler keeps.
const KEPT_MAX: usize = 64 * 1024;
/// How many blocks more it gives back at a time.
const SURPLUS_MAX: usize = 1024;

struct Chunk {
    blocks: NonNull<Block>,
    len: usize,
    used: AtomicUsize,
    next: *const Chunk,
}

// SAFETY: a chunk is immutable but for its atomic counter; its blocks have their own rules.
unsafe impl Sync for Chunk {}
// SAFETY: as above.
unsafe impl Send for Chunk {}

/// The newest chunk; the older ones follow by `next`. Read without a lock by listings.
static CHUNKS: AtomicPtr<Chunk> = AtomicPtr::new(ptr::null_mut());

/// The free blocks that no scheduler has, chained by their links. The lock also serialises the growth of
/// chunks.
static GLOBAL: Mutex<Chain> = Mutex::new(Chain::new());

/// A chain of free blocks.
#[derive(Debug)]
struct Chain {
    head: Cell<*mut Link>,
    /// Of no meaning while the chain is empty.
    tail: Cell<*mut Link>,
    len: Cell<usize>,
}

/// The free blocks of a scheduler.
#[derive(Debug)]
pub(crate) struct Free {
    kept: Chain,
    /// What is more than it keeps, on its way to the global list.
    surplus: Chain,
}

// SAFETY: the blocks in the chain belong to whoever owns the chain.
unsafe impl Send for Chain {}

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

impl Free {
    pub(super) const fn new() -> Self {
        Self {
            kept: Chain::new(),
            surplus: Chain::new(),
        }
    }

    #[inline]
    fn push(&self, block: NonNull<Block>) {
        if self.kept.len.get() < KEPT_MAX {
            self.kept.push(block);
        } else {
            self.surplus.push(block);
            if self.surplus.len.get() == SURPLUS_MAX {
                lock_global().take_over(&self.surplus);
            }
        }
    }

    /// Gives everything back to the global list. At a scheduler's end.
    pub(super) fn give_back(&self) {
        let global = lock_global();
        global.take_over(&self.surplus);
        global.take_over(&self.kept);
    }

    /// A block for a new coroutine, with one reference, which the caller owns.
    #[inline]
    pub(super) fn take(&self) -> NonNull<Block> {
        match self.kept.pop() {
            Some(block) => block,
            None => self.refill(),
        }
    }

    #[cold]
    fn refill(&self) -> NonNull<Block> {
        let kept = &self.kept;
        kept.take_over(&self.surplus);
        let global = lock_global();
        while kept.len.get() < BATCH
            && let Some(block) = global.pop()
        {
            kept.push(block);
        }
        if kept.len.get() < BATCH {
            // The last one first, so that new blocks are used in the order of their addresses.
            carve(BATCH).rev().for_each(|block| kept.push(block));
        }
        drop(global);
        kept.pop()
            .unwrap_or_else(|| unreachable!("a batch was added"))
    }
}

/// A block for a new coroutine of another thread's scheduler. As for [`Free::take`].
pub(super) fn take() -> NonNull<Block> {
    let here = current::with_scheduler(|scheduler| scheduler.free_blocks().take());
    here.unwrap_or_else(|| {
        let global = lock_global();
        let block = global.pop().or_else(|| carve(1).next());
        block.unwrap_or_else(|| unreachable!("a chunk has room for one"))
    })
}

fn lock_global() -> std::sync::MutexGuard<'static, Chain> {
    // A panic cannot come between the two stores of a push or pop.
    GLOBAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Initialises more blocks of the newest chunk, or of a new one: at least one and at most `count`. The caller holds the
/// global lock.
fn carve(count: usize) -> impl DoubleEndedIterator<Item = NonNull<Block>> {
    // ORDERING: Relaxed: written under the global lock only.
    let newest = CHUNKS.load(Relaxed);
    // SAFETY: chunks are never freed.
    let chunk = match unsafe { newest.as_ref() } {
        Some(chunk) if chunk.used.load(Relaxed) < chunk.len => chunk,
        newest => add_chunk(newest),
    };
    let used = chunk.used.load(Relaxed);
    let fresh = used..chunk.len.min(used + count);
    if used.is_multiple_of(AHEAD) && chunk.len >= 4 * AHEAD {
        bring_in(chunk, used);
    }
    // SAFETY: below `len`.
    let blocks = fresh
        .clone()
        .map(|index| unsafe { chunk.blocks.add(index) });
    for block in blocks.clone() {
        // SAFETY: aligned, in bounds, not yet initialised, nobody else's.
        unsafe { block.write(Block::new()) };
    }
    // ORDERING: Release publishes the initialised blocks to listings (I2).
    chunk.used.store(fresh.end, Release);
    blocks
}

/// Has the memory of the next blocks brought in, the whole pages of it.
#[cold]
fn bring_in(chunk: &Chunk, used: usize) {
    // SAFETY: below `len`.
    let start = unsafe { chunk.blocks.add(used) }.cast::<u8>();
    let below = start.align_offset(PAGE_BYTES);
    let bytes = AHEAD.min(chunk.len - used) * size_of::<Block>();
    if let Some(bytes) = bytes.checked_sub(below) {
        // SAFETY: inside of the chunk.
        let start = unsafe { start.add(below) };
        ahead::bring_in(start, bytes - bytes % PAGE_BYTES);
    }
}

fn add_chunk(newest: Option<&'static Chunk>) -> &'static Chunk {
    let len = newest.map_or(CHUNK_BLOCKS_MIN, |chunk| {
        (chunk.len * 2).min(CHUNK_BLOCKS_MAX)
    });
    let layout = Layout::array::<Block>(len).unwrap_or_else(|_| unreachable!("a few megabytes"));
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc(layout) };
    let Some(blocks) = NonNull::new(memory.cast::<Block>()) else {
        handle_alloc_error(layout)
    };
    let next = newest.map_or(ptr::null(), ptr::from_ref);
    let chunk: &'static Chunk = Box::leak(Box::new(Chunk {
        blocks,
        len,
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
                // SAFETY: below `used`.
                let block = unsafe { chunk.blocks.add(self.index) };
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
        lock_global().push(block);
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
