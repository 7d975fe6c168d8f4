//! The raw wait group: who waits goes on at zero, and a count never leaves its range.
#![cfg(not(loom))]

mod party;

use std::cell::RefCell;
use std::thread;

use party::oracle::{Oracle, wait_within};
use party::{Chance, Limit, ScriptParty, ThreadParty, rounds};
use sinew_core::sharing::{Local, Shared, Sharing};
use sinew_core::sync::{CountError, RawWaitGroup};
use sinew_core::wait::{Reason, Suspend};

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

/// The group, by a list of ends.
#[derive(Default)]
struct Model {
    count: usize,
    ended: Vec<Option<Result<(), Reason>>>,
    /// How many of the waits found nothing to wait for.
    ends_at_once: usize,
}

impl Model {
    fn done(&mut self) -> Result<(), CountError> {
        self.count = self.count.checked_sub(1).ok_or(CountError::Below)?;
        if self.count == 0 {
            for end in &mut self.ended {
                end.get_or_insert(Ok(()));
            }
        }
        Ok(())
    }
}

struct Both<K: Sharing> {
    group: RawWaitGroup<K>,
    model: RefCell<Model>,
    chance: RefCell<Chance>,
}

impl<K: Sharing> Oracle for Both<K> {
    fn below(&self, end: u64) -> u64 {
        self.chance.borrow_mut().below(end)
    }

    fn begin(&self) -> usize {
        let model = &mut *self.model.borrow_mut();
        model.ended.push((model.count == 0).then_some(Ok(())));
        model.ends_at_once += usize::from(model.count == 0);
        model.ended.len() - 1
    }

    fn is_over(&self, one: usize) -> bool {
        self.model.borrow().ended[one].is_some()
    }

    fn strike(&self, one: usize, reason: Reason) -> bool {
        let end = &mut self.model.borrow_mut().ended[one];
        let was_waiting = end.is_none();
        end.get_or_insert(Err(reason));
        was_waiting
    }

    fn wait(&self, one: usize, party: &impl Suspend) {
        let end = self.group.wait(party);
        assert_eq!(Some(end), self.model.borrow().ended[one]);
    }

    fn call(&self) {
        let number = self.below(6);
        let model = &mut *self.model.borrow_mut();
        if let Ok(more @ 0..3) = usize::try_from(number) {
            // What is too much is refused, and changes nothing.
            let more = if more == 0 { usize::MAX } else { more };
            let added = model.count.checked_add(more).ok_or(CountError::Beyond);
            // At zero it would be accepted, and never be done.
            if more < usize::MAX || added.is_err() {
                assert_eq!(self.group.add(more), added.map(|count| model.count = count));
            }
        } else {
            assert_eq!(self.group.done(), model.done());
        }
        assert_eq!(self.group.count(), model.count);
    }
}

/// Random parties that wait within each other's waits: who goes on, and why, is what the model says.
// contract: Y5, Y12
#[test]
fn it_does_what_the_model_does() {
    does_what_the_model_does::<Shared>();
    does_what_the_model_does::<Local>();
}

fn does_what_the_model_does<K: Sharing>() {
    let mut chance = Chance::new();
    let (mut ends_at_once, mut wakes, mut strikes) = (0, 0, 0);
    for _ in 0..rounds(3_000) {
        let both = Both {
            group: RawWaitGroup::<K>::of_kind(),
            model: RefCell::new(Model::default()),
            chance: RefCell::new(chance.fork()),
        };
        for _ in 0..4 {
            // At a count of zero nobody waits, and nothing is called in a wait.
            for _ in 0..both.below(6) {
                both.call();
            }
            wait_within(&both, 5);
        }
        let model = both.model.into_inner();
        ends_at_once += model.ends_at_once;
        strikes += count(&model, Result::is_err);
        wakes += count(&model, Result::is_ok) - model.ends_at_once;
    }
    assert!(
        ends_at_once > 0 && wakes > 0 && strikes > 0,
        "every kind of end was seen: {ends_at_once}, {wakes}, {strikes}"
    );
}

fn count(model: &Model, of: impl Fn(&Result<(), Reason>) -> bool) -> usize {
    model.ended.iter().flatten().filter(|end| of(end)).count()
}
