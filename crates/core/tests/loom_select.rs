//! A wait at several primitives under loom: exactly one arm takes effect on each side, whoever comes in between.
//!
//! A wake-up that is lost ends in a deadlock; a value that is lost or on two sides fails a count; a node that is reached
//! without its lock fails loom's cells.
#![cfg(loom)]
#![expect(unsafe_code, reason = "waits at several primitives")]

mod loom_party;

use std::cell::Cell;
use std::task::{Poll, Waker};

use loom::sync::Arc;
use loom::thread;
use loom_party::{Bell, Party, Shared, Value, check, number, shared, value};
use sinew_core::sync::{
    Chained, Channel, Mode, OVERTAKEN_MAX, RawEvent, RawPromise, RecvArm, RecvParty, SendArm,
};
use sinew_core::wait::{Arm, Kind, Reason, Record, Turn, wait_any};

const RECORD: Record = Record {
    kind: Kind::Select,
    object: 0,
    owner: 0,
};

/// What a select has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Did {
    Sent(u32),
    Got(u32),
    Closed,
    GaveUp,
}

/// Waits for arms, in the order of the given turn.
fn wait(arms: &[&dyn Arm], first: usize, rival: Option<Reason>) -> Option<usize> {
    // SAFETY: each test passes different arms.
    match unsafe { wait_any(arms, Turn::from_arm(first), &*Party::new(rival), RECORD) } {
        Ok(chosen) => Some(chosen),
        Err(reason) => {
            assert_eq!(Some(reason), rival);
            None
        }
    }
}

type Two = Shared<[Channel<Value>; 2]>;

/// Sends `number` to one of the channels or receives from the other, whichever comes first.
fn exchange(two: &Two, to: usize, first: usize, amount: u32, rival: Option<Reason>) -> Did {
    exchange_at(&two.0[to], &two.0[1 - to], first, amount, rival)
}

fn exchange_at(
    to: &Channel<Value>,
    from: &Channel<Value>,
    first: usize,
    amount: u32,
    rival: Option<Reason>,
) -> Did {
    let home = Cell::new(Some(value(amount)));
    let send = SendArm::new(to, &home);
    let recv = RecvArm::new(from);
    let did = match wait(&[&send, &recv], first, rival) {
        Some(0) => match send.take().unwrap() {
            Ok(()) => Did::Sent(amount),
            Err(reason) => {
                assert_eq!(reason, Reason::Closed);
                Did::Closed
            }
        },
        Some(_) => match recv.take().unwrap() {
            Ok(value) => Did::Got(number(value)),
            Err(reason) => {
                assert_eq!(reason, Reason::Closed);
                Did::Closed
            }
        },
        None => Did::GaveUp,
    };
    assert!(
        send.take().is_none() && recv.take().is_none(),
        "one arm took effect"
    );
    let left = home.take();
    assert_eq!(
        left.is_some(),
        !matches!(did, Did::Sent(_)),
        "sent, or still at home"
    );
    left.map(number);
    did
}

fn two(capacity: usize) -> Arc<Two> {
    shared([Channel::bounded(capacity), Channel::bounded(capacity)])
}

/// Two selects over the same two rendezvous, each sending where the other receives.
fn against_each_other(preemptions: usize, firsts: [usize; 2], rivals: [Option<Reason>; 2]) {
    check(preemptions, move || {
        let two = two(0);
        let other = {
            let two = two.clone();
            thread::spawn(move || exchange(&two, 1, firsts[1], 20, rivals[1]))
        };
        let mine = exchange(&two, 0, firsts[0], 10, rivals[0]);
        if mine == Did::GaveUp {
            // The other may wait for one that has gone.
            two.0.iter().for_each(|channel| {
                channel.close();
            });
        }
        let theirs = other.join().unwrap();
        match (mine, theirs) {
            (Did::Sent(10), Did::Got(10)) | (Did::Got(20), Did::Sent(20)) => {}
            (Did::GaveUp, Did::Closed | Did::GaveUp) => {}
            (mine, theirs) => panic!("{mine:?} and {theirs:?}"),
        }
    });
}

// contract: Y10
#[test]
fn two_selects_against_each_other() {
    against_each_other(5, [0, 0], [None, None]);
}

#[test]
fn two_selects_that_look_the_same_way() {
    against_each_other(4, [0, 1], [None, None]);
}

#[test]
fn two_selects_of_which_one_gives_up() {
    against_each_other(2, [0, 0], [Some(Reason::Timeout), None]);
}

/// Both may send and receive at the same rendezvous.
fn at_one_channel(rivals: [Option<Reason>; 2]) {
    check(3, move || {
        let one = shared(Channel::<Value>::rendezvous());
        let other = {
            let one = one.clone();
            thread::spawn(move || exchange_at(&one.0, &one.0, 0, 20, rivals[1]))
        };
        let mine = exchange_at(&one.0, &one.0, 0, 10, rivals[0]);
        if mine == Did::GaveUp {
            one.0.close();
        }
        match (mine, other.join().unwrap()) {
            (Did::Sent(10), Did::Got(10)) | (Did::Got(20), Did::Sent(20)) => {}
            (Did::GaveUp, Did::Closed) => {}
            (mine, theirs) => panic!("{mine:?} and {theirs:?}"),
        }
    });
}

#[test]
fn two_selects_at_one_channel() {
    at_one_channel([None, None]);
}

#[test]
fn two_selects_at_one_channel_of_which_one_gives_up() {
    at_one_channel([Some(Reason::Cancelled), None]);
}

/// One select over two channels, into one of which somebody sends and the other of which somebody closes.
fn against_a_send_and_a_close(capacity: usize, rival: Option<Reason>) {
    check(2, move || {
        let two = two(capacity);
        let sender = {
            let two = two.clone();
            thread::spawn(move || match two.0[0].send(value(7), &*Party::new(None)) {
                Ok(()) => true,
                Err(failed) => {
                    assert_eq!((failed.reason, number(failed.value)), (Reason::Closed, 7));
                    false
                }
            })
        };
        let closer = {
            let two = two.clone();
            thread::spawn(move || {
                two.0[1].close();
            })
        };
        let arms = [RecvArm::new(&two.0[0]), RecvArm::new(&two.0[1])];
        let got = match wait(&[&arms[0], &arms[1]], 0, rival) {
            Some(0) => {
                assert_eq!(number(arms[0].take().unwrap().unwrap()), 7);
                true
            }
            Some(_) => {
                assert_eq!(arms[1].take().unwrap().unwrap_err(), Reason::Closed);
                false
            }
            None => false,
        };
        assert!(arms.iter().all(|arm| arm.take().is_none()));
        two.0[0].close();
        let sent = sender.join().unwrap();
        closer.join().unwrap();
        let left = two.0[0].try_recv().is_ok();
        assert_eq!(sent, got || left, "lost, or on two sides");
    });
}

// contract: Y10
#[test]
fn a_select_against_a_send_and_a_close() {
    against_a_send_and_a_close(0, None);
}

#[test]
fn a_select_against_a_send_a_close_and_a_timeout() {
    against_a_send_and_a_close(0, Some(Reason::Timeout));
}

#[test]
fn a_select_on_buffers_against_a_send_and_a_close() {
    against_a_send_and_a_close(1, None);
}

/// Two wakers at two primitives claim the same waiter: what the loser brings is not taken.
fn against_two_signals(rival: Option<Reason>) {
    check(3, move || {
        let events = Arc::new([RawEvent::new(Mode::Auto), RawEvent::new(Mode::Auto)]);
        let setters: Vec<_> = (0..2)
            .map(|index| {
                let events = events.clone();
                thread::spawn(move || events[index].set())
            })
            .collect();
        let arms = [events[0].arm(), events[1].arm()];
        let chosen = wait(&[&arms[0], &arms[1]], 0, rival);
        for setter in setters {
            setter.join().unwrap();
        }
        for index in 0..2 {
            let is_chosen = chosen == Some(index);
            assert_eq!(arms[index].take().is_some(), is_chosen);
            assert_eq!(
                events[index].is_set(),
                !is_chosen,
                "a signal is in one place"
            );
        }
    });
}

#[test]
fn a_select_against_two_signals() {
    against_two_signals(None);
}

#[test]
fn a_select_against_two_signals_and_a_cancel() {
    against_two_signals(Some(Reason::Cancelled));
}

/// Nobody leaves one here.
struct NoCallback(Option<Box<NoCallback>>);

impl Chained for Box<NoCallback> {
    fn next(&mut self) -> &mut Option<Self> {
        &mut self.0
    }
}

/// A promise that is filled and an event that is set, both beside the select.
fn against_a_completion_and_a_signal(rival: Option<Reason>) {
    check(3, move || {
        let promise = Arc::new(RawPromise::<Box<u32>, Box<NoCallback>>::new());
        let event = Arc::new(RawEvent::new(Mode::Auto));
        let completer = {
            let promise = promise.clone();
            thread::spawn(move || {
                let callbacks = promise.complete(Box::new(7), 1);
                assert_eq!(callbacks.unwrap().count(), 0);
            })
        };
        let setter = {
            let event = event.clone();
            thread::spawn(move || event.set())
        };
        let (filled, signal) = (promise.arm(), event.arm());
        match wait(&[&filled, &signal], 0, rival) {
            Some(0) => {
                assert_eq!(filled.take(), Some(Reason::Woken));
                assert_eq!(promise.get().map(|value| **value), Some(7));
            }
            Some(_) => assert_eq!(signal.take(), Some(Reason::Woken)),
            None => assert!(rival.is_some()),
        }
        assert!(filled.take().is_none() && signal.take().is_none());
        completer.join().unwrap();
        setter.join().unwrap();
    });
}

#[test]
fn a_select_against_a_completion_and_a_signal() {
    against_a_completion_and_a_signal(None);
}

#[test]
fn a_select_against_a_completion_a_signal_and_a_timeout() {
    against_a_completion_and_a_signal(Some(Reason::Timeout));
}

/// The select goes round, so what one round leaves behind would be found by the next.
#[test]
fn a_select_in_a_loop() {
    check(2, || {
        let two = two(0);
        let sender = {
            let two = two.clone();
            thread::spawn(move || {
                let party = Party::new(None);
                for (index, amount) in [(0, 1), (1, 2)] {
                    assert!(two.0[index].send(value(amount), &*party).is_ok());
                }
            })
        };
        let arms = [RecvArm::new(&two.0[0]), RecvArm::new(&two.0[1])];
        for expected in [0, 1] {
            let chosen = wait(&[&arms[0], &arms[1]], 0, None).unwrap();
            assert_eq!(chosen, expected);
            let got = number(arms[chosen].take().unwrap().unwrap());
            assert_eq!(got as usize, chosen + 1);
        }
        sender.join().unwrap();
    });
}

/// Receives by a future, waiting for its waker between the polls.
fn receive(channel: &Channel<Value>) -> Result<u32, Reason> {
    let mut party = RecvParty::new(Waker::wake);
    let bell = Bell::new();
    let waker = Waker::from(bell.clone());
    loop {
        match channel.poll_recv(&mut party, &waker) {
            Poll::Ready(received) => return received.map(number),
            Poll::Pending => bell.wait(),
        }
    }
}

/// Receives by a future that is polled once.
fn receive_hastily(channel: &Channel<Value>) -> Option<u32> {
    let mut party = RecvParty::new(Waker::wake);
    let received = channel.poll_recv(&mut party, &Waker::from(Bell::new()));
    channel.leave_recv(&mut party);
    match received {
        Poll::Ready(received) => Some(number(received.unwrap())),
        Poll::Pending => None,
    }
}

#[test]
fn a_select_sends_to_a_future() {
    check(3, || {
        let two = two(0);
        let receiving = {
            let two = two.clone();
            thread::spawn(move || receive(&two.0[0]))
        };
        assert_eq!(exchange(&two, 0, 0, 1, None), Did::Sent(1));
        assert_eq!(receiving.join().unwrap(), Ok(1));
    });
}

/// The future looks once: either it has the value and the select has sent it, or the select gives up and still has it.
#[test]
fn a_select_that_gives_up_against_a_future_that_looks_once() {
    check(3, || {
        let two = two(0);
        let receiving = {
            let two = two.clone();
            thread::spawn(move || receive_hastily(&two.0[0]))
        };
        let did = exchange(&two, 0, 0, 1, Some(Reason::Timeout));
        let expected = receiving.join().unwrap().map_or(Did::GaveUp, Did::Sent);
        assert_eq!(did, expected);
    });
}

/// A select is told of values beside one that is kept for a future, and others take them: it is overtaken a bounded number of times, then
/// one is reserved for it. Every value is received once, and nothing stays reserved.
#[test]
fn a_select_that_is_told_is_overtaken_and_has_its_turn() {
    check(2, || {
        let two = two(3);
        let channel = &two.0[0];
        let mut kept = RecvParty::new(Waker::wake);
        let waker = Waker::from(Bell::new());
        assert!(channel.poll_recv(&mut kept, &waker).is_pending());
        for _ in 0..OVERTAKEN_MAX {
            assert!(channel.try_send(value(0)).is_ok());
            assert_eq!(channel.try_recv().map(number), Ok(0));
            assert!(channel.poll_recv(&mut kept, &waker).is_pending());
        }
        assert!(channel.try_send(value(1)).is_ok());
        let selecting = {
            let two = two.clone();
            thread::spawn(move || {
                let arms = [RecvArm::new(&two.0[0]), RecvArm::new(&two.0[1])];
                assert_eq!(wait(&[&arms[0], &arms[1]], 0, None), Some(0));
                number(arms[0].take().unwrap().unwrap())
            })
        };
        let mut got = Vec::new();
        for amount in [2, 3] {
            assert!(channel.try_send(value(amount)).is_ok());
            got.extend(channel.try_recv().map(number));
        }
        channel.leave_recv(&mut kept);
        got.push(selecting.join().unwrap());
        while let Ok(value) = channel.try_recv() {
            got.push(number(value));
        }
        got.sort_unstable();
        assert_eq!(got, [1, 2, 3]);
    });
}

/// A select waits behind a future that is dropped, perhaps after it was told of the value.
#[test]
fn a_select_receives_what_a_dropped_future_was_told_of() {
    for capacity in [0, 1] {
        check(2, move || {
            let two = two(capacity);
            let mut gone = RecvParty::new(Waker::wake);
            let waker = Waker::from(Bell::new());
            assert!(two.0[0].poll_recv(&mut gone, &waker).is_pending());
            let selecting = {
                let two = two.clone();
                thread::spawn(move || {
                    let arms = [RecvArm::new(&two.0[0]), RecvArm::new(&two.0[1])];
                    assert_eq!(wait(&[&arms[0], &arms[1]], 0, None), Some(0));
                    number(arms[0].take().unwrap().unwrap())
                })
            };
            let sending = {
                let two = two.clone();
                thread::spawn(move || two.0[0].send(value(1), &*Party::new(None)).is_ok())
            };
            two.0[0].leave_recv(&mut gone);
            assert_eq!(selecting.join().unwrap(), 1);
            assert!(sending.join().unwrap());
        });
    }
}

/// A thread that waits behind a future is told of its value in its place, and finds it taken.
#[test]
fn a_thread_that_was_told_in_vain_waits_on() {
    check(2, || {
        let two = two(1);
        let mut gone = RecvParty::new(Waker::wake);
        let waker = Waker::from(Bell::new());
        assert!(two.0[0].poll_recv(&mut gone, &waker).is_pending());
        let receiving = {
            let two = two.clone();
            thread::spawn(move || two.0[0].recv(&*Party::new(None)).map(number))
        };
        assert!(two.0[0].try_send(value(1)).is_ok());
        two.0[0].leave_recv(&mut gone);
        if let Ok(stolen) = two.0[0].try_recv() {
            assert_eq!(number(stolen), 1);
            assert!(two.0[0].try_send(value(1)).is_ok());
        }
        assert_eq!(receiving.join().unwrap(), Ok(1));
    });
}
