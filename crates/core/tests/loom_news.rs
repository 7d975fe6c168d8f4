//! The broadcast and the watch under loom: nobody misses what comes while it goes to sleep, and every value is dropped once.
#![cfg(loom)]
#![expect(
    unsafe_code,
    reason = "waits at several primitives, and reads loom's cells"
)]

mod loom_party;

use std::cell::Cell;

use loom::sync::Arc as LoomArc;
use loom::thread;
use loom_party::{Party, Shared, Value, check, shared, value};
use sinew_core::sync::{Broadcast, Missing, RawWatch};
use sinew_core::wait::{Arm, Kind, Reason, Record, Turn, wait_any};

type News = LoomArc<Shared<Broadcast<Value>>>;

/// Receives to the end, or until it gives up; says what was received and what was lost.
fn listen(news: &News, rival: Option<Reason>) -> (Vec<u32>, u64, bool) {
    let position = Cell::new(0);
    let party = Party::new(rival);
    let (mut got, mut lost) = (Vec::new(), 0);
    let gave_up = loop {
        match news.0.recv(&position, &*party) {
            Ok(Ok(value)) => {
                // SAFETY: it is only read, by all.
                got.push(value.with(|number| unsafe { *number }));
            }
            Ok(Err(Missing::Lagged(count))) => lost += count,
            Ok(Err(missing)) => {
                assert_eq!(missing, Missing::Closed);
                break false;
            }
            Err(reason) => {
                assert_eq!(Some(reason), rival);
                break true;
            }
        }
    };
    news.0.remove_receiver(position.get());
    (got, lost, gave_up)
}

fn broadcast_to_two(capacity: usize, rival: Option<Reason>) {
    check(2, move || {
        let news = shared(Broadcast::new(capacity));
        assert_eq!(news.0.add_receiver(), 0);
        let other = {
            let news = news.clone();
            thread::spawn(move || listen(&news, rival))
        };
        let sender = {
            let news = news.clone();
            thread::spawn(move || {
                let sent: Vec<_> = [1, 2]
                    .into_iter()
                    .filter(|&n| news.0.send(value(n)).is_ok())
                    .collect();
                news.0.remove_sender();
                sent
            })
        };
        let (got, lost, _) = listen(&news, None);
        let sent = sender.join().unwrap();
        assert_eq!(sent, [1, 2], "this one listens to the end");
        assert_eq!(got.len() as u64 + lost, 2);
        assert_eq!(got, sent[lost as usize..], "in order, without the oldest");
        let (got, lost, gave_up) = other.join().unwrap();
        assert!(gave_up || got.len() as u64 + lost == 2);
    });
}

// contract: Y9
#[test]
fn a_broadcast_to_two() {
    broadcast_to_two(2, None);
}

#[test]
fn a_broadcast_to_one_that_lags_and_one_that_gives_up() {
    broadcast_to_two(1, Some(Reason::Timeout));
}

/// The last version is seen by all, whenever they look, also if they wait for something else at the same time.
fn watch(rival: Option<Reason>) {
    check(3, move || {
        let watched = LoomArc::new(RawWatch::new(0_u32));
        let setter = {
            let watched = watched.clone();
            thread::spawn(move || {
                for number in 1..=2 {
                    assert!(watched.send(number).is_ok());
                }
                watched.remove_sender();
            })
        };
        let seen = Cell::new(0);
        let party = Party::new(rival);
        loop {
            match watched.changed(&seen, &*party) {
                Ok(()) => assert!(*watched.get().0 > 0),
                Err(Reason::Closed) => {
                    assert_eq!((*watched.get().0, seen.get()), (2, 2), "the last was seen");
                    break;
                }
                Err(reason) => {
                    assert_eq!(Some(reason), rival);
                    break;
                }
            }
        }
        setter.join().unwrap();
    });
}

// contract: Y9
#[test]
fn a_watch_to_the_end() {
    watch(None);
}

#[test]
fn a_watch_until_one_gives_up() {
    watch(Some(Reason::Cancelled));
}

/// Both as arms of one wait.
#[test]
fn news_and_changes_in_one_wait() {
    check(2, || {
        let news = shared(Broadcast::new(1));
        let watched = LoomArc::new(RawWatch::new(0_u32));
        let sender = {
            let news = news.clone();
            thread::spawn(move || assert!(news.0.send(value(5)).is_ok()))
        };
        let setter = {
            let watched = watched.clone();
            thread::spawn(move || assert!(watched.send(6).is_ok()))
        };
        let (position, seen) = (Cell::new(0), Cell::new(0));
        let party = Party::new(None);
        let record = Record {
            kind: Kind::Select,
            object: 0,
            owner: 0,
        };
        let (arm, change) = (news.0.arm(&position), watched.arm(&seen));
        let arms: [&dyn Arm; 2] = [&arm, &change];
        let mut counts = [0; 2];
        for _ in 0..2 {
            // SAFETY: two different arms.
            let chosen = unsafe { wait_any(&arms, Turn::from_arm(0), &*party, record) }.unwrap();
            counts[chosen] += 1;
            if chosen == 0 {
                assert!(arm.take().is_some());
                assert!(arm.probe().take_value().unwrap().is_ok());
            } else {
                assert_eq!(change.take(), Some(Reason::Woken));
            }
        }
        assert_eq!(counts, [1, 1]);
        sender.join().unwrap();
        setter.join().unwrap();
    });
}
