//! A thread that looks a moment longer before it sleeps, under loom: against whoever wakes it and whoever cancels it.
//!
//! One that sleeps on though it was woken ends in a deadlock, which loom reports; a waker that touches the party after the wake, when the thread may
//! have gone on and the party with it, or what was handed over and is not seen, in a failure of loom's cells.
//!
//! The look itself is the runtime's own; the rest is what it does in `scheduler/waiting.rs`: claim, mark, unpark on one side, look, park, finish
//! on the other.
#![cfg(loom)]
#![expect(unsafe_code, reason = "reads and writes loom's cells")]

#[path = "../../sinew/src/scheduler/linger.rs"]
mod linger;

use std::cell::Cell;

use linger::{Habit, linger};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::{Acquire, Release};
use loom::thread::{self, Thread};
use sinew_core::wait::{Claim, Reason, WaitWord};

/// What waits, in the frame of the wait.
struct Party {
    word: WaitWord,
    woken: AtomicBool,
    /// Of the frame: the waker reads it, and the thread writes it when it leaves.
    thread: UnsafeCell<Option<Thread>>,
    /// What is handed over.
    slot: UnsafeCell<Option<Reason>>,
}

fn wake(party: &Party, reason: Reason) -> bool {
    if party.word.claim(reason) == Claim::Lost {
        return false;
    }
    // SAFETY: the winner's until the thread goes on.
    party.slot.with_mut(|slot| unsafe { *slot = Some(reason) });
    // SAFETY: as above.
    let thread = party.thread.with(|thread| unsafe { (*thread).clone() });
    // ORDERING: Release pairs with the Acquire of the thread's look.
    party.woken.store(true, Release);
    thread.expect("a waiting thread").unpark();
    true
}

/// Waits in the runtime's way; says for what it was woken, and whether it had to sleep.
fn wait(party: &Party, habit: &Cell<Habit>) -> (Reason, bool) {
    // ORDERING: Acquire pairs with the Release in `wake`.
    let has_come = linger(habit, || party.woken.load(Acquire));
    if !has_come {
        while !party.woken.load(Acquire) {
            thread::park();
        }
    }
    let reason = party.word.finish();
    // SAFETY: the thread's again; whoever touched it after the wake would be found out.
    let given = party.slot.with_mut(|slot| unsafe { (*slot).take() });
    // SAFETY: the same: the frame goes.
    party.thread.with_mut(|thread| unsafe { *thread = None });
    assert_eq!(given, Some(reason));
    (reason, !has_come)
}

/// Two waits, the second by the habit of the first; in each two parties are about to end it.
fn two_waits(preemptions: usize, waits: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let habit = Cell::new(Habit::new());
        for _ in 0..waits {
            let party = Arc::new(Party {
                word: WaitWord::new(),
                woken: AtomicBool::new(false),
                thread: UnsafeCell::new(Some(thread::current())),
                slot: UnsafeCell::new(None),
            });
            party.word.arm();
            let wakers = [Reason::Woken, Reason::Cancelled].map(|reason| {
                let party = party.clone();
                thread::spawn(move || wake(&party, reason))
            });
            let (reason, _) = wait(&party, &habit);
            let won = wakers.map(|waker| waker.join().unwrap());
            assert_eq!(won, [reason == Reason::Woken, reason == Reason::Cancelled]);
        }
    });
}

#[test]
fn whoever_is_woken_goes_on_at_the_look_or_after_it() {
    two_waits(3, 1);
}

#[test]
fn and_so_does_the_next_wait_by_the_habit_of_the_first() {
    two_waits(1, 2);
}
