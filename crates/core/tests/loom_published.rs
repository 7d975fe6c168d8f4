//! What a waiter publishes, under loom: reads are consistent, and two equal looks are of one wait that lasts from the first to
//! the second.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;
use sinew_core::wait::{Claim, Kind, Look, PublishedKind, Reason, Sequence, WaitWord};

/// A coroutine, reduced to what it publishes.
struct Party {
    sequence: Sequence,
    word: WaitWord,
    kind: PublishedKind,
    object: AtomicU32,
    owner: AtomicU32,
    /// What it did last while it ran: the number of the wait that comes next. Stands for a mutex that it owns.
    doing: AtomicU32,
}

impl Party {
    fn new() -> Self {
        Self {
            sequence: Sequence::new(),
            word: WaitWord::new(),
            kind: PublishedKind::new(),
            object: AtomicU32::new(0),
            owner: AtomicU32::new(0),
            doing: AtomicU32::new(0),
        }
    }

    /// Runs, then arms and publishes, as a scheduler's wait does. Each wait is of the same kind, so that the kind alone
    /// tells nothing.
    fn begin_wait(&self, number: u32) {
        self.doing.store(number, Relaxed);
        self.word.arm();
        self.sequence.change(|| {
            self.object.store(number, Relaxed);
            self.kind.set(Kind::Mutex as u8);
        });
    }

    fn end_wait(&self) {
        assert_eq!(self.word.finish(), Reason::Woken);
        self.kind.clear();
    }

    /// The look, with the object.
    fn look(&self) -> Option<(Look, u32)> {
        Look::with(&self.sequence, &self.word, &self.kind, || {
            self.object.load(Relaxed)
        })
    }
}

#[test]
fn a_read_is_of_one_change() {
    loom::model(|| {
        let party = Arc::new(Party::new());
        let writer = thread::spawn({
            let party = party.clone();
            move || {
                for number in 1..=2 {
                    party.sequence.change(|| {
                        party.object.store(number, Relaxed);
                        party.owner.store(number, Relaxed);
                    });
                }
            }
        });
        for _ in 0..2 {
            let read = party
                .sequence
                .read(|| (party.object.load(Relaxed), party.owner.load(Relaxed)));
            if let Some((object, owner)) = read {
                assert_eq!(object, owner);
            }
        }
        writer.join().unwrap();
    });
}

/// The looker's side: what the party was seen doing between two equal looks is what it did before that wait.
fn look_twice(party: &Party) {
    let Some((look, object)) = party.look() else {
        return;
    };
    let doing = party.doing.load(Relaxed);
    if look.is_still(&party.sequence, &party.word, &party.kind) {
        assert_eq!(look.number, 2 * object, "the number is the wait's");
        assert_eq!(doing, object, "it has not gone on between the looks");
    }
}

#[test]
fn two_equal_looks_are_of_one_wait_that_lasted() {
    loom::model(|| {
        let party = Arc::new(Party::new());
        let owner = thread::spawn({
            let party = party.clone();
            move || {
                party.begin_wait(1);
                // A timer of its own thread.
                assert_eq!(party.word.claim(Reason::Woken), Claim::Won);
                party.end_wait();
                party.begin_wait(2);
            }
        });
        look_twice(&party);
        owner.join().unwrap();
    });
}

#[test]
fn a_waker_on_another_thread_makes_the_looks_differ() {
    loom::model(|| {
        let party = Arc::new(Party::new());
        party.begin_wait(1);
        let owner = thread::spawn({
            let party = party.clone();
            move || {
                let waker = thread::spawn({
                    let party = party.clone();
                    move || assert_eq!(party.word.claim(Reason::Woken), Claim::Won)
                });
                // Stands for the ready queue: it goes on when it was pushed.
                waker.join().unwrap();
                party.end_wait();
                party.begin_wait(2);
            }
        });
        look_twice(&party);
        owner.join().unwrap();
    });
}

#[test]
fn a_party_that_does_not_wait_is_in_no_wait() {
    loom::model(|| {
        let party = Party::new();
        let (look, _) = party.look().unwrap();
        assert!(!look.is_still(&party.sequence, &party.word, &party.kind));
        party.begin_wait(1);
        let (look, _) = party.look().unwrap();
        assert!(look.is_still(&party.sequence, &party.word, &party.kind));
        assert_eq!(party.word.claim(Reason::Woken), Claim::Won);
        assert!(!look.is_still(&party.sequence, &party.word, &party.kind));
        let (claimed, _) = party.look().unwrap();
        assert!(!claimed.is_still(&party.sequence, &party.word, &party.kind));
        party.end_wait();
        let (look, _) = party.look().unwrap();
        assert!(!look.is_still(&party.sequence, &party.word, &party.kind));
    });
}
