//! The queue of posts on one thread: order, limits, closing.

use alloc::rc::Rc;
use std::vec::Vec;

use super::{PostQueue, Refusal};

#[test]
fn what_is_accepted_comes_out_in_order() {
    let queue = PostQueue::new(10);
    for n in 0..5 {
        queue.offer(n).unwrap();
    }
    assert_eq!(queue.len(), 5);
    let out: Vec<_> = std::iter::from_fn(|| queue.take()).collect();
    assert_eq!(out, [0, 1, 2, 3, 4]);
    assert!(queue.is_empty());
    assert_eq!(queue.take(), None);
}

#[test]
fn a_full_queue_gives_the_item_back_and_a_take_frees_its_place() {
    let queue = PostQueue::new(1);
    queue.offer('a').unwrap();
    assert_eq!(queue.offer('b'), Err((Refusal::Full, 'b')));
    assert_eq!(queue.take(), Some('a'));
    queue.offer('c').unwrap();
    assert_eq!(queue.take(), Some('c'));
}

#[test]
fn a_closed_queue_refuses_and_keeps_what_it_has() {
    let queue = PostQueue::new(1);
    queue.offer('a').unwrap();
    assert!(!queue.close_if_empty());
    assert!(!queue.is_closed());
    queue.close();
    // Closed says more than full.
    assert_eq!(queue.offer('b'), Err((Refusal::Closed, 'b')));
    assert_eq!(queue.take(), Some('a'));
    assert!(queue.close_if_empty());
    assert_eq!(queue.offer('c'), Err((Refusal::Closed, 'c')));
}

#[test]
fn a_limit_of_zero_accepts_nothing() {
    assert_eq!(PostQueue::new(0).offer(1), Err((Refusal::Full, 1)));
}

#[test]
fn what_is_left_is_dropped_with_the_queue() {
    let counted = Rc::new(());
    let queue = PostQueue::new(u64::MAX);
    for _ in 0..3 {
        queue.offer(counted.clone()).unwrap();
    }
    drop(queue.take());
    assert_eq!(Rc::strong_count(&counted), 3);
    drop(queue);
    assert_eq!(Rc::strong_count(&counted), 1);
}
