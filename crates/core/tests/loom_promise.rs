//! The promise under loom: rivals that complete it, parties that wait, callbacks that come at the same moment.
#![cfg(loom)]

use std::sync::Arc as StdArc;
use std::task::{Wake, Waker};

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use sinew_core::sync::{Chained, RawPromise};
use sinew_core::wait::Polled;

type Promise = RawPromise<Box<u32>, Box<Callback>>;

/// A callback that is told apart by a number.
struct Callback {
    number: u32,
    next: Option<Box<Callback>>,
}

impl Chained for Box<Callback> {
    fn next(&mut self) -> &mut Option<Self> {
        &mut self.next
    }
}

fn callback(number: u32) -> Box<Callback> {
    Box::new(Callback { number, next: None })
}

struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn new() -> StdArc<Self> {
        StdArc::new(Self {
            rung: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

impl Wake for Bell {
    fn wake(self: StdArc<Self>) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

/// Polls until there is a value.
fn wait(promise: &Promise) -> u32 {
    let mut party = Polled::new(Waker::wake);
    let bell = Bell::new();
    let waker = Waker::from(bell.clone());
    while promise.poll_wait(&mut party, &waker).is_pending() {
        bell.wait();
    }
    **promise.get().expect("it has ended")
}

#[test]
fn of_two_completions_one_wins_and_the_waiter_sees_its_value() {
    loom::model(|| {
        let promise = Arc::new(Promise::new());
        let rivals: Vec<_> = [1, 2]
            .map(|number: u8| {
                let promise = promise.clone();
                thread::spawn(
                    move || match promise.complete(Box::new(u32::from(number)), number) {
                        Ok(callbacks) => {
                            assert_eq!(callbacks.count(), 0);
                            true
                        }
                        Err(value) => {
                            assert_eq!(*value, u32::from(number), "the value comes back");
                            false
                        }
                    },
                )
            })
            .into();
        let seen = wait(&promise);
        assert_eq!(promise.end().map(u32::from), Some(seen));
        let wins: Vec<_> = rivals
            .into_iter()
            .map(|rival| rival.join().unwrap())
            .collect();
        assert_eq!(wins, [seen == 1, seen == 2]);
    });
}

#[test]
fn a_callback_left_during_the_completion_is_the_completers_or_comes_back() {
    loom::model(|| {
        let promise = Arc::new(Promise::new());
        let completing = {
            let promise = promise.clone();
            thread::spawn(move || {
                let callbacks = promise.complete(Box::new(1), 1).unwrap();
                callbacks
                    .map(|callback| callback.number)
                    .collect::<Vec<_>>()
            })
        };
        let mut back = Vec::new();
        for number in [7, 8] {
            if let Err(callback) = promise.add_callback(callback(number)) {
                assert_eq!(promise.get().map(|value| **value), Some(1));
                back.push(callback.number);
            }
        }
        let mut all = completing.join().unwrap();
        all.extend(back);
        assert_eq!(all, [7, 8]);
    });
}

#[test]
fn a_party_that_leaves_during_the_completion_harms_nobody() {
    loom::model(|| {
        let promise = Arc::new(Promise::new());
        let mut gone = Polled::new(Waker::wake);
        let waker = Waker::from(Bell::new());
        assert!(promise.poll_wait(&mut gone, &waker).is_pending());
        let completing = {
            let promise = promise.clone();
            thread::spawn(move || promise.complete(Box::new(1), 1).unwrap().count())
        };
        promise.leave_wait(&mut gone);
        drop(gone);
        assert_eq!(wait(&promise), 1);
        assert_eq!(completing.join().unwrap(), 0);
    });
}

/// The completion is seen without any lock: the value must be published by the word alone.
#[test]
fn who_sees_the_end_sees_the_value() {
    loom::model(|| {
        let promise = Arc::new(Promise::new());
        let completing = {
            let promise = promise.clone();
            thread::spawn(move || drop(promise.complete(Box::new(1), 1).unwrap()))
        };
        if promise.end().is_some() {
            assert_eq!(promise.get().map(|value| **value), Some(1));
        }
        completing.join().unwrap();
        let mut promise = Arc::try_unwrap(promise).ok().unwrap();
        assert_eq!(promise.take().as_deref(), Some(&1));
        assert!(promise.complete(Box::new(2), 2).is_err());
    });
}
