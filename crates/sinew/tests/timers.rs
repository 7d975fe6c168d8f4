//! Timers with a callback: when it runs, where, and that a cancelled one never does.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use sinew::time::{Timer, now};
use sinew::{Progress, Scheduler, WaitError};

fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// Sets its flag when it is dropped.
struct Bell(Rc<Cell<bool>>);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

// contract: S16
#[test]
fn callbacks_run_once_in_the_order_of_their_deadlines_and_never_early() {
    sinew::run(|| {
        let rung = Rc::new(RefCell::new(Vec::new()));
        let start = now();
        let timers: Vec<_> = [9, 3, 6, 3]
            .into_iter()
            .enumerate()
            .map(|(index, delay)| {
                let rung = rung.clone();
                Timer::after(ms(delay), move || {
                    assert!(now() >= start + ms(delay), "early");
                    rung.borrow_mut().push(index);
                })
            })
            .collect();
        while rung.borrow().len() < 4 {
            sinew::sleep(ms(1)).unwrap();
        }
        sinew::sleep(ms(2)).unwrap();
        assert_eq!(*rung.borrow(), [1, 3, 2, 0]);
        assert!(timers.iter().all(|timer| !timer.is_armed()));
        assert_eq!(
            timers
                .into_iter()
                .map(Timer::cancel)
                .filter(|was| *was)
                .count(),
            0
        );
    });
}

// contract: S16
#[test]
fn a_cancelled_or_dropped_timer_is_gone_at_once_and_never_runs() {
    sinew::run(|| {
        let (first, second) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let arm = |flag: &Rc<Cell<bool>>| {
            let bell = Bell(flag.clone());
            Timer::after(ms(1), move || {
                let _bell = bell;
                panic!("cancelled");
            })
        };
        let (cancelled, dropped) = (arm(&first), arm(&second));
        assert!(cancelled.is_armed());
        assert!(cancelled.cancel());
        assert!(first.get(), "its callback is dropped");
        drop(dropped);
        assert!(second.get(), "its callback is dropped");
        sinew::sleep(ms(3)).unwrap();
        let stats = sinew::SchedulerHandle::current().unwrap().stats().unwrap();
        assert_eq!(stats.timers, 0);
    });
}

// contract: S16
#[test]
fn a_million_timers_are_armed_and_half_of_them_cancelled() {
    const TIMERS: u64 = if cfg!(debug_assertions) {
        100_000
    } else {
        1_000_000
    };
    sinew::run(|| {
        let rung = Rc::new(Cell::new(0));
        let mut timers: Vec<_> = (0..TIMERS)
            .map(|number| {
                let rung = rung.clone();
                let delay = Duration::from_micros(number * 7 % 40_000);
                Some(Timer::after(delay, move || rung.set(rung.get() + 1)))
            })
            .collect();
        let mut cancelled = 0;
        for timer in timers.iter_mut().step_by(2) {
            cancelled += u64::from(timer.take().unwrap().cancel());
        }
        assert_eq!(cancelled, TIMERS / 2, "none fires while nobody looks");
        while rung.get() < TIMERS / 2 {
            sinew::sleep(ms(1)).unwrap();
        }
        sinew::sleep(ms(50)).unwrap();
        assert_eq!(rung.get(), TIMERS / 2);
    });
}

#[test]
fn a_callback_runs_on_the_plain_stack_may_not_wait_and_may_wake() {
    sinew::run(|| {
        let parked = sinew::spawn_local(sinew::park);
        sinew::yield_now().unwrap();
        let unparker = parked.unparker();
        let timer = Timer::after(ms(1), move || {
            assert_eq!(sinew::sleep(ms(1)), Err(WaitError::State));
            assert_eq!(sinew::yield_now(), Err(WaitError::State));
            assert!(sinew::current().is_none());
            sinew::go_local(move || unparker.unpark());
        });
        assert_eq!(parked.join().unwrap(), Ok(()));
        assert!(!timer.is_armed());
    });
}

#[test]
fn a_callback_may_drop_its_own_timer_and_arm_others() {
    sinew::run(|| {
        let place = Rc::new(RefCell::new(None));
        let (rung, dropped) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let own = place.clone();
        let count = rung.clone();
        let bell = Bell(dropped.clone());
        let timer = Timer::after(ms(1), move || {
            let _bell = &bell;
            let timer: Option<Timer> = own.borrow_mut().take();
            assert!(!timer.unwrap().cancel(), "it runs");
            let count = count.clone();
            *own.borrow_mut() = Some(Timer::after(ms(1), move || count.set(count.get() + 1)));
        });
        *place.borrow_mut() = Some(timer);
        while rung.get() == 0 {
            sinew::sleep(ms(1)).unwrap();
        }
        assert!(dropped.get());
        place.borrow_mut().take();
    });
}

#[test]
fn a_panic_of_a_callback_is_raised_at_the_end_of_the_run() {
    let went_on = Rc::new(Cell::new(false));
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let went_on = went_on.clone();
        sinew::run(move || {
            let _timer = Timer::after(ms(1), || panic!("of a callback"));
            let _other = Timer::after(ms(2), move || went_on.set(true));
            sinew::sleep(ms(5)).unwrap();
        });
    }));
    assert_eq!(
        *ran.unwrap_err().downcast::<&str>().unwrap(),
        "of a callback"
    );
    assert!(went_on.get(), "the other timers go on");
}

#[test]
fn a_timer_outlives_its_scheduler_and_never_runs_then() {
    let dropped = Rc::new(Cell::new(false));
    let timer = sinew::run({
        let bell = Bell(dropped.clone());
        move || {
            Timer::after(ms(1), move || {
                let _bell = bell;
                panic!("its scheduler is gone");
            })
        }
    });
    assert!(!timer.is_armed());
    assert!(!dropped.get());
    // Another scheduler of the thread has nothing to do with it.
    sinew::run(|| sinew::sleep(ms(3)).unwrap());
    assert!(!timer.cancel());
    assert!(dropped.get());
}

// contract: S17
#[test]
fn callbacks_that_arm_the_next_one_at_once_keep_nobody_from_running() {
    struct Chain {
        timer: RefCell<Option<Timer>>,
        rung: Cell<u64>,
    }
    fn link(chain: &Rc<Chain>) {
        let next = chain.clone();
        let timer = Timer::at(now(), move || {
            next.rung.set(next.rung.get() + 1);
            link(&next);
        });
        *chain.timer.borrow_mut() = Some(timer);
    }
    sinew::run(|| {
        let chain = Rc::new(Chain {
            timer: RefCell::new(None),
            rung: Cell::new(0),
        });
        link(&chain);
        let before = now();
        for _ in 0..3 {
            sinew::sleep(ms(1)).unwrap();
            sinew::yield_now().unwrap();
        }
        assert!(now() - before >= ms(3));
        assert!(chain.rung.get() > 1, "the chain goes on");
        chain.timer.borrow_mut().take();
    });
}

#[test]
fn a_step_in_which_a_callback_ran_has_made_progress() {
    Scheduler::anchor(|s| {
        let rung = Rc::new(Cell::new(false));
        let flag = rung.clone();
        let timer = Timer::at(now(), move || flag.set(true));
        let mut progress = s.step().unwrap();
        while !rung.get() {
            progress = s.step().unwrap();
        }
        assert_eq!(progress, Progress::Made);
        assert!(!timer.cancel());
        assert_eq!(s.step().unwrap(), Progress::Closed);
    });
}

#[test]
fn a_poll_returns_when_a_callback_has_run() {
    Scheduler::anchor(|s| {
        let parked = sinew::spawn_local(sinew::park);
        let rung = Rc::new(Cell::new(false));
        let flag = rung.clone();
        let _timer = Timer::after(ms(5), move || flag.set(true));
        let deadline = now() + Duration::from_secs(3600);
        while !rung.get() {
            assert_eq!(s.poll(deadline).unwrap(), Progress::Made);
        }
        parked.cancel("");
    });
}

#[test]
#[should_panic(expected = "outside of sinew::run")]
fn a_timer_needs_a_scheduler() {
    let _timer = Timer::after(ms(1), || {});
}
