//! Death tests: bodies that will not end, overflows, foreign frames that cannot be unwound.
#![allow(unsafe_code, reason = "calls back through a C function")]

use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::rc::Rc;

use sinew::coroutine::{Coroutine, SuspendError, Suspender, anchor};
use sinew::sync::Mutex;

const CHILD: &str = "SINEW_DEATH_CHILD";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Runs the test of this name again as a child, which is to abort.
fn aborts(test: &str, needles: &[&str]) {
    let output: Output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let signal = output.status.signal();
    assert_eq!(signal, Some(libc::SIGABRT), "{:?}\n{text}", output.status);
    for needle in needles {
        assert!(text.contains(needle), "no {needle:?} in:\n{text}");
    }
}

// contract: C6
#[test]
fn a_body_that_swallows_every_unwind_is_reported() {
    if !is_child() {
        let needles = ["coroutine", "(stubborn)", "anchor is ending"];
        return aborts("a_body_that_swallows_every_unwind_is_reported", &needles);
    }
    anchor(|a| {
        let mut c = Coroutine::builder(a)
            .name("stubborn")
            .build(|s: &Suspender<(), ()>, ()| {
                loop {
                    let _ = catch_unwind(AssertUnwindSafe(|| s.suspend(())));
                }
            })
            .unwrap();
        let _: Result<sinew::coroutine::Step<(), ()>, _> = c.resume(());
        std::mem::forget(c);
    });
}

#[test]
fn a_body_that_asks_for_ever_while_the_thread_panics_is_reported() {
    if !is_child() {
        let test = "a_body_that_asks_for_ever_while_the_thread_panics_is_reported";
        return aborts(test, &["(unnamed)", "anchor is ending"]);
    }
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            let _ = catch_unwind(AssertUnwindSafe(|| s.suspend(())));
            while let Err(SuspendError::State(())) = s.suspend(()) {}
        });
        c.resume(()).unwrap();
        let _c = c;
        panic!("outer");
    });
}

// contract: C18
#[test]
fn an_overflow_names_the_coroutine() {
    if !is_child() {
        let needles = ["\"deep\"", "death_coroutine.rs"];
        return aborts("an_overflow_names_the_coroutine", &needles);
    }
    #[expect(unconditional_recursion, reason = "overflows")]
    fn dive(n: u64) -> u64 {
        std::hint::black_box(dive(n + 1)) + n
    }
    anchor(|a| {
        let mut c = Coroutine::builder(a)
            .name("deep")
            .build(|_: &Suspender<(), ()>, ()| dive(0))
            .unwrap();
        let _ = c.resume(());
    });
}

// contract: C6
#[test]
fn a_callback_that_cannot_be_unwound_and_never_returns_is_reported() {
    if !is_child() {
        let test = "a_callback_that_cannot_be_unwound_and_never_returns_is_reported";
        return aborts(test, &["(deaf)", "anchor is ending"]);
    }
    extern "C" fn call(s: &Suspender<(), ()>) {
        while s.suspend(()).is_err() {}
    }
    anchor(|a| {
        let mut c = Coroutine::builder(a)
            .name("deaf")
            .build(|s: &Suspender<(), ()>, ()| call(s))
            .unwrap();
        c.resume(()).unwrap();
        drop(c);
    });
}

// contract: C6
#[test]
fn a_coroutine_of_a_scheduler_in_such_a_callback_is_reported() {
    if !is_child() {
        let test = "a_coroutine_of_a_scheduler_in_such_a_callback_is_reported";
        return aborts(test, &["scheduler is ending"]);
    }
    extern "C" fn wait_for_ever() {
        while sinew::park().is_err() {}
    }
    sinew::run(|| {
        sinew::go_local(|| wait_for_ever());
        sinew::yield_now().unwrap();
        panic!("main");
    });
}

/// As everywhere in Rust: a panic must not leave a destructor that an unwind runs.
// contract: C6
#[test]
fn a_destructor_that_panics_while_its_coroutine_is_unwound_aborts() {
    if !is_child() {
        let test = "a_destructor_that_panics_while_its_coroutine_is_unwound_aborts";
        return aborts(test, &["of a destructor", "in a destructor during cleanup"]);
    }
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("of a destructor");
        }
    }
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            let _panics = Panics;
            let _ = s.suspend(());
        });
        c.resume(()).unwrap();
        drop(c);
    });
}

/// Two coroutines that lock two mutexes in opposite orders, the second one where no cancel ends the wait.
fn embrace_behind_shields() {
    let (left, right) = (Rc::new(Mutex::new(())), Rc::new(Mutex::new(())));
    for (first, second) in [(&left, &right), (&right, &left)] {
        let (first, second) = (first.clone(), second.clone());
        sinew::go_local(move || {
            let _first = first.lock()?;
            sinew::yield_now()?;
            sinew::shield(|| second.lock().map(drop))
        });
    }
}

// contract: S25
#[test]
fn a_deadlock_that_no_cancel_resolves_is_reported() {
    if !is_child() {
        let needles = ["nor be cancelled", "deadlock of 2:", "waits in mutex for #"];
        return aborts("a_deadlock_that_no_cancel_resolves_is_reported", &needles);
    }
    sinew::run(embrace_behind_shields);
}

// contract: S9
#[test]
fn a_deadlock_at_the_end_of_an_anchor_is_reported() {
    if !is_child() {
        let needles = ["nor be cancelled", "deadlock of 2:"];
        return aborts("a_deadlock_at_the_end_of_an_anchor_is_reported", &needles);
    }
    sinew::Scheduler::anchor(|scheduler| {
        embrace_behind_shields();
        // Until both have the first mutex and wait for the second.
        for _ in 0..8 {
            scheduler.step().unwrap();
        }
    });
}
