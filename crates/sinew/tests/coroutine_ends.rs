//! How stand-alone coroutines end: values of every shape from coroutines of every kind, and what the next one finds in the memory of the last.
#![expect(
    unsafe_code,
    reason = "provides a stack, and makes coroutines without an anchor"
)]

use std::cell::{Cell, RefCell};
use std::fmt::Debug;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::ptr::NonNull;
use std::rc::Rc;

use sinew::coroutine::{Coroutine, State, Step, Suspender, anchor, defer, error};
use sinew::stack::Stack;
use sinew::{Error, ErrorKind, Outcome};

/// Counts its drops.
struct Counted(Rc<Cell<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Memory for a stack.
struct Memory(Box<[MaybeUninit<u8>]>);

// SAFETY: it stays in place while the box is moved; without a guard, and the bodies below need little.
unsafe impl Stack for Memory {
    fn base(&self) -> NonNull<u8> {
        NonNull::new(self.0.as_ptr_range().end.cast_mut().cast()).unwrap()
    }
    fn limit(&self) -> NonNull<u8> {
        NonNull::new(self.0.as_ptr().cast_mut().cast()).unwrap()
    }
    fn guard_bytes(&self) -> usize {
        0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Named,
    WithToken,
    WithFpEnv,
    Unpooled,
    OnProvided,
    Large,
    Deferring,
    Failing,
    Confirming,
}

const KINDS: [Kind; 10] = [
    Kind::Plain,
    Kind::Named,
    Kind::WithToken,
    Kind::WithFpEnv,
    Kind::Unpooled,
    Kind::OnProvided,
    Kind::Large,
    Kind::Deferring,
    Kind::Failing,
    Kind::Confirming,
];

/// Runs one of that kind to its end, by way of a suspend; its value goes through `In`, `Out` and `Ret`.
fn run<T: Clone + PartialEq + Debug>(kind: Kind, value: &T) {
    match kind {
        Kind::Large => run_with::<T, 300>(kind, value),
        _ => run_with::<T, 0>(kind, value),
    }
}

/// The same with so many bytes in its closure.
fn run_with<T: Clone + PartialEq + Debug, const BYTES: usize>(kind: Kind, value: &T) {
    let dropped = Rc::new(Cell::new(0));
    let deferred = Rc::new(Cell::new(0));
    anchor(|a| {
        let ballast = [7_u8; BYTES];
        let (counted, cleanup) = (Counted(dropped.clone()), Counted(deferred.clone()));
        let body = move |s: &Suspender<T, T>, first: T| {
            match kind {
                Kind::Deferring => defer(move || drop(cleanup)),
                Kind::Failing => error::set(Error::new(ErrorKind::Invalid, "left")),
                Kind::Large => {
                    assert!(std::hint::black_box(&ballast).iter().all(|byte| *byte == 7))
                }
                _ => {}
            }
            let second = match s.suspend(first) {
                Ok(second) => second,
                Err(error) => {
                    s.confirm_cancel().unwrap();
                    error.into_value().unwrap()
                }
            };
            drop(counted);
            second
        };
        let mut c = if kind == Kind::Plain {
            Coroutine::new(a, body)
        } else {
            let builder = Coroutine::builder(a);
            let builder = match kind {
                Kind::Named => builder.name("a name"),
                Kind::WithFpEnv => builder.fp_env(true),
                Kind::Unpooled => builder.pooled(false),
                Kind::OnProvided => builder
                    .stack(Memory(Box::new_uninit_slice(256 * 1024)))
                    .unwrap(),
                _ => builder,
            };
            builder.build(body).unwrap()
        };
        let token = (kind == Kind::WithToken).then(|| c.cancel_token());
        assert_eq!(
            c.resume(value.clone()).unwrap(),
            Step::Suspended(value.clone())
        );
        if kind == Kind::Confirming {
            c.cancel();
        }
        assert_eq!(c.resume(value.clone()).unwrap(), Step::Done(value.clone()));
        assert_eq!((c.state(), dropped.get()), (State::Done, 1));
        let outcome = match kind {
            Kind::Failing => Outcome::Error,
            Kind::Confirming => Outcome::Cancelled,
            _ => Outcome::Returned,
        };
        assert_eq!(c.outcome(), Some(outcome), "{kind:?}");
        assert_eq!(c.error().is_some(), kind == Kind::Failing);
        assert_eq!(c.name(), (kind == Kind::Named).then_some("a name"));
        assert!(!token.is_some_and(|token| token.is_cancelled()));
        let back = c.resume(value.clone()).unwrap_err();
        assert_eq!(back.into_value(), *value);
    });
    // Whoever does not defer it drops it with the closure.
    assert_eq!((dropped.get(), deferred.get()), (1, 1), "{kind:?}");
}

#[derive(Debug, Clone, PartialEq)]
#[repr(align(64))]
struct Aligned(u8);

// contract: C3, C5, C7
#[test]
fn values_of_every_shape_come_back_from_every_kind() {
    for kind in KINDS {
        run(kind, &());
        run(kind, &true);
        run(kind, &'x');
        run(kind, &[1_u8, 2, 3]);
        run(kind, &u64::MAX);
        run(kind, &(1_u8, 0x0203_0405_u32));
        run(kind, &Some(Box::new(5)));
        run(kind, &Rc::new(String::from("shared")));
        run(kind, &(1_u64, 2_u64));
        run(kind, &"a wide pointer");
        run(kind, &Ok::<u64, String>(3));
        run(kind, &u128::MAX);
        run(kind, &Aligned(9));
        run(kind, &[0x55_u8; 4096]);
    }
}

/// What one finds that is made in the memory of the last.
// contract: C2, C7, C9, C13
#[test]
fn the_next_one_finds_nothing_of_the_last() {
    anchor(|a| {
        let plain = |round: usize| {
            let mut c = Coroutine::new(a, |s: &Suspender<u64, u64>, first| {
                assert!(!s.stopping() && s.confirm_cancel().is_err());
                assert!(error::last().is_none());
                first + s.suspend(first).unwrap()
            });
            assert_eq!((c.state(), c.outcome()), (State::Ready, None), "{round}");
            assert!(c.error().is_none() && c.name().is_none());
            assert_eq!(c.resume(1).unwrap(), Step::Suspended(1));
            assert_eq!((c.state(), c.outcome()), (State::Suspended, None));
            assert_eq!(c.resume(2).unwrap(), Step::Done(3));
            assert_eq!(
                (c.state(), c.outcome()),
                (State::Done, Some(Outcome::Returned))
            );
            c
        };
        for round in 0..40 {
            let id = plain(round).id();
            match round % 8 {
                // Ended in its middle.
                0 => {
                    let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| drop(s.suspend(())));
                    assert_eq!(c.resume(()).unwrap(), Step::Suspended(()));
                }
                // Never run.
                1 => drop(Coroutine::new(a, |_: &Suspender<(), ()>, ()| ())),
                // A panic beside an error.
                2 => {
                    let mut c = Coroutine::new(a, move |_: &Suspender<(), ()>, ()| {
                        error::set(Error::new(ErrorKind::Invalid, "left"));
                        panic_any(round);
                    });
                    let caught = catch_unwind(AssertUnwindSafe(|| c.resume(()).is_ok()));
                    assert_eq!(*caught.unwrap_err().downcast::<usize>().unwrap(), round);
                    assert_eq!(
                        (c.state(), c.outcome()),
                        (State::Done, Some(Outcome::Error))
                    );
                    assert_eq!(c.error().unwrap().message(), "left");
                    assert!(c.resume(()).is_err());
                }
                // Cancelled, and stopping without a word.
                3 => {
                    let mut c =
                        Coroutine::new(a, |s: &Suspender<(), ()>, ()| s.suspend(()).is_err());
                    assert_eq!(c.resume(()).unwrap(), Step::Suspended(()));
                    c.cancel();
                    assert_eq!(c.resume(()).unwrap(), Step::Done(true));
                }
                // A token that is asked for when all is over.
                4 => {
                    let c = plain(round);
                    let token = c.cancel_token();
                    c.cancel();
                    assert!(!token.is_cancelled(), "it is over");
                    token.cancel("late");
                    assert_eq!(c.outcome(), Some(Outcome::Returned));
                }
                // Forgotten when it is Done, Ready or Suspended: the anchor's to free.
                5 => std::mem::forget(plain(round)),
                6 => std::mem::forget(Coroutine::new(a, |_: &Suspender<(), ()>, ()| ())),
                _ => {
                    let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| drop(s.suspend(())));
                    assert_eq!(c.resume(()).unwrap(), Step::Suspended(()));
                    std::mem::forget(c);
                }
            }
            assert!(plain(round).id() > id, "ids are not used again");
        }
    });
}

/// What a record may be made with, or leave, beside memory.
const NAMED: u32 = 1 << 0;
const WITH_TOKEN: u32 = 1 << 1;
const WITH_FP_ENV: u32 = 1 << 2;
const ON_PROVIDED: u32 = 1 << 3;
const DEFERRING: u32 = 1 << 4;
const FAILING: u32 = 1 << 5;
const ALL: u32 = (1 << 6) - 1;

/// How it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Returned,
    ReturnedAtOnce,
    Confirmed,
    Panicked,
    PanickedAtOnce,
    DroppedReady,
    DroppedSuspended,
    ForgottenReady,
    ForgottenSuspended,
    ForgottenDone,
}

const ENDS: [End; 10] = [
    End::Returned,
    End::ReturnedAtOnce,
    End::Confirmed,
    End::Panicked,
    End::PanickedAtOnce,
    End::DroppedReady,
    End::DroppedSuspended,
    End::ForgottenReady,
    End::ForgottenSuspended,
    End::ForgottenDone,
];

/// Ends one of a combination.
fn conclude<R>(mut c: Coroutine<'_, (), (), R>, set: u32, end: End, dropped: &Cell<u32>) {
    let at_once = matches!(end, End::ReturnedAtOnce | End::PanickedAtOnce);
    match end {
        End::DroppedReady => return,
        End::ForgottenReady => {
            std::mem::forget(c);
            return;
        }
        _ => {}
    }
    if !at_once {
        assert!(matches!(c.resume(()).unwrap(), Step::Suspended(())));
    }
    match end {
        End::DroppedSuspended => return,
        End::ForgottenSuspended => {
            std::mem::forget(c);
            return;
        }
        End::Confirmed => c.cancel(),
        _ => {}
    }
    let before = dropped.get();
    let ended = catch_unwind(AssertUnwindSafe(|| c.resume(()).unwrap()));
    match ended {
        Ok(Step::Done(value)) => {
            assert_eq!(dropped.get(), before, "the value has it");
            drop(value);
        }
        Ok(Step::Suspended(())) => panic!("{end:?} after one suspend"),
        Err(payload) => assert_eq!(payload.downcast_ref(), Some(&end)),
    }
    assert_eq!((c.state(), dropped.get()), (State::Done, before + 1));
    assert_eq!(c.error().is_some(), set & FAILING != 0);
    assert_eq!(c.name().is_some(), set & NAMED != 0);
    if end == End::ForgottenDone {
        std::mem::forget(c);
    }
}

/// Two of one combination, whose handles change places, end one in the memory of the other.
fn combine<R, const BYTES: usize>(set: u32, end: End, wrap: fn(Counted) -> R) {
    let dropped = Rc::new(Cell::new(0));
    let deferred = Rc::new(Cell::new(0));
    let at_once = matches!(end, End::ReturnedAtOnce | End::PanickedAtOnce);
    anchor(|a| {
        let make = || {
            let ballast = [7_u8; BYTES];
            let (counted, cleanup) = (Counted(dropped.clone()), Counted(deferred.clone()));
            let builder = Coroutine::builder(a).fp_env(set & WITH_FP_ENV != 0);
            let builder = match set & NAMED {
                0 => builder,
                _ => builder.name("a name"),
            };
            let builder = match set & ON_PROVIDED {
                0 => builder,
                _ => builder
                    .stack(Memory(Box::new_uninit_slice(256 * 1024)))
                    .unwrap(),
            };
            let body = move |s: &Suspender<(), ()>, ()| {
                assert!(std::hint::black_box(&ballast).iter().all(|byte| *byte == 7));
                if set & DEFERRING != 0 {
                    defer(move || drop(cleanup));
                }
                if set & FAILING != 0 {
                    error::set(Error::new(ErrorKind::Invalid, "left"));
                }
                if !at_once && s.suspend(()).is_err() {
                    s.confirm_cancel().unwrap();
                }
                if matches!(end, End::Panicked | End::PanickedAtOnce) {
                    resume_unwind(Box::new(end));
                }
                wrap(counted)
            };
            let c = builder.build(body).unwrap();
            let _token = (set & WITH_TOKEN != 0).then(|| c.cancel_token());
            c
        };
        let (mut one, mut other) = (make(), make());
        std::mem::swap(&mut one, &mut other);
        for c in [one, other] {
            conclude(c, set, end, &dropped);
        }
    });
    assert_eq!((dropped.get(), deferred.get()), (2, 2), "{set:#b} {end:?}");
}

// contract: C2, C7, C9
#[test]
fn whatever_is_combined_goes_once_in_every_way() {
    for set in 0..=ALL {
        for end in ENDS {
            combine::<_, 0>(set, end, |counted| counted);
            combine::<_, 0>(set, end, |counted| (counted, 1_u64));
            combine::<_, 300>(set, end, Some);
        }
    }
}

/// A body that cannot return ends all the same: by a panic, or by the drop of its handle.
// contract: C2
#[test]
fn a_body_without_a_value_ends() {
    enum Nothing {}
    anchor(|a| {
        let body = |s: &Suspender<bool, f64>, mut goes_on: bool| -> Nothing {
            while goes_on {
                goes_on = s.suspend(-0.5).unwrap();
            }
            resume_unwind(Box::new(7_u8));
        };
        let mut c = Coroutine::new(a, body);
        assert!(matches!(c.resume(true).unwrap(), Step::Suspended(-0.5)));
        let payload = catch_unwind(AssertUnwindSafe(|| c.resume(false).is_ok())).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&7_u8));
        let mut c = Coroutine::new(a, body);
        assert!(matches!(c.resume(true).unwrap(), Step::Suspended(-0.5)));
    });
}

type Unanchored = Coroutine<'static, (), (), ()>;

thread_local! {
    static LAST: RefCell<Option<Unanchored>> = const { RefCell::new(None) };
}

/// Drops the thread's last coroutine.
struct DropsLast;

impl Drop for DropsLast {
    fn drop(&mut self) {
        LAST.take();
    }
}

fn unanchored(body: impl FnOnce(&Suspender<(), ()>, ()) + 'static) -> Unanchored {
    // SAFETY: dropped by the test, on its thread.
    unsafe { Coroutine::new_unanchored(body) }
}

/// While a record goes, what goes with it drops the only other one of the thread: what keeps both is not to go before.
// contract: C6, C9
#[test]
fn the_last_two_without_an_anchor_go_in_one_another() {
    for is_ready in [true, false] {
        for by_token in [true, false] {
            let mut first = unanchored(move |_, ()| {
                if !by_token {
                    let source = Guarded { _guard: DropsLast };
                    error::set(Error::caused_by(ErrorKind::Invalid, "left", source));
                }
            });
            let mut last = unanchored(|s, ()| drop(s.suspend(())));
            if !is_ready {
                assert_eq!(last.resume(()).unwrap(), Step::Suspended(()));
            }
            LAST.set(Some(last));
            if by_token {
                let guard = DropsLast;
                let registration = first.cancel_token().on_cancel(move |_| {
                    let _guard = &guard;
                });
                registration.forget();
            }
            assert_eq!(first.resume(()).unwrap(), Step::Done(()));
            assert!(LAST.with_borrow(Option::is_some));
            drop(first);
            assert!(LAST.with_borrow(Option::is_none), "it went with the first");
            // There is a new keeper, which works.
            let mut next = unanchored(|_, ()| ());
            assert_eq!(next.resume(()).unwrap(), Step::Done(()));
        }
    }
}

/// An error with a destructor of its own.
struct Guarded {
    _guard: DropsLast,
}

impl Debug for Guarded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Guarded")
    }
}

impl std::fmt::Display for Guarded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("guarded")
    }
}

impl std::error::Error for Guarded {}
