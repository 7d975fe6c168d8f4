//! The pool under loom: every job that was accepted ends once, whoever submits, works, closes and cancels at the same time.
//!
//! A wake-up that is lost ends in a deadlock: a worker that does not leave, a submitter or one who waits for the drain that
//! does not go on.
#![cfg(loom)]
#![expect(unsafe_code, reason = "waits at arms of a pool")]

mod loom_party;

use std::collections::VecDeque;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use loom::thread;
use loom_party::{Party, Shared, Value, check, number, shared, value};
use sinew_core::sync::{Full, JobEnd, Link, Next, RawPool};
use sinew_core::wait::{Arm, Kind, Reason, Record, Turn, wait_any};

type Pool = RawPool<Value, u32>;

const RECORD: Record = Record {
    kind: Kind::Room,
    object: 0,
    owner: 0,
};

fn pool(limit: usize) -> Arc<Shared<Pool>> {
    shared(RawPool::new(VecDeque::with_capacity(limit), limit, 2))
}

fn wait(arm: &dyn Arm, rival: Option<Reason>) -> bool {
    // SAFETY: the one arm, of the caller.
    unsafe { wait_any(&[arm], Turn::from_arm(0), &*Party::new(rival), RECORD) }.is_ok()
}

/// One look, for a model has to end. Others may do anything before it and after.
fn linger(has_news: &dyn Fn() -> bool) {
    if !has_news() {
        thread::yield_now();
    }
}

/// Works until the pool is over; returns how many jobs and finalizers it has done.
fn work(pool: &Pool) -> (u32, u32) {
    work_as(0, pool)
}

fn work_as(worker: usize, pool: &Pool) -> (u32, u32) {
    let party = Party::new(None);
    let (mut jobs, mut finalizers, mut was_busy) = (0, 0, false);
    loop {
        match pool.next(worker, &*party, was_busy, linger) {
            Next::Job(job) => {
                jobs += number(job);
                pool.ended(worker, JobEnd::Succeeded);
                was_busy = true;
            }
            Next::Finalizer(link) => {
                finalizers += link.finalizer;
                was_busy = false;
            }
            Next::Leave => return (jobs, finalizers),
        }
    }
}

/// Submits a job, waiting for room; says whether it was accepted.
fn submit(pool: &Pool, rival: Option<Reason>) -> bool {
    let job = match pool.offer(value(1), |job| (job, false)) {
        Ok(()) => return true,
        Err((Full::Closed, _)) => return false,
        Err((Full::Full, job)) => job,
    };
    let arm = pool.room_arm();
    let reserved = if wait(&arm, rival) {
        arm.take() == Some(Reason::Woken)
    } else {
        pool.reserve().is_ok()
    };
    if reserved && let Err(job) = pool.fill(job, |_| false) {
        // Cancelled meanwhile, and counted so.
        assert_eq!(number(job), 1);
        pool.published();
    }
    reserved
}

fn settled(pool: &Pool, accepted: u32) {
    let figures = pool.figures();
    assert!(pool.is_drained());
    assert_eq!(figures.submitted, u64::from(accepted));
    assert_eq!(figures.completed, u64::from(accepted));
    assert_eq!(figures.succeeded + figures.cancelled, figures.completed);
    assert_eq!((figures.queued, figures.running), (0, 0));
}

#[test]
fn a_place_goes_to_who_waits_for_it() {
    check(3, || {
        let pool = pool(1);
        assert!(submit(&pool.0, None));
        let ours = pool.clone();
        let submitter = thread::spawn(move || submit(&ours.0, None));
        let ours = pool.clone();
        let worker = thread::spawn(move || work(&ours.0));
        assert!(
            submitter.join().unwrap(),
            "a place comes, and nobody closes"
        );
        pool.0.leave();
        assert_eq!(worker.join().unwrap().0, 2);
        settled(&pool.0, 2);
    });
}

#[test]
fn a_close_and_a_place_that_becomes_free_wake_the_submitter_once() {
    check(3, || {
        let pool = pool(1);
        assert!(submit(&pool.0, None));
        let ours = pool.clone();
        let submitter = thread::spawn(move || submit(&ours.0, None));
        let ours = pool.clone();
        let worker = thread::spawn(move || work(&ours.0));
        assert!(pool.0.close());
        let accepted = 1 + u32::from(submitter.join().unwrap());
        pool.0.leave();
        assert_eq!(worker.join().unwrap().0, accepted);
        settled(&pool.0, accepted);
    });
}

#[test]
fn a_submitter_that_gives_up_takes_no_place_with_it() {
    check(3, || {
        let pool = pool(1);
        assert!(submit(&pool.0, None));
        let ours = pool.clone();
        let submitter = thread::spawn(move || submit(&ours.0, Some(Reason::Timeout)));
        let ours = pool.clone();
        let worker = thread::spawn(move || work(&ours.0));
        let accepted = 1 + u32::from(submitter.join().unwrap());
        pool.0.leave();
        assert_eq!(worker.join().unwrap().0, accepted);
        settled(&pool.0, accepted);
    });
}

#[test]
fn a_cancel_takes_what_no_worker_has() {
    check(3, || {
        let pool = pool(1);
        assert!(submit(&pool.0, None));
        let ours = pool.clone();
        let submitter = thread::spawn(move || submit(&ours.0, None));
        let ours = pool.clone();
        let worker = thread::spawn(move || work(&ours.0));
        let jobs = pool.0.cancel().expect("the first cancel");
        assert!(jobs.into_iter().all(|job| number(job) == 1));
        pool.0.published();
        let accepted = 1 + u32::from(submitter.join().unwrap());
        pool.0.leave();
        let done = worker.join().unwrap().0;
        settled(&pool.0, accepted);
        assert_eq!(pool.0.figures().succeeded, u64::from(done));
    });
}

#[test]
fn who_waits_for_the_drain_goes_on_after_the_last_end() {
    check(3, || {
        let pool = pool(2);
        let ours = pool.clone();
        let worker = thread::spawn(move || work(&ours.0));
        // The worker may sleep by now. Nothing but the job wakes it: it is let go when the pool is drained.
        assert!(submit(&pool.0, None));
        pool.0.close();
        assert!(wait(&pool.0.drain_arm(), None));
        settled(&pool.0, 1);
        pool.0.leave();
        assert_eq!(worker.join().unwrap().0, 1);
    });
}

#[test]
fn workers_stay_for_a_job_whose_place_was_reserved_before_the_end() {
    check(3, || {
        let pool = pool(1);
        let ours = pool.clone();
        let submitter = thread::spawn(move || {
            let reserved = ours.0.reserve().is_ok();
            if reserved {
                assert!(ours.0.fill(value(1), |_| false).is_ok());
            }
            u32::from(reserved)
        });
        let ours = pool.clone();
        let worker = thread::spawn(move || work(&ours.0));
        pool.0.leave();
        let accepted = submitter.join().unwrap();
        assert_eq!(worker.join().unwrap().0, accepted);
        settled(&pool.0, accepted);
    });
}

#[test]
fn a_finalizer_is_run_by_a_worker_or_comes_back() {
    check(3, || {
        let pool = pool(1);
        let ours = pool.clone();
        let worker = thread::spawn(move || work(&ours.0));
        let ours = pool.clone();
        let releaser = thread::spawn(move || ours.0.finalize(Link::new(1)).is_err());
        pool.0.leave();
        let came_back = u32::from(releaser.join().unwrap());
        assert_eq!(worker.join().unwrap().1 + came_back, 1);
        settled(&pool.0, 0);
    });
}

/// Meets one other that meets here: each waits until both have come.
fn meet(met: &AtomicU32) {
    met.fetch_add(1, SeqCst);
    while met.load(SeqCst) < 2 {
        thread::yield_now();
    }
}

#[test]
fn two_jobs_that_need_each_other_find_two_workers_though_one_searched_for_both() {
    check(2, || {
        let pool = pool(2);
        let met = Arc::new(AtomicU32::new(0));
        let worker = |place: usize| {
            let (ours, met) = (pool.clone(), met.clone());
            thread::spawn(move || {
                let party = Party::new(None);
                let Next::Job(job) = ours.0.next(place, &*party, false, linger) else {
                    panic!("two jobs, and each worker is kept by its own")
                };
                meet(&met);
                ours.0.ended(place, JobEnd::Succeeded);
                drop(party);
                number(job)
            })
        };
        let workers = [worker(0), worker(1)];
        // Either may search by now, and the other one sleep.
        assert!(submit(&pool.0, None));
        assert!(submit(&pool.0, None));
        let done: u32 = workers.map(|worker| worker.join().unwrap()).iter().sum();
        assert_eq!(done, 2);
        assert_eq!(pool.0.figures().succeeded, 2);
    });
}

#[test]
fn an_end_is_counted_once_it_is_published_and_never_twice() {
    check(3, || {
        let pool = pool(1);
        assert!(submit(&pool.0, None));
        let (ours, published) = (pool.clone(), Arc::new(AtomicU32::new(0)));
        let publishes = published.clone();
        let worker = thread::spawn(move || {
            let party = Party::new(None);
            let Next::Job(job) = ours.0.next(1, &*party, false, linger) else {
                panic!("there is one")
            };
            ours.0.ended(1, JobEnd::Failed);
            publishes.store(number(job), Release);
            assert!(matches!(ours.0.next(1, &*party, true, linger), Next::Leave));
        });
        let mut completed = 0;
        for _ in 0..2 {
            let is_published = u64::from(published.load(Acquire));
            let figures = pool.0.figures();
            assert_eq!(
                figures.submitted,
                figures.queued as u64 + figures.running as u64 + figures.completed
            );
            assert_eq!(figures.failed, figures.completed);
            assert!(figures.completed >= is_published.max(completed));
            completed = figures.completed;
        }
        pool.0.leave();
        worker.join().unwrap();
        assert!(pool.0.is_drained());
        assert_eq!((pool.0.figures().failed, pool.0.figures().running), (1, 0));
    });
}
