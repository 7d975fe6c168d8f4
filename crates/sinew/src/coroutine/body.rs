//! The closure of a coroutine, and the first frame of its stack.
//!
//! Owns: the allocation of a record with its closure behind it; the only one that a coroutine needs.
//!
//! Invariants
//! - I1. The closure is taken out once: by the first frame, or by `drop_closure`.
//! - I2. Nothing unwinds out of the functions of the table.
//! - I3. A value that a body returns is in the last word, or, if it does not fit, stays on the stack until the one who resumed has read it; only then
//!   the stack is given back.
#![expect(unsafe_code, reason = "stores a closure of an erased type")]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use sinew_context::Pair;
use sinew_context::frame::Entry;

use crate::coroutine::anchor::Core;
use crate::coroutine::control::{Birth, Control, Fields};
use crate::coroutine::estate::{Estate, Settled};
use crate::coroutine::spares::{Spares, is_block};
use crate::coroutine::suspender::Suspender;
use crate::coroutine::word::{Word, is_inline, pack, unpack};
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
    pub(super) free: unsafe fn(*mut Control, &Spares),
    /// Whether the record is one of the spares' blocks.
    pub(super) is_block: bool,
}

/// What a body ends with.
type End<Ret> = Result<Ret, Payload>;

/// A record with its closure.
#[repr(C)]
struct Whole<F> {
    control: Control,
    closure: UnsafeCell<MaybeUninit<F>>,
}

/// Memory for a coroutine, and its id: what making it may fail for.
pub(super) struct Seat<F> {
    whole: NonNull<Whole<F>>,
    id: u64,
}

impl<F> Seat<F> {
    /// Takes both; the memory is lost unless `allocate` comes next.
    #[inline(always)]
    pub(super) fn take(core: &Core) -> Self {
        let id = core.next_id();
        Self {
            whole: core.spares().take(),
            id,
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

/// The functions for one set of types.
struct Typed<F, In, Out, Ret>(PhantomData<(F, In, Out, Ret)>);

impl<F, In, Out, Ret> Typed<F, In, Out, Ret>
where
    F: FnOnce(&Suspender<In, Out>, In) -> Ret,
{
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
        let whole = control.place().cast::<Whole<F>>();
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

    unsafe fn free(control: *mut Control, spares: &Spares) {
        let whole = control.cast::<Whole<F>>();
        // SAFETY: made by `allocate` for this type, and the caller's last use.
        unsafe { whole.drop_in_place() };
        // SAFETY: a record's address.
        let whole = unsafe { NonNull::new_unchecked(whole) };
        // SAFETY: as above; it holds nothing any more.
        unsafe { spares.give(whole) };
    }

    /// The first frame's function.
    unsafe extern "C" fn entry(control: usize, word: Word) -> ! {
        let control = ptr::with_exposed_provenance::<Control>(control);
        // SAFETY: `start` passed the record, which stays until the coroutine has ended.
        let control = unsafe { &*control };
        let mut local = MaybeUninit::uninit();
        let place: *mut ManuallyDrop<Ret> = if cfg!(sinew_asan) && !is_inline::<Ret>() {
            // A local variable is on the sanitizer's fake stack, which goes with the last switch; the far end of the true
            // stack stays, and no frame will reach it any more.
            control.far_end()
        } else {
            local.as_mut_ptr()
        };
        // SAFETY: this is the first frame, run once; either place is this function's alone.
        let (pair, word) = unsafe { Self::run(control, word, place) };
        // SAFETY: the `switch_in` that runs this entered the pair; nothing is left to be dropped here.
        unsafe { Pair::leave_for_good(pair, word) }
    }

    /// Runs the body. Returns the record's pair again, and a word. That stands for the value that it returned, which is in `place` if it has to be anywhere; or for nothing if nobody will
    /// take it.
    ///
    /// # Safety
    ///
    /// On the coroutine's own stack, once; `word` stands for the first `In`. `place` is for a value.
    // PERF: in the first frame itself the loop of a body that suspends had a register less, and a resume took 4 % more.
    #[inline(never)]
    unsafe fn run(
        control: &Control,
        word: Word,
        place: *mut ManuallyDrop<Ret>,
    ) -> (*const Pair, Word) {
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
        // PERF: the same record, in the register where the last resume has left it; otherwise each resume keeps it in a second one.
        let control = suspender.control();
        let pair = control.pair();
        // SAFETY: as above.
        let estate = unsafe { control.estate() };
        let value = match result {
            Ok(value) if !control.ends_oddly(estate) => {
                control.set_returned();
                ManuallyDrop::new(value)
            }
            result => match Self::end_oddly(control, estate, result) {
                Some(value) => ManuallyDrop::new(value),
                None => return (pair, Word::uninit()),
            },
        };
        if is_inline::<Ret>() {
            return (pair, pack(&value));
        }
        // SAFETY: passed on to the caller.
        unsafe { place.write(value) };
        // SAFETY: just written.
        (pair, pack(unsafe { &*place }))
    }

    /// The end of a body that has panicked, or has anything to settle. Hands out the value, if it is to be handed over.
    #[cold]
    #[inline(never)]
    fn end_oddly(control: &Control, estate: &Estate, result: End<Ret>) -> Option<Ret> {
        // From here on nobody is to suspend: destructors of the value, the error or a payload still run.
        control.raise_fence();
        if control.is_ending() {
            Self::end_unwanted(control, estate, result);
            return None;
        }
        let (result, error) = settle(estate, result);
        let has_left_error = error.is_some();
        control.leave_error(error);
        let (outcome, value) = match result {
            Ok(value) if control.is_confirmed() => (Outcome::Cancelled, Some(value)),
            Ok(value) if has_left_error => (Outcome::Error, Some(value)),
            Ok(value) => (Outcome::Returned, Some(value)),
            Err(payload) => {
                // The unwind of the scheduler's coroutine around this one: it goes on in the one who resumed.
                let outcome = match forced::is_forced(&*payload) {
                    true => Outcome::Cancelled,
                    false => Outcome::Error,
                };
                control.leave_panic(payload);
                (outcome, None)
            }
        };
        control.set_done(outcome);
        value
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
            control.leave_panic(payload);
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

/// Makes the record of a new coroutine.
// PERF: nothing here unwinds, or else what it makes is first made in memory where an unwind finds it, and then copied.
#[inline(always)]
pub(super) fn allocate<F, In, Out, Ret>(
    core: &Core,
    seat: Seat<F>,
    closure: F,
    birth: Birth,
) -> NonNull<Control>
where
    F: FnOnce(&Suspender<In, Out>, In) -> Ret,
{
    let vtable = const { &Typed::<F, In, Out, Ret>::VTABLE };
    // `Control::place` and the first frame find it by its address.
    let whole = seat.whole.as_ptr();
    whole.expose_provenance();
    // SAFETY: memory for this type.
    let fields = unsafe { &raw mut (*whole).control.fields };
    // SAFETY: as above, in nobody's use.
    unsafe { fields.write(Fields::new(core, vtable, birth)) };
    // SAFETY: as above.
    let place = unsafe { &raw mut (*whole).closure };
    // SAFETY: as above.
    unsafe { place.write(UnsafeCell::new(MaybeUninit::new(closure))) };
    seat.whole.cast()
}
