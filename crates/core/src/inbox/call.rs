//! A call to the owner of an inbox to look at something: any number of callers, one link.
//!
//! Owns: the link and whether it is under way. Any thread raises; the owner answers.
//!
//! Invariants
//! - I1. The link is in the inbox at most once: the raiser that sets `raised` has it, the owner clears `raised` when the link
//!   is out.
//!
//! Why no call is lost: what a caller did before it raised is seen by the owner after the answer. A raiser that finds the
//! call raised comes before the owner's answer in the order of that one byte, and the answer reads what it wrote.
#![expect(unsafe_code, reason = "hands a shared link to an inbox")]

use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::AcqRel;

use crate::facade::{AtomicU8, const_unless_loom};
use crate::inbox::{Inbox, Link, Push};

/// See the file's head.
#[repr(C)]
pub struct Call {
    link: Link,
    raised: AtomicU8,
}

impl Call {
    const_unless_loom! {
        /// A call that nobody has raised.
        pub fn new() -> Self {
            Self { link: Link::new(), raised: AtomicU8::new(0) }
        }
    }

    /// Calls the inbox's owner, from any thread, unless a call is under way.
    ///
    /// # Safety
    ///
    /// As for [`Inbox::push`]: the call stays in place until it has been answered. It is always the same inbox.
    pub unsafe fn raise(&self, inbox: &Inbox, tag: usize) -> Push {
        // SAFETY: passed on to the caller.
        unsafe { self.raise_with(inbox, tag, || {}) }
    }

    /// As [`raise`](Self::raise); calls `give` before, if the call is not under way: what that leaves, a counted reference for one, is the
    /// owner's for this one answer.
    ///
    /// # Safety
    ///
    /// As for [`raise`](Self::raise).
    pub unsafe fn raise_with(&self, inbox: &Inbox, tag: usize, give: impl FnOnce()) -> Push {
        // ORDERING: Release: pairs with the Acquire of `answer`, which sees what the caller left to be looked at.
        // Acquire: the link is this thread's after the owner's answer.
        if self.raised.swap(1, AcqRel) != 0 {
            return Push::Queued;
        }
        give();
        // SAFETY: I1; the rest is passed on to the caller.
        unsafe { inbox.push(NonNull::from(&self.link), tag) }
    }

    /// The link by which the owner finds the call in its inbox.
    pub fn of_link(link: NonNull<Link>) -> NonNull<Self> {
        link.cast()
    }

    /// The owner has taken the link out of its inbox, and looks after this.
    pub fn answer(&self) {
        // ORDERING: AcqRel pairs with the swap in `raise`.
        self.raised.swap(0, AcqRel);
    }
}

impl Default for Call {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}
