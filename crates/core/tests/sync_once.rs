//! The raw once: whose turn it is, and that a turn is neither lost nor doubled.
#![cfg(not(loom))]

mod party;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use party::oracle::{Oracle, wait_within};
use party::{Chance, Limit, ScriptParty, ThreadParty, rounds};
use sinew_core::sharing::{Local, Shared, Sharing};
use sinew_core::sync::{Begin, RawOnce, TryBegin, Turn};
use sinew_core::wait::{Reason, Suspend};

fn turn<K: Sharing>(once: &RawOnce<K>, me: u64) -> Turn<'_, K> {
    match once.try_begin(me) {
        TryBegin::Turn(turn) => turn,
        other => panic!("{other:?}"),
    }
}

// contract: Y7
#[test]
fn it_is_done_once() {
    let mut once = RawOnce::new();
    let refused = ThreadParty::with(Limit::Refused);
    assert_eq!((once.is_done(), once.runner()), (false, 0));
    let first = turn(&once, 7);
    assert_eq!((once.is_done(), once.runner()), (false, 7));
    assert!(matches!(once.try_begin(8), TryBegin::Busy));
    assert!(matches!(once.begin(7, &refused), Ok(Begin::Reentered)));
    assert!(matches!(once.begin(8, &refused), Err(Reason::Cancelled)));
    assert_eq!(once.wait(&refused), Err(Reason::Cancelled));
    first.complete();
    assert_eq!((once.is_done(), once.runner()), (true, 0));
    assert!(matches!(once.try_begin(8), TryBegin::Done));
    assert!(matches!(once.begin(8, &refused), Ok(Begin::Done)));
    assert_eq!(once.wait(&refused), Ok(()));
    assert!(once.reset());
    assert!(!once.reset());
    drop(turn(&once, 9));
    assert_eq!((once.is_done(), once.runner()), (false, 0));
    turn(&once, 9).complete();
    assert!(once.is_done());
}

// contract: Y7
#[test]
fn a_turn_that_is_dropped_goes_to_the_next_and_watchers_wait_on() {
    let once = RawOnce::new();
    let held = Cell::new(Some(turn(&once, 1)));
    let watcher = ScriptParty::new(|watcher| {
        let doer = ScriptParty::new(|doer| {
            drop(held.take());
            assert_eq!(once.runner(), 2);
            assert!(!doer.strike(Reason::Timeout), "a claim stands");
        });
        match once.begin(2, &doer) {
            Ok(Begin::Turn(turn)) => turn.complete(),
            other => panic!("{other:?}"),
        }
        assert!(!watcher.strike(Reason::Timeout), "it was woken");
    });
    assert_eq!(once.wait(&watcher), Ok(()));
}

/// What a once should do, written down naively.
#[derive(Default)]
struct Model {
    runner: Option<usize>,
    is_done: bool,
    doers: VecDeque<usize>,
    watchers: Vec<usize>,
    watches: Vec<bool>,
    ended: Vec<Option<Result<bool, Reason>>>,
}

impl Model {
    fn complete(&mut self) {
        self.runner = None;
        self.is_done = true;
        for one in self.doers.drain(..) {
            self.ended[one] = Some(Ok(false));
        }
        for one in self.watchers.drain(..) {
            self.ended[one] = Some(Ok(false));
        }
    }

    fn abandon(&mut self) {
        self.runner = self.doers.pop_front();
        if let Some(next) = self.runner {
            self.ended[next] = Some(Ok(true));
        }
    }
}

struct Both<'a, K: Sharing> {
    once: &'a RawOnce<K>,
    held: RefCell<Option<Turn<'a, K>>>,
    model: RefCell<Model>,
    chance: RefCell<Chance>,
}

impl<K: Sharing> Both<'_, K> {
    fn compare(&self) {
        let model = self.model.borrow();
        assert_eq!(self.once.is_done(), model.is_done);
        let runner = model.runner.map_or(0, |one| one as u64 + 1);
        assert_eq!(self.once.runner(), runner);
    }
}

impl<K: Sharing> Oracle for Both<'_, K> {
    fn below(&self, end: u64) -> u64 {
        self.chance.borrow_mut().below(end)
    }

    fn begin(&self) -> usize {
        let watches = self.below(3) == 0;
        let mut model = self.model.borrow_mut();
        let me = model.ended.len();
        model.watches.push(watches);
        model.ended.push(None);
        if model.is_done {
            model.ended[me] = Some(Ok(false));
        } else if watches {
            model.watchers.push(me);
        } else if model.runner.is_none() {
            model.runner = Some(me);
            model.ended[me] = Some(Ok(true));
        } else {
            model.doers.push_back(me);
        }
        me
    }

    fn is_over(&self, one: usize) -> bool {
        self.model.borrow().ended[one].is_some()
    }

    fn strike(&self, one: usize, reason: Reason) -> bool {
        let mut model = self.model.borrow_mut();
        let was_waiting = model.ended[one].is_none();
        if was_waiting {
            model.ended[one] = Some(Err(reason));
            model.doers.retain(|&waiting| waiting != one);
            model.watchers.retain(|&waiting| waiting != one);
        }
        was_waiting
    }

    fn wait(&self, one: usize, party: &impl Suspend) {
        let result = if self.model.borrow().watches[one] {
            self.once.wait(party).map(|()| false)
        } else {
            self.once
                .begin(one as u64 + 1, party)
                .map(|begin| match begin {
                    Begin::Done => false,
                    Begin::Reentered => panic!("it is not at it"),
                    Begin::Turn(turn) => {
                        let before = self.held.borrow_mut().replace(turn);
                        assert!(before.is_none(), "two turns");
                        true
                    }
                })
        };
        assert_eq!(Some(result), self.model.borrow().ended[one]);
        self.compare();
    }

    fn call(&self) {
        let Some(turn) = self.held.borrow_mut().take() else {
            return self.compare();
        };
        if self.below(4) == 0 {
            turn.complete();
            self.model.borrow_mut().complete();
        } else {
            drop(turn);
            self.model.borrow_mut().abandon();
        }
        self.compare();
    }
}

// contract: Y7, Y12
#[test]
fn it_does_what_the_model_does() {
    does_what_the_model_does::<Shared>();
    does_what_the_model_does::<Local>();
}

fn does_what_the_model_does<K: Sharing>() {
    let mut chance = Chance::new();
    for _ in 0..rounds(3_000) {
        let once = RawOnce::<K>::of_kind();
        let both = Both {
            once: &once,
            held: RefCell::new(None),
            model: RefCell::default(),
            chance: RefCell::new(chance.fork()),
        };
        for _ in 0..3 {
            wait_within(&both, 5);
        }
        drop(both.held.take());
    }
}

/// Threads fail, give up and come again until one succeeds.
// contract: Y7, Y11
#[test]
fn one_succeeds_among_threads_that_fail_and_give_up() {
    let mut chance = Chance::new();
    for _ in 0..rounds(500) {
        let once = RawOnce::new();
        let inside = AtomicU64::new(0);
        let succeeded = AtomicU64::new(0);
        thread::scope(|scope| {
            for me in 1..=3 {
                let mut chance = chance.fork();
                let (once, inside, succeeded) = (&once, &inside, &succeeded);
                scope.spawn(move || {
                    let party = ThreadParty::new();
                    loop {
                        party.limit.set(chance.limit());
                        match once.begin(me, &party) {
                            Ok(Begin::Done) => break,
                            Ok(Begin::Reentered) => panic!("it is not at it"),
                            Ok(Begin::Turn(turn)) => {
                                assert_eq!(inside.fetch_add(1, SeqCst), 0, "two at it");
                                thread::yield_now();
                                inside.fetch_sub(1, SeqCst);
                                if chance.below(8) == 0 {
                                    succeeded.fetch_add(1, SeqCst);
                                    turn.complete();
                                }
                            }
                            Err(reason) => assert_ne!(reason, Reason::Closed),
                        }
                    }
                    assert_eq!(succeeded.load(SeqCst), 1);
                });
            }
            let party = ThreadParty::new();
            once.wait(&party).unwrap();
            assert_eq!(succeeded.load(SeqCst), 1);
        });
    }
}
