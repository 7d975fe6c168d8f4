//! What stands in for an anchor where a coroutine has none.
//!
//! Owns: for each thread that has such coroutines one [`Core`], with their stacks; the thread-local pointer to it.
//! Thread: its own.
//!
//! Invariants
//! - I1. It is made with the first record and freed with the last, so the pointer never dangles, and nothing is left when
//!   the thread ends. It has no destructor that a thread's end runs: coroutines may be dropped in those of others.
//! - I2. Nobody closes it. That its coroutines end is the duty of whoever made them.
#![expect(unsafe_code, reason = "follows and frees what a thread-local names")]

use std::ptr::{self, NonNull};

use sinew_context::stack::StackError;
use sinew_context::stack::overflow::{self, AltStack};

use crate::coroutine::anchor::Core;
use crate::scheduler::body::drop_payload;
use crate::scheduler::current;

/// The thread's, made if there is none. A record has to be given to it at once: with the last one it goes.
#[track_caller]
pub(super) fn keeper() -> NonNull<Core> {
    if let Some(core) = NonNull::new(current::keeper().cast_mut()) {
        return core.cast();
    }
    let ready = overflow::install().and_then(|()| AltStack::ensure_own());
    let alternate_stack = match ready {
        Ok(alternate_stack) => alternate_stack,
        Err(error) => panic!("no alternate signal stack for this thread: {error}"),
    };
    let core = NonNull::from(Box::leak(Box::new(Core::without_anchor(alternate_stack))));
    current::set_keeper(core.as_ptr().cast_const().cast());
    core
}

/// A sufficient alternate signal stack for a frame of this thread. The keeper's does not count: it may go before the frame does.
pub(crate) fn alternate_stack() -> Result<AltStack, StackError> {
    if current::keeper().is_null() {
        AltStack::ensure()
    } else {
        AltStack::ensure_own()
    }
}

/// A record of a keeper is freed. If this was the last of a keeper, that goes too.
///
/// # Safety
///
/// The record was adopted by `core`, and does not use it any more.
pub(super) unsafe fn note_freed(core: NonNull<Core>) {
    // SAFETY: it outlives its records, of which this was one.
    if unsafe { core.as_ref() }.has_records() {
        return;
    }
    current::set_keeper(ptr::null());
    // SAFETY: made by `keeper`; I1.
    let core = unsafe { Box::from_raw(core.as_ptr()) };
    if let Some(payload) = core.take_panic() {
        // The panic hook has told of it, and there is no anchor to raise it.
        drop_payload(payload);
    }
}
