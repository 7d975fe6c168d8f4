//! Lives of coroutines against a naive model, call by call, by proptest: what cleanups, destructors, errors and panics make of them.

mod coroutine_rig;

use coroutine_rig::{Deed, Op, Order, SLOTS, compare, decode};
use proptest::prelude::*;

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        2 => Just(Deed::Nothing),
        1 => any::<u32>().prop_map(Deed::Panic),
        1 => Just(Deed::Fail),
        1 => Just(Deed::Handle),
        1 => any::<u32>().prop_map(Deed::DeferPanic),
        1 => Just(Deed::Defer),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![
        4 => any::<u32>().prop_map(Order::Echo),
        1 => Just(Order::Stopping),
        2 => Just(Order::Confirm),
        1 => any::<u32>().prop_map(Order::Return),
        1 => any::<u32>().prop_map(Order::Panic),
        1 => Just(Order::Swallow),
        1 => Just(Order::Fail),
        1 => Just(Order::Handle),
        2 => deed().prop_map(Order::Defer),
        2 => deed().prop_map(Order::Hold),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    // Most of it happens to one, so that several things come together in it.
    let slot = || prop_oneof![5 => Just(0), 2 => 0..SLOTS];
    prop_oneof![
        3 => slot().prop_map(Op::Make),
        10 => (slot(), order()).prop_map(|(slot, order)| Op::Resume(slot, order)),
        2 => slot().prop_map(Op::Cancel),
        1 => slot().prop_map(Op::Drop),
        1 => slot().prop_map(Op::TryDestroy),
        1 => slot().prop_map(Op::Forget),
        1 => (slot(), slot()).prop_map(|(one, two)| Op::Swap(one, two)),
    ]
}

/// One coroutine that is neither resumed after its end nor ended early, so that much comes together in it.
fn full_life() -> impl Strategy<Value = Vec<Op>> {
    let step = prop_oneof![
        2 => Just(Op::Cancel(0)),
        2 => Just(Op::Resume(0, Order::Confirm)),
        2 => Just(Op::Resume(0, Order::Fail)),
        1 => Just(Op::Resume(0, Order::Handle)),
        1 => Just(Op::Resume(0, Order::Swallow)),
        1 => Just(Op::Resume(0, Order::Stopping)),
        2 => deed().prop_map(|deed| Op::Resume(0, Order::Defer(deed))),
        2 => deed().prop_map(|deed| Op::Resume(0, Order::Hold(deed))),
    ];
    let end = prop_oneof![
        3 => any::<u32>().prop_map(|value| Op::Resume(0, Order::Return(value))),
        1 => any::<u32>().prop_map(|value| Op::Resume(0, Order::Panic(value))),
        1 => Just(Op::Drop(0)),
        1 => Just(Op::Forget(0)),
    ];
    (prop::collection::vec(step, 0..8), end).prop_map(|(mut ops, end)| {
        ops.splice(0..0, [Op::Make(0), Op::Resume(0, Order::Echo(0))]);
        ops.push(end);
        ops
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // contract: C2, C3, C5, C6, C7, C8, C10, C13, C14, C16
    #[test]
    fn a_random_life_is_that_of_the_model(ops in prop::collection::vec(op(), 0..80)) {
        compare(&ops).map_err(TestCaseError::fail)?;
    }

    // contract: C6, C7, C13, C14
    #[test]
    fn a_full_life_is_that_of_the_model(ops in full_life()) {
        compare(&ops).map_err(TestCaseError::fail)?;
    }

    // What the fuzzer does with its bytes.
    #[test]
    fn a_life_from_bytes_is_that_of_the_model(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        compare(&decode(&bytes)).map_err(TestCaseError::fail)?;
    }
}
