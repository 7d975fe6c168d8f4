//! Locks, conditions, barriers, cells, news and selects of one thread, and that they do what those of all threads do: each
//! test here runs for both kinds.

mod io_rig;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use io_rig::{stress, watchdog};
use sinew::sync::channel::broadcast::{self, RecvError, TryRecvError};
use sinew::sync::channel::{oneshot, watch};
use sinew::sync::kinds::{
    Barrier, Condvar, Event, Local, Mutex, Once, OnceCell, Receiver, RwLock, Sender, Shared,
    Sharing, WaitGroup,
};
use sinew::sync::select::Selector;
use sinew::sync::{InitError, channel, local};
use sinew::{WaitError, run, select, spawn_local, yield_now};

const SHORT: Duration = Duration::from_millis(1);

/// Readers share, writers exclude, and each side comes in while the other keeps coming.
fn lock_is_shared_or_held<K: Sharing>() {
    const ROUNDS: usize = 200;
    let _watchdog = watchdog();
    let rounds = u64::try_from(ROUNDS * stress()).unwrap();
    let lock = Rc::new(RwLock::<(u64, u64), K>::new((0, 0)));
    let inside = Rc::new((Cell::new(0), Cell::new(0)));
    let seen = Rc::new(Cell::new(0));
    run(|| {
        let parties: Vec<_> = (0..12)
            .map(|party| {
                let (lock, inside, seen) = (lock.clone(), inside.clone(), seen.clone());
                spawn_local(move || {
                    for round in 0..rounds {
                        if party % 3 == 0 {
                            let mut guard = lock.write().unwrap();
                            assert_eq!((inside.0.get(), inside.1.replace(1)), (0, 0));
                            guard.0 += 1;
                            yield_now().unwrap();
                            guard.1 += 1;
                            inside.1.set(0);
                        } else {
                            let limit = Duration::from_micros(round % 3 * 1_000_000);
                            let Ok(guard) = lock.read_timeout(limit) else {
                                continue;
                            };
                            inside.0.set(inside.0.get() + 1);
                            yield_now().unwrap();
                            assert_eq!((guard.0, inside.1.get()), (guard.1, 0));
                            inside.0.set(inside.0.get() - 1);
                            seen.set(seen.get() + 1);
                        }
                    }
                })
            })
            .collect();
        for party in parties {
            party.join().unwrap();
        }
    });
    assert_eq!(*lock.try_read().unwrap(), (4 * rounds, 4 * rounds));
    assert!(seen.get() > 0);
    let mut lock = Rc::try_unwrap(lock).unwrap();
    *lock.get_mut() = (1, 2);
    let guard = lock.try_write().unwrap();
    assert!(lock.try_read().is_none());
    assert_eq!(lock.read_timeout(SHORT).map(drop), Err(WaitError::Timeout));
    assert_eq!(*guard.downgrade(), (1, 2));
}

// contract: Y2, Y12
#[test]
fn a_lock_is_shared_or_held() {
    lock_is_shared_or_held::<Shared>();
    lock_is_shared_or_held::<Local>();
}

fn conditions_are_notified<K: Sharing>() {
    let _watchdog = watchdog();
    run(|| {
        let queue = Rc::new((Mutex::<Vec<u32>, K>::default(), Condvar::<K>::new()));
        let consumers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                spawn_local(move || {
                    let mut sum = 0;
                    loop {
                        let mut guard = queue.0.lock().unwrap();
                        queue
                            .1
                            .wait_while(&mut guard, |all| all.is_empty())
                            .unwrap();
                        match guard.pop() {
                            Some(0) => return sum,
                            value => sum += value.unwrap(),
                        }
                    }
                })
            })
            .collect();
        for number in (1..=100).chain([0; 3]) {
            queue.0.lock().unwrap().insert(0, number);
            queue.1.notify_one();
            yield_now().unwrap();
        }
        let sums = consumers
            .into_iter()
            .map(|consumer| consumer.join().unwrap());
        assert_eq!(sums.sum::<u32>(), 5050);
        let mut guard = queue.0.lock().unwrap();
        let waited = queue.1.wait_timeout(&mut guard, SHORT);
        assert_eq!(waited, Err(WaitError::Timeout));
        assert!(queue.0.try_lock().is_none(), "it is held again");
        drop(guard);
        assert_eq!(queue.1.notify_all(), 0);
    });
}

// contract: Y3, Y12
#[test]
fn a_condition_is_notified() {
    conditions_are_notified::<Shared>();
    conditions_are_notified::<Local>();
}

fn parties_meet<K: Sharing>() {
    const PARTIES: usize = 5;
    let _watchdog = watchdog();
    run(|| {
        let barrier = Rc::new(Barrier::<K>::new(PARTIES));
        let arrived = Rc::new(Cell::new(0));
        assert_eq!(
            barrier.wait_timeout(Duration::ZERO).map(drop),
            Err(WaitError::Timeout)
        );
        let parties: Vec<_> = (0..PARTIES)
            .map(|_| {
                let (barrier, arrived) = (barrier.clone(), arrived.clone());
                spawn_local(move || {
                    let mut led = 0;
                    for round in 1..=50 {
                        arrived.set(arrived.get() + 1);
                        led += usize::from(barrier.wait().unwrap().is_leader());
                        assert!(arrived.get() >= round * PARTIES);
                    }
                    led
                })
            })
            .collect();
        let led = parties.into_iter().map(|party| party.join().unwrap());
        assert_eq!(led.sum::<usize>(), 50);
        assert!(barrier.try_wait().is_none());
    });
}

// contract: Y6, Y12
#[test]
fn parties_meet_at_a_barrier() {
    parties_meet::<Shared>();
    parties_meet::<Local>();
}

fn done_once<K: Sharing>() {
    let _watchdog = watchdog();
    run(|| {
        let (once, cell) = (
            Rc::new(Once::<K>::new()),
            Rc::new(OnceCell::<u32, K>::new()),
        );
        let calls = Rc::new(Cell::new(0));
        let parties: Vec<_> = (0..6)
            .map(|party| {
                let (once, cell, calls) = (once.clone(), cell.clone(), calls.clone());
                spawn_local(move || {
                    let count = || {
                        yield_now().unwrap();
                        calls.set(calls.get() + 1);
                    };
                    once.call_once(count).unwrap();
                    assert!(once.is_completed());
                    // The first three fail.
                    let result = cell.get_or_try_init(|| {
                        yield_now().unwrap();
                        if party < 3 { Err(party) } else { Ok(party) }
                    });
                    match result {
                        Ok(value) => *value,
                        Err(InitError::Init(failed)) => failed,
                        Err(other) => panic!("{other:?}"),
                    }
                })
            })
            .collect();
        assert_eq!(*cell.wait().unwrap(), 3);
        once.wait().unwrap();
        let got: Vec<_> = parties
            .into_iter()
            .map(|party| party.join().unwrap())
            .collect();
        assert_eq!(got, [0, 1, 2, 3, 3, 3]);
        assert_eq!((calls.get(), cell.set(9)), (1, Err(9)));
        let mut cell = Rc::try_unwrap(cell).unwrap();
        assert_eq!((cell.take(), cell.get()), (Some(3), None));
        let inner = cell.get_or_init(|| 1).copied();
        assert_eq!(inner, Ok(1));
        let nested = OnceCell::<u32, K>::new();
        let reentered = nested.get_or_init(|| *nested.get_or_init(|| 1).unwrap_or(&7));
        assert_eq!(reentered, Ok(&7), "it would wait for itself");
    });
}

// contract: Y7, Y12
#[test]
fn what_is_done_once() {
    done_once::<Shared>();
    done_once::<Local>();
}

fn one_value_comes<K: Sharing>(
    mut oneshot: impl FnMut() -> (oneshot::Sender<Rc<u8>, K>, oneshot::Receiver<Rc<u8>, K>),
) {
    run(|| {
        let value = Rc::new(5);
        let (sender, receiver) = oneshot();
        let receiving = spawn_local(move || receiver.recv());
        yield_now().unwrap();
        sender.send(value.clone()).unwrap();
        assert_eq!(*receiving.join().unwrap().unwrap(), 5);
        let (sender, receiver) = oneshot();
        assert_eq!(receiver.recv_timeout(SHORT), Err(WaitError::Timeout));
        drop(sender);
        assert_eq!(receiver.recv(), Err(WaitError::Closed));
        let (sender, receiver) = oneshot();
        drop(receiver);
        assert!(sender.is_closed());
        let back = sender.send(value.clone()).unwrap_err();
        assert_eq!((*back.value, back.reason), (5, WaitError::Closed));
        drop(back);
        assert_eq!(Rc::strong_count(&value), 1);
    });
}

// contract: Y9, Y12
#[test]
fn one_value_comes_once() {
    one_value_comes::<Shared>(channel::oneshot);
    one_value_comes::<Local>(local::channel::oneshot);
}

fn all_hear<K: Sharing>(
    (sender, first): (
        broadcast::Sender<Rc<u32>, K>,
        broadcast::Receiver<Rc<u32>, K>,
    ),
) {
    let _watchdog = watchdog();
    run(|| {
        let value = Rc::new(7);
        let heard: Vec<_> = (0..3)
            .map(|_| {
                let receiver = sender.subscribe();
                spawn_local(move || receiver.iter().map(|got| *got.unwrap()).sum::<u32>())
            })
            .collect();
        assert_eq!(sender.receiver_count(), 4);
        for _ in 0..10 {
            assert_eq!(sender.send(value.clone()), Ok(4));
            yield_now().unwrap();
        }
        assert_eq!(first.recv(), Err(RecvError::Lagged(8)));
        let again = first.clone();
        assert_eq!((first.len(), again.len()), (2, 2));
        assert_eq!(first.recv().map(|got| *got), Ok(7));
        drop(sender);
        assert_eq!(first.into_iter().count(), 1);
        assert_eq!(again.try_recv().map(|got| *got), Ok(7));
        assert_eq!(again.try_recv().map(|got| *got), Ok(7));
        assert_eq!(again.try_recv(), Err(TryRecvError::Closed));
        for heard in heard {
            assert_eq!(heard.join().unwrap(), 70);
        }
        assert_eq!(Rc::strong_count(&value), 1);
    });
}

// contract: Y9, Y12
#[test]
fn all_hear_the_news() {
    all_hear::<Shared>(channel::broadcast(2));
    all_hear::<Local>(local::channel::broadcast(2));
}

fn the_latest_is_seen<K: Sharing>(
    (sender, receiver): (watch::Sender<u32, K>, watch::Receiver<u32, K>),
) {
    let _watchdog = watchdog();
    run(|| {
        let watching = receiver.clone();
        let seen = spawn_local(move || watching.iter().map(|value| *value).collect::<Vec<_>>());
        yield_now().unwrap();
        for value in 1..=3 {
            sender.send(value).unwrap();
            yield_now().unwrap();
        }
        sender.send(4).unwrap();
        sender.send(5).unwrap();
        assert!(receiver.has_changed());
        assert_eq!(
            (*receiver.peek(), *receiver.get(), *sender.get()),
            (5, 5, 5)
        );
        assert_eq!(receiver.changed_timeout(SHORT), Err(WaitError::Timeout));
        assert_eq!(*sender.replace(6), 5);
        assert_eq!(receiver.changed(), Ok(()));
        drop(sender);
        assert_eq!(receiver.changed(), Err(WaitError::Closed));
        assert_eq!(seen.join().unwrap(), [1, 2, 3, 5, 6]);
    });
}

// contract: Y9, Y12
#[test]
fn the_latest_value_is_seen() {
    the_latest_is_seen::<Shared>(channel::watch(0));
    the_latest_is_seen::<Local>(local::channel::watch(0));
}

/// Each arm is the one in turn, and takes nothing when it is not.
fn one_arm_happens<K: Sharing>(
    (to, from): (Sender<u32, K>, Receiver<u32, K>),
    (news, hears): (broadcast::Sender<u32, K>, broadcast::Receiver<u32, K>),
    (shows, watches): (watch::Sender<u32, K>, watch::Receiver<u32, K>),
) {
    let _watchdog = watchdog();
    run(|| {
        let event = Rc::new(Event::<K>::auto());
        let group = WaitGroup::<K>::new();
        group.add(1);
        let log = Rc::new(RefCell::new(Vec::new()));
        let selecting = {
            let (event, group, log) = (event.clone(), group.clone(), log.clone());
            let back = to.downgrade();
            spawn_local(move || {
                for _ in 0..5 {
                    let arms = (
                        from.recv_arm(),
                        hears.recv_arm(),
                        watches.changed_arm(),
                        event.wait_arm(),
                        group.wait_arm(),
                    );
                    let mut selector = Selector::new();
                    selector.add(&arms.0);
                    selector.add(&arms.1);
                    selector.add(&arms.2);
                    selector.add(&arms.3);
                    selector.add(&arms.4);
                    let chosen = selector.wait().unwrap();
                    drop(selector);
                    let taken = [
                        arms.0.take().map(|got| assert_eq!(got, Ok(10))).is_some(),
                        arms.1.take().map(|got| assert_eq!(got, Ok(20))).is_some(),
                        arms.2.take().is_some(),
                        arms.3.take().is_some(),
                        arms.4.take().is_some(),
                    ];
                    assert!((0..5).all(|arm| taken[arm] == (arm == chosen)));
                    log.borrow_mut().push(chosen);
                    if chosen == 4 {
                        group.add(1);
                    }
                }
                drop(back);
            })
        };
        yield_now().unwrap();
        event.set();
        yield_now().unwrap();
        to.send(10).unwrap();
        yield_now().unwrap();
        shows.send(1).unwrap();
        yield_now().unwrap();
        group.done();
        yield_now().unwrap();
        news.send(20).unwrap();
        selecting.join().unwrap();
        assert_eq!(*log.borrow(), [3, 0, 2, 4, 1]);
        assert!(!event.is_set());
    });
}

fn macro_selects<K: Sharing>((to, from): (Sender<u32, K>, Receiver<u32, K>)) {
    run(|| {
        let sending = spawn_local(move || {
            let mut value = Some(3);
            let sent = select! {
                sent = to.send_from(&mut value) => sent,
            };
            sent.unwrap().unwrap();
            (value, to.try_send(4).unwrap_err().into_inner())
        });
        let got = select! {
            got = from.recv() => got.unwrap(),
            _ = after(Duration::from_secs(60)) => panic!("nothing came"),
        };
        assert_eq!((got, sending.join().unwrap()), (Ok(3), (None, 4)));
    });
}

// contract: Y10, Y12
#[test]
fn one_arm_of_a_select_happens() {
    one_arm_happens::<Shared>(
        channel::rendezvous(),
        channel::broadcast(4),
        channel::watch(0),
    );
    one_arm_happens::<Local>(
        local::channel::rendezvous(),
        local::channel::broadcast(4),
        local::channel::watch(0),
    );
    macro_selects::<Shared>(channel::rendezvous());
    macro_selects::<Local>(local::channel::rendezvous());
}

// contract: Y12
#[test]
fn a_plain_thread_waits_for_nothing_of_one_thread() {
    let deadlock = WaitError::Deadlock;
    let lock = local::RwLock::new(1);
    let guard = lock.write().unwrap();
    assert_eq!(lock.read().map(|guard| *guard), Err(deadlock));
    assert_eq!(lock.write_timeout(SHORT).map(drop), Err(WaitError::Timeout));
    drop(guard);
    assert_eq!(*lock.read().unwrap(), 1);

    let (mutex, condvar) = (local::Mutex::new(()), local::Condvar::new());
    let mut guard = mutex.lock().unwrap();
    assert_eq!(condvar.wait(&mut guard), Err(deadlock));
    assert_eq!(
        condvar.wait_timeout(&mut guard, SHORT),
        Err(WaitError::Timeout)
    );

    let barrier = local::Barrier::new(2);
    assert_eq!(barrier.wait().map(drop), Err(deadlock));
    assert!(local::Barrier::new(1).wait().unwrap().is_leader());

    let (once, cell) = (local::Once::new(), local::OnceCell::new());
    assert_eq!(once.wait(), Err(deadlock));
    assert_eq!(once.call_once(|| ()), Ok(()));
    assert_eq!(once.wait(), Ok(()));
    assert_eq!(cell.wait(), Err(deadlock));
    assert_eq!(cell.get_or_init(|| 2), Ok(&2));

    let (sender, receiver) = local::channel::broadcast::<u32>(1);
    assert_eq!(receiver.recv(), Err(deadlock.into()));
    sender.send(1).unwrap();
    assert_eq!(receiver.recv(), Ok(1));
    let (sender, receiver) = local::channel::watch(0);
    assert_eq!(receiver.changed(), Err(deadlock));
    sender.send(1).unwrap();
    assert_eq!(receiver.changed(), Ok(()));
}

/// Two coroutines that each hold what the other waits for: the deadlock is told, whatever the kind.
// contract: Y12
#[test]
fn the_holder_of_a_local_lock_is_known() {
    run(|| {
        let lock = Rc::new(local::RwLock::new(()));
        let guard = lock.write().unwrap();
        let locking = lock.clone();
        let waiter = spawn_local(move || locking.read().map(drop));
        yield_now().unwrap();
        let seen = sinew::inspect::find(waiter.id()).unwrap();
        let me = sinew::current().unwrap().id();
        assert!(format!("{seen:?}").contains(&me.to_string()), "{seen:?}");
        drop(guard);
        waiter.join().unwrap().unwrap();
    });
}
