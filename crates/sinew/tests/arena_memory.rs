//! The arena: memory of a coroutine's own, freed whole at its end. Alone in its file: it has an allocator of its own.
#![expect(unsafe_code, reason = "a C callback and cleanup nodes")]

mod memory_rig;

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use memory_rig::{calls, live_bytes, process_bytes};
use sinew::coroutine::cleanup::{self, Node, pop, push};
use sinew::coroutine::{Coroutine, Step, Suspender, anchor, arena, error};
use sinew::{Error, ErrorKind, defer, run, spawn_local, yield_now};

/// The tests of this file run one after another.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

// contract: C12
#[test]
fn values_of_all_kinds_live_in_it() {
    let _alone = alone();
    let check = || {
        arena::with(|a| {
            let number = a.alloc(5_u64);
            let text = a.alloc_str("text");
            let copied = a.alloc_slice_copy(&[1, 2, 3]);
            let made = a.alloc_slice_fill_with(4, |index| index * index);
            *number += 1;
            text.make_ascii_uppercase();
            copied[0] = 9;
            // A value that borrows from the arena, in the arena.
            let pair = a.alloc((&*text, &*copied));
            assert_eq!(
                (*number, pair.0, pair.1, &*made),
                (6, "TEXT", &[9, 2, 3][..], &[0, 1, 4, 9][..])
            );
            assert!(a.allocated_bytes() > 0);
            arena::with(|same| assert!(ptr::eq(a, same)));
        });
    };
    check();
    run(check);
    anchor(|a| {
        let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| check());
        c.resume(()).unwrap();
    });
}

// contract: C12
#[test]
fn each_has_its_own_and_references_live_across_suspends() {
    let _alone = alone();
    run(|| {
        let handles: Vec<_> = (0..10_u64)
            .map(|number| {
                spawn_local(move || {
                    arena::with(|a| {
                        assert_eq!(a.allocated_bytes(), 0, "another one's arena");
                        let numbers =
                            a.alloc_slice_fill_with(100, |index| number * 1000 + index as u64);
                        for _ in 0..10 {
                            yield_now().unwrap();
                            a.alloc(number);
                        }
                        numbers
                            .iter()
                            .enumerate()
                            .all(|(index, n)| *n == number * 1000 + index as u64)
                    })
                })
            })
            .collect();
        for handle in handles {
            assert!(handle.join().unwrap());
        }
        arena::with(|outer| {
            let value = outer.alloc(1);
            anchor(|a| {
                let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
                    arena::with(|inner| {
                        assert!(!ptr::eq(inner, outer));
                        // It may use the other's too, which lives longer.
                        let borrowed = outer.alloc(2);
                        s.suspend(()).unwrap();
                        *value += *borrowed + *inner.alloc(3);
                    });
                });
                c.resume(()).unwrap();
                c.resume(()).unwrap();
            });
            assert_eq!(*value, 6);
        });
    });
}

// contract: C12
#[test]
fn nothing_is_allocated_before_the_first_use() {
    let _alone = alone();
    run(|| {
        let before = calls();
        arena::with(|a| assert_eq!(a.allocated_bytes(), 0));
        assert_eq!(calls(), before);
        arena::with(|a| *black_box(a.alloc(1_u8)));
        assert_eq!(calls(), before + 1);
        arena::with(|a| *black_box(a.alloc(1_u8)));
        assert_eq!(
            calls(),
            before + 1,
            "the arena's memory was not used further"
        );
    });
}

/// Runs `f` often, and says how much memory more is in use, by `count`, after the later rounds than after the first.
fn growth(count: impl Fn() -> isize, mut f: impl FnMut()) -> isize {
    for _ in 0..20 {
        f();
    }
    let before = count();
    for _ in 0..1000 {
        f();
    }
    count() - before
}

fn use_everything() {
    arena::with(|a| {
        a.alloc_slice_fill_with(10_000, |_| 0_u8);
        a.keep(vec![0_u8; 1000]);
    });
    error::set(Error::caused_by(
        ErrorKind::Io,
        "text".repeat(10),
        std::io::Error::other("cause"),
    ));
    error::with_context(|| "context".repeat(10));
}

// contract: C12, C13, C14
#[test]
fn nothing_is_left_by_coroutines_that_ended() {
    let _alone = alone();
    let grown = growth(live_bytes, || {
        run(|| {
            for panics in [false, true] {
                let handle = spawn_local(move || {
                    use_everything();
                    let held = vec![0_u8; 1000];
                    defer(move || drop(held));
                    if panics {
                        resume_unwind(Box::new(()));
                    }
                });
                assert!(handle.join().is_err());
            }
        });
    });
    assert_eq!(grown, 0, "something is left of 1000 rounds");
    let grown = growth(live_bytes, || {
        anchor(|a| {
            for ends in [false, true] {
                let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
                    use_everything();
                    let held = vec![0_u8; 1000];
                    defer(move || drop(held));
                    let _ = s.suspend(());
                });
                c.resume(()).unwrap();
                if ends {
                    assert_eq!(c.resume(()).unwrap(), Step::Done(()));
                }
            }
        });
    });
    assert_eq!(grown, 0);
    // A plain thread's is freed when the outermost `with` returns.
    let grown = growth(live_bytes, || {
        use_everything();
        drop(error::take());
    });
    assert_eq!(grown, 0);
    // And when the thread ends.
    let grown = growth(process_bytes, || {
        std::thread::spawn(use_everything).join().unwrap()
    });
    assert!(grown.abs() < 4096, "{grown} bytes are left of 1000 threads");
}

/// Says in a list that it was dropped.
struct Kept(Rc<RefCell<Vec<u32>>>, u32);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.borrow_mut().push(self.1);
    }
}

// contract: C12, C14
#[test]
fn kept_values_are_dropped_at_the_end_in_one_order_with_what_is_deferred() {
    let _alone = alone();
    let list = Rc::new(RefCell::new(Vec::new()));
    let inner = Rc::clone(&list);
    run(move || {
        arena::with(|a| {
            a.keep(Kept(Rc::clone(&inner), 1));
            let deferred = Rc::clone(&inner);
            defer(move || {
                deferred.borrow_mut().push(2);
                // In a cleanup the arena can be used, and what is kept there is dropped next.
                arena::with(|a| a.keep(Kept(deferred, 3)).1);
            });
            let kept = a.keep(Kept(Rc::clone(&inner), 4));
            kept.1 += 1;
            yield_now().unwrap();
        });
        assert!(inner.borrow().is_empty());
    });
    assert_eq!(list.take(), [5, 2, 3, 1]);
    // On a plain thread: when the outermost `with` returns, or unwinds.
    arena::with(|a| {
        arena::with(|a| a.keep(Kept(Rc::clone(&list), 1)).1);
        assert!(list.borrow().is_empty());
        a.keep(Kept(Rc::clone(&list), 2));
    });
    assert_eq!(list.take(), [2, 1]);
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        arena::with(|a| {
            a.keep(Kept(Rc::clone(&list), 3));
            resume_unwind(Box::new("body"));
        })
    }));
    assert_eq!(*unwound.unwrap_err().downcast::<&str>().unwrap(), "body");
    assert_eq!(list.take(), [3]);
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        resume_unwind(Box::new("the drop"));
    }
}

// contract: C12, C14
#[test]
fn a_kept_value_whose_drop_panics_is_as_a_cleanup_that_panics() {
    let _alone = alone();
    let list = Rc::new(RefCell::new(Vec::new()));
    let inner = Rc::clone(&list);
    let payload = run(move || {
        let handle = spawn_local(move || {
            arena::with(|a| {
                a.keep(Kept(inner, 1));
                a.keep(Bomb);
            });
        });
        handle.join().unwrap_err().into_panic()
    });
    assert_eq!(*payload.downcast::<&str>().unwrap(), "the drop");
    assert_eq!(list.take(), [1]);
    let payload = catch_unwind(AssertUnwindSafe(|| {
        arena::with(|a| {
            a.keep(Kept(Rc::clone(&list), 1));
            a.keep(Bomb);
        });
    }))
    .unwrap_err();
    assert_eq!(*payload.downcast::<&str>().unwrap(), "the drop");
    assert_eq!(list.take(), [1]);
}

thread_local! {
    /// Used by its destructor, which may run when the thread's arena and error context are gone.
    static LATE: Late = const { Late };
}

struct Late;

static LATE_DROPS: AtomicUsize = AtomicUsize::new(0);

impl Drop for Late {
    fn drop(&mut self) {
        use_everything();
        arena::with(|a| assert_eq!(*a.alloc(5), 5));
        drop(error::take());
        LATE_DROPS.fetch_add(1, Relaxed);
    }
}

// contract: C12, C13
#[test]
fn destructors_of_thread_locals_can_use_both_in_either_order() {
    let _alone = alone();
    let before = LATE_DROPS.load(Relaxed);
    std::thread::spawn(|| {
        LATE.with(|_| ());
        use_everything();
    })
    .join()
    .unwrap();
    std::thread::spawn(|| {
        use_everything();
        LATE.with(|_| ());
    })
    .join()
    .unwrap();
    assert_eq!(LATE_DROPS.load(Relaxed), before + 2);
}

// contract: C15
#[test]
fn pushing_popping_and_with_allocate_nothing() {
    unsafe extern "C-unwind" fn count(data: *mut c_void) {
        // SAFETY: the test below passes a counter that outlives the coroutine.
        let counter = unsafe { &*data.cast::<Cell<u32>>() };
        counter.set(counter.get() + 1);
    }
    let _alone = alone();
    let counter: &'static Cell<u32> = Box::leak(Box::default());
    let data = ptr::from_ref(counter).cast_mut().cast::<c_void>();
    let nodes: &'static [Node; 2] = Box::leak(Box::new([Node::INIT, Node::INIT]));
    run(|| {
        // The first thing that this coroutine does.
        let before = calls();
        // SAFETY: both live for ever.
        unsafe { push(NonNull::from(&nodes[0]), count, data) }.unwrap();
        // SAFETY: as above.
        unsafe { push(NonNull::from(&nodes[1]), count, data) }.unwrap();
        // SAFETY: it was pushed here.
        unsafe { pop(true) }.unwrap();
        cleanup::with(|| counter.set(counter.get() + 10), || ());
        assert_eq!(calls(), before);
    });
    assert_eq!(counter.get(), 12);
}
