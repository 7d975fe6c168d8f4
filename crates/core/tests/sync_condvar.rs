//! The raw condition variable: who is woken, and that the mutex is held on every way out.
#![cfg(not(loom))]
#![expect(
    unsafe_code,
    reason = "waits and unlocks by hand, and guards a cell by the mutex"
)]

mod party;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use party::oracle::{Oracle, wait_within};
use party::{Chance, Limit, ScriptParty, ThreadParty, rounds};
use sinew_core::sharing::{Local, Shared, Sharing};
use sinew_core::sync::{RawCondvar, RawMutex};
use sinew_core::wait::{Reason, Suspend};

/// Waits as the holder of the mutex, and holds it again.
fn wait<K: Sharing>(
    condvar: &RawCondvar<K>,
    mutex: &RawMutex<K>,
    party: &impl Suspend,
    relocking: &impl Suspend,
) -> Result<(), Reason> {
    assert!(mutex.is_locked());
    // SAFETY: the tests call this only as holders.
    let result = unsafe { condvar.wait(mutex, 7, party, relocking) };
    assert!(mutex.is_locked());
    result
}

fn unlock<K: Sharing>(mutex: &RawMutex<K>) {
    // SAFETY: the tests call this only as holders.
    unsafe { mutex.unlock() };
}

// contract: Y3
#[test]
fn the_mutex_is_free_during_the_wait_and_held_after_it() {
    for reason in [Reason::Woken, Reason::Timeout, Reason::Cancelled] {
        let (condvar, mutex) = (RawCondvar::new(), RawMutex::new());
        let party = ScriptParty::new(|now| {
            assert!(mutex.try_lock(1), "given back");
            if reason == Reason::Woken {
                assert!(condvar.notify_one());
            } else {
                assert!(now.strike(reason));
            }
        });
        // Whoever took it meanwhile keeps it for a while.
        let relocking = ScriptParty::new(|_| unlock(&mutex));
        assert!(mutex.try_lock(7));
        let result = wait(&condvar, &mutex, &party, &relocking);
        let expected = match reason {
            Reason::Woken => Ok(()),
            reason => Err(reason),
        };
        assert_eq!((result, mutex.owner()), (expected, 7));
        assert_eq!((party.waits(), relocking.waits()), (1, 1));
        unlock(&mutex);
        assert!(!condvar.notify_one(), "nobody is left behind");
    }
}

// contract: Y3
#[test]
fn who_must_not_wait_keeps_the_mutex_all_the_time() {
    let (condvar, mutex) = (RawCondvar::new(), RawMutex::new());
    assert!(mutex.try_lock(1));
    let refused = ThreadParty::with(Limit::Refused);
    let relocking = ScriptParty::new(|_| panic!("it was not given back"));
    assert_eq!(
        wait(&condvar, &mutex, &refused, &relocking),
        Err(Reason::Cancelled)
    );
    assert_eq!(mutex.owner(), 1, "not taken anew");
}

// contract: Y3
#[test]
fn a_notification_passes_over_who_has_given_up_and_stands_against_who_comes_late() {
    let (condvar, mutex) = (RawCondvar::new(), RawMutex::new());
    let second = Cell::new(None);
    let party = ThreadParty::new();
    let first = ScriptParty::new(|now| {
        assert!(now.strike(Reason::Timeout));
        let other = ScriptParty::new(|now| {
            assert!(condvar.notify_one());
            assert!(!condvar.notify_one(), "one is not two");
            assert!(!now.strike(Reason::Cancelled), "a claim stands");
        });
        assert!(mutex.try_lock(2));
        second.set(Some(wait(&condvar, &mutex, &other, &ThreadParty::new())));
        unlock(&mutex);
    });
    assert!(mutex.try_lock(1));
    let result = wait(&condvar, &mutex, &first, &party);
    assert_eq!((result, second.get()), (Err(Reason::Timeout), Some(Ok(()))));
}

/// What a condition variable should do, written down naively.
#[derive(Default)]
struct Model {
    line: VecDeque<usize>,
    ended: Vec<Option<Result<(), Reason>>>,
}

struct Both<K: Sharing> {
    condvar: RawCondvar<K>,
    mutex: RawMutex<K>,
    model: RefCell<Model>,
    chance: RefCell<Chance>,
}

impl<K: Sharing> Oracle for Both<K> {
    fn below(&self, end: u64) -> u64 {
        self.chance.borrow_mut().below(end)
    }

    fn begin(&self) -> usize {
        let mut model = self.model.borrow_mut();
        let me = model.ended.len();
        model.ended.push(None);
        model.line.push_back(me);
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
        // Those around wait, so they have given it back.
        assert!(self.mutex.try_lock(1));
        let result = wait(&self.condvar, &self.mutex, party, &ThreadParty::new());
        unlock(&self.mutex);
        assert_eq!(Some(result), self.model.borrow().ended[one]);
    }

    fn call(&self) {
        let all = self.below(4) == 0;
        let mut model = self.model.borrow_mut();
        if all {
            assert_eq!(self.condvar.notify_all(), model.line.len());
            while let Some(one) = model.line.pop_front() {
                model.ended[one] = Some(Ok(()));
            }
        } else {
            let first = model.line.pop_front();
            assert_eq!(self.condvar.notify_one(), first.is_some());
            if let Some(first) = first {
                model.ended[first] = Some(Ok(()));
            }
        }
    }
}

// contract: Y3, Y12
#[test]
fn it_does_what_the_model_does() {
    does_what_the_model_does::<Shared>();
    does_what_the_model_does::<Local>();
}

fn does_what_the_model_does<K: Sharing>() {
    let mut chance = Chance::new();
    for _ in 0..rounds(3_000) {
        let both = Both {
            condvar: RawCondvar::<K>::of_kind(),
            mutex: RawMutex::<K>::of_kind(),
            model: RefCell::default(),
            chance: RefCell::new(chance.fork()),
        };
        for _ in 0..4 {
            wait_within(&both, 5);
        }
    }
}

/// A number of things, which only the holder of the mutex touches.
struct Store {
    condvar: RawCondvar,
    mutex: RawMutex,
    things: UnsafeCell<u64>,
}

// SAFETY: the number is touched by the holder of the mutex.
unsafe impl Sync for Store {}

impl Store {
    /// As the holder.
    fn things(&self) -> u64 {
        // SAFETY: the mutex is held.
        unsafe { *self.things.get() }
    }

    /// As the holder.
    fn set_things(&self, things: u64) {
        // SAFETY: the mutex is held.
        unsafe { *self.things.get() = things };
    }
}

/// One notification for each thing, and consumers that give up at times: no thing is left behind with somebody waiting.
// contract: Y3, Y11
#[test]
fn no_notification_is_lost_among_threads_that_give_up() {
    let mut chance = Chance::new();
    let store = Store {
        condvar: RawCondvar::new(),
        mutex: RawMutex::new(),
        things: UnsafeCell::new(0),
    };
    let taken = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let total = rounds(10_000);
    thread::scope(|scope| {
        for number in 0..3 {
            let mut chance = chance.fork();
            let (store, taken, is_over) = (&store, &taken, &is_over);
            scope.spawn(move || {
                let (party, relocking) = (ThreadParty::new(), ThreadParty::new());
                store.mutex.lock(&relocking, 1).unwrap();
                while !is_over.load(SeqCst) {
                    // One is patient: it alone must come through.
                    party.limit.set(match chance.limit() {
                        _ if number == 0 => Limit::None,
                        Limit::None => Limit::After(40, Reason::Timeout),
                        limit => limit,
                    });
                    if store.things() == 0 {
                        let result = wait(&store.condvar, &store.mutex, &party, &relocking);
                        assert_ne!(result, Err(Reason::Closed));
                        if party.limit.get() == Limit::Refused {
                            unlock(&store.mutex);
                            thread::yield_now();
                            store.mutex.lock(&relocking, 1).unwrap();
                        }
                    }
                    // Only who was woken takes: a lost notification leaves the thing.
                    while store.things() > 0 {
                        store.set_things(store.things() - 1);
                        taken.fetch_add(1, SeqCst);
                    }
                }
                unlock(&store.mutex);
            });
        }
        let party = ThreadParty::new();
        for made in 0..total {
            store.mutex.lock(&party, 9).unwrap();
            store.set_things(store.things() + 1);
            unlock(&store.mutex);
            store.condvar.notify_one();
            // One at a time, so that no later notification makes up for a lost one.
            while taken.load(SeqCst) <= made {
                thread::yield_now();
            }
        }
        store.mutex.lock(&party, 9).unwrap();
        is_over.store(true, SeqCst);
        unlock(&store.mutex);
        store.condvar.notify_all();
    });
    assert_eq!((taken.into_inner(), store.things.into_inner()), (total, 0));
}
