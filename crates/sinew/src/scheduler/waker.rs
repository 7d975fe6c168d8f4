//! Wakers of coroutines: a `std` [`Waker`] that is a counted reference to a block and nothing else.
//!
//! Owns: the table of functions. Any thread.
//!
//! A waker allocates nothing. It may outlive its coroutine by any time: its count keeps the block from being used again.
#![expect(unsafe_code, reason = "a counted block behind a raw waker")]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::park;
use crate::scheduler::block::{Block, BlockRef};
use crate::scheduler::park_cell::Stop;

/// More counts than a process can have use for: somebody clones wakers and forgets them, and the count is not to overflow.
const COUNT_MAX: u32 = u32::MAX / 2;

static TABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_count);

/// The waker of a coroutine, lent: valid as long as the coroutine runs the caller's code. Its clones count.
pub(crate) fn lend(block: &Block) -> ManuallyDrop<Waker> {
    // SAFETY: the table's functions do what a waker's must; the count that `drop` would give back is not given back.
    ManuallyDrop::new(unsafe { Waker::new(std::ptr::from_ref(block).cast(), &TABLE) })
}

/// Whether this is the waker of that coroutine.
#[inline]
pub(crate) fn is_of(waker: &Waker, block: &Block) -> bool {
    std::ptr::eq(waker.data(), std::ptr::from_ref(block).cast())
        && std::ptr::eq(waker.vtable(), &TABLE)
}

/// # Safety
///
/// `data` is from a live waker, or a lent one in its time.
unsafe fn block<'a>(data: *const ()) -> &'a Block {
    // SAFETY: counted, or running.
    unsafe { &*data.cast::<Block>() }
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: passed on.
    let block = unsafe { block(data) };
    if block.refs.fetch_add(1, Relaxed) > COUNT_MAX {
        std::process::abort();
    }
    RawWaker::new(data, &TABLE)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the waker's count is given away here.
    let block = unsafe { adopt(data) };
    park::signal(&block, Stop::Poll);
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: passed on.
    park::signal(unsafe { block(data) }, Stop::Poll);
}

unsafe fn drop_count(data: *const ()) {
    // SAFETY: the waker's count is given back here.
    drop(unsafe { adopt(data) });
}

/// # Safety
///
/// The caller gives a waker's count away.
unsafe fn adopt(data: *const ()) -> BlockRef {
    // SAFETY: a waker's data is a block's address.
    let block = unsafe { NonNull::new_unchecked(data.cast_mut().cast::<Block>()) };
    // SAFETY: passed on to the caller.
    unsafe { BlockRef::adopt(block) }
}
