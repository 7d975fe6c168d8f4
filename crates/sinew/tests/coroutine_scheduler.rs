//! Stand-alone coroutines inside the coroutines of a scheduler.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use sinew::coroutine::{self, Coroutine, Generator, Step, SuspendError, Suspender, anchor};
use sinew::{Outcome, RunError, Scheduler, WaitError, park, run, sleep, spawn_local, yield_now};

struct Noted<'a>(&'a Cell<u32>);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_wait_inside_parks_the_whole() {
    let order = Rc::new(RefCell::new(Vec::new()));
    run(|| {
        let spawned: Vec<_> = (0..3_u32)
            .map(|number| {
                let order = order.clone();
                spawn_local(move || {
                    anchor(|a| {
                        let mut c = Coroutine::new(a, |s: &Suspender<u32, u32>, mut n: u32| {
                            for _ in 0..2 {
                                order.borrow_mut().push((number, n));
                                yield_now().unwrap();
                                sleep(Duration::from_micros(50)).unwrap();
                                n = s.suspend(n + 1).unwrap();
                            }
                            n
                        });
                        let me = sinew::current().unwrap().id();
                        assert_eq!(c.resume(0).unwrap(), Step::Suspended(1));
                        yield_now().unwrap();
                        assert_eq!(sinew::current().unwrap().id(), me);
                        assert_eq!(c.resume(10).unwrap(), Step::Suspended(11));
                        assert_eq!(c.resume(20).unwrap(), Step::Done(20));
                    });
                    number
                })
            })
            .collect();
        for (number, handle) in (0..).zip(spawned) {
            assert_eq!(handle.join().unwrap(), number);
        }
    });
    let mut order = order.take();
    // All three begin before one goes on; who of them is first is nobody's promise.
    order[..3].sort_unstable();
    assert_eq!(order[..3], [(0, 0), (1, 0), (2, 0)], "they interleave");
    assert_eq!(order.len(), 6);
}

#[test]
fn a_suspender_is_refused_in_a_coroutine_of_the_scheduler() {
    // The stand-alone coroutine is parked with its scheduler coroutine; another one must not suspend it. What could carry a
    // suspender there is a scope; a raw pointer stands in for it.
    #![expect(unsafe_code, reason = "carries a suspender to another coroutine")]
    run(|| {
        anchor(|a| {
            let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
                let address = std::ptr::from_ref(s);
                let other = spawn_local(move || {
                    // SAFETY: the body waits below until this has ended.
                    let s = unsafe { &*address };
                    matches!(s.suspend(()), Err(SuspendError::State(())))
                });
                assert!(other.join().unwrap());
            });
            assert_eq!(c.resume(()).unwrap(), Step::Done(()));
        });
    });
}

#[test]
fn a_cancel_of_the_scheduler_coroutine_reaches_the_wait_inside() {
    let dropped = Rc::new(Cell::new(0));
    run(|| {
        let inside = dropped.clone();
        let handle = spawn_local(move || {
            anchor(|a| {
                let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
                    let _noted = Noted(&inside);
                    let error = park().unwrap_err();
                    assert_eq!(error, WaitError::Cancelled);
                    assert!(!s.stopping(), "the request is to the one around it");
                    assert!(sinew::stopping());
                    s.suspend(()).unwrap();
                });
                c.resume(()).unwrap();
                std::mem::forget(c);
            });
            sinew::confirm_cancel().unwrap();
        });
        yield_now().unwrap();
        handle.cancel("stop");
        handle.wait().unwrap();
        assert_eq!(handle.outcome(), Some(Outcome::Cancelled));
    });
    assert_eq!(dropped.get(), 1);
}

// contract: C6
#[test]
fn the_forced_unwind_of_the_scheduler_passes_through() {
    let dropped = Cell::new(0);
    let outcomes = Rc::new(RefCell::new(Vec::new()));
    let drops = Rc::new(Cell::new(0));
    let (seen, inside) = (outcomes.clone(), drops.clone());
    let payload = catch_unwind(AssertUnwindSafe(|| {
        run(move || {
            let _noted = Noted(&dropped);
            spawn_local(move || {
                let _around = Noted(&inside);
                anchor(|a| {
                    let mut suspended = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
                        let _noted = Noted(&inside);
                        s.suspend(()).unwrap();
                    });
                    suspended.resume(()).unwrap();
                    let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| {
                        let _noted = Noted(&inside);
                        loop {
                            // Deaf to every request.
                            let _ = park();
                        }
                    });
                    let raised = catch_unwind(AssertUnwindSafe(|| {
                        let _: Step<(), ()> = c.resume(()).unwrap();
                    }));
                    seen.borrow_mut().push(c.outcome());
                    if let Err(payload) = raised {
                        std::panic::resume_unwind(payload);
                    }
                });
            });
            yield_now().unwrap();
            panic!("main");
        });
    }))
    .unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"main"));
    assert_eq!(*outcomes.borrow(), [Some(Outcome::Cancelled)]);
    assert_eq!(drops.get(), 3);
}

#[test]
fn a_destructor_that_is_run_by_the_anchor_may_wait_for_the_scheduler() {
    struct Sleeps<'a>(&'a Cell<u32>);
    impl Drop for Sleeps<'_> {
        fn drop(&mut self) {
            sleep(Duration::from_micros(10)).unwrap();
            self.0.set(self.0.get() + 1);
        }
    }
    run(|| {
        let slept = Cell::new(0);
        anchor(|a| {
            for _ in 0..3 {
                let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
                    let _sleeps = Sleeps(&slept);
                    s.suspend(()).unwrap();
                });
                c.resume(()).unwrap();
                std::mem::forget(c);
            }
        });
        assert_eq!(slept.get(), 3);
    });
}

#[test]
fn a_generator_feeds_a_coroutine_of_the_scheduler() {
    let sum = run(|| {
        spawn_local(|| {
            anchor(|a| {
                let numbers = Generator::new(a, |y| {
                    for n in 0..100_u32 {
                        yield_now().unwrap();
                        y.suspend(n).unwrap();
                    }
                });
                numbers.filter(|n| n % 2 == 1).sum::<u32>()
            })
        })
        .join()
        .unwrap()
    });
    assert_eq!(sum, 2_500);
}

#[test]
fn inside_a_limit_or_a_scope_it_cannot_suspend() {
    fn refused(result: Result<(), SuspendError<(), ()>>) -> bool {
        matches!(result, Err(SuspendError::State(())))
    }
    let body = |s: &Suspender<(), ()>, ()| {
        assert!(sinew::shield(|| refused(s.suspend(()))));
        s.suspend(()).unwrap();
        if sinew::in_coroutine() {
            assert!(sinew::scope(|_| refused(s.suspend(()))));
            s.suspend(()).unwrap();
        }
    };
    let drive = move || {
        anchor(|a| {
            let mut c = Coroutine::new(a, body);
            c.resume(()).unwrap();
            // Had it suspended inside, this would put its frame back into the chain after it has ended.
            sinew::shield(|| while let Ok(Step::Suspended(())) = c.resume(()) {});
            assert_eq!(c.outcome(), Some(Outcome::Returned));
        });
        sleep(Duration::from_micros(1)).unwrap();
    };
    drive();
    run(drive);
}

/// What waits in `block_on` is the party that called it: the coroutine must not go on in another one in the middle of a poll.
#[test]
fn inside_a_future_that_is_blocked_on_it_cannot_suspend() {
    fn body(s: &Suspender<(), u32>, _: ()) -> u32 {
        let mut polls = 0;
        let future = poll_fn(|context| {
            polls += 1;
            assert!(matches!(s.suspend(7), Err(SuspendError::State(7))));
            let free = coroutine::suspend::<(), u32>(8);
            assert!(matches!(free, Err(SuspendError::State(8))));
            // Others can, which are resumed in it.
            let inner = anchor(|a| Generator::new(a, |y| drop(y.suspend(polls))).next());
            assert_eq!(inner, Some(polls));
            context.waker().wake_by_ref();
            if polls < 3 {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        });
        sinew::block_on(future).unwrap();
        s.suspend(polls).unwrap();
        polls
    }
    let check = || {
        anchor(|a| {
            let mut c = Coroutine::builder(a).published().build(body).unwrap();
            assert_eq!(c.resume(()).unwrap(), Step::Suspended(3));
            assert_eq!(c.resume(()).unwrap(), Step::Done(3));
        });
    };
    check();
    run(check);
}

/// The text of the panic that comes out of `f`.
fn panic_of(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast_ref::<&str>().unwrap()).to_owned(),
    }
}

/// Every way to start a scheduler, none of which runs what it is given; between them the coroutine suspends as ever.
fn starts_none(s: &Suspender<u32, u32>, first: u32) -> u32 {
    fn never() -> i32 {
        unreachable!("it is refused")
    }
    fn ended(code: i32) {
        unreachable!("{code}")
    }
    let mut next = first;
    let mut go_on = || next = s.suspend(next + 1).unwrap();
    assert!(matches!(sinew::try_run(never), Err(RunError::State)));
    go_on();
    let anchored = Scheduler::builder().try_anchor(|_| never());
    assert!(matches!(anchored, Err(RunError::State)));
    go_on();
    let starts: [fn(); 4] = [
        || ended(run(never)),
        || ended(sinew::run_code(never)),
        || ended(Scheduler::anchor(|_| never())),
        || ended(Scheduler::builder().anchor(|_| never())),
    ];
    for start in starts {
        let text = panic_of(start);
        let named = if sinew::in_coroutine() {
            "this thread runs one already"
        } else {
            "a scheduler cannot start inside of a stand-alone coroutine"
        };
        assert!(text.contains(named), "{text}");
        go_on();
    }
    next
}

/// A scheduler's frames never stand on a stack that can be suspended under them: no suspend can cross them.
// contract: C5, S1
#[test]
fn a_scheduler_does_not_start_inside_so_no_suspend_crosses_it() {
    let drive = |c: &mut Coroutine<'_, u32, u32, u32>| {
        for n in 0..6 {
            assert_eq!(c.resume(n * 10).unwrap(), Step::Suspended(n * 10 + 1));
        }
        assert_eq!(c.resume(60).unwrap(), Step::Done(60));
    };
    let check = || {
        anchor(|a| {
            drive(&mut Coroutine::new(a, starts_none));
            // One coroutine further in.
            let mut around = Coroutine::new(a, |_: &Suspender<(), ()>, ()| {
                anchor(|b| drive(&mut Coroutine::new(b, starts_none)));
            });
            assert_eq!(around.resume(()).unwrap(), Step::Done(()));
        });
    };
    check();
    run(check);
    // And afterwards, on the thread's own stack, one does.
    assert_eq!(run(|| 7), 7);
}
