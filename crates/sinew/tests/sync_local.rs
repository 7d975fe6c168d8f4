//! The primitives of one thread, and that they do what those of all threads do: each test here runs for both kinds.
#![expect(
    clippy::print_stdout,
    reason = "a failed run is repeated with the seed that it printed"
)]

mod io_rig;

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::rc::Rc;
use std::time::Duration;

use io_rig::{stress, watchdog};
use sinew::sync::channel;
use sinew::sync::kinds::{
    Event, Local, Mutex, Receiver, Semaphore, Sender, Shared, Sharing, WaitGroup,
};
use sinew::sync::local;
use sinew::{WaitError, run, spawn_local, yield_now};

/// A small source of chance (Steele, Lea, Flood: SplitMix, 2014).
struct Chance(Cell<u64>);

impl Chance {
    fn new() -> Self {
        let seed = match std::env::var("SINEW_SEED") {
            Ok(seed) => seed.parse().expect("SINEW_SEED is a number"),
            Err(_) => RandomState::new().hash_one(0),
        };
        println!("SINEW_SEED={seed}");
        Self(Cell::new(seed))
    }

    fn below(&self, end: u64) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        let mut z = self.0.get();
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }

    fn limit(&self) -> Duration {
        Duration::from_micros([0, 1, 20, 1_000_000_000][usize::try_from(self.below(4)).unwrap()])
    }
}

/// Runs the deed in many coroutines of one scheduler, by turns, some of which are cancelled at random moments.
fn storm(deed: impl Fn(&Chance) + 'static) {
    const COROUTINES: usize = 24;
    let _watchdog = watchdog();
    let chance = Rc::new(Chance::new());
    let deed = Rc::new(deed);
    run(|| {
        let children: Vec<_> = (0..COROUTINES)
            .map(|_| {
                let (chance, deed) = (chance.clone(), deed.clone());
                spawn_local(move || {
                    for _ in 0..300 * stress() {
                        deed(&chance);
                        if chance.below(4) == 0 && yield_now().is_err() {
                            return;
                        }
                    }
                })
            })
            .collect();
        for child in &children {
            if chance.below(3) == 0 {
                child.cancel("by chance");
            }
            for _ in 0..chance.below(30) {
                yield_now().unwrap();
            }
        }
        for child in children {
            if let Err(error) = child.join() {
                assert!(error.is_cancelled(), "{error:?}");
            }
        }
    });
}

/// Whether it came through; a failure must be one of those that the storm brings about.
fn came<T>(result: Result<T, WaitError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(WaitError::Timeout | WaitError::Cancelled) => None,
        Err(other) => panic!("{other:?}"),
    }
}

fn mutex_excludes<K: Sharing>() {
    let mutex = Rc::new(Mutex::<_, K>::new(0));
    let count = Rc::new(Cell::new(0));
    let (locked, counted) = (mutex.clone(), count.clone());
    storm(move |chance| {
        let Some(mut guard) = came(locked.lock_timeout(chance.limit())) else {
            return;
        };
        let before = *guard;
        if chance.below(2) == 0 {
            // A cancel changes nothing about what is held.
            let _cancelled = yield_now().is_err();
        }
        *guard = before + 1;
        counted.set(counted.get() + 1);
    });
    assert_eq!(*mutex.try_lock().unwrap(), count.get());
    assert!(count.get() > 0);
}

// contract: Y1, Y12
#[test]
fn a_mutex_excludes_whatever_ends_the_waits() {
    mutex_excludes::<Shared>();
    mutex_excludes::<Local>();
}

fn permits_are_exact<K: Sharing>() {
    const PERMITS: usize = 3;
    let semaphore = Rc::new(Semaphore::<K>::new(PERMITS));
    let out = Rc::new(Cell::new(0));
    let storming = semaphore.clone();
    storm(move |chance| {
        let number = usize::try_from(1 + chance.below(PERMITS as u64)).unwrap();
        let taken = came(storming.acquire_many_timeout(number, chance.limit()));
        let Some(_permit) = taken else { return };
        out.set(out.get() + number);
        assert!(out.get() <= PERMITS, "made up");
        let _cancelled = yield_now().is_err();
        out.set(out.get() - number);
    });
    assert_eq!(semaphore.value(), PERMITS);
}

// contract: Y4, Y12
#[test]
fn permits_are_exact_whatever_ends_the_waits() {
    permits_are_exact::<Shared>();
    permits_are_exact::<Local>();
}

fn values_end_on_one_side<K: Sharing>((sender, receiver): (Sender<u64, K>, Receiver<u64, K>)) {
    let next = Cell::new(0);
    let got = Rc::new(Cell::new((0_u64, 0_u64)));
    let sent = Rc::new(Cell::new((0_u64, 0_u64)));
    let add = |sum: &Cell<(u64, u64)>, value| {
        let (count, total) = sum.get();
        sum.set((count + 1, total + value));
    };
    let (receives, sends, receiving) = (got.clone(), sent.clone(), receiver.clone());
    storm(move |chance| {
        if chance.below(2) == 0 {
            let value = next.replace(next.get() + 1);
            match sender.send_timeout(value, chance.limit().min(Duration::from_micros(20))) {
                Ok(()) => add(&sends, value),
                Err(error) => {
                    assert_eq!(error.value, value);
                    came(Err::<(), _>(error.reason));
                }
            }
        } else {
            let limit = chance.limit().min(Duration::from_micros(20));
            if let Some(value) = came(receiving.recv_timeout(limit)) {
                add(&receives, value);
            }
        }
    });
    assert!(receiver.is_closed(), "the storm has dropped the sender");
    while let Ok(value) = receiver.try_recv() {
        add(&got, value);
    }
    assert_eq!(got.get(), sent.get());
    assert!(got.get().0 > 0);
}

// contract: Y9, Y12
#[test]
fn a_value_ends_on_exactly_one_side() {
    values_end_on_one_side(channel::rendezvous());
    values_end_on_one_side(local::channel::rendezvous());
    values_end_on_one_side(channel::bounded(2));
    values_end_on_one_side(local::channel::bounded(2));
    values_end_on_one_side(channel::unbounded());
    values_end_on_one_side(local::channel::unbounded());
}

fn signals_are_exact<K: Sharing>() {
    let event = Rc::new(Event::<K>::auto());
    let (set, taken) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0_u64)));
    let (signals, takes, signalled) = (set.clone(), taken.clone(), event.clone());
    storm(move |chance| {
        if chance.below(2) == 0 {
            // One that is kept takes no other.
            if !signalled.is_set() {
                signalled.set();
                signals.set(signals.get() + 1);
            }
        } else if came(signalled.wait_timeout(chance.limit().min(Duration::from_micros(20))))
            .is_some()
        {
            takes.set(takes.get() + 1);
        }
    });
    assert_eq!(taken.get() + u64::from(event.try_wait()), set.get());
    assert!(taken.get() > 0);
}

// contract: E1, Y12
#[test]
fn a_signal_is_taken_once() {
    signals_are_exact::<Shared>();
    signals_are_exact::<Local>();
}

fn group_counts_down<K: Sharing>() {
    run(|| {
        let group = WaitGroup::<K>::new();
        group.add(3);
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let group = group.clone();
                spawn_local(move || group.wait())
            })
            .collect();
        for left in (0..3).rev() {
            yield_now().unwrap();
            assert!(!waiters[0].is_finished());
            group.done();
            assert_eq!(group.count(), left);
        }
        for waiter in waiters {
            waiter.join().unwrap().unwrap();
        }
    });
}

// contract: Y5, Y12
#[test]
fn a_wait_group_counts_down() {
    group_counts_down::<Shared>();
    group_counts_down::<Local>();
}

/// Waiters are served in the order in which they came.
fn in_order<K: Sharing>() {
    run(|| {
        let (sender, receiver) = channel::unbounded();
        let mutex = Rc::new(Mutex::<(), K>::default());
        let guard = mutex.lock().unwrap();
        for number in 0..10 {
            let (mutex, sender) = (mutex.clone(), sender.clone());
            sinew::go_local(move || {
                let _guard = mutex.lock().unwrap();
                sender.send(number).unwrap();
            });
            // It comes, before the next one is there.
            yield_now().unwrap();
        }
        drop(sender);
        drop(guard);
        assert!(receiver.iter().eq(0..10));
    });
}

// contract: Y1, Y12
#[test]
fn those_who_wait_are_served_in_order() {
    in_order::<Shared>();
    in_order::<Local>();
}

// contract: Y12
#[test]
fn a_plain_thread_has_what_is_there_and_waits_for_nothing_else() {
    let deadlock = Err(WaitError::Deadlock);
    let short = Duration::from_millis(1);
    let mutex = local::Mutex::new(1);
    let guard = mutex.lock().unwrap();
    assert_eq!(mutex.lock().map(|guard| *guard), deadlock);
    assert_eq!(mutex.lock_timeout(short).map(drop), Err(WaitError::Timeout));
    drop(guard);
    assert_eq!(*mutex.lock().unwrap(), 1);

    let event = local::Event::auto();
    assert_eq!(event.wait(), deadlock.map(|_: i32| ()));
    assert_eq!(
        event.wait_deadline(sinew::time::now() + short),
        Err(WaitError::Timeout)
    );
    event.set();
    assert_eq!((event.wait(), event.is_set()), (Ok(()), false));

    let (sender, receiver) = local::channel::bounded(1);
    assert_eq!(receiver.recv(), deadlock);
    sender.send(1).unwrap();
    let full = sender.send(2).unwrap_err();
    assert_eq!((full.value, full.reason), (2, WaitError::Deadlock));
    assert_eq!(receiver.recv_timeout(short), Ok(1));
    assert_eq!(receiver.recv_timeout(short), Err(WaitError::Timeout));
    drop(sender);
    assert_eq!(receiver.recv(), Err(WaitError::Closed));

    let semaphore = local::Semaphore::new(1);
    semaphore.down().unwrap();
    assert_eq!(semaphore.down(), Err(WaitError::Deadlock));
    assert_eq!(semaphore.down_timeout(short), Err(WaitError::Timeout));
    semaphore.close();
    assert_eq!(semaphore.down(), Err(WaitError::Closed));

    let group = local::WaitGroup::new();
    assert_eq!(group.wait(), Ok(()));
    group.add(1);
    assert_eq!(group.wait(), Err(WaitError::Deadlock));
    assert_eq!(group.wait_timeout(short), Err(WaitError::Timeout));
}

/// Two coroutines that each hold what the other waits for: the dump names the holders, whatever the kind.
// contract: Y12
#[test]
fn the_holder_of_a_local_mutex_is_known() {
    run(|| {
        let mutex = Rc::new(local::Mutex::new(()));
        let guard = mutex.lock().unwrap();
        let locking = mutex.clone();
        let waiter = spawn_local(move || locking.lock().map(drop));
        yield_now().unwrap();
        let seen = sinew::inspect::find(waiter.id()).unwrap();
        let me = sinew::current().unwrap().id();
        assert!(format!("{seen:?}").contains(&me.to_string()), "{seen:?}");
        drop(guard);
        waiter.join().unwrap().unwrap();
    });
}
