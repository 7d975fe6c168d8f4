//! The smallest coroutine: a stack, a closure and two contexts.
//!
//! Owns: a control record at the base of the stack, below it the frames of the body.
//! Thread: the one that enters it first; nothing checks that here.
//!
//! Invariants
//! - I1. The control record lives exactly as long as the stack is lent to the coroutine.
//! - I2. No unwinding leaves the first frame: a body that panics ends with [`Entered::Panicked`].
//!
//! Deliberately not here: types for what is exchanged (words are), states, cancellation, unwinding of a
//! suspended stack. Those are the `sinew` crate's.
#![expect(unsafe_code, reason = "runs a closure on a raw stack")]

use core::any::Any;
use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::mem::{MaybeUninit, offset_of};
use core::ptr::{self, NonNull};
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::arch::{FpEnv, Pair};
use crate::frame::prepare;

/// How a call of [`Coroutine::enter`] came back.
#[derive(Debug)]
pub enum Entered {
    /// The body suspended with this word; it can be entered again.
    Suspended(usize),
    /// The body returned this word; the stack is free.
    Returned(usize),
    /// The body panicked; the stack is free.
    Panicked(Box<dyn Any + Send>),
}

/// How a body ended: with a word, or by a panic.
type End = Result<usize, Box<dyn Any + Send>>;

/// The record at the base of the stack.
#[repr(C)]
struct Control {
    /// Where the body goes on, and the one who entered; the first frame links to the latter.
    pair: Pair,
    /// Whether the body has made its last switch.
    has_ended: Cell<bool>,
    /// Written before that.
    end: UnsafeCell<MaybeUninit<End>>,
}

const _: () = assert!(
    offset_of!(Control, pair) == 0,
    "the pair's address is the record's"
);

/// The body's way back to whoever entered it: the record, seen from inside.
#[repr(transparent)]
pub struct Yielder {
    control: Control,
}

impl fmt::Debug for Yielder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Yielder").finish_non_exhaustive()
    }
}

impl Yielder {
    /// Hands `word` to whoever entered, and returns the word of the next entry.
    ///
    /// # Safety
    ///
    /// Called on the coroutine's own stack, while it is the innermost entered one of its thread.
    #[inline]
    pub unsafe fn suspend(&self, word: usize) -> usize {
        // SAFETY: the `enter` that runs this body entered the pair.
        let arrival = unsafe { Pair::leave(&raw const self.control.pair, MaybeUninit::new(word)) };
        // SAFETY: both sides hand over whole words.
        unsafe { arrival.word.assume_init() }
    }
}

/// A closure on a stack of its own that can be entered, suspend and be entered again.
#[derive(Debug)]
pub struct Coroutine {
    control: NonNull<Control>,
}

/// What lies above the frames: the control record, at the start, then the closure until the body takes it.
#[repr(C)]
struct Lent<F> {
    control: Control,
    body: MaybeUninit<F>,
}

impl Coroutine {
    /// Prepares `body` to run on the stack whose highest usable address is `base`.
    ///
    /// Runs none of its code. If the coroutine is never entered the closure is not dropped.
    ///
    /// # Safety
    ///
    /// - The memory below `base` is writable, guarded at its end, large enough for the body, and
    ///   lent until the body has returned or panicked, or is never entered again and no one relies on
    ///   the destructors of its frames.
    /// - All entries happen on one thread.
    #[inline]
    pub unsafe fn new<F>(base: NonNull<u8>, body: F) -> Self
    where
        F: FnOnce(&Yielder, usize) -> usize,
    {
        let align = align_of::<Lent<F>>().max(16);
        let top = (base.addr().get() - size_of::<Lent<F>>()) & !(align - 1);
        let lent = base.as_ptr().with_addr(top).cast::<Lent<F>>();
        let control = Control {
            pair: Pair::empty(),
            has_ended: Cell::new(false),
            end: UnsafeCell::new(MaybeUninit::uninit()),
        };
        // SAFETY: aligned above, inside the lent memory.
        unsafe {
            lent.write(Lent {
                control,
                body: MaybeUninit::new(body),
            })
        };
        // SAFETY: `lent` has just been written.
        let caller = unsafe { (*lent).control.pair.outer.get() };
        // SAFETY: everything below `top`, which is 16-byte aligned, is free; `caller` lives as long as
        // the stack is lent.
        let context = unsafe {
            prepare(
                lent.cast(),
                enter_body::<F>,
                lent.expose_provenance(),
                caller,
            )
        };
        // SAFETY: `lent` has just been written.
        let place = unsafe { (*lent).control.pair.inner.get() };
        // SAFETY: nobody else looks at it yet.
        unsafe { place.write(context) };
        // SAFETY: derived from a non-null base.
        let control = unsafe { NonNull::new_unchecked(lent.cast()) };
        Self { control }
    }

    /// Runs the body, handing it `word`, until it suspends or ends.
    ///
    /// # Safety
    ///
    /// The coroutine has not ended, is not running, and the thread is the one of the earlier entries.
    #[inline]
    pub unsafe fn enter(&mut self, word: usize) -> Entered {
        let pair = self.control.as_ptr().cast::<Pair>();
        // SAFETY: I1; the body was prepared by `new` or has suspended, and is not running.
        let arrival = unsafe { Pair::enter(pair, MaybeUninit::new(word)) };
        // The same place as before. PERF: the next entry can start without waiting for a load.
        let control = ptr::with_exposed_provenance_mut::<Control>(arrival.pair.addr());
        // SAFETY: not null.
        self.control = unsafe { NonNull::new_unchecked(control) };
        // SAFETY: I1: the stack is still lent.
        let control = unsafe { self.control.as_ref() };
        // SAFETY: both sides hand over whole words.
        let word = unsafe { arrival.word.assume_init() };
        if control.has_ended.get() {
            // SAFETY: written by the body before its last switch, and read once: nobody enters again.
            return match unsafe { control.end.get().cast::<End>().read() } {
                Ok(word) => Entered::Returned(word),
                Err(payload) => Entered::Panicked(payload),
            };
        }
        Entered::Suspended(word)
    }

    /// As [`enter`](Self::enter), for a body with floating-point control words of its own: `env` is put in force for it,
    /// and is what the body left in force afterwards; the caller's comes back. About 20 ns more.
    ///
    /// # Safety
    ///
    /// As for [`enter`](Self::enter) and [`FpEnv::load`].
    pub unsafe fn enter_with_fp_env(&mut self, word: usize, env: &mut FpEnv) -> Entered {
        // SAFETY: passed on to the caller.
        let outer = unsafe { env.replace() };
        // SAFETY: passed on to the caller.
        let entered = unsafe { self.enter(word) };
        // SAFETY: it was in force before.
        *env = unsafe { outer.replace() };
        entered
    }
}

/// The first Rust frame on the stack.
unsafe extern "C" fn enter_body<F>(lent: usize, word: usize) -> !
where
    F: FnOnce(&Yielder, usize) -> usize,
{
    let lent = ptr::with_exposed_provenance_mut::<Lent<F>>(lent);
    // SAFETY: `new` wrote it.
    let body = unsafe { &raw const (*lent).body };
    // SAFETY: and this is the only time it is taken.
    let body = unsafe { body.cast::<F>().read() };
    // SAFETY: I1; from here on it is only shared.
    let control = unsafe { &*lent.cast::<Control>() };
    // SAFETY: transparent over the record.
    let yielder = unsafe { &*ptr::from_ref(control).cast::<Yielder>() };
    let end = catch_unwind(AssertUnwindSafe(|| body(yielder, word)));
    // SAFETY: only the body's side looks at it before `has_ended`.
    unsafe { control.end.get().cast::<End>().write(end) };
    control.has_ended.set(true);
    // SAFETY: the `enter` that runs this body entered the pair; nothing is left to drop here.
    unsafe { Pair::leave_for_good(&raw const control.pair, MaybeUninit::new(0)) }
}
