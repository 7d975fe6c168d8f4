//! An allocator that counts, for the tests of what is allocated. It becomes the allocator of each test file that includes this
//! module. A thread counts for itself, since the test runner allocates on others whenever it likes.
#![allow(
    dead_code,
    reason = "each test file includes this module and uses its own part of it"
)]
#![expect(unsafe_code, reason = "a counting global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

/// What a thread has had of the allocator.
#[derive(Clone, Copy, Default)]
struct Counts {
    taken: usize,
    given_back: usize,
    resized: usize,
    resized_bytes: usize,
    live_bytes: isize,
}

static PROCESS_BYTES: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    // It has no destructor, so it is there to the thread's end.
    static COUNTS: Cell<Counts> = const { Cell::new(Counts {
        taken: 0,
        given_back: 0,
        resized: 0,
        resized_bytes: 0,
        live_bytes: 0,
    }) };
}

struct Counting;

fn count(bytes: isize, change: impl FnOnce(&mut Counts)) {
    PROCESS_BYTES.fetch_add(bytes, Relaxed);
    let mut counts = COUNTS.get();
    counts.live_bytes += bytes;
    change(&mut counts);
    COUNTS.set(counts);
}

// SAFETY: passes every call on unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed(), |counts| counts.taken += 1);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed(), |counts| {
            counts.given_back += 1;
        });
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        count(new.cast_signed() - layout.size().cast_signed(), |counts| {
            counts.resized += 1;
            counts.resized_bytes += new;
        });
        // SAFETY: passed on.
        unsafe { System.realloc(pointer, layout, new) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread has asked for memory, or for more or less of it.
pub(crate) fn requests() -> usize {
    let counts = COUNTS.get();
    counts.taken + counts.resized
}

/// How often this thread has gone to the allocator, to take or to give back.
pub(crate) fn calls() -> usize {
    requests() + COUNTS.get().given_back
}

/// How many bytes this thread has taken and not given back; below zero where it has freed what others took.
pub(crate) fn live_bytes() -> isize {
    COUNTS.get().live_bytes
}

/// How many bytes the process has taken and not given back.
pub(crate) fn process_bytes() -> isize {
    PROCESS_BYTES.load(Relaxed)
}

/// How many bytes this thread's reallocations have asked for: an upper bound of what was copied.
pub(crate) fn resized_bytes() -> usize {
    COUNTS.get().resized_bytes
}

/// How often 1,000 calls of `f` go to the allocator, to take or to give back, once everything is warm.
pub(crate) fn calls_of(f: impl FnMut()) -> usize {
    warm_thousand(f, calls)
}

/// How often 1,000 calls of `f` ask for memory, once everything is warm.
pub(crate) fn requests_of(f: impl FnMut()) -> usize {
    warm_thousand(f, requests)
}

fn warm_thousand(mut f: impl FnMut(), counted: fn() -> usize) -> usize {
    for _ in 0..10 {
        f();
    }
    let before = counted();
    for _ in 0..1000 {
        f();
    }
    counted() - before
}
