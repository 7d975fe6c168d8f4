//! Sleepers by the million: `SINEW_STRESS=50` makes it a million, less makes it fewer.
//!
//! What a sleep allocates, what a cancel of half of them costs, and what is left of the memory when all have gone.
#![expect(unsafe_code, reason = "a counting global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use sinew::inspect::stats;
use sinew::{WaitError, run, sleep, spawn_local, yield_now};

struct Counting;

thread_local! {
    /// Calls and live bytes of this thread.
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

fn count(by: isize) {
    CALLS.set(CALLS.get() + 1);
    LIVE.set(LIVE.get() + by);
}

// SAFETY: passes every call on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn sleepers() -> usize {
    let stress = std::env::var("SINEW_STRESS").map_or(1, |n| n.parse::<usize>().unwrap());
    (20_000 * stress).min(1_000_000)
}

/// One crowd: all sleep, half are cancelled, all end. Says how many times the allocator was called by the sleeps.
fn crowd(n: usize) -> usize {
    run(|| {
        let (woken, cancelled) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        // When the first and the last one are about to sleep: everybody has a stack by then.
        let asleep = Rc::new(Cell::new(0_usize));
        let (first, last) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let handles: Vec<_> = (0..n)
            .map(|index| {
                let (woken, cancelled) = (woken.clone(), cancelled.clone());
                let (asleep, first, last) = (asleep.clone(), first.clone(), last.clone());
                spawn_local(move || {
                    yield_now().unwrap();
                    asleep.set(asleep.get() + 1);
                    if asleep.get() == 1 {
                        first.set(CALLS.get());
                    }
                    last.set(CALLS.get());
                    let time = Duration::from_secs(if index % 2 == 0 { 3_600 } else { 7_200 });
                    match sleep(time) {
                        Ok(()) => woken.set(woken.get() + 1),
                        Err(WaitError::Cancelled) => cancelled.set(cancelled.get() + 1),
                        Err(other) => panic!("{other}"),
                    }
                })
            })
            .collect();
        while asleep.get() < n {
            yield_now().unwrap();
        }
        yield_now().unwrap();
        // Half of them; their timers go at once.
        for handle in handles.iter().step_by(2) {
            handle.cancel("enough slept");
        }
        let mut rest = Vec::with_capacity(n / 2);
        for (index, handle) in handles.into_iter().enumerate() {
            if index % 2 == 0 {
                handle.join().unwrap();
            } else {
                rest.push(handle);
            }
        }
        yield_now().unwrap();
        assert_eq!(cancelled.get(), n.div_ceil(2));
        assert_eq!(woken.get(), 0);
        assert_eq!(stats().total.alive - 1, n / 2, "the others sleep on");
        for handle in &rest {
            handle.cancel("enough");
        }
        for handle in rest {
            handle.join().unwrap();
        }
        assert_eq!(cancelled.get(), n);
        last.get() - first.get()
    })
}

// contract: S13, S16, C17
#[test]
fn a_million_sleep_half_are_cancelled_and_the_memory_comes_back() {
    let n = sleepers();
    // One chunk of control blocks and all that is made once.
    crowd(n);
    let live = LIVE.get();
    let reserved = stats().stack_reserved_bytes;
    let by_sleeps = crowd(n);
    // `stats` itself makes two lists each time it is asked.
    assert!(
        by_sleeps < 64,
        "{by_sleeps} calls of the allocator by {n} sleeps"
    );
    assert!(
        LIVE.get() <= live,
        "{} bytes more after a second crowd",
        LIVE.get() - live
    );
    let after = stats();
    assert_eq!(
        after.stack_reserved_bytes, reserved,
        "the same stacks were used again"
    );
    assert_eq!(
        (after.stacks_in_use, after.total.timers, after.total.alive),
        (0, 0, 0)
    );
    let committed = after.stack_committed_bytes();
    assert!(
        committed < 64 << 20,
        "{committed} bytes of stacks are still there"
    );
}
