//! A scheduler's slack: timers near each other end together, none early, and everything that ends by a timer still does.
//!
//! How often a scheduler sleeps is held against the time that has gone by, whatever that is: a machine that is busy fails nothing.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use sinew::time::{Timer, now};
use sinew::{
    Progress, RunError, Scheduler, SchedulerHandle, go_local, park_timeout, sleep, sleep_until,
    spawn_local, timeout, yield_now,
};

const SLACK: Duration = Duration::from_millis(10);

fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

fn us(number: u64) -> Duration {
    Duration::from_micros(number)
}

/// How often this thread's scheduler has slept.
fn sleeps() -> u64 {
    SchedulerHandle::current().unwrap().stats().unwrap().sleeps
}

fn with_slack<T>(slack: Duration, f: impl FnOnce() -> T) -> T {
    Scheduler::builder().timer_slack(slack).run(f)
}

/// How many ends there are at most in the time since then, and so sleeps: one more where the first begins in the middle of a slack, one
/// for a sleep that a signal or the like cuts in two, and one for what goes on beside.
fn ends_since(start: Instant, slack: Duration) -> u64 {
    (start.elapsed().as_nanos() / slack.as_nanos()) as u64 + 3
}

// contract: S16
#[test]
fn ten_thousand_timers_within_five_slacks_are_a_few_wakes() {
    with_slack(SLACK, || {
        let (start, before) = (now(), sleeps());
        let rung_after = Rc::new(RefCell::new(Vec::new()));
        let timers: Vec<_> = (0..10_000)
            .map(|number| {
                let rung_after = rung_after.clone();
                let at = start + us(5 * number);
                Timer::at(at, move || {
                    assert!(now() >= at, "early");
                    rung_after.borrow_mut().push(sleeps() - before);
                })
            })
            .collect();
        sleep_until(start + ms(50)).unwrap();
        while rung_after.borrow().len() < timers.len() {
            sleep(us(1)).unwrap();
        }
        assert!(timers.iter().all(|timer| !timer.is_armed()));
        let slept = sleeps() - before;
        assert!(slept <= ends_since(start, SLACK), "{slept} sleeps");
        let mut wakes = rung_after.take();
        assert!(wakes.is_sorted());
        wakes.dedup();
        // One each, one for what was due before any sleep, and one for those at the start of the last slack.
        assert!(wakes.len() <= 7 + 1, "{wakes:?}");
    });
}

// contract: S13
#[test]
fn loops_of_short_sleeps_share_their_instants() {
    with_slack(SLACK, || {
        let (start, before) = (now(), sleeps());
        let round = |number: u64| {
            move || {
                for turn in 0..5 {
                    let (begin, length) = (now(), us(1_000 + 37 * number + turn));
                    sleep(length).unwrap();
                    assert!(begin.elapsed() >= length, "early");
                }
            }
        };
        let loops: Vec<_> = (0..100).map(|number| spawn_local(round(number))).collect();
        loops.into_iter().for_each(|each| each.join().unwrap());
        let slept = sleeps() - before;
        assert!(slept <= ends_since(start, SLACK), "{slept} sleeps");
        assert!(start.elapsed() >= ms(40), "five ends of a slack");
    });
}

// contract: S16
#[test]
fn what_is_due_at_once_waits_for_no_slack() {
    with_slack(Duration::from_secs(1), || {
        let before = sleeps();
        let rung = Rc::new(Cell::new(0));
        let timers: Vec<_> = (0..1_000)
            .map(|number| {
                let rung = rung.clone();
                let ring = move || rung.set(rung.get() + 1);
                if number % 2 == 0 {
                    Timer::after(Duration::ZERO, ring)
                } else {
                    Timer::at(now(), ring)
                }
            })
            .collect();
        while rung.get() < 1_000 {
            yield_now().unwrap();
        }
        for _ in 0..100 {
            sleep(Duration::ZERO).unwrap();
            sleep_until(now()).unwrap();
        }
        assert_eq!(sleeps() - before, 0);
        drop(timers);
    });
}

// contract: S13
#[test]
fn waits_and_limits_and_io_end_with_a_slack() {
    with_slack(SLACK, || {
        let (from, _to) = sinew::io::pipe().unwrap();
        let (sender, receiver) = sinew::sync::channel::bounded::<u8>(1);
        let begin = now();
        assert!(park_timeout(ms(3)).is_err());
        assert!(begin.elapsed() >= ms(3), "early");
        let begin = now();
        assert!(receiver.recv_timeout(ms(3)).is_err());
        assert!(begin.elapsed() >= ms(3), "early");
        let begin = now();
        let read = sinew::io::read(&from, &mut [0; 8], Some(ms(3)));
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        assert!(begin.elapsed() >= ms(3), "early");
        let begin = now();
        assert!(timeout(ms(3), || sleep(Duration::MAX)).is_err());
        assert!(begin.elapsed() >= ms(3), "early");
        // What comes is not held up: with nothing to wait for but that, no timer is due for an age.
        let waits = spawn_local(move || receiver.recv_timeout(Duration::MAX));
        yield_now().unwrap();
        sender.send(7).unwrap();
        assert_eq!(waits.join().unwrap().unwrap(), 7);
    });
}

// contract: S16
#[test]
fn the_most_is_a_second_and_none_is_the_default() {
    let waited = with_slack(Duration::MAX, || {
        let never = Timer::after(Duration::MAX, || unreachable!("never"));
        let (begin, before) = (now(), sleeps());
        for number in 0..1_000 {
            go_local(move || sleep(us(number)).unwrap());
        }
        sleep(ms(1)).unwrap();
        let slept = sleeps() - before;
        assert!(
            slept <= ends_since(begin, Duration::from_secs(1)),
            "{slept}"
        );
        assert!(never.is_armed());
        begin.elapsed()
    });
    assert!(waited >= ms(1));
    for slack in [Duration::ZERO, Duration::from_nanos(1)] {
        with_slack(slack, || {
            let begin = now();
            sleep(ms(1)).unwrap();
            assert!(begin.elapsed() >= ms(1));
        });
    }
}

// contract: S25
#[test]
fn a_deadlock_is_reported_whatever_the_slack() {
    for slack in [Duration::ZERO, ms(1), Duration::MAX] {
        let stuck = Scheduler::builder().timer_slack(slack).try_run(|| {
            let timer = Timer::after(ms(1), || {});
            let _ = sinew::park();
            drop(timer);
        });
        assert!(matches!(stuck, Err(RunError::Deadlock(_))), "{stuck:?}");
    }
}

// contract: S16
#[test]
fn the_deadline_of_a_run_by_hand_is_no_timer() {
    let builder = Scheduler::builder().timer_slack(Duration::MAX);
    builder.anchor(|scheduler| {
        let waits = spawn_local(|| sleep(Duration::from_secs(3_600)).is_ok());
        assert_eq!(scheduler.step(), Ok(Progress::Made));
        let begin = now();
        assert_eq!(scheduler.poll(begin + ms(2)), Ok(Progress::Timeout));
        assert!(begin.elapsed() >= ms(2));
        drop(waits);
    });
}
