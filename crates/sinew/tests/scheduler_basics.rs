//! Running, spawning, joining, yielding, parking and sleeping in one scheduler.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use sinew::{Builder, Outcome, WaitError, go_local, park, run, sleep, spawn_local, yield_now};

/// What a panic said.
fn text(payload: &(dyn std::any::Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .unwrap_or("not text")
}

// contract: S2
#[test]
fn a_join_gives_the_value() {
    let text = run(|| spawn_local(|| String::from("value")).join().unwrap());
    assert_eq!(text, "value");
}

// contract: S2
#[test]
fn the_outcome_stays_readable_after_the_end() {
    run(|| {
        let handle = spawn_local(|| 5);
        assert!(!handle.is_finished());
        assert_eq!(handle.outcome(), None);
        handle.wait().unwrap();
        assert!(handle.is_finished());
        assert_eq!(handle.outcome(), Some(Outcome::Returned));
        handle.wait().unwrap();
        assert_eq!(handle.join().unwrap(), 5);
    });
}

// contract: S7
#[test]
fn run_returns_when_everything_has_ended() {
    let done = Rc::new(Cell::new(0));
    let in_main = done.clone();
    run(move || {
        for n in 0..10 {
            let done = in_main.clone();
            go_local(move || {
                for _ in 0..n {
                    yield_now()?;
                }
                done.set(done.get() + 1);
                Ok::<(), WaitError>(())
            });
        }
    });
    assert_eq!(done.get(), 10);
}

#[test]
fn the_main_closure_may_borrow() {
    let mut numbers = vec![1, 2, 3];
    let sum = run(|| {
        numbers.push(4);
        numbers.iter().sum::<i32>()
    });
    assert_eq!((sum, numbers.len()), (10, 4));
}

// contract: S26
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn yields_interleave_in_order() {
    let order = Rc::new(RefCell::new(String::new()));
    let inside = order.clone();
    run(move || {
        for name in ['a', 'b', 'c'] {
            let order = inside.clone();
            go_local(move || {
                for _ in 0..3 {
                    order.borrow_mut().push(name);
                    yield_now().unwrap();
                }
            });
        }
    });
    assert_eq!(*order.borrow(), "abcabcabc");
}

// contract: S26
#[test]
fn outside_of_a_scheduler_waits_are_the_threads() {
    assert!(!sinew::in_coroutine());
    yield_now().unwrap();
    sleep(Duration::from_millis(1)).unwrap();
    assert_eq!(
        sinew::park_timeout(Duration::from_millis(1)),
        Err(WaitError::Timeout)
    );
    assert!(sinew::current().is_none());
    assert!(run(sinew::in_coroutine));
}

#[test]
fn spawning_outside_of_a_scheduler_is_refused() {
    let refused = Builder::new().spawn_local(|| 7).unwrap_err();
    assert!(refused.is_state());
    assert!(refused.to_string().contains("sinew::run"), "{refused}");
    assert_eq!(refused.into_inner()(), 7);
    let payload = catch_unwind(|| spawn_local(|| ())).unwrap_err();
    assert!(
        text(&*payload).contains("spawn_local"),
        "{}",
        text(&*payload)
    );
}

#[test]
fn a_scheduler_inside_a_scheduler_is_refused() {
    run(|| {
        let error = sinew::try_run(|| ()).unwrap_err();
        assert!(matches!(error, sinew::RunError::State));
        assert!(error.to_string().contains("already"), "{error}");
    });
    // And afterwards it works again.
    run(|| ());
}

// contract: S2
#[test]
fn bad_sizes_are_errors_that_name_the_thing() {
    run(|| {
        let error = Builder::new().stack_size(1).spawn_local(|| ()).unwrap_err();
        assert!(error.is_invalid());
        assert!(error.to_string().contains("stack size"), "{error}");
        let error = Builder::new()
            .guard_size(usize::MAX)
            .spawn_local(|| ())
            .unwrap_err();
        assert!(error.to_string().contains("guard size"), "{error}");
        // Zero means the default.
        Builder::new()
            .stack_size(0)
            .spawn_local(|| ())
            .unwrap()
            .join()
            .unwrap();
    });
}

#[test]
fn a_panic_reaches_the_joiner_only() {
    run(|| {
        let bad = spawn_local(|| -> i32 { std::panic::resume_unwind(Box::new("boom")) });
        let good = spawn_local(|| 1);
        let error = bad.join().unwrap_err();
        assert!(error.is_panic());
        assert!(error.to_string().contains("boom"), "{error}");
        assert_eq!(text(&*error.into_panic()), "boom");
        assert_eq!(good.join().unwrap(), 1);
    });
}

// contract: S3
#[test]
fn a_panic_that_nobody_joins_is_raised_by_run() {
    let after = Rc::new(Cell::new(false));
    let inside = after.clone();
    let payload = catch_unwind(AssertUnwindSafe(|| {
        run(move || {
            go_local(|| -> () { std::panic::resume_unwind(Box::new("unjoined")) });
            yield_now().unwrap();
            yield_now().unwrap();
            inside.set(true);
        });
    }))
    .unwrap_err();
    assert_eq!(text(&*payload), "unjoined");
    assert!(after.get(), "the others go on");
}

#[test]
fn a_panic_of_main_ends_everything_first() {
    let ended = Rc::new(Cell::new(0));
    let inside = ended.clone();
    let payload = catch_unwind(AssertUnwindSafe(|| {
        run(move || {
            for _ in 0..5 {
                let ended = inside.clone();
                go_local(move || {
                    let result = sinew::park();
                    assert_eq!(result, Err(WaitError::Cancelled));
                    ended.set(ended.get() + 1);
                });
            }
            let never_started = inside.clone();
            yield_now().unwrap();
            go_local(move || never_started.set(1000));
            std::panic::resume_unwind(Box::new("main"));
        });
    }))
    .unwrap_err();
    assert_eq!(text(&*payload), "main");
    assert_eq!(ended.get(), 5);
}

#[test]
fn a_deaf_coroutine_is_unwound_when_main_panics() {
    struct Guard(Rc<Cell<bool>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let dropped = Rc::new(Cell::new(false));
    let inside = dropped.clone();
    let payload = catch_unwind(AssertUnwindSafe(|| {
        run(move || {
            go_local(move || {
                let _guard = Guard(inside);
                loop {
                    let _deaf = sinew::park().is_err();
                }
            });
            yield_now().unwrap();
            std::panic::resume_unwind(Box::new("main"));
        });
    }))
    .unwrap_err();
    assert_eq!(text(&*payload), "main");
    assert!(dropped.get(), "the destructors on its stack ran");
}

// contract: C10
#[test]
fn a_coroutine_cancelled_before_it_starts_never_runs() {
    run(|| {
        let ran = Rc::new(Cell::new(false));
        let inside = ran.clone();
        let handle = spawn_local(move || inside.set(true));
        handle.cancel("changed my mind");
        handle.wait().unwrap();
        assert_eq!(handle.outcome(), Some(Outcome::Cancelled));
        assert!(handle.join().unwrap_err().is_cancelled());
        assert!(!ran.get());
        assert_eq!(Rc::strong_count(&ran), 1, "its closure was dropped");
    });
}

// contract: C10, C11, S12, S13
#[test]
fn a_cancel_ends_the_wait() {
    run(|| {
        let sleeper = spawn_local(|| {
            assert!(!sinew::stopping());
            let result = sleep(Duration::from_secs(3600));
            (result, sinew::stopping(), yield_now())
        });
        let parker = spawn_local(sinew::park);
        yield_now().unwrap();
        sleeper.cancel("enough");
        parker.cancel("enough");
        let cancelled = Err(WaitError::Cancelled);
        assert_eq!(sleeper.join().unwrap(), (cancelled, true, cancelled));
        assert_eq!(parker.join().unwrap(), cancelled);
    });
}

// contract: C10
#[test]
fn a_confirmed_cancel_is_the_outcome() {
    run(|| {
        let handle = spawn_local(|| {
            assert_eq!(
                sinew::confirm_cancel(),
                Err(WaitError::State),
                "nothing was requested"
            );
            sinew::park().unwrap_err();
            sinew::confirm_cancel().unwrap();
            "dropped"
        });
        yield_now().unwrap();
        handle.cancel("stop");
        handle.wait().unwrap();
        assert_eq!(handle.outcome(), Some(Outcome::Cancelled));
        assert!(handle.join().unwrap_err().is_cancelled());
        assert!(!sinew::stopping());
    });
}

// contract: S12
#[test]
fn an_early_unpark_is_remembered_and_several_are_one() {
    run(|| {
        let handle = spawn_local(|| {
            yield_now().unwrap();
            let first = sinew::park();
            let second = sinew::park_timeout(Duration::from_millis(2));
            (first, second)
        });
        let unparker = handle.unparker();
        for _ in 0..3 {
            unparker.unpark();
        }
        assert_eq!(handle.join().unwrap(), (Ok(()), Err(WaitError::Timeout)));
    });
}

// contract: S15
#[test]
fn an_unparker_outlives_its_coroutine() {
    let unparker = run(|| {
        let handle = spawn_local(|| ());
        handle.unparker()
    });
    unparker.unpark();
    let other = unparker.clone();
    std::thread::spawn(move || other.unpark()).join().unwrap();
    run(|| unparker.unpark());
}

// contract: S15
#[test]
fn an_unpark_from_another_thread_wakes_a_sleeping_scheduler() {
    run(|| {
        let (to_thread, from_main) = std::sync::mpsc::channel::<sinew::Unparker>();
        let thread = std::thread::spawn(move || {
            for unparker in from_main {
                unparker.unpark();
            }
        });
        for _ in 0..1000 {
            to_thread
                .send(sinew::current().unwrap().unparker())
                .unwrap();
            sinew::park().unwrap();
        }
        drop(to_thread);
        thread.join().unwrap();
    });
}

#[test]
fn joining_oneself_is_a_deadlock_error() {
    run(|| {
        let slot: Rc<RefCell<Option<sinew::JoinHandle<()>>>> = Rc::default();
        let inside = slot.clone();
        let handle = spawn_local(move || {
            let me = inside.borrow_mut().take().unwrap();
            assert_eq!(me.wait(), Err(WaitError::Deadlock));
            let error = me.join().unwrap_err();
            assert!(error.is_deadlock());
        });
        *slot.borrow_mut() = Some(handle);
        yield_now().unwrap();
    });
}

// contract: S13, S16
#[test]
fn sleepers_wake_in_the_order_of_their_deadlines_and_never_early() {
    run(|| {
        let order = Rc::new(RefCell::new(Vec::new()));
        // One beginning for all: where all is slow, milliseconds may pass from one spawn to the next.
        let before = sinew::time::now();
        let handles: Vec<_> = [30_u64, 10, 20, 0]
            .into_iter()
            .map(|ms| {
                let order = order.clone();
                spawn_local(move || {
                    let deadline = before + Duration::from_millis(ms);
                    sinew::sleep_until(deadline).unwrap();
                    assert!(sinew::time::now() >= deadline, "early");
                    order.borrow_mut().push(ms);
                })
            })
            .collect();
        for handle in handles {
            handle.join().unwrap();
        }
        let mut order = order.take();
        // Where the machine is slow two may have come due before either runs, and then it is anybody's turn.
        if cfg!(sinew_shuffle) {
            order.sort_unstable();
        }
        assert_eq!(order, [0, 10, 20, 30]);
    });
}

// contract: S17
#[test]
fn coroutines_that_yield_for_ever_do_not_starve_a_timer() {
    run(|| {
        let stop = Rc::new(Cell::new(false));
        for _ in 0..2 {
            let stop = stop.clone();
            go_local(move || {
                while !stop.get() {
                    yield_now().unwrap();
                }
            });
        }
        sleep(Duration::from_millis(1)).unwrap();
        stop.set(true);
    });
}

#[test]
fn names_and_ids_are_seen_from_inside() {
    run(|| {
        let handle = Builder::new()
            .name("worker 7")
            .priority(sinew::Priority::Normal)
            .spawn_local(|| {
                let me = sinew::current().unwrap();
                (me.id(), me.name())
            })
            .unwrap();
        let id = handle.id();
        assert_eq!(handle.name().as_deref(), Some("worker 7"));
        let (seen, name) = handle.join().unwrap();
        assert_eq!((seen, name.as_deref()), (id, Some("worker 7")));
    });
}

#[test]
fn results_of_every_size_come_through() {
    #[repr(align(64))]
    #[derive(Debug, PartialEq, Clone)]
    struct Big([u64; 64]);
    run(|| {
        let big = Big([7; 64]);
        let captured = big.clone();
        assert_eq!(spawn_local(move || captured).join().unwrap(), big);
        let shared = Rc::new(());
        let small = shared.clone();
        drop(spawn_local(move || small));
        yield_now().unwrap();
        let large = (shared.clone(), [0_u8; 500]);
        drop(spawn_local(move || large));
        yield_now().unwrap();
        let kept = spawn_local({
            let shared = shared.clone();
            move || shared
        });
        kept.wait().unwrap();
        assert_eq!(Rc::strong_count(&shared), 2);
        drop(kept);
        assert_eq!(
            Rc::strong_count(&shared),
            1,
            "an unjoined value is dropped with the handle"
        );
    });
}

#[test]
fn a_hundred_thousand_are_alive_at_once() {
    run(|| {
        let woken = Rc::new(Cell::new(0));
        let handles: Vec<_> = (0..100_000)
            .map(|_| {
                let woken = woken.clone();
                spawn_local(move || {
                    sinew::park().unwrap();
                    woken.set(woken.get() + 1);
                })
            })
            .collect();
        yield_now().unwrap();
        for handle in &handles {
            handle.unparker().unpark();
        }
        for handle in handles {
            handle.join().unwrap();
        }
        assert_eq!(woken.get(), 100_000);
    });
}

// contract: C26
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes next.
fn a_park_hands_the_thread_straight_to_the_next_one() {
    // The scheduler's own frame takes in what other threads wake whenever it is entered. So the switches between two that wake each
    // other and park, from such a wake to its effect, are those that have not gone through it.
    let counts = run(|| {
        let (switches, last) = (Rc::new(Cell::new(0_u32)), Rc::new(Cell::new(0_u8)));
        let count = move |me: u8| {
            if last.replace(me) != me {
                switches.set(switches.get() + 1);
            }
            switches.get()
        };
        let (is_woken, is_over) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
        let outsider = spawn_local({
            let (is_woken, is_over) = (is_woken.clone(), is_over.clone());
            move || {
                while !is_over.get() {
                    park().unwrap();
                    is_woken.set(true);
                }
            }
        });
        let other = spawn_local({
            let (count, is_over) = (count.clone(), is_over.clone());
            let first = sinew::current().unwrap().unparker();
            move || {
                while !is_over.get() {
                    count(1);
                    first.unpark();
                    park().unwrap();
                }
            }
        });
        let (wake_other, wake_outsider) = (other.unparker(), outsider.unparker());
        let counts: Vec<u32> = (0..50)
            .map(|_| {
                is_woken.set(false);
                let wake = wake_outsider.clone();
                std::thread::spawn(move || wake.unpark()).join().unwrap();
                let before = count(0);
                while !is_woken.get() {
                    wake_other.unpark();
                    park().unwrap();
                    count(0);
                }
                count(0) - before
            })
            .collect();
        is_over.set(true);
        wake_other.unpark();
        wake_outsider.unpark();
        counts
    });
    let longest = *counts.iter().max().unwrap();
    assert!(
        longest >= 48,
        "no more than {longest} switches in a row: {counts:?}"
    );
    // And yet nobody outside is kept waiting.
    assert!(longest <= 80, "{longest} switches in a row: {counts:?}");
}
