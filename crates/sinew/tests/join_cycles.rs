//! Joins that would close a cycle, and those that only look so.
#![expect(clippy::disallowed_methods, reason = "deadlines are points in time")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sinew::event::Event;
use sinew::inspect::{deadlocks, find, for_each};
use sinew::{Builder, CancelToken, JoinHandle, WaitError, run, spawn_local, timeout, yield_now};

const HOUR: Duration = Duration::from_secs(3600);

/// What the wait that closes the ring ended with.
type Got = Rc<Cell<Option<Result<(), WaitError>>>>;

type Shared = Rc<RefCell<Vec<Rc<JoinHandle<Result<(), WaitError>>>>>>;

/// A coroutine of the ring `all` that waits for the one at `index`.
fn wait_for(all: &Shared, index: usize) -> Result<(), WaitError> {
    let handle = all.borrow()[index].clone();
    handle.wait()
}

/// Starts `length` coroutines, of which each joins the next, the last first, so that the first one closes the ring.
fn ring(
    length: usize,
    close: impl FnOnce(&Shared) -> Result<(), WaitError> + 'static,
) -> (Shared, Got) {
    let (all, got) = (Shared::default(), Got::default());
    let mut close = Some(close);
    for index in 0..length {
        let (ring, got) = (all.clone(), got.clone());
        let mut close = close.take();
        let handle = spawn_local(move || {
            if let Some(close) = close.take() {
                // The others come first.
                while joining(&ring) < length - 1 {
                    yield_now()?;
                }
                got.set(Some(close(&ring)));
                return Ok(());
            }
            wait_for(&ring, (index + 1) % length)
        });
        all.borrow_mut().push(Rc::new(handle));
    }
    (all, got)
}

/// How many of the ring wait in a join.
fn joining(all: &Shared) -> usize {
    let ids: Vec<u64> = all.borrow().iter().map(|handle| handle.id()).collect();
    let mut waits = 0;
    for_each(|info| {
        let joins = info.wait.is_some_and(|wait| wait.what == "join");
        waits += usize::from(joins && ids.contains(&info.id));
    });
    waits
}

/// Waits for all of the ring; hands out what the one that closed it got.
fn finish(all: &Shared, got: &Got) -> Result<(), WaitError> {
    let handles = all.borrow().clone();
    for handle in handles {
        handle.wait().unwrap();
    }
    // They hold each other.
    all.borrow_mut().clear();
    got.get().unwrap()
}

// contract: S14
#[test]
fn a_cycle_of_any_length_is_refused_where_it_would_close() {
    for length in [2, 3, 7, 100] {
        run(move || {
            let (all, got) = ring(length, |ring| wait_for(ring, 1));
            // The others' waits are as good as ever.
            assert_eq!(finish(&all, &got), Err(WaitError::Deadlock), "{length}");
        });
    }
}

// contract: S14
#[test]
fn a_deadline_of_the_wait_that_closes_the_cycle_changes_nothing() {
    let start = Instant::now();
    run(|| {
        let (all, got) = ring(3, |ring| {
            let next = ring.borrow()[1].clone();
            assert_eq!(next.wait_timeout(HOUR), Err(WaitError::Deadlock));
            assert_eq!(
                next.wait_deadline(Instant::now() + HOUR),
                Err(WaitError::Deadlock)
            );
            // It is not too late for anything else.
            assert_eq!(next.wait_timeout(Duration::ZERO), Err(WaitError::Deadlock));
            Ok(())
        });
        assert_eq!(finish(&all, &got), Ok(()));
    });
    assert!(start.elapsed() < HOUR / 2);
}

// contract: S14
#[test]
fn the_join_that_takes_the_value_is_refused_too() {
    run(|| {
        let slot: Rc<RefCell<Option<JoinHandle<()>>>> = Rc::default();
        let child = spawn_local({
            let slot = slot.clone();
            move || {
                let parent = loop {
                    if let Some(parent) = slot.borrow_mut().take() {
                        break parent;
                    }
                    yield_now().unwrap();
                };
                let error = parent.join().unwrap_err();
                assert!(error.is_deadlock(), "{error}");
            }
        });
        let parent = spawn_local(move || child.join().unwrap());
        let id = parent.id();
        yield_now().unwrap();
        *slot.borrow_mut() = Some(parent);
        while find(id).is_some() {
            yield_now().unwrap();
        }
    });
}

/// A waits for B by `wait`, then B joins A: what does B get? (A ends as soon as its wait does.)
fn second_of_two(
    builder: &Builder,
    wait: impl FnOnce(&JoinHandle<Result<(), WaitError>>) + 'static,
    between: impl FnOnce(&JoinHandle<()>),
) -> Result<(), WaitError> {
    let first: Rc<RefCell<Option<Rc<JoinHandle<()>>>>> = Rc::default();
    let second = Rc::new(spawn_local({
        let first = first.clone();
        move || {
            let first = loop {
                if let Some(first) = first.borrow_mut().take() {
                    break first;
                }
                yield_now().unwrap();
            };
            first.wait()
        }
    }));
    let a = Rc::new(
        builder
            .spawn_local({
                let second = second.clone();
                move || wait(&second)
            })
            .unwrap(),
    );
    while find(a.id()).is_none_or(|info| info.wait.is_none()) {
        yield_now().unwrap();
    }
    between(&a);
    *first.borrow_mut() = Some(a.clone());
    second.wait().unwrap();
    drop(a);
    // The first one holds it until it has ended, too.
    while Rc::strong_count(&second) > 1 {
        yield_now().unwrap();
    }
    Rc::into_inner(second).unwrap().join().unwrap()
}

// contract: S14
#[test]
fn a_wait_that_ends_by_itself_closes_no_cycle() {
    const SOON: Duration = Duration::from_millis(30);
    run(|| {
        let plain = Builder::new();
        let got = second_of_two(
            &plain,
            |b| assert_eq!(b.wait_timeout(SOON), Err(WaitError::Timeout)),
            |_| (),
        );
        assert_eq!(got, Ok(()), "the first one's wait had a deadline");

        let got = second_of_two(
            &plain,
            |b| assert!(timeout(SOON, || b.wait()).is_err()),
            |_| (),
        );
        assert_eq!(got, Ok(()), "it was inside of a timeout");

        let token = CancelToken::with_timeout(SOON);
        let got = second_of_two(
            &Builder::new().cancel_parent(&token),
            |b| assert_eq!(b.wait(), Err(WaitError::Cancelled)),
            |_| (),
        );
        assert_eq!(got, Ok(()), "its token had a deadline");

        let got = second_of_two(
            &plain,
            |b| assert_eq!(b.wait(), Err(WaitError::Cancelled)),
            |a| a.cancel("in time"),
        );
        assert_eq!(got, Ok(()), "it was cancelled before");

        // And without any of these it is one.
        let got = second_of_two(&plain, |b| b.wait().unwrap(), |_| ());
        assert_eq!(got, Err(WaitError::Deadlock));
    });
}

// contract: S14
#[test]
fn a_chain_that_leads_elsewhere_is_no_cycle() {
    run(|| {
        let end = Rc::new(spawn_local(sinew::park));
        let chain: Vec<_> = (0..10)
            .scan(end.clone(), |last, _| {
                let target = last.clone();
                let link = Rc::new(spawn_local(move || {
                    target.wait()?;
                    Ok(())
                }));
                Some(std::mem::replace(last, link))
            })
            .collect();
        yield_now().unwrap();
        // Someone that is waited for, and joins into the chain.
        let top = chain[9].clone();
        let joiner = Rc::new(spawn_local(move || top.wait()));
        let waits_for_joiner = spawn_local({
            let joiner = joiner.clone();
            move || joiner.wait()
        });
        yield_now().unwrap();
        yield_now().unwrap();
        end.unparker().unpark();
        assert_eq!(waits_for_joiner.join().unwrap(), Ok(()));
        drop(chain);
        assert_eq!(Rc::into_inner(joiner).unwrap().join().unwrap(), Ok(()));
    });
}

// contract: S25
#[test]
fn a_cycle_of_joins_over_two_schedulers_is_reported_from_any_thread() {
    type Slot = Arc<OnceLock<JoinHandle<Result<(), WaitError>>>>;
    let slots: [Slot; 2] = Default::default();
    let resolved = Arc::new(Event::manual());
    let threads: Vec<_> = [0, 1]
        .into_iter()
        .map(|index| {
            let (mine, other) = (slots[index].clone(), slots[1 - index].clone());
            let resolved = resolved.clone();
            std::thread::spawn(move || {
                run(|| {
                    // Somebody whom another thread can wake: the run itself ends nothing.
                    spawn_local(move || resolved.wait());
                    let handle = spawn_local(move || {
                        while other.get().is_none() {
                            yield_now()?;
                        }
                        other.get().unwrap().wait()
                    });
                    mine.set(handle).unwrap();
                });
            })
        })
        .collect();
    let cycle = loop {
        if let Some(cycle) = deadlocks().pop() {
            break cycle;
        }
        std::thread::yield_now();
    };
    let mut ids: Vec<u64> = cycle.members().iter().map(|member| member.id).collect();
    ids.sort_unstable();
    let mut expected: Vec<u64> = slots.iter().map(|slot| slot.get().unwrap().id()).collect();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    for member in cycle.members() {
        assert_eq!(member.wait.what, "join");
        assert!(member.spawned_at.file().ends_with("join_cycles.rs"));
    }
    slots[0].get().unwrap().cancel("resolved");
    resolved.set();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(deadlocks().is_empty());
}
