//! What pools and groups take from the allocator, and give back.

mod memory_rig;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use memory_rig::{live_bytes, requests};
use sinew::future::Promise;
use sinew::task::{TaskGroup, TaskPool};

fn rounds(number: usize) -> usize {
    let factor = std::env::var("SINEW_STRESS").map_or(1, |text| match text.as_str() {
        "full" => 100,
        text => text
            .parse()
            .unwrap_or_else(|_| panic!("SINEW_STRESS={text} is not a number")),
    });
    number * factor
}

// contract: T6
#[test]
fn a_group_holds_what_is_active_and_nothing_of_what_was() {
    let group = TaskGroup::builder().limit(8).build();
    let mut active = VecDeque::with_capacity(8);
    let mut turn = |count: usize| {
        for n in 0..count {
            if active.len() == 8 {
                let promise: Promise<usize> = active.pop_front().unwrap();
                if n % 3 == 0 {
                    drop(promise);
                } else {
                    promise.resolve(n).unwrap();
                }
            }
            let (promise, future) = Promise::new();
            group.add(&future).unwrap();
            active.push_back(promise);
        }
        live_bytes()
    };
    let warm = turn(100);
    let later = turn(rounds(100_000));
    assert_eq!(warm, later);
    active.clear();
    group.wait().unwrap();
}

// contract: T15
#[test]
fn to_hand_a_release_in_allocates_nothing() {
    let pool = TaskPool::builder().threads(1).build().unwrap();
    let released = Arc::new(AtomicUsize::new(0));
    let resources: Vec<_> = (0..1000)
        .map(|_| {
            let released = released.clone();
            pool.finalizer(move || _ = released.fetch_add(1, SeqCst))
                .unwrap()
        })
        .collect();
    pool.close();
    let before = requests();
    drop(resources);
    assert_eq!(requests(), before);
    drop(pool);
    assert_eq!(released.load(SeqCst), 1000);
}
