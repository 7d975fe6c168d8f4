//! Coroutines without an anchor, kept where no closure can be put around; and the free `suspend`, which finds the innermost.
#![allow(
    unsafe_code,
    reason = "makes unanchored coroutines and calls back through C"
)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use sinew::coroutine::{
    self, Anchor, Coroutine, Generator, ResumeError, State, Step, SuspendError, Suspender, anchor,
};
use sinew::{CancelToken, Outcome};

type Ticker = Coroutine<'static, (), u32, ()>;

/// Counts how often it was dropped.
struct Noted(Rc<Cell<u32>>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

fn ticker(dropped: &Rc<Cell<u32>>) -> Ticker {
    let noted = Noted(dropped.clone());
    // SAFETY: the tests drop what they make before their threads end.
    unsafe {
        Coroutine::new_unanchored(move |s: &Suspender<(), u32>, ()| {
            let _noted = noted;
            assert!(matches!(sinew::try_run(|| ()), Err(sinew::RunError::State)));
            for n in 0.. {
                s.suspend(n).unwrap();
            }
        })
    }
}

// contract: C2, C5, C6
#[test]
fn one_without_an_anchor_lives_as_long_as_its_handle() {
    let dropped = Rc::new(Cell::new(0));
    let mut kept: VecDeque<Ticker> = VecDeque::new();
    for _ in 0..3 {
        kept.push_back(ticker(&dropped));
    }
    for round in 0..5 {
        for one in &mut kept {
            assert_eq!(one.resume(()).unwrap(), Step::Suspended(round));
        }
    }
    let first = kept.pop_front().unwrap().try_destroy().unwrap_err();
    assert_eq!((first.state(), dropped.get()), (State::Suspended, 0));
    drop(first);
    assert_eq!(dropped.get(), 1, "unwound");
    drop(kept);
    assert_eq!(dropped.get(), 3);
    drop(ticker(&dropped));
    assert_eq!(dropped.get(), 4, "its closure was dropped unrun");
    ticker(&dropped).try_destroy().unwrap();
    assert_eq!(dropped.get(), 5);
}

// contract: C6
#[test]
fn one_in_a_thread_local_is_unwound_when_its_thread_ends() {
    thread_local! {
        static KEPT: RefCell<Option<Ticker>> = const { RefCell::new(None) };
    }
    struct Tells(std::sync::mpsc::Sender<&'static str>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send("unwound").unwrap();
        }
    }
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // SAFETY: it borrows nothing, and is dropped with the thread-local.
        let mut one = unsafe {
            Coroutine::new_unanchored(move |s: &Suspender<(), u32>, ()| {
                let _tells = Tells(tell);
                s.suspend(1).unwrap();
            })
        };
        one.resume(()).unwrap();
        KEPT.set(Some(one));
    })
    .join()
    .unwrap();
    assert_eq!(told.recv(), Ok("unwound"));
}

// contract: C7, C25
#[test]
fn its_panic_reaches_the_resumer_and_one_of_its_end_nobody() {
    // SAFETY: dropped below.
    let mut loud = unsafe {
        Coroutine::new_unanchored(|_: &Suspender<(), ()>, ()| std::panic::panic_any("loud"))
    };
    let payload = catch_unwind(AssertUnwindSafe(|| {
        let _: Step<(), ()> = loud.resume(()).unwrap();
    }))
    .unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"loud"));
    assert_eq!(loud.outcome(), Some(Outcome::Error));
    // SAFETY: dropped below.
    let mut insulted = unsafe {
        Coroutine::new_unanchored(|s: &Suspender<(), ()>, ()| {
            let caught = catch_unwind(AssertUnwindSafe(|| s.suspend(())));
            assert!(caught.is_err());
            std::panic::panic_any("while being ended");
        })
    };
    let _: Step<(), ()> = insulted.resume(()).unwrap();
    drop(insulted);
    drop(loud);
    assert!(!std::thread::panicking());
}

#[test]
fn it_crosses_anchors_and_schedulers() {
    let dropped = Rc::new(Cell::new(0));
    let mut outer = ticker(&dropped);
    assert_eq!(outer.resume(()).unwrap(), Step::Suspended(0));
    let made = anchor(|a| {
        let mut inside = Coroutine::new(a, |_: &Suspender<(), ()>, ()| {
            assert_eq!(outer.resume(()).unwrap(), Step::Suspended(1));
            let mut made = ticker(&dropped);
            made.resume(()).unwrap();
            made
        });
        inside.resume(()).unwrap().done().unwrap()
    });
    let mut made = Some(made);
    let (mut outer, mut made) = sinew::run(move || {
        assert_eq!(outer.resume(()).unwrap(), Step::Suspended(2));
        let mut made = made.take().unwrap();
        assert_eq!(made.resume(()).unwrap(), Step::Suspended(1));
        (outer, made)
    });
    assert_eq!(outer.resume(()).unwrap(), Step::Suspended(3));
    assert_eq!(made.resume(()).unwrap(), Step::Suspended(2));
    drop((outer, made));
    assert_eq!(dropped.get(), 2);
}

// contract: C18
#[test]
fn the_signal_stack_outlives_an_anchor_around_the_first_one() {
    fn signal_stack_bytes() -> usize {
        let mut now = libc::stack_t {
            ss_sp: std::ptr::null_mut(),
            ss_flags: 0,
            ss_size: 0,
        };
        // SAFETY: fills a local.
        assert_eq!(unsafe { libc::sigaltstack(std::ptr::null(), &mut now) }, 0);
        if now.ss_flags & libc::SS_DISABLE == 0 {
            now.ss_size
        } else {
            0
        }
    }
    std::thread::spawn(|| {
        let before = signal_stack_bytes();
        let dropped = Rc::new(Cell::new(0));
        let mut one = anchor(|_| ticker(&dropped));
        one.resume(()).unwrap();
        assert!(signal_stack_bytes() >= 64 << 10, "enough for a report");
        drop(one);
        let after = signal_stack_bytes();
        assert!(
            after == before || after >= 64 << 10,
            "{before} before, {after} after"
        );
    })
    .join()
    .unwrap();
}

#[test]
fn the_builder_makes_them_too() {
    let parent = CancelToken::new();
    // SAFETY: dropped at the end of the test.
    let builder = unsafe { Coroutine::<u32, u32, u32>::builder_unanchored() };
    let mut one = builder
        .name("loose")
        .stack_size(64 << 10)
        .cancel_parent(&parent)
        .build(|s, first| match s.suspend(first + 1) {
            Err(SuspendError::Cancelled(value)) => value,
            other => panic!("{other:?}"),
        })
        .unwrap();
    assert_eq!(one.name(), Some("loose"));
    assert_eq!(one.resume(1).unwrap(), Step::Suspended(2));
    parent.cancel("enough");
    assert_eq!(one.resume(9).unwrap(), Step::Done(9));
    // SAFETY: nothing is made.
    let builder = unsafe { Coroutine::<u32, u32, u32>::builder_unanchored() };
    let refused = builder.stack_size(1).build(|_, first| first).unwrap_err();
    assert!(refused.is_invalid());
    assert_eq!(one.resume(1).unwrap_err().into_value(), 1);
}

trait Visitor {
    fn visit(&mut self, number: u32);
}

/// Knows of no suspender.
struct Deep;

impl Visitor for Deep {
    fn visit(&mut self, number: u32) {
        let came = coroutine::suspend::<String, u32>(number).unwrap();
        assert_eq!(came, number.to_string());
    }
}

fn walk(visitor: &mut dyn Visitor, depth: u32) {
    if depth > 0 {
        walk(visitor, depth - 1);
        visitor.visit(depth);
    }
}

// contract: C4
#[test]
fn the_free_one_suspends_through_trait_objects_and_recursion() {
    anchor(|a| {
        let mut c = Coroutine::builder(a)
            .published()
            .build(|_: &Suspender<String, u32>, _| walk(&mut Deep, 50))
            .unwrap();
        let mut came = String::new();
        for expected in 1..=50 {
            assert_eq!(c.resume(came).unwrap(), Step::Suspended(expected));
            came = expected.to_string();
        }
        assert_eq!(c.resume(came).unwrap(), Step::Done(()));
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

/// Suspends with the pair, and is told their order.
unsafe extern "C-unwind" fn ask(a: *const c_void, b: *const c_void) -> i32 {
    // SAFETY: qsort passes elements.
    let a = unsafe { *a.cast::<u32>() };
    // SAFETY: as above.
    let b = unsafe { *b.cast::<u32>() };
    coroutine::suspend::<i32, (u32, u32)>((a, b)).unwrap()
}

// contract: C4, C6
#[test]
fn the_free_one_suspends_in_a_foreign_callback() {
    let dropped = Rc::new(Cell::new(0));
    let sorting = |noted: Noted| {
        move |_: &Suspender<i32, (u32, u32)>, _: i32| {
            let _noted = noted;
            let mut values: Vec<u32> = (0..50).map(|n| n * 31 % 50).collect();
            // SAFETY: the slice is good, and the comparator compares its elements.
            unsafe { qsort(values.as_mut_ptr().cast(), values.len(), 4, ask) };
            values
        }
    };
    // SAFETY: ends below.
    let mut c = unsafe { Coroutine::new_unanchored(sorting(Noted(dropped.clone()))) };
    let mut order = 0;
    let sorted = loop {
        match c.resume(order).unwrap() {
            Step::Suspended((a, b)) => order = a.cmp(&b) as i32,
            Step::Done(sorted) => break sorted,
        }
    };
    assert!(sorted.iter().copied().eq(0..50));
    // SAFETY: dropped below.
    let mut c = unsafe { Coroutine::new_unanchored(sorting(Noted(dropped.clone()))) };
    c.resume(0).unwrap();
    drop(c);
    assert_eq!(dropped.get(), 2, "unwound through the sort");
}

/// What comes back of `out`, if it is refused.
fn refused<In: 'static, Out: 'static>(out: Out) -> Option<Out> {
    match coroutine::suspend::<In, Out>(out) {
        Err(SuspendError::State(out)) => Some(out),
        _ => None,
    }
}

// contract: C5
#[test]
fn the_free_one_gives_the_value_back_outside_and_to_other_types() {
    assert_eq!(refused::<(), u32>(7), Some(7), "on a plain thread");
    sinew::run(|| {
        let inside = sinew::spawn_local(|| refused::<(), u32>(7));
        assert_eq!(inside.join().unwrap(), Some(7), "in one of a scheduler");
    });
    anchor(|a| {
        let mut shy = Coroutine::new(a, |s: &Suspender<(), u32>, ()| {
            assert_eq!(refused::<(), u32>(7), Some(7), "not published");
            s.publish();
            assert_eq!(refused::<u8, u32>(7), Some(7), "another In");
            let owned = String::from("kept");
            assert_eq!(refused::<(), String>(owned).unwrap(), "kept");
            coroutine::suspend::<(), u32>(8).unwrap();
            anchor(|b| {
                let mut inner = Coroutine::new(b, |_: &Suspender<(), u32>, ()| {
                    // The innermost counts, though the one around it would do.
                    refused::<(), u32>(9)
                });
                assert_eq!(inner.resume(()).unwrap(), Step::Done(Some(9)));
                let mut inner = Generator::new(b, |y| {
                    assert_eq!(refused::<(), u32>(10), Some(10));
                    y.suspend(1_u32).unwrap();
                });
                assert_eq!(inner.next(), Some(1));
                // Back in the outer one.
                coroutine::suspend::<(), u32>(11).unwrap();
            });
        });
        assert_eq!(shy.resume(()).unwrap(), Step::Suspended(8));
        assert_eq!(shy.resume(()).unwrap(), Step::Suspended(11));
        assert_eq!(shy.resume(()).unwrap(), Step::Done(()));
    });
}

// contract: C5, C15
#[test]
fn the_free_one_is_refused_where_a_suspender_is() {
    /// Asks when it is dropped.
    struct Asks(Rc<Cell<u32>>);
    impl Drop for Asks {
        fn drop(&mut self) {
            if refused::<(), ()>(()).is_some() {
                self.0.set(self.0.get() + 1);
            }
        }
    }
    fn body(count: Rc<Cell<u32>>, panics: bool) -> impl FnOnce(&Suspender<(), ()>, ()) -> Asks {
        move |_, ()| {
            let on_return = Asks(count.clone());
            let deferred = Asks(count.clone());
            sinew::defer(move || drop(deferred));
            if panics {
                let _unwound = Asks(count);
                panic!("with destructors that ask");
            }
            coroutine::suspend::<(), ()>(()).unwrap();
            on_return
        }
    }
    let count = Rc::new(Cell::new(0));
    // SAFETY: they end below.
    let mut c = unsafe { Coroutine::new_unanchored(body(count.clone(), true)) };
    catch_unwind(AssertUnwindSafe(|| c.resume(()).map(drop))).unwrap_err();
    assert_eq!(count.take(), 3, "unwinding, and in a cleanup");
    // SAFETY: as above.
    let mut c = unsafe { Coroutine::new_unanchored(body(count.clone(), false)) };
    c.resume(()).unwrap();
    drop(c);
    assert_eq!(count.take(), 2, "while it is unwound by force");
    // SAFETY: as above.
    let mut c = unsafe { Coroutine::new_unanchored(body(count.clone(), false)) };
    c.resume(()).unwrap();
    let returned = c.resume(()).unwrap().done().unwrap();
    assert_eq!(count.take(), 1, "in a cleanup after the return");
    drop(returned);
    assert_eq!(count.take(), 1, "on the plain thread");
}

/// A cleanup that panics makes the returned value go on the coroutine's stack, after its body.
// contract: C5, C14
#[test]
fn nothing_suspends_after_the_bodys_end() {
    struct Asks(Rc<Cell<bool>>);
    impl Drop for Asks {
        fn drop(&mut self) {
            self.0.set(refused::<(), ()>(()).is_some());
        }
    }
    let seen = Rc::new(Cell::new(false));
    let asks = Asks(seen.clone());
    // SAFETY: it ends below.
    let mut c = unsafe {
        Coroutine::new_unanchored(move |_: &Suspender<(), ()>, ()| {
            sinew::defer(|| std::panic::panic_any("of a cleanup"));
            asks
        })
    };
    let payload = catch_unwind(AssertUnwindSafe(|| c.resume(()).map(drop))).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"of a cleanup"));
    assert!(seen.get());
    assert!(matches!(c.resume(()), Err(ResumeError::State(()))));
}

/// A view of the suspender with longer-lived types is still one of this coroutine.
#[test]
fn publishing_through_a_subtype_is_sound() {
    fn publish(s: &Suspender<(), &'static str>) {
        s.publish();
    }
    fn make<'a>(a: &'a Anchor<'a, '_>, own: &'a str) -> Coroutine<'a, (), &'a str, ()> {
        Coroutine::new(a, move |s: &Suspender<(), &'a str>, ()| {
            publish(s);
            s.suspend(own).unwrap();
            coroutine::suspend::<(), &'static str>("static").unwrap();
        })
    }
    let own = String::from("own");
    anchor(|a| {
        let mut c = make(a, &own);
        assert_eq!(c.resume(()).unwrap(), Step::Suspended("own"));
        assert_eq!(c.resume(()).unwrap(), Step::Suspended("static"));
    });
}

/// How large the calling thread's alternate signal stack is; 0 if it has none.
fn alternate_stack_bytes() -> usize {
    let mut now = std::mem::MaybeUninit::<libc::stack_t>::uninit();
    // SAFETY: only asks; writes one value.
    let status = unsafe { libc::sigaltstack(std::ptr::null(), now.as_mut_ptr()) };
    assert_eq!(status, 0);
    // SAFETY: written.
    let now = unsafe { now.assume_init() };
    if now.ss_flags & libc::SS_DISABLE == 0 {
        now.ss_size
    } else {
        0
    }
}

/// The signal stack of unanchored coroutines goes with the last of them, and a frame that was there meanwhile needs one still.
// contract: C18
#[test]
fn an_anchor_has_a_signal_stack_when_the_last_unanchored_one_is_gone() {
    const REPORT_BYTES: usize = 64 * 1024;
    let make = || {
        // SAFETY: dropped below, on this thread.
        unsafe { Coroutine::<(), (), ()>::new_unanchored(|_: &Suspender<(), ()>, ()| ()) }
    };
    let check = move || {
        let before = alternate_stack_bytes();
        let c = make();
        anchor(|_| {
            drop(c);
            assert!(alternate_stack_bytes() >= REPORT_BYTES);
        });
        let c = make();
        sinew::run(|| {
            drop(c);
            assert!(alternate_stack_bytes() >= REPORT_BYTES);
        });
        // In order nothing stays behind.
        let between = alternate_stack_bytes();
        drop(make());
        let c = make();
        anchor(|_| ());
        drop(c);
        assert_eq!(alternate_stack_bytes(), between);
        assert!(between >= before);
    };
    std::thread::spawn(check).join().unwrap();
}
