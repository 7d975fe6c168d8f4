//! Making coroutines: `spawn_local`, `go_local` and the builder.
//!
//! Owns: the way from a closure to a block in the ready queue. Thread: the scheduler's.
//! Nothing of the closure runs here; a stack is bound when its turn comes.
#![expect(unsafe_code, reason = "fills in new control blocks")]

use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::{fmt, io};

use sinew_context::stack::{StackConfig, StackError};

use crate::cancel::CancelToken;
use crate::error::{Cancelled, WaitError};
use crate::join::JoinHandle;
use crate::local;
use crate::scheduler::block::{Block, BlockRef, flag, life};
use crate::scheduler::door::Door;
use crate::scheduler::{Scheduler, body, current, exit, slab, unhandled};
use crate::stack::Choice;

/// How many ids a scheduler takes from the process's count at a time.
const IDS: u64 = 1024;

/// Starts a coroutine on this thread's scheduler and returns a handle to its end.
///
/// `f` runs when its turn comes, on this thread, so it need not be `Send`. Dropping the handle detaches it. On a scheduler that
/// is closed ([`Scheduler::close`]) it is born cancelled: `f` is dropped instead of run.
///
/// # Suspends
///
/// Never.
///
/// # Panics
///
/// Outside of [`crate::run`]: there is no scheduler on this thread. [`Builder::spawn_local`] returns that.
///
/// # Examples
///
/// ```
/// sinew::run(|| {
///     let handle = sinew::spawn_local(|| 6 * 7);
///     assert_eq!(handle.join().unwrap(), 42);
/// });
/// ```
#[track_caller]
#[inline]
pub fn spawn_local<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + 'static,
    T: 'static,
{
    let location = Location::caller();
    match current::with_scheduler(|scheduler| {
        // SAFETY: both are 'static.
        unsafe { scheduler.spawn_block(f, life::HANDLE | life::STATIC, location, |_| {}) }
    }) {
        // SAFETY: the block was made for `T`, with a count for the handle.
        Some(block) => unsafe { JoinHandle::new(block) },
        None => panic!("spawn_local called outside of sinew::run: no scheduler on this thread"),
    }
}

/// Starts a detached coroutine on this thread's scheduler.
///
/// It is reclaimed by itself. Its panic, or the `Err` it returns, reaches the hook set by
/// [`crate::inspect::on_unhandled`] once. Without a hook a panic is raised again by [`crate::run`] at its end, and **an `Err` is dropped in
/// silence**: as the result of a tokio task is whose handle was dropped, and as Go's `go` drops what a function returns. So a program that
/// ends coroutines with `?` sets a hook at its start, or handles errors where they come about. One whose end somebody waits for is
/// [`spawn_local`]'s.
///
/// # Suspends
///
/// Never.
///
/// # Panics
///
/// Outside of [`crate::run`].
#[track_caller]
#[inline]
pub fn go_local<F, T>(f: F)
where
    F: FnOnce() -> T + 'static,
    T: Detached + 'static,
{
    let location = Location::caller();
    let body = move || settle(f);
    // SAFETY: both are 'static.
    let spawned = current::with_scheduler(|scheduler| unsafe {
        scheduler.spawn_block(body, life::STATIC, location, |_| {});
    });
    assert!(
        spawned.is_some(),
        "go_local called outside of sinew::run: no scheduler on this thread"
    );
}

/// Runs the body of a detached coroutine and reports what it ended with, by a return or an exit, if that is an error.
fn settle<F: FnOnce() -> T, T: Detached + 'static>(body: F) {
    let ended = catch_unwind(AssertUnwindSafe(body)).or_else(|payload| {
        // What is not of the body's own type may still be `()`, which the coroutine's first frame takes.
        if exit::carries::<T>(&*payload) {
            // SAFETY: the bound says so.
            unsafe { exit::land_as(payload, true) }
        } else {
            Err(payload)
        }
    });
    match ended.map(Detached::settle) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let id = crate::current().map_or(0, |current| current.id());
            unhandled::report_error(id, &error);
        }
        Err(payload) => resume_unwind(payload),
    }
}

/// What a detached coroutine may return: nothing, or a result whose error goes to the unhandled hook
/// ([`on_unhandled`](crate::inspect::on_unhandled)), and nowhere if there is none.
pub trait Detached: sealed::Sealed {
    /// The result as an I/O result.
    #[doc(hidden)]
    fn settle(self) -> io::Result<()>;
}

mod sealed {
    pub trait Sealed {}
    /// What a function pointer returns.
    pub trait Returns {
        type Value;
    }
    impl<R> Returns for fn() -> R {
        type Value = R;
    }
    impl Sealed for super::Never {}
    impl Sealed for () {}
    impl Sealed for std::io::Result<()> {}
    impl Sealed for Result<(), crate::WaitError> {}
    impl Sealed for Result<(), crate::Cancelled> {}
}

/// The type `!`, which stable Rust names only as what a function pointer does not return.
type Never = <fn() -> ! as sealed::Returns>::Value;

impl Detached for Never {
    fn settle(self) -> io::Result<()> {
        self
    }
}

impl Detached for () {
    fn settle(self) -> io::Result<()> {
        Ok(())
    }
}

impl Detached for io::Result<()> {
    fn settle(self) -> io::Result<()> {
        self
    }
}

impl Detached for Result<(), WaitError> {
    fn settle(self) -> io::Result<()> {
        Ok(self?)
    }
}

impl Detached for Result<(), Cancelled> {
    fn settle(self) -> io::Result<()> {
        Ok(self?)
    }
}

/// Starts coroutines with a name, a stack size or a cancel parent.
///
/// # Examples
///
/// ```
/// sinew::run(|| {
///     let handle = sinew::Builder::new()
///         .name("parser")
///         .stack_size(1 << 20)
///         .spawn_local(|| sinew::current().unwrap().name())
///         .unwrap();
///     assert_eq!(handle.join().unwrap().as_deref(), Some("parser"));
/// });
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Builder {
    name: Option<String>,
    stack: Choice,
    clean_stack: bool,
    parent: Option<CancelToken>,
    fp_env: bool,
    priority: Priority,
}

/// Which coroutines come first, of those that are ready.
///
/// There is one so far, and every coroutine has it: those that are ready run in the order in which they became so. The type keeps the place for others, so that
/// programs that name it go on compiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Priority {
    /// That of every coroutine.
    #[default]
    Normal,
}

impl Builder {
    /// A builder with every default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names the coroutine, for listings and reports.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The usable size of the stack, in bytes; at least 32 KiB and at most 1 GiB; 0 means the default: the scheduler's, 248 KiB if
    /// that was not said. Sizes are rounded up by at most a fifth.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack.set_size(bytes);
        self
    }

    /// The size of the inaccessible guard below the stack, in bytes, at most 1 GiB; rounded up to a power of two of
    /// pages; 0 means the default: the scheduler's, one page if that was not said. Foreign code without stack probes wants a guard
    /// as large as its largest frame.
    pub fn guard_size(mut self, bytes: usize) -> Self {
        self.stack.set_guard(bytes);
        self
    }

    /// Does without a guard below the stack.
    ///
    /// # Safety
    ///
    /// What runs in the coroutine, signal handlers on its stack included, never needs more than the stack's size: below lies
    /// another coroutine's memory, and an overflow overwrites it silently.
    pub unsafe fn unguarded(mut self) -> Self {
        // SAFETY: passed on to the caller.
        unsafe { self.stack.set_unguarded() };
        self
    }

    /// Whether the stack is kept warm for others at the coroutine's end, which is the default. Otherwise it comes without memory
    /// and its memory goes back to the kernel at the end: about 4 µs more for each coroutine, and nothing lingers.
    pub fn pooled(mut self, is_pooled: bool) -> Self {
        self.stack.set_pooled(is_pooled);
        self
    }

    /// Starts the coroutine on a stack without memory, so that its high-water mark
    /// ([`crate::inspect::Info::stack_high_water_bytes`]) is its own, exact to a page. Costs a system call at the start, and
    /// the pages anew.
    pub fn clean_stack(mut self, clean: bool) -> Self {
        self.clean_stack = clean;
        self
    }

    /// Cancelling `token` cancels the coroutine.
    pub fn cancel_parent(mut self, token: &CancelToken) -> Self {
        self.parent = Some(token.clone());
        self
    }

    /// Whether the coroutine has floating-point control words of its own: rounding modes, precision and exception masks,
    /// in MXCSR and the x87 unit. It starts with the thread's. A switch costs it 20 ns more; others nothing.
    ///
    /// Without it the words are those of the thread, for all of its coroutines: foreign code that changes them has to change
    /// them back before anything suspends. A debug build panics where they are found changed, at a call that may suspend.
    pub fn fp_env(mut self, own: bool) -> Self {
        self.fp_env = own;
        self
    }

    /// The coroutine's priority. There is [one](Priority) so far, which is the default: this changes nothing yet.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Starts a coroutine on this thread's scheduler, see [`spawn_local`].
    ///
    /// # Errors
    ///
    /// `State` outside of [`crate::run`], `Closed` if the scheduler is closed, `Invalid` for a stack or guard size out of
    /// range. `f` comes back inside the error; nothing of it has run.
    #[track_caller]
    pub fn spawn_local<F, T>(&self, f: F) -> Result<JoinHandle<T>, SpawnError<F>>
    where
        F: FnOnce() -> T + 'static,
        T: 'static,
    {
        let location = Location::caller();
        let config = match self.config() {
            Ok(config) => config,
            Err(error) => {
                return Err(SpawnError {
                    kind: SpawnErrorKind::Invalid(error),
                    refused: f,
                });
            }
        };
        if let Some(kind) = refusal() {
            return Err(SpawnError { kind, refused: f });
        }
        let mut body = Some(f);
        let block = current::with_scheduler(|scheduler| {
            let body = body.take()?;
            // SAFETY: both are 'static.
            Some(unsafe {
                scheduler.spawn_block(body, life::HANDLE | life::STATIC, location, |block| {
                    self.equip(block, config);
                })
            })
        });
        match (block.flatten(), body) {
            // SAFETY: the block was made for `T`, with a count for the handle.
            (Some(block), _) => Ok(unsafe { JoinHandle::new(block) }),
            (None, Some(refused)) => Err(SpawnError {
                kind: SpawnErrorKind::State,
                refused,
            }),
            (None, None) => unreachable!("a taken body has a block"),
        }
    }

    /// Starts a detached coroutine on this thread's scheduler, see [`go_local`].
    ///
    /// # Errors
    ///
    /// As for [`Builder::spawn_local`].
    #[track_caller]
    pub fn go_local<F, T>(&self, f: F) -> Result<(), SpawnError<F>>
    where
        F: FnOnce() -> T + 'static,
        T: Detached + 'static,
    {
        // Checked first, so that what is refused is `f` itself.
        if let Err(error) = self.config() {
            return Err(SpawnError {
                kind: SpawnErrorKind::Invalid(error),
                refused: f,
            });
        }
        if let Some(kind) = refusal() {
            return Err(SpawnError { kind, refused: f });
        }
        match self.spawn_local(move || settle(f)) {
            Ok(handle) => {
                drop(handle);
                Ok(())
            }
            Err(_) => unreachable!("the size and the thread were checked"),
        }
    }

    fn config(&self) -> Result<Option<StackConfig>, StackError> {
        if !self.stack.is_made() {
            return Ok(None);
        }
        let general = current::with_scheduler(Scheduler::stack_choice).unwrap_or_default();
        self.stack.or(general).config().map(Some)
    }

    /// Gives a new block what was asked for.
    fn equip(&self, block: &Block, config: Option<StackConfig>) {
        if let Some(name) = &self.name {
            block
                .extra_or_new()
                .name
                .get_or_init(|| name.as_str().into());
        }
        if let Some(config) = config {
            block.extra_or_new().stack.get_or_init(|| config);
            block.set(flag::OWN_STACK);
        }
        if self.clean_stack {
            block.extra_or_new().clean_stack.store(true, Relaxed);
            block.set(flag::OWN_STACK);
        }
        if self.fp_env {
            block.set(flag::FP_ENV);
        }
        if let Some(parent) = &self.parent {
            CancelToken::attach(&BlockRef::of(block), Some(parent));
        }
    }
}

/// Why this thread's scheduler starts nothing, if that is so.
fn refusal() -> Option<SpawnErrorKind> {
    match current::with_scheduler(Scheduler::is_ending) {
        None => Some(SpawnErrorKind::State),
        Some(true) => Some(SpawnErrorKind::Closed),
        Some(false) => None,
    }
}

/// A coroutine could not be started; the closure comes back.
pub struct SpawnError<F> {
    kind: SpawnErrorKind,
    refused: F,
}

#[derive(Debug)]
enum SpawnErrorKind {
    State,
    Closed,
    Invalid(StackError),
}

impl<F> SpawnError<F> {
    /// A size was out of range.
    pub(crate) fn invalid(error: StackError, refused: F) -> Self {
        let kind = SpawnErrorKind::Invalid(error);
        Self { kind, refused }
    }

    /// The closure that was refused; nothing of it has run.
    pub fn into_inner(self) -> F {
        self.refused
    }

    /// Whether there is no scheduler on this thread.
    #[must_use]
    pub fn is_state(&self) -> bool {
        matches!(self.kind, SpawnErrorKind::State)
    }

    /// Whether the scheduler is closed and starts nothing any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.kind, SpawnErrorKind::Closed)
    }

    /// Whether a size was out of range.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        matches!(self.kind, SpawnErrorKind::Invalid(_))
    }
}

impl<F> fmt::Debug for SpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnError")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl<F> fmt::Display for SpawnError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            SpawnErrorKind::State => {
                f.write_str("no scheduler on this thread: call this inside sinew::run")
            }
            SpawnErrorKind::Closed => {
                f.write_str("the scheduler is closed and starts no more coroutines")
            }
            SpawnErrorKind::Invalid(error) => error.fmt(f),
        }
    }
}

impl<F> std::error::Error for SpawnError<F> {}

impl Scheduler {
    /// Puts a closure into a new block and the block into the ready queue. The block has one count for the scheduler,
    /// and one more for the caller if `life` says that a handle exists.
    ///
    /// # Safety
    ///
    /// `body`, what it borrows and what it returns are good until the coroutine has ended and its result is taken.
    #[inline]
    pub(crate) unsafe fn spawn_block<F: FnOnce() -> T, T>(
        &self,
        body: F,
        life: u8,
        location: &'static Location<'static>,
        equip: impl FnOnce(&Block),
    ) -> NonNull<Block> {
        // First: it runs code of the user's, which may unwind.
        // SAFETY: the current block is alive.
        let inherited = local::inherited(unsafe { self.current().as_ref() });
        let raw = self.free_blocks().take();
        // SAFETY: a block from the free list is initialised and the caller's.
        let block = unsafe { raw.as_ref() };
        // SAFETY: the current block is alive.
        let parent = unsafe { self.current().as_ref() }.map_or(0, Block::id);
        let (is_ending, id) = (self.is_ending(), self.next_id());
        // SAFETY: new, the caller's; the lifetimes are the caller's duty.
        unsafe {
            fill(
                block,
                self.door(),
                body,
                life,
                is_ending,
                location,
                id,
                parent,
            )
        };
        self.count_new();
        inherited.give(block);
        equip(block);
        self.push_ready(block);
        raw
    }

    #[inline]
    fn next_id(&self) -> u64 {
        let mut range = self.ids.take();
        let id = range.next().unwrap_or_else(|| {
            range = new_ids();
            range.next().unwrap_or(1)
        });
        self.ids.set(range);
        id
    }

    /// A number above the ids of all of its coroutines so far, and not above those of any that are made from here on by this thread.
    #[cold]
    pub(super) fn ids_so_far(&self) -> u64 {
        self.ids.set(0..0);
        NEXT.load(Relaxed)
    }
}

/// Makes a free block a new coroutine's: with a count for its scheduler, and one for the handle if `life` says that there is one.
///
/// # Safety
///
/// The block is initialised and the caller's alone. For `body` as for [`Scheduler::spawn_block`].
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "all that a block begins with")]
pub(super) unsafe fn fill<F: FnOnce() -> T, T>(
    block: &Block,
    door: &'static Door,
    body: F,
    life: u8,
    is_cancelled: bool,
    location: &'static Location<'static>,
    id: u64,
    parent: u64,
) {
    block.door.store(ptr::from_ref(door).cast_mut(), Relaxed);
    block.flags.store(0, Relaxed);
    block.cancel.store(is_cancelled, Relaxed);
    block.refusals.set(0);
    block.outcome.store(0, Relaxed);
    block
        .refs
        .store(1 + u32::from(life & life::HANDLE), Relaxed);
    // Listings that see the new life see the fields above.
    block.life.begin(life);
    // SAFETY: passed on to the caller.
    unsafe { body::put(block, body) };
    block.change(|| {
        block
            .location
            .store(ptr::from_ref(location).cast_mut(), Relaxed);
        block.id.store(id, Relaxed);
        block.parent.store(parent, Relaxed);
    });
}

/// An id for a coroutine that is made outside of its scheduler.
#[cold]
pub(super) fn one_id() -> u64 {
    NEXT.fetch_add(1, Relaxed)
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A fresh range of ids. They are never used again: 2^64 last for centuries.
#[cold]
pub(crate) fn new_ids() -> std::ops::Range<u64> {
    let start = NEXT.fetch_add(IDS, Relaxed);
    start..start + IDS
}

/// Spawns the first coroutine of a `run` that is called at `place`.
///
/// # Safety
///
/// As for [`Scheduler::spawn_block`].
pub(super) unsafe fn spawn_main<F: FnOnce() -> T, T>(
    scheduler: &Scheduler,
    body: F,
    place: &'static Location<'static>,
) -> JoinHandle<T> {
    let life = life::HANDLE | life::SOLE;
    // SAFETY: passed on to the caller.
    let block = unsafe { scheduler.spawn_block(body, life, place, |_| {}) };
    // SAFETY: the block was made for `T`, with a count for the handle.
    unsafe { JoinHandle::new(block) }
}

/// The reference that a handle holds.
///
/// # Safety
///
/// The caller gives one count away.
pub(crate) unsafe fn handle_ref(block: NonNull<Block>) -> BlockRef {
    // SAFETY: passed on to the caller.
    unsafe { slab::first_ref(block) }
}
