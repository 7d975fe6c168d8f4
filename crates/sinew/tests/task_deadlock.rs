//! Pools that wait for each other, and for themselves.

mod pool_rig;

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use pool_rig::{Gate, pool, settled, until};
use sinew::WaitError;
use sinew::future::{Promise, PromiseState, SharedFuture};
use sinew::inspect::{Cycle, deadlocks};
use sinew::task::{Outcome, TaskPool};

/// Looks until there is one, and says what holds for each.
fn found() -> Cycle {
    let mut cycles = Vec::new();
    until(|| {
        cycles = deadlocks();
        !cycles.is_empty()
    });
    assert_eq!(cycles.len(), 1, "{cycles:?}");
    let cycle = cycles.pop().unwrap();
    for (place, member) in cycle.members().iter().enumerate() {
        let next = &cycle.members()[(place + 1) % cycle.members().len()];
        assert_eq!(member.wait.owner, Some(next.id));
        assert!(sinew::cancel_id(member.id, "a thread").is_err());
    }
    cycle
}

fn named(name: &str, threads: usize, limit: usize) -> Arc<TaskPool> {
    let builder = TaskPool::builder().name(name).threads(threads);
    Arc::new(builder.queue_limit(limit).build().unwrap())
}

// The tests look at all pools of the process, so they are one.
// contract: T13
#[test]
fn pools_that_wait_for_each_other_are_reported() {
    a_chain_of_two();
    a_chain_of_three_of_which_one_waits_for_room();
    one_whose_threads_all_wait_for_their_own_tasks();
    what_has_a_way_out_is_not_reported();
}

fn a_chain_of_two() {
    let (left, right) = (named("left", 1, 4), named("right", 2, 4));
    let gates = [Gate::new(&right), Gate::new(&right)];
    // Each of the right's waits for one that the left has not begun, and the other way round.
    let (give, given) = mpsc::channel::<SharedFuture<()>>();
    let outer = left
        .submit(move |_| Outcome::Success(given.recv().unwrap().wait()))
        .unwrap();
    let behind = left.submit(|_| ()).unwrap();
    let waits: Vec<_> = (0..2)
        .map(|_| {
            let behind = behind.clone();
            right
                .submit(move |_| Outcome::Success(behind.wait()))
                .unwrap()
        })
        .collect();
    let last = right.submit(|_| ()).unwrap();
    give.send(last.clone()).unwrap();
    assert!(deadlocks().is_empty());
    let [one, other] = gates;
    one.open();
    other.open();
    let cycle = found();
    assert_eq!(cycle.members().len(), 2);
    let text = cycle.to_string();
    assert!(text.contains("deadlock of 2:"), "{text}");
    assert!(
        text.contains("\"left-0\" waits in future for a thread"),
        "{text}"
    );
    assert!(text.contains("\"right-0\" waits in future"), "{text}");
    assert!(text.contains("task_deadlock.rs"), "{text}");
    // A cancel ends it: what waits in the left's queue is purged by who cancels the pool.
    left.cancel("to end it");
    for wait in waits {
        wait.wait().unwrap();
        assert_eq!(wait.get().unwrap().unwrap(), &Ok(()));
    }
    outer.wait().unwrap();
    last.wait().unwrap();
    assert_eq!(behind.state(), PromiseState::Cancelled);
    assert!(deadlocks().is_empty());
    settled(&left);
    settled(&right);
}

fn a_chain_of_three_of_which_one_waits_for_room() {
    let pools = ["one", "two", "three"].map(|name| named(name, 1, 1));
    let gates = pools.each_ref().map(|pool| Gate::new(pool));
    // The first will wait for the second's end of a task, the second for the third's, the third for room in the first.
    let ends: Vec<_> = (0..2)
        .map(|n| {
            let next = pools[n + 1].clone();
            pools[n]
                .submit(move |_| Outcome::Success(next.run_blocking(|| ()).map_err(|e| e.kind())))
                .unwrap()
        })
        .collect();
    let first = pools[0].clone();
    let third = pools[2]
        .submit(move |_| {
            // Its queue is full, and its thread waits.
            until(|| first.stats().queued == 0);
            let filler = first.try_submit(|_| ()).unwrap();
            first.submit(|_| ()).unwrap().wait().unwrap();
            filler.wait().unwrap();
        })
        .unwrap();
    for gate in gates {
        gate.open();
    }
    let cycle = found();
    assert_eq!(cycle.members().len(), 3);
    let text = cycle.to_string();
    assert!(
        text.contains("\"three-0\" waits in room in a pool"),
        "{text}"
    );
    // The third's wait ends with the first pool.
    pools[1].cancel("to end it");
    pools[0].close();
    for end in ends {
        end.wait().unwrap();
    }
    third.wait().unwrap();
    assert!(third.is_done());
    until(|| deadlocks().is_empty());
    for pool in &pools {
        settled(pool);
    }
}

fn one_whose_threads_all_wait_for_their_own_tasks() {
    let own = named("own", 2, 8);
    let gates = [Gate::new(&own), Gate::new(&own)];
    let last: Arc<std::sync::OnceLock<SharedFuture<()>>> = Arc::default();
    let waits: Vec<_> = (0..2)
        .map(|_| {
            let last = last.clone();
            own.submit(move |_| Outcome::Success(last.wait().wait()))
                .unwrap()
        })
        .collect();
    last.set(own.submit(|_| ()).unwrap()).unwrap();
    let [one, other] = gates;
    one.open();
    until(|| own.stats().running == 2);
    assert!(deadlocks().is_empty(), "one of the two is left");
    other.open();
    let cycle = found();
    assert_eq!(cycle.members().len(), 1);
    own.cancel("to end it");
    for wait in waits {
        wait.wait().unwrap();
    }
    settled(&own);
}

fn what_has_a_way_out_is_not_reported() {
    // A deadline.
    let (left, right) = (named("left", 1, 4), named("right", 1, 4));
    let gate = Gate::new(&right);
    let (give, given) = mpsc::channel::<SharedFuture<()>>();
    let timed = left
        .submit(move |_| {
            let result = given
                .recv()
                .unwrap()
                .wait_timeout(Duration::from_millis(30));
            Outcome::Success(result)
        })
        .unwrap();
    let behind = left.submit(|_| ()).unwrap();
    let waits = right
        .submit(move |_| Outcome::Success(behind.wait()))
        .unwrap();
    give.send(right.submit(|_| ()).unwrap()).unwrap();
    gate.open();
    while !timed.is_done() {
        assert!(deadlocks().is_empty());
        thread::yield_now();
    }
    waits.wait().unwrap();
    assert_eq!(timed.get().unwrap().unwrap(), &Err(WaitError::Timeout));
    // A promise that anybody may keep.
    let (promise, future) = Promise::<()>::new();
    let (say, said) = mpsc::channel();
    let theirs = future.clone();
    let foreign = left
        .submit(move |_| {
            say.send(()).unwrap();
            theirs.wait().unwrap();
        })
        .unwrap();
    said.recv().unwrap();
    for _ in 0..100 {
        assert!(deadlocks().is_empty());
    }
    promise.resolve(()).unwrap();
    foreign.wait().unwrap();
    settled(&left);
    settled(&right);
}

// contract: T13
#[test]
fn the_only_worker_that_would_wait_for_itself_gets_state_at_once() {
    let pool = Arc::new(pool(1, 4));
    let ours = pool.clone();
    let outer = pool
        .submit(move |_| {
            let behind = ours.submit(|_| Outcome::Success(1)).unwrap();
            assert_eq!(behind.wait(), Err(WaitError::State));
            assert_eq!(
                behind.wait_timeout(Duration::from_secs(60)),
                Err(WaitError::State)
            );
            let token = sinew::CancelToken::new();
            assert_eq!(behind.wait_cancel(&token), Err(WaitError::State));
            // Nor in a coroutine on that thread.
            sinew::run(|| assert_eq!(behind.wait(), Err(WaitError::State)));
            // What has ended can be waited for.
            let ended = SharedFuture::ready(Ok(2));
            ended.wait().unwrap();
            Outcome::Success(behind)
        })
        .unwrap();
    outer.wait().unwrap();
    let behind = outer.get().unwrap().unwrap();
    behind.wait().unwrap();
    assert_eq!(behind.get().unwrap().unwrap(), &1);
    settled(&pool);
}
