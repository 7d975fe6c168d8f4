//! The raw barrier: nobody goes through before all have come, and who gave up was not counted.
#![cfg(not(loom))]

mod party;

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use party::oracle::{Oracle, wait_within};
use party::{Chance, Limit, ScriptParty, ThreadParty, rounds};
use sinew_core::sharing::{Local, Shared, Sharing};
use sinew_core::sync::{RawBarrier, Role};
use sinew_core::wait::{Reason, Suspend};

// contract: Y6
#[test]
fn the_last_to_come_leads_and_does_not_wait() {
    static ALONE: RawBarrier = RawBarrier::new(1);
    let refused = ThreadParty::with(Limit::Refused);
    assert_eq!(ALONE.wait(&refused), Ok(Role::Leader));
    assert!(ALONE.try_wait());
    let two = RawBarrier::new(2);
    for _ in 0..3 {
        assert!(!two.try_wait());
        assert_eq!(two.wait(&refused), Err(Reason::Cancelled));
        let first = ScriptParty::new(|now| {
            assert_eq!(two.arrived(), 1);
            assert_eq!(two.wait(&refused), Ok(Role::Leader));
            assert!(!now.strike(Reason::Timeout), "a claim stands");
        });
        assert_eq!(two.wait(&first), Ok(Role::Follower));
        assert_eq!((two.arrived(), two.parties()), (0, 2));
    }
}

// contract: Y6
#[test]
fn who_gave_up_is_not_counted() {
    for reason in [Reason::Timeout, Reason::Cancelled] {
        let barrier = RawBarrier::new(2);
        let first = ScriptParty::new(|now| assert!(now.strike(reason)));
        assert_eq!(barrier.wait(&first), Err(reason));
        assert_eq!(barrier.arrived(), 0);
        assert!(!barrier.try_wait(), "nobody is there");
    }
}

/// Struck and counted before it could leave: the others rely on it.
// contract: Y6
#[test]
fn who_was_counted_goes_through() {
    let barrier = RawBarrier::new(2);
    let first = ScriptParty::new(|now| {
        assert!(now.strike(Reason::Timeout));
        assert!(barrier.try_wait());
        assert_eq!(barrier.arrived(), 0);
    });
    assert_eq!(barrier.wait(&first), Ok(Role::Follower));
    assert_eq!(barrier.arrived(), 0);
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Waiting,
    Struck(Reason),
    Through(Role),
}

/// What a barrier should do, written down naively.
struct Model {
    parties: usize,
    all: Vec<State>,
    /// Who has come and neither left nor gone through.
    here: Vec<usize>,
}

impl Model {
    fn come(&mut self) -> bool {
        let opens = self.here.len() + 1 == self.parties;
        if opens {
            for one in self.here.drain(..) {
                self.all[one] = State::Through(Role::Follower);
            }
        }
        opens
    }
}

struct Both<K: Sharing> {
    barrier: RawBarrier<K>,
    model: RefCell<Model>,
    chance: RefCell<Chance>,
    led: Cell<u64>,
}

impl<K: Sharing> Oracle for Both<K> {
    fn below(&self, end: u64) -> u64 {
        self.chance.borrow_mut().below(end)
    }

    fn begin(&self) -> usize {
        let mut model = self.model.borrow_mut();
        let me = model.all.len();
        model.all.push(State::Waiting);
        if model.come() {
            model.all[me] = State::Through(Role::Leader);
        } else {
            model.here.push(me);
        }
        me
    }

    fn is_over(&self, one: usize) -> bool {
        self.model.borrow().all[one] != State::Waiting
    }

    fn strike(&self, one: usize, reason: Reason) -> bool {
        let mut model = self.model.borrow_mut();
        let was_waiting = model.all[one] == State::Waiting;
        if was_waiting {
            model.all[one] = State::Struck(reason);
        }
        was_waiting
    }

    fn wait(&self, one: usize, party: &impl Suspend) {
        let result = self.barrier.wait(party);
        let mut model = self.model.borrow_mut();
        let expected = match model.all[one] {
            State::Struck(reason) => Err(reason),
            State::Through(role) => Ok(role),
            State::Waiting => panic!("it waits still"),
        };
        assert_eq!(result, expected);
        model.here.retain(|&here| here != one);
        self.led
            .set(self.led.get() + u64::from(result == Ok(Role::Leader)));
        assert_eq!(self.barrier.arrived(), model.here.len());
    }

    fn call(&self) {
        let mut model = self.model.borrow_mut();
        assert_eq!(self.barrier.try_wait(), model.come());
        assert_eq!(self.barrier.arrived(), model.here.len());
    }
}

// contract: Y6, Y12
#[test]
fn it_does_what_the_model_does() {
    does_what_the_model_does::<Shared>();
    does_what_the_model_does::<Local>();
}

fn does_what_the_model_does<K: Sharing>() {
    let mut chance = Chance::new();
    let mut led = 0;
    for _ in 0..rounds(3_000) {
        let parties = 1 + usize::try_from(chance.below(4)).unwrap();
        let both = Both {
            barrier: RawBarrier::<K>::of_kind(parties),
            model: RefCell::new(Model {
                parties,
                all: Vec::new(),
                here: Vec::new(),
            }),
            chance: RefCell::new(chance.fork()),
            led: Cell::new(0),
        };
        for _ in 0..4 {
            wait_within(&both, 5);
        }
        led += both.led.get();
    }
    assert!(led > 0, "it was never opened");
}

/// Threads come, and give up at times. Everybody who goes through was counted once, each time for all.
// contract: Y6, Y11
#[test]
fn places_are_exact_among_threads_that_give_up() {
    const PARTIES: u64 = 3;
    let mut chance = Chance::new();
    let barrier = RawBarrier::new(3);
    let leaders = AtomicU64::new(0);
    let through = AtomicU64::new(0);
    let goal = rounds(5_000);
    thread::scope(|scope| {
        for _ in 0..PARTIES {
            let mut chance = chance.fork();
            let (barrier, leaders, through) = (&barrier, &leaders, &through);
            scope.spawn(move || {
                let party = ThreadParty::new();
                while leaders.load(SeqCst) < goal {
                    party.limit.set(match chance.limit() {
                        // The others may have reached the goal.
                        Limit::None => Limit::After(40, Reason::Timeout),
                        limit => limit,
                    });
                    match barrier.wait(&party) {
                        Ok(Role::Leader) => {
                            leaders.fetch_add(1, SeqCst);
                        }
                        Ok(Role::Follower) => {
                            through.fetch_add(1, SeqCst);
                        }
                        Err(reason) => assert_ne!(reason, Reason::Closed),
                    }
                }
            });
        }
    });
    let leaders = leaders.into_inner();
    assert_eq!(through.into_inner(), leaders * (PARTIES - 1));
    assert_eq!(barrier.arrived(), 0);
}
