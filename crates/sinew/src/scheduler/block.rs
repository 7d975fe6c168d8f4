//! The control block of a coroutine: everything the scheduler knows of it, in two halves of two cache lines each.
//!
//! Owns: the layout, and the counted reference to a block.
//! Thread: see the table; the block's memory itself is never unmapped ([`super::slab`]).
//!
//! | field | who touches it |
//! |---|---|
//! | `context`, `timer`, `refusals`, `payload` before the end | the owner thread |
//! | `link` | whoever made the block runnable, then the owner |
//! | `waiter`, `node` | the wait protocol, see `sinew_core::wait` |
//! | `seq`, `stack`, `kind`, `object`, `owner`, `since`, `parent`, `id`, `location` | written by the owner thread, read by listings from any |
//! | `flags` | written by the owner thread, read by any |
//! | `cancel`, `life`, `outcome`, `refs` | any thread, atomically |
//! | `park`, `joiners` | any thread, under their own short locks |
//! | `payload` after the end | the one that [`super::body`]'s rules name |
//!
//! Invariants
//! - I1. `refs` counts the scheduler's own reference (until the end), handles, unparkers and posted cancels; at zero
//!   the block goes back to its slab.
//! - I2. The record and the identity are changed and read under `seq`, see `sinew_core::wait::Sequence`.
//!
//! # Halves
//!
//! A coroutine that runs to its end without stopping needs only the half of its block. So the halves lie apart: the near ones of a group of blocks
//! side by side, and as far from each as the other its far half. Of a million coroutines that are spawned and never wait, half the memory is
//! touched, by the kernel, which has to bring it in, and by each of the passes through all of them: to spawn, to run, to join. In the type the
//! halves of others are a field in between, of which nothing is known; the blocks of a group overlap.
//! So a block is never made, moved or copied as a value: `lay` makes one of memory that is all zeros.
#![expect(
    unsafe_code,
    reason = "one block is shared by its owner thread, wakers and listings"
)]

use std::cell::{Cell, UnsafeCell};
use std::mem::{ManuallyDrop, MaybeUninit, offset_of, transmute};
use std::panic::Location;
use std::ptr::{self, NonNull};
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

/// What a half takes. With a sanitizer there is more in a context; and in a block whose order is shuffled.
pub(super) const HALF_BYTES: usize = if cfg!(any(sinew_asan, sinew_tsan, sinew_msan, sinew_shuffle))
{
    HALF_BYTES_MAX
} else {
    128
};
/// What it takes in any build.
const HALF_BYTES_MAX: usize = 256;
/// From a near half to the far one: not a whole number of pages, so that they fall into different sets of the cache; twice that is one.
const APART_BYTES: usize = 63_488;
/// How many blocks lie side by side in a group, near halves first, then the far ones.
pub(super) const GROUP_BLOCKS: usize = APART_BYTES / HALF_BYTES;
const NEAR_BYTES: usize = 128;

/// A stack, or none, as another thread reads it.
pub(crate) type StackWords = [*mut (); 2];

/// A control block; see the file's head.
#[repr(C, align(64))]
pub(crate) struct Block {
    // Line 0: what a wake touches.
    pub(crate) link: Link,
    pub(crate) waiter: Waiter,
    pub(crate) door: AtomicPtr<Door>,
    pub(crate) stack: UnsafeCell<Option<Stack>>,
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
    // Line 1: with line 0, all that one touches that never stops.
    pub(crate) id: AtomicU64,
    pub(crate) location: AtomicPtr<Location<'static>>,
    pub(crate) vtable: Cell<&'static Vtable>,
    pub(crate) payload: UnsafeCell<[u64; PAYLOAD_BYTES / 8]>,
    pub(crate) extra: AtomicPtr<Extra>,
    /// The id of the coroutine that spawned it; 0 if none did.
    pub(crate) parent: AtomicU64,
    /// The near halves of the next blocks of the group, and the far ones of those before.
    _others: UnsafeCell<MaybeUninit<[u8; APART_BYTES - NEAR_BYTES]>>,
    // Line 2: what a switch touches.
    pub(crate) context: UnsafeCell<Context>,
    pub(crate) node: Node,
    // Line 3: what a wait touches.
    pub(crate) joiners: Lock<Queue>,
    pub(crate) timer: TimerNode,
    pub(crate) object: AtomicUsize,
    pub(crate) owner: AtomicU64,
    pub(crate) since: AtomicU64,
    /// Whether it is in the ready queue because it gave its turn away. Owner thread.
    #[cfg(sinew_shuffle)]
    pub(super) yielded: Cell<bool>,
}

const _: () = {
    assert!(offset_of!(Block, id) == 64 && offset_of!(Block, _others) == NEAR_BYTES);
    assert!(offset_of!(Block, context) == APART_BYTES);
    assert!(size_of::<Block>() <= APART_BYTES + HALF_BYTES);
    assert!(APART_BYTES.is_multiple_of(HALF_BYTES_MAX) && !APART_BYTES.is_multiple_of(4096));
};

// SAFETY: the table in the file's head says who touches which field when.
unsafe impl Sync for Block {}
// SAFETY: as above.
unsafe impl Send for Block {}

impl Block {
    /// Makes a block in its free state out of memory that is all zeros. That is the free state of every field but two; so
    /// the far half is not touched, and takes no memory until the coroutine first stops. A listing may look at the block already: nothing
    /// is written that one reads.
    ///
    /// # Safety
    ///
    /// Both halves are in memory that is zeroed, lives as long as the process, and is nobody else's; but a listing may be reading atomic fields.
    pub(super) unsafe fn lay(at: NonNull<Self>) {
        // SAFETY: in bounds.
        let waiter = unsafe { at.byte_add(offset_of!(Self, waiter)) }.cast();
        // SAFETY: zeroed, in bounds; of a waiter listings look at the word only.
        unsafe { Waiter::lay(waiter, &super::WAYS) };
        // SAFETY: in bounds.
        let vtable = unsafe { &raw mut (*at.as_ptr()).vtable };
        // SAFETY: in bounds; listings do not look at it.
        unsafe { vtable.write(Cell::new(Vtable::NONE)) };
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

    /// Gives the coroutine a stack. Owner thread; it has none, and does not run.
    #[inline]
    pub(super) fn set_stack(&self, stack: Stack) {
        // SAFETY: all of both words is written.
        let words = unsafe { transmute::<Option<Stack>, StackWords>(Some(stack)) };
        self.change(|| self.set_stack_words(words));
    }

    /// Takes the coroutine's stack away. Owner thread; it has ended, though what runs may be on it.
    #[inline]
    pub(super) fn take_stack(&self) -> Option<Stack> {
        // SAFETY: owner thread; others only look. What was read is written over before anybody has a use for it.
        let stack = unsafe { self.stack.get().read() };
        // Zeros are none, as in a new block.
        self.change(|| self.set_stack_words([ptr::null_mut(); 2]));
        stack
    }

    /// Writes what `stack_words` reads. Owner thread; what is written over is not dropped.
    #[inline]
    fn set_stack_words(&self, words: StackWords) {
        let at = self.stack.get().cast::<*mut ()>();
        for (index, word) in words.into_iter().enumerate() {
            // SAFETY: a stack is two words.
            let place = unsafe { at.add(index) };
            // SAFETY: aligned and never unmapped. Others look meanwhile, which the sequence tells them.
            unsafe { AtomicPtr::from_ptr(place) }.store(word, Relaxed);
        }
    }

    /// What says which stack it has: for [`Self::highest_of`], if it was read under the sequence. From any thread.
    pub(crate) fn stack_words(&self) -> StackWords {
        let words = self.stack.get().cast::<*mut ()>();
        [0, 1].map(|index| {
            // SAFETY: a stack is two words.
            let word = unsafe { words.add(index) };
            // SAFETY: aligned and never unmapped; what the owner writes meanwhile is found out by the sequence.
            unsafe { AtomicPtr::from_ptr(word) }.load(Relaxed)
        })
    }

    /// The highest byte of the stack that these words tell of.
    ///
    /// # Safety
    ///
    /// They were read while the block's sequence stood still.
    pub(crate) unsafe fn highest_of(words: StackWords) -> Option<usize> {
        // SAFETY: all of the words of what was stored there. It is a copy, and never dropped.
        let stack = unsafe { transmute::<StackWords, ManuallyDrop<Option<Stack>>>(words) };
        stack.as_ref().map(|stack| stack.base().addr().get() - 1)
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
        ManuallyDrop::new(self).0
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::{Block, Park};
    use crate::sys::zeroed;

    #[test]
    fn all_zeros_but_for_two_fields_is_the_free_state() {
        let at = zeroed::pages(size_of::<Block>()).unwrap().cast();
        // SAFETY: new memory, nobody else's.
        unsafe { Block::lay(at) };
        // SAFETY: just made.
        let block = unsafe { at.as_ref() };
        // SAFETY: nobody else looks.
        let context = unsafe { *block.context.get() };
        let words = (context.fp, context.ip, context.sp, context.bx);
        assert_eq!(words, (0, 0, 0, 0));
        // SAFETY: as above.
        assert!(unsafe { &*block.stack.get() }.is_none());
        // SAFETY: as above.
        assert!(!unsafe { block.node.is_linked() });
        assert!(
            block
                .joiners
                .try_lock()
                .is_some_and(|queue| queue.is_empty())
        );
        assert!(
            block
                .park
                .try_lock()
                .is_some_and(|park| *park == Park::EMPTY)
        );
        assert!(!block.timer.is_linked() && !block.waiter.word.is_armed());
        assert!(!block.is_done() && !block.is_cancelled() && block.extra().is_none());
        assert_eq!((block.id(), block.refs.load(Relaxed)), (0, 0));
        assert_eq!(block.read(|| block.kind.load(Relaxed)), Some(0));
    }
}
