//! Cancel tokens: the tree, reasons, callbacks, deadlines, and what they do to coroutines.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use sinew::{Builder, CancelToken, Outcome, WaitError, park, run, sleep, spawn_local, yield_now};

// contract: C9
#[test]
fn a_parent_cancels_its_children_and_not_the_other_way() {
    let parent = CancelToken::new();
    let (left, right) = (parent.child(), parent.child());
    let grandchild = left.child();
    left.cancel("left only");
    assert!(left.is_cancelled() && grandchild.is_cancelled());
    assert!(!parent.is_cancelled() && !right.is_cancelled());
    assert_eq!(&*grandchild.cause().unwrap().reason, "left only");
    parent.cancel("all");
    parent.cancel("too late");
    assert_eq!(&*right.cause().unwrap().reason, "all");
    assert_eq!(&*parent.cause().unwrap().reason, "all");
    assert_eq!(
        &*left.cause().unwrap().reason,
        "left only",
        "the first cause stands"
    );
    assert!(parent.child().is_cancelled(), "born below a fired token");
    assert_eq!(&*parent.child().cause().unwrap().reason, "all");
}

// contract: C9
#[test]
fn callbacks_run_once_also_when_registered_late_or_taken_back() {
    let token = CancelToken::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = |by| {
        let calls = calls.clone();
        move |cause: &sinew::cancel::Cause| {
            assert_eq!(&*cause.reason, "go");
            calls.fetch_add(by, Relaxed);
        }
    };
    let kept = token.on_cancel(count(1));
    drop(token.on_cancel(count(1000)));
    token.on_cancel(count(10)).forget();
    token.cancel("go");
    token.cancel("again");
    assert_eq!(calls.load(Relaxed), 11);
    let late = token.on_cancel(count(100));
    assert_eq!(calls.load(Relaxed), 111, "at once, for it has fired");
    drop((kept, late));
}

// contract: C9
#[test]
fn a_callback_that_panics_does_not_keep_the_others_from_running() {
    let token = CancelToken::new();
    let calls = Arc::new(AtomicUsize::new(0));
    for n in 0..4 {
        let calls = calls.clone();
        token
            .on_cancel(move |_| {
                calls.fetch_add(1, Relaxed);
                if n % 2 == 0 {
                    resume_unwind(Box::new(n));
                }
            })
            .forget();
    }
    let payload = catch_unwind(AssertUnwindSafe(|| token.cancel("go"))).unwrap_err();
    assert_eq!(
        payload.downcast_ref::<i32>(),
        Some(&0),
        "the first panic is raised"
    );
    assert_eq!(calls.load(Relaxed), 4);
}

// contract: C9
#[test]
fn a_callback_may_use_the_token_and_make_new_ones() {
    let token = CancelToken::new();
    let (inner, child) = (token.clone(), token.child());
    token
        .on_cancel(move |_| {
            assert!(inner.is_cancelled());
            assert!(inner.child().is_cancelled());
            inner.on_cancel(|_| ()).forget();
            child.cancel("from a callback");
        })
        .forget();
    token.cancel("go");
}

// contract: C9
#[test]
fn a_token_fires_by_itself_at_its_deadline() {
    let (tell, told) = mpsc::channel();
    let token = CancelToken::with_timeout(Duration::from_millis(2));
    let child = token.child();
    child
        .on_cancel(move |cause| tell.send(cause.reason.clone()).unwrap())
        .forget();
    let reason = told
        .recv_timeout(Duration::from_secs(30))
        .expect("fired by nobody's asking");
    assert!(reason.contains("deadline"), "{reason}");
    assert!(token.is_cancelled());
    assert!(CancelToken::with_deadline(sinew::time::now()).is_cancelled());
    assert!(!CancelToken::with_timeout(Duration::MAX).is_cancelled());
    let sooner = token.child_with_timeout(Duration::from_secs(3600));
    assert!(sooner.is_cancelled());
}

// contract: C9
#[test]
fn waiting_for_a_token_ends_with_it_from_coroutines_and_threads() {
    let token = CancelToken::new();
    let other = token.clone();
    let thread = std::thread::spawn(move || other.wait());
    run(|| {
        let inside = token.clone();
        let waiter = spawn_local(move || inside.wait());
        let inside = token.clone();
        let impatient = spawn_local(move || inside.wait_timeout(Duration::from_micros(50)));
        assert_eq!(impatient.join().unwrap(), Err(WaitError::Timeout));
        token.cancel("go");
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
    assert_eq!(thread.join().unwrap(), Ok(()));
    assert_eq!(token.wait_deadline(sinew::time::now()), Ok(()));
}

// contract: C9, C11
#[test]
fn a_coroutines_token_outlives_it_and_reaches_it_from_any_thread() {
    let kept = run(|| {
        let handle = spawn_local(|| {
            let me = sinew::current().unwrap();
            let result = park();
            (
                result,
                sinew::stopping(),
                me.cancel_token().cause().unwrap(),
            )
        });
        yield_now().unwrap();
        let token = handle.cancel_token();
        let other = token.clone();
        let me = sinew::current().unwrap().id();
        std::thread::spawn(move || other.cancel("from a thread"))
            .join()
            .unwrap();
        let (result, stopping, cause) = handle.join().unwrap();
        assert_eq!((result, stopping), (Err(WaitError::Cancelled), true));
        assert_eq!((&*cause.reason, cause.who), ("from a thread", 0));
        let handle = spawn_local(park);
        handle.cancel("by a coroutine");
        assert_eq!(handle.cancel_token().cause().unwrap().who, me);
        token
    });
    kept.cancel("after the end");
    assert_eq!(&*kept.cause().unwrap().reason, "from a thread");
}

// contract: C9, C10
#[test]
fn a_builders_parent_cancels_the_coroutine() {
    run(|| {
        let parent = CancelToken::new();
        let builder = Builder::new().cancel_parent(&parent);
        let started = builder
            .spawn_local(|| sleep(Duration::from_secs(3600)))
            .unwrap();
        yield_now().unwrap();
        let unstarted = builder.spawn_local(|| ()).unwrap();
        parent.cancel("all of you");
        assert_eq!(started.join().unwrap(), Err(WaitError::Cancelled));
        unstarted.wait().unwrap();
        assert_eq!(unstarted.outcome(), Some(Outcome::Cancelled));
        let late = builder.spawn_local(|| ()).unwrap();
        late.wait().unwrap();
        assert_eq!(
            late.outcome(),
            Some(Outcome::Cancelled),
            "born below a fired token"
        );
    });
}

// contract: C9
#[test]
fn trees_that_are_deep_or_wide_or_gone_need_no_stack_and_keep_no_memory() {
    let root = CancelToken::new();
    let mut deepest = root.child();
    for _ in 0..100_000 {
        deepest = deepest.child();
    }
    root.cancel("to the bottom");
    assert!(deepest.is_cancelled());
    drop((root, deepest));
    let root = CancelToken::new();
    for _ in 0..1_000_000 {
        drop(root.child());
        drop(root.on_cancel(|_| ()));
    }
    assert_eq!(format!("{root:?}"), "CancelToken { cause: None, .. }");
    let many: Vec<_> = (0..1000).map(|_| root.child()).collect();
    root.cancel("all");
    assert!(many.iter().all(CancelToken::is_cancelled));
}

// contract: C9
#[test]
fn registering_and_firing_at_the_same_time_tells_everyone_once() {
    for _ in 0..300 {
        let token = CancelToken::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new(Barrier::new(3));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (token, calls, gate) = (token.clone(), calls.clone(), gate.clone());
                std::thread::spawn(move || {
                    gate.wait();
                    for _ in 0..10 {
                        let calls = calls.clone();
                        token
                            .on_cancel(move |_| {
                                calls.fetch_add(1, Relaxed);
                            })
                            .forget();
                        let before = token.is_cancelled();
                        assert!(
                            token.child().is_cancelled() || !before,
                            "a child was not told"
                        );
                    }
                })
            })
            .collect();
        gate.wait();
        token.cancel("now");
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(calls.load(Relaxed), 20);
    }
}

// contract: C9
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn cancels_are_told_in_the_order_of_spawning() {
    run(|| {
        let parent = CancelToken::new();
        let order = Rc::new(RefCell::new(Vec::new()));
        for n in 0..5 {
            let order = order.clone();
            Builder::new()
                .cancel_parent(&parent)
                .go_local(move || {
                    park().unwrap_err();
                    order.borrow_mut().push(n);
                })
                .unwrap();
        }
        yield_now().unwrap();
        parent.cancel("in order");
        yield_now().unwrap();
        assert_eq!(*order.borrow(), [0, 1, 2, 3, 4]);
    });
}
