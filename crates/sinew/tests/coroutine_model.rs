//! The state machine of coroutines against a naive model, call by call, by proptest.

#![expect(
    clippy::large_stack_frames,
    reason = "assertions of proptest are large; a test's thread has room"
)]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use proptest::prelude::*;
use sinew::Outcome;
use sinew::coroutine::{
    Anchor, Coroutine, ResumeError, State, Step, SuspendError, Suspender, anchor,
};

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
}

#[derive(Debug, Clone, Copy)]
enum Op {
    /// A new one in this slot; what was there is dropped.
    Make(usize),
    Resume(usize, Order),
    Cancel(usize),
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
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let slot = || 0..SLOTS;
    prop_oneof![
        3 => slot().prop_map(Op::Make),
        8 => (slot(), order()).prop_map(|(slot, order)| Op::Resume(slot, order)),
        2 => slot().prop_map(Op::Cancel),
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
    Coroutine::new(a, move |s: &Suspender<Order, u32>, mut order: Order| {
        let noted = noted;
        let mut swallow = false;
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
            };
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
                    noted.0.refused.set(noted.0.refused.get() + 1);
                    order
                }
                Err(error) => panic!("{error}"),
            };
        }
    })
}

/// The same, told in as few words as possible.
#[derive(Debug, Clone, Copy)]
struct Model {
    state: State,
    cancelled: bool,
    confirmed: bool,
    outcome: Option<Outcome>,
}

impl Model {
    const NEW: Self = Self {
        state: State::Ready,
        cancelled: false,
        confirmed: false,
        outcome: None,
    };

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
        Order::Echo(value) => Came::Out(value),
        Order::Swallow => Came::Out(0),
        Order::Stopping => Came::Out(u32::from(model.cancelled)),
        Order::Confirm => {
            model.confirmed |= model.cancelled;
            Came::Out(u32::from(model.cancelled))
        }
        Order::Return(value) => {
            let outcome = if model.confirmed {
                Outcome::Cancelled
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

fn compare(ops: &[Op]) -> Result<(), TestCaseError> {
    let world = World::default();
    let (mut dropped, mut refused, mut made) = (0, 0, 0);
    anchor(|a| {
        let mut slots: [Option<(Real<'_>, Model)>; SLOTS] = [const { None }; SLOTS];
        for op in ops {
            match *op {
                Op::Make(slot) => {
                    made += 1;
                    let fresh = (make(a, &world), Model::NEW);
                    if let Some((_, model)) = slots[slot].replace(fresh) {
                        dropped += u32::from(model.state != State::Done);
                    }
                }
                Op::Resume(slot, order) => {
                    if let Some((real, model)) = &mut slots[slot] {
                        let expected = resume_model(model, order, &mut dropped, &mut refused);
                        prop_assert_eq!(resume_real(real, order), expected);
                    }
                }
                Op::Cancel(slot) => {
                    if let Some((real, model)) = &mut slots[slot] {
                        real.cancel();
                        model.cancelled |= model.state != State::Done;
                    }
                }
                Op::Drop(slot) => {
                    if let Some((_, model)) = slots[slot].take() {
                        dropped += u32::from(model.state != State::Done);
                    }
                }
                Op::TryDestroy(slot) => {
                    if let Some((real, model)) = slots[slot].take() {
                        match real.try_destroy() {
                            Ok(()) => {
                                prop_assert_ne!(model.state, State::Suspended);
                                dropped += u32::from(model.state == State::Ready);
                            }
                            Err(real) => {
                                prop_assert_eq!(model.state, State::Suspended);
                                slots[slot] = Some((real, model));
                            }
                        }
                    }
                }
                Op::Forget(slot) => std::mem::forget(slots[slot].take()),
                Op::Swap(one, two) => slots.swap(one, two),
            }
            for (real, model) in slots.iter().flatten() {
                prop_assert_eq!(real.state(), model.state);
                prop_assert_eq!(real.outcome(), model.outcome);
            }
            prop_assert_eq!(world.dropped.get(), dropped);
            prop_assert_eq!(world.refused.get(), refused);
        }
        Ok(())
    })?;
    prop_assert_eq!(
        world.dropped.get(),
        made,
        "every body is gone with the anchor"
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // contract: C2, C3, C5, C6, C7, C8, C10, C16
    #[test]
    fn a_random_life_is_that_of_the_model(ops in prop::collection::vec(op(), 0..80)) {
        compare(&ops)?;
    }
}
