//! Running a scheduler by hand: step, poll, run until a deadline, stop and go on.
#![expect(
    clippy::disallowed_methods,
    reason = "deadlines are compared with the clock, as lower bounds"
)]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use sinew::{
    Progress, RunError, Scheduler, SchedulerHandle, StateError, WaitError, go_local, spawn_local,
    yield_now,
};

/// A counter, and a function that counts it up.
fn counter() -> (Rc<Cell<u32>>, impl Fn() + Clone + 'static) {
    let count = Rc::new(Cell::new(0));
    let inside = count.clone();
    (count, move || inside.set(inside.get() + 1))
}

// contract: S6
#[test]
fn a_step_resumes_at_most_one_coroutine() {
    Scheduler::anchor(|s| {
        let (resumed, count) = counter();
        for _ in 0..3 {
            let count = count.clone();
            go_local(move || {
                count();
                yield_now().unwrap();
                count();
            });
        }
        // Starts, then ends: neither a direct switch nor a start in place comes between.
        for n in 1..=6 {
            assert_eq!(s.step(), Ok(Progress::Made));
            assert_eq!(resumed.get(), n);
        }
        assert_eq!(s.step(), Ok(Progress::Closed));
        assert_eq!(s.step(), Ok(Progress::Closed));
    });
}

// contract: S6
#[test]
fn a_step_is_one_resume_also_for_a_lone_yielder_and_after_a_run() {
    Scheduler::anchor(|s| {
        assert_eq!(s.run(), Ok(Progress::Closed));
        let (turns, count) = counter();
        go_local(move || {
            for _ in 0..5 {
                count();
                yield_now().unwrap();
            }
            sinew::stop().unwrap_err();
        });
        for n in 1..=5 {
            assert_eq!(s.step(), Ok(Progress::Made));
            assert_eq!(turns.get(), n);
        }
        assert_eq!(s.step(), Ok(Progress::Made));
        assert_eq!(s.step(), Ok(Progress::Closed));
    });
}

// contract: S6
#[test]
fn a_step_is_one_resume_also_where_nothing_has_to_wait() {
    Scheduler::anchor(|s| {
        let (sent, count) = counter();
        let (tx, rx) = sinew::sync::channel::bounded(1);
        go_local(move || {
            for n in 0..10 {
                tx.send(n).unwrap();
                count();
            }
        });
        let sum = spawn_local(move || {
            let mut sum = 0;
            while let Ok(n) = rx.recv() {
                sum += n;
            }
            sum
        });
        let mut before = 0;
        while s.step() == Ok(Progress::Made) {
            assert!(sent.get() <= before + 2, "one turn of one coroutine");
            before = sent.get();
        }
        assert_eq!(sum.join().unwrap(), 45);
    });
}

// contract: S6
#[test]
fn a_step_runs_at_most_one_post() {
    Scheduler::anchor(|s| {
        let posts = Arc::new(AtomicUsize::new(0));
        let (resumed, count) = counter();
        for _ in 0..3 {
            let posts = posts.clone();
            s.handle()
                .post(move || {
                    posts.fetch_add(1, Relaxed);
                })
                .unwrap();
            go_local(count.clone());
        }
        for n in 1..=3 {
            assert_eq!(s.step(), Ok(Progress::Made));
            assert_eq!((posts.load(Relaxed), resumed.get() as usize), (n, n));
        }
        assert_eq!(s.step(), Ok(Progress::Closed));
    });
}

// contract: S6
#[test]
fn a_step_does_not_wait_and_says_what_there_is() {
    Scheduler::anchor(|s| {
        assert_eq!(s.step(), Ok(Progress::Closed));
        let parked = spawn_local(sinew::park);
        assert_eq!(s.step(), Ok(Progress::Made));
        assert_eq!(s.step(), Ok(Progress::Timeout));
        assert!(!s.is_idle());
        parked.unparker().unpark();
        assert_eq!(s.step(), Ok(Progress::Made));
        assert_eq!(s.step(), Ok(Progress::Closed));
        assert!(s.is_idle());
    });
}

// contract: S6
#[test]
fn poll_waits_for_something_to_do_but_not_beyond_its_deadline() {
    Scheduler::anchor(|s| {
        let later = || Instant::now() + Duration::from_secs(60);
        assert_eq!(s.poll(later()), Ok(Progress::Closed), "nothing to wait for");
        let sleeper = spawn_local(|| sinew::sleep(Duration::from_millis(20)));
        assert_eq!(s.poll(later()), Ok(Progress::Made));
        let started = Instant::now();
        assert_eq!(s.poll(started), Ok(Progress::Timeout), "the past");
        let deadline = started + Duration::from_millis(2);
        assert_eq!(s.poll(deadline), Ok(Progress::Timeout));
        assert!(Instant::now() >= deadline);
        assert_eq!(s.poll(later()), Ok(Progress::Made), "the sleeper");
        sleeper.join().unwrap().unwrap();
        assert_eq!(s.poll(later()), Ok(Progress::Closed));
    });
}

// contract: S6
#[test]
fn poll_takes_a_post_or_a_wake_from_another_thread() {
    Scheduler::anchor(|s| {
        let parked = spawn_local(sinew::park);
        assert_eq!(s.step(), Ok(Progress::Made));
        let unparker = parked.unparker();
        let handle = s.handle();
        let later = Instant::now() + Duration::from_secs(60);
        let thread = thread::spawn(move || handle.post(|| ()).unwrap());
        assert_eq!(s.poll(later), Ok(Progress::Made));
        thread.join().unwrap();
        let thread = thread::spawn(move || unparker.unpark());
        assert_eq!(s.poll(later), Ok(Progress::Made));
        thread.join().unwrap();
        assert_eq!(parked.join().unwrap(), Ok(()));
        // A stop ends the wait, too.
        let _parked = spawn_local(sinew::park);
        assert_eq!(s.step(), Ok(Progress::Made));
        s.handle().stop();
        assert_eq!(s.poll(later), Ok(Progress::Timeout));
    });
}

// contract: S6
#[test]
fn run_until_loops_to_its_deadline() {
    Scheduler::anchor(|s| {
        let (turns, count) = counter();
        go_local(move || {
            while yield_now().is_ok() {
                count();
            }
        });
        let deadline = Instant::now() + Duration::from_millis(5);
        assert_eq!(s.run_until(deadline), Ok(Progress::Made));
        assert!(Instant::now() >= deadline);
        let before = turns.get();
        assert!(before > 10, "{before} turns");
        // It went on from where it was.
        assert_eq!(s.run_until(Instant::now()), Ok(Progress::Made));
        assert_eq!(turns.get(), before, "no time, no turns");
    });
    Scheduler::anchor(|s| {
        let parked = spawn_local(sinew::park);
        let deadline = Instant::now() + Duration::from_millis(3);
        assert_eq!(s.run_until(deadline), Ok(Progress::Timeout));
        assert!(Instant::now() >= deadline);
        parked.unparker().unpark();
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(s.run_until(later), Ok(Progress::Closed));
        assert_eq!(s.run_until(Instant::now()), Ok(Progress::Closed));
        assert_eq!(parked.join().unwrap(), Ok(()));
    });
}

// contract: S6
#[test]
fn running_by_hand_inside_of_a_coroutine_is_refused() {
    Scheduler::anchor(|s| {
        // A stand-alone coroutine can borrow the scheduler.
        sinew::coroutine::anchor(|a| {
            let mut inside = sinew::coroutine::Coroutine::<(), (), ()>::new(a, |_, ()| {
                assert_eq!(s.run(), Err(StateError));
                assert_eq!(s.step(), Err(StateError));
                assert_eq!(s.poll(Instant::now()), Err(StateError));
                assert_eq!(s.run_until(Instant::now()), Err(StateError));
            });
            inside.resume(()).unwrap();
        });
        assert!(StateError.to_string().contains("not possible"));
    });
    sinew::run(|| {
        let refused = Scheduler::builder().try_anchor(|_| ()).unwrap_err();
        assert!(matches!(refused, RunError::State));
    });
    Scheduler::anchor(|_| {
        assert!(matches!(sinew::try_run(|| ()), Err(RunError::State)));
    });
}

// contract: S5
#[test]
fn the_anchors_own_frame_spawns_but_does_not_wait() {
    Scheduler::anchor(|s| {
        assert!(!sinew::in_coroutine());
        assert_eq!(yield_now(), Err(WaitError::State));
        assert_eq!(sinew::park(), Err(WaitError::State));
        assert_eq!(
            sinew::sleep(Duration::from_millis(1)),
            Err(WaitError::State)
        );
        let handle = sinew::Builder::new()
            .name("built")
            .spawn_local(|| 1)
            .unwrap();
        assert_eq!(handle.wait(), Err(WaitError::State), "it has not run");
        s.run().unwrap();
        assert_eq!(handle.wait(), Ok(()));
        assert_eq!(handle.join().unwrap(), 1);
    });
    assert!(catch_unwind(|| spawn_local(|| ())).is_err());
}

// contract: S26
#[test]
fn stop_leaves_everything_intact_and_a_later_run_goes_on() {
    Scheduler::anchor(|s| {
        let (turns, count) = counter();
        let stopper = spawn_local(move || {
            for n in 0..10 {
                count();
                if n == 4 {
                    sinew::stop().unwrap();
                }
                yield_now().unwrap();
            }
        });
        let sleeper = spawn_local(|| sinew::sleep(Duration::from_millis(1)));
        let parked = spawn_local(sinew::park);
        assert_eq!(s.run(), Ok(Progress::Made));
        assert_eq!(turns.get(), 5);
        assert!(!stopper.is_finished() && !parked.is_finished());
        parked.unparker().unpark();
        assert_eq!(s.run(), Ok(Progress::Closed));
        assert_eq!(turns.get(), 10);
        stopper.join().unwrap();
        sleeper.join().unwrap().unwrap();
        parked.join().unwrap().unwrap();
    });
}

// contract: S26
#[test]
fn stop_from_another_thread_wakes_and_an_early_one_is_remembered() {
    Scheduler::anchor(|s| {
        let parked = spawn_local(sinew::park);
        s.handle().stop();
        assert_eq!(s.run(), Ok(Progress::Made), "remembered, once");
        let handle = s.handle();
        let thread = thread::spawn(move || handle.stop());
        assert_eq!(s.run(), Ok(Progress::Made));
        thread.join().unwrap();
        assert!(!parked.is_finished());
    });
}

// contract: S26
#[test]
fn stop_where_nothing_can_be_stopped_is_refused() {
    assert_eq!(sinew::stop(), Err(StateError));
    sinew::run(|| {
        assert_eq!(sinew::stop(), Err(StateError));
        // Nor does a handle's stop change anything.
        SchedulerHandle::current().unwrap().stop();
        yield_now().unwrap();
        spawn_local(|| ()).join().unwrap();
    });
    Scheduler::anchor(|_| assert_eq!(sinew::stop(), Err(StateError)));
}

// contract: S26
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn a_stop_among_many_is_obeyed_at_once() {
    Scheduler::anchor(|s| {
        let (after, count) = counter();
        go_local(|| sinew::stop().unwrap());
        for _ in 0..100 {
            go_local(count.clone());
        }
        assert_eq!(s.run(), Ok(Progress::Made));
        assert_eq!(after.get(), 0, "nothing runs after the stopper has ended");
        assert_eq!(s.run(), Ok(Progress::Closed));
        assert_eq!(after.get(), 100);
    });
}

// contract: S26
#[test]
fn a_stop_by_a_post_is_obeyed_before_the_next_post() {
    Scheduler::anchor(|s| {
        let (resumed, count) = counter();
        let posts = Arc::new(AtomicUsize::new(0));
        go_local(count);
        s.handle().post(|| sinew::stop().unwrap()).unwrap();
        let in_post = posts.clone();
        s.handle()
            .post(move || {
                in_post.fetch_add(1, Relaxed);
            })
            .unwrap();
        assert_eq!(s.run(), Ok(Progress::Made));
        assert_eq!((posts.load(Relaxed), resumed.get()), (0, 0));
        assert_eq!(s.run(), Ok(Progress::Closed));
        assert_eq!((posts.load(Relaxed), resumed.get()), (1, 1));
    });
}

// contract: S3
#[test]
fn a_panic_that_nobody_joins_is_raised_by_the_call_that_found_it() {
    Scheduler::anchor(|s| {
        go_local(|| panic!("unjoined"));
        assert!(catch_unwind(AssertUnwindSafe(|| s.step())).is_err());
        assert_eq!(s.step(), Ok(Progress::Closed));
        let handle = spawn_local(|| panic!("joined"));
        assert_eq!(s.run(), Ok(Progress::Closed));
        assert!(handle.join().unwrap_err().is_panic());
    });
    // One that is found at the end is raised there.
    assert!(catch_unwind(|| Scheduler::anchor(|_| drop(spawn_dropper()))).is_err());
}

/// A coroutine whose closure panics when it is dropped.
fn spawn_dropper() -> sinew::JoinHandle<()> {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let bomb = Bomb;
    spawn_local(move || {
        let _bomb = &bomb;
    })
}

// contract: S2
#[test]
fn a_handles_figures_are_those_of_its_scheduler() {
    let handle = Scheduler::anchor(|s| {
        let handle = s.handle();
        let _parked = spawn_local(sinew::park);
        s.step().unwrap();
        assert_eq!(handle.stats().unwrap().alive, 1);
        assert!(SchedulerHandle::current().is_some());
        handle
    });
    assert_eq!(handle.stats(), None);
    assert!(SchedulerHandle::current().is_none());
}

// contract: C16
#[test]
fn a_thread_is_detached_only_without_coroutines() {
    assert_eq!(sinew::thread_detach(), Ok(()));
    Scheduler::anchor(|s| {
        assert_eq!(sinew::thread_detach(), Err(StateError));
        go_local(|| assert_eq!(sinew::thread_detach(), Err(StateError)));
        s.run().unwrap();
    });
    sinew::coroutine::anchor(|a| {
        let mut inside = sinew::coroutine::Coroutine::<(), (), ()>::new(a, |_, ()| {
            assert_eq!(sinew::thread_detach(), Err(StateError));
        });
        inside.resume(()).unwrap();
    });
    assert_eq!(sinew::thread_detach(), Ok(()));
}

// contract: C16
#[test]
fn a_thread_cannot_end_with_a_suspended_coroutine() {
    let parked = thread::spawn(|| {
        Scheduler::anchor(|s| {
            let parked = spawn_local(|| sinew::park().is_err());
            s.step().unwrap();
            parked
        })
    })
    .join()
    .unwrap();
    assert!(parked.is_finished());
    assert!(parked.join().unwrap());
}
