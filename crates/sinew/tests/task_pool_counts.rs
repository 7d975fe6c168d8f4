//! The pool: finalizers, counts, `run_blocking`, and everything at the same time.

mod pool_rig;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use pool_rig::{Counted, Gate, check, counted, pool, rounds, settled, until};
use sinew::future::TaskError;
use sinew::task::{Outcome, TaskContext, TaskPool};
use sinew::{CancelToken, Error, ErrorKind, run, spawn_local, yield_now};

// contract: T15
#[test]
fn releases_run_after_close_and_cancel_and_outside_of_the_limit() {
    let pool = pool(1, 1);
    let released = Arc::new(AtomicUsize::new(0));
    let accept = || {
        let released = released.clone();
        pool.finalizer(move || {
            assert!(sinew::coroutine::error::last().is_none());
            sinew::coroutine::error::set(Error::new(ErrorKind::Internal, "left behind"));
            released.fetch_add(1, SeqCst);
        })
        .unwrap()
    };
    let mut resources: Vec<_> = (0..4).map(|_| accept()).collect();
    let gate = Gate::new(&pool);
    let queued = pool.submit(|_| ()).unwrap();
    resources.pop().unwrap().release();
    assert_eq!(released.load(SeqCst), 0, "the only worker is busy");
    assert!(pool.try_submit(|_| ()).unwrap_err().is_again());
    gate.open();
    queued.wait().unwrap();
    assert_eq!(released.load(SeqCst), 1, "it came before what was queued");
    pool.close();
    drop(resources.pop());
    until(|| released.load(SeqCst) == 2);
    pool.cancel("over");
    drop(resources.pop());
    until(|| released.load(SeqCst) == 3);
    assert!(pool.finalizer(|| ()).unwrap_err().is_closed());
    settled(&pool);
    drop(pool);
    drop(resources.pop());
    assert_eq!(released.load(SeqCst), 4, "at once where the pool is gone");
}

// contract: T15
#[test]
fn a_drop_of_the_pool_runs_the_releases_that_were_handed_in() {
    let pool = pool(2, 1);
    let released = Arc::new(AtomicUsize::new(0));
    let gates = [Gate::new(&pool), Gate::new(&pool)];
    for n in 0..100 {
        let released = released.clone();
        let resource = pool
            .finalizer(move || {
                released.fetch_add(1, SeqCst);
                assert!(n != 50, "a panic of one keeps no other");
            })
            .unwrap();
        drop(resource);
    }
    pool.close();
    for gate in gates {
        gate.open();
    }
    drop(pool);
    assert_eq!(released.load(SeqCst), 100);
}

// contract: T16
#[test]
fn the_counts_tell_the_ends_apart() {
    let pool = pool(2, 64);
    let mut futures = Vec::new();
    for n in 0..30 {
        let future = pool
            .submit(move |_| match n % 5 {
                0 => Outcome::Failed(Error::new(ErrorKind::Invalid, "oops")),
                1 => Outcome::Cancelled,
                2 => panic!("a panic is a failure"),
                _ => Outcome::Success(n),
            })
            .unwrap();
        futures.push(future);
    }
    for future in &futures {
        future.wait().unwrap();
        check(pool.stats());
        let _seen = future.get();
    }
    let stats = pool.stats();
    assert_eq!(
        (
            stats.succeeded,
            stats.failed,
            stats.cancelled,
            stats.completed
        ),
        (12, 12, 6, 30),
        "an end is counted before it is seen"
    );
    settled(&pool);
}

#[test]
fn run_blocking_suspends_only_the_coroutine() {
    let pool = Arc::new(pool(1, 4));
    run(|| {
        let (open, opened) = mpsc::channel::<()>();
        let theirs = pool.clone();
        let blocked = spawn_local(move || {
            theirs.run_blocking(move || {
                opened.recv().unwrap();
                thread::current().name().map(str::to_owned)
            })
        });
        for _ in 0..3 {
            yield_now().unwrap();
            assert!(!blocked.is_finished());
        }
        open.send(()).unwrap();
        let name = blocked.join().unwrap().unwrap();
        assert_eq!(name.as_deref(), Some("sinew-pool-0"));
    });
    let error = pool
        .run_blocking(|| -> () { panic!("in the closure") })
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Panic, "in the closure")
    );
    settled(&pool);
    assert_eq!(
        pool.run_blocking(|| ()).unwrap_err().kind(),
        ErrorKind::Closed
    );
}

#[test]
fn a_cancelled_run_blocking_does_not_start_what_is_queued() {
    let pool = Arc::new(pool(1, 4));
    let gate = Gate::new(&pool);
    let (data, drops) = counted();
    run(|| {
        let theirs = pool.clone();
        let blocked = spawn_local(move || {
            theirs.run_blocking(move || {
                let _data = data;
                panic!("it runs");
            })
        });
        yield_now().unwrap();
        blocked.cancel("stop");
        let error = blocked.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    });
    gate.open();
    assert_eq!(settled(&pool).cancelled, 1);
    assert_eq!(drops.load(SeqCst), 1);
}

#[test]
fn two_jobs_of_which_the_first_waits_for_the_second_both_finish() {
    for _ in 0..rounds(200) {
        let pool = pool(2, 4);
        let (say, said) = mpsc::channel();
        let first = pool.submit(move |_| said.recv().unwrap()).unwrap();
        let second = pool.submit(move |_| say.send(()).unwrap()).unwrap();
        first.wait().unwrap();
        second.wait().unwrap();
        settled(&pool);
    }
}

/// Submits tasks in every way and cancels some; returns how many succeeded, were cancelled and were refused.
fn submit_many(
    pool: &TaskPool,
    who: usize,
    created: &AtomicUsize,
    drops: &Arc<AtomicUsize>,
) -> [u64; 3] {
    let mut ends = [0_u64; 3];
    let mut futures = Vec::new();
    for n in 0..60 {
        created.fetch_add(1, SeqCst);
        let data = Counted(drops.clone());
        let task = move |_: &TaskContext<'_>| {
            let _data = data;
        };
        let result = match (n + who) % 4 {
            0 => pool.submit(task),
            1 => pool.submit_timeout(Duration::from_micros(20), task),
            2 => pool.try_submit(task),
            _ => pool.submit_cancel(&CancelToken::with_timeout(Duration::from_micros(50)), task),
        };
        match result {
            Ok(future) => {
                if n % 5 == 0 {
                    future.cancel("at random");
                }
                futures.push(future);
            }
            Err(_) => ends[2] += 1,
        }
    }
    for future in futures {
        future.wait().unwrap();
        match future.get().unwrap() {
            Ok(()) => ends[0] += 1,
            Err(TaskError::Cancelled) => ends[1] += 1,
            Err(other) => panic!("ended with {other:?}"),
        }
    }
    ends
}

// contract: T12, T14, T16
#[test]
fn every_task_ends_once_whatever_comes_at_the_same_time() {
    for round in 0..rounds(40) {
        let pool = Arc::new(pool(1 + round % 3, 1 + round % 4));
        let created = Arc::new(AtomicUsize::new(0));
        let drops = Arc::new(AtomicUsize::new(0));
        let submitters: Vec<_> = (0..3)
            .map(|who| {
                let (pool, created, drops) = (pool.clone(), created.clone(), drops.clone());
                thread::spawn(move || submit_many(&pool, who, &created, &drops))
            })
            .collect();
        let watching = pool.clone();
        let watcher = thread::spawn(move || {
            while !watching.is_drained() {
                check(watching.stats());
                thread::yield_now();
            }
        });
        until(|| {
            pool.stats().submitted > (round as u64 * 7) % 150
                || submitters.iter().all(thread::JoinHandle::is_finished)
        });
        if round % 2 == 0 {
            pool.cancel("over");
        } else {
            pool.close();
        }
        let mut ends = [0; 3];
        for submitter in submitters {
            for (sum, part) in ends.iter_mut().zip(submitter.join().unwrap()) {
                *sum += part;
            }
        }
        let stats = settled(&pool);
        watcher.join().unwrap();
        assert_eq!([stats.succeeded, stats.cancelled, stats.rejected], ends);
        assert_eq!(drops.load(SeqCst), created.load(SeqCst));
    }
}
