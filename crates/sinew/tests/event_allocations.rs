//! Nothing is allocated by a wait for an event. Each thread counts for itself, so that the test runner does not count.
#![expect(unsafe_code, reason = "a counting global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use sinew::event::{Event, EventTable};
use sinew::{run, spawn_local, yield_now};

/// Counts what goes through the allocator.
struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    CALLS.set(CALLS.get() + 1);
}

// SAFETY: passes every call on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        count();
        // SAFETY: passed on.
        unsafe { System.realloc(pointer, layout, new) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many calls `f` makes once everything is warm.
fn calls_of(mut f: impl FnMut()) -> usize {
    for _ in 0..10 {
        f();
    }
    let before = CALLS.get();
    for _ in 0..1000 {
        f();
    }
    CALLS.get() - before
}

// contract: E4
#[test]
fn waiting_for_events_allocates_nothing() {
    let events = Rc::new([Event::auto(), Event::auto(), Event::manual()]);
    let table = Rc::new(EventTable::<u64>::new(8));
    let id = table.create(None, |_, _| ()).unwrap();
    run(|| {
        let partner = spawn_local({
            let events = events.clone();
            move || {
                while events[0].wait().is_ok() {
                    events[1].set();
                    events[2].set();
                }
            }
        });
        yield_now().unwrap();
        let calls = calls_of(|| {
            events[0].set();
            events[1].wait().unwrap();
            events[2].wait_timeout(Duration::from_secs(1)).unwrap();
            assert!(events[2].reset());
            assert!(events[1].wait_timeout(Duration::from_nanos(1)).is_err());
            assert!(table.wait_timeout(id, Duration::from_nanos(1)).is_err());
        });
        assert_eq!(calls, 0, "a wait went through the allocator");
        // What a trigger's argument is shared in is allocated, and freed: by the trigger, not by the waits.
        let waiter = spawn_local({
            let table = table.clone();
            move || while table.wait(id).is_ok() {}
        });
        yield_now().unwrap();
        let calls = calls_of(|| {
            assert_eq!(table.trigger(id, 7), Ok(1));
            yield_now().unwrap();
        });
        assert_eq!(calls, 2 * 1000);
        waiter.cancel("end");
        partner.cancel("end");
    });
    // The same by a plain thread.
    let calls = calls_of(|| {
        events[0].set();
        events[0].wait().unwrap();
        assert!(events[0].wait_timeout(Duration::from_nanos(1)).is_err());
    });
    assert_eq!(calls, 0, "a wait went through the allocator");
}
