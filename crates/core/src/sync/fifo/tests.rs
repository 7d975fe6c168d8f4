//! The buffer alone: against a `VecDeque`, and what is dropped when.

extern crate std;

use std::boxed::Box;
use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::vec::Vec;

use proptest::prelude::*;

use super::{Fifo, Ring};

/// Pushes, growing as an unbounded channel does.
fn push_growing<T>(fifo: &mut Fifo<T>, value: T) {
    if let Err(value) = fifo.push(value) {
        let ring = Ring::boxed(fifo.growth());
        fifo.adopt(ring);
        assert!(fifo.push(value).is_ok(), "a ring was adopted");
    }
}

proptest! {
    #[test]
    fn a_growing_buffer_is_a_deque(
        // Runs of pushes and pops, so that the chain of rings gets long and short.
        runs in prop::collection::vec((any::<bool>(), 1_usize..1500), 1..40)
    ) {
        let (mut fifo, mut deque) = (Fifo::new(0), VecDeque::new());
        let mut next = 0_u32;
        for (pushing, count) in runs {
            for _ in 0..count {
                if pushing {
                    push_growing(&mut fifo, Box::new(next));
                    deque.push_back(Box::new(next));
                    next += 1;
                } else {
                    prop_assert_eq!(fifo.pop(&mut None), deque.pop_front());
                }
                prop_assert_eq!(fifo.len(), deque.len());
            }
        }
        while let Some(value) = fifo.pop(&mut None) {
            prop_assert_eq!(Some(value), deque.pop_front());
        }
        prop_assert!(deque.is_empty());
    }

    #[test]
    fn a_ring_is_a_deque_with_a_limit(
        capacity in 0_usize..5,
        pushing in prop::collection::vec(any::<bool>(), 0..200)
    ) {
        let (mut fifo, mut deque) = (Fifo::new(capacity), VecDeque::new());
        for (number, pushing) in pushing.into_iter().enumerate() {
            if pushing {
                let fits = deque.len() < capacity;
                prop_assert_eq!(fifo.push(number).is_ok(), fits);
                if fits {
                    deque.push_back(number);
                }
            } else {
                prop_assert_eq!(fifo.pop(&mut None), deque.pop_front());
            }
        }
    }
}

#[test]
fn an_adopted_ring_that_is_not_needed_comes_back() {
    let mut fifo = Fifo::new(2);
    assert!(fifo.push(1).is_ok());
    assert!(fifo.adopt(Ring::boxed(8)).is_some(), "there was room");
    assert!(fifo.push(2).is_ok());
    assert!(fifo.adopt(Ring::boxed(8)).is_none(), "there was none");
    assert!(fifo.push(3).is_ok());
    let popped: Vec<_> = std::iter::from_fn(|| fifo.pop(&mut None)).collect();
    assert_eq!(popped, [1, 2, 3]);
}

#[test]
fn a_ring_of_nothing_holds_any_number() {
    let mut fifo = Fifo::new(usize::MAX);
    for _ in 0..1000 {
        assert!(fifo.push(()).is_ok());
    }
    assert_eq!(std::iter::from_fn(|| fifo.pop(&mut None)).count(), 1000);
}

#[test]
fn a_long_chain_is_dropped_without_recursion_and_past_a_panic() {
    struct Counted(Rc<Cell<u32>>, bool);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            assert!(!self.1, "this one panics when dropped");
        }
    }
    let dropped = Rc::new(Cell::new(0));
    let mut fifo = Fifo::new(0);
    for number in 0..200_000 {
        push_growing(&mut fifo, Counted(dropped.clone(), number == 777));
    }
    let panicked = catch_unwind(AssertUnwindSafe(|| drop(fifo)));
    assert!(panicked.is_err());
    assert_eq!(dropped.get(), 200_000, "every value is dropped once");
}
