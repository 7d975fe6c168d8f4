//! A hundred thousand at once, and nothing allocated by a wait.

mod memory_rig;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Mutex as StdMutex;
use std::time::Duration;

use memory_rig::calls;
use sinew::sync::channel::{bounded, rendezvous};
use sinew::sync::{Mutex, WaitGroup};
use sinew::{go_local, park, run, sleep, spawn_local, yield_now};

/// Memory is the process's, so one test at a time.
static ALONE: StdMutex<()> = StdMutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

// contract: S16, S12, S13, E4
#[test]
fn waits_and_wakes_allocate_nothing() {
    let _alone = alone();
    run(|| {
        let (ping, pinged) = rendezvous::<usize>();
        let (pong, ponged) = bounded::<usize>(1);
        let mutex = Rc::new(Mutex::new(0));
        let group = WaitGroup::new();
        let main = sinew::current().unwrap().unparker();
        let stop = Rc::new(Cell::new(false));
        let partner = spawn_local({
            let (mutex, group, stop) = (mutex.clone(), group.clone(), stop.clone());
            move || {
                while !stop.get() {
                    let n = pinged.recv().unwrap();
                    pong.send(n).unwrap();
                    let mut guard = mutex.lock().unwrap();
                    yield_now().unwrap();
                    *guard += 1;
                    drop(guard);
                    group.done();
                    main.unpark();
                    park().unwrap();
                }
            }
        });
        let unparker = partner.unparker();
        let round = |n: usize, last: bool| {
            group.add(1);
            ping.send(n).unwrap();
            assert_eq!(ponged.recv().unwrap(), n);
            drop(mutex.lock().unwrap());
            assert!(mutex.lock_timeout(Duration::from_secs(1)).is_ok());
            group.wait().unwrap();
            park().unwrap();
            assert!(park_briefly().is_err());
            sleep(Duration::from_micros(1)).unwrap();
            stop.set(last);
            unparker.unpark();
        };
        for n in 0..10 {
            round(n, false);
        }
        let before = calls();
        for n in 0..1000 {
            round(n, false);
        }
        let made = calls() - before;
        assert_eq!(made, 0, "a park or an unpark went through the allocator");
        round(0, true);
        partner.join().unwrap();
    });
}

fn park_briefly() -> Result<(), sinew::WaitError> {
    sinew::park_timeout(Duration::from_nanos(1))
}

#[test]
fn spawning_small_closures_allocates_nothing_once_warm() {
    let _alone = alone();
    run(|| {
        let total = Rc::new(Cell::new(0_usize));
        let spawn_some = || {
            for n in 0..100 {
                let total = total.clone();
                go_local(move || total.set(total.get() + n));
            }
            let total = total.clone();
            spawn_local(move || total.get()).join().unwrap()
        };
        spawn_some();
        let before = calls();
        spawn_some();
        assert_eq!(calls() - before, 0);
    });
}

// contract: S16
#[test]
fn a_hundred_thousand_sleep_at_once() {
    let _alone = alone();
    run(|| {
        let woken = Rc::new(Cell::new(0));
        let cancelled = Rc::new(Cell::new(0));
        let handles: Vec<_> = (0..100_000)
            .map(|n| {
                let (woken, cancelled) = (woken.clone(), cancelled.clone());
                spawn_local(move || {
                    // Half of them would sleep for an hour.
                    let time = Duration::from_millis(if n % 2 == 0 { 300 } else { 3_600_000 });
                    match sleep(time) {
                        Ok(()) => woken.set(woken.get() + 1),
                        Err(_) => cancelled.set(cancelled.get() + 1),
                    }
                })
            })
            .collect();
        yield_now().unwrap();
        assert!(sinew::inspect::stats().total.alive >= 100_000);
        for handle in handles.iter().skip(1).step_by(2) {
            handle.cancel("enough slept");
        }
        for handle in handles {
            handle.join().unwrap();
        }
        assert_eq!((woken.get(), cancelled.get()), (50_000, 50_000));
    });
    let stats = sinew::inspect::stats();
    assert_eq!(stats.total.timers, 0);
}

#[test]
fn memory_is_returned_after_a_crowd() {
    let _alone = alone();
    run(|| {
        for _ in 0..20_000 {
            go_local(park_then_end);
        }
        yield_now().unwrap();
        let mut parked = Vec::new();
        sinew::inspect::for_each(|info| {
            // Those that sleep, and those whose sleep is over already on a slow machine.
            if info.stack_bytes.is_some() && info.state != sinew::inspect::State::Running {
                parked.push(info.id);
            }
        });
        assert!(parked.len() >= 20_000);
    });
    // The cache of warm stacks is bounded, and is given back with the scheduler.
    let committed = sinew::inspect::stats().stack_committed_bytes();
    assert!(
        committed < 64 << 20,
        "{committed} bytes are still committed"
    );
}

fn park_then_end() {
    sleep(Duration::from_millis(200)).unwrap();
}
