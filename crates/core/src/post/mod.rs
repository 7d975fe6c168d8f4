//! The queue of posts: what other threads hand to one owner to be done there, in the order of acceptance.
//!
//! Owns: a bounded first-in-first-out list that can be closed. Any thread offers and closes; the owner takes.
//!
//! Invariants
//! - I1. An item is accepted or comes back, as one decision under the lock. Nothing is accepted after the close.
//! - I2. What was accepted is taken in the order of acceptance, by whoever takes, also after the close.
//! - I3. `len` counts the accepted items that have not been taken, and is at most the limit: a place is free as soon as its
//!   item is out, before anything is done with it.
//!
//! Under the lock a few words change: the memory of an item is allocated before and freed after. The owner is told by
//! [`crate::inbox::Call`], which costs the inbox one link for any number of posts.
//! Checked by `tests/loom_post.rs`.
#![expect(unsafe_code, reason = "a list with a pointer to its last link")]

use alloc::boxed::Box;
use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::Relaxed;

use crate::facade::{AtomicU64, const_unless_loom};
use crate::lock::Lock;

/// Why an item was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// As many items wait as may.
    Full,
    /// The queue is closed for ever.
    Closed,
}

/// An accepted item in the list.
struct Post<T> {
    next: *mut Self,
    item: T,
}

/// What the lock guards.
struct State<T> {
    head: *mut Post<T>,
    tail: *mut Post<T>,
    len: u64,
    closed: bool,
}

// SAFETY: the list owns its items.
unsafe impl<T: Send> Send for State<T> {}

/// The queue; see the file's head.
pub struct PostQueue<T> {
    state: Lock<State<T>>,
    limit: u64,
    /// `State::len`, for looks without the lock.
    len: AtomicU64,
}

impl<T> PostQueue<T> {
    const_unless_loom! {
        /// An open, empty queue for at most `limit` items.
        pub fn new(limit: u64) -> Self {
            Self {
                state: Lock::new(State {
                    head: ptr::null_mut(),
                    tail: ptr::null_mut(),
                    len: 0,
                    closed: false,
                }),
                limit,
                len: AtomicU64::new(0),
            }
        }
    }

    /// Appends an item, from any thread; what is refused comes back.
    ///
    /// # Errors
    ///
    /// The item, with the reason, if the queue is full or closed.
    pub fn offer(&self, item: T) -> Result<(), (Refusal, T)> {
        let post = Box::new(Post {
            next: ptr::null_mut(),
            item,
        });
        let mut state = self.state.lock();
        let refusal = if state.closed {
            Refusal::Closed
        } else if state.len >= self.limit {
            Refusal::Full
        } else {
            let post = NonNull::from(Box::leak(post)).as_ptr();
            match NonNull::new(state.tail) {
                // SAFETY: the list owns its last item, which is alive.
                Some(tail) => unsafe { (*tail.as_ptr()).next = post },
                None => state.head = post,
            }
            state.tail = post;
            state.len += 1;
            self.len.store(state.len, Relaxed);
            return Ok(());
        };
        drop(state);
        Err((refusal, post.item))
    }

    /// Takes the oldest item out; its place is free at once.
    pub fn take(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut state = self.state.lock();
        let head = NonNull::new(state.head)?;
        // SAFETY: the list owns its items; this one is taken out here.
        let next = unsafe { head.as_ref() }.next;
        state.head = next;
        if next.is_null() {
            state.tail = ptr::null_mut();
        }
        state.len -= 1;
        self.len.store(state.len, Relaxed);
        drop(state);
        // SAFETY: made by `offer` out of a box, and out of the list now.
        Some(unsafe { Box::from_raw(head.as_ptr()) }.item)
    }

    /// Refuses everything from now on. What was accepted stays, to be taken.
    pub fn close(&self) {
        self.state.lock().closed = true;
    }

    /// Closes the queue if nothing waits in it; says whether it is closed and empty now.
    #[must_use]
    pub fn close_if_empty(&self) -> bool {
        let mut state = self.state.lock();
        let empty = state.len == 0;
        state.closed |= empty;
        empty
    }

    /// Whether everything is refused.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// How many items wait. As of now for the owner as to what it was told of; a hint for others.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    /// Whether no item waits, as [`PostQueue::len`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Drop for PostQueue<T> {
    fn drop(&mut self) {
        while self.take().is_some() {}
    }
}

impl<T> fmt::Debug for PostQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostQueue")
            .field("len", &self.len())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
