//! Ending coroutines: `exit` from any depth, stop by id, `exit_all`.

use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

use sinew::{
    NotFound, Outcome, RunError, Scheduler, StateError, WaitError, cancel_id, cancel_id_within,
    exit, exit_all, go_local, run, run_code, scope, spawn_local, try_run, yield_now,
};

/// What a panic said.
fn text(payload: &(dyn std::any::Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// Notes that it was dropped.
struct Note(Rc<Cell<u32>>);

impl Drop for Note {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

fn deep<T: 'static>(depth: u32, notes: &Rc<Cell<u32>>, value: T) -> ! {
    let _note = Note(notes.clone());
    if depth == 0 {
        exit(value)
    }
    deep(depth - 1, notes, value)
}

// contract: S20
#[test]
fn exit_ends_the_coroutine_from_any_depth_and_its_destructors_run() {
    run(|| {
        let notes = Rc::new(Cell::new(0));
        let inside = notes.clone();
        // Neither `Send` nor `Copy`.
        let handle = spawn_local(move || -> Rc<str> { deep(99, &inside, Rc::<str>::from("out")) });
        handle.wait().unwrap();
        assert_eq!(notes.get(), 100);
        assert_eq!(handle.outcome(), Some(Outcome::Returned));
        assert_eq!(&*handle.join().unwrap(), "out");
    });
}

// contract: S20
#[test]
fn destructors_may_wait_on_the_way_out() {
    struct Waits(Rc<Cell<bool>>);
    impl Drop for Waits {
        fn drop(&mut self) {
            yield_now().unwrap();
            sinew::sleep(Duration::from_millis(1)).unwrap();
            self.0.set(true);
        }
    }
    run(|| {
        let waited = Rc::new(Cell::new(false));
        let waits = Waits(waited.clone());
        let handle = spawn_local(move || {
            let _waits = waits;
            exit(3_u8);
        });
        // `exit` does not return, so the closure's type is said by the handle.
        let handle: sinew::JoinHandle<()> = handle;
        let error = handle.join().unwrap_err();
        assert!(waited.get());
        assert!(error.is_panic(), "u8 is not ()");
    });
}

// contract: S20
#[test]
fn a_value_of_another_type_is_an_error_that_names_both() {
    run(|| {
        let dropped = Rc::new(Cell::new(0));
        let note = Note(dropped.clone());
        let handle = spawn_local(move || -> u32 { exit(note) });
        let payload = handle.join().unwrap_err().into_panic();
        let text = text(&*payload);
        assert!(text.contains("Note") && text.contains("u32"), "{text}");
        assert_eq!(dropped.get(), 1, "not lost");
    });
}

// contract: S20
#[test]
fn exit_works_in_the_first_coroutine_and_in_children_of_scopes() {
    assert_eq!(run(|| -> i32 { exit(5_i32) }), 5);
    let () = run(|| exit(()));
    let result: io::Result<()> = run(|| exit::<io::Result<()>>(Err(io::Error::other("out"))));
    assert_eq!(result.unwrap_err().to_string(), "out");
    let total = run(|| {
        let numbers = [1_u64, 2, 3];
        scope(|s| {
            let handles: Vec<_> = numbers
                .iter()
                .map(|n| s.spawn(move || -> u64 { exit(*n * 2) }))
                .collect();
            handles.into_iter().map(|h| h.join().unwrap()).sum::<u64>()
        })
    });
    assert_eq!(total, 12);
}

// contract: S20
#[test]
fn a_result_that_may_borrow_is_not_taken_from_an_exit() {
    run(|| {
        scope(|s| {
            // `&'static str` is not `&'scope str` for everything that has one inside, so none is taken.
            let child = s.spawn(|| -> &'static str { exit("static") });
            let payload = child.join().unwrap_err().into_panic();
            let text = text(&*payload);
            assert!(text.contains("cannot borrow"), "{text}");
        });
        // Without a scope it is known to be 'static.
        let handle = spawn_local(|| -> &'static str { exit("static") });
        assert_eq!(handle.join().unwrap(), "static");
    });
}

// contract: S20
#[test]
fn a_scope_that_is_left_by_exit_waits_for_its_children() {
    run(|| {
        let ended = Rc::new(Cell::new(0));
        let inside = ended.clone();
        let handle = spawn_local(move || -> u8 {
            scope(|s| {
                s.spawn(|| {
                    let _note = Note(inside.clone());
                    let _cancelled = sinew::park();
                });
                yield_now().unwrap();
                exit(9_u8)
            })
        });
        assert_eq!(handle.join().unwrap(), 9);
        assert_eq!(ended.get(), 1);
    });
}

// contract: S20
#[test]
fn an_exit_can_be_caught_and_raised_again_and_leaks_no_value() {
    run(|| {
        let dropped = Rc::new(Cell::new(0));
        let note = Note(dropped.clone());
        let handle = spawn_local(move || {
            let payload = catch_unwind(AssertUnwindSafe(|| exit(note))).unwrap_err();
            drop(payload);
            1
        });
        assert_eq!(handle.join().unwrap(), 1);
        assert_eq!(dropped.get(), 1);
        let handle = spawn_local(|| -> i32 {
            let payload = catch_unwind(|| exit(2_i32)).unwrap_err();
            resume_unwind(payload)
        });
        assert_eq!(handle.join().unwrap(), 2);
    });
}

// contract: S20
#[test]
fn an_exits_value_is_never_touched_by_another_thread() {
    run(|| {
        let dropped = Rc::new(Cell::new(0));
        let note = Note(dropped.clone());
        spawn_local(move || {
            let payload = catch_unwind(AssertUnwindSafe(|| exit(note))).unwrap_err();
            std::thread::spawn(move || drop(payload)).join().unwrap();
            let payload = catch_unwind(|| exit(Rc::new(5))).unwrap_err();
            let elsewhere = std::thread::spawn(move || {
                run(|| {
                    spawn_local(move || -> Rc<i32> { resume_unwind(payload) })
                        .join()
                        .map(|_| ())
                })
                .unwrap_err()
                .into_panic()
            });
            let payload = elsewhere.join().unwrap();
            assert!(
                text(&*payload).contains("another thread"),
                "{}",
                text(&*payload)
            );
        })
        .join()
        .unwrap();
        assert_eq!(dropped.get(), 0, "leaked rather than dropped elsewhere");
    });
}

// contract: S20
#[test]
fn exit_outside_of_a_coroutine_panics_with_a_message() {
    let payload = catch_unwind(|| exit(1)).unwrap_err();
    assert!(text(&*payload).contains("outside of a coroutine"));
    Scheduler::anchor(|s| {
        s.handle().post(|| exit(())).unwrap();
        let payload = catch_unwind(AssertUnwindSafe(|| s.run())).unwrap_err();
        assert!(text(&*payload).contains("outside of a coroutine"));
    });
}

// contract: S20
#[test]
fn a_coroutine_is_cancelled_by_its_id() {
    run(|| {
        let parked = spawn_local(sinew::park);
        yield_now().unwrap();
        assert_eq!(cancel_id(parked.id(), "by number"), Ok(()));
        let token = parked.cancel_token();
        assert_eq!(&*token.cause().unwrap().reason, "by number");
        let id = parked.id();
        assert_eq!(parked.join().unwrap(), Err(WaitError::Cancelled));
        assert_eq!(cancel_id(id, "too late"), Err(NotFound));
        assert_eq!(cancel_id(u64::MAX, "nobody"), Err(NotFound));
        assert!(NotFound.to_string().contains("no live coroutine"));
    });
    assert_eq!(cancel_id(u64::MAX, "no scheduler"), Err(NotFound));
}

// contract: S20
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn exit_all_cancels_in_order_and_run_returns_the_code() {
    let order = Rc::new(RefCell::new(Vec::new()));
    let inside = order.clone();
    let code = run_code(move || {
        for n in 0..5 {
            let order = inside.clone();
            go_local(move || {
                assert_eq!(sinew::park(), Err(WaitError::Cancelled));
                order.borrow_mut().push(n);
            });
        }
        yield_now().unwrap();
        go_local(|| {
            exit_all(42).unwrap();
            // The first one stands.
            exit_all(43).unwrap();
            assert_eq!(yield_now(), Err(WaitError::Cancelled));
        });
        assert_eq!(sinew::park(), Err(WaitError::Cancelled));
        0
    });
    assert_eq!(code, 42);
    assert_eq!(*order.borrow(), [0, 1, 2, 3, 4]);
    assert_eq!(run_code(|| 7), 7);
    assert_eq!(exit_all(1), Err(StateError));
}

// contract: S20
#[test]
fn exit_all_unwinds_what_does_not_end() {
    let unwound = Rc::new(Cell::new(0));
    let note = Note(unwound.clone());
    let error = try_run(move || {
        let _note = note;
        exit_all(3).unwrap();
        loop {
            let _again = sinew::park();
        }
    })
    .unwrap_err();
    assert!(matches!(error, RunError::Exited(3)), "{error:?}");
    assert!(error.to_string().contains("exit_all(3)"), "{error}");
    assert_eq!(unwound.get(), 1);
    // A value that was returned all the same is not lost.
    let value = try_run(|| {
        exit_all(4).unwrap();
        "value"
    });
    assert_eq!(value.unwrap(), "value");
    // Also one of a closure that confirmed the cancel.
    let value = try_run(|| {
        exit_all(5).unwrap();
        sinew::confirm_cancel().unwrap();
        "kept"
    });
    assert_eq!(value.unwrap(), "kept");
}

// contract: S20
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn exit_all_ends_a_scheduler_that_is_run_by_hand() {
    Scheduler::anchor(|s| {
        let parked = spawn_local(sinew::park);
        go_local(|| exit_all(6).unwrap());
        assert_eq!(s.exit_code(), None);
        assert_eq!(s.run(), Ok(sinew::Progress::Closed));
        assert_eq!(s.exit_code(), Some(6));
        assert!(s.is_closed());
        assert_eq!(parked.join().unwrap(), Err(WaitError::Cancelled));
        assert!(s.handle().post(|| ()).unwrap_err().is_closed());
    });
}

// contract: S20
#[test]
fn a_detached_coroutine_exits_with_what_it_may_return() {
    run(|| {
        let after = Rc::new(Cell::new(0));
        let note = Note(after.clone());
        go_local(move || {
            let _note = note;
            exit(())
        });
        let note = Note(after.clone());
        go_local(move || -> io::Result<()> {
            let _note = note;
            exit::<io::Result<()>>(Ok(()))
        });
        yield_now().unwrap();
        assert_eq!(after.get(), 2);
    });
    // Another type is a panic that nobody joins.
    let payload = catch_unwind(|| run(|| go_local(|| -> io::Result<()> { exit(5) }))).unwrap_err();
    assert!(text(&*payload).contains("i32"), "{}", text(&*payload));
}

// contract: S20
#[test]
fn after_a_grace_a_coroutine_is_unwound() {
    run(|| {
        let unwound = Rc::new(Cell::new(0));
        let note = Note(unwound.clone());
        let stubborn = spawn_local(move || {
            let _note = note;
            loop {
                let _again = sinew::park();
            }
        });
        let stubborn: sinew::JoinHandle<()> = stubborn;
        // One that catches the first unwinds is unwound again.
        let catches = spawn_local(|| {
            for _ in 0..3 {
                let caught = catch_unwind(|| {
                    loop {
                        let _again = sinew::park();
                    }
                });
                assert!(caught.is_err());
            }
            loop {
                let _again = sinew::park();
            }
        });
        let catches: sinew::JoinHandle<()> = catches;
        let moment = Duration::from_millis(2);
        yield_now().unwrap();
        for handle in [&stubborn, &catches] {
            assert_eq!(cancel_id_within(handle.id(), "must end", moment), Ok(()));
        }
        assert_eq!(unwound.get(), 0);
        assert!(stubborn.join().unwrap_err().is_cancelled());
        assert!(catches.join().unwrap_err().is_cancelled());
        assert_eq!(unwound.get(), 1);
        assert_eq!(cancel_id_within(0, "nobody", moment), Err(NotFound));
    });
}

// contract: S20
#[test]
fn the_grace_of_one_that_obeys_is_not_waited_for() {
    // A hang if the rest of the grace were.
    run(|| {
        let parked = spawn_local(sinew::park);
        yield_now().unwrap();
        cancel_id_within(parked.id(), "obeys", Duration::from_secs(100_000)).unwrap();
        assert_eq!(parked.join().unwrap(), Err(WaitError::Cancelled));
    });
}
