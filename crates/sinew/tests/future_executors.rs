//! Both directions of the bridge with executors that know nothing of us: tokio, smol, and a bare waker.

use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use sinew::event::Event;
use sinew::future::Promise;
use sinew::sync::WaitGroup;
use sinew::sync::channel::{
    Receiver, Sender, TryRecvError, TrySendError, bounded, rendezvous, unbounded,
};
use sinew::{
    CancelToken, SchedulerHandle, WaitError, block_on, go_local, run, sleep, spawn_local, yield_now,
};

/// Longer than any hesitation of the machine.
const LOST: Duration = Duration::from_secs(60);

fn tokio() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// A scheduler on a thread of its own, until the returned event is set.
fn scheduler() -> (SchedulerHandle, Arc<Event>, std::thread::JoinHandle<()>) {
    let (to_caller, handles) = mpsc::channel();
    let stop = Arc::new(Event::manual());
    let stopping = stop.clone();
    let thread = std::thread::spawn(move || {
        run(|| {
            to_caller.send(SchedulerHandle::current().unwrap()).unwrap();
            stopping.wait().unwrap();
        });
    });
    (handles.recv().unwrap(), stop, thread)
}

/// Counts its calls.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn bare() -> (Waker, Arc<Counter>) {
    let counter = Arc::new(Counter::default());
    (Waker::from(counter.clone()), counter)
}

// contract: A2
#[test]
fn a_bare_waker_is_called_once_for_each_wait() {
    run(|| {
        let (waker, calls) = bare();
        let mut context = Context::from_waker(&waker);
        // A join handle.
        let child = spawn_local(|| 5);
        let mut join = child.into_future();
        assert!(Pin::new(&mut join).poll(&mut context).is_pending());
        assert!(Pin::new(&mut join).poll(&mut context).is_pending());
        yield_now().unwrap();
        assert_eq!(calls.0.load(SeqCst), 1);
        let Poll::Ready(Ok(5)) = Pin::new(&mut join).poll(&mut context) else {
            panic!("the coroutine has ended");
        };
        // Both ends of a channel.
        let (sender, receiver) = rendezvous();
        let mut send = pin!(sender.send_async(1));
        assert!(send.as_mut().poll(&mut context).is_pending());
        assert_eq!(receiver.try_recv(), Ok(1));
        assert_eq!(calls.0.load(SeqCst), 2);
        assert_eq!(send.poll(&mut context), Poll::Ready(Ok(())));
        let mut recv = pin!(receiver.recv_async());
        assert!(recv.as_mut().poll(&mut context).is_pending());
        // It may be dropped any time, so nothing can be left with it; a sender that waits calls it.
        assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
        assert_eq!(calls.0.load(SeqCst), 2);
        let mut send = pin!(sender.send_async(2));
        assert!(send.as_mut().poll(&mut context).is_pending());
        assert_eq!(calls.0.load(SeqCst), 3);
        assert!(send.as_mut().poll(&mut context).is_pending());
        assert_eq!(recv.poll(&mut context), Poll::Ready(Ok(2)));
        assert_eq!(calls.0.load(SeqCst), 4);
        assert_eq!(send.poll(&mut context), Poll::Ready(Ok(())));
        // An event, a group, a token.
        let event = Event::auto();
        let mut wait = pin!(event.wait_async());
        assert!(wait.as_mut().poll(&mut context).is_pending());
        event.set();
        assert!(!event.is_set(), "it has the signal");
        assert!(wait.poll(&mut context).is_ready());
        let group = WaitGroup::new();
        group.add(1);
        let mut wait = pin!(group.wait_async());
        assert!(wait.as_mut().poll(&mut context).is_pending());
        group.done();
        assert!(wait.poll(&mut context).is_ready());
        let token = CancelToken::new();
        let mut wait = pin!(token.wait_async());
        assert!(wait.as_mut().poll(&mut context).is_pending());
        token.cancel("enough");
        assert!(wait.poll(&mut context).is_ready());
        assert_eq!(calls.0.load(SeqCst), 7);
    });
}

// contract: A2
#[test]
fn a_future_that_is_dropped_leaves_no_trace() {
    let (waker, calls) = bare();
    let mut context = Context::from_waker(&waker);
    let (sender, receiver) = bounded::<Arc<()>>(1);
    for _ in 0..10 {
        let mut recv = receiver.recv_async();
        assert!(Pin::new(&mut recv).poll(&mut context).is_pending());
    }
    let value = Arc::new(());
    sender.try_send(value.clone()).unwrap();
    assert_eq!(calls.0.load(SeqCst), 0, "nobody waits");
    for _ in 0..10 {
        let mut send = sender.send_async(value.clone());
        assert!(Pin::new(&mut send).poll(&mut context).is_pending());
        assert!(send.give_up().is_some());
        let mut send = sender.send_async(value.clone());
        assert!(Pin::new(&mut send).poll(&mut context).is_pending());
    }
    assert_eq!(Arc::strong_count(&value), 2, "one is in the channel");
    drop(receiver.try_recv());
    assert_eq!(Arc::strong_count(&value), 1);
    // One that was woken for a value and is dropped before it looks.
    let mut recv = receiver.recv_async();
    assert!(Pin::new(&mut recv).poll(&mut context).is_pending());
    sender.try_send(value.clone()).unwrap();
    assert_eq!(calls.0.load(SeqCst), 1);
    drop(recv);
    assert_eq!(receiver.len(), 1);
    assert!(sender.try_send(value.clone()).unwrap_err().is_full());
    assert_eq!(receiver.try_iter().count(), 1);
    assert_eq!(Arc::strong_count(&value), 1);
    // Of an unbounded one, and of one that is closed meanwhile.
    let (sender, receiver) = unbounded();
    let mut recv = receiver.recv_async();
    assert!(Pin::new(&mut recv).poll(&mut context).is_pending());
    for number in 1..=100 {
        sender.try_send(number).unwrap();
    }
    drop(sender);
    drop(recv);
    assert!(receiver.try_iter().eq(1..=100));
    assert_eq!(block_on(receiver.recv_async()), Ok(Err(WaitError::Closed)));
}

// contract: A2, Y9
#[test]
fn values_keep_their_places_when_a_woken_future_is_dropped() {
    let (waker, _) = bare();
    let mut context = Context::from_waker(&waker);
    for capacity in 0..3 {
        let (sender, receiver) = bounded(capacity);
        let mut recv = receiver.recv_async();
        assert!(Pin::new(&mut recv).poll(&mut context).is_pending());
        for number in 0..capacity {
            sender.try_send(number).unwrap();
        }
        let mut sends: Vec<_> = (0..3)
            .map(|more| Box::pin(sender.send_async(capacity + more)))
            .collect();
        for send in &mut sends {
            assert!(send.as_mut().poll(&mut context).is_pending());
        }
        drop(recv);
        let received: Vec<_> = receiver.try_iter().collect();
        assert!(received.into_iter().eq(0..capacity + 3));
        for send in sends {
            let mut send = pin!(send);
            assert_eq!(send.as_mut().poll(&mut context), Poll::Ready(Ok(())));
        }
    }
}

// contract: Y9
#[test]
fn a_rendezvous_with_a_future_ends_when_it_has_taken_the_value() {
    let (waker, calls) = bare();
    let mut context = Context::from_waker(&waker);
    run(|| {
        let (sender, receiver) = rendezvous();
        for is_dropped in [false, true] {
            let mut recv = receiver.recv_async();
            assert!(Pin::new(&mut recv).poll(&mut context).is_pending());
            let before = calls.0.load(SeqCst);
            let sender = sender.clone();
            let sending = spawn_local(move || sender.send_timeout(5, Duration::from_millis(20)));
            yield_now().unwrap();
            assert_eq!(calls.0.load(SeqCst), before + 1, "it is worth a look");
            assert!(!sending.is_finished(), "nobody has taken the value");
            if is_dropped {
                drop(recv);
                let back = sending.join().unwrap().unwrap_err();
                assert_eq!((back.value, back.reason), (5, WaitError::Timeout));
            } else {
                assert_eq!(Pin::new(&mut recv).poll(&mut context), Poll::Ready(Ok(5)));
                assert_eq!(sending.join().unwrap(), Ok(()));
            }
        }
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    });
}

/// Whoever is told that a channel is closed and empty is told the truth, though a future was woken for a value that was left.
// contract: Y9
#[test]
fn nothing_comes_back_into_a_channel_that_was_said_to_be_empty() {
    let (waker, _) = bare();
    let mut context = Context::from_waker(&waker);
    run(|| {
        let (sender, receiver) = bounded(1);
        let mut recv = receiver.recv_async();
        assert!(Pin::new(&mut recv).poll(&mut context).is_pending());
        let behind = receiver.clone();
        let behind = spawn_local(move || (behind.recv(), behind.recv()));
        yield_now().unwrap();
        sender.try_send(1).unwrap();
        sender.close();
        // The future was woken and has not looked: the one behind it gets what is there before it is told of the close.
        assert_eq!(behind.join().unwrap(), (Ok(1), Err(WaitError::Closed)));
        drop(recv);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
    });
}

/// A coroutine waits behind a future that was woken and does not look: one value is kept for it, the next is not.
// contract: Y9
#[test]
fn a_woken_future_holds_up_one_value_at_most() {
    let (waker, _) = bare();
    let mut context = Context::from_waker(&waker);
    run(|| {
        let (sender, receiver) = unbounded();
        let mut recv = receiver.recv_async();
        assert!(Pin::new(&mut recv).poll(&mut context).is_pending());
        let behind = receiver.clone();
        let behind = spawn_local(move || behind.recv());
        yield_now().unwrap();
        sender.send(1).unwrap();
        yield_now().unwrap();
        assert!(!behind.is_finished());
        sender.send(2).unwrap();
        // The values are received in their order.
        assert_eq!(behind.join().unwrap(), Ok(1));
        assert_eq!(Pin::new(&mut recv).poll(&mut context), Poll::Ready(Ok(2)));
        // One that was overtaken waits on, before all others.
        let (mut first, mut second) = (receiver.recv_async(), receiver.recv_async());
        assert!(Pin::new(&mut first).poll(&mut context).is_pending());
        assert!(Pin::new(&mut second).poll(&mut context).is_pending());
        sender.send(3).unwrap();
        assert_eq!(receiver.try_recv(), Ok(3));
        assert!(Pin::new(&mut first).poll(&mut context).is_pending());
        sender.send(4).unwrap();
        assert!(Pin::new(&mut second).poll(&mut context).is_pending());
        assert_eq!(Pin::new(&mut first).poll(&mut context), Poll::Ready(Ok(4)));
    });
}

// contract: A2
#[test]
fn tokio_awaits_coroutines_and_channels() {
    let runtime = tokio();
    let (handle, stop, thread) = scheduler();
    runtime.block_on(async {
        // A coroutine from async code: its handle comes by a promise.
        let (promise, started) = Promise::new();
        handle
            .post(move || {
                let child = spawn_local(|| {
                    sleep(Duration::from_millis(1)).unwrap();
                    42
                });
                let _ = promise.resolve(std::sync::Mutex::new(Some(child)));
            })
            .unwrap();
        let child = (&started).await.unwrap().lock().unwrap().take().unwrap();
        // It is Send, and joined on another worker.
        let joined = tokio::spawn(child.into_future()).await.unwrap();
        assert_eq!(joined.unwrap(), 42);

        let (to_coroutine, requests) = bounded::<u64>(4);
        let (to_task, answers) = rendezvous::<u64>();
        handle
            .post(move || {
                go_local(move || {
                    for request in requests {
                        to_task.send(request * 2).unwrap();
                    }
                });
            })
            .unwrap();
        let asking = tokio::spawn(async move {
            for request in 0..1000 {
                to_coroutine.send_async(request).await.unwrap();
            }
        });
        let mut sum = 0;
        while let Ok(answer) = answers.recv_async().await {
            sum += answer;
        }
        asking.await.unwrap();
        assert_eq!(sum, 999 * 1000);

        // A timeout of theirs drops a future of ours.
        let (sender, receiver) = rendezvous::<u8>();
        let limit = Duration::from_millis(1);
        assert!(
            tokio::time::timeout(limit, receiver.recv_async())
                .await
                .is_err()
        );
        assert!(sender.try_send(1).is_err(), "nobody waits");
    });
    stop.set();
    thread.join().unwrap();
}

// contract: A2
#[test]
fn smol_awaits_coroutines_and_channels() {
    let (handle, stop, thread) = scheduler();
    smol::block_on(async {
        let (sender, receiver) = unbounded();
        for number in 0..100_u32 {
            let sender = sender.clone();
            handle
                .post(move || {
                    go_local(move || {
                        yield_now().unwrap();
                        sender.send(number).unwrap();
                    });
                })
                .unwrap();
        }
        drop(sender);
        let summing = smol::spawn(async move {
            let mut sum = 0;
            while let Ok(number) = receiver.recv_async().await {
                sum += number;
            }
            sum
        });
        assert_eq!(summing.await, 99 * 100 / 2);
        let event = Arc::new(Event::auto());
        let setting = event.clone();
        handle.post(move || setting.set()).unwrap();
        event.wait_async().await;
    });
    stop.set();
    thread.join().unwrap();
}

// contract: A2
#[test]
fn coroutines_run_what_tokio_makes() {
    let runtime = tokio();
    let _context = runtime.enter();
    run(|| {
        // Channels of theirs, from a task of theirs.
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let sending = tokio::spawn(async move { sender.send(7).unwrap() });
        assert_eq!(block_on(receiver).unwrap(), Ok(7));
        block_on(sending).unwrap().unwrap();
        // Timers and sockets of theirs.
        let (asked, answered) = {
            let listener = block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
                .unwrap()
                .unwrap();
            let address = listener.local_addr().unwrap();
            let serving = spawn_local(move || {
                block_on(async {
                    use tokio::io::{AsyncReadExt, AsyncWriteExt};
                    let (mut stream, _) = listener.accept().await?;
                    let mut text = String::new();
                    stream.read_to_string(&mut text).await?;
                    stream.write_all(text.to_uppercase().as_bytes()).await?;
                    std::io::Result::Ok(text)
                })
                .unwrap()
                .unwrap()
            });
            let asking = spawn_local(move || {
                block_on(async {
                    use tokio::io::{AsyncReadExt, AsyncWriteExt};
                    let mut stream = tokio::net::TcpStream::connect(address).await?;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    stream.write_all(b"from a coroutine").await?;
                    stream.shutdown().await?;
                    let mut text = String::new();
                    stream.read_to_string(&mut text).await?;
                    std::io::Result::Ok(text)
                })
                .unwrap()
                .unwrap()
            });
            (serving.join().unwrap(), asking.join().unwrap())
        };
        assert_eq!(asked, "from a coroutine");
        assert_eq!(answered, "FROM A COROUTINE");
    });
}

/// Sends all values by futures, of which every one that is pending once is given up and made anew.
async fn send_impatiently(sender: &Sender<u64>, values: impl Iterator<Item = u64>) {
    for mut value in values {
        loop {
            let mut send = sender.send_async(value);
            if let Some(result) = smol::future::poll_once(&mut send).await {
                result.unwrap();
                break;
            }
            smol::future::yield_now().await;
            match send.give_up() {
                None => break,
                Some(back) => value = back,
            }
        }
    }
}

/// Receives until the channel is closed; an impatient one gives every second future up after one poll, claimed or not.
async fn receive(receiver: Receiver<u64>, is_impatient: bool) -> Vec<u64> {
    let mut got = Vec::new();
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
            Ok(value) => got.push(value),
            Err(_) => break,
        }
    }
    got
}

/// Values from threads, coroutines and futures to receivers some of which give up at random moments.
// contract: A2
#[test]
fn futures_that_give_up_at_random_lose_and_double_nothing() {
    const SENDERS: u64 = 3;
    let factor: u64 = match std::env::var("SINEW_STRESS").as_deref() {
        Ok("full") => 100,
        Ok(text) => text.parse().expect("SINEW_STRESS is a number"),
        Err(_) => 1,
    };
    let each = 2_000 * factor;
    let runtime = tokio();
    for capacity in [0, 1, 3, usize::MAX] {
        let (sender, receiver) = match capacity {
            usize::MAX => unbounded(),
            capacity => bounded(capacity),
        };
        let senders: Vec<_> = (0..SENDERS)
            .map(|party| {
                let sender = sender.clone();
                let values = (0..each).map(move |number| party * each + number);
                std::thread::spawn(move || match party {
                    0 => values.for_each(|value| sender.send(value).unwrap()),
                    1 => run(move || values.for_each(|value| sender.send(value).unwrap())),
                    _ => smol::block_on(send_impatiently(&sender, values)),
                })
            })
            .collect();
        drop(sender);
        let receivers: Vec<_> = [false, true, true]
            .map(|is_impatient| runtime.spawn(receive(receiver.clone(), is_impatient)))
            .into();
        drop(receiver);
        for sender in senders {
            sender.join().unwrap();
        }
        let mut got: Vec<u64> = runtime.block_on(async {
            let mut all = Vec::new();
            for receiver in receivers {
                all.extend(receiver.await.unwrap());
            }
            all
        });
        got.sort_unstable();
        assert!(got.into_iter().eq(0..SENDERS * each), "capacity {capacity}");
    }
}

/// Each signal is taken before the next is set: one that were lost would end this.
// contract: A2
#[test]
fn signals_survive_futures_that_give_up() {
    const ROUNDS: usize = 5_000;
    let runtime = tokio();
    let (event, taken) = (Arc::new(Event::auto()), Arc::new(AtomicUsize::new(0)));
    for is_impatient in [false, true, true] {
        let (event, taken) = (event.clone(), taken.clone());
        runtime.spawn(async move {
            for round in 0_u64.. {
                let mut wait = event.wait_async();
                if is_impatient && round.is_multiple_of(2) {
                    if smol::future::poll_once(&mut wait).await.is_none() {
                        tokio::task::yield_now().await;
                        continue;
                    }
                } else {
                    wait.await;
                }
                taken.fetch_add(1, SeqCst);
            }
        });
    }
    let begun = sinew::time::now();
    for round in 1..=ROUNDS {
        event.set();
        while taken.load(SeqCst) < round {
            std::thread::yield_now();
            assert!(begun.elapsed() < LOST, "a signal was lost");
        }
        assert_eq!(taken.load(SeqCst), round);
    }
    runtime.shutdown_background();
}
