//! Who wakes, and whom it knows to be near.
//!
//! Owns: nothing. Thread: the waker's.
//!
//! A waiter says by its [`Ways`](super::Ways) whether it goes on on the calling thread, and how it is made runnable: two calls through
//! pointers, each of which finds out anew what runs on this thread. A party of a scheduler knows that already, and tells by a look at
//! the waiter whether it is of the same one.
#![expect(unsafe_code, reason = "claims and wakes without asking the waiter")]

use core::ptr::NonNull;

use crate::wait::node::Waiter;

/// A party that wakes others.
///
/// # Safety
///
/// - What [`is_near`](Self::is_near) says yes to goes on on the calling thread, where alone its timers and cancels claim it.
/// - [`wake_near`](Self::wake_near) makes such a waiter runnable as [`Waiter::wake`] does.
pub unsafe trait Waking {
    /// Whether the waiter, which is alive, is known to go on on the calling thread. It may be and not be known.
    fn is_near(&self, waiter: NonNull<Waiter>) -> bool;

    /// Makes a waiter that [is near](Self::is_near) runnable.
    ///
    /// # Safety
    ///
    /// It is near, and as for [`Waiter::wake`].
    unsafe fn wake_near(&self, waiter: NonNull<Waiter>);
}

/// A party that knows nobody, and asks each waiter.
#[derive(Debug, Clone, Copy)]
pub struct Anyone;

// SAFETY: nobody is near.
unsafe impl Waking for Anyone {
    #[inline(always)]
    fn is_near(&self, _: NonNull<Waiter>) -> bool {
        false
    }

    unsafe fn wake_near(&self, waiter: NonNull<Waiter>) {
        // SAFETY: passed on to the caller.
        unsafe { Waiter::wake(waiter) };
    }
}

/// Whether an operation that may wait has waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// It came about at once.
    AtOnce,
    /// The party has been suspended for it.
    Waited,
}
