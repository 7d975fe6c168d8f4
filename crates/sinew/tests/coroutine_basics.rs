//! Stand-alone coroutines: values, states, outcomes, depth, foreign frames.
#![allow(unsafe_code, reason = "calls qsort with a comparator that suspends")]

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use sinew::Outcome;
use sinew::coroutine::{
    Coroutine, Generator, ResumeError, State, Step, SuspendError, Suspender, Yielder, anchor,
};

/// Counts how often it was dropped.
struct Noted<'a>(&'a Cell<u32>);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

fn text(payload: &(dyn std::any::Any + Send)) -> &str {
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    owned
        .or(payload.downcast_ref::<&str>().copied())
        .unwrap_or("not text")
}

// contract: C2
#[test]
fn making_one_runs_nothing() {
    let ran = Cell::new(false);
    anchor(|a| {
        let c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| ran.set(true));
        assert_eq!(c.state(), State::Ready);
        assert_eq!(c.outcome(), None);
    });
    assert!(!ran.get());
}

// contract: C3
#[test]
fn values_travel_both_ways() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<String, usize>, first: String| {
            let second = s.suspend(first.len()).unwrap();
            let third = s.suspend(second.len()).unwrap();
            format!("{first}-{second}-{third}")
        });
        assert_eq!(c.resume("a".into()).unwrap(), Step::Suspended(1));
        assert_eq!(c.state(), State::Suspended);
        assert_eq!(c.resume("bc".into()).unwrap().suspended(), Some(2));
        assert_eq!(c.resume("def".into()).unwrap().done().unwrap(), "a-bc-def");
        assert_eq!(c.state(), State::Done);
        assert_eq!(c.outcome(), Some(Outcome::Returned));
    });
}

// contract: C3
#[test]
fn values_of_every_shape_travel() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    #[repr(align(64))]
    struct Wide([u64; 32]);
    fn echo<T: Copy + PartialEq + std::fmt::Debug>(value: T) {
        anchor(|a| {
            let mut c = Coroutine::new(a, |s: &Suspender<T, T>, mut value: T| {
                for _ in 0..3 {
                    value = s.suspend(value).unwrap();
                }
                value
            });
            for _ in 0..3 {
                assert_eq!(c.resume(value).unwrap(), Step::Suspended(value));
            }
            assert_eq!(c.resume(value).unwrap(), Step::Done(value));
        });
    }
    echo(());
    echo(7_u8);
    echo((1_u8, 2_u32));
    echo(u64::MAX);
    echo(1.5_f64);
    echo("borrowed");
    echo(Some(&3_i32));
    echo([0_u8; 9]);
    echo(Wide([9; 32]));
}

// contract: C4
#[test]
fn it_suspends_in_recursion() {
    fn dive(s: &Suspender<(), u32>, depth: u32) -> u32 {
        if depth == 0 {
            return 0;
        }
        s.suspend(depth).unwrap();
        let below = dive(s, depth - 1);
        s.suspend(depth).unwrap();
        below + 1
    }
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), u32>, ()| dive(s, 100));
        let mut seen = Vec::new();
        let depth = loop {
            match c.resume(()).unwrap() {
                Step::Suspended(at) => seen.push(at),
                Step::Done(depth) => break depth,
            }
        };
        assert_eq!(depth, 100);
        assert!(seen.iter().copied().eq((1..=100).rev().chain(1..=100)));
    });
}

// contract: C4
#[test]
fn it_suspends_in_iterator_adaptors_and_trait_objects() {
    trait Visit {
        fn visit(&self, item: i32);
    }
    struct Hand<'s>(&'s Suspender<(), i32>);
    impl Visit for Hand<'_> {
        fn visit(&self, item: i32) {
            self.0.suspend(item).unwrap();
        }
    }
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), i32>, ()| {
            let visitor: Box<dyn Visit + '_> = Box::new(Hand(s));
            (1..10)
                .filter(|n| n % 2 == 0)
                .inspect(|n| visitor.visit(*n))
                .map(|n| n * 10)
                .sum::<i32>()
        });
        for expected in [2, 4, 6, 8] {
            assert_eq!(c.resume(()).unwrap(), Step::Suspended(expected));
        }
        assert_eq!(c.resume(()).unwrap(), Step::Done(200));
    });
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
    /// The suspender of the body that sorts, for the comparator, which gets no argument of its own.
    static SORTING: Cell<*const Suspender<(), ()>> = const { Cell::new(std::ptr::null()) };
}

unsafe extern "C-unwind" fn compare(a: *const c_void, b: *const c_void) -> i32 {
    // SAFETY: set by the body that sorts, whose frame is further out.
    let s = unsafe { &*SORTING.get() };
    let _ = s.suspend(());
    // SAFETY: qsort passes elements.
    let a = unsafe { *a.cast::<i32>() };
    // SAFETY: as above.
    let b = unsafe { *b.cast::<i32>() };
    a.cmp(&b) as i32
}

fn sort(s: &Suspender<(), ()>, values: &mut [i32]) {
    SORTING.set(s);
    let base = values.as_mut_ptr().cast();
    // SAFETY: the slice is good, and the comparator compares its elements.
    unsafe { qsort(base, values.len(), 4, compare) };
}

// contract: C4
#[test]
fn it_suspends_in_a_foreign_comparator() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            let mut values: Vec<i32> = (0..300).map(|n| n * 7919 % 300).collect();
            sort(s, &mut values);
            values
        });
        let mut suspends = 0;
        let sorted = loop {
            match c.resume(()).unwrap() {
                Step::Suspended(()) => suspends += 1,
                Step::Done(values) => break values,
            }
        };
        assert!(sorted.is_sorted());
        assert!(suspends > 300);
    });
}

// contract: C4, C6
#[test]
fn a_foreign_comparator_is_unwound() {
    let dropped = Cell::new(0);
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            let _noted = Noted(&dropped);
            let mut values = [3, 2, 1];
            sort(s, &mut values);
        });
        c.resume(()).unwrap();
        c.resume(()).unwrap();
        drop(c);
        assert_eq!(dropped.get(), 1);
    });
}

// contract: C5
#[test]
fn a_done_one_gives_the_value_back() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |_: &Suspender<String, ()>, first: String| first);
        assert_eq!(c.resume("x".into()).unwrap().done().unwrap(), "x");
        let error = c.resume("back".into()).unwrap_err();
        assert!(matches!(error, ResumeError::State(_)), "{error}");
        assert_eq!(error.into_value(), "back");
        assert_eq!(c.outcome(), Some(Outcome::Returned));
    });
}

// contract: C5
#[test]
fn a_suspender_works_only_on_its_own_stack() {
    anchor(|a| {
        let mut outer = Coroutine::new(a, |outer: &Suspender<(), &str>, ()| {
            let refused = anchor(|b| {
                let mut inner = Coroutine::new(b, |inner: &Suspender<(), ()>, ()| {
                    let refused = match outer.suspend("wrong") {
                        Err(SuspendError::State(value)) => value,
                        _ => "not refused",
                    };
                    inner.suspend(()).unwrap();
                    refused
                });
                inner.resume(()).unwrap();
                outer.suspend("right").unwrap();
                inner.resume(()).unwrap().done().unwrap()
            });
            assert_eq!(refused, "wrong");
        });
        assert_eq!(outer.resume(()).unwrap(), Step::Suspended("right"));
        assert_eq!(outer.resume(()).unwrap(), Step::Done(()));
    });
}

// contract: C6
#[test]
fn try_destroy_takes_ready_and_done_and_leaves_the_others_alone() {
    let dropped = Cell::new(0);
    anchor(|a| {
        let noted = Noted(&dropped);
        let ready = Coroutine::new(a, move |_: &Suspender<(), ()>, ()| drop(noted));
        ready.try_destroy().unwrap();
        assert_eq!(dropped.get(), 1, "the closure goes unrun");
        let noted = Noted(&dropped);
        let ready = Coroutine::new(a, move |_: &Suspender<(), ()>, ()| {
            let _noted = noted;
            unreachable!("it never starts")
        });
        drop::<Coroutine<'_, _, _, ()>>(ready);
        assert_eq!(dropped.get(), 2, "so it does in a drop");

        let mut c = Coroutine::new(a, |s: &Suspender<i32, i32>, n| s.suspend(n).unwrap());
        c.resume(1).unwrap();
        let mut c = c.try_destroy().unwrap_err();
        assert_eq!(c.resume(2).unwrap(), Step::Done(2));
        c.try_destroy().unwrap();
    });
}

// contract: C6
#[test]
fn dropping_a_suspended_one_runs_every_destructor_once() {
    let dropped = Cell::new(0);
    let after = Cell::new(false);
    let stopping = Cell::new(false);
    struct Asks<'s>(&'s Suspender<(), ()>, &'s Cell<bool>);
    impl Drop for Asks<'_> {
        fn drop(&mut self) {
            self.1.set(self.0.stopping());
            assert!(matches!(self.0.suspend(()), Err(SuspendError::State(()))));
        }
    }
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            let _one = Noted(&dropped);
            let _asks = Asks(s, &stopping);
            let _all: Vec<Noted<'_>> = (0..10).map(|_| Noted(&dropped)).collect();
            s.suspend(()).unwrap();
            after.set(true);
        });
        c.resume(()).unwrap();
        drop(c);
        assert_eq!(dropped.get(), 11);
        assert!(!after.get());
        assert!(stopping.get(), "the cancel request is seen while unwinding");
    });
    assert_eq!(dropped.get(), 11);
}

// contract: C6
#[test]
fn a_body_that_swallows_a_few_unwinds_still_ends() {
    let tries = Cell::new(0);
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            for _ in 0..10 {
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    tries.set(tries.get() + 1);
                    s.suspend(())
                }));
            }
        });
        c.resume(()).unwrap();
        drop(c);
    });
    assert_eq!(tries.get(), 10);
}

// contract: C7, C8
#[test]
fn a_cancel_becomes_the_outcome_only_when_confirmed() {
    anchor(|a| {
        let body = |confirm: bool| {
            move |s: &Suspender<i32, ()>, _: i32| {
                assert!(s.confirm_cancel().is_err(), "nothing was requested");
                assert!(!s.stopping());
                let came = match s.suspend(()) {
                    Err(SuspendError::Cancelled(value)) => value,
                    other => panic!("not cancelled: {other:?}"),
                };
                assert!(s.stopping());
                if confirm {
                    s.confirm_cancel().unwrap();
                }
                came
            }
        };
        for (confirm, outcome) in [(false, Outcome::Returned), (true, Outcome::Cancelled)] {
            let mut c = Coroutine::new(a, body(confirm));
            c.resume(0).unwrap();
            c.cancel();
            assert_eq!(c.state(), State::Suspended);
            assert_eq!(c.resume(5).unwrap(), Step::Done(5));
            assert_eq!(c.outcome(), Some(outcome));
        }
    });
}

// contract: C10
#[test]
fn one_cancelled_before_it_ran_never_runs() {
    let dropped = Cell::new(0);
    let ran = Cell::new(false);
    anchor(|a| {
        let noted = Noted(&dropped);
        let mut c = Coroutine::new(a, |_: &Suspender<i32, ()>, _| {
            let _noted = noted;
            ran.set(true);
        });
        c.cancel();
        assert_eq!((c.state(), dropped.get()), (State::Ready, 0));
        let error = c.resume(5).unwrap_err();
        assert!(matches!(error, ResumeError::Cancelled(5)));
        assert_eq!((c.state(), dropped.get()), (State::Done, 1));
        assert_eq!(c.outcome(), Some(Outcome::Cancelled));
        assert!(matches!(c.resume(6), Err(ResumeError::State(6))));
    });
    assert!(!ran.get());
}

// contract: C10
#[test]
fn after_a_request_every_suspend_reports_it() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<i32, i32>, _| {
            let mut refused = Vec::new();
            for n in 0..3 {
                if let Err(SuspendError::Cancelled(value)) = s.suspend(n) {
                    refused.push(value);
                }
            }
            refused
        });
        assert_eq!(c.resume(0).unwrap(), Step::Suspended(0));
        c.cancel();
        assert_eq!(c.resume(10).unwrap(), Step::Suspended(1));
        assert_eq!(c.resume(11).unwrap(), Step::Suspended(2));
        assert_eq!(c.resume(12).unwrap(), Step::Done(vec![10, 11, 12]));
    });
}

// contract: C25, C7
#[test]
fn a_panic_reaches_whoever_resumes() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            s.suspend(()).unwrap();
            panic!("inside");
        });
        c.resume(()).unwrap();
        let payload = catch_unwind(AssertUnwindSafe(|| c.resume(()))).unwrap_err();
        assert_eq!(text(&*payload), "inside");
        assert_eq!(c.state(), State::Done);
        assert_eq!(c.outcome(), Some(Outcome::Error));
        assert!(matches!(c.resume(()), Err(ResumeError::State(()))));
    });
}

// contract: C25
#[test]
fn a_panic_passes_through_nested_ones() {
    let dropped = Cell::new(0);
    let payload = catch_unwind(AssertUnwindSafe(|| {
        anchor(|a| {
            let mut outer = Coroutine::new(a, |_: &Suspender<(), ()>, ()| {
                let _noted = Noted(&dropped);
                anchor(|b| {
                    let mut inner = Coroutine::new(b, |_: &Suspender<(), ()>, ()| {
                        let _noted = Noted(&dropped);
                        panic!("deep");
                    });
                    let _: Step<(), ()> = inner.resume(()).unwrap();
                });
            });
            let _: Step<(), ()> = outer.resume(()).unwrap();
        });
    }))
    .unwrap_err();
    assert_eq!(text(&*payload), "deep");
    assert_eq!(dropped.get(), 2);
    assert!(!std::thread::panicking());
}

// contract: C25
#[test]
fn a_backtrace_continues_in_the_one_who_resumes() {
    #[inline(never)]
    fn the_one_who_resumes<'a>(c: &mut Coroutine<'a, (), (), String>) -> String {
        c.resume(()).unwrap().done().unwrap()
    }
    anchor(|a| {
        let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| {
            std::backtrace::Backtrace::force_capture().to_string()
        });
        let trace = the_one_who_resumes(&mut c);
        assert!(trace.contains("the_one_who_resumes"), "{trace}");
    });
}

// contract: C27
#[test]
fn a_generator_is_an_iterator() {
    fn walk(y: &Yielder<'_, u32>, depth: u32) {
        if depth > 0 {
            walk(y, depth - 1);
            y.suspend(depth).unwrap();
            walk(y, depth - 1);
        }
    }
    let dropped = Cell::new(0);
    anchor(|a| {
        let mut generator = Generator::new(a, |y| {
            let _noted = Noted(&dropped);
            walk(y, 3);
        });
        let order: Vec<u32> = generator.by_ref().collect();
        assert_eq!(order, [1, 2, 1, 3, 1, 2, 1]);
        assert_eq!(generator.next(), None);
        assert_eq!(dropped.get(), 1);

        let endless = Generator::new(a, |y| {
            let _noted = Noted(&dropped);
            for n in 0.. {
                y.suspend(n).unwrap();
            }
        });
        assert_eq!(endless.skip(1).step_by(2).take(3).sum::<i32>(), 1 + 3 + 5);
        assert_eq!(dropped.get(), 2, "the rest is unwound");
    });
}

#[test]
fn ones_with_names_and_sizes() {
    anchor(|a| {
        let mut c = Coroutine::builder(a)
            .name("worker")
            .stack_size(1 << 20)
            .guard_size(64 << 10)
            .build(|_: &Suspender<(), ()>, ()| {
                let room = std::hint::black_box([1_u8; 300 << 10]);
                room.iter().map(|byte| usize::from(*byte)).sum::<usize>()
            })
            .unwrap();
        assert_eq!(c.name(), Some("worker"));
        assert_ne!(c.id(), 0);
        assert!(format!("{c:?}").contains("worker"));
        assert_eq!(c.resume(()).unwrap(), Step::Done(300 << 10));

        let kept = Rc::new(());
        let in_body = kept.clone();
        let error = Coroutine::builder(a)
            .stack_size(1)
            .build(move |_: &Suspender<(), ()>, ()| drop(in_body))
            .unwrap_err();
        assert!(error.is_invalid());
        assert_eq!(Rc::strong_count(&kept), 2);
        drop(error.into_inner());
        assert_eq!(Rc::strong_count(&kept), 1);
    });
}

#[test]
fn what_is_held_across_suspends_behaves_as_in_a_thread() {
    thread_local! {
        static SHARED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    }
    anchor(|a| {
        let body = |number: u32| {
            move |s: &Suspender<(), ()>, ()| {
                SHARED.with(|shared| {
                    let mut shared = shared.borrow_mut();
                    shared.push(number);
                    s.suspend(()).unwrap();
                });
            }
        };
        let mut first = Coroutine::new(a, body(1));
        let mut second = Coroutine::new(a, body(2));
        first.resume(()).unwrap();
        let payload = catch_unwind(AssertUnwindSafe(|| second.resume(()))).unwrap_err();
        assert!(text(&*payload).contains("borrow"), "{}", text(&*payload));
        assert_eq!(second.outcome(), Some(Outcome::Error));
        assert_eq!(first.resume(()).unwrap(), Step::Done(()));
        SHARED.with(|shared| assert_eq!(*shared.borrow(), [1]));
    });
}

#[test]
fn a_generator_can_be_driven_by_a_destructor_that_a_panic_runs() {
    struct Drives<'a>(Option<Generator<'a, u32>>, &'a Cell<u32>);
    impl Drop for Drives<'_> {
        fn drop(&mut self) {
            if let Some(generator) = self.0.take() {
                self.1.set(generator.take(3).sum());
            }
        }
    }
    let sum = Cell::new(0);
    let dropped = Cell::new(0);
    let payload = catch_unwind(AssertUnwindSafe(|| {
        anchor(|a| {
            let generator = Generator::new(a, |y| {
                let _noted = Noted(&dropped);
                for n in 1.. {
                    y.suspend(n).unwrap();
                }
            });
            let _drives = Drives(Some(generator), &sum);
            panic!("outer");
        });
    }))
    .unwrap_err();
    assert_eq!(text(&*payload), "outer");
    assert_eq!((sum.get(), dropped.get()), (6, 1));
    assert!(!std::thread::panicking());
}
