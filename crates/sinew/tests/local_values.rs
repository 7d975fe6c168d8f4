//! Coroutine-locals: who has which value, and how values go.
#![expect(
    unsafe_code,
    reason = "an initialiser reaches a suspender that it cannot be given"
)]

use std::cell::{Cell, OnceCell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::rc::Rc;
use std::time::Duration;

use sinew::coroutine::{Coroutine, Step, Suspender, anchor};
use sinew::{WaitError, coroutine_local, spawn_local, yield_now};

type Log = Rc<RefCell<Vec<String>>>;

/// Writes its name into the log when dropped, and does more if asked to.
struct Noted {
    name: &'static str,
    log: OnceCell<Log>,
    at_end: Cell<fn()>,
}

impl Noted {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            log: OnceCell::new(),
            at_end: Cell::new(|| {}),
        }
    }

    fn note_in(&self, log: &Log) {
        self.log.get_or_init(|| Rc::clone(log));
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(log) = self.log.get() {
            log.borrow_mut().push(self.name.to_owned());
        }
        (self.at_end.get())();
    }
}

coroutine_local! {
    static COUNT: Cell<u32> = Cell::new(10);
    static WORDS: RefCell<Vec<&'static str>> = RefCell::new(vec!["init"]);
    static FIRST: Noted = Noted::new("first");
    static SECOND: Noted = Noted::new("second");
    static OUTER: Noted = INNER.with(|_| Noted::new("outer"));
    static INNER: Noted = Noted::new("inner");
    static LOOP: u32 = LOOP.with(|value| value + 1);

    /// Attributes in any order.
    #[inherit]
    #[allow(dead_code, reason = "tests that attributes pass")]
    pub(crate) static REQUEST: Rc<Cell<u32>> = Rc::new(Cell::new(0))
}

// contract: S22
#[test]
fn each_coroutine_has_its_own_value_across_switches() {
    sinew::run(|| {
        let count = |step: u32| {
            move || {
                for _ in 0..5 {
                    COUNT.set(COUNT.get() + step);
                    yield_now().unwrap();
                }
                COUNT.get()
            }
        };
        let handles: Vec<_> = (0..4).map(|step| spawn_local(count(step))).collect();
        let ends: Vec<_> = handles
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .collect();
        assert_eq!(ends, [10, 15, 20, 25]);
        assert_eq!(COUNT.get(), 10);
    });
}

#[test]
fn cell_like_methods_act_as_those_of_thread_locals() {
    sinew::run(|| {
        assert_eq!(COUNT.replace(3), 10);
        assert_eq!((COUNT.take(), COUNT.get()), (3, 0));
        assert_eq!(WORDS.replace(vec!["new"]), ["init"]);
        WORDS.with_borrow_mut(|words| words.push("more"));
        assert_eq!(WORDS.with_borrow(Vec::len), 2);
        assert_eq!(WORDS.take(), ["new", "more"]);
        WORDS.set(vec!["set"]);
        assert_eq!(WORDS.take(), ["set"]);
    });
}

#[test]
fn a_set_before_the_first_use_skips_the_initialiser() {
    coroutine_local!(static NEVER: Cell<u8> = panic!("the initialiser ran"));
    let set = || {
        NEVER.set(4);
        NEVER.get()
    };
    assert_eq!(sinew::run(set), 4);
    assert_eq!(set(), 4);
}

// contract: S22
#[test]
fn values_are_destroyed_in_reverse_order_after_the_closures_own() {
    let log = Log::default();
    sinew::run(|| {
        let log_of_child = Rc::clone(&log);
        let child = spawn_local(move || {
            let own = Noted::new("of the closure");
            own.note_in(&log_of_child);
            for key in [&FIRST, &SECOND, &OUTER, &INNER] {
                key.with(|noted| noted.note_in(&log_of_child));
            }
        });
        child.join().unwrap();
        let expected = ["of the closure", "outer", "inner", "second", "first"];
        assert_eq!(*log.borrow(), expected);
    });
}

// contract: S22
#[test]
fn a_value_in_destruction_is_gone_and_earlier_ones_are_not() {
    thread_local!(static SEEN: Cell<(bool, u32, Option<WaitError>, Option<u32>)> = const { Cell::new((false, 0, None, None)) });
    sinew::run(|| {
        let child = spawn_local(|| {
            COUNT.set(1);
            SECOND.with(|noted| {
                noted.at_end.set(|| {
                    let gone = SECOND.try_with(|_| ()).is_err();
                    let wait = sinew::sleep(Duration::from_secs(3600)).err();
                    SEEN.set((
                        gone,
                        COUNT.get(),
                        wait,
                        Some(WORDS.with_borrow(|words| words.len() as u32)),
                    ));
                });
            });
        });
        child.join().unwrap();
        assert_eq!(SEEN.get(), (true, 1, Some(WaitError::State), Some(1)));
    });
}

// contract: S22
#[test]
fn a_destructors_panic_is_the_coroutines_unless_it_has_one() {
    let log = Log::default();
    sinew::run(|| {
        for (own, expected) in [(false, "second's"), (true, "own")] {
            let log_of_child = Rc::clone(&log);
            let child = spawn_local(move || {
                FIRST.with(|noted| noted.note_in(&log_of_child));
                FIRST.with(|noted| noted.at_end.set(|| panic!("first's")));
                SECOND.with(|noted| noted.at_end.set(|| panic!("second's")));
                assert!(!own, "own");
                7
            });
            let panic = child.join().unwrap_err().into_panic();
            assert_eq!(panic.downcast_ref::<&str>(), Some(&expected));
        }
        assert_eq!(*log.borrow(), ["first", "first"]);
    });
}

#[test]
fn what_the_result_of_a_detached_coroutine_makes_is_destroyed_too() {
    struct Late(Log);
    impl Drop for Late {
        fn drop(&mut self) {
            SECOND.with(|noted| noted.note_in(&self.0));
            self.0.borrow_mut().push("result".to_owned());
        }
    }
    let log = Log::default();
    sinew::run(|| {
        let result = Late(Rc::clone(&log));
        drop(spawn_local(move || result));
        while log.borrow().len() < 2 {
            yield_now().unwrap();
        }
    });
    assert_eq!(*log.borrow(), ["result", "second"]);
}

#[test]
fn a_cancelled_coroutine_that_unwinds_destroys_its_values() {
    let log = Log::default();
    let run = catch_unwind(AssertUnwindSafe(|| {
        sinew::run(|| {
            let log = Rc::clone(&log);
            sinew::go_local(move || {
                FIRST.with(|noted| {
                    noted.note_in(&log);
                    // Only the forced unwind ends this.
                    while sinew::park() != Ok(()) {}
                });
            });
            yield_now().unwrap();
            panic!("the end of all");
        });
    }));
    assert!(run.is_err());
    assert_eq!(*log.borrow(), ["first"]);
}

// contract: S22
#[test]
fn a_child_starts_with_a_clone_of_what_is_inherited() {
    sinew::run(|| {
        // Nothing to inherit yet: the child initialises its own.
        let child = spawn_local(|| REQUEST.with(|request| request.set(1)));
        child.join().unwrap();
        REQUEST.with(|request| assert_eq!(request.get(), 0));
        REQUEST.with(|request| request.set(5));
        COUNT.set(6);
        let child = spawn_local(|| {
            let grandchild = spawn_local(|| REQUEST.with(|request| request.replace(8)));
            (grandchild.join().unwrap(), COUNT.get())
        });
        // `Rc` clones share: what the clone is, is the type's affair.
        assert_eq!(child.join().unwrap(), (5, 10));
        REQUEST.with(|request| assert_eq!(request.get(), 8));
        sinew::scope(|scope| {
            scope.spawn(|| REQUEST.with(|request| assert_eq!(request.get(), 8)));
        });
    });
}

#[test]
fn an_inherited_value_goes_with_a_child_that_never_ran() {
    sinew::run(|| {
        let mine = REQUEST.with(Rc::clone);
        let child = spawn_local(|| ());
        assert_eq!(Rc::strong_count(&mine), 3);
        child.cancel("not wanted");
        assert!(child.join().unwrap_err().is_cancelled());
        assert_eq!(Rc::strong_count(&mine), 2);
    });
}

#[test]
fn a_clone_that_panics_fails_the_spawn_and_nothing_is_left() {
    struct Fragile;
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            assert_eq!(sinew::park(), Err(WaitError::State));
            panic!("not to be cloned")
        }
    }
    coroutine_local!(#[inherit] static FRAGILE: Fragile = Fragile);
    sinew::run(|| {
        FRAGILE.with(|_| ());
        let spawn = catch_unwind(|| drop(spawn_local(|| ())));
        assert_eq!(spawn.unwrap_err().downcast_ref(), Some(&"not to be cloned"));
        assert_eq!(sinew::park_timeout(Duration::ZERO), Err(WaitError::Timeout));
    });
}

#[test]
fn an_initialiser_that_uses_its_own_value_panics_and_may_be_tried_again() {
    let try_it = || {
        for _ in 0..2 {
            let panic = catch_unwind(|| LOOP.with(|_| ())).unwrap_err();
            let text = panic.downcast_ref::<String>().unwrap();
            assert!(
                text.contains("coroutine_local LOOP: its initialiser uses"),
                "{text}"
            );
        }
    };
    sinew::run(try_it);
    try_it();
}

#[test]
fn an_initialiser_may_wait_while_others_have_theirs() {
    coroutine_local!(static SLOW: u64 = { yield_now().unwrap(); sinew::current().map_or(0, |me| me.id()) });
    sinew::run(|| {
        let read = || (SLOW.with(|id| *id), sinew::current().map(|me| me.id()));
        let handles: Vec<_> = (0..3).map(|_| spawn_local(read)).collect();
        for handle in handles {
            let (local, own) = handle.join().unwrap();
            assert_eq!(Some(local), own);
        }
    });
}

// contract: S22
#[test]
fn on_a_plain_thread_it_is_a_thread_local() {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    static DROPS: AtomicU32 = AtomicU32::new(0);
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPS.fetch_add(1, SeqCst);
        }
    }
    coroutine_local!(static COUNTED: Counted = Counted);
    std::thread::spawn(|| {
        COUNT.set(77);
        COUNTED.with(|_| ());
        sinew::run(|| {
            assert_eq!(COUNT.get(), 10);
            COUNTED.with(|_| ());
        });
        assert_eq!(DROPS.load(SeqCst), 1);
        assert_eq!(COUNT.get(), 77);
    })
    .join()
    .unwrap();
    assert_eq!(DROPS.load(SeqCst), 2);
    assert_eq!(COUNT.get(), 10);
}

// A stand-alone coroutine that is suspended inside of `with` keeps the value, though its owner has ended.
#[test]
fn a_borrow_in_a_stand_alone_coroutine_outlasts_the_owner() {
    let log = Log::default();
    anchor(|a| {
        let log_inside = Rc::clone(&log);
        let mut reader = Coroutine::new(a, move |s: &Suspender<(), ()>, ()| {
            SECOND.with(|noted| {
                noted.note_in(&log_inside);
                s.suspend(()).unwrap();
                assert_eq!(noted.name, "second");
                log_inside.borrow_mut().push("read".to_owned());
            });
        });
        sinew::run(|| {
            assert_eq!(reader.resume(()).unwrap(), Step::Suspended(()));
            assert!(SECOND.with(|noted| noted.log.get().is_some()), "shared");
        });
        assert!(log.borrow().is_empty());
        assert_eq!(reader.resume(()).unwrap(), Step::Done(()));
    });
    assert_eq!(*log.borrow(), ["read", "second"]);
}

// The same, suspended in the initialiser: the value comes too late to be anybody's.
#[test]
fn an_initialiser_that_ends_after_its_coroutine_makes_nothing() {
    thread_local! {
        static SUSPENDER: Cell<Option<NonNull<Suspender<(), ()>>>> = const { Cell::new(None) };
        static DROPS: Cell<u32> = const { Cell::new(0) };
    }
    struct Half;
    impl Drop for Half {
        fn drop(&mut self) {
            DROPS.set(DROPS.get() + 1);
        }
    }
    coroutine_local!(static HALF: Half = {
        // SAFETY: set by the only body that uses this, whose suspender it is.
        let suspender = unsafe { SUSPENDER.take().unwrap().as_ref() };
        suspender.suspend(()).unwrap();
        Half
    });
    anchor(|a| {
        let mut maker = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            SUSPENDER.set(Some(NonNull::from(s)));
            HALF.try_with(|_| ()).is_err()
        });
        sinew::run(|| assert_eq!(maker.resume(()).unwrap(), Step::Suspended(())));
        assert_eq!(maker.resume(()).unwrap(), Step::Done(true));
    });
    assert_eq!(DROPS.get(), 1);
}
