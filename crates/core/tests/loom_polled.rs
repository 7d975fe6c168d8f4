//! Polled parties under loom: a future that is polled, given another waker or dropped while another thread hands something over.
//!
//! A wake-up that is lost ends in a deadlock, which loom reports; a seat that is touched after it was freed, or without its
//! lock, a failure of loom's cells; a value or a signal that is lost or doubled, a failed count.
#![cfg(loom)]

mod loom_party;

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Poll, Waker};

use loom::thread;
use loom_party::Bell;
use sinew_core::sync::{
    Broadcast, Channel, Missing, Mode, OVERTAKEN_MAX, RawEvent, RawWatch, RecvParty, TryRecv,
};
use sinew_core::wait::{Polled, Reason};

fn party<T>() -> Polled<T> {
    Polled::new(Waker::wake)
}

fn receiver() -> RecvParty {
    RecvParty::new(Waker::wake)
}

/// Polls until a value comes, waiting for the waker in between.
fn receive(channel: &Channel<u32>, party: &mut RecvParty) -> Result<u32, Reason> {
    let bell = Bell::new();
    let waker = Waker::from(bell.clone());
    loop {
        match channel.poll_recv(party, &waker) {
            Poll::Ready(received) => return received,
            Poll::Pending => bell.wait(),
        }
    }
}

#[test]
fn a_future_gets_the_value_of_another_thread() {
    loom::model(|| {
        let channel = loom::sync::Arc::new(Channel::rendezvous());
        let sending = {
            let channel = channel.clone();
            thread::spawn(move || {
                let mut party = party();
                let bell = Bell::new();
                let waker = Waker::from(bell.clone());
                let mut value = Some(1);
                while channel
                    .poll_send(&mut party, &mut value, &waker)
                    .is_pending()
                {
                    bell.wait();
                }
            })
        };
        assert_eq!(receive(&channel, &mut receiver()), Ok(1));
        sending.join().unwrap();
    });
}

#[test]
fn a_closed_channel_wakes_its_futures() {
    loom::model(|| {
        let channel = loom::sync::Arc::new(Channel::bounded(1));
        let closing = {
            let channel = channel.clone();
            thread::spawn(move || channel.close())
        };
        assert_eq!(receive(&channel, &mut receiver()), Err(Reason::Closed));
        assert!(closing.join().unwrap());
    });
}

#[test]
fn a_value_handed_to_a_future_that_is_dropped_stays_in_the_channel() {
    loom::model(|| {
        let channel = loom::sync::Arc::new(Channel::bounded(1));
        let mut gone = receiver();
        let bell = Bell::new();
        let waker = Waker::from(bell.clone());
        assert!(channel.poll_recv(&mut gone, &waker).is_pending());
        let sending = {
            let channel = channel.clone();
            thread::spawn(move || channel.try_send(1).unwrap())
        };
        channel.leave_recv(&mut gone);
        drop(gone);
        assert_eq!(receive(&channel, &mut receiver()), Ok(1));
        sending.join().unwrap();
        assert!(channel.try_recv().is_err());
    });
}

/// Sends by a future until it is ready, waiting for the waker in between.
fn send(channel: &Channel<u32>, value: u32) -> Result<(), Reason> {
    let mut party = party();
    let bell = Bell::new();
    let waker = Waker::from(bell.clone());
    let mut value = Some(value);
    loop {
        match channel.poll_send(&mut party, &mut value, &waker) {
            Poll::Ready(sent) => return sent.map_err(|failed| failed.reason),
            Poll::Pending => bell.wait(),
        }
    }
}

/// At a rendezvous the sender goes on when the second future has the value, not when the first was told of it.
#[test]
fn a_future_that_is_dropped_tells_the_next() {
    loom::model(|| {
        let channel = loom::sync::Arc::new(Channel::rendezvous());
        let (mut gone, mut next) = (receiver(), receiver());
        let bell = Bell::new();
        let waker = Waker::from(bell.clone());
        assert!(channel.poll_recv(&mut gone, &waker).is_pending());
        assert!(channel.poll_recv(&mut next, &waker).is_pending());
        let has_taken = loom::sync::Arc::new(AtomicBool::new(false));
        let sending = {
            let channel = channel.clone();
            let has_taken = has_taken.clone();
            thread::spawn(move || {
                assert_eq!(send(&channel, 1), Ok(()));
                assert!(has_taken.load(SeqCst));
            })
        };
        channel.leave_recv(&mut gone);
        has_taken.store(true, SeqCst);
        assert_eq!(receive(&channel, &mut next), Ok(1));
        sending.join().unwrap();
    });
}

/// Nobody takes the value: its sender is told that it was not taken.
#[test]
fn a_value_that_no_future_takes_stays_with_its_sender() {
    loom::model(|| {
        let channel = loom::sync::Arc::new(Channel::rendezvous());
        let mut gone = receiver();
        let bell = Bell::new();
        let waker = Waker::from(bell.clone());
        assert!(channel.poll_recv(&mut gone, &waker).is_pending());
        let sending = {
            let channel = channel.clone();
            thread::spawn(move || send(&channel, 1))
        };
        channel.leave_recv(&mut gone);
        channel.close();
        assert_eq!(sending.join().unwrap(), Err(Reason::Closed));
    });
}

/// A thread waits behind a future that is told and dropped, while another thread closes the channel: whoever is told that
/// it is closed and empty was told the truth.
#[test]
fn a_value_meant_for_a_future_is_received_after_the_close() {
    loom::model(|| {
        let channel = loom::sync::Arc::new(Channel::bounded(1));
        let (mut gone, mut next) = (receiver(), receiver());
        let bell = Bell::new();
        let waker = Waker::from(bell.clone());
        assert!(channel.poll_recv(&mut gone, &waker).is_pending());
        assert!(channel.poll_recv(&mut next, &waker).is_pending());
        let sending = {
            let channel = channel.clone();
            thread::spawn(move || {
                channel.try_send(1).unwrap();
                channel.close();
            })
        };
        channel.leave_recv(&mut gone);
        assert_eq!(receive(&channel, &mut next), Ok(1));
        sending.join().unwrap();
        assert_eq!(channel.try_recv(), Err(TryRecv::Closed));
    });
}

/// A future is told of a value, and another party takes it: the future waits on.
#[test]
fn a_future_that_was_overtaken_waits_on() {
    loom::model(|| {
        let channel = loom::sync::Arc::new(Channel::bounded(2));
        let sending = {
            let channel = channel.clone();
            thread::spawn(move || channel.try_send(1).unwrap())
        };
        let stealing = {
            let channel = channel.clone();
            thread::spawn(move || {
                if channel.try_recv().is_ok() {
                    channel.try_send(2).unwrap();
                }
            })
        };
        assert!(receive(&channel, &mut receiver()).is_ok());
        sending.join().unwrap();
        stealing.join().unwrap();
        assert!(channel.is_empty());
    });
}

/// A party that was overtaken as often as may be, and waits.
fn starving(channel: &Channel<u32>) -> RecvParty {
    let mut party = receiver();
    let waker = Waker::from(Bell::new());
    assert!(channel.poll_recv(&mut party, &waker).is_pending());
    for _ in 0..OVERTAKEN_MAX {
        channel.try_send(0).unwrap();
        assert_eq!(channel.try_recv(), Ok(0));
        assert!(channel.poll_recv(&mut party, &waker).is_pending());
    }
    party
}

/// Who takes without waiting does not get the value of one that was overtaken too often.
#[test]
fn a_starving_future_gets_the_next_value() {
    loom::model(|| {
        let channel = loom::sync::Arc::new(Channel::bounded(1));
        let mut party = starving(&channel);
        let sending = {
            let channel = channel.clone();
            thread::spawn(move || channel.try_send(1).unwrap())
        };
        let taking = {
            let channel = channel.clone();
            thread::spawn(move || channel.try_recv())
        };
        assert_eq!(receive(&channel, &mut party), Ok(1));
        sending.join().unwrap();
        assert_eq!(taking.join().unwrap(), Err(TryRecv::Empty));
        channel.try_send(2).unwrap();
        assert_eq!(channel.try_recv(), Ok(2), "nothing is reserved any more");
    });
}

/// The same where the value is with a sender that waits.
#[test]
fn a_starving_future_gets_the_value_of_a_sender() {
    loom::model(|| {
        let channel = loom::sync::Arc::new(Channel::bounded(1));
        let mut party = starving(&channel);
        let sending = [1, 2].map(|value| {
            let channel = channel.clone();
            thread::spawn(move || send(&channel, value))
        });
        let got = receive(&channel, &mut party).unwrap();
        assert_eq!(receive(&channel, &mut receiver()), Ok(3 - got));
        for sending in sending {
            assert_eq!(sending.join().unwrap(), Ok(()));
        }
        assert_eq!(channel.try_recv(), Err(TryRecv::Empty));
    });
}

/// What was reserved for one that goes is there for the next.
#[test]
fn a_starving_future_that_is_dropped_tells_the_next() {
    loom::model(|| {
        let channel = loom::sync::Arc::new(Channel::bounded(1));
        let (mut gone, mut next) = (starving(&channel), receiver());
        let bell = Bell::new();
        let waker = Waker::from(bell.clone());
        assert!(channel.poll_recv(&mut next, &waker).is_pending());
        let sending = {
            let channel = channel.clone();
            thread::spawn(move || channel.try_send(1).unwrap())
        };
        channel.leave_recv(&mut gone);
        assert_eq!(receive(&channel, &mut next), Ok(1));
        sending.join().unwrap();
        channel.try_send(2).unwrap();
        assert_eq!(channel.try_recv(), Ok(2), "nothing is reserved any more");
    });
}

/// It may be told of a value or of the close; nothing is reserved after either.
#[test]
fn nothing_is_reserved_in_a_closed_channel() {
    loom::model(|| {
        let channel = loom::sync::Arc::new(Channel::bounded(1));
        let mut gone = starving(&channel);
        let sending = {
            let channel = channel.clone();
            thread::spawn(move || {
                channel.try_send(1).unwrap();
                channel.close();
                channel.try_recv()
            })
        };
        channel.leave_recv(&mut gone);
        assert_eq!(sending.join().unwrap(), Ok(1));
        assert_eq!(channel.try_recv(), Err(TryRecv::Closed));
    });
}

#[test]
fn a_value_whose_sending_future_is_dropped_is_on_one_side() {
    loom::model(|| {
        let channel = loom::sync::Arc::new(Channel::rendezvous());
        let mut party = party();
        let bell = Bell::new();
        let waker = Waker::from(bell.clone());
        let mut value = Some(1);
        assert!(
            channel
                .poll_send(&mut party, &mut value, &waker)
                .is_pending()
        );
        let receiving = {
            let channel = channel.clone();
            thread::spawn(move || channel.try_recv().ok())
        };
        let back = channel.leave_send(&mut party);
        drop(party);
        let received = receiving.join().unwrap();
        assert_eq!(received.or(back), Some(1));
        assert!(received.is_none() || back.is_none());
    });
}

#[test]
fn a_signal_meant_for_a_future_that_is_dropped_goes_to_the_next() {
    loom::model(|| {
        let event = loom::sync::Arc::new(RawEvent::new(Mode::Auto));
        let (mut gone, mut next) = (party(), party());
        let bell = Bell::new();
        let waker = Waker::from(bell.clone());
        assert!(event.poll_wait(&mut gone, &waker).is_pending());
        assert!(event.poll_wait(&mut next, &waker).is_pending());
        let setting = {
            let event = event.clone();
            thread::spawn(move || event.set())
        };
        event.leave_wait(&mut gone);
        drop(gone);
        while event.poll_wait(&mut next, &waker).is_pending() {
            bell.wait();
        }
        setting.join().unwrap();
        assert!(!event.is_set());
    });
}

/// Another waker at each poll: it is the last one that is called.
#[test]
fn the_waker_of_the_last_poll_is_called() {
    loom::model(|| {
        let event = loom::sync::Arc::new(RawEvent::new(Mode::Manual));
        let mut party = party();
        let (first, second) = (Bell::new(), Bell::new());
        assert!(
            event
                .poll_wait(&mut party, &Waker::from(first))
                .is_pending()
        );
        let setting = {
            let event = event.clone();
            thread::spawn(move || event.set())
        };
        let waker = Waker::from(second.clone());
        while event.poll_wait(&mut party, &waker).is_pending() {
            second.wait();
        }
        setting.join().unwrap();
    });
}

/// The seat of the first wait is used for the second.
#[test]
fn a_party_waits_again() {
    loom::model(|| {
        let event = loom::sync::Arc::new(RawEvent::new(Mode::Auto));
        let setting = {
            let event = event.clone();
            thread::spawn(move || event.set())
        };
        let mut party = party();
        let bell = Bell::new();
        let waker = Waker::from(bell.clone());
        while event.poll_wait(&mut party, &waker).is_pending() {
            bell.wait();
        }
        setting.join().unwrap();
        assert!(event.poll_wait(&mut party, &waker).is_pending());
        event.set();
        assert!(event.poll_wait(&mut party, &waker).is_ready());
    });
}

/// Receives all of a broadcast; the future of the first value is dropped once and made anew.
#[test]
fn a_future_misses_nothing_of_a_broadcast() {
    loom::model(|| {
        let news = loom::sync::Arc::new(Broadcast::new(2));
        let sending = {
            let news = news.clone();
            thread::spawn(move || {
                news.send(1).unwrap();
                news.close();
            })
        };
        let position = Cell::new(0);
        let bell = Bell::new();
        let waker = Waker::from(bell.clone());
        let mut got = Vec::new();
        let mut party = party();
        let first = news.poll_recv(&position, &mut party, &waker);
        if let Poll::Ready(value) = first {
            got.push(*value.unwrap());
        } else {
            news.leave_recv(&mut party);
        }
        loop {
            match news.poll_recv(&position, &mut party, &waker) {
                Poll::Pending => bell.wait(),
                Poll::Ready(Ok(value)) => got.push(*value),
                Poll::Ready(Err(missing)) => {
                    assert_eq!(missing, Missing::Closed);
                    break;
                }
            }
        }
        sending.join().unwrap();
        assert_eq!(got, [1]);
    });
}

#[test]
fn a_future_sees_the_last_value_of_a_watch() {
    loom::model(|| {
        let watch = loom::sync::Arc::new(RawWatch::new(0));
        let sending = {
            let watch = watch.clone();
            thread::spawn(move || {
                watch.send(1).unwrap();
                watch.close();
            })
        };
        let seen = Cell::new(0);
        let bell = Bell::new();
        let waker = Waker::from(bell.clone());
        let mut party = party();
        loop {
            match watch.poll_changed(&seen, &mut party, &waker) {
                Poll::Pending => bell.wait(),
                Poll::Ready(Ok(())) => assert_eq!(seen.get(), 1),
                Poll::Ready(Err(reason)) => {
                    assert_eq!((reason, seen.get()), (Reason::Closed, 1));
                    break;
                }
            }
        }
        sending.join().unwrap();
    });
}
