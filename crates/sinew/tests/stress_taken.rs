//! "Sent" is the truth: at a rendezvous, each value whose sender was told so was received, by parties that give up at
//! random and go away without a look at what is left.

mod chance_rig;
mod io_rig;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use chance_rig::Chance;
use io_rig::{stress, watchdog};
use sinew::sync::channel::{Receiver, Sender, bounded, rendezvous};
use sinew::sync::select;
use sinew::{WaitError, block_on, run, spawn_local, yield_now};

/// A waker that does nothing.
struct Deaf;

impl Wake for Deaf {
    fn wake(self: Arc<Self>) {}
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    let waker = Waker::from(Arc::new(Deaf));
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

/// What all parties of a kind have done: how often, and the sum of the values.
#[derive(Default)]
struct Tally {
    count: AtomicU64,
    sum: AtomicU64,
}

impl Tally {
    fn note(&self, value: u64) {
        self.count.fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    fn seen(&self) -> (u64, u64) {
        (self.count.load(Relaxed), self.sum.load(Relaxed))
    }
}

/// Sends until the channel is closed, in all forms.
fn send_all(sender: &Sender<u64>, chance: &mut Chance, sent: &Tally) {
    for value in 1.. {
        let result = match chance.below(6) {
            0 => sender.send_timeout(value, chance.moment()),
            1 => match sender.try_send(value) {
                Ok(()) => Ok(()),
                Err(error) if error.is_full() => continue,
                Err(_) => return,
            },
            2 => block_on(sender.send_async(value)).unwrap(),
            3 => {
                let mut sending = sender.send_async(value);
                let polled = poll_once(&mut sending);
                let _ = yield_now();
                match polled {
                    Poll::Ready(result) => result,
                    // Given up: it was sent if it does not come back.
                    Poll::Pending => {
                        if sending.give_up().is_none() {
                            sent.note(value);
                        }
                        continue;
                    }
                }
            }
            4 => {
                let mut home = Some(value);
                let arm = sender.send_arm(&mut home);
                let mut selector = select::Selector::new();
                selector.add(&arm);
                let waited = selector.wait_timeout(chance.moment());
                drop(selector);
                match (waited, arm.take()) {
                    (Ok(_), Some(Ok(()))) => sent.note(value),
                    (Ok(_), _) => return,
                    (Err(_), taken) => assert!(taken.is_none()),
                }
                continue;
            }
            _ => sender.send(value),
        };
        match result {
            Ok(()) => sent.note(value),
            Err(error) if error.reason == WaitError::Closed => return,
            Err(error) => assert_eq!(error.reason, WaitError::Timeout),
        }
    }
}

/// Receives for some rounds in all forms, and goes away.
fn receive_some(receiver: &Receiver<u64>, rounds: u64, chance: &mut Chance, received: &Tally) {
    for _ in 0..rounds {
        let result = match chance.below(6) {
            0 => receiver.recv_timeout(chance.moment()).ok(),
            1 => receiver.try_recv().ok(),
            2 => sinew::future::block_on_timeout(receiver.recv_async(), chance.moment())
                .ok()
                .and_then(Result::ok),
            3 => {
                // Polled, perhaps woken, and dropped.
                let mut receiving = receiver.recv_async();
                let polled = poll_once(&mut receiving);
                for _ in 0..chance.below(3) {
                    let _ = yield_now();
                }
                match polled {
                    Poll::Ready(result) => result.ok(),
                    Poll::Pending if chance.below(2) == 0 => None,
                    Poll::Pending => match poll_once(&mut receiving) {
                        Poll::Ready(result) => result.ok(),
                        Poll::Pending => None,
                    },
                }
            }
            4 => {
                let arms = (receiver.recv_arm(), select::future(receiver.recv_async()));
                let mut selector = select::Selector::new();
                selector.add(&arms.0);
                selector.add(&arms.1);
                let waited = selector.wait_timeout(chance.moment());
                drop(selector);
                let got = (arms.0.take(), arms.1.take());
                assert!(got.0.is_none() || got.1.is_none());
                assert_eq!(waited.is_ok(), got.0.is_some() || got.1.is_some());
                got.0.and_then(Result::ok).or(got.1.and_then(Result::ok))
            }
            _ => receiver.recv_timeout(Duration::from_millis(1)).ok(),
        };
        if let Some(value) = result {
            received.note(value);
        }
    }
}

/// Threads, each with or without a scheduler, at a rendezvous. The last receiver that goes away closes it.
fn meet(rounds: u64, chance: &mut Chance) -> (Tally, Tally) {
    let (sender, receiver) = rendezvous();
    let (sent, received) = (Tally::default(), Tally::default());
    thread::scope(|scope| {
        for is_in_coroutine in [false, true] {
            let (mut one, mut other) = (chance.fork(), chance.fork());
            let (sender, receiver) = (sender.clone(), receiver.clone());
            let (sent, received) = (&sent, &received);
            scope.spawn(move || {
                let mut send = move || send_all(&sender, &mut one, sent);
                if is_in_coroutine { run(send) } else { send() }
            });
            scope.spawn(move || {
                let mut receive = move || receive_some(&receiver, rounds, &mut other, received);
                if is_in_coroutine {
                    run(receive)
                } else {
                    receive()
                }
            });
        }
        drop((sender, receiver));
    });
    (sent, received)
}

/// A value that was taken is with a receiver, not on its way to a future that was dropped.
// contract: Y9, Y10
#[test]
fn what_was_sent_was_received() {
    let _watchdog = watchdog();
    let mut chance = Chance::new();
    for _ in 0..8 * stress() {
        let (sent, received) = meet(300, &mut chance);
        assert_eq!(sent.seen(), received.seen());
        assert!(sent.seen().0 > 0);
    }
}

/// With a buffer what was sent is received or left in there.
// contract: Y9, Y10
#[test]
fn what_was_sent_is_received_or_left() {
    let _watchdog = watchdog();
    let mut chance = Chance::new();
    for round in 0..4 * stress() {
        let (sender, receiver) = bounded(round % 4 + 1);
        let (sent, received) = (Tally::default(), Tally::default());
        thread::scope(|scope| {
            let mut one = chance.fork();
            let sent = &sent;
            let sending = scope.spawn(move || run(move || send_all(&sender, &mut one, sent)));
            for _ in 0..2 {
                let mut one = chance.fork();
                let (receiver, received) = (receiver.clone(), &received);
                scope.spawn(move || run(move || receive_some(&receiver, 300, &mut one, received)));
            }
            receive_some(&receiver, 300, &mut chance, &received);
            receiver.close();
            sending.join().unwrap();
        });
        receiver.try_iter().for_each(|value| received.note(value));
        assert_eq!(sent.seen(), received.seen());
    }
}

/// Coroutines of one scheduler only, where every step is where the seed puts it.
// contract: Y9, Y10
#[test]
fn what_was_sent_was_received_among_coroutines() {
    let _watchdog = watchdog();
    let mut chance = Chance::new();
    for _ in 0..20 * stress() {
        let (sender, receiver) = rendezvous();
        let tallies = Arc::new((Tally::default(), Tally::default()));
        let mut chances: Vec<_> = (0..4).map(|_| chance.fork()).collect();
        run({
            let tallies = tallies.clone();
            move || {
                let receivers: Vec<_> = chances
                    .drain(..2)
                    .map(|mut chance| {
                        let (receiver, tallies) = (receiver.clone(), tallies.clone());
                        spawn_local(move || receive_some(&receiver, 100, &mut chance, &tallies.1))
                    })
                    .collect();
                drop(receiver);
                let senders: Vec<_> = chances
                    .drain(..)
                    .map(|mut chance| {
                        let (sender, tallies) = (sender.clone(), tallies.clone());
                        spawn_local(move || send_all(&sender, &mut chance, &tallies.0))
                    })
                    .collect();
                drop(sender);
                for party in receivers.into_iter().chain(senders) {
                    party.join().unwrap();
                }
            }
        });
        assert_eq!(tallies.0.seen(), tallies.1.seen());
    }
}
