//! Lives of stand-alone coroutines, and a naive model of them: what `coroutine_lives.rs` tries under proptest and the
//! fuzzer in `fuzz/` from bytes.
//!
//! A life is a list of operations on a few slots. The bodies do what each resume tells them, and note what happens in them;
//! the model says in as few words as possible what has to come, and both are compared after each operation.

use std::cell::RefCell;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use sinew::coroutine::{
    Anchor, Coroutine, ResumeError, State, Step, SuspendError, Suspender, anchor, error,
};
use sinew::{Error, ErrorKind, Outcome, defer};

/// How many coroutines have a handle at once.
pub(crate) const SLOTS: usize = 4;

/// What a resume tells the body to do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    /// Suspend with this.
    Echo(u32),
    /// Suspend with whether it was asked to stop.
    Stopping,
    /// Confirm a cancel and suspend with whether that could be.
    Confirm,
    Return(u32),
    Panic(u32),
    /// Catch the next forced unwind, and suspend again.
    Swallow,
    /// Put an error into the context.
    Fail,
    /// Take the error out of the context, and suspend with whether there was one.
    Handle,
    /// Defer a cleanup.
    Defer(Deed),
    /// Keep something in the frame whose destructor does this.
    Hold(Deed),
}

/// What a cleanup or a destructor does, after it has noted that it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    Nothing,
    /// Panic, unless that would end the process because the thread panics already.
    Panic(u32),
    /// Put an error into the context.
    Fail,
    /// Take the error out of the context.
    Handle,
    /// Defer a cleanup that panics.
    DeferPanic(u32),
    /// Defer a cleanup that does nothing.
    Defer,
}

/// An operation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    /// A new one in this slot; what was there is dropped.
    Make(usize),
    Resume(usize, Order),
    Cancel(usize),
    Drop(usize),
    TryDestroy(usize),
    Forget(usize),
    Swap(usize, usize),
}

/// What happened in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    /// A suspend reported a cancel.
    Refused,
    /// A destructor ran, in the order of holding.
    Dropped(Deed),
    /// The closure and its frame are gone.
    Gone,
    /// A cleanup ran.
    Cleaned(Deed),
}

type Log = Rc<RefCell<Vec<Note>>>;

/// What is in a body's frame.
struct Held(Log, Deed);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.borrow_mut().push(Note::Dropped(self.1));
        do_it(&self.0, self.1);
    }
}

/// What a closure has captured.
struct Captured(Log);

impl Drop for Captured {
    fn drop(&mut self) {
        self.0.borrow_mut().push(Note::Gone);
    }
}

fn failure() -> Error {
    Error::new(ErrorKind::Invalid, "left on purpose")
}

fn do_it(log: &Log, deed: Deed) {
    match deed {
        Deed::Nothing => {}
        Deed::Panic(_) if std::thread::panicking() => {}
        Deed::Panic(value) => resume_unwind(Box::new(value)),
        Deed::Fail => error::set(failure()),
        Deed::Handle => drop(error::take()),
        Deed::DeferPanic(value) => defer_it(log, Deed::Panic(value)),
        Deed::Defer => defer_it(log, Deed::Nothing),
    }
}

fn defer_it(log: &Log, deed: Deed) {
    let log = log.clone();
    defer(move || {
        log.borrow_mut().push(Note::Cleaned(deed));
        do_it(&log, deed);
    });
}

type Real<'a> = Coroutine<'a, Order, u32, u32>;

fn make<'a>(a: &'a Anchor<'a, '_>, log: &Log) -> Real<'a> {
    let captured = Captured(log.clone());
    Coroutine::new(a, move |s: &Suspender<Order, u32>, mut order: Order| {
        let captured = captured;
        let log = &captured.0;
        let mut held = Vec::new();
        let mut swallow = false;
        loop {
            let mut out = 0;
            match order {
                Order::Echo(value) => out = value,
                Order::Stopping => out = u32::from(s.stopping()),
                Order::Confirm => out = u32::from(s.confirm_cancel().is_ok()),
                Order::Return(value) => return value,
                Order::Panic(value) => resume_unwind(Box::new(value)),
                Order::Swallow => swallow = true,
                Order::Fail => error::set(failure()),
                Order::Handle => out = u32::from(error::take().is_some()),
                Order::Defer(deed) => defer_it(log, deed),
                Order::Hold(deed) => held.push(Held(log.clone(), deed)),
            }
            let came = if std::mem::take(&mut swallow) {
                match catch_unwind(AssertUnwindSafe(|| s.suspend(out))) {
                    Ok(came) => came,
                    Err(_forced) => s.suspend(out),
                }
            } else {
                s.suspend(out)
            };
            order = match came {
                Ok(order) => order,
                Err(SuspendError::Cancelled(order)) => {
                    log.borrow_mut().push(Note::Refused);
                    order
                }
                Err(error) => panic!("{error}"),
            };
        }
    })
}

/// How a body comes to its end.
#[derive(Debug, Clone, Copy)]
enum End {
    Return(u32),
    Panic(u32),
    /// It is unwound because its handle is dropped or its anchor ends.
    Forced,
}

/// A coroutine as the model sees it.
#[derive(Debug, Clone)]
struct Model {
    state: State,
    cancelled: bool,
    confirmed: bool,
    outcome: Option<Outcome>,
    has_error: bool,
    held: Vec<Deed>,
    cleanups: Vec<Deed>,
    log: Vec<Note>,
}

impl Model {
    const fn new() -> Self {
        Self {
            state: State::Ready,
            cancelled: false,
            confirmed: false,
            outcome: None,
            has_error: false,
            held: Vec::new(),
            cleanups: Vec::new(),
            log: Vec::new(),
        }
    }

    /// The side effects of a deed; the value that it panics with.
    fn deed(&mut self, deed: Deed, may_panic: bool) -> Option<u32> {
        match deed {
            Deed::Nothing => {}
            Deed::Panic(value) => return may_panic.then_some(value),
            Deed::Fail => self.has_error = true,
            Deed::Handle => self.has_error = false,
            Deed::DeferPanic(value) => self.cleanups.push(Deed::Panic(value)),
            Deed::Defer => self.cleanups.push(Deed::Nothing),
        }
        None
    }

    /// The end of a body that has run: destructors in the order of holding, then cleanups, the last first. The first panic
    /// counts.
    fn end(&mut self, mut end: End) -> End {
        for held in std::mem::take(&mut self.held) {
            self.log.push(Note::Dropped(held));
            let may_panic = matches!(end, End::Return(_));
            if let Some(value) = self.deed(held, may_panic) {
                end = End::Panic(value);
            }
        }
        self.log.push(Note::Gone);
        while let Some(cleanup) = self.cleanups.pop() {
            self.log.push(Note::Cleaned(cleanup));
            if let Some(value) = self.deed(cleanup, true)
                && !matches!(end, End::Panic(_))
            {
                end = End::Panic(value);
            }
        }
        self.state = State::Done;
        self.outcome = Some(match end {
            End::Panic(_) => Outcome::Error,
            End::Forced => Outcome::Cancelled,
            End::Return(_) if self.confirmed => Outcome::Cancelled,
            End::Return(_) if self.has_error => Outcome::Error,
            End::Return(_) => Outcome::Returned,
        });
        end
    }

    /// The end of one that has not run.
    fn discard(&mut self) {
        self.log.push(Note::Gone);
        self.state = State::Done;
        self.outcome = Some(Outcome::Cancelled);
    }

    /// Its handle is dropped, or its anchor ends. What the anchor is to panic with, if nothing else did before.
    fn dropped(&mut self) -> Option<u32> {
        match self.state {
            State::Ready => self.discard(),
            State::Suspended => {
                if let End::Panic(value) = self.end(End::Forced) {
                    return Some(value);
                }
            }
            _ => {}
        }
        None
    }

    fn resume(&mut self, order: Order) -> Came {
        match self.state {
            State::Ready if self.cancelled => {
                self.discard();
                return Came::Cancelled;
            }
            State::Ready => {}
            State::Suspended if self.cancelled => self.log.push(Note::Refused),
            State::Suspended => {}
            _ => return Came::State,
        }
        self.state = State::Suspended;
        let mut out = 0;
        let end = match order {
            Order::Return(value) => Some(self.end(End::Return(value))),
            Order::Panic(value) => Some(self.end(End::Panic(value))),
            Order::Echo(value) => {
                out = value;
                None
            }
            Order::Stopping => {
                out = u32::from(self.cancelled);
                None
            }
            Order::Confirm => {
                self.confirmed |= self.cancelled;
                out = u32::from(self.cancelled);
                None
            }
            Order::Fail => {
                self.has_error = true;
                None
            }
            Order::Handle => {
                out = u32::from(std::mem::take(&mut self.has_error));
                None
            }
            Order::Defer(deed) => {
                self.cleanups.push(deed);
                None
            }
            Order::Hold(deed) => {
                self.held.push(deed);
                None
            }
            Order::Swallow => None,
        };
        match end {
            None => Came::Out(out),
            Some(End::Return(value)) => Came::Ret(value),
            Some(End::Panic(value)) => Came::Panicked(value),
            Some(End::Forced) => unreachable!("a resume forces nothing"),
        }
    }
}

/// How a resume came back.
#[derive(Debug, PartialEq)]
enum Came {
    Out(u32),
    Ret(u32),
    Panicked(u32),
    State,
    Cancelled,
}

fn resume_real(c: &mut Real<'_>, order: Order) -> Came {
    match catch_unwind(AssertUnwindSafe(|| c.resume(order))) {
        Ok(Ok(Step::Suspended(value))) => Came::Out(value),
        Ok(Ok(Step::Done(value))) => Came::Ret(value),
        Ok(Err(ResumeError::State(_))) => Came::State,
        Ok(Err(ResumeError::Cancelled(_))) => Came::Cancelled,
        Ok(Err(error)) => panic!("{error}"),
        Err(payload) => match payload.downcast::<u32>() {
            Ok(value) => Came::Panicked(*value),
            Err(payload) => resume_unwind(payload),
        },
    }
}

/// One coroutine with its model.
struct Pair<'a> {
    real: Real<'a>,
    model: Model,
    log: Log,
}

fn same<T: PartialEq + Debug>(what: &str, real: &T, model: &T) -> Result<(), String> {
    if real == model {
        Ok(())
    } else {
        Err(format!("{what}: {real:?}, and the model says {model:?}"))
    }
}

impl Pair<'_> {
    fn check(&self) -> Result<(), String> {
        same("state", &self.real.state(), &self.model.state)?;
        same("outcome", &self.real.outcome(), &self.model.outcome)?;
        let has_error = self.model.state == State::Done && self.model.has_error;
        same("an error left", &self.real.error().is_some(), &has_error)?;
        same("notes", &*self.log.borrow(), &self.model.log)
    }
}

/// A life of several coroutines in one anchor.
#[derive(Default)]
struct Life {
    /// Those whose handles were forgotten: the anchor ends them, the youngest first.
    forgotten: Vec<(usize, Model, Log)>,
    /// What the anchor is to raise at its end.
    kept: Option<u32>,
    /// How many were made.
    made: usize,
}

impl Life {
    fn drop_pair(&mut self, pair: Pair<'_>) -> Result<(), String> {
        let Pair {
            real,
            mut model,
            log,
        } = pair;
        drop(real);
        self.kept = self.kept.or(model.dropped());
        same("notes at a drop", &*log.borrow(), &model.log)
    }

    fn apply<'a>(
        &mut self,
        a: &'a Anchor<'a, '_>,
        slots: &mut [Option<(usize, Pair<'a>)>; SLOTS],
        op: Op,
    ) -> Result<(), String> {
        match op {
            Op::Make(slot) => {
                let log = Log::default();
                let fresh = Pair {
                    real: make(a, &log),
                    model: Model::new(),
                    log,
                };
                self.made += 1;
                if let Some((_, pair)) = slots[slot].replace((self.made, fresh)) {
                    self.drop_pair(pair)?;
                }
            }
            Op::Resume(slot, order) => {
                if let Some((_, pair)) = &mut slots[slot] {
                    let expected = pair.model.resume(order);
                    same("a resume", &resume_real(&mut pair.real, order), &expected)?;
                }
            }
            Op::Cancel(slot) => {
                if let Some((_, pair)) = &mut slots[slot] {
                    pair.real.cancel();
                    pair.model.cancelled |= pair.model.state != State::Done;
                }
            }
            Op::Drop(slot) => {
                if let Some((_, pair)) = slots[slot].take() {
                    self.drop_pair(pair)?;
                }
            }
            Op::TryDestroy(slot) => {
                if let Some((number, mut pair)) = slots[slot].take() {
                    let is_active = pair.model.state == State::Suspended;
                    match pair.real.try_destroy() {
                        Ok(()) => {
                            same("destroyed", &false, &is_active)?;
                            pair.model.dropped();
                            same("notes", &*pair.log.borrow(), &pair.model.log)?;
                        }
                        Err(real) => {
                            same("refused", &true, &is_active)?;
                            slots[slot] = Some((number, Pair { real, ..pair }));
                        }
                    }
                }
            }
            Op::Forget(slot) => {
                if let Some((number, pair)) = slots[slot].take() {
                    std::mem::forget(pair.real);
                    self.forgotten.push((number, pair.model, pair.log));
                }
            }
            Op::Swap(one, two) => slots.swap(one, two),
        }
        Ok(())
    }

    /// What the anchor does at its end.
    fn end(&mut self) -> Result<(), String> {
        self.forgotten.sort_by_key(|(number, ..)| *number);
        while let Some((_, mut model, log)) = self.forgotten.pop() {
            self.kept = self.kept.or(model.dropped());
            same("notes at the anchor's end", &*log.borrow(), &model.log)?;
        }
        Ok(())
    }
}

/// Lives such a life in both worlds.
///
/// # Errors
///
/// Where they differ.
pub(crate) fn compare(ops: &[Op]) -> Result<(), String> {
    let mut life = Life::default();
    let mut result = Ok(());
    let raised = catch_unwind(AssertUnwindSafe(|| {
        anchor(|a| {
            let mut slots = [const { None }; SLOTS];
            result = ops.iter().enumerate().try_for_each(|(at, &op)| {
                life.apply(a, &mut slots, op)
                    .and_then(|()| {
                        slots
                            .iter()
                            .flatten()
                            .try_for_each(|(_, pair)| pair.check())
                    })
                    .and_then(|()| same("the thread's error", &error::last().is_some(), &false))
                    .map_err(|text| format!("operation {at}, {op:?}: {text}"))
            });
            for (_, pair) in slots.into_iter().flatten() {
                let dropped = life.drop_pair(pair);
                result = std::mem::replace(&mut result, Ok(())).and(dropped);
            }
        });
    }));
    result?;
    life.end()?;
    let raised = match raised {
        Ok(()) => None,
        Err(payload) => match payload.downcast::<u32>() {
            Ok(value) => Some(*value),
            Err(payload) => resume_unwind(payload),
        },
    };
    same("the anchor's panic", &raised, &life.kept)
}

/// A life in bytes: three for each operation; all bytes mean something.
#[must_use]
pub(crate) fn decode(bytes: &[u8]) -> Vec<Op> {
    bytes
        .chunks_exact(3)
        .map(|op| {
            let slot = usize::from(op[0] >> 4) % SLOTS;
            match op[0] & 15 {
                0..=8 => Op::Resume(slot, decode_order(op[1], op[2])),
                9 | 10 => Op::Make(slot),
                11 => Op::Cancel(slot),
                12 => Op::Drop(slot),
                13 => Op::TryDestroy(slot),
                14 => Op::Forget(slot),
                _ => Op::Swap(slot, usize::from(op[1]) % SLOTS),
            }
        })
        .collect()
}

fn decode_order(kind: u8, value: u8) -> Order {
    let number = u32::from(value);
    match kind & 15 {
        0 | 1 => Order::Echo(number),
        2 => Order::Stopping,
        3 => Order::Confirm,
        4 => Order::Return(number),
        5 => Order::Panic(number),
        6 => Order::Swallow,
        7 => Order::Fail,
        8 => Order::Handle,
        9..=12 => Order::Defer(decode_deed(kind >> 4, number)),
        _ => Order::Hold(decode_deed(kind >> 4, number)),
    }
}

fn decode_deed(kind: u8, number: u32) -> Deed {
    match kind % 6 {
        0 => Deed::Nothing,
        1 => Deed::Panic(number),
        2 => Deed::Fail,
        3 => Deed::Handle,
        4 => Deed::DeferPanic(number),
        _ => Deed::Defer,
    }
}
