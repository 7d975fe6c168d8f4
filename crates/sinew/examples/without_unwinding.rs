//! What coroutines do in a program that is built with `panic = "abort"`: `cargo xtask abort`.
//!
//! There nothing can be unwound. A coroutine that is dropped while it is suspended, or whose anchor ends, is asked to stop, and
//! runs on until it returns: its suspends fail. One that will not return ends the process, with a report. The program
//! checks that, and says so.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program, not a library"
)]

use std::cell::{Cell, RefCell};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

use sinew::coroutine::{Coroutine, Generator, Step, SuspendError, Suspender, anchor};

/// The argument with which the program runs itself as a child, for what ends the process.
const CHILDREN: [(&str, fn(), &str); 3] = [
    (
        "stubborn",
        stubborn,
        "(stubborn) must end, for its anchor is ending",
    ),
    ("deaf", deaf, "must end, for its scheduler is ending"),
    ("panics", panics, "a panic in a coroutine"),
];

fn main() -> ExitCode {
    if cfg!(panic = "unwind") {
        println!(
            "SKIPPED: this program is built to unwind; `cargo xtask abort` builds it otherwise"
        );
        return ExitCode::SUCCESS;
    }
    if let Some(wanted) = std::env::args().nth(1) {
        match CHILDREN.iter().find(|(name, ..)| *name == wanted) {
            Some((_, deed, _)) => deed(),
            None => eprintln!("no such deed: {wanted}"),
        }
        return ExitCode::FAILURE;
    }
    let checks: [(&str, fn()); 5] = [
        ("a dropped coroutine runs on and returns", dropped),
        ("so does a forgotten one, at the anchor's end", forgotten),
        ("so does a generator that nobody asks any more", generator),
        ("one that was never resumed never runs", never_resumed),
        ("a scheduler's coroutine gets its cancel", of_a_scheduler),
    ];
    for (what, check) in checks {
        check();
        println!("ok: {what}");
    }
    for (name, _, needle) in CHILDREN {
        check_child(name, needle);
        println!("ok: the process ends, with a report: {name}");
    }
    ExitCode::SUCCESS
}

/// Runs this program again, to end by SIGABRT with these words.
fn check_child(name: &str, needle: &str) {
    let path = std::env::current_exe().expect("the program's own path");
    let output = Command::new(path)
        .arg(name)
        .output()
        .expect("the program runs again");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(6), "{name}: {text}");
    assert!(text.contains(needle), "{name}: no {needle:?} in: {text}");
}

/// Counts when it is dropped.
struct Noted<'a>(&'a Cell<u32>);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

fn body<'a>(dropped: &'a Cell<u32>) -> impl FnOnce(&Suspender<u32, ()>, u32) + 'a {
    move |s, _| {
        let _noted = Noted(dropped);
        assert!(matches!(s.suspend(()), Ok(1)));
        assert!(!s.stopping());
        assert!(matches!(s.suspend(()), Err(SuspendError::Ending)));
        assert!(s.stopping());
        for _ in 0..3 {
            assert!(matches!(s.suspend(()), Err(SuspendError::State(()))));
        }
        let _late = Noted(dropped);
    }
}

fn dropped() {
    let drops = Cell::new(0);
    anchor(|a| {
        let mut c = Coroutine::new(a, body(&drops));
        assert_eq!(c.resume(0).ok(), Some(Step::Suspended(())));
        assert_eq!(c.resume(1).ok(), Some(Step::Suspended(())));
        let token = c.cancel_token();
        drop(c);
        assert!(token.is_cancelled());
        assert_eq!(drops.get(), 2);
    });
}

fn forgotten() {
    let drops = Cell::new(0);
    let order = RefCell::new(Vec::new());
    anchor(|a| {
        for n in 0..3 {
            let (drops, order) = (&drops, &order);
            let mut c = Coroutine::new(a, move |s: &Suspender<u32, ()>, first| {
                body(drops)(s, first);
                order.borrow_mut().push(n);
            });
            let _ = c.resume(0);
            let _ = c.resume(1);
            std::mem::forget(c);
        }
        assert_eq!(drops.get(), 0);
    });
    assert_eq!(drops.get(), 6);
    assert_eq!(order.take(), [2, 1, 0]);
}

fn generator() {
    let drops = Cell::new(0);
    anchor(|a| {
        let all = Generator::new(a, |y| {
            let _noted = Noted(&drops);
            for n in 0.. {
                if y.suspend(n).is_err() {
                    return;
                }
            }
        });
        assert!(all.take(3).eq(0..3));
        assert_eq!(drops.get(), 1);
    });
}

fn never_resumed() {
    let drops = Cell::new(0);
    anchor(|a| {
        let noted = Noted(&drops);
        std::mem::forget(Coroutine::new(a, move |_: &Suspender<(), ()>, ()| {
            drop(noted);
            unreachable!("it must not run");
        }));
    });
    assert_eq!(drops.get(), 1);
}

fn of_a_scheduler() {
    let result = sinew::run(|| {
        let handle = sinew::spawn_local(|| {
            let result = sinew::park();
            sinew::confirm_cancel().map(|()| result)
        });
        sinew::yield_now().expect("nobody cancels this one");
        handle.cancel("enough");
        handle.wait().expect("nor that");
        handle.outcome()
    });
    assert_eq!(result, Some(sinew::Outcome::Cancelled));
}

fn stubborn() {
    anchor(|a| {
        let mut c = Coroutine::builder(a)
            .name("stubborn")
            .build(|s: &Suspender<(), ()>, ()| {
                loop {
                    let _ = s.suspend(());
                }
            })
            .expect("the default sizes");
        let _: Result<Step<(), ()>, _> = c.resume(());
    });
}

fn deaf() {
    // Here a panic would end the process by itself, so the early end comes by `exit_all`.
    sinew::run_code(|| {
        sinew::go_local(|| {
            loop {
                let _ = sinew::park();
            }
        });
        let _ = sinew::yield_now();
        sinew::exit_all(3).expect("a scheduler");
        0
    });
}

fn panics() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| {
            panic!("a panic in a coroutine");
        });
        let _: Result<Step<(), ()>, _> = c.resume(());
    });
}
