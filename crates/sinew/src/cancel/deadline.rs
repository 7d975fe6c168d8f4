//! The deadlines of cancel tokens, and the graces of those who are to stop: one thread of the process sees to those that are due.
//!
//! Owns: the ordered list of deadlines and the thread, which starts with the first deadline. Tokens exist outside of
//! schedulers too, so their deadlines cannot be a scheduler's timers; and a coroutine that never waits keeps its scheduler from
//! looking at any.
//!
//! Invariants
//! - I1. A token that is gone has no entry: memory follows the number of live tokens with deadlines.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::cancel::{CancelToken, Shared};
use crate::inspect;
use crate::scheduler::body::drop_payload;
use crate::scheduler::door::Door;
use crate::scheduler::order::Order;
use crate::scheduler::unhandled;
use crate::sys::clock;

/// By deadline and the token's address, which keeps equal deadlines apart; for a stop by an odd number instead.
type Watched = BTreeMap<(u64, usize), Due>;

/// What is to be seen to.
enum Due {
    Token(Weak<Shared>),
    Stop(Stop),
    /// It is to be looked whether there are deadlocks to tell of.
    Deadlocks,
}

/// A coroutine that was asked to stop.
#[derive(Debug, Clone, Copy)]
struct Stop {
    id: u64,
    grace: Duration,
    /// Whether it has been told to unwind.
    is_forced: bool,
}

/// How long the forced unwind may take at least before it is reported that it did not come about.
const FORCED_MIN: Duration = Duration::from_millis(10);

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
    let key = (deadline_ns, Arc::as_ptr(&token.shared).addr());
    insert(key, Due::Token(Arc::downgrade(&token.shared)));
}

/// A coroutine was asked to stop. If it has not ended when `grace` is over it is unwound at its waits; and if that has not ended it
/// either when as much time again has passed, it is reported.
///
/// If the thread cannot be started, the next deadline tries again.
pub(crate) fn watch_stop(id: u64, grace: Duration) {
    let stop = Stop {
        id,
        grace,
        is_forced: false,
    };
    if grace.is_zero() {
        stop.follow_up();
    } else {
        stop.insert(grace);
    }
}

impl Stop {
    fn insert(self, after: Duration) {
        insert_after(after, Due::Stop(self));
    }

    /// Its time is over.
    fn follow_up(self) {
        let Some(door) = Door::of_live(self.id) else {
            return;
        };
        if self.is_forced {
            unhandled::report_deaf(self.id, self.grace);
            return;
        }
        door.order(Order::Force { id: self.id });
        let forced = Self {
            is_forced: true,
            ..self
        };
        forced.insert(self.grace.max(FORCED_MIN));
    }
}

/// It is to be looked for deadlocks then.
pub(crate) fn look_for_deadlocks_after(after: Duration) {
    insert_after(after, Due::Deadlocks);
}

fn insert_after(after: Duration, due: Due) {
    static KEYS: AtomicUsize = AtomicUsize::new(1);
    // Odd, so none is an address of a token.
    let key = KEYS.fetch_add(2, Relaxed);
    insert((clock::after_ns(after), key), due);
}

fn insert(key: (u64, usize), due: Due) {
    let mut clockwork = lock();
    clockwork.watched.insert(key, due);
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
        let due = clockwork.watched.remove(&(deadline_ns, address));
        drop(clockwork);
        let see_to = || match due {
            Some(Due::Token(weak)) => {
                if let Some(shared) = weak.upgrade() {
                    CancelToken { shared }.fire_deadline();
                }
            }
            Some(Due::Stop(stop)) => stop.follow_up(),
            Some(Due::Deadlocks) => inspect::look_for_deadlocks(),
            None => {}
        };
        // A callback's panic has been told of by the panic hook; the other deadlines go on.
        if let Err(told) = catch_unwind(AssertUnwindSafe(see_to)) {
            drop_payload(told);
        }
        clockwork = lock();
    }
}

#[cfg(test)]
mod tests;
