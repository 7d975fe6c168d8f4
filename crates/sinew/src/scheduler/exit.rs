//! Ending coroutines from inside, and all at once: `exit`, `exit_all`. By number it is `order`'s.
//!
//! Owns: the private payload that carries an exit's value to the coroutine's first frame. Thread: the scheduler's.
//!
//! Invariants
//! - I1. An exit's value is touched by the thread that made it only, as it need not be `Send`: whoever catches the payload and
//!   drops it on another thread leaks the value.
//! - I2. The value becomes the coroutine's result only if it has exactly its type, lifetimes included. Those a [`TypeId`] does
//!   not tell apart, so where the result's type may have some (`run`, scopes) only types without any are taken.
#![expect(
    unsafe_code,
    reason = "compares types that may borrow, and moves a value from one to the same"
)]

use std::any::{Any, TypeId, type_name};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, transmute};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::ThreadId;
use std::{io, ptr};

use crate::cancel::CancelToken;
use crate::scheduler::block::{Block, BlockRef};
use crate::scheduler::body::{Payload, drop_quietly};
use crate::scheduler::current::{self, Place, place};
use crate::scheduler::object::StateError;
use crate::scheduler::{Scheduler, Teardown, slab, unhandled};

/// Why everything is cancelled, if nothing else is said.
pub(super) const CLOSING: &str = "the scheduler is closing";

/// The payload of an exit.
struct Exit {
    value: ManuallyDrop<Box<dyn Any>>,
    type_name: &'static str,
    thread: ThreadId,
}

// SAFETY: I1.
unsafe impl Send for Exit {}

impl Exit {
    fn is_home(&self) -> bool {
        std::thread::current().id() == self.thread
    }

    /// The value, on its own thread.
    fn into_value(self) -> Option<Box<dyn Any>> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once: `this` is not dropped.
        this.is_home()
            .then(|| unsafe { ManuallyDrop::take(&mut this.value) })
    }
}

impl Drop for Exit {
    fn drop(&mut self) {
        if self.is_home() {
            // SAFETY: dropped once, here; `into_value` prevents this drop.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

/// Ends the current coroutine from any depth: its frames are unwound, so that all destructors run, and `value` becomes its
/// result.
///
/// `value` has the type that the coroutine's closure returns. Where that type may borrow, which is so for the closure of
/// [`crate::run`] and the children of a [`crate::scope`], it is one of `()`, `bool`, `char`, the primitive numbers,
/// [`String`], [`ExitCode`] and `io::Result<()>`. With another type the coroutine ends with a panic that says so.
///
/// A `catch_unwind` on the way catches the exit as it would a panic; no panic hook sees it.
///
/// # Suspends
///
/// Never; destructors may.
///
/// # Panics
///
/// Outside of a scheduler's coroutine. In a destructor that runs because of a panic it is a second one, and the process aborts.
///
/// # Examples
///
/// ```
/// fn deep(n: u32) -> u32 {
///     if n == 0 { sinew::exit(7_u32) } else { deep(n - 1) + 1 }
/// }
/// let value = sinew::run(|| sinew::spawn_local(|| deep(10)).join().unwrap());
/// assert_eq!(value, 7);
/// ```
#[track_caller]
pub fn exit<T: 'static>(value: T) -> ! {
    assert!(
        matches!(place(), Place::Coroutine(..)),
        "exit called outside of a coroutine of a scheduler"
    );
    let value: Box<dyn Any> = Box::new(value);
    resume_unwind(Box::new(Exit {
        value: ManuallyDrop::new(value),
        type_name: type_name::<T>(),
        thread: std::thread::current().id(),
    }))
}

/// What a caught payload means for a coroutine whose result may borrow: the value of an exit, or the payload of a panic.
pub(super) fn land<T>(payload: Payload) -> Result<T, Payload> {
    // SAFETY: nothing is claimed about `T`.
    unsafe { land_as(payload, false) }
}

/// As [`land`].
///
/// # Safety
///
/// `T` is `'static` if `is_static`.
#[cold]
pub(crate) unsafe fn land_as<T>(payload: Payload, is_static: bool) -> Result<T, Payload> {
    let exit = payload.downcast::<Exit>()?;
    let from = exit.type_name;
    let Some(value) = exit.into_value() else {
        return Err(Box::new("an exit of another thread was raised again here"));
    };
    let id = (*value).type_id();
    if id == id_of::<T>() && (is_static || has_no_lifetime(id)) {
        // SAFETY: I2: the value is a `T`.
        let value = unsafe { Box::from_raw(Box::into_raw(value).cast::<T>()) };
        return Ok(*value);
    }
    let to = type_name::<T>();
    Err(drop_quietly(value).unwrap_or_else(|| {
        Box::new(format!(
            "exit was called with a value of type {from}, but the coroutine returns {to}{}",
            if is_static {
                ""
            } else {
                ", which is taken from an exit only if it is one of a few types that cannot borrow"
            }
        ))
    }))
}

/// Whether this is the payload of an exit with a value of this type.
pub(super) fn carries<T: 'static>(payload: &(dyn Any + Send)) -> bool {
    payload
        .downcast_ref::<Exit>()
        .is_some_and(|exit| exit.is_home() && exit.value.is::<T>())
}

/// The id of a type as it is with all its lifetimes taken for `'static`.
fn id_of<T>() -> TypeId {
    trait Identify {
        fn identify(&self) -> TypeId
        where
            Self: 'static;
    }
    impl<T> Identify for PhantomData<T> {
        fn identify(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<T>()
        }
    }
    let phantom = PhantomData::<T>;
    let phantom: &dyn Identify = &phantom;
    // SAFETY: the object holds nothing, and its one method looks at nothing but the type, whose lifetimes do not exist
    // any more when code runs.
    let phantom = unsafe { transmute::<&dyn Identify, &(dyn Identify + 'static)>(phantom) };
    phantom.identify()
}

/// Whether this is a type, of a few, in which there is no lifetime: then the same id is the same type.
fn has_no_lifetime(id: TypeId) -> bool {
    macro_rules! any_of {
        ($($one:ty),*) => { [$(TypeId::of::<$one>()),*].contains(&id) };
    }
    any_of!(
        (),
        bool,
        char,
        u8,
        u16,
        u32,
        u64,
        u128,
        usize,
        i8,
        i16,
        i32,
        i64,
        i128,
        isize,
        f32,
        f64,
        String,
        ExitCode,
        io::Result<()>
    )
}

/// Ends everything on this thread's scheduler: it is closed, and everything alive is cancelled, in the order of its making,
/// the caller included. What does not end by itself is unwound. When all have ended [`crate::run_code`] returns `code`,
/// [`crate::try_run`] fails with it if its closure did not return, and [`Scheduler::exit_code`](crate::Scheduler::exit_code)
/// tells it. The first call's code stands.
///
/// # Suspends
///
/// Never; the caller's next wait fails with `Cancelled`.
///
/// # Errors
///
/// `State` if there is no scheduler on this thread.
pub fn exit_all(code: i32) -> Result<(), StateError> {
    current::with_scheduler(|scheduler| {
        if scheduler.exit_code.get().is_none() {
            scheduler.exit_code.set(Some(code));
        }
        scheduler.cancel_everything();
    })
    .ok_or(StateError)
}

impl Scheduler {
    /// The live coroutine with this id.
    pub(super) fn find(&self, id: u64) -> Option<BlockRef> {
        let mut found = None;
        self.for_each_alive(|block| {
            if block.id() == id {
                found = Some(BlockRef::of(block));
            }
        });
        found
    }

    /// Calls `f` for every block of this scheduler whose coroutine has not ended. Owner thread.
    pub(super) fn for_each_alive(&self, mut f: impl FnMut(&Block)) {
        if self.alive() == 0 {
            return;
        }
        slab::for_each_block(|block| {
            if self.has(block) {
                f(block);
            }
        });
    }

    /// Whether the block is of a coroutine of this scheduler that has not ended. Owner thread.
    pub(crate) fn has(&self, block: &Block) -> bool {
        // Other threads use blocks again that were this scheduler's, and fill in such as are to be: all of it is read as of one moment.
        // What changes meanwhile is none of this scheduler's, whose blocks nobody else changes.
        let is_it = || {
            block.id() != 0
                && block.life.is_present()
                && ptr::eq(block.door.load(Relaxed), self.door)
        };
        block.read(is_it) == Some(true)
    }

    /// Asks everything alive to stop, in the order of its making, and lets nothing new begin.
    pub(super) fn cancel_all(&self, reason: &str) {
        self.closed.set(true);
        self.shared.posts.close();
        let mut blocks = Vec::new();
        self.for_each_alive(|block| blocks.push((block.id(), BlockRef::of(block))));
        blocks.sort_unstable_by_key(|(id, _)| *id);
        for (id, block) in blocks {
            // One that nobody has a reference to is not asked for its cancel's cause: it needs no token.
            let is_known = block
                .extra()
                .is_some_and(|extra| extra.token.get().is_some())
                || block.refs.load(Relaxed) > 2;
            if !is_known {
                super::request_cancel(&block);
                continue;
            }
            // Callbacks run, which are the user's.
            let cancel = || CancelToken::attach(&block, None).cancel(reason);
            if let Err(payload) = catch_unwind(AssertUnwindSafe(cancel)) {
                unhandled::report_contained(id, payload);
            }
        }
    }

    /// Asks everything alive to stop; the scheduler is on its way to an early end, and will see to it.
    pub(super) fn cancel_everything(&self) {
        self.cancel_everything_because(CLOSING);
    }

    /// The same, for another reason than that it is closing.
    pub(super) fn cancel_everything_because(&self, reason: &str) {
        if self.teardown.get() == Teardown::No {
            self.teardown.set(Teardown::Cancelling(0));
        }
        self.cancel_all(reason);
    }
}
