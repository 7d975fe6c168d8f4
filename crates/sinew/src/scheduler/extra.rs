//! What only few coroutines need, allocated when first asked for: a name, a cancel token, a stack size, the
//! coroutine's locals.
//!
//! Owns: these. Freed with the block. Thread: any that holds a reference to the block.
#![expect(
    unsafe_code,
    reason = "finds itself from the link that a cancel is posted by"
)]

use std::cell::Cell;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::sync::{Arc, OnceLock};

use sinew_context::stack::StackConfig;
use sinew_core::inbox::{Call, Link};

use crate::cancel::{CancelToken, Key, Times};
use crate::local::Locals;
use crate::scheduler::block::Block;
use crate::scheduler::limit::Limit;
use crate::scope::Family;

/// The rarely needed part of a control block.
pub(crate) struct Extra {
    /// The block it belongs to.
    pub(crate) block: NonNull<Block>,
    /// By which a cancel from another thread comes into the owner's inbox, with a counted reference to the block.
    pub(crate) cancel_call: Call,
    pub(crate) name: OnceLock<Arc<str>>,
    pub(crate) stack: OnceLock<StackConfig>,
    /// Whether the stack is to be without memory at the start.
    pub(crate) clean_stack: AtomicBool,
    pub(crate) token: OnceLock<(CancelToken, Key)>,
    /// When it was told of its cancel, and when it ended.
    pub(crate) times: Times,
    /// The limits that the coroutine is inside of, the innermost first. Owner thread.
    pub(crate) limits: Cell<*const Limit>,
    /// The scope that it is a child of.
    pub(crate) family: FamilyLink,
    /// Owner thread; empty from the coroutine's end on.
    pub(crate) locals: Locals,
}

/// Which scope a coroutine is a child of. The owner thread alone changes it, and follows it; for others it is an identity.
#[derive(Debug)]
pub(crate) struct FamilyLink(AtomicPtr<Family>);

impl FamilyLink {
    const fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub(crate) fn get(&self) -> Option<NonNull<Family>> {
        NonNull::new(self.0.load(Relaxed))
    }

    /// Owner thread.
    pub(crate) fn set(&self, family: NonNull<Family>) {
        self.0.store(family.as_ptr(), Relaxed);
    }

    /// Owner thread.
    pub(crate) fn take(&self) -> Option<NonNull<Family>> {
        let family = self.get();
        self.0.store(std::ptr::null_mut(), Relaxed);
        family
    }
}

// SAFETY: the block pointer is an identity and is followed only by those that hold a reference; the link has
// the inbox's rules; the locals are the owner thread's, and gone when the coroutine has ended; the rest is shareable.
unsafe impl Send for Extra {}
// SAFETY: as above.
unsafe impl Sync for Extra {}

impl Extra {
    pub(crate) fn new(block: NonNull<Block>) -> Self {
        Self {
            block,
            cancel_call: Call::new(),
            name: OnceLock::new(),
            stack: OnceLock::new(),
            clean_stack: AtomicBool::new(false),
            token: OnceLock::new(),
            times: Times::new(),
            limits: Cell::new(std::ptr::null()),
            family: FamilyLink::new(),
            locals: Locals::new(),
        }
    }

    /// The extra part that this link is part of.
    ///
    /// # Safety
    ///
    /// The link is that of the cancel call of an extra part.
    pub(crate) unsafe fn of_cancel_link(link: NonNull<Link>) -> NonNull<Self> {
        // SAFETY: inside an extra part, at this offset.
        unsafe { Call::of_link(link).byte_sub(offset_of!(Self, cancel_call)) }.cast()
    }
}
