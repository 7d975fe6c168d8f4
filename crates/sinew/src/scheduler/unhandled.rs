//! Failures that nobody joined: where they go.
//!
//! Owns: the process's hook. Any thread.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::scheduler::body::{Payload, drop_payload};
use crate::scheduler::current;

/// A failure of a coroutine that nobody joined.
#[derive(Debug)]
#[non_exhaustive]
pub enum Unhandled<'a> {
    /// It panicked with this payload.
    Panic {
        /// The coroutine's id; 0 for a post.
        id: u64,
        /// What it panicked with.
        payload: &'a (dyn Any + Send),
    },
    /// It returned this error; or a promise failed with it, and nobody looked.
    Error {
        /// The coroutine's id; 0 for a promise.
        id: u64,
        /// What it returned.
        error: &'a io::Error,
    },
    /// It was to stop ([`crate::cancel_id_within`]) and lives on: it never waits, or behind a shield only, or catches every
    /// unwind.
    Deaf {
        /// The coroutine's id.
        id: u64,
        /// The grace that it had, before it was to be unwound.
        grace: Duration,
    },
}

/// A function that is told of failures.
pub type UnhandledHook = Box<dyn Fn(&Unhandled<'_>) + Send + Sync>;

type Hook = Arc<dyn Fn(&Unhandled<'_>) + Send + Sync>;

static HOOK: RwLock<Option<Hook>> = RwLock::new(None);

/// Sets the function that is told of every failure that nobody joined: a panic of a detached coroutine, or of one
/// whose handle was dropped, an `Err` that a detached coroutine returned, the error of a failed
/// [promise](crate::future::Promise) that nobody looked at, and a coroutine that was to stop and did not.
///
/// It is called once per failure, on the thread where the failure was found, possibly inside the failing
/// coroutine. With a hook set, [`crate::run`] does not raise such panics again. `None` takes the hook away. Without one such panics are
/// raised again there, and the errors are dropped in silence.
///
/// # Suspends
///
/// Never; the hook itself should not wait.
pub fn on_unhandled(hook: Option<UnhandledHook>) {
    let mut place = HOOK.write().unwrap_or_else(PoisonError::into_inner);
    let before = std::mem::replace(&mut *place, hook.map(Hook::from));
    drop(place);
    // Without the lock: what the old hook owns may fail when it is dropped, and be reported.
    drop(before);
}

fn hook() -> Option<Hook> {
    HOOK.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Calls the hook. A panic of the hook itself is kept for `run` to raise: it must not unwind into the runtime.
/// Neither must one of its drop, if it was replaced meanwhile.
fn tell(hook: Hook, failure: &Unhandled<'_>) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(move || hook(failure))) {
        keep(payload);
    }
}

/// Keeps a panic for `run` to raise. Outside of a scheduler nobody is left to raise it; the panic hook has already told
/// of it.
fn keep(payload: Payload) {
    let mut payload = Some(payload);
    current::with_scheduler(|scheduler| {
        payload.take().map(|payload| scheduler.keep_panic(payload))
    });
    if let Some(payload) = payload {
        drop_payload(payload);
    }
}

/// A panic that nobody joined: to the hook, or else kept for `run` to raise.
pub(crate) fn report(id: u64, payload: Payload) {
    if let Some(hook) = hook() {
        tell(
            hook,
            &Unhandled::Panic {
                id,
                payload: &*payload,
            },
        );
        drop_payload(payload);
    } else {
        keep(payload);
    }
}

/// As [`report`], for callers that nothing may unwind through: not even the drop of a hook that has just been replaced.
pub(crate) fn report_contained(id: u64, payload: Payload) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| report(id, payload))) {
        drop_payload(second);
    }
}

/// A coroutine that was to stop and did not: to the hook, if there is one.
pub(crate) fn report_deaf(id: u64, grace: Duration) {
    if let Some(hook) = hook() {
        tell(hook, &Unhandled::Deaf { id, grace });
    }
}

/// An error that a detached coroutine returned: to the hook, if there is one.
pub(crate) fn report_error(id: u64, error: &io::Error) {
    if let Some(hook) = hook() {
        tell(hook, &Unhandled::Error { id, error });
    }
}
