//! The raw event: who gets a signal, in which order, and that none is lost, doubled or made up.
#![cfg(not(loom))]

mod party;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;

use party::{Chance, Limit, ScriptParty, ThreadParty, rounds};
use sinew_core::sharing::{Local, Shared, Sharing};
use sinew_core::sync::{Mode, RawEvent, Signal};
use sinew_core::wait::{Reason, Suspend};

/// Waits and takes what comes.
fn wait<K: Sharing>(event: &RawEvent<K>, party: &impl Suspend) -> Result<(), Reason> {
    event.wait(party).map(Signal::accept)
}

// contract: E1, E5
#[test]
fn an_auto_event_keeps_one_signal_for_one_party() {
    static EVENT: RawEvent = RawEvent::new(Mode::Auto);
    assert_eq!((EVENT.mode(), EVENT.is_set()), (Mode::Auto, false));
    assert!(!EVENT.try_wait());
    EVENT.set();
    EVENT.set();
    assert!(EVENT.is_set());
    assert!(EVENT.try_wait());
    assert!(!EVENT.try_wait(), "two sets nobody waited for are one");
    EVENT.set();
    assert_eq!(wait(&EVENT, &ThreadParty::new()), Ok(()));
    assert!(!EVENT.is_set());
    EVENT.set();
    assert!(EVENT.reset());
    assert!(!EVENT.reset());
    assert!(!EVENT.try_wait());
}

// contract: E2, E5
#[test]
fn a_manual_event_stays_set_until_it_is_reset() {
    static EVENT: RawEvent = RawEvent::new(Mode::Manual);
    assert!(!EVENT.try_wait());
    EVENT.set();
    for _ in 0..3 {
        assert!(EVENT.try_wait());
        assert_eq!(wait(&EVENT, &ThreadParty::new()), Ok(()));
    }
    assert!(EVENT.reset());
    assert!(!EVENT.reset());
    assert!(!EVENT.is_set() && !EVENT.try_wait());
}

// contract: E3
#[test]
fn a_signal_wins_over_a_cancel_and_who_gave_up_took_none() {
    for mode in [Mode::Auto, Mode::Manual] {
        let event = RawEvent::new(mode);
        let party = ThreadParty::with(Limit::Refused);
        event.set();
        assert_eq!(wait(&event, &party), Ok(()));
        event.reset();
        assert_eq!(wait(&event, &party), Err(Reason::Cancelled));
        for reason in [Reason::Timeout, Reason::Cancelled] {
            party.limit.set(Limit::After(3, reason));
            assert_eq!(wait(&event, &party), Err(reason));
        }
        event.set();
        assert!(event.try_wait(), "those who gave up are not in the way");
    }
}

// contract: E1
#[test]
fn a_claim_stands_against_deadline_cancel_and_reset() {
    for mode in [Mode::Auto, Mode::Manual] {
        for reason in [Reason::Timeout, Reason::Cancelled] {
            let event = RawEvent::new(mode);
            let party = ScriptParty::new(|now| {
                event.set();
                assert_eq!(event.reset(), mode == Mode::Manual);
                assert!(!now.strike(reason), "a claim stands");
            });
            assert_eq!(wait(&event, &party), Ok(()));
            assert_eq!((event.is_set(), party.waits()), (false, 1));
        }
    }
}

// contract: E1
#[test]
fn a_set_passes_over_who_has_given_up() {
    let event = RawEvent::new(Mode::Auto);
    let second = ScriptParty::new(|_| event.set());
    let first = ScriptParty::new(|now| {
        // The first is struck and still linked when the set looks for somebody.
        assert!(now.strike(Reason::Timeout));
        assert_eq!(wait(&event, &second), Ok(()));
    });
    assert_eq!(wait(&event, &first), Err(Reason::Timeout));
    assert!(!event.is_set());
}

// contract: E1
#[test]
fn a_signal_that_is_not_accepted_is_kept() {
    let event = RawEvent::new(Mode::Auto);
    event.set();
    drop(event.wait(&ThreadParty::new()));
    assert!(event.is_set(), "nobody waits who could have it");
    assert!(event.reset());
}

// contract: E1
#[test]
fn a_signal_is_passed_on_by_an_unwind() {
    let event = RawEvent::new(Mode::Auto);
    event.set();
    let taken = Cell::new(Some(event.wait(&ThreadParty::new()).unwrap()));
    let next = ScriptParty::new(|_| {
        let signal = taken.take();
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _signal = signal;
            std::panic::resume_unwind(Box::new("by force"));
        }));
        assert!(unwound.is_err());
    });
    assert_eq!(wait(&event, &next), Ok(()), "the second one wakes");
    assert!(!event.is_set());
}

// contract: E2
#[test]
fn a_manual_signal_that_is_not_accepted_sets_nothing() {
    let event = RawEvent::new(Mode::Manual);
    event.set();
    let signal = event.wait(&ThreadParty::new()).unwrap();
    event.reset();
    drop(signal);
    assert!(!event.is_set(), "a reset stands");
}

// contract: E1, E2
#[test]
fn first_come_first_served_and_all_at_once() {
    for mode in [Mode::Auto, Mode::Manual] {
        let event = RawEvent::new(mode);
        let (went, goes) = mpsc::channel();
        let (event, went) = (&event, &went);
        thread::scope(|scope| {
            for number in 0..4 {
                let (tell, told) = mpsc::channel();
                let went = went.clone();
                scope.spawn(move || {
                    let party = ThreadParty::new();
                    tell.send(party.signals()).unwrap();
                    assert_eq!(wait(event, &party), Ok(()));
                    went.send(number).unwrap();
                });
                told.recv().unwrap().wait_until_waiting(1);
            }
            if mode == Mode::Manual {
                event.set();
                let mut all: Vec<_> = goes.iter().take(4).collect();
                all.sort_unstable();
                assert_eq!(all, [0, 1, 2, 3]);
            } else {
                for number in 0..4 {
                    event.set();
                    assert_eq!(goes.recv().unwrap(), number);
                    assert!(goes.try_recv().is_err(), "one set wakes one");
                }
                assert!(!event.is_set());
            }
        });
    }
}

/// What an event should do, written down naively.
struct Model {
    mode: Mode,
    set: bool,
    waiting: VecDeque<usize>,
    ended: Vec<Option<Result<(), Reason>>>,
}

impl Model {
    fn set(&mut self) {
        match self.mode {
            Mode::Auto => match self.waiting.pop_front() {
                Some(first) => self.ended[first] = Some(Ok(())),
                None => self.set = true,
            },
            Mode::Manual => {
                self.set = true;
                for one in self.waiting.drain(..) {
                    self.ended[one] = Some(Ok(()));
                }
            }
        }
    }

    fn take(&mut self) -> bool {
        let set = self.set;
        self.set &= self.mode == Mode::Manual;
        set
    }

    fn strike(&mut self, one: usize, reason: Reason) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|&waiting| waiting != one);
        let struck = self.waiting.len() < before;
        if struck {
            self.ended[one] = Some(Err(reason));
        }
        struck
    }
}

struct Oracle<K: Sharing> {
    event: RawEvent<K>,
    model: RefCell<Model>,
    chance: RefCell<Chance>,
}

impl<K: Sharing> Oracle<K> {
    fn below(&self, end: u64) -> u64 {
        self.chance.borrow_mut().below(end)
    }

    /// One more party waits, within the waits of those before it, and the event and its model get the same calls until all
    /// that wait have ended.
    fn wait_within(&self, depth: usize) {
        let me = {
            let mut model = self.model.borrow_mut();
            model.ended.push(None);
            let me = model.ended.len() - 1;
            if model.take() {
                model.ended[me] = Some(Ok(()));
            } else {
                model.waiting.push_back(me);
            }
            me
        };
        let party = ScriptParty::new(|now| {
            loop {
                let ended = self.model.borrow().ended[me].is_some();
                match self.below(6) {
                    0 | 1 if depth > 0 => self.wait_within(depth - 1),
                    2 if ended => return,
                    0 | 2 => {
                        let reason = [Reason::Timeout, Reason::Cancelled][me % 2];
                        let struck = self.model.borrow_mut().strike(me, reason);
                        assert_eq!(now.strike(reason), struck);
                    }
                    _ => self.call(),
                }
            }
        });
        let result = wait(&self.event, &party);
        assert_eq!(Some(result), self.model.borrow().ended[me]);
    }

    /// The same call to both.
    fn call(&self) {
        let mut model = self.model.borrow_mut();
        match self.below(4) {
            0 | 1 => {
                self.event.set();
                model.set();
            }
            2 => assert_eq!(self.event.reset(), std::mem::take(&mut model.set)),
            _ => assert_eq!(self.event.try_wait(), model.take()),
        }
        assert_eq!(self.event.is_set(), model.set);
    }
}

// contract: E1, E2, Y12
#[test]
fn it_does_what_the_model_does() {
    does_what_the_model_does::<Shared>();
    does_what_the_model_does::<Local>();
}

fn does_what_the_model_does<K: Sharing>() {
    let mut chance = Chance::new();
    for round in 0..rounds(3_000) {
        let mode = [Mode::Auto, Mode::Manual][usize::try_from(round % 2).unwrap()];
        let oracle = Oracle {
            event: RawEvent::<K>::of_kind(mode),
            model: RefCell::new(Model {
                mode,
                set: false,
                waiting: VecDeque::new(),
                ended: Vec::new(),
            }),
            chance: RefCell::new(chance.fork()),
        };
        for _ in 0..4 {
            oracle.wait_within(5);
        }
    }
}

// contract: E1, E4, Y11
#[test]
fn no_signal_is_lost_or_doubled_among_threads_that_give_up() {
    let mut chance = Chance::new();
    let event = RawEvent::new(Mode::Auto);
    let taken = AtomicU64::new(0);
    let total = rounds(20_000);
    let mut sent = 0;
    thread::scope(|scope| {
        for _ in 0..3 {
            let mut chance = chance.fork();
            let (event, taken) = (&event, &taken);
            scope.spawn(move || {
                let party = ThreadParty::new();
                while taken.load(SeqCst) < total {
                    party.limit.set(match chance.limit() {
                        // The last signal wakes one only: nobody waits for ever.
                        Limit::None => Limit::After(40, Reason::Timeout),
                        limit => limit,
                    });
                    match event.wait(&party) {
                        // Passed on: nobody knows how often, but it stays one.
                        Ok(signal) if chance.below(4) == 0 => drop(signal),
                        Ok(signal) => {
                            signal.accept();
                            taken.fetch_add(1, SeqCst);
                        }
                        Err(reason) => assert_ne!(reason, Reason::Closed),
                    }
                }
            });
        }
        // One at a time, so that none can be merged with another.
        while taken.load(SeqCst) < total {
            event.set();
            sent += 1;
            while taken.load(SeqCst) < sent {
                thread::yield_now();
            }
        }
    });
    let left = u64::from(event.try_wait());
    assert_eq!(taken.load(SeqCst) + left, sent, "doubled");
}
