//! What a token costs: how often it goes to the allocator, and what it keeps. Counted, in a file of its own.

mod memory_rig;

use memory_rig::{live_bytes, requests, resized_bytes};
use sinew::CancelToken;

const MILLION: usize = 1_000_000;
const MANY: usize = 100_000;

/// What `f` leaves behind, in bytes.
fn left_by(f: impl FnOnce()) -> isize {
    let before = live_bytes();
    f();
    live_bytes() - before
}

/// How often `f` goes to the allocator.
fn calls_of(f: impl FnOnce()) -> usize {
    let before = requests();
    f();
    requests() - before
}

// contract: C9
#[test]
fn a_million_children_that_are_gone_leave_nothing() {
    let root = CancelToken::new();
    let one_by_one = left_by(|| {
        for _ in 0..MILLION {
            drop(root.child());
            drop(root.on_cancel(|_| ()));
        }
    });
    assert_eq!(one_by_one, 0);
    // One that stays does not keep the room of those that are gone.
    let mut stays = Vec::with_capacity(3);
    let beside = left_by(|| {
        let mut children: Vec<_> = (0..MILLION).map(|_| root.child()).collect();
        for place in [0, MILLION / 2, MILLION - 3] {
            stays.push(children.swap_remove(place));
        }
        drop(children);
    });
    assert!(beside < 16 << 10, "{beside} bytes are left");
    root.cancel("they are still there");
    assert!(stays.iter().all(CancelToken::is_cancelled));
}

// contract: C9
#[test]
fn registering_and_taking_back_costs_the_same_however_many_there_are() {
    let root = CancelToken::new();
    let mut beside = Vec::new();
    for crowd in [10, 1_000, 100_000] {
        beside.extend((beside.len()..crowd).map(|_| root.child()));
        let moved = resized_bytes();
        let bytes = left_by(|| {
            let calls = calls_of(|| {
                for _ in 0..10_000 {
                    drop(root.child());
                    drop(root.on_cancel(|_| ()));
                }
            });
            // The child itself; its callback is a closure without a size. A table may grow or shrink once on the way.
            assert!(calls <= 10_000 + 2, "{calls} calls beside {crowd}");
        });
        assert_eq!(resized_bytes(), moved, "nothing is moved for others to go");
        assert!(bytes.unsigned_abs() <= crowd * 64, "{bytes} beside {crowd}");
    }
    // To come to many takes a step for each, and a doubling now and then.
    let root = CancelToken::new();
    let mut children = Vec::with_capacity(MANY);
    let calls = calls_of(|| children.extend((0..MANY).map(|_| root.child())));
    assert!(calls <= MANY + 32, "{calls} calls for {MANY}");
    let calls = calls_of(|| drop(children));
    assert!(calls <= 32, "{calls} calls to let them go");
}
