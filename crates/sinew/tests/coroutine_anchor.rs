//! What an anchor ends: forgotten, swapped, hidden and cyclic coroutines; and the assumptions of docs/UNSAFE.md.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use sinew::Outcome;
use sinew::coroutine::{
    Anchor, Coroutine, ResumeError, State, Step, SuspendError, Suspender, anchor,
};

type Plain<'a> = Coroutine<'a, (), (), ()>;

struct Noted<'a>(&'a Cell<u32>);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// One that notes its end and suspends for ever.
fn endless<'a>(a: &'a Anchor<'a, '_>, dropped: &'a Cell<u32>) -> Plain<'a> {
    let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
        let _noted = Noted(dropped);
        loop {
            s.suspend(()).unwrap();
        }
    });
    c.resume(()).unwrap();
    c
}

fn text(payload: &(dyn std::any::Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .unwrap_or("not text")
}

// contract: C16, C6
#[test]
fn forgotten_and_swapped_ones_are_ended() {
    let dropped = Cell::new(0);
    let value = anchor(|a| {
        std::mem::forget(endless(a, &dropped));
        let mut one = endless(a, &dropped);
        let two = endless(a, &dropped);
        std::mem::forget(std::mem::replace(&mut one, two));
        let closure = Noted(&dropped);
        std::mem::forget(Coroutine::new(a, move |_: &Suspender<(), ()>, ()| {
            drop(closure);
        }));
        std::mem::forget(Rc::new(RefCell::new(endless(a, &dropped))));
        "value"
    });
    assert_eq!((value, dropped.get()), ("value", 5));
}

// contract: C16
#[test]
fn a_panic_of_the_closure_ends_them_too() {
    let dropped = Cell::new(0);
    let payload = catch_unwind(AssertUnwindSafe(|| {
        anchor(|a| {
            std::mem::forget(endless(a, &dropped));
            let _held = endless(a, &dropped);
            panic!("closure");
        });
    }))
    .unwrap_err();
    assert_eq!((text(&*payload), dropped.get()), ("closure", 2));
    assert!(!std::thread::panicking());
}

/// A cell through which a coroutine gets at handles, its own among them.
type Shared<'a> = Rc<Cell<Option<Plain<'a>>>>;

// contract: C16
#[test]
fn a_cycle_of_handles_is_ended() {
    let dropped = Cell::new(0);
    anchor(|a| {
        let shared: Shared<'_> = Rc::default();
        let own = shared.clone();
        let mut c: Plain<'_> = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            let _noted = Noted(&dropped);
            let _own = own;
            s.suspend(()).unwrap();
        });
        c.resume(()).unwrap();
        shared.set(Some(c));
    });
    assert_eq!(dropped.get(), 1);
}

// contract: C5, C16
#[test]
fn one_that_is_being_ended_can_be_resumed_and_dropped_by_nobody() {
    struct Resumes<'a>(Shared<'a>, &'a Cell<bool>);
    impl Drop for Resumes<'_> {
        fn drop(&mut self) {
            // Runs the other one, on top of the coroutine that is being ended.
            if let Some(mut other) = self.0.take() {
                let result = other.resume(());
                self.1.set(matches!(result, Ok(Step::Done(()))));
            }
        }
    }
    let tried = Cell::new(false);
    let finished = Cell::new(false);
    let dropped = Cell::new(0);
    anchor(|a| {
        let to_other: Shared<'_> = Rc::default();
        let to_first: Shared<'_> = Rc::default();
        let (held, taken) = (to_other.clone(), to_first.clone());
        let tried = &tried;
        let mut other: Plain<'_> = Coroutine::new(a, move |s: &Suspender<(), ()>, ()| {
            s.suspend(()).unwrap();
            // The anchor ends `first` further out: it is Running, and this is its only handle.
            let mut first = taken.take().unwrap();
            assert_eq!(first.state(), State::Running);
            assert!(matches!(first.resume(()), Err(ResumeError::State(()))));
            let first = first.try_destroy().unwrap_err();
            drop(first);
            tried.set(true);
        });
        other.resume(()).unwrap();
        // Made last, so that the anchor ends it first.
        let mut first: Plain<'_> = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            let _noted = Noted(&dropped);
            let _resumes = Resumes(held, &finished);
            s.suspend(()).unwrap();
        });
        first.resume(()).unwrap();
        to_other.set(Some(other));
        to_first.set(Some(first));
        // The cells live in the frames of the coroutines only.
    });
    assert!(tried.get() && finished.get());
    assert_eq!(dropped.get(), 1);
}

// contract: C16, C10
#[test]
fn one_made_while_the_anchor_ends_never_runs() {
    struct Makes<'a, 'env>(&'a Anchor<'a, 'env>, &'a Cell<u32>, u32);
    impl Drop for Makes<'_, '_> {
        fn drop(&mut self) {
            let Self(a, made, left) = *self;
            made.set(made.get() + 1);
            if left > 0 {
                let next = Makes(a, made, left - 1);
                let mut c = Coroutine::new(a, move |_: &Suspender<(), ()>, ()| {
                    let _next = next;
                    unreachable!("it must not run");
                });
                if left % 2 == 0 {
                    let result: Result<Step<(), ()>, _> = c.resume(());
                    assert!(matches!(result, Err(ResumeError::Cancelled(()))));
                }
                std::mem::forget(c);
            }
        }
    }
    let made = Cell::new(0);
    anchor(|a| {
        let makes = Makes(a, &made, 9);
        let mut c: Plain<'_> = Coroutine::new(a, move |s: &Suspender<(), ()>, ()| {
            let _makes = makes;
            s.suspend(()).unwrap();
        });
        c.resume(()).unwrap();
        std::mem::forget(c);
    });
    assert_eq!(made.get(), 10);
}

// contract: C7
#[test]
fn a_panic_while_being_ended_is_raised_by_the_anchor() {
    fn insulted<'a>(a: &'a Anchor<'a, '_>, with: &'static str) -> Plain<'a> {
        let mut c = Coroutine::new(a, move |s: &Suspender<(), ()>, ()| {
            let caught = catch_unwind(AssertUnwindSafe(|| s.suspend(())));
            assert!(caught.is_err());
            std::panic::panic_any(with);
        });
        c.resume(()).unwrap();
        c
    }
    let reached = Cell::new(false);
    let payload = catch_unwind(AssertUnwindSafe(|| {
        anchor(|a| {
            drop(insulted(a, "first"));
            drop(insulted(a, "second"));
            reached.set(true);
            std::mem::forget(insulted(a, "third"));
        });
    }))
    .unwrap_err();
    assert!(reached.get(), "a drop does not panic");
    assert_eq!(text(&*payload), "first");

    // The panic of the closure counts for more.
    let payload = catch_unwind(AssertUnwindSafe(|| {
        anchor(|a| {
            let _kept = insulted(a, "kept");
            panic!("closure");
        });
    }))
    .unwrap_err();
    assert_eq!(text(&*payload), "closure");
}

#[test]
fn a_closure_whose_drop_panics_is_contained() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            std::panic::panic_any("bad");
        }
    }
    let payload = catch_unwind(|| {
        anchor(|a| {
            let bad = Bad;
            let mut c: Plain<'_> = Coroutine::new(a, move |_: &Suspender<(), ()>, ()| {
                let _bad = bad;
            });
            c.cancel();
            let payload = catch_unwind(AssertUnwindSafe(|| c.resume(()))).unwrap_err();
            assert_eq!(text(&*payload), "bad");
            assert_eq!(c.outcome(), Some(Outcome::Error));
            let bad = Bad;
            drop::<Plain<'_>>(Coroutine::new(a, move |_: &Suspender<(), ()>, ()| {
                let _bad = bad;
            }));
        });
    })
    .unwrap_err();
    assert_eq!(text(&*payload), "bad");
}

#[test]
fn anchors_nest_in_coroutines_and_overlap_in_time() {
    let dropped = Cell::new(0);
    anchor(|a| {
        let body = |s: &Suspender<u32, u32>, first: u32| {
            anchor(|b| {
                let inner_dropped = Cell::new(0);
                let mut inner = Coroutine::new(b, |t: &Suspender<u32, u32>, mut n: u32| {
                    let _noted = Noted(&dropped);
                    loop {
                        n = t.suspend(n + 1).unwrap();
                    }
                });
                let mut n = first;
                let _noted = Noted(&inner_dropped);
                for _ in 0..3 {
                    let Ok(Step::Suspended(out)) = inner.resume(n) else {
                        unreachable!()
                    };
                    n = s.suspend(out).unwrap();
                }
                let _: Step<u32, ()> = inner.resume(n).unwrap();
            });
            0
        };
        let mut one = Coroutine::new(a, body);
        let mut two = Coroutine::new(a, body);
        let mut three = Coroutine::new(a, body);
        assert_eq!(one.resume(1).unwrap(), Step::Suspended(2));
        assert_eq!(two.resume(10).unwrap(), Step::Suspended(11));
        assert_eq!(three.resume(100).unwrap(), Step::Suspended(101));
        assert_eq!(one.resume(2).unwrap(), Step::Suspended(3));
        assert_eq!(two.resume(20).unwrap(), Step::Suspended(21));
        assert_eq!(one.resume(3).unwrap(), Step::Suspended(4));
        assert_eq!(one.resume(4).unwrap(), Step::Done(0));
        assert_eq!(dropped.get(), 1);
        assert_eq!(two.resume(30).unwrap(), Step::Suspended(31));
    });
    assert_eq!(dropped.get(), 3);
}

#[test]
fn many_are_alive_at_once_and_stacks_are_reused() {
    let dropped = Cell::new(0);
    anchor(|a| {
        for _ in 0..3 {
            let mut all: Vec<Plain<'_>> = (0..1_000).map(|_| endless(a, &dropped)).collect();
            for c in &mut all {
                c.resume(()).unwrap();
            }
            // Out of order.
            while all.len() > 1 {
                let at = all.len() / 2;
                drop(all.swap_remove(at));
            }
            std::mem::forget(all);
        }
    });
    assert_eq!(dropped.get(), 3_000);
}

/// A value with a destructor, in a thread-local that is destroyed when its thread ends.
struct Kept(String);

thread_local! {
    static KEPT: Kept = Kept("k".repeat(40));
}

/// A coroutine that borrows a thread-local cannot be unwound after that is gone: its anchor is a frame of the thread, and
/// thread-locals are destroyed after the last frame. (To keep it in a thread-local does not compile.)
// contract: C16
#[test]
fn a_borrowed_thread_local_outlives_the_coroutine() {
    struct Reads<'a>(&'a str, &'a mpsc::Sender<String>);
    impl Drop for Reads<'_> {
        fn drop(&mut self) {
            self.1.send(self.0.to_owned()).unwrap();
        }
    }
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        anchor(|a| {
            let mut c: Plain<'_> = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
                KEPT.with(|kept| {
                    let _reads = Reads(&kept.0, &sender);
                    s.suspend(()).unwrap();
                });
            });
            c.resume(()).unwrap();
            std::mem::forget(c);
        });
    });
    thread.join().unwrap();
    assert_eq!(receiver.recv().unwrap(), "k".repeat(40));
}

/// A forgotten coroutine has lent a thread-local to a scoped thread: the anchor unwinds it, so the scope waits for that
/// thread, and only then the lender's thread can end.
// contract: C16
#[test]
fn a_scoped_thread_in_a_forgotten_coroutine_is_waited_for() {
    let (leaving, announced) = mpsc::channel();
    let (go, gone) = mpsc::channel();
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        anchor(|a| {
            let mut c: Plain<'_> = Coroutine::new(a, move |s: &Suspender<(), ()>, ()| {
                KEPT.with(|kept| {
                    let text: &str = &kept.0;
                    std::thread::scope(|scope| {
                        scope.spawn(move || {
                            gone.recv().unwrap();
                            sender.send(text.to_owned()).unwrap();
                        });
                        s.suspend(()).unwrap();
                    });
                });
            });
            c.resume(()).unwrap();
            std::mem::forget(c);
            leaving.send(()).unwrap();
        });
    });
    announced.recv().unwrap();
    go.send(()).unwrap();
    assert_eq!(receiver.recv().unwrap(), "k".repeat(40));
    thread.join().unwrap();
}

/// A destructor that runs because of a panic cannot suspend, so a panic never leaks into another coroutine: whether the
/// thread panics is the same before and after, and a lock that another one holds is not poisoned.
#[test]
fn a_destructor_cannot_suspend_while_its_coroutine_panics() {
    struct Waits<'s>(&'s Suspender<(), ()>);
    impl Drop for Waits<'_> {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            assert!(matches!(self.0.suspend(()), Err(SuspendError::State(()))));
        }
    }
    let lock = Arc::new(Mutex::new(0));
    anchor(|a| {
        let mut holder = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            let guard = lock.lock().unwrap();
            s.suspend(()).unwrap();
            drop(guard);
            lock.is_poisoned()
        });
        let mut panics = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                let _waits = Waits(s);
                panic!("while a destructor wants to wait");
            }));
            s.suspend(()).unwrap();
            caught.is_err()
        });
        holder.resume(()).unwrap();
        assert_eq!(panics.resume(()).unwrap(), Step::Suspended(()));
        assert!(!std::thread::panicking());
        assert_eq!(holder.resume(()).unwrap(), Step::Done(false));
        assert_eq!(panics.resume(()).unwrap(), Step::Done(true));
    });
}

#[test]
fn one_that_is_dropped_while_the_thread_panics_is_unwound_all_the_same() {
    let dropped = Cell::new(0);
    let asked = Cell::new(0);
    let payload = catch_unwind(AssertUnwindSafe(|| {
        anchor(|a| {
            let mut c: Plain<'_> = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
                let _noted = Noted(&dropped);
                // Swallows one, and is told again that it may not suspend.
                let _ = catch_unwind(AssertUnwindSafe(|| s.suspend(())));
                while let Err(SuspendError::State(())) = s.suspend(()) {
                    asked.set(asked.get() + 1);
                    if asked.get() == 100 {
                        return;
                    }
                }
            });
            c.resume(()).unwrap();
            let _c = c;
            panic!("outer");
        });
    }))
    .unwrap_err();
    assert_eq!(text(&*payload), "outer");
    assert_eq!((dropped.get(), asked.get()), (1, 100));
    assert!(!std::thread::panicking());
}

/// A1 of docs/UNSAFE.md: the initialiser of a thread-local must not suspend.
///
/// Shown as far as it can be without harm: std runs the initialiser a second time for another coroutine of the thread, and
/// the first to have begun replaces the value when it goes on. A reference that the other one still held would dangle
/// then, so this one holds a copy.
#[test]
fn a_thread_local_initialiser_that_suspends_runs_twice() {
    thread_local! {
        static HOOK: Cell<Option<fn()>> = const { Cell::new(None) };
        static RUNS: Cell<u32> = const { Cell::new(0) };
        static LAZY: u32 = {
            let run = RUNS.get() + 1;
            RUNS.set(run);
            if let Some(hook) = HOOK.take() {
                hook();
            }
            run
        };
    }
    // The first initialiser runs the second inside: the order of events is that of two coroutines of which the first is
    // suspended in its initialiser, without anything suspended there.
    anchor(|a| {
        let mut first = Coroutine::new(a, |_: &Suspender<(), ()>, ()| {
            HOOK.set(Some(|| {
                anchor(|b| {
                    let mut second =
                        Coroutine::new(b, |_: &Suspender<(), ()>, ()| LAZY.with(|value| *value));
                    assert_eq!(second.resume(()).unwrap(), Step::Done(2));
                });
            }));
            LAZY.with(|value| *value)
        });
        let seen = first.resume(()).unwrap().done().unwrap();
        assert_eq!(RUNS.get(), 2, "nobody else waits for an initialiser");
        assert_eq!(
            seen, 1,
            "the outer one has replaced the value that the other one saw"
        );
    });
}

/// A2 of docs/UNSAFE.md: no code entered across a suspend relies on strictly nested set and restore of a borrowed pointer in
/// a thread-local.
///
/// Shown with numbers in place of pointers: what such code restores is what another coroutine has set, though that
/// coroutine has ended.
#[test]
fn set_and_restore_across_suspends_is_not_nested() {
    thread_local! {
        static CURRENT: Cell<u32> = const { Cell::new(0) };
    }
    fn with(value: u32, f: impl FnOnce()) {
        let before = CURRENT.replace(value);
        f();
        CURRENT.set(before);
    }
    anchor(|a| {
        let body =
            |value: u32| move |s: &Suspender<(), ()>, ()| with(value, || s.suspend(()).unwrap());
        let mut one = Coroutine::new(a, body(1));
        let mut two = Coroutine::new(a, body(2));
        one.resume(()).unwrap();
        two.resume(()).unwrap();
        one.resume(()).unwrap();
        assert_eq!(one.state(), State::Done);
        two.resume(()).unwrap();
        assert_eq!(CURRENT.get(), 1, "left behind by one that has ended");
    });
}
