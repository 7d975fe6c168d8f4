//! The estate of a task: an error context, an arena and cleanups in the place of those of the coroutine or thread that the
//! task runs on.
//!
//! Owns: the thread's list of such estates. Thread: the one that runs the task; the task stays on it.
//!
//! Invariants
//! - I1. A linked estate lies in a frame that is not left before it is unlinked.
//! - I2. Of those with the same host the newest comes first, and ends first: they are frames of one stack.
//!
//! Tasks of different coroutines end in any order, so the list is searched, not popped. The host tells whose a task is: what
//! another coroutine of the thread does between two waits of a task is none of it.
#![expect(unsafe_code, reason = "follows a list through frames of its thread")]

use std::cell::Cell;
use std::ptr;

use crate::coroutine::estate::Estate;
use crate::scheduler::body::drop_payload;
use crate::scheduler::current;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct TaskEstate {
    /// In whose place it is; null for a thread that is ending.
    host: *const Estate,
    below: Cell<*const Self>,
    /// The executor for which the task is run or ended, as an identity; null if that has none.
    executor: *const (),
    /// The identity of the future that the task is to bring.
    future: *const (),
    estate: Estate,
}

impl TaskEstate {
    /// Calls `f` in an estate of its own, which is settled afterwards if `f` has not done that.
    pub(crate) fn within<R>(f: impl FnOnce(&Estate) -> R) -> R {
        Self::within_of(ptr::null(), ptr::null(), f)
    }

    /// The same, on behalf of this executor.
    pub(crate) fn within_of<R>(
        executor: *const (),
        future: *const (),
        f: impl FnOnce(&Estate) -> R,
    ) -> R {
        let task = Self {
            host: Estate::with_host(as_pointer),
            below: Cell::new(ptr::null()),
            executor,
            future,
            estate: Estate::new(false, None),
        };
        let linked = Linked::new(&task);
        f(&linked.0.estate)
    }

    /// Whether the calling party runs or ends a task on behalf of this executor.
    pub(crate) fn is_inside(executor: *const ()) -> bool {
        Self::has(|task| ptr::eq(task.executor, executor))
    }

    /// Whether the calling code runs inside of the task that is to bring this future.
    pub(crate) fn is_task_of(future: *const ()) -> bool {
        !future.is_null() && Self::has(|task| ptr::eq(task.future, future))
    }

    /// Whether the calling code runs inside of such a task.
    fn has(is_such: impl Fn(&Self) -> bool) -> bool {
        let host = Estate::with_host(as_pointer);
        let mut at = current::tasks().get();
        // SAFETY: I1: on this thread, and the caller stays in the tasks' frames.
        while let Some(task) = unsafe { at.as_ref() } {
            if ptr::eq(task.host, host) && is_such(task) {
                return true;
            }
            at = task.below.get();
        }
        false
    }

    /// The estate of the task that runs in this host's place, if one does.
    pub(super) fn of<'a>(host: Option<&Estate>) -> Option<&'a Estate> {
        let host = as_pointer(host);
        let mut at = current::tasks().get();
        // SAFETY: I1: on this thread, and the caller stays in the task's frame.
        while let Some(task) = unsafe { at.as_ref() } {
            if ptr::eq(task.host, host) {
                return Some(&task.estate);
            }
            at = task.below.get();
        }
        None
    }
}

fn as_pointer(host: Option<&Estate>) -> *const Estate {
    host.map_or(ptr::null(), ptr::from_ref)
}

/// A task's estate in the list.
struct Linked<'a>(&'a TaskEstate);

impl<'a> Linked<'a> {
    fn new(task: &'a TaskEstate) -> Self {
        task.below.set(current::tasks().replace(task));
        Self(task)
    }
}

impl Drop for Linked<'_> {
    fn drop(&mut self) {
        if let Some(payload) = self.0.estate.close() {
            // Whoever cares for panics of cleanups has settled the estate before.
            drop_payload(payload);
        }
        let mut place = current::tasks();
        // SAFETY: I1.
        while let Some(task) = unsafe { place.get().as_ref() } {
            if ptr::eq(task, self.0) {
                place.set(task.below.get());
                return;
            }
            place = &task.below;
        }
    }
}
