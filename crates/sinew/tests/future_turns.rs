//! A future that receives is overtaken a bounded number of times; what is kept for it then is kept from every other way to receive, and
//! from nobody for longer than it lasts.

mod io_rig;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use io_rig::{stress, watchdog};
use sinew::sync::channel::{Receiver, Sender, TryRecvError, bounded, rendezvous, unbounded};
use sinew::{WaitError, block_on, run, select, spawn_local, yield_now};

/// More than how often a future is overtaken.
const OFTEN: usize = 20;
const SHORT: Duration = Duration::from_millis(1);

/// Polls once, for nobody.
fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// A future that was overtaken until it may not be again: a value is kept for it.
fn kept_for(
    sender: &Sender<u32>,
    receiver: &Receiver<u32>,
) -> impl Future<Output = Result<u32, WaitError>> + Unpin {
    let mut future = receiver.recv_async();
    assert!(poll(&mut future).is_pending());
    for _ in 0..OFTEN {
        sender.try_send(0).unwrap();
        match receiver.try_recv() {
            Ok(_) => assert!(poll(&mut future).is_pending()),
            Err(error) => {
                assert_eq!(error, TryRecvError::Empty);
                return future;
            }
        }
    }
    panic!("overtaken {OFTEN} times")
}

// contract: Y9
#[test]
fn what_is_kept_for_a_future_is_kept_from_all_others() {
    let _watchdog = watchdog();
    run(|| {
        let (sender, receiver) = bounded(2);
        let mut future = kept_for(&sender, &receiver);
        assert_eq!(receiver.len(), 1);
        assert_eq!(receiver.recv_timeout(SHORT), Err(WaitError::Timeout));
        let selected = select! {
            value = receiver.recv() => value,
            _ = after(SHORT) => Err(WaitError::Timeout),
        };
        assert_eq!(selected, Ok(Err(WaitError::Timeout)));
        let mut other = receiver.recv_async();
        assert!(poll(&mut other).is_pending());
        // The second value is anybody's, and in its turn.
        sender.try_send(1).unwrap();
        assert_eq!(poll(&mut other), Poll::Ready(Ok(0)));
        assert_eq!(poll(&mut future), Poll::Ready(Ok(1)));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    });
}

/// One that goes leaves its value to a coroutine that waits; at the close it is anybody's.
#[test]
fn what_was_kept_is_free_when_the_future_goes() {
    let _watchdog = watchdog();
    run(|| {
        let (sender, receiver) = unbounded();
        let future = kept_for(&sender, &receiver);
        let theirs = receiver.clone();
        let waiting = spawn_local(move || theirs.recv());
        let theirs = receiver.clone();
        let selecting = spawn_local(move || select! { value = theirs.recv() => value });
        yield_now().unwrap();
        assert!(!waiting.is_finished() && !selecting.is_finished());
        drop(future);
        assert_eq!(waiting.join().unwrap(), Ok(0));
        sender.try_send(1).unwrap();
        assert_eq!(selecting.join().unwrap(), Ok(Ok(1)));
        let mut future = kept_for(&sender, &receiver);
        sender.close();
        assert_eq!(receiver.try_recv(), Ok(0));
        assert_eq!(poll(&mut future), Poll::Ready(Err(WaitError::Closed)));
    });
}

/// At a rendezvous the value that is kept stays with its sender, which waits; the next sender's is anybody's.
#[test]
fn a_sender_waits_for_the_future_that_its_value_is_kept_for() {
    let _watchdog = watchdog();
    run(|| {
        let (sender, receiver) = rendezvous();
        let send = |value| {
            let sender = sender.clone();
            let sending = spawn_local(move || sender.send(value));
            yield_now().unwrap();
            sending
        };
        let mut future = receiver.recv_async();
        assert!(poll(&mut future).is_pending());
        let kept = loop {
            let sending = send(0);
            match receiver.try_recv() {
                Ok(0) => sending.join().unwrap().unwrap(),
                other => {
                    assert_eq!(other, Err(TryRecvError::Empty));
                    break sending;
                }
            }
            assert!(poll(&mut future).is_pending());
        };
        assert!(!kept.is_finished());
        let second = send(1);
        assert_eq!(receiver.try_recv(), Ok(0));
        kept.join().unwrap().unwrap();
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        assert!(!second.is_finished());
        assert_eq!(poll(&mut future), Poll::Ready(Ok(1)));
        second.join().unwrap().unwrap();
    });
}

/// Threads take whatever they find without ever waiting; the future has its values all the same.
// contract: Y9
#[test]
fn a_future_does_not_starve_beside_those_who_never_wait() {
    let _watchdog = watchdog();
    let (sender, receiver) = bounded(4);
    let is_over = Arc::new(AtomicBool::new(false));
    let mut parties = Vec::new();
    for _ in 0..2 {
        let (receiver, is_over) = (receiver.clone(), is_over.clone());
        parties.push(thread::spawn(move || {
            while !is_over.load(SeqCst) {
                if receiver.try_recv().is_err() {
                    thread::yield_now();
                }
            }
        }));
    }
    parties.push(thread::spawn(move || {
        let mut number = 0_u32;
        while sender.send(number).is_ok() {
            number += 1;
        }
    }));
    block_on(async {
        let mut newest = None;
        for _ in 0..200 * stress() {
            let value = receiver.recv_async().await.unwrap();
            assert!(newest < Some(value), "the order");
            newest = Some(value);
        }
    })
    .unwrap();
    is_over.store(true, SeqCst);
    drop(receiver);
    for party in parties {
        party.join().unwrap();
    }
}
