//! Timers used against the grain: from destructors, posts and scheduler's ends, by callbacks that panic, and at points in time that no clock reaches.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::rc::Rc;
use std::time::{Duration, Instant};

use sinew::time::{Timer, now};
use sinew::{Progress, Scheduler, run, sleep, spawn_local, yield_now};

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Panics in its drop.
struct Loud;

impl Drop for Loud {
    fn drop(&mut self) {
        panic_any("loud");
    }
}

fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

thread_local! {
    static OF_THREAD: RefCell<Vec<Timer>> = const { RefCell::new(Vec::new()) };
}

// contract: S16
#[test]
fn points_in_time_that_no_clock_reaches() {
    run(|| {
        let rung = Rc::new(Cell::new(0));
        let arm = |at: Instant| {
            let rung = rung.clone();
            Timer::at(at, move || rung.set(rung.get() + 1))
        };
        let past = now()
            .checked_sub(Duration::from_secs(3600))
            .unwrap_or_else(now);
        let far = now() + Duration::from_secs(1 << 40);
        let never = Timer::after(Duration::MAX, || unreachable!("never"));
        let timers = [arm(past), arm(now()), arm(far), never];
        sleep(ms(2)).unwrap();
        assert_eq!(rung.get(), 2);
        assert_eq!(
            timers.iter().map(Timer::is_armed).collect::<Vec<_>>(),
            [false, false, true, true]
        );
    });
    // A far one keeps nobody.
}

// contract: S16
#[test]
fn timers_of_a_scheduler_that_has_ended_leave_the_next_one_alone() {
    let old: Vec<_> = run(|| (0..1000).map(|n| Timer::after(ms(n), || {})).collect());
    run(move || {
        let rung = Rc::new(Cell::new(0));
        let new: Vec<_> = (0..100)
            .map(|n| {
                let rung = rung.clone();
                Timer::after(ms(n / 20), move || rung.set(rung.get() + 1))
            })
            .collect();
        drop(old);
        sleep(ms(10)).unwrap();
        assert_eq!(rung.get(), 100);
        drop(new);
    });
    std::thread::spawn(|| {
        let dropped = Rc::new(Cell::new(0));
        let inner = dropped.clone();
        run(move || {
            let bell = OnDrop(move || {
                inner.set(inner.get() + 1);
                // No scheduler there any more.
                assert!(catch_unwind(|| Timer::after(ms(1), || {})).is_err());
            });
            OF_THREAD.with_borrow_mut(|timers| {
                timers.push(Timer::after(ms(10_000), move || drop(bell)));
            });
        });
        assert_eq!(dropped.get(), 0);
        OF_THREAD.with_borrow_mut(Vec::clear);
        assert_eq!(dropped.get(), 1);
        run(|| OF_THREAD.with_borrow_mut(|timers| timers.push(Timer::after(ms(10_000), || {}))));
    })
    .join()
    .unwrap();
}

// contract: S16
#[test]
fn a_callback_s_drop_arms_and_cancels_others() {
    run(|| {
        let others = Rc::new(RefCell::new(Vec::new()));
        let rung = Rc::new(Cell::new(0));
        let timers: Vec<_> = (0..200_u64)
            .map(|n| {
                let (others, rung) = (others.clone(), rung.clone());
                let bell = OnDrop(move || {
                    let rung = rung.clone();
                    let mut others = others.borrow_mut();
                    others.push(Timer::after(ms(n % 3), move || rung.set(rung.get() + 1)));
                    if n % 2 == 0 {
                        let first = others.swap_remove(0);
                        drop(others);
                        drop(first);
                    }
                });
                Timer::after(ms(n % 5), move || drop(bell))
            })
            .collect();
        yield_now().unwrap();
        drop(timers);
        sleep(ms(10)).unwrap();
        assert_eq!(
            others
                .borrow()
                .iter()
                .filter(|timer| timer.is_armed())
                .count(),
            0
        );
    });
}

// contract: S16
#[test]
fn panics_of_callbacks_and_of_what_they_own() {
    let result = catch_unwind(|| {
        run(|| {
            let rung = Rc::new(Cell::new(0));
            let timers: Vec<_> = (0..50)
                .map(|n| {
                    let rung = rung.clone();
                    Timer::after(Duration::from_micros(n), move || {
                        rung.set(rung.get() + 1);
                        // The payload's drop panics, too.
                        panic_any(Loud);
                    })
                })
                .collect();
            sleep(ms(5)).unwrap();
            assert_eq!(rung.get(), 50);
            drop(timers);
            let loud = Timer::after(ms(1000), {
                let bell = Loud;
                move || drop(bell)
            });
            assert!(catch_unwind(AssertUnwindSafe(|| drop(loud))).is_err());
        });
    });
    // The first one is raised; what it owns is loud still.
    std::mem::forget(result.unwrap_err());
}

// contract: S16
#[test]
fn posts_and_callbacks_arm_stop_and_end() {
    Scheduler::anchor(|scheduler| {
        let handle = scheduler.handle();
        handle
            .post(|| {
                OF_THREAD.with_borrow_mut(|timers| {
                    timers.push(Timer::after(ms(1), || {
                        let _ = spawn_local(sinew::stop);
                    }))
                })
            })
            .unwrap();
        let waits = spawn_local(|| sleep(Duration::MAX).is_ok());
        assert_eq!(scheduler.run(), Ok(Progress::Made), "stopped by the timer");
        assert!(!waits.is_finished());
        waits.cancel("");
        OF_THREAD.with_borrow_mut(Vec::clear);
        assert_eq!(scheduler.run(), Ok(Progress::Closed));
        // With nothing alive a timer keeps nobody.
        let far = Timer::after(ms(1), || {});
        assert_eq!(scheduler.step(), Ok(Progress::Closed));
        assert_eq!(scheduler.poll(now() + ms(20)), Ok(Progress::Closed));
        assert_eq!(scheduler.run(), Ok(Progress::Closed));
        drop(far);
    });
    // The same by the callback itself, while the thread sleeps.
    Scheduler::anchor(|scheduler| {
        let timer = Timer::after(ms(1), || sinew::stop().unwrap());
        let waits = spawn_local(|| sleep(Duration::MAX).is_ok());
        assert_eq!(scheduler.run(), Ok(Progress::Made), "stopped by the timer");
        assert!(!waits.is_finished());
        drop((timer, waits));
    });
    let code = sinew::run_code(|| {
        let timer = Timer::after(ms(1), || sinew::exit_all(3).unwrap());
        let slept = sleep(ms(10_000));
        drop(timer);
        i32::from(slept.is_ok())
    });
    assert_eq!(code, 3);
}

// contract: S16
#[test]
fn a_timer_that_will_wake_is_no_deadlock_and_one_that_will_not_hides_none_for_long() {
    run(|| {
        let me = sinew::current().unwrap().unparker();
        let timer = Timer::after(ms(120), move || me.unpark());
        sinew::park().unwrap();
        drop(timer);
    });
    let error = sinew::try_run(|| {
        let timer = Timer::after(ms(60), || {});
        let _ = sinew::park();
        drop(timer);
    });
    assert!(
        matches!(error, Err(sinew::RunError::Deadlock(_))),
        "{error:?}"
    );
}
