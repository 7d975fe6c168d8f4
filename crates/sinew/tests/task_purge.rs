//! What a pool's purge and its cancel drop: it may come back to the pool, and cannot have it end.

mod pool_rig;

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use pool_rig::{Gate, check, counted, pool, settled, until};
use sinew::future::PromiseState;
use sinew::task::{Outcome, TaskPool};
use sinew::{ErrorKind, WaitError, run, spawn_local};

const HOUR: Duration = Duration::from_secs(3600);

/// Calls this with the pool when it is dropped.
struct Calling<F: FnMut(Arc<TaskPool>)>(Option<Arc<TaskPool>>, F);

impl<F: FnMut(Arc<TaskPool>)> Drop for Calling<F> {
    fn drop(&mut self) {
        if let Some(pool) = self.0.take() {
            (self.1)(pool);
        }
    }
}

/// Has a task purged, or cancelled with its pool, whose data calls `f`; then lets the pool go on.
fn dropped_by(is_cancel: bool, f: impl FnMut(Arc<TaskPool>) + Send + 'static) -> Arc<TaskPool> {
    let pool = Arc::new(pool(1, 1));
    let gate = Gate::new(&pool);
    let data = Calling(Some(pool.clone()), f);
    let queued = pool.submit(move |_| drop(data)).unwrap();
    if is_cancel {
        pool.cancel("over");
    } else {
        queued.cancel("purge it");
        let _next = pool.try_submit(|_| ());
    }
    assert_eq!(queued.state(), PromiseState::Cancelled);
    assert_eq!(queued.end().unwrap().has_started, Some(false));
    check(pool.stats());
    gate.open();
    pool
}

// contract: T11
#[test]
fn to_destroy_the_pool_there_is_state_and_nothing_is_closed() {
    let (say, said) = mpsc::channel();
    let pool = dropped_by(false, move |pool| {
        // The submitter has the pool too: it is not to be had.
        let pool = Arc::try_unwrap(pool).unwrap_err();
        assert_eq!(pool.wait(), Err(WaitError::State));
        say.send(pool.stats().is_closed).unwrap();
    });
    assert!(!said.recv().unwrap());
    pool.submit(|_| ()).unwrap().wait().unwrap();
    settled(&pool);
}

// contract: T11
#[test]
fn the_only_handle_in_what_is_dropped_is_refused_too() {
    // The one way: somebody else's wait ends in the drop, with a pool that is not borrowed. Its own drop is seen to as a
    // worker's is: it returns at once, and the threads end by themselves.
    let other = TaskPool::builder()
        .threads(1)
        .name("other")
        .build()
        .unwrap();
    let kept = Arc::new(Mutex::new(Some(other)));
    let theirs = kept.clone();
    let pool = dropped_by(false, move |_| {
        let other = theirs.lock().unwrap().take().unwrap();
        other.destroy().unwrap();
    });
    assert!(kept.lock().unwrap().is_none(), "another pool may go");
    settled(&pool);
    until(|| pool_rig::threads_named("other") == 0);
}

// contract: T11, T14
#[test]
fn it_may_come_back_in_every_other_way() {
    for is_cancel in [false, true] {
        let (say, said) = mpsc::channel();
        let pool = dropped_by(is_cancel, move |pool| {
            let stats = pool.stats();
            check(stats);
            assert_eq!(stats.is_closed, is_cancel);
            let tried = pool.try_submit(|_| Outcome::Success(1));
            assert_eq!(tried.is_ok(), !is_cancel);
            if let Err(refused) = tried {
                assert!(refused.is_closed());
            }
            // Closed or not: its end would wait for this to be over.
            pool.close();
            assert_eq!(pool.wait(), Err(WaitError::State));
            assert_eq!(pool.wait_timeout(HOUR), Err(WaitError::State));
            assert!(!pool.is_drained());
            assert!(pool.submit(|_| ()).unwrap_err().is_closed());
            assert_eq!(
                pool.run_blocking(|| ()).unwrap_err().kind(),
                ErrorKind::Closed
            );
            pool.cancel("again");
            say.send(()).unwrap();
        });
        said.recv().unwrap();
        let stats = settled(&pool);
        assert!(stats.is_cancelled);
    }
}

// contract: T11
#[test]
fn it_may_wait_for_other_things_meanwhile() {
    run(|| {
        let (say, said) = mpsc::channel();
        let waited = spawn_local(move || {
            let pool = dropped_by(false, move |pool| {
                // Another coroutine of the thread is not a part of the purge.
                let theirs = pool.clone();
                let elsewhere = spawn_local(move || {
                    theirs.close();
                    theirs.wait_timeout(Duration::ZERO)
                });
                say.send(elsewhere.join().unwrap()).unwrap();
            });
            settled(&pool);
        });
        waited.join().unwrap();
        assert_eq!(said.recv().unwrap(), Err(WaitError::Timeout));
    });
}

// contract: T11
#[test]
fn a_purge_of_many_drops_each_once_while_others_submit() {
    for round in 0..pool_rig::rounds(20) {
        let pool = Arc::new(pool(1, 8));
        let gate = Gate::new(&pool);
        let mut counts = Vec::new();
        for _ in 0..8 {
            let (data, drops) = counted();
            let ours = pool.clone();
            let data = Calling(Some(pool.clone()), move |pool| {
                let _data = &data;
                let _again = pool.try_submit(|_| ());
            });
            let future = ours.submit(move |_| drop(data)).unwrap();
            future.cancel("purge it");
            counts.push(drops);
        }
        let threads: Vec<_> = (0..2 + round % 2)
            .map(|_| {
                let pool = pool.clone();
                thread::spawn(move || {
                    let mut taken = 0;
                    for _ in 0..8 {
                        taken += u64::from(pool.try_submit(|_| ()).is_ok());
                        check(pool.stats());
                    }
                    taken
                })
            })
            .collect();
        let taken: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
        gate.open();
        let stats = settled(&pool);
        assert_eq!(stats.cancelled, 8);
        assert!(stats.submitted >= 9 + taken);
        for drops in counts {
            assert_eq!(drops.load(SeqCst), 1);
        }
    }
}
