//! Cancels and timeouts at every moment of every wait at the locks, conditions, barriers and counts of one thread, and at those of all
//! threads beside them: nothing stays taken, nobody is forgotten, and what was promised at the end of a wait holds.

mod chance_rig;
mod io_rig;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use chance_rig::Chance;
use io_rig::{stress, watchdog};
use sinew::sync::kinds::{
    Barrier, Condvar, Local, Mutex, RwLock, Semaphore, Shared, Sharing, WaitGroup,
};
use sinew::{WaitError, run, spawn_local, yield_now};

const PARTIES: usize = 12;
const DEEDS: usize = 400;

struct Things<K: Sharing> {
    mutex: Mutex<u32, K>,
    changed: Condvar<K>,
    lock: RwLock<u32, K>,
    barrier: Barrier<K>,
    semaphore: Semaphore<K>,
    group: WaitGroup<K>,
    holders: Cell<usize>,
    readers: Cell<usize>,
    writers: Cell<usize>,
    permits: Cell<usize>,
    /// How often a wait has ended as it should, timed out, was cancelled.
    ends: [Cell<usize>; 3],
}

impl<K: Sharing> Things<K> {
    fn new() -> Self {
        Self {
            mutex: Mutex::new(0),
            changed: Condvar::new(),
            lock: RwLock::new(0),
            barrier: Barrier::new(3),
            semaphore: Semaphore::new(2),
            group: WaitGroup::new(),
            holders: Cell::new(0),
            readers: Cell::new(0),
            writers: Cell::new(0),
            permits: Cell::new(0),
            ends: Default::default(),
        }
    }

    fn end<T>(&self, result: Result<T, WaitError>) -> Option<T> {
        let (end, value) = match result {
            Ok(value) => (0, Some(value)),
            Err(WaitError::Timeout) => (1, None),
            Err(WaitError::Cancelled) => (2, None),
            Err(error) => panic!("{error:?}"),
        };
        self.ends[end].set(self.ends[end].get() + 1);
        value
    }

    fn deed(&self, chance: &mut Chance) {
        let limit = Duration::from_micros(chance.below(4) as u64 * 40);
        match chance.below(7) {
            0 => self.hold(chance, limit),
            1 => self.read(limit),
            2 => self.write(limit),
            3 => {
                self.end(self.barrier.wait_timeout(limit).map(drop));
            }
            4 => self.permit(limit),
            5 => {
                self.group.add(1);
                let _gave_way = yield_now();
                self.group.done();
            }
            _ => {
                self.end(self.group.wait_timeout(limit));
            }
        }
    }

    /// Whether a cancel or a timeout ends the wait for a condition: the mutex is held then.
    fn hold(&self, chance: &mut Chance, limit: Duration) {
        let Some(mut guard) = self.end(self.mutex.lock_timeout(limit)) else {
            return;
        };
        assert_eq!(self.holders.replace(1), 0);
        *guard += 1;
        let _gave_way = yield_now();
        if chance.below(2) == 0 {
            let before = *guard;
            self.holders.set(0);
            self.end(self.changed.wait_timeout(&mut guard, limit));
            assert_eq!(self.holders.replace(1), 0, "it is held again");
            assert!(*guard >= before);
            let _gave_way = yield_now();
        } else {
            self.changed.notify_one();
        }
        assert!(self.mutex.try_lock().is_none());
        self.holders.set(0);
    }

    fn read(&self, limit: Duration) {
        let Some(_guard) = self.end(self.lock.read_timeout(limit)) else {
            return;
        };
        self.readers.set(self.readers.get() + 1);
        let _gave_way = yield_now();
        assert_eq!(self.writers.get(), 0);
        self.readers.set(self.readers.get() - 1);
    }

    fn write(&self, limit: Duration) {
        let Some(mut guard) = self.end(self.lock.write_timeout(limit)) else {
            return;
        };
        assert_eq!((self.writers.replace(1), self.readers.get()), (0, 0));
        *guard += 1;
        let _gave_way = yield_now();
        self.writers.set(0);
        if *guard % 2 == 0 {
            let _read = guard.downgrade();
            self.readers.set(self.readers.get() + 1);
            let _gave_way = yield_now();
            assert_eq!(self.writers.get(), 0);
            self.readers.set(self.readers.get() - 1);
        }
    }

    fn permit(&self, limit: Duration) {
        let Some(_permit) = self.end(self.semaphore.acquire_timeout(limit)) else {
            return;
        };
        self.permits.set(self.permits.get() + 1);
        assert!(self.permits.get() <= 2);
        let _gave_way = yield_now();
        self.permits.set(self.permits.get() - 1);
    }
}

/// Parties do what they like until they have done enough; one that was cancelled goes on as another, for the rest.
fn whatever_ends_a_wait<K: Sharing>() {
    let _watchdog = watchdog();
    let mut chance = Chance::new();
    let things = Rc::new(Things::<K>::new());
    let left = Rc::new(Cell::new(PARTIES * DEEDS * stress()));
    run(|| {
        let parties: Rc<RefCell<Vec<_>>> = Rc::default();
        let enter = |mut chance: Chance| {
            let (things, left) = (things.clone(), left.clone());
            spawn_local(move || {
                while yield_now().is_ok() && left.get() > 0 {
                    left.set(left.get() - 1);
                    things.deed(&mut chance);
                }
            })
        };
        for _ in 0..PARTIES {
            parties.borrow_mut().push(enter(chance.fork()));
        }
        while left.get() > 0 {
            for _ in 0..chance.below(4) {
                yield_now().unwrap();
            }
            if chance.below(20) == 0 {
                let gone = parties.borrow_mut().swap_remove(chance.below(PARTIES));
                gone.cancel("at random");
                // It may not have started.
                if let Err(error) = gone.join() {
                    assert!(error.is_cancelled(), "{error}");
                }
                parties.borrow_mut().push(enter(chance.fork()));
            }
        }
        for party in parties.take() {
            party.join().unwrap();
        }
        // One has come, and none is counted that has left.
        let theirs = things.clone();
        let waiting = spawn_local(move || theirs.barrier.wait().is_ok());
        yield_now().unwrap();
        assert!(things.barrier.try_wait().is_none());
        waiting.cancel("enough");
        assert!(!waiting.join().unwrap());
    });
    for (end, what) in things.ends.iter().zip(["ended", "timed out", "cancelled"]) {
        assert!(end.get() > 0, "none {what}");
    }
    assert!(things.mutex.try_lock().is_some());
    assert!(things.lock.try_write().is_some());
    assert_eq!(things.semaphore.value(), 2);
    assert_eq!(things.group.count(), 0);
    assert_eq!(things.changed.notify_all(), 0);
}

// contract: Y1, Y2, Y3, Y4, Y5, Y6, Y11, Y12
#[test]
fn cancels_and_timeouts_at_any_moment_leave_nothing_behind() {
    whatever_ends_a_wait::<Local>();
    whatever_ends_a_wait::<Shared>();
}
