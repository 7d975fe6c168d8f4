//! The temporary memory of a coroutine, or of a thread's plain code.
//!
//! Owns: the memory, through bumpalo. Thread: its own; an [`Arena`] is neither `Send` nor `Sync`.
//!
//! Invariants
//! - I1. Nothing in the arena needs a drop, except what [`Arena::keep`] put there, which is dropped once by a cleanup.
//! - I2. References to and into the arena are good inside of [`with`] only: the lifetime that it hands out is none that
//!   anything outside could name. It is freed when no `with` is left: at the coroutine's end, or when the thread's outermost
//!   one returns.
#![expect(unsafe_code, reason = "drops values that lie in raw memory")]

use std::ffi::c_void;
use std::fmt;
use std::mem::needs_drop;
use std::panic::resume_unwind;
use std::ptr::{self, NonNull};

use bumpalo::Bump;
use sinew_context::unwind::catch_to_pass_on;

use crate::coroutine::cleanup::{Cleanups, Node};
use crate::coroutine::estate::Estate;
use crate::scheduler::body::drop_payload;

/// Memory that is freed whole; see [`with`].
pub struct Arena {
    memory: Bump,
    /// Those of the estate that it is part of.
    cleanups: NonNull<Cleanups>,
}

/// Calls `f` with the arena of the current coroutine, or of the thread where there is none.
///
/// Each coroutine has one of its own, a stand-alone one and one of a scheduler alike; it takes memory at the first use, and is
/// freed whole when the coroutine ends. What `f` makes in it can be used across suspends, as long as that is inside of `f`, and
/// cannot get out of it. Every `with` of a coroutine has the same arena.
///
/// A plain thread has one too. Its end may be far, so it is freed as soon as no `with` is left on that thread: when the
/// outermost one returns.
///
/// # Suspends
///
/// Never by itself.
///
/// # Panics
///
/// With the panic of `f`; on a plain thread with the first panic of the drop of a value that was [kept](Arena::keep).
///
/// # Examples
///
/// ```
/// use sinew::coroutine::arena;
///
/// let total = arena::with(|a| {
///     let words: &[&str] = a.alloc_slice_copy(&["one", "two"]);
///     let joined: &mut str = a.alloc_str("three");
///     joined.make_ascii_uppercase();
///     words.len() + joined.len()
/// });
/// assert_eq!(total, 7);
/// ```
pub fn with<R>(f: impl for<'x> FnOnce(&'x Arena) -> R) -> R {
    Estate::with_current(|estate| match estate {
        Some(estate) if estate.is_thread => within_thread(estate, f),
        Some(estate) => f(estate.arena()),
        None => Estate::with_temporary(|estate| within_thread(estate, f)),
    })
}

/// The same for a thread: the last one out frees the memory.
fn within_thread<R>(estate: &Estate, f: impl for<'x> FnOnce(&'x Arena) -> R) -> R {
    let depth = &estate.arena_depth;
    depth.set(depth.get() + 1);
    let result = catch_to_pass_on(|| f(estate.arena()));
    let panic = if depth.get() == 1 {
        // A kept value's destructor that uses the arena finds it, and is not the outermost.
        let panic = estate.run_cleanups();
        // SAFETY: I2: this is the outermost.
        unsafe { estate.free_arena() };
        panic
    } else {
        None
    };
    depth.set(depth.get() - 1);
    match (result, panic) {
        (Ok(value), None) => value,
        (Ok(value), Some(payload)) => {
            drop(value);
            resume_unwind(payload)
        }
        (Err(payload), second) => {
            if let Some(second) = second {
                drop_payload(second);
            }
            resume_unwind(payload)
        }
    }
}

impl Arena {
    pub(super) fn new(cleanups: NonNull<Cleanups>) -> Self {
        Self {
            memory: Bump::new(),
            cleanups,
        }
    }

    /// Moves a value that needs no drop into the arena. One that needs one is refused at compile time: it would not be
    /// dropped. For those there is [`Arena::keep`].
    ///
    /// # Panics
    ///
    /// If there is no memory.
    ///
    /// # Examples
    ///
    /// ```compile_fail,E0080
    /// sinew::coroutine::arena::with(|a| {
    ///     a.alloc(String::from("needs a drop"));
    /// });
    /// ```
    pub fn alloc<T>(&self, value: T) -> &mut T {
        const {
            assert!(
                !needs_drop::<T>(),
                "the arena does not drop what `alloc` puts into it: use `keep`"
            );
        }
        self.memory.alloc(value)
    }

    /// Copies text into the arena.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    pub fn alloc_str(&self, text: &str) -> &mut str {
        self.memory.alloc_str(text)
    }

    /// Copies a slice into the arena.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    pub fn alloc_slice_copy<T: Copy>(&self, slice: &[T]) -> &mut [T] {
        self.memory.alloc_slice_copy(slice)
    }

    /// Makes a slice of `len` values that need no drop, each by a call of `f` with its index.
    ///
    /// # Panics
    ///
    /// If there is no memory; with the panic of `f`.
    pub fn alloc_slice_fill_with<T>(&self, len: usize, f: impl FnMut(usize) -> T) -> &mut [T] {
        const {
            assert!(
                !needs_drop::<T>(),
                "the arena does not drop what it holds: use `keep`"
            );
        }
        self.memory.alloc_slice_fill_with(len, f)
    }

    /// Moves a value into the arena that is dropped by a cleanup: at the coroutine's end, in one order with its
    /// [deferred](super::cleanup::defer) closures, the last first; on a plain thread before its arena is freed. It
    /// borrows nothing, since what it borrowed might go earlier.
    ///
    /// In its drop nothing may wait, as in every cleanup.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    #[expect(clippy::mut_from_ref, reason = "each value has memory of its own")]
    pub fn keep<T: 'static>(&self, value: T) -> &mut T {
        let value = NonNull::from(self.memory.alloc(value));
        if needs_drop::<T>() {
            let node = NonNull::from(self.memory.alloc(Node::new()));
            // SAFETY: the cleanups are of the estate that this is part of.
            let cleanups = unsafe { self.cleanups.as_ref() };
            // SAFETY: new, and in place until the arena is freed, which is after the cleanups; the value borrows nothing,
            // and I1, I2: nobody uses it any more when the cleanups run.
            unsafe { cleanups.link(node, drop_value::<T>, value.as_ptr().cast()) };
        }
        let value = value.as_ptr();
        // SAFETY: just made, and this is the only reference.
        unsafe { &mut *value }
    }

    /// How many bytes the arena has taken from the allocator.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.memory.allocated_bytes()
    }
}

/// Drops a kept value.
unsafe extern "C-unwind" fn drop_value<T>(value: *mut c_void) {
    // SAFETY: `keep` passed a value of this type, and a cleanup runs once.
    unsafe { ptr::drop_in_place(value.cast::<T>()) };
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("allocated_bytes", &self.allocated_bytes())
            .finish_non_exhaustive()
    }
}
