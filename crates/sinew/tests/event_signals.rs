//! Single events: who gets a signal, and that nothing else passes for one.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use sinew::event::Event;
use sinew::{WaitError, go_local, park_timeout, run, spawn_local, yield_now};

const MOMENT: Duration = Duration::from_micros(50);

/// Lets everyone run until nobody can.
fn settle() {
    for _ in 0..5 {
        yield_now().unwrap();
    }
}

// contract: E1
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn each_set_of_an_auto_event_wakes_the_first_that_waits() {
    run(|| {
        let event = Rc::new(Event::auto());
        let order = Rc::new(RefCell::new(Vec::new()));
        for number in 0..4 {
            let (event, order) = (event.clone(), order.clone());
            go_local(move || {
                event.wait().unwrap();
                order.borrow_mut().push(number);
            });
        }
        settle();
        assert!(order.borrow().is_empty(), "nobody has set it");
        for number in 0..4 {
            event.set();
            settle();
            assert_eq!(order.borrow().len(), number + 1, "one set wakes one");
        }
        assert_eq!(*order.borrow(), [0, 1, 2, 3]);
        assert!(!event.is_set());
        for _ in 0..3 {
            event.set();
        }
        assert!(event.is_set());
        assert_eq!(event.wait(), Ok(()));
        assert_eq!(event.wait_timeout(MOMENT), Err(WaitError::Timeout));
    });
}

// contract: E2
#[test]
fn a_manual_event_lets_all_through_until_it_is_reset() {
    run(|| {
        let event = Rc::new(Event::manual());
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let event = event.clone();
                spawn_local(move || event.wait())
            })
            .collect();
        settle();
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        event.set();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Ok(()));
        }
        for _ in 0..3 {
            assert_eq!(event.wait(), Ok(()));
            assert!(event.try_wait() && event.is_set());
        }
        assert!(event.reset());
        assert!(!event.reset() && !event.is_set() && !event.try_wait());
        assert_eq!(event.wait_timeout(MOMENT), Err(WaitError::Timeout));
    });
}

// contract: E2
#[test]
fn who_was_woken_goes_on_although_the_event_is_reset_at_once() {
    run(|| {
        let event = Rc::new(Event::manual());
        let other = event.clone();
        let waiter = spawn_local(move || other.wait());
        settle();
        event.set();
        event.reset();
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
}

// contract: E3
#[test]
fn every_form_of_wait_ends_as_it_should() {
    let check = || {
        for event in [Event::auto(), Event::manual()] {
            assert!(!event.try_wait());
            let late = Err(WaitError::Timeout);
            assert_eq!(event.wait_timeout(MOMENT), late);
            assert_eq!(event.wait_timeout(Duration::ZERO), late);
            assert_eq!(event.wait_deadline(sinew::time::now()), late);
            event.set();
            assert_eq!(event.wait_deadline(sinew::time::now()), Ok(()), "it is set");
            event.set();
            assert_eq!(event.wait_timeout(Duration::ZERO), Ok(()), "it is set");
            event.set();
            assert!(event.try_wait());
        }
    };
    check();
    run(check);
    run(|| {
        let event = Rc::new(Event::auto());
        let other = event.clone();
        let waiter = spawn_local(move || (other.wait(), other.wait_timeout(MOMENT)));
        settle();
        waiter.cancel("stop");
        let cancelled = Err(WaitError::Cancelled);
        assert_eq!(waiter.join().unwrap(), (cancelled, cancelled));
        event.set();
        assert!(event.try_wait(), "who was cancelled has taken nothing");
    });
}

// contract: E1, E3
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn a_signal_is_not_lost_with_the_waiter_that_was_chosen() {
    run(|| {
        let event = Rc::new(Event::auto());
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let event = event.clone();
                spawn_local(move || event.wait_timeout(Duration::from_secs(3600)))
            })
            .collect();
        settle();
        event.set();
        // It is chosen, and has not run: the claim stands.
        waiters[0].cancel("too late");
        settle();
        assert!(!waiters[1].is_finished(), "one set wakes one");
        // Cancelled first: the signal is for the one after it.
        let other = event.clone();
        let third = spawn_local(move || other.wait());
        settle();
        waiters[1].cancel("in time");
        event.set();
        let ends: Vec<_> = waiters
            .into_iter()
            .map(|waiter| waiter.join().unwrap())
            .collect();
        assert_eq!(ends, [Ok(()), Err(WaitError::Cancelled)]);
        assert_eq!(third.join().unwrap(), Ok(()));
        assert!(!event.is_set());
    });
}

// contract: E1
#[test]
fn a_signal_is_not_lost_when_its_waiter_is_unwound_by_force() {
    let event = Rc::new(Event::auto());
    let through = Rc::new(Cell::new(0));
    let (inside, counted) = (event.clone(), through.clone());
    let end = catch_unwind(AssertUnwindSafe(|| {
        run(move || {
            for _ in 0..2 {
                let (event, through) = (inside.clone(), counted.clone());
                // Deaf: only the forced unwind ends it.
                go_local(move || {
                    loop {
                        if event.wait().is_ok() {
                            through.set(through.get() + 1);
                        }
                    }
                });
            }
            settle();
            inside.set();
            std::panic::resume_unwind(Box::new("the end"));
        });
    }));
    assert_eq!(*end.unwrap_err().downcast::<&str>().unwrap(), "the end");
    let left = usize::from(event.try_wait());
    assert_eq!(through.get() + left, 1, "lost or doubled");
}

// contract: E5
#[test]
fn an_event_may_be_a_static() {
    static AUTO: Event = Event::auto();
    static MANUAL: Event = Event::manual();
    let thread = std::thread::spawn(|| {
        AUTO.wait().unwrap();
        MANUAL.set();
    });
    run(|| {
        AUTO.set();
        MANUAL.wait().unwrap();
    });
    thread.join().unwrap();
    assert!(!AUTO.is_set() && MANUAL.is_set());
    assert!(format!("{AUTO:?} {MANUAL:?}").contains("set: true"));
}

// contract: E6
#[test]
fn an_unpark_does_not_pass_for_a_signal_and_is_kept() {
    run(|| {
        let event = Rc::new(Event::auto());
        let other = event.clone();
        let waiter = spawn_local(move || {
            let signal = other.wait();
            let timeout = other.wait_timeout(MOMENT);
            (
                signal,
                timeout,
                park_timeout(Duration::ZERO),
                park_timeout(MOMENT),
            )
        });
        settle();
        for _ in 0..3 {
            waiter.unparker().unpark();
            settle();
            assert!(!waiter.is_finished(), "an unpark ended a wait for an event");
        }
        event.set();
        let late = Err(WaitError::Timeout);
        assert_eq!(waiter.join().unwrap(), (Ok(()), late, Ok(()), late));
    });
}

// contract: E6
#[test]
fn an_unpark_of_a_plain_thread_does_not_pass_for_a_signal() {
    static EVENT: Event = Event::auto();
    static RETURNED: AtomicBool = AtomicBool::new(false);
    let thread = std::thread::spawn(|| {
        EVENT.wait().unwrap();
        RETURNED.store(true, SeqCst);
    });
    for _ in 0..2000 {
        thread.thread().unpark();
        std::thread::yield_now();
    }
    assert!(!RETURNED.load(SeqCst));
    EVENT.set();
    thread.join().unwrap();
    assert!(RETURNED.load(SeqCst));
}

// contract: S17
#[test]
fn a_loop_over_an_event_that_is_set_does_not_starve_the_rest() {
    run(|| {
        let event = Rc::new(Event::manual());
        event.set();
        let stop = Rc::new(Cell::new(false));
        let seen = stop.clone();
        go_local(move || {
            while !seen.get() {
                event.wait().unwrap();
            }
        });
        settle();
        stop.set(true);
    });
}

// contract: Y11, E2
#[test]
fn one_event_wakes_coroutines_of_two_schedulers_and_threads() {
    let event = Arc::new(Event::manual());
    let (waiting, woken) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let threads: Vec<_> = (0..4)
        .map(|which| {
            let (event, waiting, woken) = (event.clone(), waiting.clone(), woken.clone());
            std::thread::spawn(move || {
                let wait = move || {
                    waiting.fetch_add(1, SeqCst);
                    event.wait().unwrap();
                    woken.fetch_add(1, SeqCst);
                };
                if which < 2 {
                    return wait();
                }
                run(|| {
                    for _ in 0..10 {
                        go_local(wait.clone());
                    }
                });
            })
        })
        .collect();
    while waiting.load(SeqCst) < 22 {
        std::thread::yield_now();
    }
    assert_eq!(woken.load(SeqCst), 0);
    run(|| event.set());
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(woken.load(SeqCst), 22);
}

#[test]
fn a_listing_says_who_waits_for_an_event() {
    run(|| {
        let event = Rc::new(Event::auto());
        let other = event.clone();
        let waiter = spawn_local(move || other.wait());
        settle();
        let wait = sinew::inspect::find(waiter.id()).unwrap().wait.unwrap();
        assert_eq!(wait.what, "event");
        event.set();
        waiter.join().unwrap().unwrap();
    });
}
