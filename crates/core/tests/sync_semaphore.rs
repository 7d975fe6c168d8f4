//! The raw semaphore: who gets permits, in which order, and that none is lost, doubled or made up.
#![cfg(not(loom))]

mod party;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;

use party::oracle::{Oracle, wait_within};
use party::{Chance, Limit, ScriptParty, ThreadParty, rounds};
use sinew_core::sharing::{Local, Shared, Sharing};
use sinew_core::sync::{Overflow, RawSemaphore, TryDown};
use sinew_core::wait::{Reason, Suspend};

// contract: Y4
#[test]
fn it_counts() {
    static SEMAPHORE: RawSemaphore = RawSemaphore::new(2);
    assert_eq!(SEMAPHORE.value(), 2);
    assert_eq!(SEMAPHORE.try_down(3), TryDown::Short);
    assert_eq!(SEMAPHORE.down(1, &ThreadParty::new()), Ok(()));
    assert_eq!(SEMAPHORE.try_down(1), TryDown::Taken);
    assert_eq!(SEMAPHORE.try_down(1), TryDown::Short);
    assert_eq!(SEMAPHORE.try_down(0), TryDown::Taken);
    assert_eq!(SEMAPHORE.up(5), Ok(()));
    assert_eq!(SEMAPHORE.up(usize::MAX - 4), Err(Overflow));
    assert_eq!(SEMAPHORE.value(), 5);
    assert_eq!(SEMAPHORE.up(usize::MAX - 5), Ok(()));
    assert_eq!(SEMAPHORE.value(), usize::MAX);
}

// contract: Y4
#[test]
fn a_permit_wins_over_a_cancel_and_who_gave_up_took_none() {
    let semaphore = RawSemaphore::new(1);
    let party = ThreadParty::with(Limit::Refused);
    assert_eq!(semaphore.down(1, &party), Ok(()));
    assert_eq!(semaphore.down(1, &party), Err(Reason::Cancelled));
    for reason in [Reason::Timeout, Reason::Cancelled] {
        party.limit.set(Limit::After(3, reason));
        assert_eq!(semaphore.down(1, &party), Err(reason));
    }
    semaphore.up(1).unwrap();
    assert_eq!(semaphore.value(), 1);
}

// contract: Y4
#[test]
fn one_that_wants_many_is_not_passed() {
    let semaphore = RawSemaphore::new(0);
    let small = Cell::new(None);
    let large = ScriptParty::new(|now| {
        semaphore.up(1).unwrap();
        assert_eq!(semaphore.try_down(1), TryDown::Short, "past the first");
        let party = ScriptParty::new(|now| {
            semaphore.up(1).unwrap();
            assert_eq!(semaphore.value(), 2, "not enough for the first");
            semaphore.up(2).unwrap();
            assert!(!now.strike(Reason::Timeout), "it has its permit");
        });
        small.set(Some(semaphore.down(1, &party)));
        assert!(!now.strike(Reason::Timeout), "it has its permits");
    });
    assert_eq!(semaphore.down(3, &large), Ok(()));
    assert_eq!(small.get(), Some(Ok(())));
    assert_eq!(semaphore.value(), 0);
}

// contract: Y4
#[test]
fn one_that_gives_up_is_not_in_the_way() {
    let semaphore = RawSemaphore::new(2);
    let large = ScriptParty::new(|now| {
        let small = ScriptParty::new(|small| {
            assert!(now.strike(Reason::Timeout));
            assert_eq!(semaphore.try_down(1), TryDown::Taken, "none is left over");
            assert!(!small.strike(Reason::Timeout), "it was served by that");
        });
        assert_eq!(semaphore.down(1, &small), Ok(()));
    });
    assert_eq!(semaphore.down(3, &large), Err(Reason::Timeout));
    assert_eq!(semaphore.value(), 0);
}

/// Nobody comes who would put it right: the one that gives up does.
// contract: Y4
#[test]
fn who_was_behind_one_that_gives_up_is_served_by_it() {
    let semaphore = RawSemaphore::new(1);
    thread::scope(|scope| {
        let small = Cell::new(None);
        let large = ScriptParty::new(|now| {
            let (tell, told) = mpsc::channel();
            let semaphore = &semaphore;
            small.set(Some(scope.spawn(move || {
                // It fails, instead of hanging, if it is forgotten.
                let party = ThreadParty::with(Limit::After(1_000_000, Reason::Timeout));
                tell.send(party.signals()).unwrap();
                semaphore.down(1, &party)
            })));
            told.recv().unwrap().wait_until_waiting(1);
            assert!(now.strike(Reason::Timeout));
        });
        assert_eq!(semaphore.down(2, &large), Err(Reason::Timeout));
        assert_eq!(small.take().unwrap().join().unwrap(), Ok(()));
    });
    assert_eq!(semaphore.value(), 0);
}

// contract: Y4
#[test]
fn a_close_ends_all_waits_and_permits_come_back() {
    let semaphore = RawSemaphore::new(1);
    let party = ScriptParty::new(|now| {
        assert!(semaphore.close());
        assert!(!semaphore.close());
        assert!(!now.strike(Reason::Timeout), "a claim stands");
    });
    assert_eq!(semaphore.down(2, &party), Err(Reason::Closed));
    assert!(semaphore.is_closed());
    assert_eq!(semaphore.try_down(1), TryDown::Closed);
    assert_eq!(semaphore.down(1, &ThreadParty::new()), Err(Reason::Closed));
    semaphore.up(1).unwrap();
    assert_eq!(semaphore.value(), 2);
}

/// What a semaphore should do, written down naively.
struct Model {
    count: usize,
    is_closed: bool,
    line: VecDeque<usize>,
    wanted: Vec<usize>,
    ended: Vec<Option<Result<(), Reason>>>,
}

impl Model {
    fn serve(&mut self) {
        while let Some(&first) = self.line.front()
            && self.wanted[first] <= self.count
        {
            self.count -= self.wanted[first];
            self.ended[first] = Some(Ok(()));
            self.line.pop_front();
        }
    }

    fn take(&mut self, wanted: usize) -> TryDown {
        self.serve();
        if self.is_closed {
            TryDown::Closed
        } else if wanted == 0 {
            TryDown::Taken
        } else if self.line.is_empty() && wanted <= self.count {
            self.count -= wanted;
            TryDown::Taken
        } else {
            TryDown::Short
        }
    }
}

struct Both<K: Sharing> {
    semaphore: RawSemaphore<K>,
    model: RefCell<Model>,
    chance: RefCell<Chance>,
}

impl<K: Sharing> Oracle for Both<K> {
    fn below(&self, end: u64) -> u64 {
        self.chance.borrow_mut().below(end)
    }

    fn begin(&self) -> usize {
        let wanted = usize::try_from(self.below(4)).unwrap();
        let mut model = self.model.borrow_mut();
        let me = model.ended.len();
        model.wanted.push(wanted);
        let ended = match model.take(wanted) {
            TryDown::Taken => Some(Ok(())),
            TryDown::Closed => Some(Err(Reason::Closed)),
            TryDown::Short => None,
        };
        model.ended.push(ended);
        if ended.is_none() {
            model.line.push_back(me);
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
            model.line.retain(|&waiting| waiting != one);
        }
        was_waiting
    }

    fn wait(&self, one: usize, party: &impl Suspend) {
        let wanted = self.model.borrow().wanted[one];
        let result = self.semaphore.down(wanted, party);
        let mut model = self.model.borrow_mut();
        assert_eq!(Some(result), model.ended[one]);
        model.serve();
        assert_eq!(self.semaphore.value(), model.count);
    }

    fn call(&self) {
        let number = usize::try_from(self.below(4)).unwrap();
        let kind = self.below(40);
        let mut model = self.model.borrow_mut();
        match kind {
            0 => {
                assert_eq!(self.semaphore.close(), !model.is_closed);
                model.is_closed = true;
                while let Some(one) = model.line.pop_front() {
                    model.ended[one] = Some(Err(Reason::Closed));
                }
            }
            1..20 => {
                self.semaphore.up(number).unwrap();
                model.count += number;
                model.serve();
            }
            _ => assert_eq!(self.semaphore.try_down(number), model.take(number)),
        }
        assert_eq!(self.semaphore.value(), model.count);
    }
}

// contract: Y4, Y12
#[test]
fn it_does_what_the_model_does() {
    does_what_the_model_does::<Shared>();
    does_what_the_model_does::<Local>();
}

fn does_what_the_model_does<K: Sharing>() {
    let mut chance = Chance::new();
    for _ in 0..rounds(3_000) {
        let count = usize::try_from(chance.below(3)).unwrap();
        let both = Both {
            semaphore: RawSemaphore::<K>::of_kind(count),
            model: RefCell::new(Model {
                count,
                is_closed: false,
                line: VecDeque::new(),
                wanted: Vec::new(),
                ended: Vec::new(),
            }),
            chance: RefCell::new(chance.fork()),
        };
        for _ in 0..4 {
            wait_within(&both, 5);
        }
    }
}

// contract: Y4, Y11
#[test]
fn no_permit_is_lost_or_doubled_among_threads_that_give_up() {
    const PERMITS: usize = 3;
    let mut chance = Chance::new();
    let semaphore = RawSemaphore::new(PERMITS);
    let out = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            let mut chance = chance.fork();
            let (semaphore, out) = (&semaphore, &out);
            scope.spawn(move || {
                let party = ThreadParty::new();
                for _ in 0..rounds(30_000) {
                    party.limit.set(chance.limit());
                    let wanted = usize::try_from(1 + chance.below(PERMITS as u64)).unwrap();
                    let result = semaphore.down(wanted, &party);
                    match (result, party.limit.get()) {
                        (Ok(()), _) => {}
                        (Err(Reason::Cancelled), Limit::Refused) => continue,
                        (Err(reason), Limit::After(_, limit)) if reason == limit => continue,
                        wrong => panic!("ended for a reason that was not given: {wrong:?}"),
                    }
                    let before = out.fetch_add(wanted, SeqCst);
                    assert!(before + wanted <= PERMITS, "made up");
                    if chance.below(4) == 0 {
                        thread::yield_now();
                    }
                    out.fetch_sub(wanted, SeqCst);
                    semaphore.up(wanted).unwrap();
                }
            });
        }
    });
    assert_eq!(semaphore.value(), PERMITS);
    assert_eq!(semaphore.try_down(PERMITS), TryDown::Taken);
}
