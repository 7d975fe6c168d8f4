//! The control block of a coroutine: everything the scheduler knows of it, in four cache lines.
//!
//! Owns: the layout, and the counted reference to a block.
//! Thread: see the table; the block's memory itself is never unmapped ([`super::slab`]).
//!
//! | field | who touches it |
//! |---|---|
//! | `context`, `timer`, `stack`, `refusals`, `payload` before the end | the owner thread |
//! | `link` | whoever made the block runnable, then the owner |
//! | `waiter`, `node` | the wait protocol, see `sinew_core::wait` |
//! | `seq`, `kind`, `object`, `owner`, `since`, `parent`, `id`, `location` | written by the owner thread, read by listings from any |
//! | `flags` | written by the owner thread, read by any |
//! | `cancel`, `life`, `outcome`, `refs` | any thread, atomically |
//! | `park`, `joiners` | any thread, under their own short locks |
//! | `payload` after the end | the one that [`super::body`]'s rules name |
//!
//! Invariants
//! - I1. `refs` counts the scheduler's own reference (until the end), handles, unparkers and posted cancels; at zero
//!   the block goes back to its slab.
//! - I2. The record and the identity are changed and read under `seq`, see `sinew_core::wait::Sequence`.
#![expect(
    unsafe_code,
    reason = "one block is shared by its owner thread, wakers and listings"
)]

use std::cell::{Cell, UnsafeCell};
use std::mem::offset_of;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

use sinew_context::Context;
use sinew_context::stack::Stack;
use sinew_core::inbox::Link;
pub(crate) use sinew_core::life;
use sinew_core::life::Life;
use sinew_core::lock::Lock;
use sinew_core::timer::TimerNode;
use sinew_core::wait::{Node, PublishedKind, Queue, Record, Sequence, Waiter};

use crate::coroutine::Estate;
use crate::scheduler::body::Vtable;
use crate::scheduler::door::Door;
use crate::scheduler::extra::Extra;
use crate::scheduler::park_cell::Park;
use crate::scheduler::slab;

/// Bits of [`Block::flags`], which the owner thread alone changes, by plain stores.
pub(crate) mod flag {
    /// A grace is over: its waits raise the forced unwind.
    pub(crate) const UNWIND: u8 = 1;
    /// The coroutine has run: it has a stack and is pinned to its thread.
    pub(crate) const STARTED: u8 = 2;
    /// It asked for a stack of its own size: no in-place start.
    pub(crate) const OWN_STACK: u8 = 4;
    /// The coroutine confirmed the cancel.
    pub(crate) const CONFIRMED: u8 = 8;
    /// It is, or was, inside of a limit (`super::limit`): its waits look at the chain.
    pub(crate) const LIMITED: u8 = 16;
    /// Its wait cannot be cancelled.
    pub(crate) const DEAF: u8 = 32;
    /// It runs a callback in which nothing may wait.
    pub(crate) const IN_CALLBACK: u8 = 64;
    /// It keeps floating-point control words of its own.
    pub(crate) const FP_ENV: u8 = 128;
}

/// A bit of [`Block::kind`], beside the kind's number: the wait has a deadline, which its timer tells.
pub(crate) const TIMED: u8 = 0x80;

/// How many bytes of closure or result fit into a block.
pub(crate) const PAYLOAD_BYTES: usize = 24;

/// A control block; see the file's head.
#[repr(C, align(64))]
pub(crate) struct Block {
    // Line 0: what a switch touches.
    pub(crate) context: UnsafeCell<Context>,
    pub(crate) link: Link,
    pub(crate) waiter: Waiter,
    pub(crate) door: AtomicPtr<Door>,
    // Line 1: with line 0, all that a spawn touches.
    pub(crate) id: AtomicU64,
    pub(crate) location: AtomicPtr<Location<'static>>,
    pub(crate) vtable: Cell<&'static Vtable>,
    pub(crate) payload: UnsafeCell<[u64; PAYLOAD_BYTES / 8]>,
    pub(crate) seq: Sequence,
    pub(crate) refs: AtomicU32,
    pub(crate) flags: AtomicU8,
    /// Whether a cancel was requested.
    pub(crate) cancel: AtomicBool,
    pub(crate) life: Life,
    pub(crate) outcome: AtomicU8,
    pub(crate) kind: PublishedKind,
    /// How many waits were refused.
    pub(crate) refusals: Cell<u8>,
    pub(crate) park: Lock<Park>,
    // Line 2: what a start and an end touch.
    pub(crate) stack: UnsafeCell<Option<Stack>>,
    pub(crate) extra: AtomicPtr<Extra>,
    pub(crate) joiners: Lock<Queue>,
    pub(crate) timer: TimerNode,
    // Line 3: what a wait touches.
    pub(crate) node: Node,
    pub(crate) object: AtomicUsize,
    pub(crate) owner: AtomicU64,
    pub(crate) since: AtomicU64,
    /// The id of the coroutine that spawned it; 0 if none did.
    pub(crate) parent: AtomicU64,
    /// Whether it is in the ready queue because it gave its turn away. Owner thread.
    #[cfg(sinew_shuffle)]
    pub(super) yielded: Cell<bool>,
}

/// With a sanitizer there is more in a context; and in a block whose order is shuffled.
#[cfg(not(any(sinew_asan, sinew_tsan, sinew_msan, sinew_shuffle)))]
const _: () = {
    assert!(size_of::<Block>() == 256, "a block takes four cache lines");
    assert!(offset_of!(Block, id) == 64 && offset_of!(Block, stack) == 128);
    assert!(offset_of!(Block, node) == 192);
};

// SAFETY: the table in the file's head says who touches which field when.
unsafe impl Sync for Block {}
// SAFETY: as above.
unsafe impl Send for Block {}

impl Block {
    /// A block in its free state.
    pub(super) fn new() -> Self {
        Self {
            context: UnsafeCell::new(Context::EMPTY),
            link: Link::new(),
            waiter: Waiter::new(&super::WAYS),
            door: AtomicPtr::new(std::ptr::null_mut()),
            node: Node::new(),
            seq: Sequence::new(),
            kind: PublishedKind::new(),
            flags: AtomicU8::new(0),
            cancel: AtomicBool::new(false),
            refusals: Cell::new(0),
            object: AtomicUsize::new(0),
            owner: AtomicU64::new(0),
            since: AtomicU64::new(0),
            timer: TimerNode::new(),
            parent: AtomicU64::new(0),
            #[cfg(sinew_shuffle)]
            yielded: Cell::new(false),
            id: AtomicU64::new(0),
            refs: AtomicU32::new(0),
            park: Lock::new(Park::EMPTY),
            life: Life::new(),
            outcome: AtomicU8::new(0),
            vtable: Cell::new(Vtable::NONE),
            extra: AtomicPtr::new(std::ptr::null_mut()),
            stack: UnsafeCell::new(None),
            location: AtomicPtr::new(std::ptr::null_mut()),
            joiners: Lock::new(Queue::new()),
            payload: UnsafeCell::new([0; PAYLOAD_BYTES / 8]),
        }
    }

    /// The block that this waiter is part of.
    ///
    /// # Safety
    ///
    /// The waiter is a block's.
    #[inline]
    pub(super) unsafe fn of_waiter(waiter: NonNull<Waiter>) -> NonNull<Self> {
        // SAFETY: inside a block, at this offset.
        unsafe { waiter.byte_sub(offset_of!(Self, waiter)) }.cast()
    }

    /// The block that this link is part of.
    ///
    /// # Safety
    ///
    /// The link is a block's.
    #[inline]
    pub(super) unsafe fn of_link(link: NonNull<Link>) -> NonNull<Self> {
        // SAFETY: inside a block, at this offset.
        unsafe { link.byte_sub(offset_of!(Self, link)) }.cast()
    }

    /// The block that this timer is part of.
    ///
    /// # Safety
    ///
    /// The timer is a block's.
    #[inline]
    pub(super) unsafe fn of_timer(timer: NonNull<TimerNode>) -> NonNull<Self> {
        // SAFETY: inside a block, at this offset.
        unsafe { timer.byte_sub(offset_of!(Self, timer)) }.cast()
    }

    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id.load(Relaxed)
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    /// Sets a flag. Owner thread.
    #[inline]
    pub(crate) fn set(&self, flag: u8) {
        self.flags.store(self.flags.load(Relaxed) | flag, Relaxed);
    }

    /// Takes a flag away. Owner thread.
    #[inline]
    pub(crate) fn clear(&self, flag: u8) {
        self.flags.store(self.flags.load(Relaxed) & !flag, Relaxed);
    }

    /// Whether waits are to be refused: because of a cancel, or of a limit around the code that runs. Owner thread.
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        if self.has(flag::LIMITED) {
            self.is_refused_within()
        } else {
            self.is_cancelled()
        }
    }

    #[cold]
    fn is_refused_within(&self) -> bool {
        let limit = self
            .extra()
            .map_or(std::ptr::null(), |extra| extra.limits.get());
        // SAFETY: a limit in the chain is alive.
        match unsafe { limit.as_ref() } {
            Some(limit) => limit.refuses(self.is_cancelled()),
            None => self.is_cancelled(),
        }
    }

    /// Whether a cancel was requested.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.load(Relaxed)
    }

    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        self.life.is_done()
    }

    /// Sets the context of a block that does not run. Owner thread. Listings may be reading the stack pointer.
    pub(super) fn set_context(&self, context: Context) {
        let Context {
            fp,
            ip,
            sp,
            bx,
            notes,
        } = context;
        let to = self.context.get();
        for (offset, value) in [(0, fp), (1, ip), (2, sp), (3, bx)] {
            // SAFETY: a context is four words.
            let word = unsafe { to.cast::<usize>().add(offset) };
            // SAFETY: aligned, never unmapped, and only accessed as a word.
            unsafe { AtomicUsize::from_ptr(word) }.store(value, Relaxed);
        }
        // SAFETY: the owner thread alone reads these.
        unsafe { (*to).notes = notes };
    }

    /// Writes the wait record. Owner thread, right before it suspends.
    #[inline]
    pub(super) fn write_record(&self, record: Record, since_ns: u64, is_timed: bool) {
        self.change(|| {
            self.object.store(record.object, Relaxed);
            self.owner.store(record.owner, Relaxed);
            self.since.store(since_ns, Relaxed);
            let timed = if is_timed { TIMED } else { 0 };
            self.kind.set(record.kind as u8 | timed);
        });
    }

    /// The wait is over. The rest of the record stays and says nothing.
    #[inline]
    pub(super) fn clear_record(&self) {
        self.kind.clear();
    }

    /// A wait for something with an owner is over, and its record is cleared. Whoever reads that by the record holds the short lock, and is
    /// waited for here: afterwards it may go. Owner thread.
    #[inline]
    pub(super) fn leave_lock(&self) {
        drop(self.park.lock());
    }

    /// Changes what listings read, under the sequence lock. Owner thread.
    #[inline]
    pub(super) fn change(&self, f: impl FnOnce()) {
        self.seq.change(f);
    }

    /// Reads what `change` writes, consistently, from any thread; `None` if the owner was always faster.
    pub(crate) fn read<T>(&self, f: impl Fn() -> T) -> Option<T> {
        self.seq.read(f)
    }

    /// The door of its scheduler, if it is the live coroutine with this number. From any thread, for any block.
    pub(crate) fn door_while(&self, id: u64) -> Option<&'static Door> {
        let (now, done, door) = self.read(|| {
            (
                self.id(),
                self.is_done(),
                // Stored before the number, and replaced only after that was taken away.
                self.door.load(Relaxed),
            )
        })?;
        // SAFETY: doors are never freed.
        unsafe { door.as_ref() }.filter(|_| now == id && !done)
    }

    /// The coroutine's name. From any thread, for any block: the lock keeps the name in place while it is copied.
    pub(crate) fn name(&self) -> Option<Arc<str>> {
        let _in_place = self.park.lock();
        self.extra()?.name.get().cloned()
    }

    /// What is kept for the coroutine at the base of its stack. Owner thread, while it runs on it.
    pub(crate) fn estate(&self) -> Option<&Estate> {
        // SAFETY: owner thread; the stack changes hands only at the coroutine's start and end.
        let stack = unsafe { &*self.stack.get() }.as_ref()?;
        // SAFETY: `Scheduler::start` has laid it, for this coroutine or an earlier one on the stack.
        Some(unsafe { Estate::at(stack.base()) })
    }

    /// The highest address of its stack; 0 where it has none. Owner thread.
    pub(crate) fn stack_base(&self) -> usize {
        // SAFETY: as in `estate`.
        let stack = unsafe { &*self.stack.get() }.as_ref();
        stack.map_or(0, |stack| stack.base().addr().get())
    }

    /// Whether a cleanup runs in it, in which no cancel can be confirmed. As for `estate`.
    pub(crate) fn is_in_cleanup(&self) -> bool {
        self.estate().is_some_and(Estate::is_in_cleanup)
    }

    /// The rarely needed part, if it exists.
    #[inline]
    pub(crate) fn extra(&self) -> Option<&Extra> {
        // ORDERING: Acquire pairs with the Release in `extra_or_new`.
        let extra = self.extra.load(Acquire);
        // SAFETY: it is freed only when the last reference to the block goes, and the caller has one.
        unsafe { extra.as_ref() }
    }

    /// The rarely needed part, made if it does not exist yet. Any thread that holds a reference.
    pub(crate) fn extra_or_new(&self) -> &Extra {
        if let Some(extra) = self.extra() {
            return extra;
        }
        let new = Box::into_raw(Box::new(Extra::new(NonNull::from(self))));
        // ORDERING: Release publishes the new part; Acquire sees the one that was faster.
        match self
            .extra
            .compare_exchange(std::ptr::null_mut(), new, AcqRel, Acquire)
        {
            // SAFETY: just made; freed with the block.
            Ok(_) => unsafe { &*new },
            Err(faster) => {
                // SAFETY: `new` was not published.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: as in `extra`.
                unsafe { &*faster }
            }
        }
    }
}

/// A counted reference to a block.
#[derive(Debug)]
pub(crate) struct BlockRef(NonNull<Block>);

// SAFETY: blocks are shared by design; the count is atomic.
unsafe impl Send for BlockRef {}
// SAFETY: as above.
unsafe impl Sync for BlockRef {}

impl BlockRef {
    /// Takes on a count that the caller owned.
    ///
    /// # Safety
    ///
    /// The caller gives one count away.
    #[inline]
    pub(super) unsafe fn adopt(block: NonNull<Block>) -> Self {
        Self(block)
    }

    /// One more reference to a block that the caller knows to be referenced.
    #[inline]
    pub(crate) fn of(block: &Block) -> Self {
        block.refs.fetch_add(1, Relaxed);
        Self(NonNull::from(block))
    }

    /// The reference that the coroutine's end has left to its handle, which this one is and which goes, if it has left one.
    #[inline]
    pub(crate) fn left(&self) -> Option<Self> {
        self.life.take_left().then(|| Self(self.0))
    }

    /// The handle's reference goes, and with it the one that was left to it, if there is one.
    #[inline]
    pub(crate) fn part(self) {
        // ORDERING: Acquire, as in the drop: these two are all there are.
        let left = self.left();
        if left.is_some() && self.refs.load(Acquire) == 2 {
            self.refs.store(1, Relaxed);
            std::mem::forget(left);
        }
    }

    /// Gives the count to the caller, who will [`adopt`](Self::adopt) it again.
    pub(super) fn into_raw(self) -> NonNull<Block> {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl std::ops::Deref for BlockRef {
    type Target = Block;

    #[inline]
    fn deref(&self) -> &Block {
        // SAFETY: I1: this reference is counted.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for BlockRef {
    fn clone(&self) -> Self {
        Self::of(self)
    }
}

impl Drop for BlockRef {
    #[inline]
    fn drop(&mut self) {
        // ORDERING: Acquire: a count of one is this reference, and nobody is left to make another: what
        // the others did before they went is seen. That saves the locked instruction.
        // ORDERING: Release: what this party did with the block is before its end; Acquire: the last party sees all of it. (Not by a fence,
        // of which ThreadSanitizer knows nothing.)
        if self.refs.load(Acquire) == 1 || self.refs.fetch_sub(1, AcqRel) == 1 {
            // SAFETY: the count is zero: nobody else knows the block.
            unsafe { slab::release(self.0) };
        }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Block")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}
