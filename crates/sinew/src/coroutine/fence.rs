//! A fence: while it stands, the stand-alone coroutine that raised it cannot suspend.
//!
//! Owns: nothing but one count in the record. For code that links its frame into a chain of the thread or of the scheduler's
//! coroutine (limits, scopes), or keeps who waits (`block_on`): were the coroutine suspended meanwhile, the chain would name a frame that nobody is in, and
//! frames would leave it out of order.
#![expect(unsafe_code, reason = "follows the owner of a stack")]

use std::ptr::{self, NonNull};

use sinew_context::arch::stack_pointer;
use sinew_context::stack::{lookup, owner_of};

use crate::coroutine::control::{self, Control};

/// See the file's head. Dropped in the coroutine that raised it.
#[derive(Debug)]
#[must_use = "the fence falls when this is dropped"]
pub(crate) struct Fence {
    control: Option<NonNull<Control>>,
}

impl Fence {
    /// Raises a fence, if the caller runs on a stand-alone coroutine's stack.
    pub(crate) fn raise() -> Self {
        let owner = lookup(stack_pointer()).and_then(owner_of);
        let control = owner
            .filter(|(_, describe)| ptr::fn_addr_eq(*describe, control::DESCRIBE))
            .and_then(|(owner, _)| NonNull::new(owner.cast_mut().cast::<Control>()));
        if let Some(control) = control {
            // SAFETY: the record outlives its stack, on which the caller runs.
            unsafe { control.as_ref() }.raise_fence();
        }
        Self { control }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        if let Some(control) = self.control {
            // SAFETY: as above: it could not suspend, so it still runs here.
            unsafe { control.as_ref() }.lower_fence();
        }
    }
}
