//! The raw mutex: who gets it, in which order, and that nobody is forgotten.
#![cfg(not(loom))]
#![expect(
    unsafe_code,
    reason = "unlocks by hand, and guards a cell by the mutex"
)]

mod party;

use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::sync::mpsc;
use std::thread;

use party::oracle::{Oracle, wait_within};
use party::{Chance, Limit, ScriptParty, ThreadParty, rounds};
use sinew_core::sharing::{Local, Shared, Sharing};
use sinew_core::sync::{LOST_MAX, RawMutex};
use sinew_core::wait::{Reason, Suspend};

/// Gives the mutex back.
fn unlock<K: Sharing>(mutex: &RawMutex<K>) {
    assert!(mutex.is_locked());
    // SAFETY: the tests call this only as holders.
    unsafe { mutex.unlock() };
}

#[test]
fn free_taken_free() {
    static MUTEX: RawMutex = RawMutex::new();
    assert_eq!((MUTEX.is_locked(), MUTEX.owner()), (false, 0));
    assert!(MUTEX.try_lock(7));
    assert_eq!((MUTEX.is_locked(), MUTEX.owner()), (true, 7));
    assert!(!MUTEX.try_lock(8));
    unlock(&MUTEX);
    assert_eq!((MUTEX.is_locked(), MUTEX.owner()), (false, 0));
}

#[test]
fn a_free_mutex_wins_over_a_cancel() {
    let mutex = RawMutex::new();
    let party = ThreadParty::with(Limit::Refused);
    assert_eq!(mutex.lock(&party, 1), Ok(()));
    assert_eq!(mutex.lock(&party, 1), Err(Reason::Cancelled));
    unlock(&mutex);
    assert!(!mutex.is_locked());
}

// contract: Y1, Y12
#[test]
fn a_waiter_loses_a_bounded_number_of_times() {
    loses_a_bounded_number_of_times::<Shared>();
    loses_a_bounded_number_of_times::<Local>();
}

fn loses_a_bounded_number_of_times<K: Sharing>() {
    let mutex = RawMutex::<K>::of_kind();
    assert!(mutex.try_lock(1));
    let handed = Cell::new(false);
    // The others give the mutex back and take it again at once, whenever the waiter waits.
    let waiter = ScriptParty::new(|now| {
        unlock(&mutex);
        handed.set(!mutex.try_lock(1));
        assert_eq!(handed.get(), now.wait > LOST_MAX, "at wait {}", now.wait);
        assert_eq!(mutex.owner(), if handed.get() { 2 } else { 1 });
    });
    assert_eq!(mutex.lock(&waiter, 2), Ok(()));
    assert!(handed.get());
    assert_eq!(waiter.waits(), LOST_MAX + 1);
    unlock(&mutex);
    assert!(mutex.try_lock(3), "the hand-over left nothing behind");
}

// contract: Y12
#[test]
fn a_woken_waiter_takes_a_mutex_that_stayed_free() {
    takes_a_mutex_that_stayed_free::<Shared>();
    takes_a_mutex_that_stayed_free::<Local>();
}

fn takes_a_mutex_that_stayed_free<K: Sharing>() {
    let mutex = RawMutex::<K>::of_kind();
    assert!(mutex.try_lock(1));
    let waiter = ScriptParty::new(|_| {
        unlock(&mutex);
        assert!(!mutex.is_locked());
    });
    assert_eq!(mutex.lock(&waiter, 2), Ok(()));
    assert_eq!((waiter.waits(), mutex.owner()), (1, 2));
}

/// Starts a thread that locks; returns once it waits.
fn queue_up<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    mutex: &'scope RawMutex,
    owner: u64,
    then: impl FnOnce() + Send + 'scope,
) -> std::sync::Arc<party::Signals> {
    let (tell, told) = mpsc::channel();
    scope.spawn(move || {
        let party = ThreadParty::new();
        tell.send(party.signals()).unwrap();
        mutex.lock(&party, owner).unwrap();
        then();
        unlock(mutex);
    });
    let signals = told.recv().unwrap();
    signals.wait_until_waiting(1);
    signals
}

#[test]
fn waiters_get_it_in_the_order_they_came() {
    let mutex = RawMutex::new();
    let (tell, told) = mpsc::channel();
    assert!(mutex.try_lock(1));
    thread::scope(|scope| {
        for number in 0..20 {
            let tell = tell.clone();
            queue_up(scope, &mutex, 2 + number, move || {
                tell.send(number).unwrap()
            });
        }
        unlock(&mutex);
    });
    assert!(told.try_iter().eq(0..20));
}

#[test]
fn one_is_woken_and_no_other_before_it_has_tried() {
    let mutex = RawMutex::new();
    assert!(mutex.try_lock(1));
    thread::scope(|scope| {
        let second = Cell::new(None);
        let first = ScriptParty::new(|now| {
            assert_eq!(now.wait, 1);
            second.set(Some(queue_up(scope, &mutex, 3, || ())));
            for _ in 0..1000 {
                unlock(&mutex);
                assert!(mutex.try_lock(1));
            }
            unlock(&mutex);
        });
        assert_eq!(mutex.lock(&first, 2), Ok(()));
        let second = second.take().unwrap();
        assert!(!second.is_woken(), "the first had not tried yet");
        unlock(&mutex);
    });
    assert!(!mutex.is_locked());
}

/// A second one waits behind a first that loses again and again: the first keeps its place, and when it has had the mutex
/// handed over, its own unlock wakes the second.
#[test]
fn a_loser_keeps_its_place() {
    for losses in [1, LOST_MAX] {
        let mutex = RawMutex::new();
        let (tell, told) = mpsc::channel();
        assert!(mutex.try_lock(1));
        thread::scope(|scope| {
            let first = ScriptParty::new(|now| {
                if now.wait == 1 {
                    let tell = tell.clone();
                    queue_up(scope, &mutex, 3, move || tell.send(3).unwrap());
                }
                unlock(&mutex);
                if now.wait <= losses {
                    assert!(mutex.try_lock(1));
                }
            });
            assert_eq!(mutex.lock(&first, 2), Ok(()));
            assert_eq!(first.waits(), losses + 1);
            tell.send(2).unwrap();
            unlock(&mutex);
        });
        assert!(told.try_iter().eq([2, 3]));
        assert!(!mutex.is_locked());
    }
}

/// The first waiter is woken, loses, and is cancelled, or times out while waiting again, or does so as the one to
/// whom the mutex is going to be handed: in each case the second must get it.
#[test]
fn a_wake_is_not_lost_with_the_one_who_gives_up() {
    for (lost, reason) in [
        (1, Reason::Cancelled),
        (LOST_MAX, Reason::Cancelled),
        (1, Reason::Timeout),
        (LOST_MAX, Reason::Timeout),
    ] {
        let mutex = RawMutex::new();
        assert!(mutex.try_lock(1));
        thread::scope(|scope| {
            let first = ScriptParty::new(|now| {
                if now.wait == 1 {
                    queue_up(scope, &mutex, 3, || ());
                }
                if now.wait > lost {
                    assert!(now.strike(reason));
                    return;
                }
                unlock(&mutex);
                assert!(mutex.try_lock(1));
                // This one comes between the wake and the try, so it refuses the next wait.
                if now.wait == lost && reason == Reason::Cancelled {
                    now.cancel_later();
                }
            });
            assert_eq!(mutex.lock(&first, 2), Err(reason));
            assert!(mutex.is_locked());
            unlock(&mutex);
            // The scope's end joins the second.
        });
        assert_eq!((mutex.is_locked(), mutex.owner()), (false, 0));
        assert!(mutex.try_lock(1));
        unlock(&mutex);
        assert!(!mutex.is_locked(), "nothing is left behind");
    }
}

/// A count that only the holder may touch.
struct Guarded {
    mutex: RawMutex,
    count: UnsafeCell<u64>,
}

// SAFETY: the count is touched by the holder of the mutex.
unsafe impl Sync for Guarded {}

// contract: Y1, Y11
#[test]
fn threads_count_exactly_under_timeouts_and_cancels() {
    let guarded = Guarded {
        mutex: RawMutex::new(),
        count: UnsafeCell::new(0),
    };
    let mut chance = Chance::new();
    let taken: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (1..=4)
            .map(|owner| {
                let (guarded, chance) = (&guarded, chance.fork());
                scope.spawn(move || count(guarded, chance, owner))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(guarded.count.into_inner(), taken);
    assert!(guarded.mutex.try_lock(9), "left free");
    unlock(&guarded.mutex);
    assert!(!guarded.mutex.is_locked());
}

fn count(guarded: &Guarded, mut chance: Chance, owner: u64) -> u64 {
    let party = ThreadParty::new();
    let mut taken = 0;
    for _ in 0..rounds(100_000) {
        party.limit.set(chance.limit());
        let reason = match guarded.mutex.lock(&party, owner) {
            Ok(()) => Reason::Woken,
            Err(reason) => reason,
        };
        match (reason, party.limit.get()) {
            (Reason::Woken, _) => {}
            (Reason::Cancelled, Limit::Refused) => continue,
            (reason, Limit::After(_, limit)) if reason == limit => continue,
            wrong => panic!("ended for a reason that was not given: {wrong:?}"),
        }
        taken += 1;
        assert_eq!(guarded.mutex.owner(), owner);
        let count = guarded.count.get();
        // SAFETY: the mutex is held.
        let before = unsafe { count.read() };
        if chance.below(4) == 0 {
            thread::yield_now();
        }
        // SAFETY: the mutex is held.
        unsafe { count.write(before + 1) };
        unlock(&guarded.mutex);
    }
    taken
}

/// Where a party of the model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waits,
    /// Woken to try.
    Tries,
    /// The mutex was handed to it.
    Has,
    Struck(Reason),
    Ended(Result<(), Reason>),
}

/// The mutex, by lists.
#[derive(Default)]
struct Model {
    owner: Option<u64>,
    queue: VecDeque<usize>,
    stages: Vec<Stage>,
    lost: Vec<u32>,
    /// Somebody was woken and has not tried.
    is_woken: bool,
    /// The next unlock hands over.
    must_hand_over: bool,
    handed: u64,
}

impl Model {
    fn try_lock(&mut self, owner: u64) -> bool {
        let is_free = self.owner.is_none();
        self.owner.get_or_insert(owner);
        is_free
    }

    fn unlock(&mut self) {
        self.owner = None;
        if std::mem::take(&mut self.must_hand_over) {
            if let Some(first) = self.queue.pop_front() {
                self.owner = Some(id(first));
                self.stages[first] = Stage::Has;
                self.handed += 1;
            }
        } else if !self.is_woken
            && let Some(first) = self.queue.pop_front()
        {
            self.is_woken = true;
            self.stages[first] = Stage::Tries;
        }
    }
}

/// What a party of the model is called as an owner.
fn id(one: usize) -> u64 {
    u64::try_from(one).unwrap() + 1
}

struct Both<K: Sharing> {
    mutex: RawMutex<K>,
    model: RefCell<Model>,
    chance: RefCell<Chance>,
    /// Whether there are many calls between the parties' steps, so that the woken ones lose.
    is_busy: bool,
}

impl<K: Sharing> Oracle for Both<K> {
    fn below(&self, end: u64) -> u64 {
        let mut chance = self.chance.borrow_mut();
        if self.is_busy && chance.below(4) > 0 {
            return end - 1;
        }
        chance.below(end)
    }

    fn begin(&self) -> usize {
        let model = &mut *self.model.borrow_mut();
        let one = model.stages.len();
        model.lost.push(0);
        let stage = if model.try_lock(id(one)) {
            Stage::Ended(Ok(()))
        } else {
            model.queue.push_back(one);
            Stage::Waits
        };
        model.stages.push(stage);
        one
    }

    fn is_over(&self, one: usize) -> bool {
        self.model.borrow().stages[one] != Stage::Waits
    }

    fn goes_on(&self, one: usize) {
        let model = &mut *self.model.borrow_mut();
        model.stages[one] = match model.stages[one] {
            Stage::Has => Stage::Ended(Ok(())),
            Stage::Struck(reason) => Stage::Ended(Err(reason)),
            Stage::Tries => {
                model.is_woken = false;
                if model.try_lock(id(one)) {
                    Stage::Ended(Ok(()))
                } else {
                    model.lost[one] += 1;
                    model.must_hand_over |= model.lost[one] >= LOST_MAX;
                    model.queue.push_front(one);
                    Stage::Waits
                }
            }
            stage => panic!("{stage:?} does not go on"),
        };
    }

    fn strike(&self, one: usize, reason: Reason) -> bool {
        let model = &mut *self.model.borrow_mut();
        if model.stages[one] != Stage::Waits {
            return false;
        }
        model.queue.retain(|&other| other != one);
        model.stages[one] = Stage::Struck(reason);
        true
    }

    fn wait(&self, one: usize, party: &impl Suspend) {
        let end = self.mutex.lock(party, id(one));
        assert_eq!(Stage::Ended(end), self.model.borrow().stages[one]);
    }

    fn call(&self) {
        let number = self.below(8);
        let model = &mut *self.model.borrow_mut();
        if number > 0 && model.owner.is_some() {
            unlock(&self.mutex);
            model.unlock();
        }
        if number != 1 {
            assert_eq!(self.mutex.try_lock(1_000), model.try_lock(1_000));
        }
        assert_eq!(self.mutex.is_locked(), model.owner.is_some());
        assert_eq!(self.mutex.owner(), model.owner.unwrap_or(0));
    }
}

/// Random parties that wait within each other's waits: who gets the mutex, who loses it to whom, and to whom it is handed is
/// what the model says.
// contract: Y1, Y12
#[test]
fn it_does_what_the_model_does() {
    does_what_the_model_does::<Shared>();
    does_what_the_model_does::<Local>();
}

fn does_what_the_model_does<K: Sharing>() {
    let mut chance = Chance::new();
    let mut handed = 0;
    for round in 0..rounds(400) {
        let both = Both {
            mutex: RawMutex::<K>::of_kind(),
            model: RefCell::new(Model::default()),
            chance: RefCell::new(chance.fork()),
            is_busy: round % 8 == 7,
        };
        for _ in 0..4 {
            wait_within(&both, 5);
        }
        handed += both.model.borrow().handed;
    }
    assert!(handed > 0, "nobody starved: the test does not get there");
}
