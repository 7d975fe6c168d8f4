//! Forced unwinding where it meets resistance: frames that cannot be unwound, destructors that suspend, bodies that swallow it.
#![allow(unsafe_code, reason = "frames without unwind tables, and qsort")]

use std::arch::global_asm;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use sinew::coroutine::{self, Coroutine, State, SuspendError, Suspender, anchor, cleanup};
use sinew::{Outcome, WaitError};

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<&'static str>>>);

impl Log {
    fn say(&self, word: &'static str) {
        self.0.borrow_mut().push(word);
    }

    fn take(&self) -> Vec<&'static str> {
        self.0.take()
    }
}

/// Says a word when it is dropped.
struct Says<'a>(&'a Log, &'static str);

impl Drop for Says<'_> {
    fn drop(&mut self) {
        self.0.say(self.1);
    }
}

/// Calls a closure; no panic gets out of this.
extern "C" fn through_c(f: &mut &mut dyn FnMut()) {
    f();
}

// Calls `f(argument)`, and has no unwind table: what C compiled with `-fno-asynchronous-unwind-tables`, or assembly, looks like.
global_asm!(
    ".text",
    ".globl sinew_test_forced_without_tables",
    ".type sinew_test_forced_without_tables, @function",
    "sinew_test_forced_without_tables:",
    "sub rsp, 8",
    "call rsi",
    "add rsp, 8",
    "ret",
    ".size sinew_test_forced_without_tables, . - sinew_test_forced_without_tables",
);

unsafe extern "C-unwind" {
    #[link_name = "sinew_test_forced_without_tables"]
    fn call_without_tables(argument: *mut c_void, f: unsafe extern "C-unwind" fn(*mut c_void));
}

unsafe extern "C-unwind" fn run_closure(f: *mut c_void) {
    // SAFETY: `through_assembly` passes this.
    let f = unsafe { &mut *f.cast::<&mut dyn FnMut()>() };
    f();
}

fn through_assembly(f: &mut dyn FnMut()) {
    let mut f = f;
    // SAFETY: `run_closure` expects this pointer.
    unsafe { call_without_tables((&raw mut f).cast(), run_closure) };
}

type Between = fn(&mut dyn FnMut());

const FRAMES: [Between; 2] = [|mut f| through_c(&mut f), through_assembly];

// contract: C6
#[test]
fn behind_a_frame_that_cannot_be_unwound_it_is_run_on_until_it_ends() {
    for between in FRAMES {
        let log = Log::default();
        anchor(|a| {
            let log = &log;
            let mut c = Coroutine::new(a, move |s: &Suspender<u32, ()>, _| {
                let _body = Says(log, "body dropped");
                sinew::defer({
                    let log = log.clone();
                    move || log.say("deferred")
                });
                between(&mut || {
                    let _callback = Says(log, "callback dropped");
                    assert!(matches!(s.suspend(()), Err(SuspendError::Ending)));
                    assert!(s.stopping());
                    log.say("goes on");
                    // Nobody resumes any more, so this stops at nothing.
                    assert!(matches!(s.suspend(()), Err(SuspendError::State(()))));
                    assert_eq!(
                        WaitError::from(SuspendError::<u32, ()>::Ending),
                        WaitError::Cancelled
                    );
                });
                log.say("returned");
            });
            c.resume(1).unwrap();
            drop(c);
            let expected = [
                "goes on",
                "callback dropped",
                "returned",
                "body dropped",
                "deferred",
            ];
            assert_eq!(log.take(), expected);
        });
    }
}

// contract: C6
#[test]
fn it_is_unwound_as_soon_as_that_is_possible() {
    for between in FRAMES {
        let log = Log::default();
        anchor(|a| {
            let log = &log;
            let mut c = Coroutine::new(a, move |s: &Suspender<u32, ()>, _| {
                let _body = Says(log, "body dropped");
                between(&mut || {
                    assert!(matches!(s.suspend(()), Err(SuspendError::Ending)));
                    // Further in than a frame that catches it.
                    let inner = catch_unwind(AssertUnwindSafe(|| s.suspend(())));
                    assert!(inner.is_err());
                    log.say("swallowed");
                });
                log.say("returned");
                let _ = s.suspend(());
                log.say("not reached");
            });
            c.resume(1).unwrap();
            std::mem::forget(c);
        });
        assert_eq!(log.take(), ["swallowed", "returned", "body dropped"]);
    }
}

unsafe extern "C-unwind" {
    fn qsort(
        base: *mut c_void,
        count: usize,
        size: usize,
        compare: unsafe extern "C-unwind" fn(*const c_void, *const c_void) -> i32,
    );
}

thread_local! {
    static ENDINGS: Cell<u32> = const { Cell::new(0) };
}

/// A comparator that no panic gets out of; a foreign sort may have called it.
extern "C" fn stubborn(a: *const c_void, b: *const c_void) -> i32 {
    if let Err(SuspendError::Ending) = coroutine::suspend::<(), ()>(()) {
        ENDINGS.set(ENDINGS.get() + 1);
    }
    // SAFETY: qsort passes elements.
    let a = unsafe { *a.cast::<u32>() };
    // SAFETY: as above.
    let b = unsafe { *b.cast::<u32>() };
    a.cmp(&b) as i32
}

unsafe extern "C-unwind" fn compare(a: *const c_void, b: *const c_void) -> i32 {
    stubborn(a, b)
}

// contract: C4, C6
#[test]
fn a_foreign_sort_with_such_a_comparator_comes_to_its_end() {
    let sorted = Rc::new(RefCell::new(Vec::new()));
    let result = sorted.clone();
    let body = move |_: &Suspender<(), ()>, ()| {
        let mut values: Vec<u32> = (0..40).rev().collect();
        // SAFETY: the slice is good, and the comparator compares its elements.
        unsafe { qsort(values.as_mut_ptr().cast(), values.len(), 4, compare) };
        *result.borrow_mut() = values;
    };
    // SAFETY: it is dropped below.
    let mut c = unsafe { Coroutine::new_unanchored(body) };
    c.resume(()).unwrap();
    c.resume(()).unwrap();
    drop(c);
    assert!(sorted.borrow().iter().copied().eq(0..40));
    assert_eq!(
        ENDINGS.get(),
        1,
        "told once; afterwards it is a wrong state"
    );
}

// contract: C6, S20
#[test]
fn under_a_scheduler_too_it_is_run_on() {
    for between in FRAMES {
        let log = Log::default();
        let inside = log.clone();
        sinew::run(move || {
            let handle = sinew::spawn_local(move || {
                let log = inside;
                let _body = Says(&log, "body dropped");
                between(&mut || {
                    assert_eq!(sinew::park(), Err(WaitError::Cancelled));
                    // Deaf for longer than it takes the forced unwind to be due.
                    for _ in 0..10_000 {
                        assert_eq!(sinew::park(), Err(WaitError::Cancelled));
                    }
                    log.say("goes on");
                });
                log.say("returned");
                loop {
                    let _ = sinew::park();
                }
            });
            sinew::yield_now().unwrap();
            sinew::cancel_id_within(handle.id(), "stop", std::time::Duration::ZERO).unwrap();
            handle.wait().unwrap();
        });
        assert_eq!(log.take(), ["goes on", "returned", "body dropped"]);
    }
}

// contract: C6, C14
#[test]
fn destructors_that_suspend_are_refused_and_cleanups_come_last() {
    struct Suspends<'s>(&'s Suspender<(), ()>, &'s Log);
    impl Drop for Suspends<'_> {
        fn drop(&mut self) {
            assert!(matches!(self.0.suspend(()), Err(SuspendError::State(()))));
            self.1.say("refused");
        }
    }
    let log = Log::default();
    anchor(|a| {
        let log = &log;
        let mut c = Coroutine::new(a, move |s: &Suspender<(), ()>, ()| {
            let cleanup = log.clone();
            sinew::defer(move || cleanup.say("deferred"));
            let _one = Suspends(s, log);
            let _two = Suspends(s, log);
            coroutine::cleanup::with(
                || log.say("cleanup"),
                || {
                    let _ = s.suspend(());
                },
            );
        });
        c.resume(()).unwrap();
        drop(c);
    });
    assert_eq!(log.take(), ["cleanup", "refused", "refused", "deferred"]);
}

/// One that swallows the unwind and returns has ended all the same, and its value goes nowhere.
// contract: C6, C7
#[test]
fn a_body_that_swallows_it_and_returns_drops_its_value_once() {
    let log = Log::default();
    anchor(|a| {
        let log = &log;
        let mut c = Coroutine::new(a, move |s: &Suspender<(), ()>, ()| {
            let _ = catch_unwind(AssertUnwindSafe(|| s.suspend(())));
            log.say("swallowed");
            Says(log, "value dropped")
        });
        c.resume(()).map(drop).unwrap();
        drop(c);
        assert_eq!(log.take(), ["swallowed", "value dropped"]);
    });
}

/// What was to go out and does not is dropped once: by the caller if it comes back, by the unwind if that is raised at once.
fn drops_what_does_not_go_out<T>(log: &Log, make: impl Fn() -> T, value: &[&'static str]) {
    anchor(|a| {
        let mut coroutine = Coroutine::new(a, |s: &Suspender<(), T>, ()| {
            anchor(|inner| {
                let mut other = Coroutine::new(inner, |_: &Suspender<(), ()>, ()| {
                    matches!(s.suspend(make()), Err(SuspendError::State(_)))
                });
                assert_eq!(other.resume(()).unwrap().done(), Some(true));
            });
            log.say("refused");
            let unwind = catch_unwind(AssertUnwindSafe(|| s.suspend(make()).is_ok()));
            log.say(if unwind.is_err() {
                "swallowed"
            } else {
                "resumed"
            });
            let _ = s.suspend(make());
            log.say("not reached");
        });
        drop(coroutine.resume(()).unwrap());
        assert_eq!(log.take(), [value, &["refused"], value].concat());
        drop(coroutine);
        assert_eq!(log.take(), [&["swallowed"], value].concat());
    });
}

#[test]
fn a_value_that_does_not_go_out_is_dropped_once() {
    let log = Log::default();
    // In a word, and by its address.
    drops_what_does_not_go_out(&log, || Box::new(Says(&log, "value")), &["value"]);
    let pair = || [Says(&log, "one"), Says(&log, "two")];
    drops_what_does_not_go_out(&log, pair, &["one", "two"]);
}

/// The frames of a coroutine that is dropped by another one are unwound on top of that, whatever frames that has.
// contract: C6
#[test]
fn frames_of_others_do_not_matter() {
    let log = Log::default();
    anchor(|a| {
        let log = &log;
        let mut inner = Coroutine::new(a, move |s: &Suspender<(), ()>, ()| {
            let _inner = Says(log, "inner dropped");
            let _ = s.suspend(());
            log.say("not reached");
        });
        inner.resume(()).unwrap();
        let mut inner = Some(inner);
        let mut outer = Coroutine::new(a, move |s: &Suspender<(), ()>, ()| {
            FRAMES[0](&mut || drop(inner.take()));
            log.say("outer goes on");
            let _ = s.suspend(());
        });
        outer.resume(()).unwrap();
        assert_eq!(outer.state(), State::Suspended);
        drop(outer);
    });
    assert_eq!(log.take(), ["inner dropped", "outer goes on"]);
}

// contract: C6, C7
#[test]
fn how_it_ends_is_seen_by_who_looks_in_between() {
    let log = Log::default();
    anchor(|a| {
        let log = &log;
        let mut c = Coroutine::new(a, move |s: &Suspender<(), ()>, ()| {
            assert!(!s.stopping());
            FRAMES[0](&mut || {
                let _ = s.suspend(());
            });
            assert!(s.stopping());
            assert_eq!(s.confirm_cancel(), Ok(()));
            log.say("confirmed");
        });
        c.resume(()).unwrap();
        let token = c.cancel_token();
        assert_eq!((c.state(), c.outcome()), (State::Suspended, None));
        drop(c);
        assert_eq!(log.take(), ["confirmed"]);
        assert!(token.is_cancelled(), "its token outlives it");
        let mut plain = Coroutine::new(a, |s: &Suspender<(), ()>, ()| s.confirm_cancel().is_ok());
        plain.cancel_token().cancel("before it ran");
        plain.resume(()).unwrap_err();
        assert_eq!(plain.outcome(), Some(Outcome::Cancelled));
    });
}

/// Runs a closure inside of a frame of the runtime that catches a panic and raises it again.
fn inside_of(kind: &str, f: &mut dyn FnMut()) {
    match kind {
        "nothing" => f(),
        "an anchor" => anchor(|_| f()),
        "a cleanup" => cleanup::with(|| (), f),
        "both" => anchor(|_| cleanup::with(|| (), || anchor(|_| f()))),
        "a scope" => sinew::scope(|_| f()),
        "a coroutine" => anchor(|a| {
            let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| f());
            c.resume(()).unwrap();
        }),
        "a coroutine's cleanup" => anchor(|a| {
            let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| {
                let mut inner = |_: &Suspender<(), ()>, ()| cleanup::with(|| (), &mut *f);
                anchor(|b| Coroutine::new(b, &mut inner).resume(()).map(drop).unwrap());
            });
            c.resume(()).unwrap();
        }),
        _ => unreachable!("{kind}"),
    }
}

// contract: C6
#[test]
fn what_would_only_pass_it_on_does_not_count_as_catching_it() {
    for kind in ["nothing", "an anchor", "a cleanup", "both"] {
        let log = Log::default();
        anchor(|a| {
            let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
                let _outer = Says(&log, "outer");
                let mut wait = || {
                    let _inner = Says(&log, "inner");
                    if matches!(s.suspend(()), Err(SuspendError::Ending)) {
                        log.say("ending");
                    }
                };
                let mut wrapped = || inside_of(kind, &mut wait);
                through_c(&mut (&mut wrapped as &mut dyn FnMut()));
                log.say("back");
                // Nothing is in the way here.
                let mut wait = || drop(s.suspend(()));
                inside_of(kind, &mut wait);
                log.say("never");
            });
            c.resume(()).unwrap();
        });
        assert_eq!(log.take(), ["ending", "inner", "back", "outer"], "{kind}");
    }
}

// contract: C6
#[test]
fn nor_does_it_for_a_coroutine_of_the_scheduler() {
    let kinds = [
        "nothing",
        "both",
        "a scope",
        "a coroutine",
        "a coroutine's cleanup",
    ];
    for kind in kinds {
        let log = Log::default();
        let seen = log.clone();
        let ended = catch_unwind(AssertUnwindSafe(move || {
            sinew::run(move || {
                let is_forced = Rc::new(Cell::new(false));
                let (log, flag) = (seen.clone(), is_forced.clone());
                sinew::go_local(move || {
                    let _outer = Says(&log, "outer");
                    let mut wait = || {
                        let _inner = Says(&log, "inner");
                        while !flag.get() {
                            let _refused = sinew::park().is_err();
                        }
                        for _ in 0..20 {
                            assert!(sinew::park().is_err());
                        }
                    };
                    let mut wrapped = || inside_of(kind, &mut wait);
                    through_c(&mut (&mut wrapped as &mut dyn FnMut()));
                    log.say("back");
                    let mut wait = || assert!(sinew::park().is_err());
                    inside_of(kind, &mut wait);
                    log.say("never");
                });
                sinew::go_local(move || {
                    /// Tells that forced unwinds are raised.
                    struct Tells(Rc<Cell<bool>>);
                    impl Drop for Tells {
                        fn drop(&mut self) {
                            self.0.set(true);
                        }
                    }
                    let _tells = Tells(is_forced);
                    loop {
                        let _refused = sinew::park().is_err();
                    }
                });
                sinew::yield_now().unwrap();
                std::panic::resume_unwind(Box::new("over"));
            });
        }));
        let payload = ended.unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"over"), "{kind}");
        assert_eq!(log.take(), ["inner", "back", "outer"], "{kind}");
    }
}

/// Resumes, with the switch itself in this frame where it is optimised; no panic gets out of this.
#[inline(never)]
extern "C" fn resume_in_c(c: &mut Coroutine<'_, (), (), ()>) {
    let _keeps = c.resume(());
}

/// The same, but a panic gets out.
#[inline(never)]
extern "C-unwind" fn resume_in_c_unwind(c: &mut Coroutine<'_, (), (), ()>) {
    let _keeps = c.resume(());
}

/// The same, and a panic ends here.
#[inline(never)]
fn resume_and_catch(c: &mut Coroutine<'_, (), (), ()>) {
    let _caught = catch_unwind(AssertUnwindSafe(|| drop(c.resume(()))));
}

/// A frame that has resumed another stack stands at a switch, about which no table says anything: it must not be unwound for that
/// reason if it lets no panic out, nor be left alone if it does.
// contract: C6
#[test]
fn what_the_frame_that_has_resumed_would_do_counts_too() {
    type Resumes = fn(&mut Coroutine<'_, (), (), ()>);
    let ways: [(&str, Resumes, &[&str]); 3] = [
        (
            "C",
            |c| resume_in_c(c),
            &["goes on", "inner", "back", "outer"],
        ),
        ("C-unwind", |c| resume_in_c_unwind(c), &["inner", "outer"]),
        ("caught", resume_and_catch, &["inner", "back", "outer"]),
    ];
    for (kind, resumes, expected) in ways {
        let log = Log::default();
        let inside = log.clone();
        sinew::run(move || {
            let handle = sinew::spawn_local(move || {
                let log = &inside;
                let _outer = Says(log, "outer");
                anchor(|a| {
                    let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| {
                        let _inner = Says(log, "inner");
                        // Deaf for longer than it takes the forced unwind to be due.
                        for _ in 0..10_000 {
                            assert_eq!(sinew::park(), Err(WaitError::Cancelled));
                        }
                        log.say("goes on");
                    });
                    resumes(&mut c);
                });
                log.say("back");
            });
            sinew::yield_now().unwrap();
            sinew::cancel_id_within(handle.id(), "stop", std::time::Duration::ZERO).unwrap();
            handle.wait().unwrap();
        });
        assert_eq!(log.take(), expected, "{kind}");
    }
}
