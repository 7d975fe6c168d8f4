//! What a worker's thread does.
//!
//! Owns: the first panic that nobody joined, until the thread's end. Thread: the worker's.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;

use super::delayed::{Due, Entry};
use super::{Shared, WorkerHandle, WorkerLocal};
use crate::error::{Error, ErrorKind};
use crate::scheduler::body::{Payload, drop_payload, drop_quietly};
use crate::scheduler::run::RunError;
use crate::scheduler::{Scheduler, unhandled};
use crate::sys::clock;
use crate::task::context::{Host, Identity};
use crate::task::job::{Order, Work};

/// How many tasks that are due run before the scheduler has its turn.
const BATCH: usize = 64;

/// Runs the scheduler and the tasks that are due, until somebody stops the worker.
pub(super) fn serve(scheduler: &Scheduler, local: &WorkerLocal) -> Option<Payload> {
    let shared = &*local.handle.shared;
    let mut panicked = None;
    while !shared.delayed.is_closed() {
        let next_ns = run_due(shared, local);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| scheduler.serve(next_ns))) {
            keep(&mut panicked, payload);
        }
    }
    while let Some(entry) = shared.delayed.take_any() {
        let order = match entry.work.is_unwanted() {
            true => Order::Cancel,
            false => Order::Fail(Error::new(
                ErrorKind::Closed,
                "the worker was stopped before the task's time",
            )),
        };
        end(entry, order, local);
    }
    panicked
}

/// Keeps the first one.
fn keep(panicked: &mut Option<Payload>, payload: Payload) {
    match panicked {
        Some(_) => drop_payload(payload),
        None => *panicked = Some(payload),
    }
}

/// Runs a batch of what is due. Returns when the next one is.
fn run_due(shared: &Shared, local: &WorkerLocal) -> Option<u64> {
    let now_ns = clock::now_ns();
    for _ in 0..BATCH {
        match shared.delayed.next(now_ns) {
            Due::Cancelled(entry) => end(entry, Order::Cancel, local),
            Due::Run(entry) => end(entry, Order::Run, local),
            Due::Nothing(next_ns) => return next_ns,
        }
    }
    Some(now_ns)
}

/// Ends a task that was taken out. Its listener goes first, then its data, and then its end is published.
fn end(entry: Entry, order: Order, local: &WorkerLocal) {
    let Entry { work, listener } = entry;
    if let Some(payload) = drop_quietly(listener) {
        unhandled::report_contained(0, payload);
    }
    finish(work, order, local);
}

/// Runs a task, or ends it without, on the thread's plain stack.
pub(super) fn finish(work: Work, order: Order, local: &WorkerLocal) {
    let host = Host {
        stop: None,
        extra: Some(local),
        identity: Identity(ptr::null()),
    };
    if let Some(payload) = work.end(order, host, &mut |_| {}) {
        // A task that raised on what it had caught in a coroutine of its own.
        drop_payload(payload);
    }
}

/// The whole life of a worker's thread; `begun` is told when it accepts tasks, or why it never will.
pub(super) fn live(plan: super::builder::Plan, begun: impl FnOnce(Result<WorkerHandle, Error>)) {
    let mut begun = Some(begun);
    let lived = plan.scheduler.try_anchor(|scheduler| {
        let local = WorkerLocal::new(&plan.name, scheduler, plan.delayed_limit, plan.buffer_bytes);
        super::as_worker(&local, plan.built_at, || {
            if let Some(begun) = begun.take() {
                begun(Ok(local.handle.clone()));
            }
            let panicked = serve(scheduler, &local);
            // What was accepted runs while it finds its worker.
            scheduler.close_and_run_posts();
            panicked
        })
    });
    match (lived, begun) {
        (Err(RunError::Io(error)), Some(begun)) => {
            begun(Err(
                Error::from(error).context("starting the scheduler of a worker")
            ));
        }
        (Err(error), Some(begun)) => begun(Err(Error::new(ErrorKind::Internal, error.to_string()))),
        (Ok(Some(payload)), _) => resume_unwind(payload),
        _ => {}
    }
}
