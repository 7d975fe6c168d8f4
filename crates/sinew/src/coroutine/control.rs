//! The record of one coroutine.
//!
//! Owns: its state, its two contexts, its stack while it has one, its place in the anchor's list.
//! Thread: the anchor's, for all of it.
//!
//! Invariants
//! - I1. A record is in its anchor's list from its making until it is freed. It is freed by the handle's drop if it is
//!   Done then, else by the anchor's end, after everything of that anchor is Done.
//! - I2. `stack`, or `provided`, is there exactly while frames of the body exist, or before if it was provided; `reach` is its base then, unless the
//!   frames are being ended or a fence stands, and 0 otherwise.
//! - I3. While the state is Running the record is not freed, whoever drops the handle.
//! - I4. A coroutine does not stop while its own frames are unwinding, so wherever it is suspended a forced unwind may be
//!   raised. (The one exception: it was resumed by a destructor that a panic ran, and then panicked itself.)
//! - I5. `odd` holds whatever the plain way from a making to a drop does not look at: where no bit is set there is nothing but memory and a stack to be
//!   given back, and a body that returns has just returned. `Phase::DoneBare` is Done with no bit set.
//!
//! | state | stack | closure | entered by | left by |
//! |---|---|---|---|---|
//! | Ready | no | in the record | its making | `enter_slow`, `discard` |
//! | Running | yes (no in `discard`) | on the stack | an entry, `discard` | a suspend, the end |
//! | Suspended | yes | on the stack | a suspend | an entry |
//! | Done | no | gone | the end | – |
#![expect(unsafe_code, reason = "switches stacks")]

mod ending;
mod starting;

use std::any::TypeId;
use std::cell::Cell;
#[cfg(feature = "backtrace")]
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::{MaybeUninit, offset_of};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::ptr;
use std::ptr::NonNull;

#[cfg(feature = "backtrace")]
use sinew_context::Context;
use sinew_context::arch::{runs_within, stack_pointer};
use sinew_context::stack::provided::Provided;
use sinew_context::stack::{DescribeFn, Stack, StackConfig};
use sinew_context::{Arrival, Errno, FpEnv, Pair};

use crate::cancel::CancelToken;
use crate::coroutine::anchor::Core;
use crate::coroutine::body::Vtable;
use crate::coroutine::estate::Estate;
use crate::coroutine::word::Word;
use crate::error::Error;
use crate::join::Outcome;
use crate::scheduler::body::{Payload, drop_quietly};
use crate::scheduler::{current, forced, thread_state};

/// How often a body may swallow the forced unwind before the process ends.
const SWALLOWED_MAX: u32 = 16;
/// The same where it cannot be told whether the body swallowed it or a destructor runs.
const REFUSED_MAX: u32 = 1_000;

/// Where a coroutine is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It has not run yet.
    Ready,
    /// It runs, or something that it resumed does.
    Running,
    /// It has suspended.
    Suspended,
    /// It has ended.
    Done,
}

/// The state, as the record has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    Ready,
    /// Running, without more ado when it stops.
    Running,
    /// Running, and the control words are to be seen to when it stops: every one in a debug build.
    RunningApart,
    /// Running, resumed on a thread that was panicking already: by a destructor. Perhaps apart.
    RunningInPanic,
    Suspended,
    /// The same, of one that is apart.
    SuspendedApart,
    Done,
    /// Done, and it leaves no more than memory: I5.
    DoneBare,
}

/// What of [`Control::odd`] is set.
mod odd {
    /// There is something to be dropped, or was: a name, a token, an error, a panic; or the record is no block of the spares.
    pub(super) const FULL: u8 = 1 << 0;
    /// The body has floating-point control words of its own. Set from the making on, as the next.
    pub(super) const KEEPS_FP_ENV: u8 = 1 << 1;
    /// Its stack was provided.
    pub(super) const PROVIDED: u8 = 1 << 2;
    /// The body has confirmed the cancel.
    pub(super) const CONFIRMED: u8 = 1 << 3;
    /// The frames are to go: suspending raises the forced unwind.
    pub(super) const ENDING: u8 = 1 << 4;
    /// A cleanup runs on the stack: confirming a cancel is refused.
    pub(super) const IN_CLEANUP: u8 = 1 << 5;
}

/// Whether a cancel was requested, as far as the record knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Request {
    No,
    Yes,
    /// There is a token, which may fire at any time: look at it.
    AskToken,
}

/// What a body that was resumed is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Nothing,
    /// A value has come in.
    ToStop,
    /// None has.
    ToEnd,
}

/// The types that a coroutine is resumed with and suspends with.
pub(super) type ValueTypes = (TypeId, TypeId);

/// Whether a resume that is not the plain case can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Entry {
    /// The coroutine is Running now: switch to it.
    Entered,
    /// It is Done, or runs.
    State,
    /// It was cancelled before it had run; to be discarded.
    Unwanted,
    /// There is no stack.
    NoMemory,
}

/// Why a body has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Stop {
    /// It has suspended with an `Out`.
    Suspended,
    /// It has ended, and unless it was being ended with a `Ret`. The stack is to be released.
    Ended,
    /// It has panicked: `raise_panic`.
    Panicked,
}

/// The record; see the file's head.
#[repr(C)]
pub(super) struct Control {
    /// Where the body goes on, and the one who resumed; the first frame links to the latter. Written by the start and by the switches.
    /// PERF: and not by the making, which would clear eight words.
    pub(super) pair: MaybeUninit<Pair>,
    pub(super) fields: Fields,
}

const _: () = assert!(offset_of!(Control, pair) == 0, "see `Control::of_pair`");

impl Deref for Control {
    type Target = Fields;

    #[inline(always)]
    fn deref(&self) -> &Fields {
        &self.fields
    }
}

/// What a record is made with.
#[repr(C)]
pub(super) struct Fields {
    /// The lowest address of the stack.
    limit: Cell<usize>,
    /// I2.
    reach: Cell<usize>,
    /// The thread's.
    errno: Errno,
    phase: Cell<Phase>,
    request: Cell<Request>,
    outcome: Cell<Option<Outcome>>,
    /// I5.
    odd: Cell<u8>,
    /// How many fences stand.
    fences: Cell<u32>,
    /// How often the forced unwind was raised or refused.
    swallowed: Cell<u32>,
    /// The highest address of the stack.
    base: Cell<usize>,
    /// One of the anchor's.
    stack: Cell<Option<Stack>>,
    /// The one that it was made with, instead; also before it starts.
    provided: Cell<Option<Provided<'static>>>,
    left: Cell<Option<Box<Left>>>,
    pub(super) vtable: &'static Vtable,
    /// Made when it is first asked for, or at the making if there is a parent. Other threads may fire it, and it
    /// outlives the record, of which it knows nothing.
    token: Cell<Option<CancelToken>>,
    /// Set if `coroutine::suspend` may find this coroutine.
    types: Cell<Option<fn() -> ValueTypes>>,
    /// The anchor, or what stands in for one; it outlives the record.
    anchor: NonNull<Core>,
    /// The list: the next record, and the pointer that points here.
    next: Cell<*const Control>,
    slot: Cell<*const Cell<*const Control>>,
    config: StackConfig,
    id: u64,
    /// Where it keeps its own, the body's words, while it does not run; else (in a debug build) those that it has to leave behind.
    fp_env: Cell<FpEnv>,
    name: Option<Box<str>>,
    location: &'static Location<'static>,
}

/// What a body leaves, besides its value.
enum Left {
    /// What it panicked with: to be raised by the one who resumed, or, if it was being ended, by the anchor.
    Panic(Payload),
    /// The error in its context.
    Error(Error),
    /// Both.
    PanicAndError(Payload, Error),
}

/// What is known of a coroutine at its making.
pub(super) struct Birth {
    pub(super) config: StackConfig,
    pub(super) provided: Option<Provided<'static>>,
    pub(super) name: Option<Box<str>>,
    pub(super) fp_env: bool,
    pub(super) types: Option<fn() -> ValueTypes>,
    pub(super) token: Option<CancelToken>,
    pub(super) location: &'static Location<'static>,
    pub(super) id: u64,
}

impl Birth {
    /// I5.
    #[inline(always)]
    fn odd(&self, vtable: &Vtable) -> u8 {
        let bit = |is_so, bit| if is_so { bit } else { 0 };
        bit(self.name.is_some(), odd::FULL)
            | bit(self.token.is_some(), odd::FULL)
            | bit(!vtable.is_block, odd::FULL)
            | bit(self.fp_env, odd::KEEPS_FP_ENV)
            | bit(self.provided.is_some(), odd::PROVIDED)
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coroutine")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Fields {
    #[inline(always)]
    pub(super) fn new(core: &Core, vtable: &'static Vtable, birth: Birth) -> Self {
        let odd = birth.odd(vtable);
        Self {
            limit: Cell::new(0),
            reach: Cell::new(0),
            phase: Cell::new(Phase::Ready),
            request: Cell::new(match &birth.token {
                _ if core.is_closing() => Request::Yes,
                Some(_) => Request::AskToken,
                None => Request::No,
            }),
            outcome: Cell::new(None),
            odd: Cell::new(odd),
            fences: Cell::new(0),
            swallowed: Cell::new(0),
            base: Cell::new(0),
            stack: Cell::new(None),
            provided: Cell::new(birth.provided),
            left: Cell::new(None),
            vtable,
            token: Cell::new(birth.token),
            types: Cell::new(birth.types),
            anchor: NonNull::from(core),
            next: Cell::new(ptr::null()),
            slot: Cell::new(ptr::null()),
            config: birth.config,
            id: birth.id,
            errno: core.errno,
            fp_env: Cell::new(FpEnv::DEFAULT),
            name: birth.name,
            location: birth.location,
        }
    }
}

impl Control {
    #[inline]
    pub(super) fn state(&self) -> State {
        match self.phase.get() {
            Phase::Ready => State::Ready,
            Phase::Running | Phase::RunningApart | Phase::RunningInPanic => State::Running,
            Phase::Suspended | Phase::SuspendedApart => State::Suspended,
            Phase::Done | Phase::DoneBare => State::Done,
        }
    }

    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.outcome.get()
    }

    /// A copy of the error that the body left in its context.
    pub(super) fn left_error(&self) -> Option<Error> {
        let left = self.left.take();
        let copy = match left.as_deref() {
            Some(Left::Error(error) | Left::PanicAndError(_, error)) => Some(error.clone()),
            Some(Left::Panic(_)) | None => None,
        };
        self.left.set(left);
        copy
    }

    /// The body has ended, with this error in its context.
    pub(super) fn leave_error(&self, error: Option<Error>) {
        if let Some(error) = error {
            self.set(odd::FULL);
            self.left.set(Some(Box::new(Left::Error(error))));
        }
    }

    /// The body has ended by this panic; if it has left an error, too, that comes first.
    pub(super) fn leave_panic(&self, payload: Payload) {
        self.set(odd::FULL);
        let left = match self.left.take().map(|left| *left) {
            Some(Left::Error(error)) => Left::PanicAndError(payload, error),
            _ => Left::Panic(payload),
        };
        self.left.set(Some(Box::new(left)));
    }

    /// What the body has panicked with, if it has, for the one who is to raise it.
    fn take_panic(&self) -> Option<Payload> {
        match *self.left.take()? {
            Left::Panic(payload) => Some(payload),
            Left::PanicAndError(payload, error) => {
                self.left.set(Some(Box::new(Left::Error(error))));
                Some(payload)
            }
            error @ Left::Error(_) => {
                self.left.set(Some(Box::new(error)));
                None
            }
        }
    }

    #[inline(always)]
    fn has(&self, bits: u8) -> bool {
        self.odd.get() & bits != 0
    }

    fn set(&self, bits: u8) {
        self.odd.set(self.odd.get() | bits);
    }

    /// Whether the body, which has returned, is to be settled with: otherwise `set_returned` is all.
    #[inline(always)]
    pub(super) fn ends_oddly(&self, estate: &Estate) -> bool {
        self.odd.get() != 0 || estate.is_used()
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    #[inline]
    pub(super) fn is_cancelled(&self) -> bool {
        self.may_be_cancelled() && self.is_cancelled_slow()
    }

    /// Whether it is worth a look.
    #[inline(always)]
    pub(super) fn may_be_cancelled(&self) -> bool {
        self.request.get() != Request::No
    }

    #[cold]
    #[inline(never)]
    fn is_cancelled_slow(&self) -> bool {
        let fired = self.request.get() == Request::Yes || {
            let token = self.token.take();
            let fired = token.as_ref().is_some_and(CancelToken::has_fired);
            self.token.set(token);
            fired
        };
        if fired {
            self.request.set(Request::Yes);
        }
        fired
    }

    pub(super) fn is_ending(&self) -> bool {
        self.has(odd::ENDING)
    }

    /// Requests a cancel; callbacks of the token run.
    pub(super) fn cancel(&self, reason: &str) {
        self.request.set(Request::Yes);
        if let Some(token) = self.token_if_made() {
            token.cancel(reason);
        }
    }

    fn token_if_made(&self) -> Option<CancelToken> {
        let token = self.token.take();
        let copy = token.clone();
        self.token.set(token);
        copy
    }

    /// The same without an unwind: hands out the panic of a callback.
    fn cancel_quietly(&self) -> Option<Payload> {
        catch_unwind(AssertUnwindSafe(|| self.cancel(BEING_ENDED))).err()
    }

    /// The token, made now if there is none.
    pub(super) fn token(&self) -> CancelToken {
        let token = self.token_if_made().unwrap_or_else(|| {
            let token = CancelToken::new();
            self.set(odd::FULL);
            if self.phase.get() == Phase::DoneBare {
                // INVARIANT: I5.
                self.phase.set(Phase::Done);
            }
            self.token.set(Some(token.clone()));
            token
        });
        match self.request.get() {
            Request::No if self.state() != State::Done => self.request.set(Request::AskToken),
            // Made late: nobody has registered anything yet.
            Request::Yes if !token.has_fired() => token.cancel(CANCELLED),
            _ => {}
        }
        token
    }

    /// Lets `coroutine::suspend` find this coroutine.
    pub(super) fn set_types(&self, types: fn() -> ValueTypes) {
        self.types.set(Some(types));
    }

    /// The types that were published.
    pub(super) fn types(&self) -> Option<ValueTypes> {
        self.types.get().map(|types| types())
    }

    /// Records the body's consent to a cancel; says whether there was one, and the body may consent here.
    pub(super) fn confirm(&self) -> bool {
        let may = self.is_cancelled() && !self.has(odd::IN_CLEANUP);
        if may {
            self.set(odd::CONFIRMED);
        }
        may
    }

    /// What is kept for it at the base of its stack.
    ///
    /// # Safety
    ///
    /// It runs on its stack, and the reference stays there.
    pub(super) unsafe fn estate(&self) -> &Estate {
        let base = ptr::with_exposed_provenance_mut::<u8>(self.base.get());
        // SAFETY: I2: it is set while there is a stack.
        let base = unsafe { NonNull::new_unchecked(base) };
        // SAFETY: `start` has laid it below the stack's base, and this base is the address of the estate.
        unsafe { base.cast().as_ref() }
    }

    pub(super) fn is_confirmed(&self) -> bool {
        self.has(odd::CONFIRMED)
    }

    /// Says whether a cleanup runs on the stack; returns what it was before.
    pub(super) fn set_in_cleanup(&self, inside: bool) -> bool {
        let before = self.has(odd::IN_CLEANUP);
        self.odd.set(self.odd.get() & !odd::IN_CLEANUP);
        if inside {
            self.set(odd::IN_CLEANUP);
        }
        before
    }

    /// The record, and what lies behind it. A reference to it alone would not do to reach that.
    #[inline(always)]
    pub(super) fn place(&self) -> *mut Self {
        ptr::with_exposed_provenance_mut(ptr::from_ref(self).addr())
    }

    /// Where the switches find its contexts.
    #[inline(always)]
    pub(super) fn pair(&self) -> *const Pair {
        self.pair.as_ptr()
    }

    pub(super) fn core(&self) -> &Core {
        // SAFETY: the anchor outlives the record.
        unsafe { self.anchor.as_ref() }
    }

    /// Links the record in front of the list that starts in `head`.
    ///
    /// # Safety
    ///
    /// It is in no list; it and `head` stay in place until it is unlinked.
    #[inline(always)]
    pub(super) unsafe fn link(&self, head: &Cell<*const Self>) {
        let next = head.replace(self);
        self.next.set(next);
        self.slot.set(head);
        // SAFETY: what a list names is alive.
        if let Some(next) = unsafe { next.as_ref() } {
            next.slot.set(&raw const self.next);
        }
    }

    /// Takes the record out of the list that it is in. It is freed next, or put into another.
    #[inline(always)]
    pub(super) fn unlink(&self) {
        let (slot, next) = (self.slot.get(), self.next.get());
        // SAFETY: I1: it is in a list; the slot is the list's head or the next field of a linked record.
        unsafe { &*slot }.set(next);
        // SAFETY: what a list names is alive.
        if let Some(next) = unsafe { next.as_ref() } {
            next.slot.set(slot);
        }
    }

    // PERF: a resume and a suspend of a u64: 3.5 ns with a look at `keeps_fp_env()`, 3.0 ns with that in the phase.
    /// Makes it Running if it is Suspended, not apart, and the thread does not panic; else nothing has happened.
    #[inline(always)]
    pub(super) fn try_enter(&self) -> bool {
        let plain = self.phase.get() == Phase::Suspended && !std::thread::panicking();
        if plain {
            self.phase.set(Phase::Running);
        }
        plain
    }

    /// Makes it Running. If it is apart, the control words are the body's from here to `note_stop`.
    fn set_running(&self) {
        let is_apart = self.is_apart();
        self.phase.set(match std::thread::panicking() {
            true => Phase::RunningInPanic,
            false if is_apart => Phase::RunningApart,
            false => Phase::Running,
        });
        if is_apart {
            self.give_control_words();
        }
    }

    /// Whether the control words are to be seen to at each switch.
    fn is_apart(&self) -> bool {
        cfg!(debug_assertions) || self.keeps_fp_env()
    }

    /// Whether the body has floating-point control words of its own.
    #[inline(always)]
    fn keeps_fp_env(&self) -> bool {
        self.has(odd::KEEPS_FP_ENV)
    }

    /// Puts the body's control words in force if it keeps its own, and notes the resumer's.
    fn give_control_words(&self) {
        if self.keeps_fp_env() {
            thread_state::keep_fp_env();
            // SAFETY: what the body left in force, or what was in force at its first resume.
            let outer = unsafe { self.fp_env.get().replace() };
            self.fp_env.set(outer);
        } else {
            self.fp_env.set(FpEnv::current());
        }
    }

    /// Puts the resumer's back, and notes the body's.
    fn take_control_words(&self) {
        // SAFETY: they were in force before; a body that panicked may have left others.
        let own = unsafe { self.fp_env.get().replace() };
        if self.keeps_fp_env() {
            self.fp_env.set(own);
        }
    }

    /// Runs the body until it suspends or ends, handing it `word`. Returns its word. `note_stop` comes next.
    ///
    /// # Safety
    ///
    /// The coroutine has just been entered. `word` is for an `In` that the body's side may take; anything if the body is
    /// being ended.
    #[inline(always)]
    pub(super) unsafe fn switch_in(&self, word: Word) -> Arrival {
        // SAFETY: the body was prepared or has left, and has not been entered since.
        unsafe { Pair::enter(self.pair(), word) }
    }

    /// The record that the pair is the first part of.
    #[inline(always)]
    pub(super) fn of_pair(pair: *const Pair) -> NonNull<Self> {
        let record = ptr::with_exposed_provenance_mut(pair.addr());
        // SAFETY: a record's address.
        unsafe { NonNull::new_unchecked(record) }
    }

    /// Panics in a debug build if the body has changed the control words without having asked to keep its own.
    #[inline(always)]
    #[track_caller]
    pub(super) fn check_fp_env(&self) {
        current::expect_no_spin_lock_of_body();
        if cfg!(debug_assertions) && !self.keeps_fp_env() {
            thread_state::expect_fp_env(self.fp_env.get());
        }
    }

    /// The lowest place on its stack for a value.
    pub(super) fn far_end<T>(&self) -> *mut T {
        let place = self.limit.get().next_multiple_of(align_of::<T>());
        ptr::with_exposed_provenance_mut(place)
    }

    /// Where the thread's errno is.
    #[inline(always)]
    pub(super) fn errno(&self) -> Errno {
        self.errno
    }

    /// The body has stopped. If it has ended and nothing has to be read from its stack any more (`is_read`), that is released, unless it has
    /// panicked. The word passes through.
    #[inline(always)]
    pub(super) fn note_stop(&self, word: Word, is_read: bool) -> (Stop, Word) {
        if self.phase.get() == Phase::Running {
            self.phase.set(Phase::Suspended);
            (Stop::Suspended, word)
        } else {
            self.note_stop_slow(word, is_read)
        }
    }

    /// The same for every other case; cold as `enter_slow` is.
    #[cold]
    #[inline(never)]
    fn note_stop_slow(&self, word: Word, is_read: bool) -> (Stop, Word) {
        if self.phase.get() != Phase::DoneBare {
            return self.note_stop_oddly(word, is_read);
        }
        if cfg!(debug_assertions) {
            self.take_control_words();
        }
        if is_read {
            self.release_stack();
        }
        (Stop::Ended, word)
    }

    #[cold]
    #[inline(never)]
    fn note_stop_oddly(&self, word: Word, is_read: bool) -> (Stop, Word) {
        let is_apart = self.is_apart();
        if is_apart {
            self.take_control_words();
        }
        if self.phase.get() == Phase::Done {
            let left = self.left.take();
            let stop = match left.as_deref() {
                Some(Left::Panic(_) | Left::PanicAndError(..)) => Stop::Panicked,
                Some(Left::Error(_)) | None => Stop::Ended,
            };
            self.left.set(left);
            if is_read && stop == Stop::Ended {
                self.release_stack();
            }
            return (stop, word);
        }
        self.phase.set(if is_apart {
            Phase::SuspendedApart
        } else {
            Phase::Suspended
        });
        (Stop::Suspended, word)
    }

    /// The body's last word on its own stack, if it does not end oddly: from here on it is Done.
    #[inline(always)]
    pub(super) fn set_returned(&self) {
        debug_assert_eq!(self.odd.get(), 0);
        self.outcome.set(Some(Outcome::Returned));
        self.phase.set(Phase::DoneBare);
    }

    /// The same in every case.
    pub(super) fn set_done(&self, outcome: Outcome) {
        self.outcome.set(Some(outcome));
        self.phase.set(Phase::Done);
    }

    /// Gives the stack of an ended coroutine back. Whatever was to be read from it has been.
    #[inline]
    pub(super) fn release_stack(&self) {
        debug_assert_eq!(self.state(), State::Done);
        self.reach.set(0);
        if let Some(stack) = self.stack.take() {
            self.core().put_stack(stack);
        } else if self.has(odd::PROVIDED) {
            self.drop_provided();
        }
    }

    /// Gives the stack back and raises the body's panic.
    #[cold]
    #[inline(never)]
    pub(super) fn raise_panic(&self) -> ! {
        let payload = self.take_panic();
        self.release_stack();
        match payload {
            Some(payload) => resume_unwind(payload),
            None => unreachable!("it has panicked"),
        }
    }

    /// Drops a stack that was provided; what panics meanwhile is the anchor's to tell.
    #[cold]
    #[inline(never)]
    fn drop_provided(&self) {
        let stack = self.provided.take();
        // The memory may hold this very handle: I3.
        let phase = self.phase.replace(Phase::Running);
        let panic = drop_quietly(stack);
        self.phase.set(phase);
        if let Some(payload) = panic {
            self.core().keep_panic(payload);
        }
    }

    /// Whether the caller may suspend as this coroutine now: it runs on its stack, which is not being unwound.
    #[inline(always)]
    pub(super) fn may_suspend(&self) -> bool {
        const LIMIT: usize = offset_of!(Control, fields.limit);
        const REACH: usize = offset_of!(Control, fields.reach);
        // I2: a reach of 0 refuses every address. A thread that panics is looked at more closely elsewhere.
        // SAFETY: two words of the record.
        let is_within = unsafe { runs_within::<LIMIT, REACH>(ptr::from_ref(self).cast()) };
        is_within && !std::thread::panicking()
    }

    /// The closer look where `may_suspend` said no: whether it stays a no. Raises the forced unwind where one is due.
    #[cold]
    #[inline(never)]
    pub(super) fn refuse(&self) -> bool {
        let address = stack_pointer();
        if address < self.limit.get() || address >= self.base.get() {
            return true;
        }
        let panicking = std::thread::panicking();
        if panicking && self.phase.get() != Phase::RunningInPanic {
            return true;
        }
        let fenced = self.fences.get() > 0;
        if !self.is_ending() {
            return fenced;
        }
        if fenced || panicking || !forced::is_possible(self.base.get()) {
            self.count_swallowed(REFUSED_MAX);
            return true;
        }
        self.unwind()
    }

    /// Where the body goes on, and its stack: of a suspended one, for a walk.
    #[cfg(feature = "backtrace")]
    pub(super) fn suspended(&self) -> (Context, std::ops::Range<usize>) {
        // SAFETY: a field's address; the anchor's thread, and the body does not run: nobody writes there.
        let inner = unsafe { &raw const (*self.pair()).inner };
        // SAFETY: as above; it was written at the latest when the body suspended.
        let context = unsafe { UnsafeCell::raw_get(inner).read() };
        (context, self.limit.get()..self.base.get())
    }

    /// From here on it cannot suspend.
    pub(super) fn raise_fence(&self) {
        self.fences.set(self.fences.get() + 1);
        self.reach.set(0);
    }

    /// Takes one fence away.
    pub(super) fn lower_fence(&self) {
        self.fences.set(self.fences.get() - 1);
        if self.fences.get() == 0 && !self.is_ending() {
            self.reach.set(self.base.get());
        }
    }

    /// The coroutine was resumed and may have a cancel request. If it is being ended there is no value: raises the forced
    /// unwind, or says so where there is no unwinding. The word passes through.
    #[cold]
    #[inline(never)]
    pub(super) fn look_for_cancel(&self, word: Word) -> (Asked, Word) {
        if !self.is_cancelled() {
            return (Asked::Nothing, word);
        }
        if !self.is_ending() {
            return (Asked::ToStop, word);
        }
        if forced::is_possible(self.base.get()) {
            self.unwind();
        }
        (Asked::ToEnd, word)
    }

    /// Raises the forced unwind, or ends the process if the body has swallowed too many.
    fn unwind(&self) -> ! {
        self.count_swallowed(SWALLOWED_MAX);
        forced::unwind()
    }

    fn count_swallowed(&self, max: u32) {
        let swallowed = self.swallowed.get() + 1;
        self.swallowed.set(swallowed);
        if swallowed > max {
            forced::report_and_abort(self.id, self.name(), "anchor");
        }
    }
}

/// The reason of a token that was not there yet when the cancel was requested by the handle.
pub(super) const CANCELLED: &str = "cancelled by its handle";
/// The reason of a token whose coroutine is dropped, or is suspended when its anchor ends.
const BEING_ENDED: &str = "the coroutine is being ended";

/// What marks a stack as a stand-alone coroutine's.
pub(super) static DESCRIBE: DescribeFn = describe;

/// Writes who a coroutine is into the overflow report. Reads what never changes.
unsafe fn describe(owner: *const (), out: &mut dyn fmt::Write) {
    // SAFETY: a record outlives its hold on the stack.
    let control = unsafe { &*owner.cast::<Control>() };
    let mut write = || -> fmt::Result {
        write!(out, "{}", control.id)?;
        if let Some(name) = control.name() {
            write!(out, " \"{name}\"")?;
        }
        write!(out, ", made at {}", control.location)
    };
    // The report's writer does not fail; if it did, the rest of the report would still come.
    let _cut_short = write().is_err();
}
