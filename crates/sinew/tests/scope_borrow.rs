//! Scopes: children that borrow, joined on every exit; deadlines and shields around code.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use sinew::sync::channel::rendezvous;
use sinew::{Elapsed, WaitError, run, scope, shield, sleep, spawn_local, timeout, yield_now};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(2);

fn text(payload: &(dyn std::any::Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .unwrap_or("not text")
}

// contract: A3
#[test]
fn children_borrow_and_are_joined() {
    run(|| {
        let mut numbers = [1, 2, 3];
        let total = Cell::new(0);
        let returned = scope(|s| {
            for number in &mut numbers {
                let total = &total;
                s.spawn(move || {
                    yield_now().unwrap();
                    *number *= 10;
                    total.set(total.get() + *number);
                });
            }
            s.spawn(|| "joined").join().unwrap()
        });
        assert_eq!(
            (returned, total.get(), numbers),
            ("joined", 60, [10, 20, 30])
        );
    });
}

// contract: A3
#[test]
fn a_scope_left_by_panic_cancels_and_waits() {
    run(|| {
        let ends = RefCell::new(Vec::new());
        let payload = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                for n in 0..3 {
                    let ends = &ends;
                    s.spawn(move || {
                        let result = sleep(LONG);
                        ends.borrow_mut().push((n, result));
                    });
                }
                yield_now().unwrap();
                s.spawn(|| ends.borrow_mut().push((9, Ok(()))));
                resume_unwind(Box::new("left"))
            })
        }))
        .unwrap_err();
        assert_eq!(text(&*payload), "left");
        let cancelled = Err(WaitError::Cancelled);
        let mut ends = ends.into_inner();
        ends.sort_by_key(|(n, _)| *n);
        assert_eq!(ends, [(0, cancelled), (1, cancelled), (2, cancelled)]);
    });
}

// contract: A3
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn the_first_panic_of_a_child_is_raised_after_all_have_ended() {
    run(|| {
        let ended = Cell::new(0);
        let payload = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                s.spawn(|| -> () { resume_unwind(Box::new("first")) });
                s.spawn(|| -> () { resume_unwind(Box::new("second")) });
                s.spawn(|| {
                    yield_now().unwrap();
                    yield_now().unwrap();
                    ended.set(ended.get() + 1);
                });
                let joined = s.spawn(|| -> () { resume_unwind(Box::new("joined")) });
                assert!(joined.join().unwrap_err().is_panic());
            });
        }))
        .unwrap_err();
        assert_eq!((text(&*payload), ended.get()), ("first", 1));
    });
}

// contract: A3
#[test]
fn the_wait_for_children_cannot_be_cancelled_but_reaches_them() {
    run(|| {
        let order = Rc::new(RefCell::new(Vec::new()));
        let inside = order.clone();
        let handle = spawn_local(move || {
            scope(|s| {
                s.spawn(|| {
                    let result = shield(|| sleep(SHORT));
                    inside.borrow_mut().push(("deaf child", result));
                });
                s.spawn(|| {
                    let result = sleep(LONG);
                    inside.borrow_mut().push(("child", result));
                });
            });
            inside.borrow_mut().push(("parent", yield_now()));
        });
        yield_now().unwrap();
        yield_now().unwrap();
        handle.cancel("stop");
        handle.join().unwrap();
        let cancelled = Err(WaitError::Cancelled);
        let expected = [
            ("child", cancelled),
            ("deaf child", Ok(())),
            ("parent", cancelled),
        ];
        assert_eq!(*order.borrow(), expected);
    });
}

// contract: A3
#[test]
fn a_value_that_borrows_is_gone_before_the_scope_ends() {
    struct Slow<'a>(&'a Cell<bool>);
    impl Drop for Slow<'_> {
        fn drop(&mut self) {
            // The scope's closure is over by now; the flag must still be there after a suspend.
            yield_now().unwrap();
            yield_now().unwrap();
            self.0.set(true);
        }
    }
    run(|| {
        let dropped = Cell::new(false);
        scope(|s| drop(s.spawn(|| Slow(&dropped))));
        assert!(dropped.get());
    });
}

// contract: A3
#[test]
fn a_scope_is_waited_for_when_the_scheduler_ends_early() {
    struct Note<'a>(&'a str, &'a RefCell<Vec<&'static str>>, &'static str);
    impl Drop for Note<'_> {
        fn drop(&mut self) {
            assert_eq!(self.0, "borrowed");
            self.1.borrow_mut().push(self.2);
        }
    }
    let order = Rc::new(RefCell::new(Vec::new()));
    let inside = order.clone();
    let payload = catch_unwind(AssertUnwindSafe(|| {
        run(move || {
            spawn_local(move || {
                let text = String::from("borrowed");
                let _parent = Note(&text, &inside, "parent");
                scope(|s| {
                    s.spawn(|| {
                        let _child = Note(&text, &inside, "child");
                        loop {
                            let _deaf = sleep(LONG).is_err();
                        }
                    });
                });
            });
            yield_now().unwrap();
            yield_now().unwrap();
            resume_unwind(Box::new("main"))
        })
    }))
    .unwrap_err();
    assert_eq!(text(&*payload), "main");
    assert_eq!(*order.borrow(), ["child", "parent"]);
}

#[test]
#[should_panic(expected = "outside of sinew::run")]
fn a_scope_outside_of_a_scheduler_says_so() {
    scope(|_| ());
}

// contract: C28
#[test]
fn a_timeout_covers_every_wait_inside() {
    run(|| {
        let seen = RefCell::new(Vec::new());
        let (_sender, receiver) = rendezvous::<()>();
        let result = timeout(SHORT, || {
            let received = receiver.recv();
            let slept = sleep(LONG);
            *seen.borrow_mut() = vec![received, slept, yield_now()];
            assert!(sinew::stopping());
        });
        assert_eq!(result, Err(Elapsed));
        assert_eq!(*seen.borrow(), [Err(WaitError::Cancelled); 3]);
        assert!(!sinew::stopping());
        yield_now().unwrap();
    });
}

// contract: C28
#[test]
fn nested_timeouts_go_by_the_earliest_and_own_deadlines_stay_timeouts() {
    run(|| {
        // The inner one is the earlier.
        let result = timeout(LONG, || {
            assert_eq!(timeout(SHORT, || sleep(LONG)), Err(Elapsed));
            sleep(SHORT)
        });
        assert_eq!(result, Ok(Ok(())));
        // The outer one is the earlier: the inner one is not the one that elapsed.
        let mut inner = None;
        let result = timeout(SHORT, || inner = Some(timeout(LONG, || sleep(LONG))));
        assert_eq!(
            (result, inner),
            (Err(Elapsed), Some(Ok(Err(WaitError::Cancelled))))
        );
        // A wait's own deadline is a timeout.
        let result = timeout(LONG, || sinew::park_timeout(SHORT));
        assert_eq!(result, Ok(Err(WaitError::Timeout)));
        // A value that came in spite of the deadline counts.
        let result = timeout(Duration::ZERO, || 7);
        assert_eq!(result, Ok(7));
    });
}

// contract: C28
#[test]
fn timeouts_work_on_a_plain_thread() {
    let (_sender, receiver) = rendezvous::<()>();
    let result = timeout(SHORT, || receiver.recv());
    assert_eq!(result, Err(Elapsed));
    let (reader, _writer) = sinew::io::pipe().unwrap();
    let mut buffer = [0];
    let result = timeout(SHORT, || {
        sinew::io::read(&reader, &mut buffer, None).unwrap_err()
    });
    assert!(result.is_err());
    assert_eq!(timeout(LONG, || sleep(SHORT)), Ok(Ok(())));
    assert_eq!(timeout(SHORT, || sleep(LONG)), Err(Elapsed));
}

// contract: C28
#[test]
fn a_shield_defers_cancels_and_outer_deadlines() {
    run(|| {
        let handle = spawn_local(|| {
            let inside = shield(|| {
                let result = sleep(SHORT);
                // A deadline of its own works inside.
                assert_eq!(timeout(SHORT, || sleep(LONG)), Err(Elapsed));
                (result, yield_now())
            });
            (inside, yield_now())
        });
        yield_now().unwrap();
        handle.cancel("stop");
        let cancelled = Err(WaitError::Cancelled);
        assert_eq!(handle.join().unwrap(), ((Ok(()), Ok(())), cancelled));
        let result = timeout(SHORT, || {
            shield(|| sleep(SHORT * 3)).unwrap();
            sleep(LONG)
        });
        assert_eq!(result, Err(Elapsed));
    });
}

// contract: C28
#[test]
fn limits_end_with_a_panic_too() {
    run(|| {
        let payload = catch_unwind(AssertUnwindSafe(|| {
            timeout(SHORT, || resume_unwind(Box::new("inside")))
        }));
        assert!(payload.is_err());
        sleep(SHORT * 2).unwrap();
    });
}
