//! What pools and groups take from the allocator, and give back.

mod memory_rig;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use memory_rig::{live_bytes, requests};
use sinew::coroutine::arena;
use sinew::future::Promise;
use sinew::task::{Outcome, Task, TaskContext, TaskEnd, TaskGroup, TaskPool};

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

/// Calls of the allocator and live bytes, after and between.
fn taken<R>(f: impl FnOnce() -> R) -> (usize, isize, R) {
    let (calls, bytes) = (requests(), live_bytes());
    let value = f();
    (requests() - calls, live_bytes() - bytes, value)
}

// contract: C12
#[test]
fn an_arena_of_a_task_takes_nothing_before_its_first_use_and_is_freed_whole() {
    let mut ends: Vec<fn(&TaskContext<'_>) -> Outcome<()>> =
        vec![|_| Outcome::Success(()), |_| Outcome::failed(), |_| {
            Outcome::Cancelled
        }];
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    ends.push(|_| panic!("on purpose"));
    for end in ends {
        // What the first one of its kind takes for good (a panic's hook, what a thread has of its own) is no leak.
        for is_warm in [false, true] {
            let before = live_bytes();
            let (task, future) = Task::new(move |context: &TaskContext<'_>| {
                let (calls, _, empty) = taken(|| context.arena().allocated_bytes());
                assert_eq!((calls, empty), (0, 0), "nothing for nothing");
                let (_, bytes, ()) = taken(|| {
                    for n in 0..1_000_u64 {
                        assert_eq!(*context.arena().alloc(n), n);
                    }
                    arena::with(|a| _ = a.alloc_str("the same one"));
                });
                assert!(bytes >= 8_000, "it is here: {bytes}");
                end(context)
            });
            let _end: TaskEnd = task.run();
            drop(future);
            if is_warm {
                assert_eq!(live_bytes(), before, "freed whole");
            }
        }
    }
    std::panic::set_hook(quiet);
}
