//! What the runtime keeps for one coroutine, or for a thread's plain code, and settles at its end: cleanups, error, arena.
//!
//! Owns: these. A coroutine's estate lies at the base of its stack, above the first frame, so it costs no allocation; a
//! thread's is a thread-local ([`crate::scheduler::current`]).
//! Thread: its own.
//!
//! ```text
//!  base        highest address of the stack
//!  base - 64   the estate
//!  base - 72   the first frame, see `sinew_context::frame`
//! ```
//!
//! Invariants
//! - I1. Every stack whose owner is described by one of the crate's two functions has an estate at its base.
//! - I2. An estate is used only while its coroutine's closure runs, or its end is being settled: not `is_over`. Between two
//!   coroutines on the same stack it is empty.
//! - I3. No borrow of the estate's parts is held while user code runs; the arena is freed when no reference to it is left.
//!
//! The current estate is found by the stack pointer: the innermost coroutine is the one on whose stack the code runs.
//! Nothing is written for it at a resume or a suspend.
#![expect(
    unsafe_code,
    reason = "finds itself by the stack pointer, and frees the arena in place"
)]

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use sinew_context::arch::stack_pointer;
use sinew_context::stack;

use crate::coroutine::arena::Arena;
use crate::coroutine::cleanup::Cleanups;
use crate::coroutine::control::{self, Control};
use crate::coroutine::fence::Fence;
use crate::coroutine::task_estate::TaskEstate;
use crate::error::Error;
use crate::scheduler::body::{Payload, drop_payload};
use crate::scheduler::current::{self, Place, in_cleanup, place};
use crate::scheduler::{describe, forced};

/// See the file's head.
#[repr(align(64))]
pub(crate) struct Estate {
    /// Whether there may be something to settle.
    used: Cell<bool>,
    /// Whether the coroutine has ended.
    is_over: Cell<bool>,
    pub(super) is_thread: bool,
    /// Whether a cleanup runs in the scheduler's coroutine that it is of.
    in_cleanup: Cell<bool>,
    /// How many `arena::with` of a thread are inside of one another.
    pub(super) arena_depth: Cell<u32>,
    /// The stand-alone coroutine that it is of.
    record: Option<NonNull<Control>>,
    pub(super) cleanups: Cleanups,
    error: Cell<Option<Error>>,
    arena: UnsafeCell<Option<Arena>>,
}

/// How many bytes of a stack it takes.
const BYTES: usize = size_of::<Estate>();
const _: () = assert!(BYTES == 64, "an estate takes one cache line");

/// What was left at a coroutine's end.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// The first panic of a cleanup.
    pub(crate) panic: Option<Payload>,
    /// The error in its context.
    pub(crate) error: Option<Error>,
}

impl fmt::Debug for Estate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Estate").finish_non_exhaustive()
    }
}

impl Estate {
    pub(super) const fn new(is_thread: bool, record: Option<NonNull<Control>>) -> Self {
        Self {
            used: Cell::new(false),
            is_over: Cell::new(false),
            is_thread,
            in_cleanup: Cell::new(false),
            arena_depth: Cell::new(0),
            record,
            cleanups: Cleanups::new(),
            error: Cell::new(None),
            arena: UnsafeCell::new(None),
        }
    }

    /// The estate of a thread's plain code.
    pub(crate) const fn of_thread() -> Self {
        Self::new(true, None)
    }

    /// Lays an empty estate at the base of a new stack, for coroutines of a scheduler. Returns the base of what is left of
    /// the stack.
    ///
    /// # Safety
    ///
    /// `base` is a stack's base, and nothing of the stack is in use.
    #[inline]
    pub(crate) unsafe fn lay(base: NonNull<u8>) -> *mut u8 {
        // SAFETY: passed on to the caller.
        unsafe { Self::lay_for(base, None) }
    }

    /// The same for the stand-alone coroutine with this record.
    ///
    /// # Safety
    ///
    /// As for `lay`; the record outlives the coroutine's use of the stack.
    #[inline]
    pub(super) unsafe fn lay_for(base: NonNull<u8>, record: Option<NonNull<Control>>) -> *mut u8 {
        // SAFETY: a stack is larger.
        let place = unsafe { base.sub(BYTES) };
        // SAFETY: the base of a stack is a multiple of 64; the memory is writable and in nobody's use.
        unsafe { place.cast().write(Self::new(false, record)) };
        place.as_ptr()
    }

    /// The estate at the base of a stack.
    ///
    /// # Safety
    ///
    /// `lay` has laid it; the stack is in use for longer than the reference.
    #[inline]
    pub(crate) unsafe fn at<'a>(base: NonNull<u8>) -> &'a Self {
        // SAFETY: a stack is larger.
        let place = unsafe { base.sub(BYTES) };
        // SAFETY: it was laid there.
        unsafe { place.cast().as_ref() }
    }

    /// The estate of the coroutine on whose stack the caller runs, if it is one of the crate's.
    #[inline]
    fn on_this_stack<'a>() -> Option<&'a Self> {
        let slot = stack::lookup(stack_pointer())?;
        let (_, description) = stack::owner_of(slot)?;
        let is_ours = std::ptr::fn_addr_eq(description, control::DESCRIBE)
            || std::ptr::fn_addr_eq(description, describe as stack::DescribeFn);
        // SAFETY: I1; it is in use: the caller runs on it, and keeps the reference there.
        is_ours.then(|| unsafe { Self::at(slot.base()) })
    }

    /// Runs `f` with the current estate: that of the task, of the innermost coroutine, or of the thread; `None` where there is
    /// none any more, since the coroutine or the thread is ending.
    pub(crate) fn with_current<R>(f: impl FnOnce(Option<&Self>) -> R) -> R {
        Self::with_host(|host| match TaskEstate::of(host) {
            Some(estate) => f(Some(estate)),
            None => f(host),
        })
    }

    /// The same without regard to tasks.
    pub(super) fn with_host<R>(f: impl FnOnce(Option<&Self>) -> R) -> R {
        if let Some(estate) = Self::on_this_stack() {
            return f((!estate.is_over.get()).then_some(estate));
        }
        if let Place::Coroutine(_, block) = place()
            && let Some(estate) = block.estate()
        {
            // On a foreign stack, which code of the coroutine has switched to.
            return f((!estate.is_over.get()).then_some(estate));
        }
        current::with_thread_estate(f)
    }

    /// Runs `f` with an estate of its own, for where there is none any more.
    pub(super) fn with_temporary<R>(f: impl FnOnce(&Self) -> R) -> R {
        f(&Self::new(true, None))
    }

    /// As long as the guard lives, the stand-alone coroutine on whose stack the caller runs, if it is one, cannot suspend;
    /// in a cleanup it cannot confirm a cancel either.
    pub(crate) fn hold_suspends(is_cleanup: bool) -> Hold {
        let fence = Fence::raise();
        let record = if is_cleanup {
            Self::on_this_stack().and_then(|estate| estate.record)
        } else {
            None
        };
        Hold {
            in_cleanup: record.map(|record| {
                // SAFETY: the record outlives the use of its stack.
                (record, unsafe { record.as_ref() }.set_in_cleanup(true))
            }),
            _fence: fence,
        }
    }

    /// Says whether a cleanup runs in the scheduler's coroutine; returns what it was before.
    pub(crate) fn set_in_cleanup(&self, inside: bool) -> bool {
        self.in_cleanup.replace(inside)
    }

    pub(crate) fn is_in_cleanup(&self) -> bool {
        self.in_cleanup.get()
    }

    /// Says that there may be something to settle.
    pub(super) fn touch(&self) {
        self.used.set(true);
    }

    /// Whether there may be something to settle.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.get()
    }

    /// A coroutine begins on the stack.
    #[inline]
    pub(crate) fn open(&self) {
        self.is_over.set(false);
    }

    /// Takes the error out of the context, or puts one there; returns the one before.
    pub(super) fn replace_error(&self, error: Option<Error>) -> Option<Error> {
        if error.is_some() {
            self.touch();
        }
        self.error.replace(error)
    }

    /// The arena, made if there is none yet.
    pub(crate) fn arena(&self) -> &Arena {
        self.touch();
        let place = self.arena.get();
        // SAFETY: I3: no user code runs while this is borrowed.
        let arena = unsafe { &mut *place };
        if arena.is_none() {
            *arena = Some(Arena::new(NonNull::from(&self.cleanups)));
        }
        // SAFETY: it is freed when no reference is left (I3), and otherwise only read.
        match unsafe { &*place } {
            Some(arena) => arena,
            None => unreachable!("it was made above"),
        }
    }

    /// Runs all cleanups, those that are pushed meanwhile too, the last first. Returns the first panic.
    pub(super) fn run_cleanups(&self) -> Option<Payload> {
        let mut first = None;
        while let Some(cleanup) = self.cleanups.pop() {
            let Err(payload) = catch_unwind(AssertUnwindSafe(|| in_cleanup(|| cleanup.run())))
            else {
                continue;
            };
            if first.is_some() || forced::is_forced(&*payload) {
                drop_payload(payload);
            } else {
                first = Some(payload);
            }
        }
        first
    }

    /// Frees the arena.
    ///
    /// # Safety
    ///
    /// No reference to it, or into it, is left, and every cleanup has run.
    pub(super) unsafe fn free_arena(&self) {
        // SAFETY: passed on to the caller.
        let arena = unsafe { &mut *self.arena.get() };
        // Only memory: what had a destructor was in the cleanups.
        *arena = None;
    }

    /// The closure has returned or unwound: runs the cleanups, takes the error, frees the arena.
    #[inline]
    pub(crate) fn settle(&self) -> Settled {
        if self.used.get() {
            self.settle_slowly()
        } else {
            Settled::default()
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_slowly(&self) -> Settled {
        self.used.set(false);
        let panic = self.run_cleanups();
        // SAFETY: references into the arena are good inside of `arena::with` only, whose frames are gone.
        unsafe { self.free_arena() };
        Settled {
            panic,
            error: self.error.take(),
        }
    }

    /// The end: settles what destructors have left since, and refuses everything from now on. Returns a panic of that.
    #[inline]
    pub(crate) fn close(&self) -> Option<Payload> {
        let panic = if self.used.get() {
            self.close_slowly()
        } else {
            None
        };
        self.is_over.set(true);
        panic
    }

    #[cold]
    #[inline(never)]
    fn close_slowly(&self) -> Option<Payload> {
        let mut first = None;
        while self.used.get() {
            let Settled { panic, error } = self.settle_slowly();
            let second = catch_unwind(AssertUnwindSafe(|| drop(error))).err();
            for payload in [panic, second].into_iter().flatten() {
                if first.is_none() {
                    first = Some(payload);
                } else {
                    drop_payload(payload);
                }
            }
        }
        first
    }
}

impl Drop for Estate {
    /// Of a thread, or a temporary one: a coroutine's is closed in place.
    fn drop(&mut self) {
        if let Some(payload) = self.close() {
            // A destructor of a thread-local must not unwind; the panic hook has told of it.
            drop_payload(payload);
        }
    }
}

/// Lets a coroutine suspend and confirm again; see [`Estate::hold_suspends`].
#[derive(Debug)]
pub(crate) struct Hold {
    in_cleanup: Option<(NonNull<Control>, bool)>,
    _fence: Fence,
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some((record, before)) = self.in_cleanup {
            // SAFETY: the coroutine has not stopped since, nor ended: this runs on its stack.
            unsafe { record.as_ref() }.set_in_cleanup(before);
        }
    }
}
