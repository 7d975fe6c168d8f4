//! Groups where there is no memory: what finds none at its reservation was not started, and what has a place needs none.
#![expect(
    unsafe_code,
    reason = "a global allocator that fails when it is told to"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use sinew::future::{Promise, SharedFuture};
use sinew::task::{StartError, TaskContext, TaskGroup, TaskPool, Worker};
use sinew::{CancelToken, Error, ErrorKind, Scheduler};

/// Has no memory for a thread that says so.
struct Scarce;

thread_local! {
    static IS_EMPTY: Cell<bool> = const { Cell::new(false) };
    static REFUSED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes every call on unchanged, or refuses it.
unsafe impl GlobalAlloc for Scarce {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_EMPTY.get() {
            REFUSED.set(REFUSED.get() + 1);
            return ptr::null_mut();
        }
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Scarce = Scarce;

/// Runs `f` where this thread has no memory. What std allocates there ends the process.
fn without_memory<R>(f: impl FnOnce() -> R) -> R {
    IS_EMPTY.set(true);
    let result = f();
    IS_EMPTY.set(false);
    result
}

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn counted() -> (Counted, Arc<AtomicUsize>) {
    let drops = Arc::new(AtomicUsize::new(0));
    (Counted(drops.clone()), drops)
}

fn settled(group: &TaskGroup) -> (u64, u64) {
    group.wait().unwrap();
    let stats = group.stats();
    assert_eq!(stats.accepted, stats.completed);
    assert_eq!(
        stats.completed,
        stats.succeeded + stats.failed + stats.cancelled + stats.closed
    );
    (stats.accepted, stats.rejected)
}

// contract: T4
#[test]
fn a_reservation_without_memory_starts_nothing_and_registers_nothing() {
    let group = TaskGroup::new();
    let (promise, future) = Promise::<u8>::new();
    let refused = without_memory(|| group.add(&future)).unwrap_err();
    assert_eq!(REFUSED.take(), 1, "it was the reservation that was refused");
    assert!(refused.is_no_memory() && !refused.is_again() && !refused.is_closed());
    assert_eq!(Error::from(refused).kind(), ErrorKind::NoMemory);

    let (data, drops) = counted();
    let starter = move || -> Result<SharedFuture<u8>, Error> {
        drop(data);
        panic!("it is called");
    };
    let Err(StartError::NoMemory(starter)) = without_memory(|| group.start(starter)) else {
        panic!("there was memory")
    };
    assert_eq!(drops.load(SeqCst), 0, "the starter came back");
    drop(starter);
    assert_eq!(drops.load(SeqCst), 1);

    assert_eq!(group.stats().active, 0);
    promise.resolve(1).unwrap();
    assert_eq!(settled(&group), (0, 2));
    let child = TaskGroup::new();
    child.close();
    assert!(child.is_done(), "nothing is left of a place");
}

// contract: T4, T17, T18, T19
#[test]
fn an_executor_is_not_touched_by_what_has_no_place() {
    let group = TaskGroup::new();
    let pool = TaskPool::builder().threads(1).build().unwrap();
    let worker = Worker::new().unwrap();
    let (data, drops) = counted();
    let task = move |_: &TaskContext<'_>| drop(data);
    let token = CancelToken::new();
    let refused = without_memory(|| group.submit(&pool, task)).unwrap_err();
    assert!(refused.is_no_memory());
    assert_eq!(refused.kind(), ErrorKind::NoMemory);
    let task = refused.into_inner();
    let task = without_memory(|| group.try_submit(&pool, task))
        .unwrap_err()
        .into_inner();
    let task = without_memory(|| group.submit_cancel(&pool, &token, task))
        .unwrap_err()
        .into_inner();
    let task = without_memory(|| group.on_worker(&worker.handle(), task));
    let task = task.unwrap_err().into_inner();
    let task = Scheduler::anchor(|s| {
        let handle = s.handle();
        let refused = without_memory(|| group.spawn_on(&handle, task)).unwrap_err();
        assert_eq!(handle.queued_posts(), 0);
        refused.into_inner()
    });
    assert_eq!(pool.stats().submitted + pool.stats().rejected, 0);
    assert_eq!(drops.load(SeqCst), 0);
    let future = group.submit(&pool, task).unwrap();
    future.wait().unwrap();
    assert_eq!(drops.load(SeqCst), 1);
    assert_eq!(settled(&group), (1, 5));
}

// contract: T4
#[test]
fn what_has_a_place_is_taken_in_and_ends_without_memory() {
    for ends_first in [false, true] {
        let group = TaskGroup::builder().limit(1).build();
        let (promise, future) = Promise::new();
        let mut promise = Some(promise);
        let started = group.start(|| {
            if ends_first {
                promise.take().unwrap().resolve(7_u64).unwrap();
            }
            // From here on: the commit, and what follows.
            IS_EMPTY.set(true);
            Ok::<_, Error>(future)
        });
        assert!(started.is_ok());
        if let Some(promise) = promise {
            assert_eq!(group.stats().active, 1);
            promise.resolve(7).unwrap();
        }
        let stats = group.stats();
        IS_EMPTY.set(false);
        assert_eq!(REFUSED.take(), 0, "it was not asked for any");
        assert_eq!((stats.active, stats.succeeded), (0, 1));
        assert_eq!(settled(&group), (1, 0));
    }
}

// contract: T4
#[test]
fn a_child_takes_its_place_last() {
    let group = TaskGroup::builder().limit(1).build();
    let (promise, future) = Promise::<()>::new();
    group.add(&future).unwrap();
    let refused = group.child(&TaskGroup::builder()).unwrap_err();
    assert!(refused.is_again());
    promise.resolve(()).unwrap();
    let child = group.child(&TaskGroup::builder()).unwrap();
    assert_eq!(group.stats().active, 1);
    child.close();
    assert_eq!(settled(&group), (2, 1));
}
