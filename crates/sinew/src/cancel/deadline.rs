//! The deadlines of cancel tokens: one thread of the process fires those that are due.
//!
//! Owns: the ordered list of deadlines and the thread, which starts with the first deadline. Tokens exist outside of
//! schedulers too, so their deadlines cannot be a scheduler's timers.
//!
//! Invariants
//! - I1. A token that is gone has no entry: memory follows the number of live tokens with deadlines.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::cancel::{CancelToken, Shared};
use crate::scheduler::body::drop_payload;
use crate::sys::clock;

/// By deadline and the token's address, which keeps equal deadlines apart.
type Watched = BTreeMap<(u64, usize), Weak<Shared>>;

struct Clockwork {
    watched: Watched,
    started: bool,
}

static CLOCKWORK: Mutex<Clockwork> = Mutex::new(Clockwork {
    watched: BTreeMap::new(),
    started: false,
});
static EARLIER: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Clockwork> {
    // No user code runs under the lock.
    CLOCKWORK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fires `token` at its deadline, unless it is gone by then.
///
/// If the thread cannot be started, the token still fires when it is next asked ([`CancelToken::is_cancelled`]),
/// and the next deadline tries again.
pub(super) fn watch(deadline_ns: u64, token: &CancelToken) {
    let key = (deadline_ns, std::sync::Arc::as_ptr(&token.shared).addr());
    let mut clockwork = lock();
    clockwork
        .watched
        .insert(key, std::sync::Arc::downgrade(&token.shared));
    if !clockwork.started {
        let builder = std::thread::Builder::new().name("sinew-deadlines".into());
        clockwork.started = builder.spawn(serve).is_ok();
    }
    let first = clockwork.watched.keys().next() == Some(&key);
    drop(clockwork);
    if first {
        EARLIER.notify_one();
    }
}

/// Forgets a token that is going.
pub(super) fn unwatch(deadline_ns: u64, address: usize) {
    let removed = lock().watched.remove(&(deadline_ns, address));
    drop(removed);
}

fn serve() {
    let mut clockwork = lock();
    loop {
        let Some((&(deadline_ns, address), _)) = clockwork.watched.iter().next() else {
            clockwork = EARLIER
                .wait(clockwork)
                .unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let now_ns = clock::now_ns();
        if deadline_ns > now_ns {
            let left = Duration::from_nanos(deadline_ns - now_ns);
            let (guard, _) = EARLIER
                .wait_timeout(clockwork, left)
                .unwrap_or_else(PoisonError::into_inner);
            clockwork = guard;
            continue;
        }
        let token = clockwork
            .watched
            .remove(&(deadline_ns, address))
            .and_then(|weak| weak.upgrade());
        drop(clockwork);
        if let Some(shared) = token {
            // A callback's panic has been told of by the panic hook; the other deadlines go on.
            if let Err(told) =
                catch_unwind(AssertUnwindSafe(|| CancelToken { shared }.fire_deadline()))
            {
                drop_payload(told);
            }
        }
        clockwork = lock();
    }
}

#[cfg(test)]
mod tests;
