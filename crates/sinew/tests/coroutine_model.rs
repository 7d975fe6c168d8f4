//! The state machine of coroutines against a naive model, call by call, by proptest.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use proptest::prelude::*;
use std::rc::Rc;

use sinew::coroutine::{
    self, Anchor, Coroutine, ResumeError, State, Step, SuspendError, Suspender, anchor, error,
};
use sinew::{CancelToken, Error, ErrorKind, Outcome};

const SLOTS: usize = 4;

/// What a resume tells the body to do.
#[derive(Debug, Clone, Copy)]
enum Order {
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
    /// Defer a cleanup, and suspend with 0.
    Defer,
    /// Leave an error in the context, and suspend with 0.
    SetError,
    /// Suspend with whether there was an error to take.
    TakeError,
    /// Suspend with this by the free function.
    FreeEcho(u32),
}

#[derive(Debug, Clone, Copy)]
enum Op {
    /// A new one in this slot; what was there is dropped.
    Make(usize),
    Resume(usize, Order),
    Cancel(usize),
    /// By its token, which is kept.
    CancelToken(usize),
    /// By the token of all.
    CancelParent,
    Drop(usize),
    TryDestroy(usize),
    Forget(usize),
    Swap(usize, usize),
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![
        4 => any::<u32>().prop_map(Order::Echo),
        1 => Just(Order::Stopping),
        1 => Just(Order::Confirm),
        1 => any::<u32>().prop_map(Order::Return),
        1 => any::<u32>().prop_map(Order::Panic),
        1 => Just(Order::Swallow),
        2 => Just(Order::Defer),
        1 => Just(Order::SetError),
        1 => Just(Order::TakeError),
        1 => any::<u32>().prop_map(Order::FreeEcho),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let slot = || 0..SLOTS;
    prop_oneof![
        3 => slot().prop_map(Op::Make),
        8 => (slot(), order()).prop_map(|(slot, order)| Op::Resume(slot, order)),
        2 => slot().prop_map(Op::Cancel),
        2 => slot().prop_map(Op::CancelToken),
        1 => Just(Op::CancelParent),
        1 => slot().prop_map(Op::Drop),
        1 => slot().prop_map(Op::TryDestroy),
        1 => slot().prop_map(Op::Forget),
        1 => (slot(), slot()).prop_map(|(one, two)| Op::Swap(one, two)),
    ]
}

/// What the bodies do to the world.
#[derive(Debug, Default)]
struct World {
    /// Frames and closures that are gone.
    dropped: Cell<u32>,
    /// Suspends that reported a cancel.
    refused: Cell<u32>,
    /// Cleanups that have run; they borrow nothing.
    cleaned: Rc<Cell<u32>>,
    parent: CancelToken,
}

struct Noted<'a>(&'a World);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.0.dropped.set(self.0.dropped.get() + 1);
    }
}

type Real<'a> = Coroutine<'a, Order, u32, u32>;

fn make<'a>(a: &'a Anchor<'a, '_>, world: &'a World) -> Real<'a> {
    let noted = Noted(world);
    let body = move |s: &Suspender<Order, u32>, mut order: Order| {
        let noted = noted;
        let (mut swallow, mut free) = (false, false);
        loop {
            let out = match order {
                Order::Echo(value) => value,
                Order::Stopping => u32::from(s.stopping()),
                Order::Confirm => u32::from(s.confirm_cancel().is_ok()),
                Order::Return(value) => return value,
                Order::Panic(value) => resume_unwind(Box::new(value)),
                Order::Swallow => {
                    swallow = true;
                    0
                }
                Order::Defer => {
                    let cleaned = world.cleaned.clone();
                    sinew::defer(move || cleaned.set(cleaned.get() + 1));
                    0
                }
                Order::SetError => {
                    error::set(Error::new(ErrorKind::Invalid, "left"));
                    0
                }
                Order::TakeError => u32::from(error::take().is_some()),
                Order::FreeEcho(value) => {
                    free = true;
                    value
                }
            };
            let came = if std::mem::take(&mut swallow) {
                match catch_unwind(AssertUnwindSafe(|| s.suspend(out))) {
                    Ok(came) => came,
                    Err(_forced) => s.suspend(out),
                }
            } else if std::mem::take(&mut free) {
                coroutine::suspend(out)
            } else {
                s.suspend(out)
            };
            order = match came {
                Ok(order) => order,
                Err(SuspendError::Cancelled(order)) => {
                    noted.0.refused.set(noted.0.refused.get() + 1);
                    order
                }
                Err(error) => panic!("{error}"),
            };
        }
    };
    Coroutine::builder(a)
        .published()
        .cancel_parent(&world.parent)
        .build(body)
        .unwrap()
}

/// The same, told in as few words as possible.
#[derive(Debug, Clone, Copy)]
struct Model {
    state: State,
    cancelled: bool,
    confirmed: bool,
    outcome: Option<Outcome>,
    error: bool,
    /// Cleanups that have not run.
    deferred: u32,
}

impl Model {
    fn new(cancelled: bool) -> Self {
        Self {
            state: State::Ready,
            cancelled,
            confirmed: false,
            outcome: None,
            error: false,
            deferred: 0,
        }
    }

    fn end(&mut self, outcome: Outcome, dropped: &mut u32) {
        self.state = State::Done;
        self.outcome = Some(outcome);
        *dropped += 1;
    }
}

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
        Err(payload) => Came::Panicked(*payload.downcast::<u32>().unwrap()),
    }
}

fn resume_model(model: &mut Model, order: Order, dropped: &mut u32, refused: &mut u32) -> Came {
    match model.state {
        State::Done | State::Running => return Came::State,
        State::Ready if model.cancelled => {
            model.end(Outcome::Cancelled, dropped);
            return Came::Cancelled;
        }
        State::Ready => {}
        State::Suspended => *refused += u32::from(model.cancelled),
    }
    model.state = State::Suspended;
    match order {
        Order::Echo(value) | Order::FreeEcho(value) => Came::Out(value),
        Order::Swallow => Came::Out(0),
        Order::Defer => {
            model.deferred += 1;
            Came::Out(0)
        }
        Order::SetError => {
            model.error = true;
            Came::Out(0)
        }
        Order::TakeError => Came::Out(u32::from(std::mem::take(&mut model.error))),
        Order::Stopping => Came::Out(u32::from(model.cancelled)),
        Order::Confirm => {
            model.confirmed |= model.cancelled;
            Came::Out(u32::from(model.cancelled))
        }
        Order::Return(value) => {
            let outcome = if model.confirmed {
                Outcome::Cancelled
            } else if model.error {
                Outcome::Error
            } else {
                Outcome::Returned
            };
            model.end(outcome, dropped);
            Came::Ret(value)
        }
        Order::Panic(value) => {
            model.end(Outcome::Error, dropped);
            Came::Panicked(value)
        }
    }
}

/// The counts that the world should show.
#[derive(Default)]
struct Counts {
    made: u32,
    dropped: u32,
    refused: u32,
    cleaned: u32,
    /// Cleanups of those that were forgotten, which the anchor alone ends.
    left: u32,
}

/// Both sides by side.
struct Run<'a, 'env> {
    a: &'a Anchor<'a, 'env>,
    world: &'a World,
    slots: [Option<(Real<'a>, Model)>; SLOTS],
    counts: Counts,
    tokens: Vec<CancelToken>,
}

impl Run<'_, '_> {
    /// What was taken out of a slot is dropped.
    fn note_dropped(&mut self, model: Model) {
        self.counts.dropped += u32::from(model.state != State::Done);
        self.counts.cleaned += model.deferred;
    }

    fn resume(&mut self, slot: usize, order: Order) -> Result<(), TestCaseError> {
        let Some((real, model)) = &mut self.slots[slot] else {
            return Ok(());
        };
        let counts = &mut self.counts;
        let expected = resume_model(model, order, &mut counts.dropped, &mut counts.refused);
        prop_assert_eq!(resume_real(real, order), expected);
        if model.state == State::Done {
            counts.cleaned += std::mem::take(&mut model.deferred);
        }
        Ok(())
    }

    fn cancel(&mut self, slot: usize, by_token: bool) {
        let Some((real, model)) = &mut self.slots[slot] else {
            return;
        };
        if by_token {
            let token = real.cancel_token();
            token.cancel("by the token");
            self.tokens.push(token);
        } else {
            real.cancel();
        }
        model.cancelled |= model.state != State::Done;
    }

    fn try_destroy(&mut self, slot: usize) -> Result<(), TestCaseError> {
        let Some((real, model)) = self.slots[slot].take() else {
            return Ok(());
        };
        match real.try_destroy() {
            Ok(()) => {
                prop_assert_ne!(model.state, State::Suspended);
                self.note_dropped(model);
            }
            Err(real) => {
                prop_assert_eq!(model.state, State::Suspended);
                self.slots[slot] = Some((real, model));
            }
        }
        Ok(())
    }

    fn apply(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Make(slot) => {
                self.counts.made += 1;
                let fresh = make(self.a, self.world);
                let model = Model::new(self.world.parent.is_cancelled());
                if let Some((real, model)) = self.slots[slot].replace((fresh, model)) {
                    drop(real);
                    self.note_dropped(model);
                }
            }
            Op::Resume(slot, order) => self.resume(slot, order)?,
            Op::Cancel(slot) => self.cancel(slot, false),
            Op::CancelToken(slot) => self.cancel(slot, true),
            Op::CancelParent => {
                self.world.parent.cancel("all of them");
                for (_, model) in self.slots.iter_mut().flatten() {
                    model.cancelled |= model.state != State::Done;
                }
            }
            Op::Drop(slot) => {
                if let Some((real, model)) = self.slots[slot].take() {
                    drop(real);
                    self.note_dropped(model);
                }
            }
            Op::TryDestroy(slot) => self.try_destroy(slot)?,
            Op::Forget(slot) => {
                if let Some((real, model)) = self.slots[slot].take() {
                    std::mem::forget(real);
                    self.counts.left += model.deferred;
                }
            }
            Op::Swap(one, two) => self.slots.swap(one, two),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for (real, model) in self.slots.iter().flatten() {
            prop_assert_eq!(real.state(), model.state);
            prop_assert_eq!(real.outcome(), model.outcome);
        }
        prop_assert!(self.tokens.iter().all(CancelToken::is_cancelled));
        prop_assert_eq!(self.world.dropped.get(), self.counts.dropped);
        prop_assert_eq!(self.world.refused.get(), self.counts.refused);
        prop_assert_eq!(self.world.cleaned.get(), self.counts.cleaned);
        Ok(())
    }
}

fn compare(ops: &[Op]) -> Result<(), TestCaseError> {
    let world = World::default();
    let counts = anchor(|a| {
        let mut run = Run {
            a,
            world: &world,
            slots: [const { None }; SLOTS],
            counts: Counts::default(),
            tokens: Vec::new(),
        };
        for op in ops {
            run.apply(*op)?;
            run.check()?;
        }
        for (_, model) in run.slots.iter().flatten() {
            run.counts.left += model.deferred;
        }
        Ok::<_, TestCaseError>(run.counts)
    })?;
    prop_assert_eq!(
        world.cleaned.get(),
        counts.cleaned + counts.left,
        "every cleanup has run"
    );
    prop_assert_eq!(
        world.dropped.get(),
        counts.made,
        "every body is gone with the anchor"
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // contract: C2, C3, C5, C6, C7, C8, C9, C10, C13, C14, C16
    #[test]
    fn a_random_life_is_that_of_the_model(ops in prop::collection::vec(op(), 0..80)) {
        compare(&ops)?;
    }
}
