//! Pools that wait for each other, and for themselves.

mod pool_rig;

use std::cell::Cell;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use pool_rig::{Gate, counted, pool, settled, until};
use sinew::future::{Promise, PromiseState, SharedFuture};
use sinew::inspect::{Cycle, deadlocks};
use sinew::sync::channel;
use sinew::sync::select::Selector;
use sinew::task::{Outcome, TaskGroup, TaskPool, Worker, scope};
use sinew::{CancelToken, ErrorKind, WaitError, block_on, select};

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
    selects_of_each_others_tasks();
    a_group_of_tasks_of_two_pools();
    a_starter_that_waits_for_room_which_its_group_holds_up();
    // These have no way out, and so are the last.
    pools_that_are_dropped_by_each_others_tasks();
    workers_that_are_joined_by_each_others_tasks();
    a_pool_and_a_worker_that_end_each_other();
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

/// A task that is run when it is told what to do, on each of the pool's threads.
fn waits_for<R: Send + Sync + 'static>(
    pool: &TaskPool,
    wait: impl FnOnce() -> R + Send + 'static,
) -> SharedFuture<R> {
    pool.submit(move |_| Outcome::Success(wait())).unwrap()
}

fn selects_of_each_others_tasks() {
    let (left, right) = (named("left", 1, 4), named("right", 1, 4));
    let gates = [Gate::new(&left), Gate::new(&right)];
    let (give_left, of_right) = mpsc::channel::<SharedFuture<()>>();
    let (give_right, of_left) = mpsc::channel::<SharedFuture<()>>();
    let ours = waits_for(&left, move || {
        let (one, other) = (of_right.recv().unwrap(), of_right.recv().unwrap());
        select! { result = one.wait() => result.unwrap(), result = other.wait() => result.unwrap() }
    });
    let theirs = waits_for(&right, move || of_left.recv().unwrap().wait());
    for _ in 0..2 {
        give_left.send(right.submit(|_| ()).unwrap()).unwrap();
    }
    give_right.send(left.submit(|_| ()).unwrap()).unwrap();
    gates.into_iter().for_each(Gate::open);
    let cycle = found();
    assert_eq!(cycle.members().len(), 2);
    let text = cycle.to_string();
    assert!(text.contains("waits in select"), "{text}");
    right.cancel("to end it");
    ours.wait().unwrap();
    theirs.wait().unwrap();
    settled(&left);
    settled(&right);
}

fn a_group_of_tasks_of_two_pools() {
    let (left, right) = (named("left", 1, 4), named("right", 1, 4));
    let gates = [Gate::new(&left), Gate::new(&right)];
    let outer = TaskGroup::new();
    let inner = outer.child(&TaskGroup::builder()).unwrap();
    let (give, given) = mpsc::channel::<SharedFuture<()>>();
    let ours = waits_for(&left, move || outer.wait());
    let theirs = waits_for(&right, move || given.recv().unwrap().wait());
    // In the right's queue, behind the one that waits for the left.
    let item = inner.submit(&right, |_| ()).unwrap();
    give.send(left.submit(|_| ()).unwrap()).unwrap();
    gates.into_iter().for_each(Gate::open);
    assert_eq!(found().members().len(), 2);
    left.cancel("to end it");
    ours.wait().unwrap();
    theirs.wait().unwrap();
    assert!(item.is_done());
    settled(&left);
    settled(&right);
}

fn a_starter_that_waits_for_room_which_its_group_holds_up() {
    let (left, right) = (named("left", 1, 4), named("right", 1, 1));
    let gates = [Gate::new(&left), Gate::new(&right)];
    let group = Arc::new(TaskGroup::new());
    // The right's thread waits for the end of the group, and the starter for room before that thread.
    let (say, said) = mpsc::channel();
    let ended = group.clone();
    let theirs = waits_for(&right, move || {
        said.recv().unwrap();
        ended.wait()
    });
    let (starting, target) = (group.clone(), right.clone());
    let ours = waits_for(&left, move || {
        // Its own wait for room begins when the queue is full.
        let filler = target.submit(|_| ()).unwrap();
        say.send(()).unwrap();
        let started = starting.start(|| target.submit(|_| ()));
        (filler, started.is_ok())
    });
    gates.into_iter().for_each(Gate::open);
    // Either the starter was in the group first, or the group was closed first and there is no deadlock.
    let mut cycles = Vec::new();
    until(|| {
        cycles = deadlocks();
        !cycles.is_empty() || ours.is_done()
    });
    if let [cycle] = &cycles[..] {
        assert_eq!(cycle.members().len(), 2);
        let text = cycle.to_string();
        assert!(
            text.contains("\"left-0\" waits in room in a pool"),
            "{text}"
        );
        right.cancel("to end it");
    }
    ours.wait().unwrap();
    theirs.wait().unwrap();
    settled(&left);
    settled(&right);
}

/// Looks until there is one with this text.
fn found_with(text: &str, members: usize) {
    until(|| {
        let all = deadlocks();
        let mut with_it = all.iter().filter(|cycle| cycle.to_string().contains(text));
        with_it.any(|cycle| cycle.members().len() == members)
    });
}

fn pools_that_are_dropped_by_each_others_tasks() {
    let pool = |name| {
        let builder = TaskPool::builder().name(name).threads(2);
        builder.queue_limit(4).build().unwrap()
    };
    let (left, right) = (pool("doomed-left"), pool("doomed-right"));
    let (give_left, of_right) = mpsc::channel::<TaskPool>();
    let (give_right, of_left) = mpsc::channel::<TaskPool>();
    // A drop, and a wait.
    left.submit(move |_| drop(of_right.recv())).unwrap();
    right
        .submit(move |_| {
            let left = of_left.recv().unwrap();
            left.close();
            left.wait().unwrap();
        })
        .unwrap();
    assert!(deadlocks().is_empty());
    give_left.send(right).unwrap();
    give_right.send(left).unwrap();
    found_with("doomed-left-", 2);
}

fn workers_that_are_joined_by_each_others_tasks() {
    let worker = |name: &str| Worker::builder().name(name).build().unwrap();
    let (left, right) = (worker("bound-left"), worker("bound-right"));
    let (give_left, of_right) = mpsc::channel::<Worker>();
    let (give_right, of_left) = mpsc::channel::<Worker>();
    left.submit(move |_| drop(of_right.recv())).unwrap();
    let joins = right.submit(move |_| Outcome::Success(of_left.recv().unwrap().join().is_ok()));
    joins.unwrap();
    give_left.send(right).unwrap();
    give_right.send(left).unwrap();
    found_with("\"bound-left\" waits in", 2);
}

fn a_pool_and_a_worker_that_end_each_other() {
    let pool = TaskPool::builder().name("mixed-pool").threads(1).build();
    let pool = pool.unwrap();
    let worker = Worker::builder().name("mixed-worker").build().unwrap();
    let (give_pool, of_worker) = mpsc::channel::<Worker>();
    let (give_worker, of_pool) = mpsc::channel::<TaskPool>();
    pool.submit(move |_| {
        let worker = of_worker.recv().unwrap();
        // Behind the one that drops the pool.
        let behind = worker.submit(|_| ()).unwrap();
        behind.wait().unwrap();
    })
    .unwrap();
    worker.submit(move |_| drop(of_pool.recv())).unwrap();
    give_pool.send(worker).unwrap();
    give_worker.send(pool).unwrap();
    found_with("mixed-worker", 2);
}

/// Runs `f` on the only worker of a pool, and on a worker of one that has another.
fn on_one_and_on_two(f: fn(&Arc<TaskPool>, bool)) {
    for threads in [1, 2] {
        let pool = Arc::new(pool(threads, 8));
        let ours = pool.clone();
        let done = pool.submit(move |_| f(&ours, threads == 1)).unwrap();
        done.wait().unwrap();
        done.get().unwrap().unwrap();
        settled(&pool);
    }
}

/// What a wait comes to: refused on the only worker.
fn come_to(is_sole: bool) -> Result<(), WaitError> {
    if is_sole {
        Err(WaitError::State)
    } else {
        Ok(())
    }
}

// contract: T13
#[test]
fn a_group_is_not_waited_for_where_one_of_its_tasks_is_to_run() {
    on_one_and_on_two(|pool, is_sole| {
        let group = TaskGroup::new();
        let child = group.child(&TaskGroup::builder()).unwrap();
        child.submit(pool, |_| ()).unwrap();
        let long = Duration::from_secs(60);
        let token = CancelToken::new();
        assert_eq!(group.wait_timeout(long), come_to(is_sole));
        assert_eq!(child.wait(), come_to(is_sole));
        assert_eq!(group.wait_cancel(&token), come_to(is_sole));
        sinew::run(|| assert_eq!(group.wait(), come_to(is_sole)));
        // Nobody else would end what was asked to stop.
        group.cancel_and_wait("not needed").unwrap();
        let cancelled = u64::from(is_sole);
        assert_eq!(child.stats().cancelled, cancelled);
        // One that others bring is waited for.
        let group = TaskGroup::new();
        let (promise, future) = Promise::new();
        group.add(&future).unwrap();
        let other = thread::spawn(move || promise.resolve(1));
        group.wait().unwrap();
        other.join().unwrap().unwrap();
    });
}

// contract: T13
#[test]
fn a_scope_of_the_own_pool_ends_at_once_and_leaves_nothing() {
    on_one_and_on_two(|pool, is_sole| {
        let (body, drops) = counted();
        let result = scope().all_succeed(|group| {
            group.submit(pool, move |_| drop(body))?;
            Ok(())
        });
        assert_eq!(
            result.map_err(|e| e.kind()),
            match is_sole {
                true => Err(ErrorKind::State),
                false => Ok(()),
            }
        );
        assert_eq!(drops.load(SeqCst), 1);
    });
}

// contract: T13
#[test]
fn a_select_of_own_tasks_alone_gets_state_at_once() {
    on_one_and_on_two(|pool, is_sole| {
        let one = pool.submit(|_| ()).unwrap();
        let other = pool.submit(|_| ()).unwrap();
        let chosen = select! { r = one.wait() => r, r = other.wait() => r };
        assert_eq!(chosen.map(drop), come_to(is_sole));
        let arms = [one.wait_arm(), other.wait_arm()];
        let mut selector: Selector<'_> = arms.iter().collect();
        assert_eq!(selector.wait().map(drop), come_to(is_sole));
        // What may come from elsewhere is waited for.
        let (sender, receiver) = channel::bounded(1);
        let sending = thread::spawn(move || sender.send(1));
        let last = pool.submit(|_| ()).unwrap();
        let came = select! { r = last.wait() => r.is_ok(), r = receiver.recv() => r == Ok(1) };
        assert_eq!(came, Ok(true));
        sending.join().unwrap().unwrap();
        // So is what has ended, and what can be ended here.
        last.cancel("not needed");
        select! { r = last.wait() => r }.unwrap().unwrap();
        assert!(last.is_done());
    });
}

// contract: T13
#[test]
fn a_future_of_own_tasks_alone_gets_state_at_once() {
    on_one_and_on_two(|pool, is_sole| {
        let one = pool.submit(|_| Outcome::Success(1)).unwrap();
        let other = pool.submit(|_| Outcome::Success(2)).unwrap();
        let both = async { *(&one).await.unwrap() + *(&other).await.unwrap() };
        assert_eq!(block_on(both).map(drop), come_to(is_sole));
        let owned = block_on(one.clone().into_future());
        assert_eq!(owned.map(drop), come_to(is_sole));
        // Both at once, in one waker; of what was pending in an earlier poll, nothing is left behind.
        let (mut left, mut right) = (one.wait_async(), other.wait_async());
        let either = poll_fn(|context| {
            let left = Pin::new(&mut left).poll(context).is_ready();
            let right = Pin::new(&mut right).poll(context).is_ready();
            if left || right {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        assert_eq!(block_on(either), come_to(is_sole));
        // One whose waker somebody else has too.
        let (sender, receiver) = channel::bounded(1);
        let mut received = receiver.recv_async();
        let sending = thread::spawn(move || sender.send(1));
        let either = poll_fn(|context| {
            let left = Pin::new(&mut left).poll(context).is_ready();
            let right = Pin::new(&mut received).poll(context).is_ready();
            if left || right {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        assert_eq!(block_on(either), Ok(()));
        sending.join().unwrap().unwrap();
        // What was asked to stop is ended here.
        let last = pool.submit(|_| ()).unwrap();
        last.cancel("not needed");
        assert!(block_on(async { (&last).await.is_err() || last.is_done() }).unwrap());
    });
}

#[test]
fn a_wait_that_somebody_else_can_end_is_never_refused() {
    let pool = Arc::new(pool(1, 8));
    let done = pool
        .submit({
            let pool = pool.clone();
            move |_| {
                let mine = pool.submit(|_| ()).unwrap();
                let mut stale = mine.wait_async();
                let other = pool.submit(|_| ()).unwrap();
                let mut turn = 0;
                let (sender, receiver) = channel::bounded(1);
                let mut received = receiver.recv_async();
                let sending = Cell::new(None);
                // What it found pending in the first poll ends there, and is left alone after that. In the second it waits for a stranger
                // in its place, and for something it drops at once: as many clones of the waker as waits were seen before, and the one
                // that there is is another thread's, who uses it when the poll is over.
                let (say, said) = mpsc::channel();
                let mut told = Some(said);
                let future = poll_fn(|context| {
                    turn += 1;
                    if turn == 1 {
                        assert!(Pin::new(&mut stale).poll(context).is_pending());
                        mine.cancel("not needed");
                        mine.wait().unwrap();
                        return Poll::Pending;
                    }
                    let polled = Pin::new(&mut received).poll(context);
                    if turn == 2 {
                        let mut short = other.wait_async();
                        assert!(Pin::new(&mut short).poll(context).is_pending());
                        drop(short);
                        assert!(polled.is_pending());
                        let sender = sender.clone();
                        let said = told.take().unwrap();
                        sending.set(Some(thread::spawn(move || {
                            said.recv().unwrap();
                            sender.send(7)
                        })));
                        say.send(()).unwrap();
                    }
                    polled
                });
                let got = block_on(future);
                sending.take().unwrap().join().unwrap().unwrap();
                Outcome::Success(got)
            }
        })
        .unwrap();
    done.wait().unwrap();
    assert_eq!(done.get().unwrap().unwrap(), &Ok(Ok(7)));
    settled(&pool);
}

// contract: T13
#[test]
fn a_task_that_would_wait_for_its_own_end_gets_state_at_once() {
    let pool = Arc::new(pool(2, 8));
    let group = Arc::new(TaskGroup::new());
    let (give, given) = mpsc::channel::<SharedFuture<Result<(), WaitError>>>();
    let of = group.clone();
    let task = group
        .submit(&pool, move |_| {
            let own = given.recv().unwrap();
            assert_eq!(of.wait(), Err(WaitError::State));
            assert_eq!(
                of.wait_timeout(Duration::from_secs(60)),
                Err(WaitError::State)
            );
            Outcome::Success(own.wait())
        })
        .unwrap();
    give.send(task.clone()).unwrap();
    group.wait().unwrap();
    assert_eq!(task.get().unwrap().unwrap(), &Err(WaitError::State));
    // In a coroutine, while its neighbours wait for it as they like.
    sinew::run(|| {
        let group = Arc::new(TaskGroup::new());
        let of = group.clone();
        let task = group
            .spawn(move |_| {
                sinew::yield_now().unwrap();
                Outcome::Success(of.wait())
            })
            .unwrap();
        group.wait().unwrap();
        assert_eq!(task.get().unwrap().unwrap(), &Err(WaitError::State));
    });
    settled(&pool);
}

// contract: T4
#[test]
fn a_starter_that_would_wait_for_its_own_group_gets_state_at_once() {
    let group = TaskGroup::new();
    let outer = TaskGroup::new();
    let started = outer.start(|| {
        let child = group.start(|| {
            assert_eq!(group.wait(), Err(WaitError::State));
            assert_eq!(outer.wait(), Err(WaitError::State));
            Ok::<_, WaitError>(SharedFuture::ready(Ok(1)))
        });
        child.map_err(|_| WaitError::State)
    });
    assert!(started.is_ok());
    group.wait().unwrap();
    outer.wait().unwrap();
    // Another thread's starter is waited for.
    let group = Arc::new(TaskGroup::new());
    let (say, said) = mpsc::channel();
    let theirs = group.clone();
    let starting = thread::spawn(move || {
        let started = theirs.start(|| {
            say.send(()).unwrap();
            until(|| theirs.stats().is_closed);
            Ok::<_, WaitError>(SharedFuture::ready(Ok(1)))
        });
        started.is_ok()
    });
    said.recv().unwrap();
    group.wait().unwrap();
    assert!(starting.join().unwrap());
    assert_eq!(group.stats().succeeded, 1);
}
