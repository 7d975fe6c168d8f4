//! What other files do not have across schedulers and threads: the wait group, the broadcast and the lazy lock, each met by
//! coroutines of two schedulers and by two plain threads at a time.

mod io_rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use io_rig::{stress, watchdog};
use sinew::sync::channel::broadcast;
use sinew::sync::channel::broadcast::RecvError;
use sinew::sync::{Barrier, LazyLock, WaitGroup};
use sinew::{WaitError, go_local, run};

const COROUTINES: usize = 4;

/// How many parties [`everywhere`] runs.
const PARTIES: usize = 2 * COROUTINES + 2;

/// Calls `f` with a number in coroutines of two schedulers and in two plain threads, all at the same time.
fn everywhere(f: impl Fn(usize) + Send + Sync + 'static) {
    let f = Arc::new(f);
    let threads: Vec<_> = (0..4)
        .map(|which| {
            let f = f.clone();
            thread::spawn(move || match which {
                0 | 1 => run(|| {
                    for number in 0..COROUTINES {
                        let f = f.clone();
                        go_local(move || f(which * COROUTINES + number));
                    }
                }),
                _ => f(2 * COROUTINES + which - 2),
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Each waits for all to have done their part of a round, some of the waits timing out meanwhile.
// contract: Y5, Y11
#[test]
fn a_wait_group_lets_nobody_by_before_all_are_done() {
    let _watchdog = watchdog();
    let rounds = 200 * stress();
    let groups: Arc<Vec<WaitGroup>> = Arc::new((0..rounds).map(|_| WaitGroup::new()).collect());
    for group in groups.iter() {
        group.add(PARTIES);
    }
    let done: Arc<Vec<AtomicUsize>> = Arc::new((0..rounds).map(|_| AtomicUsize::new(0)).collect());
    everywhere(move |number| {
        for (group, done) in groups.iter().zip(done.iter()) {
            done.fetch_add(1, SeqCst);
            group.done();
            if number % 2 == 0
                && let Err(error) = group.wait_timeout(Duration::from_micros(10))
            {
                assert_eq!(error, WaitError::Timeout);
            }
            group.wait().unwrap();
            assert_eq!(done.load(SeqCst), PARTIES);
        }
    });
}

/// Every party sends to all and hears all, itself too.
// contract: Y9, Y11
#[test]
fn a_broadcast_reaches_everyone_everywhere() {
    let _watchdog = watchdog();
    let each = 100 * stress();
    let (sender, receiver) = broadcast(PARTIES * each);
    let (begin, receiver) = (Barrier::new(PARTIES), std::sync::Mutex::new(receiver));
    everywhere(move |number| {
        let receiver = receiver.lock().unwrap().clone();
        // Nobody sends before everyone listens.
        begin.wait().unwrap();
        let mut heard = [0; PARTIES];
        for value in 0..each {
            sender.send((number, value)).unwrap();
            if let Err(error) = receiver.recv_timeout(Duration::ZERO).map(|(from, value)| {
                assert_eq!(value, heard[from], "in the sender's order");
                heard[from] += 1;
            }) {
                assert_eq!(error, RecvError::Wait(WaitError::Timeout));
            }
        }
        while heard.iter().sum::<usize>() < PARTIES * each {
            let (from, value) = receiver.recv().unwrap();
            assert_eq!(value, heard[from], "in the sender's order");
            heard[from] += 1;
        }
        assert_eq!(heard, [each; PARTIES]);
    });
}

/// The initialiser waits itself, so that the others find it under way.
// contract: Y7, Y11
#[test]
fn a_lazy_lock_is_made_once_for_everyone() {
    let _watchdog = watchdog();
    for _ in 0..20 * stress() {
        let made = Arc::new(AtomicUsize::new(0));
        let making = made.clone();
        let value = LazyLock::new(move || {
            sinew::sleep(Duration::from_micros(50)).unwrap();
            making.fetch_add(1, SeqCst) + 7
        });
        everywhere(move |_| assert_eq!(*value, 7));
        assert_eq!(made.load(SeqCst), 1);
    }
}
