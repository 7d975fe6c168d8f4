//! Stand-alone coroutines that are resumed by different parties: what a body has opened on one must not be relied on by, or
//! be left behind in, another.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use sinew::coroutine::{Coroutine, Step, SuspendError, Suspender, anchor};
use sinew::{Outcome, run, scope, shield, sleep, timeout, yield_now};

const HOUR: Duration = Duration::from_secs(3600);

/// Fills the frames that others have left with something else.
#[inline(never)]
fn scribble() {
    std::hint::black_box([0xa5_u8; 2048]);
}

#[test]
fn a_body_does_not_stop_inside_of_its_own_timeout() {
    run(|| {
        anchor(|a| {
            let mut c = Coroutine::new(a, |s: &Suspender<(), u8>, ()| {
                let refused = timeout(HOUR, || s.suspend(1)).unwrap();
                assert!(matches!(refused, Err(SuspendError::State(1))));
                let refused = shield(|| s.suspend(2));
                assert!(matches!(refused, Err(SuspendError::State(2))));
                s.suspend(3).unwrap();
                timeout(HOUR, || sleep(Duration::from_nanos(1)))
                    .unwrap()
                    .unwrap();
            });
            let first = timeout(2 * HOUR, || c.resume(())).unwrap();
            assert_eq!(first.unwrap(), Step::Suspended(3));
            scribble();
            assert_eq!(c.resume(()).unwrap(), Step::Done(()));
            scribble();
            sleep(Duration::from_millis(1)).unwrap();
        });
    });
}

#[test]
fn a_timeout_around_a_suspend_is_not_left_behind_in_a_scheduler_that_is_gone() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            let _refused_or_not = timeout(HOUR, || s.suspend(()));
            s.suspend(()).unwrap();
        });
        run(|| c.resume(()).unwrap());
        for _ in 0..4 {
            let _ended_or_not = c.resume(());
        }
    });
}

#[test]
fn an_anchor_opened_in_a_scheduler_that_is_gone_has_stacks_of_its_own() {
    anchor(|a| {
        let mut outer = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            anchor(|b| {
                let mut total = 0;
                for n in 0..3 {
                    let mut inner = Coroutine::new(b, move |s: &Suspender<(), i32>, ()| {
                        s.suspend(n).unwrap();
                    });
                    total += inner.resume(()).unwrap().suspended().unwrap();
                    drop(inner);
                    s.suspend(()).unwrap();
                }
                total
            })
        });
        run(|| outer.resume(()).unwrap());
        run(|| outer.resume(()).unwrap());
        outer.resume(()).unwrap();
        assert_eq!(outer.resume(()).unwrap(), Step::Done(3));
    });
}

#[test]
fn a_callback_that_panics_does_not_let_a_scope_leave_its_children() {
    run(|| {
        let ended = Cell::new(false);
        let left = catch_unwind(AssertUnwindSafe(|| {
            let local = Cell::new(0);
            scope(|s| {
                s.cancel_token()
                    .on_cancel(|_| panic!("in a callback"))
                    .forget();
                s.spawn(|| {
                    for _ in 0..20 {
                        let _refused = yield_now();
                        local.set(local.get() + 1);
                    }
                    ended.set(true);
                });
                yield_now().unwrap();
                panic!("out of the scope");
            })
        }));
        let payload: Box<dyn std::any::Any + Send> = left.unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"out of the scope"));
        assert!(ended.get());
    });
}

#[test]
fn one_coroutine_is_resumed_by_many() {
    run(|| {
        anchor(|a| {
            let mut c = Coroutine::new(a, |s: &Suspender<u64, u64>, first| {
                let mut sum = first;
                loop {
                    sleep(Duration::from_nanos(1)).unwrap();
                    match s.suspend(sum) {
                        Ok(0) => return sum,
                        Ok(next) => sum += next,
                        Err(_) => return 0,
                    }
                }
            });
            for n in 1..=10 {
                let c = &mut c;
                let step = scope(|s| s.spawn(move || c.resume(n).unwrap()).join().unwrap());
                assert_eq!(step, Step::Suspended((1..=n).sum()));
            }
            assert_eq!(c.resume(0).unwrap(), Step::Done(55));
            assert_eq!(c.outcome(), Some(Outcome::Returned));
        });
    });
}
