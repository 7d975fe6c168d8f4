//! Oneshot, broadcast and watch; weak senders, iteration, capacities, and what becomes of queued values.

mod io_rig;

use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use io_rig::watchdog;
use sinew::sync::channel::{self, broadcast, oneshot, watch};
use sinew::sync::channel::{TryRecvError, bounded, rendezvous, unbounded};
use sinew::{WaitError, go_local, run, select, spawn_local, yield_now};

const SOON: Duration = Duration::from_millis(1);

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

// contract: Y9
#[test]
fn a_oneshot_carries_one_value_or_says_that_none_comes() {
    let _watchdog = watchdog();
    run(|| {
        let (sender, receiver) = oneshot();
        let waiting = spawn_local(move || (receiver.recv(), receiver.recv()));
        yield_now().unwrap();
        sender.send(1).unwrap();
        assert_eq!(waiting.join().unwrap(), (Ok(1), Err(WaitError::Closed)));

        let (sender, receiver) = oneshot::<u8>();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(receiver.recv_timeout(SOON), Err(WaitError::Timeout));
        let waiting = spawn_local(move || receiver.recv());
        yield_now().unwrap();
        drop(sender);
        assert_eq!(waiting.join().unwrap(), Err(WaitError::Closed));

        let (sender, receiver) = oneshot();
        assert!(receiver.close());
        assert!(sender.is_closed());
        let refused = sender.send("back").unwrap_err();
        assert_eq!((refused.value, refused.reason), ("back", WaitError::Closed));
        let (sender, receiver) = oneshot();
        sender.send(5).unwrap();
        assert!(!receiver.close(), "it was sent, and can still be received");
        assert_eq!(receiver.into_iter().collect::<Vec<_>>(), [5]);
    });
    // From a thread to a thread, and dropped on the way.
    let drops = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = oneshot();
    let value = Counted(drops.clone());
    std::thread::spawn(move || assert!(sender.send(value).is_ok()))
        .join()
        .unwrap();
    assert_eq!(drops.load(SeqCst), 0);
    drop(receiver);
    assert_eq!(drops.load(SeqCst), 1);
}

// contract: Y9
#[test]
fn a_broadcast_reaches_everyone_and_tells_who_lags() {
    let _watchdog = watchdog();
    run(|| {
        let (sender, first) = broadcast(4);
        let second = first.clone();
        let listen = |receiver: channel::broadcast::Receiver<u32>| {
            spawn_local(move || receiver.iter().collect::<Vec<_>>())
        };
        let (first, second) = (listen(first), listen(second));
        yield_now().unwrap();
        assert_eq!(sender.send(1).unwrap(), 2);
        yield_now().unwrap();
        let late = listen(sender.subscribe());
        for n in 2..=7 {
            assert_eq!(sender.send(n).unwrap(), 3);
        }
        drop(sender);
        assert_eq!(
            first.join().unwrap(),
            [Ok(1), Err(2), Ok(4), Ok(5), Ok(6), Ok(7)]
        );
        assert_eq!(
            second.join().unwrap(),
            [Ok(1), Err(2), Ok(4), Ok(5), Ok(6), Ok(7)]
        );
        assert_eq!(late.join().unwrap(), [Err(2), Ok(4), Ok(5), Ok(6), Ok(7)]);
    });
    let (sender, receiver) = broadcast::<u32>(2);
    assert_eq!(
        receiver.try_recv(),
        Err(channel::broadcast::TryRecvError::Empty)
    );
    sender.send(1).unwrap();
    assert_eq!(
        (receiver.len(), receiver.is_empty(), sender.capacity()),
        (1, false, 2)
    );
    assert!(receiver.close());
    assert_eq!(sender.send(2).unwrap_err().value, 2);
    assert_eq!(receiver.recv(), Ok(1));
    let closed = channel::broadcast::RecvError::Wait(WaitError::Closed);
    assert_eq!(receiver.recv(), Err(closed));
    let (sender, receiver) = broadcast::<u32>(2);
    drop(receiver);
    assert_eq!(sender.receiver_count(), 0);
    assert_eq!(sender.send(3).unwrap_err().reason, WaitError::Closed);
}

#[test]
fn a_broadcast_value_is_cloned_for_all_but_the_last() {
    #[derive(Debug)]
    struct Precious(Arc<AtomicUsize>);
    impl Clone for Precious {
        fn clone(&self) -> Self {
            self.0.fetch_add(1, SeqCst);
            Self(self.0.clone())
        }
    }
    let clones = Arc::new(AtomicUsize::new(0));
    let (sender, first) = broadcast(2);
    let others = [first.clone(), first.clone()];
    sender.send(Precious(clones.clone())).unwrap();
    // All of them hold theirs until the end: the reference is shared until each is made its own.
    let got: Vec<_> = others
        .iter()
        .chain([&first])
        .map(|r| r.recv().unwrap())
        .collect();
    assert_eq!(clones.load(SeqCst), 2);
    drop(got);
    assert_eq!(
        Arc::strong_count(&clones),
        1,
        "nothing is kept that nobody waits for"
    );
}

// contract: Y9
#[test]
fn a_watch_shows_the_latest_and_wakes_on_changes() {
    let _watchdog = watchdog();
    run(|| {
        let (sender, receiver) = watch(0);
        assert_eq!((*receiver.get(), receiver.has_changed()), (0, false));
        let seen = {
            let receiver = receiver.clone();
            spawn_local(move || receiver.iter().map(|value| *value).collect::<Vec<_>>())
        };
        yield_now().unwrap();
        sender.send(1).unwrap();
        yield_now().unwrap();
        sender.send(2).unwrap();
        assert_eq!(*sender.replace(3), 2);
        yield_now().unwrap();
        sender.send(4).unwrap();
        assert_eq!((*receiver.peek(), receiver.has_changed()), (4, true));
        assert_eq!(receiver.changed(), Ok(()));
        assert_eq!(receiver.changed_timeout(SOON), Err(WaitError::Timeout));
        let fresh = sender.subscribe();
        assert!(!fresh.has_changed(), "it has seen what there was");
        assert_eq!(sender.receiver_count(), 3);
        drop(sender);
        assert_eq!(
            seen.join().unwrap(),
            [1, 3, 4],
            "the last is seen although the sender has gone"
        );
        assert_eq!(receiver.changed(), Err(WaitError::Closed));
        assert_eq!(*receiver.get(), 4, "it stays");
    });
    let (sender, receiver) = watch("a");
    assert!(receiver.close());
    assert_eq!(sender.send("b").unwrap_err().value, "b");
    assert_eq!(*sender.get(), "a");
}

#[test]
fn all_kinds_are_arms() {
    let _watchdog = watchdog();
    run(|| {
        let (once, single) = oneshot();
        let (news, listener) = broadcast(2);
        let (value, watcher) = watch(0);
        go_local(move || {
            value.send(1).unwrap();
            yield_now().unwrap();
            news.send(2).unwrap();
            yield_now().unwrap();
            once.send(3).unwrap();
            // Until the end, so that nothing closes before.
            for _ in 0..10 {
                yield_now().unwrap();
            }
            drop((value, news));
        });
        let mut got = Vec::new();
        while got.len() < 3 {
            let n = select! {
                n = single.recv() => n.unwrap(),
                n = listener.recv() => n.unwrap(),
                r = watcher.changed() => r.map(|()| *watcher.get()).unwrap(),
            };
            got.push(n.unwrap());
        }
        assert_eq!(got, [1, 2, 3]);
    });
}

// contract: Y9
#[test]
fn a_weak_sender_does_not_keep_the_channel_open() {
    let _watchdog = watchdog();
    run(|| {
        let (sender, receiver) = unbounded();
        let weak = sender.downgrade();
        weak.clone().upgrade().unwrap().send(1).unwrap();
        let waiting = spawn_local(move || receiver.iter().count());
        yield_now().unwrap();
        drop(sender);
        assert_eq!(waiting.join().unwrap(), 1);
        assert!(weak.upgrade().is_none());
        let (sender, receiver) = bounded::<u8>(1);
        let weak = sender.downgrade();
        receiver.close();
        assert!(weak.upgrade().is_none(), "closed, though a sender is left");
    });
}

// contract: Y9
#[test]
fn receivers_iterate() {
    run(|| {
        let (sender, receiver) = bounded(4);
        assert_eq!((sender.capacity(), receiver.capacity()), (Some(4), Some(4)));
        for n in 0..3 {
            sender.send(n).unwrap();
        }
        assert_eq!(
            (sender.len(), receiver.len(), receiver.is_empty()),
            (3, 3, false)
        );
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(receiver.is_empty() && !receiver.is_closed());
        go_local(move || (3..6).for_each(|n| sender.send(n).unwrap()));
        let mut sum = 0;
        for n in &receiver {
            sum += n;
        }
        assert_eq!((sum, receiver.is_closed()), (12, true));
        assert_eq!(receiver.into_iter().next(), None);
        // A cancel ends an iteration.
        let (_sender, receiver) = rendezvous::<u8>();
        let waiting = spawn_local(move || receiver.iter().count());
        yield_now().unwrap();
        waiting.cancel("enough");
        assert_eq!(waiting.join().unwrap(), 0);
    });
}

// contract: Y9
#[test]
fn an_absurd_capacity_is_a_panic_that_says_so() {
    let says = |f: fn()| {
        let payload = catch_unwind(f).unwrap_err();
        payload
            .downcast_ref::<String>()
            .unwrap()
            .contains("memory for a")
    };
    assert!(says(|| drop(bounded::<u64>(usize::MAX))));
    assert!(says(|| drop(bounded::<u8>(usize::MAX / 4))));
    assert!(says(|| drop(broadcast::<u8>(usize::MAX))));
    assert!(catch_unwind(|| drop(broadcast::<u8>(0))).is_err());
    // Nothing needs no memory.
    let (sender, receiver) = bounded::<()>(usize::MAX);
    sender.try_send(()).unwrap();
    assert_eq!(receiver.len(), 1);
}

// contract: Y9
#[test]
fn a_million_queued_values_are_dropped_once_each_with_their_receiver() {
    const VALUES: usize = 1_000_000;
    let _watchdog = watchdog();
    for is_bounded in [false, true] {
        let drops = Arc::new(AtomicUsize::new(0));
        let (sender, receiver) = if is_bounded {
            bounded(VALUES)
        } else {
            unbounded()
        };
        run(|| {
            for _ in 0..VALUES {
                sender
                    .try_send(Counted(drops.clone()))
                    .unwrap_or_else(|_| panic!("full"));
            }
            let blocked = sender.clone();
            let value = Counted(drops.clone());
            let blocked = spawn_local(move || blocked.send(value).map_err(|error| error.value));
            yield_now().unwrap();
            assert_eq!(blocked.is_finished(), !is_bounded);
            drop(receiver);
            let queued = VALUES + usize::from(!is_bounded);
            assert_eq!(drops.load(SeqCst), queued);
            match blocked.join().unwrap() {
                Ok(()) => assert!(!is_bounded),
                Err(value) => {
                    assert_eq!(drops.load(SeqCst), VALUES, "it has its value back");
                    drop(value);
                }
            }
            assert_eq!(drops.load(SeqCst), VALUES + 1);
            assert!(sender.is_closed());
        });
    }
}

/// Each of many oneshots is sent and received by parties that may be cancelled, time out or go: the value is on one
/// side, and dropped once.
// contract: Y9, Y11
#[test]
fn a_oneshot_s_value_ends_on_one_side() {
    let _watchdog = watchdog();
    let drops = Arc::new(AtomicUsize::new(0));
    let rounds = 3_000 * io_rig::stress();
    let (to_sender, from_receiver) = unbounded::<oneshot::Sender<Counted>>();
    let counted = drops.clone();
    let sender = std::thread::spawn(move || {
        let mut sent = 0;
        for once in &from_receiver {
            sent += usize::from(once.send(Counted(counted.clone())).is_ok());
        }
        sent
    });
    let received = run(move || {
        let mut received = 0;
        for round in 0..rounds {
            let (once, receiver) = oneshot();
            to_sender.send(once).unwrap();
            let waiting = spawn_local(move || {
                match round % 4 {
                0 => receiver.recv_timeout(Duration::from_nanos(round as u64 * 97 % 40_000)),
                1 => receiver.recv(),
                2 => select! {
                    value = receiver.recv() => value,
                    () = after(Duration::from_nanos(round as u64 * 31 % 40_000)) => Err(WaitError::Timeout),
                }
                .and_then(|value| value),
                _ => receiver.try_recv().map_err(|_| WaitError::Timeout),
            }
            });
            yield_now().unwrap();
            if round % 8 == 1 {
                waiting.cancel("at some moment");
            }
            received += usize::from(waiting.join().unwrap().is_ok());
        }
        received
    });
    let sent = sender.join().unwrap();
    assert_eq!(drops.load(SeqCst), rounds, "each value was dropped once");
    assert!(received <= sent && received > 0, "{received} of {sent}");
}

/// A watcher that is cancelled, times out and selects always sees the last value in the end, and none twice.
// contract: Y9, Y11
#[test]
fn a_watcher_sees_the_last_value_whatever_ends_its_waits() {
    let _watchdog = watchdog();
    let last = 20_000 * io_rig::stress() as u64;
    let (sender, receiver) = watch(0);
    let threads: Vec<_> = (0..3_u64)
        .map(|index| {
            let receiver = receiver.clone();
            let look = move || {
                let (mut seen, mut step) = (0, index);
                loop {
                    step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let limit = Duration::from_nanos((step >> 32) % 30_000);
                    let changed = match step >> 62 {
                        0 => receiver.changed_timeout(limit),
                        1 => receiver.changed(),
                        2 => sinew::timeout(limit, || receiver.changed())
                            .unwrap_or(Err(WaitError::Timeout)),
                        _ => select! {
                            r = receiver.changed() => r,
                            () = after(limit) => Err(WaitError::Timeout),
                        }
                        .and_then(|result| result),
                    };
                    match changed {
                        Ok(()) => {
                            // It may be a later one than the change was for.
                            let now = *receiver.get();
                            assert!(now > seen, "{now} after {seen}");
                            seen = now;
                        }
                        Err(WaitError::Closed) => break seen,
                        Err(WaitError::Timeout | WaitError::Cancelled) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            };
            std::thread::spawn(move || if index == 0 { look() } else { run(look) })
        })
        .collect();
    for number in 1..=last {
        sender.send(number).unwrap();
    }
    drop((sender, receiver));
    for thread in threads {
        assert_eq!(thread.join().unwrap(), last);
    }
}
