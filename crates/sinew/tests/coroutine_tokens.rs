//! The cancel tokens of stand-alone coroutines.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use sinew::coroutine::{Coroutine, ResumeError, State, Step, SuspendError, Suspender, anchor};
use sinew::{CancelToken, Outcome};

fn from_a_thread(token: &CancelToken) {
    let token = token.clone();
    std::thread::spawn(move || token.cancel("from a thread"))
        .join()
        .unwrap();
}

// contract: C9, C10, C11
#[test]
fn a_cancel_from_another_thread_is_seen_at_the_next_suspend_that_returns() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<u32, u32>, _| {
            assert_eq!(s.suspend(0).unwrap(), 10);
            assert!(!s.stopping());
            match s.suspend(1) {
                Err(SuspendError::Cancelled(value)) => assert_eq!(value, 11),
                other => panic!("{other:?}"),
            }
            assert!(s.stopping());
            let cause = s.cancel_token().cause().unwrap();
            assert_eq!((&*cause.reason, cause.who), ("from a thread", 0));
            s.confirm_cancel().unwrap();
            2
        });
        let token = c.cancel_token();
        assert_eq!(c.resume(9).unwrap(), Step::Suspended(0));
        assert_eq!(c.resume(10).unwrap(), Step::Suspended(1));
        from_a_thread(&token);
        assert_eq!((c.state(), c.outcome()), (State::Suspended, None));
        assert_eq!(c.resume(11).unwrap(), Step::Done(2));
        assert_eq!(c.outcome(), Some(Outcome::Cancelled));
    });
}

// contract: C9, C11
#[test]
fn a_running_one_sees_it_when_it_looks() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            let token = s.cancel_token();
            assert!(s.confirm_cancel().is_err());
            assert!(!s.stopping());
            from_a_thread(&token);
            assert!(s.stopping());
            s.confirm_cancel().unwrap();
        });
        c.resume(()).unwrap();
        assert_eq!(c.outcome(), Some(Outcome::Cancelled));
    });
}

// contract: C9, C10
#[test]
fn one_that_has_not_run_never_will() {
    let ran = Cell::new(false);
    anchor(|a| {
        let mut c = Coroutine::new(a, |_: &Suspender<u8, ()>, _| ran.set(true));
        from_a_thread(&c.cancel_token());
        assert_eq!(c.state(), State::Ready);
        assert!(matches!(c.resume(7), Err(ResumeError::Cancelled(7))));
        assert_eq!(c.outcome(), Some(Outcome::Cancelled));

        let parent = CancelToken::new();
        parent.cancel("long ago");
        let mut late = Coroutine::builder(a)
            .cancel_parent(&parent)
            .build(|_: &Suspender<(), ()>, ()| ran.set(true))
            .unwrap();
        assert!(matches!(late.resume(()), Err(ResumeError::Cancelled(()))));
        assert_eq!(&*late.cancel_token().cause().unwrap().reason, "long ago");
    });
    assert!(!ran.get());
}

// contract: C9
#[test]
fn it_is_one_token_that_outlives_the_coroutine() {
    let calls = Arc::new(AtomicU32::new(0));
    let kept = anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            s.suspend(()).unwrap();
            s.cancel_token()
        });
        let token = c.cancel_token();
        let counted = calls.clone();
        token
            .on_cancel(move |_| {
                counted.fetch_add(1, Relaxed);
            })
            .forget();
        c.resume(()).unwrap();
        let inner = c.resume(()).unwrap().done().unwrap();
        assert_eq!(c.outcome(), Some(Outcome::Returned));
        c.cancel();
        assert!(
            !token.is_cancelled(),
            "one that has ended cannot be asked to stop"
        );
        from_a_thread(&inner);
        assert!(token.is_cancelled(), "they are the same");
        assert_eq!(c.outcome(), Some(Outcome::Returned));
        c.cancel();
        token
    });
    kept.cancel("again");
    assert_eq!(&*kept.cause().unwrap().reason, "from a thread");
    assert_eq!(calls.load(Relaxed), 1);
}

// contract: C9
#[test]
fn the_handle_the_drop_and_the_anchor_fire_it() {
    let calls = Arc::new(AtomicU32::new(0));
    let note = |token: &CancelToken| {
        let calls = calls.clone();
        token
            .on_cancel(move |_| {
                calls.fetch_add(1, Relaxed);
            })
            .forget();
        token.child()
    };
    let body = |s: &Suspender<(), ()>, ()| {
        let _ = s.suspend(());
    };
    let mut children = Vec::new();
    anchor(|a| {
        let handle = Coroutine::new(a, body);
        children.push(note(&handle.cancel_token()));
        handle.cancel();
        handle.cancel();
        assert_eq!(calls.load(Relaxed), 1);

        let mut dropped = Coroutine::new(a, body);
        children.push(note(&dropped.cancel_token()));
        dropped.resume(()).unwrap();
        drop(dropped);
        assert_eq!(calls.load(Relaxed), 2);

        let ready = Coroutine::new(a, body);
        children.push(note(&ready.cancel_token()));
        drop(ready);
        assert_eq!(calls.load(Relaxed), 3);

        let mut forgotten = Coroutine::new(a, body);
        children.push(note(&forgotten.cancel_token()));
        forgotten.resume(()).unwrap();
        std::mem::forget(forgotten);
        assert_eq!(calls.load(Relaxed), 3);

        let late = Coroutine::new(a, body);
        late.cancel();
        assert!(late.cancel_token().is_cancelled(), "made after the request");
    });
    assert_eq!(calls.load(Relaxed), 4);
    assert!(children.iter().all(CancelToken::is_cancelled));
}

// contract: C9
#[test]
fn coroutines_form_a_tree() {
    anchor(|a| {
        let root = CancelToken::new();
        let stops = |s: &Suspender<(), ()>, ()| {
            while s.suspend(()).is_ok() {}
            s.cancel_token().cause().unwrap().reason
        };
        let make = |parent: &CancelToken| {
            let builder = Coroutine::builder(a).cancel_parent(parent);
            let mut c = builder.build(stops).unwrap();
            c.resume(()).map(drop).unwrap();
            c
        };
        let mut outer = make(&root);
        let mut inner = make(&outer.cancel_token());
        let mut beside = make(&root);
        inner.cancel_token().cancel("leaf");
        assert_eq!(&*inner.resume(()).unwrap().done().unwrap(), "leaf");
        assert_eq!(outer.resume(()).unwrap(), Step::Suspended(()));
        from_a_thread(&root);
        for c in [&mut outer, &mut beside] {
            assert_eq!(&*c.resume(()).unwrap().done().unwrap(), "from a thread");
        }
    });
}

// contract: C9
#[test]
fn it_fires_by_itself_at_a_deadline_above_it() {
    anchor(|a| {
        let limit = CancelToken::with_timeout(Duration::from_millis(2));
        let mut c = Coroutine::builder(a)
            .cancel_parent(&limit)
            .build(|s: &Suspender<(), ()>, ()| {
                matches!(s.suspend(()), Err(SuspendError::Cancelled(())))
            })
            .unwrap();
        c.resume(()).map(drop).unwrap();
        c.cancel_token()
            .wait_timeout(Duration::from_secs(60))
            .unwrap();
        assert_eq!(c.resume(()).unwrap(), Step::Done(true));
    });
}

// contract: C9
#[test]
fn a_callback_that_panics_is_raised_by_who_cancels_or_by_the_anchor() {
    let body = |s: &Suspender<(), ()>, ()| {
        let _ = s.suspend(());
    };
    let ended = Cell::new(0);
    let payload = catch_unwind(AssertUnwindSafe(|| {
        anchor(|a| {
            for word in ["raised", "kept", "second"] {
                let mut c = Coroutine::new(a, body);
                c.cancel_token()
                    .on_cancel(move |_| std::panic::panic_any(word))
                    .forget();
                c.resume(()).unwrap();
                if word == "raised" {
                    let payload = catch_unwind(AssertUnwindSafe(|| c.cancel())).unwrap_err();
                    assert_eq!(payload.downcast_ref::<&str>(), Some(&word));
                    assert_eq!(c.resume(()).unwrap(), Step::Done(()));
                }
                drop(c);
                ended.set(ended.get() + 1);
            }
        });
    }))
    .unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"kept"));
    assert_eq!(ended.get(), 3);
}

/// A million cancels at every moment of a coroutine's life: whatever the moment, the request arrives.
// contract: C9, C10
#[test]
fn a_cancel_that_races_with_the_body_is_never_lost() {
    let rounds = 2_000;
    let (send, receive) = std::sync::mpsc::channel::<CancelToken>();
    let canceller = std::thread::spawn(move || {
        for token in receive {
            token.cancel("now");
        }
    });
    anchor(|a| {
        for _ in 0..rounds {
            let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
                let mut turns = 0_u64;
                while s.suspend(()).is_ok() {
                    turns += 1;
                }
                assert!(s.stopping());
                turns
            });
            send.send(c.cancel_token()).unwrap();
            // It ends, or the test does not.
            loop {
                match c.resume(()) {
                    Ok(Step::Suspended(())) => {}
                    Ok(Step::Done(_)) | Err(ResumeError::Cancelled(())) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
    drop(send);
    canceller.join().unwrap();
}
