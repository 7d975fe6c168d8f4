//! What will be touched soon, brought into the cache while the kernel works for somebody else.
//!
//! Owns: nothing. Thread: the scheduler's.
//!
//! Between two turns of one of a thousand connections the kernel's work for the others has driven its coroutine out of the cache: the
//! control block, the frames that it returns through, the line of the page table. To miss these one after the other is a tenth of
//! what a request costs there. So whoever stops for a descriptor has the frames of the second in line fetched, and the block of the third, of which the
//! next one will need the stack pointer.
#![expect(unsafe_code, reason = "looks at the chain of ready coroutines")]

use std::mem::offset_of;
use std::ptr::NonNull;

use sinew_core::wait::Node;

use crate::scheduler::Scheduler;
use crate::scheduler::block::Block;
use crate::sys::ahead::prefetch;

const LINE_BYTES: usize = 64;
/// How many lines of a stack, from the top: the frames from a wait to the code that called for it.
const STACK_LINES: usize = 10;

impl Scheduler {
    /// The current coroutine is about to stop for a descriptor.
    #[inline]
    pub(crate) fn foresee(&self) {
        let second = self.ready.peek().and_then(|first| self.ready.after(first));
        let Some(second) = second else {
            return;
        };
        // SAFETY: a queued block is alive.
        let context = unsafe { second.as_ref() }.context.get();
        // SAFETY: owner thread; it does not run.
        let top = unsafe { (*context).sp };
        for line in 0..STACK_LINES {
            let address = std::ptr::without_provenance(top.wrapping_add(line * LINE_BYTES));
            prefetch(address);
        }
        if let Some(third) = self.ready.after(second) {
            prefetch_block(third);
        }
    }
}

/// The lines of a block that a wait touches.
#[inline]
fn prefetch_block(block: NonNull<Block>) {
    for offset in [0, offset_of!(Block, context), offset_of!(Block, object)] {
        prefetch(block.as_ptr().cast::<u8>().wrapping_add(offset));
    }
}

impl Block {
    /// Has fetched what a wake touches of a block, given its node: of a coroutine that waits for one thing only.
    #[inline]
    pub(crate) fn prefetch_waiting(node: *const Node) {
        if !node.is_null() {
            prefetch(node.cast());
            // If it is not in a block, it is a hint for nothing.
            prefetch(node.cast::<u8>().wrapping_sub(offset_of!(Self, node)));
        }
    }
}
