//! The ends of channels for one value, of broadcasts and of watches, awaited from several executors and by a bare waker.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use sinew::sync::channel::broadcast::RecvError;
use sinew::sync::channel::{broadcast, oneshot, watch};
use sinew::{WaitError, block_on, run, spawn_local};

/// How long is waited before a value is called lost.
const LOST: Duration = Duration::from_secs(60);

const CLOSED: RecvError = RecvError::Wait(WaitError::Closed);

fn tokio() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

// contract: A2, Y9
#[test]
fn a_bare_waker_is_called_once_for_each_wait() {
    let calls = Arc::new(Counter(AtomicUsize::new(0)));
    let waker = Waker::from(calls.clone());
    let mut context = Context::from_waker(&waker);

    let (sender, receiver) = oneshot();
    let mut gone = receiver.recv_async();
    assert!(Pin::new(&mut gone).poll(&mut context).is_pending());
    sender.send(1).unwrap();
    assert_eq!(calls.0.load(SeqCst), 1);
    drop(gone);
    let mut recv = pin!(receiver.recv_async());
    assert_eq!(recv.as_mut().poll(&mut context), Poll::Ready(Ok(1)));
    let again = block_on(receiver.recv_async()).unwrap();
    assert_eq!(again, Err(WaitError::Closed));

    let (sender, mut receiver) = broadcast(2);
    let mut recv = receiver.recv_async();
    assert!(Pin::new(&mut recv).poll(&mut context).is_pending());
    assert!(Pin::new(&mut recv).poll(&mut context).is_pending());
    sender.send(1).unwrap();
    assert_eq!(calls.0.load(SeqCst), 2);
    sender.send(2).unwrap();
    assert_eq!(calls.0.load(SeqCst), 2, "it does not wait any more");
    // Dropped after it was woken, it has taken nothing.
    drop(recv);
    sender.send(3).unwrap();
    let mut next = || block_on(receiver.recv_async()).unwrap();
    assert_eq!(next(), Err(RecvError::Lagged(1)));
    assert_eq!((next(), next()), (Ok(2), Ok(3)));
    sender.close();
    assert_eq!(next(), Err(CLOSED));

    let (sender, mut receiver) = watch(0);
    let mut changed = receiver.changed_async();
    assert!(Pin::new(&mut changed).poll(&mut context).is_pending());
    sender.send(1).unwrap();
    sender.send(2).unwrap();
    assert_eq!(calls.0.load(SeqCst), 3);
    drop(changed);
    assert!(receiver.has_changed());
    let mut changed = || block_on(receiver.changed_async()).unwrap();
    assert_eq!(changed(), Ok(()));
    drop(sender);
    assert_eq!(changed(), Err(WaitError::Closed));
    assert_eq!(*receiver.get(), 2);
}

// contract: A2, Y9
#[test]
fn smol_tokio_and_coroutines_await_the_same_broadcast() {
    const VALUES: u64 = 1_000;
    async fn sum(mut receiver: broadcast::Receiver<u64>) -> u64 {
        let mut sum = 0;
        loop {
            match receiver.recv_async().await {
                Ok(value) => sum += value,
                Err(error) => {
                    assert_eq!(error, CLOSED);
                    return sum;
                }
            }
        }
    }
    let runtime = tokio();
    let (sender, receiver) = broadcast(usize::try_from(VALUES).unwrap());
    let on_tokio = runtime.spawn(sum(receiver.clone()));
    let on_smol = smol::spawn(sum(receiver.clone()));
    let in_coroutine = {
        let receiver = receiver.clone();
        std::thread::spawn(|| {
            run(|| {
                spawn_local(|| block_on(sum(receiver)).unwrap())
                    .join()
                    .unwrap()
            })
        })
    };
    for value in 0..VALUES {
        sender.send(value).unwrap();
    }
    drop(sender);
    let expected = VALUES * (VALUES - 1) / 2;
    assert_eq!(runtime.block_on(on_tokio).unwrap(), expected);
    assert_eq!(smol::block_on(on_smol), expected);
    assert_eq!(in_coroutine.join().unwrap(), expected);
    assert_eq!(smol::block_on(sum(receiver)), expected);

    // Values for one, from coroutines to tasks.
    let (promise, answer) = oneshot();
    let task = runtime.spawn(async move { answer.recv_async().await });
    run(|| sinew::go_local(move || promise.send(7).unwrap()));
    assert_eq!(runtime.block_on(task).unwrap(), Ok(7));
}

/// Some receive with patience, some give every second future up after one poll: all get every value or are told of it.
// contract: A2, Y9, Y11
#[test]
fn futures_of_a_broadcast_that_give_up_miss_nothing() {
    const VALUES: u64 = 20_000;
    async fn follow(mut receiver: broadcast::Receiver<u64>, is_impatient: bool) -> (u64, u64) {
        let (mut next, mut lost) = (0, 0);
        for round in 0_u64.. {
            let mut recv = receiver.recv_async();
            let result = if is_impatient && round.is_multiple_of(2) {
                match smol::future::poll_once(&mut recv).await {
                    Some(result) => result,
                    None => {
                        tokio::task::yield_now().await;
                        continue;
                    }
                }
            } else {
                let waited = tokio::time::timeout(LOST, recv).await;
                waited.expect("a value is lost")
            };
            match result {
                Ok(value) => {
                    assert_eq!(value, next, "in order, each once");
                    next += 1;
                }
                Err(RecvError::Lagged(count)) => {
                    next += count;
                    lost += count;
                }
                Err(error) => {
                    assert_eq!(error, CLOSED);
                    break;
                }
            }
        }
        (next, lost)
    }
    let runtime = tokio();
    for capacity in [1, 8, usize::try_from(VALUES).unwrap()] {
        let (sender, receiver) = broadcast(capacity);
        let followers: Vec<_> = [false, true, true]
            .map(|is_impatient| runtime.spawn(follow(receiver.clone(), is_impatient)))
            .into();
        drop(receiver);
        for value in 0..VALUES {
            sender.send(value).unwrap();
            if value.is_multiple_of(16) {
                std::thread::yield_now();
            }
        }
        drop(sender);
        for follower in followers {
            let (next, lost) = runtime.block_on(follower).unwrap();
            assert_eq!(next, VALUES);
            assert!(lost == 0 || capacity < 9);
        }
    }
}

// contract: A2, Y9, Y11
#[test]
fn futures_of_a_watch_that_give_up_see_the_last_value() {
    const VALUES: u64 = 20_000;
    let runtime = tokio();
    let (sender, receiver) = watch(0);
    let watchers: Vec<_> = [false, true, true]
        .map(|is_impatient| {
            let mut receiver = receiver.clone();
            runtime.spawn(async move {
                let mut last = 0;
                for round in 0_u64.. {
                    let result = if is_impatient && round.is_multiple_of(2) {
                        match smol::future::poll_once(receiver.changed_async()).await {
                            Some(result) => result,
                            None => {
                                tokio::task::yield_now().await;
                                continue;
                            }
                        }
                    } else {
                        let waited = tokio::time::timeout(LOST, receiver.changed_async()).await;
                        waited.expect("a change is lost")
                    };
                    if result.is_err() {
                        break;
                    }
                    let value = *receiver.get();
                    assert!(value >= last, "never backwards");
                    last = value;
                }
                last
            })
        })
        .into();
    drop(receiver);
    for value in 1..=VALUES {
        sender.send(value).unwrap();
        if value.is_multiple_of(16) {
            std::thread::yield_now();
        }
    }
    drop(sender);
    for watcher in watchers {
        assert_eq!(runtime.block_on(watcher).unwrap(), VALUES);
    }
}
