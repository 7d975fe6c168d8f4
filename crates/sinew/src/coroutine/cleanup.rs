//! Cleanups: what runs at a coroutine's end, the last first.
//!
//! Owns: the stack of nodes of one estate. Thread: its own.
//!
//! Invariants
//! - I1. A linked node is alive and in place; its `call` is set exactly while it is linked.
//! - I2. A node is unlinked before its cleanup runs, so each runs at most once, and may push itself again.
//!
//! | made by | memory | runs |
//! |---|---|---|
//! | [`defer`] | one allocation, freed when it has run | at the coroutine's end |
//! | [`push`] | the caller's node | at the coroutine's end, or by [`pop`] |
//! | [`Arena::keep`](super::arena::Arena::keep) | the arena | at the coroutine's end |
//! | [`with`] | none: its frame runs it | when its body ends |
//!
//! The first three are on one stack. `with` needs no place on it: its body ends before the coroutine does.
#![expect(unsafe_code, reason = "runs functions on memory of the caller's")]

use std::cell::Cell;
use std::error::Error as StdError;
use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};

use sinew_context::unwind::catch_to_pass_on;

use crate::coroutine::estate::Estate;
use crate::scheduler::body::{drop_payload, drop_quietly};
use crate::scheduler::current::in_cleanup;
use crate::scheduler::forced;

/// What a cleanup calls, with the pointer that it was pushed with. It may unwind.
pub type CleanupFn = unsafe extern "C-unwind" fn(data: *mut c_void);

/// A caller's place for one cleanup; see [`push`]. All zero is as good as [`Node::INIT`].
#[repr(C)]
pub struct Node {
    below: Cell<*const Node>,
    /// `None`: not linked.
    call: Cell<Option<CleanupFn>>,
    data: Cell<*mut c_void>,
    /// What frees an unrun cleanup that owns its memory.
    discard: Cell<Option<CleanupFn>>,
}

impl Node {
    /// A node that is not in use.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "a value to initialise places with"
    )]
    pub const INIT: Self = Self::new();

    /// A node that is not in use.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            below: Cell::new(ptr::null()),
            call: Cell::new(None),
            data: Cell::new(ptr::null_mut()),
            discard: Cell::new(None),
        }
    }

    /// Whether it is on a coroutine's stack of cleanups.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.call.get().is_some()
    }
}

impl Default for Node {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("is_linked", &self.is_linked())
            .finish_non_exhaustive()
    }
}

/// A cleanup that was taken off its stack: to be run, or discarded.
pub(super) struct Cleanup {
    call: CleanupFn,
    discard: Option<CleanupFn>,
    data: *mut c_void,
}

impl Cleanup {
    pub(super) fn run(self) {
        // SAFETY: whoever linked it vouched for this call, which I2 makes once.
        unsafe { (self.call)(self.data) };
    }

    fn discard(self) {
        if let Some(discard) = self.discard {
            // SAFETY: as for `run`; instead of it.
            unsafe { discard(self.data) };
        }
    }
}

/// The stack of cleanups.
pub(crate) struct Cleanups {
    top: Cell<*const Node>,
}

impl Cleanups {
    pub(super) const fn new() -> Self {
        Self {
            top: Cell::new(ptr::null()),
        }
    }

    /// Puts a node on top.
    ///
    /// # Safety
    ///
    /// The node is not linked and stays in place until it is popped; `call(data)` is sound once, at any time until
    /// the coroutine has ended.
    pub(super) unsafe fn link(&self, node: NonNull<Node>, call: CleanupFn, data: *mut c_void) {
        // SAFETY: the caller's node is alive.
        let linked = unsafe { node.as_ref() };
        linked.call.set(Some(call));
        linked.data.set(data);
        linked.below.set(self.top.replace(node.as_ptr()));
    }

    /// Takes the topmost off.
    pub(super) fn pop(&self) -> Option<Cleanup> {
        // SAFETY: I1.
        let node = unsafe { self.top.get().as_ref() }?;
        self.top.set(node.below.replace(ptr::null()));
        Some(Cleanup {
            call: node.call.take()?,
            discard: node.discard.take(),
            data: node.data.replace(ptr::null_mut()),
        })
    }
}

/// A deferred closure with its node.
#[repr(C)]
struct Deferred<F> {
    node: Node,
    closure: F,
}

/// Runs a deferred closure.
unsafe extern "C-unwind" fn run_deferred<F: FnOnce()>(deferred: *mut c_void) {
    // SAFETY: made by `try_defer` from a box of this type; this is its last use.
    let deferred = unsafe { Box::from_raw(deferred.cast::<Deferred<F>>()) };
    (deferred.closure)();
}

/// Drops a deferred closure unrun.
unsafe extern "C-unwind" fn drop_deferred<F>(deferred: *mut c_void) {
    // SAFETY: as for `run_deferred`.
    drop(unsafe { Box::from_raw(deferred.cast::<Deferred<F>>()) });
}

/// Runs `f` when the current coroutine ends: not when the scope ends that this is called in.
///
/// It runs on every way to the end: return, panic, confirmed cancel, forced unwind. Cleanups run the last first, when
/// the coroutine's closure has returned or unwound and its destructors have run. One that is deferred by another runs next.
/// If one panics the rest still run; unless the coroutine had panicked itself, the first such panic is its outcome.
///
/// In a cleanup nothing may wait or suspend: that fails with `State` and changes nothing. Nor can a cancel be
/// confirmed there.
///
/// # Suspends
///
/// Never.
///
/// # Panics
///
/// On a plain thread, on a scheduler's own frame, and when the coroutine's cleanups are over: there is no end that it could
/// run at. [`try_defer`] returns that.
///
/// # Examples
///
/// ```
/// use std::cell::RefCell;
/// use std::rc::Rc;
///
/// let order = Rc::new(RefCell::new(Vec::new()));
/// let say = |word: &'static str| {
///     let order = Rc::clone(&order);
///     move || order.borrow_mut().push(word)
/// };
/// sinew::run(|| {
///     sinew::defer(say("last"));
///     {
///         sinew::defer(say("second"));
///     }
///     say("first")();
/// });
/// assert_eq!(*order.borrow(), ["first", "second", "last"]);
/// ```
#[track_caller]
pub fn defer<F: FnOnce() + 'static>(f: F) {
    if let Err(error) = try_defer(f) {
        panic!("{error}");
    }
}

/// As [`defer`], where it is not certain that a coroutine runs.
///
/// # Errors
///
/// `f` comes back on a plain thread, on a scheduler's own frame, and when the coroutine's cleanups are over.
pub fn try_defer<F: FnOnce() + 'static>(f: F) -> Result<(), DeferError<F>> {
    Estate::with_current(|estate| {
        let Some(estate) = estate.filter(|estate| !estate.is_thread) else {
            return Err(DeferError { closure: f });
        };
        let deferred = Box::into_raw(Box::new(Deferred {
            node: Node::new(),
            closure: f,
        }));
        // SAFETY: just made.
        let node = unsafe { &(*deferred).node };
        node.discard.set(Some(drop_deferred::<F>));
        let node = NonNull::from(node);
        estate.touch();
        // SAFETY: new, and in place until one of its functions frees it, once; the closure borrows nothing.
        unsafe {
            estate
                .cleanups
                .link(node, run_deferred::<F>, deferred.cast())
        };
        Ok(())
    })
}

/// Runs `body`, then `cleanup`, on whatever way `body` ends: return, panic, forced unwind. Returns the value of `body`.
///
/// Works on plain threads too. Nothing is allocated. What `body` defers is not run here, but at the coroutine's end, as it
/// would be without this.
///
/// In `cleanup` nothing may wait or suspend: that fails with `State` and changes nothing. Nor can a cancel be
/// confirmed there.
///
/// # Suspends
///
/// Never by itself; `body` may.
///
/// # Panics
///
/// With the panic of `body`; otherwise with that of `cleanup`.
///
/// # Examples
///
/// ```
/// use sinew::coroutine::cleanup;
///
/// let mut depth = 1;
/// let seen = cleanup::with(|| depth -= 1, || "inside");
/// assert_eq!((seen, depth), ("inside", 0));
/// ```
pub fn with<R>(cleanup: impl FnOnce(), body: impl FnOnce() -> R) -> R {
    // Caught, rather than run by a destructor: a cleanup that panics while the body's panic unwinds would end the process.
    let result = catch_to_pass_on(body);
    let panic = catch_unwind(AssertUnwindSafe(|| in_cleanup(cleanup))).err();
    match (result, panic) {
        (Ok(value), None) => value,
        (Ok(value), Some(payload)) => {
            if let Some(second) = drop_quietly(value) {
                drop_payload(second);
            }
            resume_unwind(payload)
        }
        // A forced unwind is no panic: the cleanup's is the first.
        (Err(payload), Some(first)) if forced::is_forced(&*payload) => resume_unwind(first),
        (Err(payload), second) => {
            if let Some(second) = second {
                drop_payload(second);
            }
            resume_unwind(payload)
        }
    }
}

/// Puts a cleanup on top of the current coroutine's, in a node of the caller's: nothing is allocated.
///
/// It runs `call(data)` at the coroutine's end, in one order with what is [deferred](defer), the last first, unless it is
/// [popped](pop) before.
///
/// # Suspends
///
/// Never.
///
/// # Errors
///
/// [`CleanupError::State`] where no coroutine runs, [`CleanupError::Linked`] if the node is in use. Nothing has changed.
///
/// # Safety
///
/// - `node` points to a node that was made by [`Node::new`], is [`Node::INIT`], or is all zero, and has been changed by nothing
///   but this module since. It stays in place, and is not moved, until it is popped or the coroutine has ended.
/// - `call(data)` is sound, once, on this thread, at any time until the coroutine has ended. By then the frames of its
///   closure are gone, so neither the node nor what `data` points to lies in one of them, unless it is popped on every
///   way out of that frame.
pub unsafe fn push(
    node: NonNull<Node>,
    call: CleanupFn,
    data: *mut c_void,
) -> Result<(), CleanupError> {
    // SAFETY: passed on to the caller.
    if unsafe { node.as_ref() }.is_linked() {
        return Err(CleanupError::Linked);
    }
    Estate::with_current(|estate| {
        let estate = estate
            .filter(|estate| !estate.is_thread)
            .ok_or(CleanupError::State)?;
        estate.touch();
        // SAFETY: not linked; the rest is passed on to the caller.
        unsafe { estate.cleanups.link(node, call, data) };
        Ok(())
    })
}

/// Takes the topmost cleanup of the current coroutine off, of whatever kind, and runs it if `run` says so; else it is
/// dropped unrun. If it was [pushed](push) its node is free again.
///
/// # Suspends
///
/// Never; while the cleanup runs, nothing may wait or suspend.
///
/// # Errors
///
/// [`CleanupError::State`] where no coroutine runs, [`CleanupError::Empty`] if there is no cleanup.
///
/// # Panics
///
/// With the panic of the cleanup, or of the drop of a deferred closure.
///
/// # Safety
///
/// The topmost cleanup is the caller's to take: whoever made it does not rely on its run at the coroutine's end. Safe code
/// relies on no [deferred](defer) closure for soundness; but a value that was
/// [kept](super::arena::Arena::keep) in the arena is dropped by its cleanup, so it must not be used afterwards.
pub unsafe fn pop(run: bool) -> Result<(), CleanupError> {
    let cleanup = Estate::with_current(|estate| {
        let estate = estate
            .filter(|estate| !estate.is_thread)
            .ok_or(CleanupError::State)?;
        estate.cleanups.pop().ok_or(CleanupError::Empty)
    })?;
    if run {
        in_cleanup(|| cleanup.run());
    } else {
        cleanup.discard();
    }
    Ok(())
}

/// Why a cleanup was not pushed or popped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CleanupError {
    /// No coroutine runs here, or its cleanups are over.
    State,
    /// The node is in use.
    Linked,
    /// There is no cleanup.
    Empty,
}

impl fmt::Display for CleanupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::State => "no coroutine runs here that a cleanup could be of",
            Self::Linked => "the node holds a cleanup already: pop it first",
            Self::Empty => "the coroutine has no cleanup that could be popped",
        })
    }
}

impl StdError for CleanupError {}

/// A closure could not be deferred; it comes back.
pub struct DeferError<F> {
    closure: F,
}

impl<F> DeferError<F> {
    /// The closure; it has not run.
    pub fn into_inner(self) -> F {
        self.closure
    }
}

impl<F> fmt::Debug for DeferError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferError").finish_non_exhaustive()
    }
}

impl<F> fmt::Display for DeferError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no coroutine runs here whose end a closure could be deferred to")
    }
}

impl<F> StdError for DeferError<F> {}
