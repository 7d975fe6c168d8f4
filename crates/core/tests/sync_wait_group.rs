//! The raw wait group: who waits goes on at zero, and a count never leaves its range.
#![cfg(not(loom))]

mod party;

use std::thread;

use party::{Chance, Limit, ScriptParty, ThreadParty, rounds};
use sinew_core::sync::{CountError, RawWaitGroup};
use sinew_core::wait::Reason;

// contract: Y5
#[test]
fn a_count_stays_in_its_range() {
    static GROUP: RawWaitGroup = RawWaitGroup::new();
    assert_eq!(GROUP.done(), Err(CountError::Below));
    assert_eq!(GROUP.add(1), Ok(()));
    assert_eq!(GROUP.add(usize::MAX), Err(CountError::Beyond));
    assert_eq!(GROUP.count(), 1, "a refused change changes nothing");
    assert_eq!(GROUP.done(), Ok(()));
    assert_eq!(GROUP.done(), Err(CountError::Below));
    assert_eq!(GROUP.count(), 0);
}

#[test]
fn nothing_to_wait_for_wins_over_a_cancel() {
    let group = RawWaitGroup::new();
    let party = ThreadParty::with(Limit::Refused);
    assert_eq!(group.wait(&party), Ok(()));
    group.add(1).unwrap();
    assert_eq!(group.wait(&party), Err(Reason::Cancelled));
    party.limit.set(Limit::After(3, Reason::Timeout));
    assert_eq!(group.wait(&party), Err(Reason::Timeout));
}

#[test]
fn a_wait_ends_with_the_first_zero_and_the_group_goes_on() {
    let group = RawWaitGroup::new();
    group.add(2).unwrap();
    let party = ScriptParty::new(|now| {
        group.done().unwrap();
        group.done().unwrap();
        group.add(1).unwrap();
        assert!(!now.strike(Reason::Timeout), "a claim stands");
    });
    assert_eq!(group.wait(&party), Ok(()));
    assert_eq!((group.count(), party.waits()), (1, 1));
}

// contract: Y5, Y11
#[test]
fn all_waiters_see_all_the_work() {
    let mut chance = Chance::new();
    for _ in 0..rounds(300) {
        let group = RawWaitGroup::new();
        let done = std::sync::atomic::AtomicU32::new(0);
        group.add(4).unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..2 {
                        done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        group.done().unwrap();
                    }
                });
            }
            for _ in 0..2 {
                let mut chance = chance.fork();
                let (group, done) = (&group, &done);
                scope.spawn(move || {
                    let party = ThreadParty::new();
                    loop {
                        party.limit.set(chance.limit());
                        if group.wait(&party).is_ok() {
                            break;
                        }
                    }
                    assert_eq!(done.load(std::sync::atomic::Ordering::Relaxed), 4);
                });
            }
        });
    }
}
