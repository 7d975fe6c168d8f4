//! A coroutine's closure and its result, behind a table of functions that knows their types.
//!
//! Owns: the payload of a block. It holds the closure until the coroutine starts, nothing while it
//! runs, and the result from the end until someone takes or drops it. What does not fit
//! into the block lies in one allocation of its own.
//!
//! Invariants
//! - I1. The closure is taken or dropped once, by the owner thread.
//! - I2. The result is taken or dropped once: by the coroutine itself if no handle existed when it ended,
//!   else by the handle (`life` decides by one atomic operation on each side).
//! - I3. Nothing unwinds out of these functions, except out of `drop_result`, whose caller is user code.
#![expect(unsafe_code, reason = "stores values of erased types in a block")]

use std::any::Any;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use sinew_core::life::{Abandon, End};

use crate::coroutine::{Estate, Settled};
use crate::join::{JoinError, Outcome};
use crate::local;
use crate::scheduler::block::{Block, PAYLOAD_BYTES, flag};
use crate::scheduler::{exit, forced, thread_state, unhandled};

/// What a panic was raised with.
pub(crate) type Payload = Box<dyn Any + Send>;

/// The functions that know a body's types.
#[derive(Debug)]
pub(crate) struct Vtable {
    /// Runs the closure, or drops it if the coroutine was cancelled before it started, and leaves the result. The estate is
    /// that of the stack.
    pub(super) run: unsafe fn(&Block, &Estate),
    /// Drops the closure of a coroutine that cannot start, and leaves `error` as the result.
    pub(super) refuse: unsafe fn(&Block, JoinError),
    /// Where the result lies: a `Result<T, JoinError>`.
    pub(super) result: unsafe fn(&Block) -> *mut (),
    /// Drops the result; hands a panic's payload out instead, for whoever reports it.
    pub(super) drop_result: unsafe fn(&Block) -> Option<Payload>,
    /// Frees the memory of the payload, which is empty.
    pub(super) free: unsafe fn(&Block),
}

impl Vtable {
    /// The table of a free block: none of it is called.
    pub(super) const NONE: &'static Self = {
        unsafe fn run(_: &Block, _: &Estate) {}
        unsafe fn free(_: &Block) {}
        unsafe fn refuse(_: &Block, _: JoinError) {}
        unsafe fn result(_: &Block) -> *mut () {
            std::ptr::null_mut()
        }
        unsafe fn drop_result(_: &Block) -> Option<Payload> {
            None
        }
        &Self {
            run,
            refuse,
            result,
            drop_result,
            free,
        }
    };
}

/// What lies in the payload.
#[repr(C)]
union Stage<F, T> {
    body: ManuallyDrop<F>,
    result: ManuallyDrop<Result<T, JoinError>>,
}

/// The payload as a stage of these types.
struct Typed<F, T>(std::marker::PhantomData<(F, T)>);

impl<F: FnOnce() -> T, T> Typed<F, T> {
    const INLINE: bool =
        size_of::<Stage<F, T>>() <= PAYLOAD_BYTES && align_of::<Stage<F, T>>() <= 8;

    const VTABLE: Vtable = Vtable {
        run: Self::run,
        refuse: Self::refuse,
        result: Self::result,
        drop_result: Self::drop_result,
        free: Self::free,
    };

    /// # Safety
    ///
    /// The block's payload was made for these types.
    unsafe fn stage(block: &Block) -> *mut Stage<F, T> {
        let payload = block.payload.get();
        if Self::INLINE {
            payload.cast()
        } else {
            // SAFETY: `put` has stored the pointer there.
            unsafe { *payload.cast::<*mut Stage<F, T>>() }
        }
    }

    /// # Safety
    ///
    /// The block is new and belongs to the caller.
    unsafe fn put(block: &Block, body: F) {
        let stage = Stage {
            body: ManuallyDrop::new(body),
        };
        let payload = block.payload.get();
        if Self::INLINE {
            // SAFETY: it fits, as to size and alignment.
            unsafe { payload.cast::<Stage<F, T>>().write(stage) };
        } else {
            let stage = Box::into_raw(Box::new(stage));
            // SAFETY: a pointer fits.
            unsafe { payload.cast::<*mut Stage<F, T>>().write(stage) };
        }
    }

    /// # Safety
    ///
    /// Owner thread; the payload holds the closure.
    unsafe fn take_body(block: &Block) -> F {
        // SAFETY: made for these types.
        let stage = unsafe { Self::stage(block) };
        // SAFETY: it holds the closure, and is read once (I1).
        unsafe { stage.cast::<F>().read() }
    }

    /// # Safety
    ///
    /// Owner thread; the payload is empty.
    unsafe fn put_result(block: &Block, result: Result<T, JoinError>) {
        // SAFETY: made for these types.
        let stage = unsafe { Self::stage(block) };
        // SAFETY: empty, and large enough.
        unsafe {
            stage.write(Stage {
                result: ManuallyDrop::new(result),
            })
        };
    }

    unsafe fn run(block: &Block, estate: &Estate) {
        // SAFETY: the scheduler runs a body once.
        let body = unsafe { Self::take_body(block) };
        estate.open();
        let ended = if block.is_cancelled() {
            Err(drop_quietly(body))
        } else {
            let body = || {
                let value = body();
                thread_state::check_fp_env();
                value
            };
            match catch_unwind(AssertUnwindSafe(body)) {
                Ok(value) => Ok(value),
                Err(payload) if forced::is_forced(&*payload) => Err(None),
                Err(payload) => {
                    let is_static = block.life.is_static();
                    // SAFETY: the bit says so.
                    unsafe { exit::land_as(payload, is_static) }.map_err(Some)
                }
            }
        };
        let result = match ended {
            Ok(value) if !estate.is_used() && !block.has(flag::CONFIRMED) => Ok(value),
            ended => verdict(ended, block.has(flag::CONFIRMED), estate.settle()),
        };
        thread_state::end_of_body(block);
        // SAFETY: the closure has been taken out.
        unsafe { Self::end_with_locals(block, result) };
        if let Some(payload) = estate.close() {
            Self::complain(block, payload);
        }
    }

    unsafe fn refuse(block: &Block, error: JoinError) {
        // SAFETY: the scheduler refuses a body instead of running it.
        let body = unsafe { Self::take_body(block) };
        let result = match drop_quietly(body) {
            None => Err(error),
            Some(payload) => Err(JoinError::panic(payload)),
        };
        // SAFETY: the closure has been taken out.
        unsafe { Self::end_with_locals(block, result) };
    }

    /// Destroys the coroutine's locals and leaves the result.
    ///
    /// # Safety
    ///
    /// Owner thread; the payload is empty.
    #[inline]
    unsafe fn end_with_locals(block: &Block, result: Result<T, JoinError>) {
        let result = local::settle(block, result);
        // SAFETY: passed on to the caller.
        unsafe { Self::end(block, result) };
        if let Some(payload) = local::close(block) {
            Self::complain(block, payload);
        }
    }

    /// Leaves the result, or drops it if nobody can ask for it.
    ///
    /// # Safety
    ///
    /// Owner thread; the payload is empty.
    #[inline]
    unsafe fn end(block: &Block, result: Result<T, JoinError>) {
        let outcome = match &result {
            Ok(_) => Outcome::Returned,
            Err(error) if error.is_cancelled() => Outcome::Cancelled,
            Err(_) => Outcome::Error,
        };
        block.outcome.store(outcome as u8, Relaxed);
        if block.is_cancelled() {
            block.note_cancelled_end();
        }
        // SAFETY: empty.
        unsafe { Self::put_result(block, result) };
        if block.life.end() == End::Kept {
            return;
        }
        // I2: no handle: the result is the coroutine's to drop. It is alive meanwhile: a drop that waits can be
        // cancelled, and is listed.
        let dropped = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: I2.
            unsafe { Self::drop_result(block) }
        }));
        match dropped {
            Ok(Some(payload)) | Err(payload) if !forced::is_forced(&*payload) => {
                Self::complain(block, payload);
            }
            Ok(_) | Err(_) => {}
        }
        // ORDERING: Acquire: a count of one is the scheduler's own, and nobody is left to look.
        let is_alone = block.refs.load(Acquire) == 1;
        block.life.end_unclaimed(is_alone);
    }

    /// A panic that nobody can join: to the scope that the coroutine is a child of, or to whoever listens.
    fn complain(block: &Block, payload: Payload) {
        match block.extra().and_then(|extra| extra.family.get()) {
            // SAFETY: the scope waits for this child.
            Some(family) => unsafe { family.as_ref() }.keep_panic(payload),
            None => unhandled::report(block.id(), payload),
        }
    }

    unsafe fn result(block: &Block) -> *mut () {
        // SAFETY: made for these types.
        let stage = unsafe { Self::stage(block) };
        stage.cast()
    }

    unsafe fn drop_result(block: &Block) -> Option<Payload> {
        // SAFETY: made for these types.
        let stage = unsafe { Self::stage(block) };
        // SAFETY: it holds the result, and is read once (I2).
        let result = unsafe { stage.cast::<Result<T, JoinError>>().read() };
        // SAFETY: empty now.
        unsafe { Self::free(block) };
        match result {
            Err(error) => {
                if let Some(error) = error.unhandled_error() {
                    unhandled::report_error(block.id(), &error);
                }
                error.into_payload()
            }
            Ok(value) => {
                drop(value);
                None
            }
        }
    }

    unsafe fn free(block: &Block) {
        if !Self::INLINE {
            // SAFETY: made for these types.
            let stage = unsafe { Self::stage(block) };
            // SAFETY: allocated by `put`; its content is gone.
            drop(unsafe { Box::from_raw(stage) });
        }
    }
}

/// What a coroutine's end comes to. `ended` is what its closure returned, or the payload of its panic, or neither if it
/// was unwound by force or never ran.
///
/// The first of these that holds: it panicked; a cleanup panicked; it was unwound or never ran; it has confirmed a
/// cancel; it left an error; it returned.
#[cold]
#[inline(never)]
fn verdict<T>(
    ended: Result<T, Option<Payload>>,
    is_confirmed: bool,
    settled: Settled,
) -> Result<T, JoinError> {
    let Settled { panic, error } = settled;
    let (value, verdict) = match (ended, panic, error) {
        (Ok(value), None, None) if !is_confirmed => return Ok(value),
        (Ok(value), None, Some(error)) if !is_confirmed => (Some(value), JoinError::left(error)),
        (Ok(value), None, left) => (
            Some(value),
            drop_quietly(left).map_or(JoinError::cancelled(), JoinError::panic),
        ),
        (Err(None), None, left) => (
            None,
            drop_quietly(left).map_or(JoinError::cancelled(), JoinError::panic),
        ),
        (ended, second, left) => {
            let (value, first) = match ended {
                Ok(value) => (Some(value), None),
                Err(first) => (None, first),
            };
            let (first, second) = if first.is_some() {
                (first, second)
            } else {
                (second, None)
            };
            let more = [drop_quietly(left), second];
            more.into_iter().flatten().for_each(drop_payload);
            (
                value,
                first.map_or(JoinError::cancelled(), JoinError::panic),
            )
        }
    };
    // The value is nobody's. A panic of its drop counts, unless there was one before.
    match drop_quietly(value) {
        Some(payload) if !verdict.is_panic() => Err(JoinError::panic(payload)),
        Some(payload) => {
            drop_payload(payload);
            Err(verdict)
        }
        None => Err(verdict),
    }
}

/// Drops a value; hands out the payload if that panicked (a forced unwind does not count).
pub(crate) fn drop_quietly<V>(value: V) -> Option<Payload> {
    let payload = catch_unwind(AssertUnwindSafe(|| drop(value))).err()?;
    (!forced::is_forced(&*payload)).then_some(payload)
}

/// Drops a panic's payload, whose destructor may itself panic; that panic's payload is leaked rather than dropped.
pub(crate) fn drop_payload(payload: Payload) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
}

/// Puts the closure into a new block.
///
/// # Safety
///
/// The block is new and belongs to the caller; `body` and what it returns outlive the coroutine, which the
/// caller vouches for where they are not `'static`.
pub(super) unsafe fn put<F: FnOnce() -> T, T>(block: &Block, body: F) {
    // SAFETY: passed on to the caller.
    unsafe { Typed::<F, T>::put(block, body) };
    block.vtable.set(const { &Typed::<F, T>::VTABLE });
}

/// Takes the closure out of a block again that never was in a queue.
///
/// # Safety
///
/// [`put`] has put it there, with these types; the block is the caller's alone, and has no payload afterwards.
pub(super) unsafe fn take_back<F: FnOnce() -> T, T>(block: &Block) -> F {
    // SAFETY: passed on to the caller.
    let body = unsafe { Typed::<F, T>::take_body(block) };
    // SAFETY: empty now.
    unsafe { Typed::<F, T>::free(block) };
    body
}

/// Takes the result of an ended coroutine.
///
/// # Safety
///
/// The block's body returns `T`; the coroutine has ended; the caller is the handle, does this once, and does not
/// [`abandon`] it afterwards.
pub(crate) unsafe fn take_result<T>(block: &Block) -> Result<T, JoinError> {
    let vtable = block.vtable.get();
    // SAFETY: the payload holds the result.
    let result = unsafe { (vtable.result)(block) }.cast::<Result<T, JoinError>>();
    // SAFETY: read once (I2): the caller says so.
    let value = unsafe { result.read() };
    // SAFETY: empty now.
    unsafe { (vtable.free)(block) };
    value
}

/// The handle goes, and has not taken the result. If the coroutine has ended, that is dropped here; a panic that
/// nobody joined is handed out.
///
/// # Safety
///
/// The caller is the handle, and does not use it afterwards.
pub(crate) unsafe fn abandon(block: NonNull<Block>) -> Option<Payload> {
    // SAFETY: the handle holds a reference.
    let block = unsafe { block.as_ref() };
    if block.life.abandon() == Abandon::Nothing {
        return None;
    }
    // SAFETY: I2: ended while the handle existed, not taken.
    unsafe { (block.vtable.get().drop_result)(block) }
}
