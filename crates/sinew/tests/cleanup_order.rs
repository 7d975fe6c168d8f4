//! Cleanups: on every way to the end, the last first, and nothing waits in them.
#![allow(unsafe_code, reason = "pushes nodes of its own")]

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

use sinew::coroutine::cleanup::{self, CleanupError, Node, pop, push};
use sinew::coroutine::{Coroutine, State, Step, SuspendError, Suspender, anchor, error};
use sinew::event::{Event, EventTable};
use sinew::{
    Error, ErrorKind, Outcome, WaitError, defer, park_timeout, run, sleep, spawn_local, try_defer,
    yield_now,
};

/// What ran, in order.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<&'static str>>>);

impl Log {
    fn say(&self, word: &'static str) {
        self.0.borrow_mut().push(word);
    }

    fn defer(&self, word: &'static str) {
        let log = self.clone();
        defer(move || log.say(word));
    }

    fn take(&self) -> Vec<&'static str> {
        self.0.take()
    }
}

struct SaysOnDrop(Log, &'static str);

impl Drop for SaysOnDrop {
    fn drop(&mut self) {
        self.0.say(self.1);
    }
}

/// A way to the end of a scheduler's coroutine.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Return,
    Panic,
    Confirmed,
    Exit,
}

// contract: C14
#[test]
fn deferred_closures_run_at_the_end_on_every_way_the_last_first() {
    let log = Log::default();
    for way in [Way::Return, Way::Panic, Way::Confirmed, Way::Exit] {
        let inner = log.clone();
        let outcome = run(move || {
            let handle = spawn_local(move || {
                let _local = SaysOnDrop(inner.clone(), "local");
                inner.defer("first");
                {
                    inner.defer("second");
                }
                yield_now().unwrap();
                inner.say("body");
                match way {
                    Way::Return => {}
                    Way::Panic => resume_unwind(Box::new(())),
                    Way::Exit => sinew::exit(()),
                    Way::Confirmed => {
                        sinew::current().unwrap().cancel_token().cancel("asked");
                        sinew::confirm_cancel().unwrap();
                    }
                }
            });
            handle.wait().unwrap();
            let outcome = handle.outcome();
            drop(handle.join());
            outcome
        });
        let expected = match way {
            Way::Return | Way::Exit => Outcome::Returned,
            Way::Panic => Outcome::Error,
            Way::Confirmed => Outcome::Cancelled,
        };
        assert_eq!(outcome, Some(expected));
        assert_eq!(log.take(), ["body", "local", "second", "first"], "{way:?}");
    }
}

// contract: C14, C10
#[test]
fn a_forced_unwind_runs_them_and_one_that_never_ran_has_none() {
    let log = Log::default();
    let inner = log.clone();
    let result = catch_unwind(AssertUnwindSafe(|| {
        run(move || {
            let stubborn = inner.clone();
            drop(spawn_local(move || {
                stubborn.defer("deferred");
                let again = stubborn.clone();
                cleanup::with(
                    || again.say("with"),
                    || {
                        loop {
                            let _ = sleep(Duration::from_secs(1));
                        }
                    },
                )
            }));
            yield_now().unwrap();
            drop(spawn_local(move || inner.defer("never")));
            resume_unwind(Box::new("the end"));
        })
    }));
    assert_eq!(*result.unwrap_err().downcast::<&str>().unwrap(), "the end");
    assert_eq!(log.take(), ["with", "deferred"]);
}

// contract: C14
#[test]
fn stand_alone_coroutines_run_them_too() {
    let log = Log::default();
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            log.defer("returned");
            let _ = s.suspend(());
        });
        c.resume(()).unwrap();
        assert!(log.take().is_empty());
        assert_eq!(c.resume(()).unwrap(), Step::Done(()));
        assert_eq!(log.take(), ["returned"]);

        let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| {
            log.defer("panicked");
            resume_unwind(Box::new(1_u8));
        });
        assert!(catch_unwind(AssertUnwindSafe(|| c.resume(()))).is_err());
        assert_eq!(log.take(), ["panicked"]);

        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            log.defer("below");
            let _local = SaysOnDrop(log.clone(), "local");
            cleanup::with(|| log.say("with"), || s.suspend(()))
        });
        c.resume(()).unwrap();
        drop(c);
        assert_eq!(
            log.take(),
            ["with", "local", "below"],
            "unwound by its drop"
        );

        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            log.defer("by the anchor");
            let _ = s.suspend(());
        });
        c.resume(()).unwrap();
        std::mem::forget(c);
    });
    assert_eq!(log.take(), ["by the anchor"]);
}

// contract: C14
#[test]
fn an_inner_coroutine_has_its_own_end() {
    let log = Log::default();
    let inner = log.clone();
    run(move || {
        inner.defer("outer");
        anchor(|a| {
            let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| inner.defer("inner"));
            c.resume(()).unwrap();
            inner.say("between");
        });
    });
    assert_eq!(log.take(), ["inner", "between", "outer"]);
}

// contract: C14
#[test]
fn a_cleanup_that_defers_is_followed_by_what_it_deferred() {
    let log = Log::default();
    let inner = log.clone();
    run(move || {
        inner.defer("last");
        let nested = inner.clone();
        defer(move || {
            nested.say("one");
            nested.defer("three");
            nested.defer("two");
        });
    });
    assert_eq!(log.take(), ["one", "two", "three", "last"]);
}

// contract: C14, C7
#[test]
fn a_panicking_cleanup_does_not_keep_the_others_and_the_first_panic_counts() {
    let log = Log::default();
    for body_panics in [false, true] {
        let inner = log.clone();
        let payload = run(move || {
            let handle = spawn_local(move || {
                inner.defer("bottom");
                defer(|| resume_unwind(Box::new("second")));
                inner.defer("middle");
                defer(|| resume_unwind(Box::new("first")));
                error::set(Error::new(ErrorKind::Invalid, "left"));
                if body_panics {
                    resume_unwind(Box::new("body"));
                }
            });
            handle.wait().unwrap();
            assert_eq!(handle.outcome(), Some(Outcome::Error));
            handle.join().unwrap_err().into_panic()
        });
        let expected = if body_panics { "body" } else { "first" };
        assert_eq!(*payload.downcast::<&str>().unwrap(), expected);
        assert_eq!(log.take(), ["middle", "bottom"]);
        // The same alone.
        anchor(|a| {
            let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| {
                log.defer("bottom");
                defer(|| resume_unwind(Box::new("second")));
                defer(|| resume_unwind(Box::new("first")));
                if body_panics {
                    resume_unwind(Box::new("body"));
                }
            });
            let payload = catch_unwind(AssertUnwindSafe(|| c.resume(()))).unwrap_err();
            assert_eq!(*payload.downcast::<&str>().unwrap(), expected);
            assert_eq!(c.outcome(), Some(Outcome::Error));
        });
        assert_eq!(log.take(), ["bottom"]);
    }
}

// contract: C14, C7
#[test]
fn a_cleanup_that_panics_while_its_coroutine_is_unwound_is_told_by_the_anchor() {
    let payload = catch_unwind(|| {
        anchor(|a| {
            let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
                defer(|| resume_unwind(Box::new("cleanup")));
                let _ = s.suspend(());
            });
            c.resume(()).unwrap();
        });
    })
    .unwrap_err();
    assert_eq!(*payload.downcast::<&str>().unwrap(), "cleanup");
}

// contract: C14, C13
#[test]
fn a_cleanup_sees_the_error_and_can_handle_it() {
    run(|| {
        let handle = spawn_local(|| {
            defer(|| assert_eq!(error::take().unwrap().message(), "for the cleanup"));
            error::set(Error::new(ErrorKind::Io, "for the cleanup"));
            3
        });
        assert_eq!(handle.join().unwrap(), 3);
    });
}

// contract: C15
#[test]
fn with_runs_its_cleanup_when_its_body_ends() {
    let log = Log::default();
    // On a plain thread.
    let value = cleanup::with(|| log.say("cleanup"), || 5);
    assert_eq!((value, log.take()), (5, vec!["cleanup"]));
    let payload = catch_unwind(AssertUnwindSafe(|| {
        cleanup::with(
            || {
                log.say("cleanup");
                resume_unwind(Box::new("of the cleanup"));
            },
            || resume_unwind(Box::new("of the body")),
        )
    }))
    .unwrap_err();
    assert_eq!(*payload.downcast::<&str>().unwrap(), "of the body");
    assert_eq!(log.take(), ["cleanup"]);
    let payload = catch_unwind(AssertUnwindSafe(|| {
        cleanup::with(
            || resume_unwind(Box::new("of the cleanup")),
            || SaysOnDrop(log.clone(), "value"),
        )
    }))
    .err()
    .unwrap();
    assert_eq!(*payload.downcast::<&str>().unwrap(), "of the cleanup");
    assert_eq!(log.take(), ["value"]);
    // Mixed with deferred ones: each runs when its own end comes, and within an end the last first.
    let inner = log.clone();
    run(move || {
        inner.defer("first deferred");
        cleanup::with(
            || inner.say("outer with"),
            || {
                inner.defer("second deferred");
                cleanup::with(|| inner.say("inner with"), || inner.say("body"));
            },
        );
        inner.say("after");
    });
    assert_eq!(
        log.take(),
        [
            "body",
            "inner with",
            "outer with",
            "after",
            "second deferred",
            "first deferred"
        ]
    );
}

/// A word to say, and where.
struct Said(Log, &'static str);

unsafe extern "C-unwind" fn say(data: *mut c_void) {
    // SAFETY: every test pushes it with one of these, that is alive when it runs.
    let said = unsafe { &*data.cast::<Said>() };
    said.0.say(said.1);
}

/// Lives for ever, and is not lost: a leak checker finds it.
fn leak<T>(value: T) -> NonNull<T> {
    static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let kept = NonNull::from(Box::leak(Box::new(value)));
    KEPT.lock().unwrap().push(kept.expose_provenance().get());
    kept
}

/// Pushes `word` in a node that is never freed.
fn push_word(log: &Log, word: &'static str) -> Result<NonNull<Node>, CleanupError> {
    let node = leak(Node::INIT);
    let said = leak(Said(log.clone(), word));
    // SAFETY: both live for ever.
    unsafe { push(node, say, said.as_ptr().cast()) }.map(|()| node)
}

fn pop_top(run: bool) -> Result<(), CleanupError> {
    // SAFETY: the tests rely on no cleanup's run, except where they look at it.
    unsafe { pop(run) }
}

// contract: C15
#[test]
fn pushed_and_deferred_ones_have_one_order() {
    let log = Log::default();
    let inner = log.clone();
    run(move || {
        assert_eq!(pop_top(true), Err(CleanupError::Empty));
        push_word(&inner, "pushed first").unwrap();
        inner.defer("deferred second");
        push_word(&inner, "pushed third").unwrap();
        inner.defer("deferred fourth");
    });
    assert_eq!(
        log.take(),
        [
            "deferred fourth",
            "pushed third",
            "deferred second",
            "pushed first"
        ]
    );
}

// contract: C15
#[test]
fn pop_takes_either_kind_and_runs_it_if_told_to() {
    let log = Log::default();
    let inner = log.clone();
    run(move || {
        let dropped = SaysOnDrop(inner.clone(), "dropped unrun");
        let say = inner.clone();
        defer(move || {
            let _held = &dropped;
            say.say("not run");
        });
        let unrun = push_word(&inner, "not run").unwrap();
        inner.defer("popped deferred");
        let node = push_word(&inner, "popped pushed").unwrap();
        // SAFETY: leaked.
        let node_ref = unsafe { node.as_ref() };
        // SAFETY: leaked.
        let unrun = unsafe { unrun.as_ref() };
        assert!(node_ref.is_linked());
        // SAFETY: it is refused.
        let twice = unsafe { push(node, say_nothing, ptr::null_mut()) };
        assert_eq!(twice, Err(CleanupError::Linked));
        pop_top(true).unwrap();
        assert!(!node_ref.is_linked());
        pop_top(true).unwrap();
        pop_top(false).unwrap();
        assert!(!unrun.is_linked());
        pop_top(false).unwrap();
        assert_eq!(pop_top(false), Err(CleanupError::Empty));
        // The node can be used again.
        // SAFETY: leaked.
        unsafe { push(node, say_nothing, ptr::null_mut()) }.unwrap();
        pop_top(false).unwrap();
    });
    assert_eq!(
        log.take(),
        ["popped pushed", "popped deferred", "dropped unrun"]
    );
}

unsafe extern "C-unwind" fn say_nothing(_: *mut c_void) {}

// contract: C15
#[test]
fn a_node_of_zeroes_will_do_and_pop_lets_a_panic_through() {
    unsafe extern "C-unwind" fn panics(_: *mut c_void) {
        resume_unwind(Box::new("through"));
    }
    run(|| {
        let zeroed: NonNull<Node> = leak(MaybeUninit::<Node>::zeroed()).cast();
        // SAFETY: leaked.
        unsafe { push(zeroed, panics, ptr::null_mut()) }.unwrap();
        let payload = catch_unwind(|| pop_top(true)).unwrap_err();
        assert_eq!(*payload.downcast::<&str>().unwrap(), "through");
        assert_eq!(pop_top(true), Err(CleanupError::Empty));
    });
}

// contract: C14, C15
#[test]
fn a_plain_thread_has_no_end_to_defer_to() {
    let log = Log::default();
    let error = try_defer({
        let log = log.clone();
        move || log.say("given back")
    })
    .unwrap_err();
    assert_eq!(Error::from(CleanupError::State).kind(), ErrorKind::State);
    error.into_inner()();
    assert_eq!(log.take(), ["given back"]);
    assert_eq!(push_word(&log, "never").unwrap_err(), CleanupError::State);
    assert_eq!(pop_top(true), Err(CleanupError::State));
    assert!(catch_unwind(|| defer(|| ())).is_err());
}

/// Every way to wait fails with `State` here.
fn assert_nothing_waits(event: &Event) {
    event.set();
    assert_eq!(event.wait(), Err(WaitError::State));
    assert!(event.is_set(), "the signal was not consumed");
    assert_eq!(sleep(Duration::from_secs(9)), Err(WaitError::State));
    assert_eq!(park_timeout(Duration::from_secs(9)), Err(WaitError::State));
    assert_eq!(sinew::confirm_cancel(), Err(WaitError::State));
}

// contract: C8, C15, E7
#[test]
fn in_a_cleanup_nothing_waits_and_nothing_is_consumed() {
    let ran = Rc::new(Cell::new(0));
    let count = Rc::clone(&ran);
    run(move || {
        let in_defer = Rc::clone(&count);
        let handle = spawn_local(move || {
            let me = sinew::current().unwrap();
            let check = move || {
                // There is a request to confirm, and a permit to take.
                me.cancel_token().cancel("asked");
                me.unparker().unpark();
                assert_nothing_waits(&Event::auto());
                assert_eq!(yield_now(), Err(WaitError::State));
                let (sender, receiver) = sinew::sync::channel::bounded(1);
                assert_eq!(receiver.recv(), Err(WaitError::State));
                // What need not wait works.
                sender.send(1).unwrap();
                let refused = sender.send(2).unwrap_err();
                assert_eq!((refused.value, refused.reason), (2, WaitError::State));
                assert_eq!(receiver.recv(), Ok(1));
                let child = spawn_local(|| ());
                assert_eq!(child.wait(), Err(WaitError::State));
                assert!(catch_unwind(AssertUnwindSafe(|| sinew::scope(|_| ()))).is_err());
                in_defer.set(in_defer.get() + 1);
            };
            let checked = Rc::new(check);
            defer({
                let check = Rc::clone(&checked);
                move || check()
            });
            cleanup::with(|| checked(), || ());
            // Outside of it all of that works again.
            assert_eq!(
                park_timeout(Duration::from_secs(9)),
                Ok(()),
                "the permit is still there"
            );
            assert_eq!(yield_now(), Err(WaitError::Cancelled));
        });
        handle.wait().unwrap();
        // It was asked to stop, did not confirm, and returned.
        assert_eq!(handle.outcome(), Some(Outcome::Returned));
    });
    assert_eq!(ran.get(), 2);
    // On a plain thread.
    cleanup::with(|| assert_nothing_waits(&Event::auto()), || ());
    assert_eq!(park_timeout(Duration::ZERO), Err(WaitError::Timeout));
}

// contract: C15
#[test]
fn no_turn_ends_in_a_cleanup() {
    run(|| {
        let others = Rc::new(Cell::new(0));
        let count = Rc::clone(&others);
        let other = spawn_local(move || {
            while yield_now().is_ok() {
                count.set(count.get() + 1);
            }
        });
        yield_now().unwrap();
        let before = others.get();
        let (sender, receiver) = sinew::sync::channel::unbounded();
        cleanup::with(
            || {
                for number in 0..1000 {
                    sender.send(number).unwrap();
                }
                for _ in 0..1000 {
                    receiver.recv().unwrap();
                }
                assert_eq!(others.get(), before, "a cleanup was suspended");
            },
            || (),
        );
        yield_now().unwrap();
        assert!(others.get() > before);
        other.cancel("the end");
    });
}

// contract: C8, C15
#[test]
fn in_a_cleanup_of_a_stand_alone_coroutine_nothing_suspends() {
    let ran = Cell::new(0);
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<u8, u8>, _: u8| {
            let check = || {
                assert!(matches!(s.suspend(7), Err(SuspendError::State(7))));
                assert_eq!(s.confirm_cancel(), Err(WaitError::State));
                assert_nothing_waits(&Event::auto());
                // Another one can be run by it, and suspend to it.
                anchor(|b| {
                    let mut other = Coroutine::new(b, |o: &Suspender<(), u8>, ()| {
                        assert!(matches!(s.suspend(9), Err(SuspendError::State(9))));
                        o.suspend(1).unwrap();
                    });
                    assert_eq!(other.resume(()).unwrap(), Step::Suspended(1));
                });
                ran.set(ran.get() + 1);
            };
            cleanup::with(check, || assert!(s.suspend(1).is_err()));
            // Outside of it, it works again.
            assert!(matches!(s.suspend(2), Err(SuspendError::Cancelled(_))));
            s.confirm_cancel().unwrap();
        });
        assert_eq!(c.resume(0).unwrap(), Step::Suspended(1));
        c.cancel();
        assert_eq!(c.resume(0).unwrap(), Step::Suspended(2));
        assert_eq!(ran.get(), 1);
        assert_eq!(c.resume(0).unwrap(), Step::Done(()));
        assert_eq!(c.outcome(), Some(Outcome::Cancelled));
    });
}

// contract: C15
#[test]
fn a_deferred_closure_cannot_suspend_through_a_smuggled_suspender() {
    let refused = Rc::new(Cell::new(false));
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            // A deferred closure is 'static; a foreign one has no such scruples.
            let address = ptr::from_ref(s).expose_provenance();
            let refused = Rc::clone(&refused);
            defer(move || {
                // SAFETY: the suspender is the coroutine's record, which outlives its cleanups.
                let s = unsafe { &*ptr::with_exposed_provenance::<Suspender<(), ()>>(address) };
                refused.set(matches!(s.suspend(()), Err(SuspendError::State(()))));
                assert_eq!(s.confirm_cancel(), Err(WaitError::State));
            });
        });
        assert_eq!(c.resume(()).unwrap(), Step::Done(()));
        assert_eq!(c.state(), State::Done);
    });
    assert!(refused.get());
}

// contract: E7
#[test]
fn an_events_callback_does_not_suspend_the_coroutine_that_triggers_it() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), u8>, ()| {
            let table = EventTable::<u64>::new(1);
            let address = ptr::from_ref(s).expose_provenance();
            let id = table
                .create(None, move |_, _| {
                    // SAFETY: the trigger is in the suspender's coroutine.
                    let s = unsafe { &*ptr::with_exposed_provenance::<Suspender<(), u8>>(address) };
                    assert!(matches!(s.suspend(1), Err(SuspendError::State(1))));
                })
                .unwrap();
            table.trigger(id, 1).unwrap();
            s.suspend(2).unwrap();
        });
        assert_eq!(c.resume(()).unwrap(), Step::Suspended(2));
        c.resume(()).unwrap();
    });
}

/// Defers when it is dropped, which may be late.
struct DefersOnDrop(Log);

impl Drop for DefersOnDrop {
    fn drop(&mut self) {
        let log = self.0.clone();
        if try_defer(move || log.say("late")).is_err() {
            self.0.say("refused");
        }
    }
}

// contract: C14
#[test]
fn what_an_unjoined_result_defers_still_runs() {
    let log = Log::default();
    let inner = log.clone();
    run(move || {
        let late = DefersOnDrop(inner.clone());
        drop(spawn_local(move || late));
        yield_now().unwrap();
        assert_eq!(inner.take(), ["late"]);
        // The next one on the same stack starts with nothing.
        spawn_local(|| assert_eq!(pop_top(true), Err(CleanupError::Empty)))
            .join()
            .unwrap();
        // A result that its handle drops is the dropping coroutine's.
        let late = DefersOnDrop(inner.clone());
        let handle = spawn_local(move || late);
        handle.wait().unwrap();
        drop(handle);
        assert!(inner.take().is_empty());
    });
    assert_eq!(log.take(), ["late"]);
}

// contract: C14
#[test]
fn ten_thousand_are_no_recursion() {
    let count = Rc::new(Cell::new(0));
    let inner = Rc::clone(&count);
    run(move || {
        for _ in 0..10_000 {
            let inner = Rc::clone(&inner);
            defer(move || inner.set(inner.get() + 1));
        }
    });
    assert_eq!(count.get(), 10_000);
}
