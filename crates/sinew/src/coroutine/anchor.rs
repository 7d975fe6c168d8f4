//! The frame that no coroutine of its outlives.
//!
//! Owns: the records of its coroutines, their warm stacks (or it uses the scheduler's), the first panic that nobody was there to take.
//! Thread: its own.
//!
//! Invariants
//! - I1. Every record that was made for it is in `live`, in `ended`, or freed.
//! - I2. When `close` has ended, every coroutine is Done and every record is freed. Handles that still exist are in
//!   leaked memory: their lifetime has ended, so nothing can use or drop them.
//! - I3. No reference to the stacks is held while user code runs, or across a switch.
#![expect(unsafe_code, reason = "follows pointers to records")]

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::ptr::{self, NonNull};

use sinew_context::Errno;
use sinew_context::stack::overflow::{self, AltStack};
use sinew_context::stack::{Stack, StackCache, StackConfig, StackError};
use sinew_context::unwind::catch_to_pass_on;

use crate::coroutine::control::{Control, State};
use crate::coroutine::spares::Spares;
use crate::coroutine::unanchored::alternate_stack;
use crate::scheduler::body::{Payload, drop_payload};
use crate::scheduler::{Scheduler, current, forced, spawn};

/// What coroutines belong to: made by [`anchor`].
///
/// `'a` is the time in which its coroutines live; `'env` is what outlives it, and can be borrowed by them. It belongs to its
/// thread: it is neither `Send` nor `Sync`.
///
/// ```compile_fail,E0277
/// sinew::coroutine::anchor(|a| {
///     std::thread::scope(|scope| {
///         scope.spawn(|| sinew::coroutine::Generator::new(a, |y| drop(y.suspend(1))).count());
///     });
/// });
/// ```
pub struct Anchor<'a, 'env: 'a> {
    core: Core,
    /// Invariant, as the other: neither may be shrunk or grown by coercion.
    scope: PhantomData<&'a mut &'a ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// The part without lifetimes.
pub(super) struct Core {
    spares: Spares,
    live: Cell<*const Control>,
    ended: Cell<*const Control>,
    /// The stacks of the scheduler around it; it outlives the anchor, which is a frame on the stack of one of its
    /// coroutines. (A frame on a stand-alone coroutine's stack may outlive the scheduler in which that was resumed.) Where there is none, its
    /// own, once there are any.
    stacks: Cell<Option<NonNull<StackCache>>>,
    /// Where there is no scheduler: made when the first coroutine starts.
    own_stacks: UnsafeCell<Option<StackCache>>,
    /// The next id, and the end of those that are reserved.
    next_id: Cell<u64>,
    ids_end: Cell<u64>,
    /// At hand, because it takes a few divisions to lay out.
    default_config: StackConfig,
    closing: Cell<bool>,
    /// Whether it stands in for an anchor.
    pub(super) is_keeper: bool,
    /// The same: kept for its coroutines. An anchor's is in its frame.
    _alternate_stack: Option<AltStack>,
    /// The thread's.
    pub(super) errno: Errno,
    kept_panic: Cell<Option<Payload>>,
}

impl fmt::Debug for Anchor<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Anchor").finish_non_exhaustive()
    }
}

impl Anchor<'_, '_> {
    pub(super) fn core(&self) -> &Core {
        &self.core
    }
}

/// Runs `f` with an anchor, and returns its value once every coroutine of that anchor has ended.
///
/// As with [`std::thread::scope`], coroutines can borrow whatever outlives the anchor. Those that are still
/// suspended when `f` is over, by return or by panic, whatever has become of their handles, are asked to cancel and
/// unwound, so that every destructor on their stacks runs once. One that was never resumed has its closure dropped.
///
/// Can be called anywhere: on a thread, in a coroutine of a scheduler, in a stand-alone one.
///
/// # Suspends
///
/// Never by itself. In a coroutine of a scheduler, what `f` and the coroutines call may.
///
/// # Cancellation
///
/// A body that swallows the unwind and suspends again is unwound again; after 16 times the process is ended with a
/// report, because nothing that the body borrows may go before it. Where a frame lies in between that lets no panic through,
/// as that of a callback that is `extern "C"` and not `extern "C-unwind"`, nothing is unwound: there
/// [`Suspender::suspend`](super::Suspender::suspend) fails with `Ending`, and the body runs on until it returns, or suspends
/// where it can be unwound. So it is everywhere under `panic = "abort"`. If it has asked 1,000 times and has not ended, the
/// process is ended with the report. The module's documentation has a [table](super#what-a-body-may-do-about-it).
///
/// # Panics
///
/// With the panic of `f`; with the first panic of a coroutine that was being ended, or of the drop of a closure that never
/// ran, when nobody else could be told; if the kernel refuses the thread an alternate signal stack, on which
/// overflows are reported.
///
/// # Examples
///
/// ```
/// use sinew::coroutine::{Coroutine, Step, Suspender, anchor};
///
/// let words = vec!["one", "two"];
/// let total = anchor(|a| {
///     let mut lengths = Coroutine::new(a, |s: &Suspender<(), usize>, ()| {
///         for word in &words {
///             s.suspend(word.len()).unwrap();
///         }
///     });
///     let mut total = 0;
///     while let Ok(Step::Suspended(length)) = lengths.resume(()) {
///         total += length;
///     }
///     total
/// });
/// assert_eq!(total, 6);
/// ```
#[track_caller]
pub fn anchor<'env, F, R>(f: F) -> R
where
    F: for<'a> FnOnce(&'a Anchor<'a, 'env>) -> R,
{
    let ready = overflow::install().and_then(|()| alternate_stack());
    let _alternate_stack = match ready {
        Ok(alternate_stack) => alternate_stack,
        Err(error) => panic!("no alternate signal stack for this thread: {error}"),
    };
    let anchor = Anchor {
        core: Core::new(current::scheduler_of_this_stack().map(Scheduler::stacks)),
        scope: PhantomData,
        env: PhantomData,
    };
    let result = catch_to_pass_on(|| f(&anchor));
    anchor.core.close();
    let kept = anchor.core.take_panic();
    match result {
        Ok(value) => match kept {
            None => value,
            Some(payload) => resume_unwind(payload),
        },
        Err(payload) => {
            if let Some(kept) = kept {
                drop_payload(kept);
            }
            resume_unwind(payload)
        }
    }
}

impl Core {
    fn new(scheduler_stacks: Option<NonNull<StackCache>>) -> Self {
        Self {
            spares: Spares::new(),
            live: Cell::new(ptr::null()),
            ended: Cell::new(ptr::null()),
            stacks: Cell::new(scheduler_stacks),
            own_stacks: UnsafeCell::new(None),
            next_id: Cell::new(0),
            ids_end: Cell::new(0),
            default_config: StackConfig::default(),
            closing: Cell::new(false),
            is_keeper: false,
            _alternate_stack: None,
            errno: Errno::of_this_thread(),
            kept_panic: Cell::new(None),
        }
    }

    /// What stands in for an anchor. Its coroutines may outlive any scheduler, so it has stacks of its own.
    pub(super) fn without_anchor(alternate_stack: AltStack) -> Self {
        Self {
            is_keeper: true,
            _alternate_stack: Some(alternate_stack),
            ..Self::new(None)
        }
    }

    /// Memory for records.
    #[inline]
    pub(super) fn spares(&self) -> &Spares {
        &self.spares
    }

    /// Whether the anchor's end has begun: what is made now never runs.
    #[inline]
    pub(super) fn is_closing(&self) -> bool {
        self.closing.get()
    }

    #[inline]
    pub(super) fn default_config(&self) -> StackConfig {
        self.default_config
    }

    #[inline]
    pub(super) fn next_id(&self) -> u64 {
        let id = self.next_id.get();
        if id == self.ids_end.get() {
            return self.next_id_slow();
        }
        self.next_id.set(id + 1);
        id
    }

    #[cold]
    #[inline(never)]
    fn next_id_slow(&self) -> u64 {
        let ids = spawn::new_ids();
        self.next_id.set(ids.start + 1);
        self.ids_end.set(ids.end);
        ids.start
    }

    /// Takes a new record into the anchor's care.
    ///
    /// # Safety
    ///
    /// It is in no list, and is freed by [`Control::free`] only.
    #[inline]
    pub(super) unsafe fn adopt(&self, control: NonNull<Control>) {
        // SAFETY: a new record.
        let control = unsafe { control.as_ref() };
        // SAFETY: passed on to the caller; the anchor does not move once it can be borrowed.
        unsafe { control.link(&self.live) };
    }

    /// Whether any record is in its care; for a keeper, which is never closed.
    pub(super) fn has_records(&self) -> bool {
        !self.live.get().is_null()
    }

    // PERF: two words in registers; through memory they were read whole before both halves were there, which stalls.
    #[inline(always)]
    pub(super) fn take_stack(&self, config: &StackConfig) -> Result<Stack, StackError> {
        self.with_stacks(|stacks| stacks.get(config))
    }

    #[inline(always)]
    pub(super) fn put_stack(&self, stack: Stack) {
        self.with_stacks(|stacks| stacks.put(stack));
    }

    /// `f` is one call of the cache.
    #[inline(always)]
    fn with_stacks<R>(&self, f: impl FnOnce(&mut StackCache) -> R) -> R {
        let mut stacks = match self.stacks.get() {
            Some(stacks) => stacks,
            None => self.make_stacks(),
        };
        // SAFETY: I3, which is the scheduler's rule as well; a scheduler outlives the anchor.
        f(unsafe { stacks.as_mut() })
    }

    /// The anchor, which does not move once it can be borrowed, has stacks of its own from here on.
    #[cold]
    #[inline(never)]
    fn make_stacks(&self) -> NonNull<StackCache> {
        // SAFETY: I3; there are none yet.
        unsafe { *self.own_stacks.get() = Some(StackCache::default()) };
        // SAFETY: as above.
        let own = unsafe { &mut *self.own_stacks.get() };
        let stacks = NonNull::from(own.get_or_insert_default());
        self.stacks.set(Some(stacks));
        stacks
    }

    /// Keeps a panic that nobody can take now for the anchor to raise at its end; the first one counts.
    pub(super) fn keep_panic(&self, payload: Payload) {
        match self.kept_panic.take() {
            None => self.kept_panic.set(Some(payload)),
            Some(first) => {
                self.kept_panic.set(Some(first));
                drop_payload(payload);
            }
        }
    }

    pub(super) fn take_panic(&self) -> Option<Payload> {
        self.kept_panic.take()
    }

    /// Ends every coroutine, then frees the records.
    fn close(&self) {
        self.closing.set(true);
        // What runs meanwhile may drop other handles, resume others, and make new coroutines: the head is
        // looked at anew each time.
        // SAFETY: I1: what the list names is alive.
        while let Some(control) = unsafe { self.live.get().as_ref() } {
            control.unlink();
            // SAFETY: just unlinked; the anchor stays in place.
            unsafe { control.link(&self.ended) };
            if control.state() == State::Running {
                forced::report_and_abort(control.id(), control.name(), "anchor");
            }
            if let Some(payload) = control.end() {
                self.keep_panic(payload);
            }
        }
        while let Some(control) = NonNull::new(self.ended.get().cast_mut()) {
            // SAFETY: I2: all are Done, and no handle can be used any more.
            unsafe { Control::free(control) };
        }
    }
}
