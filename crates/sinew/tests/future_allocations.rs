//! What a `block_on` and a wait by polling allocate. Each thread counts for itself, so that the test runner does not count.
#![expect(unsafe_code, reason = "a counting global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use sinew::event::Event;
use sinew::sync::channel::bounded;
use sinew::{block_on, run, spawn_local, yield_now};

/// Counts what is taken from the allocator.
struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes every call on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many allocations 1,000 calls of `f` make once everything is warm.
fn allocations_of(mut f: impl FnMut()) -> usize {
    for _ in 0..10 {
        f();
    }
    let before = CALLS.get();
    for _ in 0..1000 {
        f();
    }
    CALLS.get() - before
}

// contract: A2
#[test]
fn a_block_on_and_its_wakers_allocate_nothing() {
    let counted = run(|| {
        let given = Rc::new(Cell::new(None::<Waker>));
        let waking = given.clone();
        let waker_of = spawn_local(move || {
            while yield_now().is_ok() {
                if let Some(waker) = waking.take() {
                    waker.wake();
                }
            }
        });
        let counted = allocations_of(|| {
            let mut polls = 0;
            let future = poll_fn(|context| {
                polls += 1;
                if polls > 1 {
                    return Poll::Ready(());
                }
                drop(context.waker().clone());
                given.set(Some(context.waker().clone()));
                Poll::Pending
            });
            block_on(future).unwrap();
            assert_eq!(polls, 2);
        });
        waker_of.cancel("counted");
        waker_of.join().unwrap();
        counted
    });
    assert_eq!(counted, 0);
}

// contract: A2
#[test]
fn a_wait_by_polling_allocates_once_and_not_at_all_if_it_need_not_wait() {
    let (ready, waiting) = run(|| {
        let (sender, receiver) = bounded(1);
        let ready = allocations_of(|| {
            block_on(sender.send_async(1)).unwrap().unwrap();
            assert_eq!(block_on(receiver.recv_async()).unwrap(), Ok(1));
        });
        let event = Rc::new(Event::auto());
        let setting = event.clone();
        let setter = spawn_local(move || {
            while yield_now().is_ok() {
                setting.set();
            }
        });
        event.reset();
        let waiting = allocations_of(|| {
            block_on(event.wait_async()).unwrap();
            event.reset();
        });
        setter.cancel("counted");
        setter.join().unwrap();
        (ready, waiting)
    });
    assert_eq!(ready, 0);
    assert!(waiting <= 1000, "{waiting}");
}
