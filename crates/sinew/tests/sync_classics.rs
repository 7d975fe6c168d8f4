//! The classic problems: philosophers, readers and writers, smokers, producers and consumers.

mod io_rig;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use io_rig::watchdog;
use sinew::sync::{Condvar, Mutex, RwLock, Semaphore};
use sinew::{WaitError, go_local, run, spawn_local, yield_now};

/// Five philosophers eat with two forks each; four at a time sit down, so that one can always eat.
// contract: Y1, Y4
#[test]
fn philosophers_dine() {
    const MEALS: usize = 200;
    let _watchdog = watchdog();
    let forks: Rc<Vec<Mutex<usize>>> = Rc::new((0..5).map(|_| Mutex::new(0)).collect());
    let chairs = Rc::new(Semaphore::new(4));
    run(|| {
        for me in 0..5 {
            let (forks, chairs) = (forks.clone(), chairs.clone());
            go_local(move || {
                for _ in 0..MEALS {
                    let _chair = chairs.acquire()?;
                    let mut left = forks[me].lock()?;
                    yield_now()?;
                    let mut right = forks[(me + 1) % 5].lock()?;
                    (*left, *right) = (*left + 1, *right + 1);
                    yield_now()?;
                }
                Ok::<(), WaitError>(())
            });
        }
    });
    assert!(forks.iter().all(|fork| *fork.lock().unwrap() == 2 * MEALS));
    assert_eq!(chairs.value(), 4);
}

/// Philosophers with a condition variable, as a monitor: each takes both forks or none, on threads and schedulers.
// contract: Y3, Y11
#[test]
fn philosophers_dine_in_a_monitor() {
    const MEALS: usize = 100;
    let _watchdog = watchdog();
    let table = (Mutex::new([false; 5]), Condvar::new());
    let eaten = AtomicUsize::new(0);
    let dine = |me: usize| {
        let (left, right) = (me, (me + 1) % 5);
        for _ in 0..MEALS {
            let mut forks = table.0.lock().unwrap();
            table
                .1
                .wait_while(&mut forks, |forks| forks[left] || forks[right])
                .unwrap();
            (forks[left], forks[right]) = (true, true);
            drop(forks);
            eaten.fetch_add(1, SeqCst);
            yield_now().unwrap();
            let mut forks = table.0.lock().unwrap();
            (forks[left], forks[right]) = (false, false);
            drop(forks);
            table.1.notify_all();
        }
    };
    thread::scope(|scope| {
        let dine = &dine;
        scope.spawn(move || {
            run(|| {
                sinew::scope(|scope| {
                    scope.spawn(|| dine(0));
                    scope.spawn(|| dine(1));
                });
            });
        });
        scope.spawn(move || run(|| dine(2)));
        scope.spawn(move || dine(3));
        dine(4);
    });
    assert_eq!(eaten.into_inner(), 5 * MEALS);
    assert_eq!(table.0.into_inner(), [false; 5]);
}

/// Readers that overlap without end, and writers that are always there: each side's longest wait, counted in turns of the
/// other side, is what the policy says.
// contract: Y2
#[test]
fn readers_and_writers_starve_nobody() {
    const ROUNDS: usize = 500;
    const READERS: usize = 5;
    const WRITERS: usize = 4;
    #[derive(Default)]
    struct Shared {
        lock: RwLock<()>,
        reads: Cell<usize>,
        writes: Cell<usize>,
        most_writes_before_a_read: Cell<usize>,
        most_reads_before_a_write: Cell<usize>,
        alive: Cell<usize>,
    }
    let _watchdog = watchdog();
    let shared = Rc::new(Shared::default());
    run(|| {
        for _ in 0..READERS {
            let shared = shared.clone();
            go_local(move || {
                for _ in 0..ROUNDS {
                    let writes = shared.writes.get();
                    let guard = shared.lock.read()?;
                    let passed = shared.writes.get() - writes;
                    let most = &shared.most_writes_before_a_read;
                    most.set(most.get().max(passed));
                    shared.reads.set(shared.reads.get() + 1);
                    yield_now()?;
                    drop(guard);
                }
                Ok::<(), WaitError>(())
            });
        }
        for _ in 0..WRITERS {
            let shared = shared.clone();
            go_local(move || {
                for _ in 0..ROUNDS {
                    let reads = shared.reads.get();
                    let guard = shared.lock.write()?;
                    let passed = shared.reads.get() - reads;
                    let most = &shared.most_reads_before_a_write;
                    most.set(most.get().max(passed));
                    shared.writes.set(shared.writes.get() + 1);
                    assert_eq!(shared.alive.replace(1), 0);
                    yield_now()?;
                    shared.alive.set(0);
                    drop(guard);
                }
                Ok::<(), WaitError>(())
            });
        }
    });
    assert_eq!(shared.reads.get(), READERS * ROUNDS);
    assert_eq!(shared.writes.get(), WRITERS * ROUNDS);
    // One writer at most; and of rounds of readers, one more than there are writers before.
    assert!(shared.most_writes_before_a_read.get() <= 1);
    assert!(shared.most_reads_before_a_write.get() <= WRITERS * READERS);
}

/// An agent lays out two of three ingredients; the smoker who has the third smokes (Patil, 1971). The pushers are Downey's.
// contract: Y4
#[test]
fn smokers_smoke() {
    const ROUNDS: usize = 300;
    #[derive(Default)]
    struct Table {
        on_it: Mutex<[usize; 3]>,
        smoked: [Cell<usize>; 3],
    }
    let _watchdog = watchdog();
    let of = |count: usize| Rc::new([count; 3].map(Semaphore::new));
    let (ingredients, smokers) = (of(0), of(0));
    let agent = Rc::new(Semaphore::new(1));
    let table = Rc::new(Table::default());
    run(|| {
        let mut helpers = Vec::new();
        for which in 0..3 {
            let (ingredients, smokers) = (ingredients.clone(), smokers.clone());
            let table_of_pusher = table.clone();
            helpers.push(spawn_local(move || {
                while ingredients[which].down().is_ok() {
                    let mut on_it = table_of_pusher.on_it.lock().unwrap();
                    let other = (0..3).find(|&other| other != which && on_it[other] > 0);
                    if let Some(other) = other {
                        on_it[other] -= 1;
                        smokers[3 - which - other].up();
                    } else {
                        on_it[which] += 1;
                    }
                }
            }));
        }
        for me in 0..3 {
            let (smokers, agent, table) = (smokers.clone(), agent.clone(), table.clone());
            helpers.push(spawn_local(move || {
                while smokers[me].down().is_ok() {
                    table.smoked[me].set(table.smoked[me].get() + 1);
                    agent.up();
                }
            }));
        }
        for round in 0..ROUNDS {
            agent.down().unwrap();
            let missing = round * 7 % 3;
            ingredients[(missing + 1) % 3].up();
            ingredients[(missing + 2) % 3].up();
        }
        agent.down().unwrap();
        for semaphore in ingredients.iter().chain(smokers.iter()) {
            assert_eq!(semaphore.value(), 0);
            assert!(semaphore.close());
        }
        for helper in helpers {
            helper.join().unwrap();
        }
    });
    let smoked: Vec<_> = table.smoked.iter().map(Cell::get).collect();
    assert_eq!(smoked, [ROUNDS / 3; 3]);
}

/// A buffer of three with two semaphores, between coroutines of one scheduler.
// contract: Y4
#[test]
fn producers_and_consumers_by_semaphores() {
    const EACH: usize = 1_000;
    let _watchdog = watchdog();
    let (free, full) = (Rc::new(Semaphore::new(3)), Rc::new(Semaphore::new(0)));
    let buffer = Rc::new(RefCell::new(VecDeque::new()));
    let sum = Rc::new(Cell::new(0));
    run(|| {
        for _ in 0..3 {
            let (free, full, buffer) = (free.clone(), full.clone(), buffer.clone());
            go_local(move || {
                for number in 0..EACH {
                    free.down().unwrap();
                    buffer.borrow_mut().push_back(number);
                    assert!(buffer.borrow().len() <= 3);
                    full.up();
                }
            });
        }
        for _ in 0..2 {
            let (free, full, buffer) = (free.clone(), full.clone(), buffer.clone());
            let sum = sum.clone();
            go_local(move || {
                for _ in 0..EACH * 3 / 2 {
                    full.down().unwrap();
                    let number = buffer.borrow_mut().pop_front().unwrap();
                    sum.set(sum.get() + number);
                    free.up();
                }
            });
        }
    });
    assert_eq!(sum.get(), 3 * EACH * (EACH - 1) / 2);
    assert_eq!(
        (free.value(), full.value(), buffer.borrow().len()),
        (3, 0, 0)
    );
}

/// A buffer with a condition variable for each side, between schedulers and threads.
// contract: Y3, Y11
#[test]
fn producers_and_consumers_by_condition_variables() {
    const EACH: usize = 2_000;
    #[derive(Default)]
    struct Buffer {
        values: Mutex<VecDeque<usize>>,
        has_room: Condvar,
        has_values: Condvar,
    }
    impl Buffer {
        fn put(&self, value: usize) {
            let mut values = self.values.lock().unwrap();
            self.has_room
                .wait_while(&mut values, |values| values.len() == 4)
                .unwrap();
            values.push_back(value);
            self.has_values.notify_one();
        }

        fn take(&self) -> usize {
            let mut values = self.values.lock().unwrap();
            self.has_values
                .wait_while(&mut values, |values| values.is_empty())
                .unwrap();
            self.has_room.notify_one();
            values.pop_front().unwrap()
        }
    }
    let _watchdog = watchdog();
    let buffer = Arc::new(Buffer::default());
    let sum = AtomicUsize::new(0);
    let produce = |buffer: &Buffer| (0..EACH).for_each(|value| buffer.put(value));
    let consume = |buffer: &Buffer| {
        let own: usize = (0..EACH).map(|_| buffer.take()).sum();
        sum.fetch_add(own, SeqCst);
    };
    thread::scope(|scope| {
        let (produce, consume, buffer) = (&produce, &consume, &buffer);
        scope.spawn(move || {
            run(|| {
                sinew::scope(|scope| {
                    scope.spawn(|| produce(buffer));
                    scope.spawn(|| consume(buffer));
                });
            });
        });
        scope.spawn(move || {
            run(|| {
                sinew::scope(|scope| {
                    scope.spawn(|| consume(buffer));
                    scope.spawn(|| produce(buffer));
                });
            });
        });
        scope.spawn(move || consume(buffer));
        produce(buffer);
    });
    assert_eq!(sum.into_inner(), 3 * EACH * (EACH - 1) / 2);
    assert!(buffer.values.try_lock().unwrap().is_empty());
}
