//! The closure of a coroutine, and the first frame of its stack.
//!
//! Owns: the allocation of a record with its closure behind it; the only one that a coroutine needs.
//!
//! Invariants
//! - I1. The closure is taken out once: by the first frame, or by `drop_closure`.
//! - I2. Nothing unwinds out of the functions of the table.
//! - I3. What a body ends with stays on its stack until the one who resumed has read it; only then the stack is given back.
#![expect(unsafe_code, reason = "stores a closure of an erased type")]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::{self, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use sinew_context::Pair;
use sinew_context::frame::Entry;

use crate::coroutine::control::{Birth, Control};
use crate::coroutine::estate::{Estate, Settled};
use crate::coroutine::spares::{Spares, is_block};
use crate::coroutine::suspender::Suspender;
use crate::coroutine::word::{Word, is_inline, unpack};
use crate::error::Error;
use crate::join::Outcome;
use crate::scheduler::body::{Payload, drop_payload, drop_quietly};
use crate::scheduler::forced;

/// The functions that know a coroutine's types.
#[derive(Debug)]
pub(super) struct Vtable {
    /// What its stack runs first.
    pub(super) entry: Entry,
    /// Drops the closure; hands out what that panicked with.
    pub(super) drop_closure: unsafe fn(&Control) -> Option<Payload>,
    /// Frees the record, whose closure is gone.
    pub(super) free: unsafe fn(*mut (), &Spares),
    /// Whether the record is one of the spares' blocks.
    pub(super) is_block: bool,
}

/// What a body ends with, unless it is being ended.
pub(super) type End<Ret> = Result<Ret, Payload>;

/// A record with its closure.
#[repr(C)]
struct Whole<F> {
    control: Control,
    closure: UnsafeCell<MaybeUninit<F>>,
}

/// The functions for one set of types.
struct Typed<F, In, Out, Ret>(PhantomData<(F, In, Out, Ret)>);

impl<F, In, Out, Ret> Typed<F, In, Out, Ret>
where
    F: FnOnce(&Suspender<In, Out>, In) -> Ret,
{
    /// What a body ends with is handed over by its address.
    const BY_ADDRESS: () = assert!(!is_inline::<End<Ret>>());

    const VTABLE: Vtable = Vtable {
        // SAFETY: the two differ in that the word may be uninitialised in part, which assembly does not mind.
        entry: unsafe {
            mem::transmute::<unsafe extern "C" fn(usize, Word) -> !, Entry>(Self::entry)
        },
        drop_closure: Self::drop_closure,
        free: Self::free,
        is_block: is_block::<Whole<F>>(),
    };

    /// # Safety
    ///
    /// The record was made for these types and its closure has not been taken.
    unsafe fn take_closure(control: &Control) -> F {
        let whole = control.whole().cast::<Whole<F>>();
        // SAFETY: the record was made for this type.
        let closure = unsafe { &raw const (*whole).closure };
        let closure = UnsafeCell::raw_get(closure).cast_const();
        // SAFETY: I1.
        unsafe { closure.cast::<F>().read() }
    }

    unsafe fn drop_closure(control: &Control) -> Option<Payload> {
        // SAFETY: passed on to the caller.
        let closure = unsafe { Self::take_closure(control) };
        catch_unwind(AssertUnwindSafe(|| drop(closure))).err()
    }

    unsafe fn free(whole: *mut (), spares: &Spares) {
        let whole = whole.cast::<Whole<F>>();
        // SAFETY: made by `allocate` for this type, and the caller's last use.
        unsafe { whole.drop_in_place() };
        // SAFETY: a record's address.
        let whole = unsafe { NonNull::new_unchecked(whole) };
        // SAFETY: as above; it holds nothing any more.
        unsafe { spares.give(whole) };
    }

    /// The first frame's function.
    unsafe extern "C" fn entry(control: usize, word: Word) -> ! {
        const { Self::BY_ADDRESS };
        let control = ptr::with_exposed_provenance::<Control>(control);
        // SAFETY: `start` passed the record, which stays until the coroutine has ended.
        let control = unsafe { &*control };
        let mut local = MaybeUninit::uninit();
        let end: *mut MaybeUninit<End<Ret>> = if cfg!(sinew_asan) {
            // A local variable is on the sanitizer's fake stack, which goes with the last switch; the far end of the true
            // stack stays, and no frame will reach it any more.
            control.far_end()
        } else {
            &raw mut local
        };
        // SAFETY: either place is this function's alone, and holds nothing.
        let end = unsafe { &mut *end };
        // SAFETY: this is the first frame, run once.
        unsafe { Self::run(control, word, end) };
        let word = Word::new(end.as_ptr().expose_provenance());
        // SAFETY: the `switch_in` that runs this entered the pair; nothing is left to be dropped here.
        unsafe { Pair::leave_for_good(&raw const control.pair, word) }
    }

    /// Runs the body and leaves what it ended with in `end`, or, if nobody will take that, nothing.
    ///
    /// # Safety
    ///
    /// On the coroutine's own stack, once; `word` stands for the first `In`.
    #[inline(never)]
    unsafe fn run(control: &Control, word: Word, end: &mut MaybeUninit<End<Ret>>) {
        // SAFETY: the first entry.
        let closure = unsafe { Self::take_closure(control) };
        // SAFETY: the first resume passes a value, and leaves it to this side.
        let first = unsafe { unpack::<In>(word) };
        // SAFETY: this is its stack.
        let suspender = unsafe { Suspender::new(control) };
        let result = catch_unwind(AssertUnwindSafe(|| {
            let value = closure(&suspender, first);
            control.check_fp_env();
            value
        }));
        // From here on nobody is to suspend: destructors of the value, the error or a payload still run.
        control.raise_fence();
        // SAFETY: as above.
        let estate = unsafe { control.estate() };
        if control.is_ending() {
            Self::end_unwanted(control, estate, result);
            return;
        }
        let mut has_left_error = false;
        let result = if estate.is_used() {
            let (result, error) = settle(estate, result);
            has_left_error = error.is_some();
            control.leave_error(error);
            result
        } else {
            result
        };
        let outcome = match &result {
            Ok(_) if control.is_confirmed() => Outcome::Cancelled,
            Ok(_) if has_left_error => Outcome::Error,
            Ok(_) => Outcome::Returned,
            // The unwind of the scheduler's coroutine around this one: it goes on in the one who resumed.
            Err(payload) if forced::is_forced(&**payload) => Outcome::Cancelled,
            Err(_) => Outcome::Error,
        };
        end.write(result);
        control.set_done(outcome);
    }

    /// The end of a body that was being ended: nobody takes its value, and the anchor its panic.
    #[cold]
    fn end_unwanted(control: &Control, estate: &Estate, result: End<Ret>) {
        let (result, error) = settle(estate, result);
        let payload = match result {
            Ok(value) => drop_quietly(value),
            Err(payload) => (!forced::is_forced(&*payload)).then_some(payload),
        };
        let more = [drop_quietly(error), estate.close()];
        let payload = payload
            .into_iter()
            .chain(more.into_iter().flatten())
            .reduce(keep_first);
        // A body that returns after all has been cancelled all the same.
        let outcome = match payload {
            None => Outcome::Cancelled,
            Some(_) => Outcome::Error,
        };
        if let Some(payload) = payload {
            control.keep_panic(payload);
        }
        control.set_done(outcome);
    }
}

/// Settles the estate: what the body ends with then, and the error that it left.
#[cold]
#[inline(never)]
fn settle<Ret>(estate: &Estate, result: End<Ret>) -> (End<Ret>, Option<Error>) {
    let Settled { panic, error } = estate.settle();
    let result = first_panic(result, panic);
    // The drop of a value may have left something again.
    (first_panic(result, estate.close()), error)
}

/// What a body ends with if a cleanup has panicked: with that, unless it has panicked itself.
fn first_panic<Ret>(result: End<Ret>, of_cleanup: Option<Payload>) -> End<Ret> {
    let Some(of_cleanup) = of_cleanup else {
        return result;
    };
    match result {
        Ok(value) => Err([drop_quietly(value)]
            .into_iter()
            .flatten()
            .fold(of_cleanup, keep_first)),
        Err(payload) if forced::is_forced(&*payload) => Err(of_cleanup),
        Err(payload) => Err(keep_first(payload, of_cleanup)),
    }
}

/// Of two panics the first counts.
fn keep_first(first: Payload, second: Payload) -> Payload {
    drop_payload(second);
    first
}

/// Allocates the record of a new coroutine.
#[inline(always)]
pub(super) fn allocate<F, In, Out, Ret>(
    core: &super::anchor::Core,
    closure: F,
    birth: Birth,
) -> NonNull<Control>
where
    F: FnOnce(&Suspender<In, Out>, In) -> Ret,
{
    let vtable = const { &Typed::<F, In, Out, Ret>::VTABLE };
    let whole = core.spares().take::<Whole<F>>();
    // SAFETY: memory for this type, in nobody's use.
    unsafe {
        whole.write(Whole {
            control: Control::new(core, vtable, birth),
            closure: UnsafeCell::new(MaybeUninit::new(closure)),
        })
    };
    let control = whole.cast::<Control>();
    // SAFETY: just allocated.
    unsafe { control.as_ref() }.set_whole(whole.as_ptr().cast());
    control
}
