//! Nothing is allocated by a select, whether it waits or not. Each thread counts for itself, so that the test runner does not
//! count.
#![expect(unsafe_code, reason = "a counting global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use sinew::event::Event;
use sinew::io::Interest;
use sinew::sync::channel::{bounded, rendezvous};
use sinew::sync::select::Selector;
use sinew::{go_local, run, select, spawn_local, yield_now};

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

// contract: Y10
#[test]
fn a_select_that_waits_allocates_nothing() {
    run(|| {
        let (ping, pings) = rendezvous::<u32>();
        let (pong, pongs) = rendezvous::<u32>();
        let over = Rc::new(Event::manual());
        let other = over.clone();
        let peer = spawn_local(move || {
            loop {
                let n = select! {
                    n = pings.recv() => n.unwrap(),
                    _ = other.wait() => break,
                }
                .unwrap();
                pong.send(n).unwrap();
            }
        });
        let calls = calls_of(|| {
            select! {
                r = ping.send(1) => r.unwrap(),
                () = after(Duration::from_secs(60)) => (),
            }
            .unwrap();
            let n = select! {
                n = pongs.recv() => n.unwrap(),
                () = after(Duration::from_secs(60)) => 0,
            };
            assert_eq!(n, Ok(1));
        });
        assert_eq!(calls, 0);
        over.set();
        peer.join().unwrap();
    });
}

#[test]
fn a_select_at_once_or_in_vain_allocates_nothing() {
    run(|| {
        let (reader, _writer) = sinew::io::pipe().unwrap();
        let (sender, receiver) = bounded::<u32>(1);
        let calls = calls_of(|| {
            assert_eq!(select! { r = sender.send(1) => r.is_ok() }, Ok(true));
            assert_eq!(select! { n = receiver.recv() => n.unwrap() }, Ok(1));
            assert_eq!(
                select! { n = receiver.recv() => n.unwrap(), default => 0 },
                0
            );
            let got = select! {
                n = receiver.recv() => n.unwrap(),
                r = ready(&reader, Interest::Read) => { r.unwrap(); 2 }
                () = after(Duration::from_nanos(1)) => 3,
            };
            assert_eq!(got, Ok(3));
        });
        assert_eq!(calls, 0);
    });
}

#[test]
fn a_selector_allocates_when_it_grows_only() {
    run(|| {
        let event = Rc::new(Event::auto());
        let setter = event.clone();
        go_local(move || {
            for _ in 0..2000 {
                setter.set();
                yield_now().unwrap();
            }
        });
        let arm = event.wait_arm();
        let mut selector = Selector::new();
        selector.add(&arm);
        let calls = calls_of(|| {
            assert_eq!(selector.wait(), Ok(0));
            assert!(arm.take().is_some());
        });
        assert_eq!(calls, 0);
    });
}
