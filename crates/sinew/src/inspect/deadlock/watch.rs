//! The hook that is told of cycles while the rest of the program goes on.
//!
//! Owns: the hook, and which cycles it has been told of. The thread that keeps the deadlines of cancel tokens looks, from time to time,
//! while there is a hook.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cancel;
use crate::inspect::deadlock::{Cycle, deadlocks};
use crate::sys::clock;

/// How often it is looked.
const INTERVAL: Duration = Duration::from_millis(100);
/// How many times as long as a look takes the time to the next one is at least.
const COST_SHARE: u32 = 100;

/// A function that is told of cycles.
pub type DeadlockHook = Box<dyn Fn(&Cycle) + Send + Sync>;

type Hook = Arc<dyn Fn(&Cycle) + Send + Sync>;

struct Watch {
    hook: Option<Hook>,
    /// Whether a look is to come.
    is_due: bool,
    /// The members of those that were told of and are still there.
    told: HashSet<Vec<u64>>,
}

static WATCH: Mutex<Option<Watch>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Watch>> {
    // No user code runs under the lock.
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the function that is told of every deadlock: a cycle as [`deadlocks`] finds them, on whatever schedulers its members are and whatever goes on
/// beside it. `None` takes it away.
///
/// It is called once for each cycle, from a thread of the runtime's own, about a tenth of a second after the cycle has closed, or later
/// where there are so many coroutines that looking at them would take more than a hundredth of the time. What can resolve
/// a deadlock is a cancel of a member ([`crate::cancel_id`]).
///
/// # Suspends
///
/// Never; the hook itself must not wait.
///
/// # Examples
///
/// ```
/// sinew::inspect::on_deadlock(Some(Box::new(|cycle| {
///     let victim = &cycle.members()[0];
///     // It may have been cancelled by now.
///     let _gone = sinew::cancel_id(victim.id, "to resolve a deadlock");
/// })));
/// ```
pub fn on_deadlock(hook: Option<DeadlockHook>) {
    let mut place = lock();
    let watch = place.get_or_insert_with(|| Watch {
        hook: None,
        is_due: false,
        told: HashSet::new(),
    });
    let before = std::mem::replace(&mut watch.hook, hook.map(Arc::from));
    watch.told.clear();
    let begins = watch.hook.is_some() && !std::mem::replace(&mut watch.is_due, true);
    drop(place);
    // Without the lock: what the old hook owns may fail when it is dropped.
    drop(before);
    if begins {
        cancel::look_for_deadlocks_after(INTERVAL);
    }
}

/// Looks, tells of what is new, and sees to the next look.
pub(crate) fn look() {
    let Some(hook) = next_look_hook() else {
        return;
    };
    let before = clock::now();
    let found = deadlocks();
    let cost = clock::now().saturating_duration_since(before);
    // First, so that a hook that panics ends nothing.
    cancel::look_for_deadlocks_after((cost * COST_SHARE).max(INTERVAL));
    let keys: Vec<Vec<u64>> = found.iter().map(key).collect();
    let new: Vec<&Cycle> = {
        let mut place = lock();
        let Some(watch) = &mut *place else { return };
        watch.told.retain(|told| keys.contains(told));
        let is_new = keys.iter().map(|key| watch.told.insert(key.clone()));
        let with_new = found.iter().zip(is_new.collect::<Vec<_>>());
        with_new
            .filter(|(_, new)| *new)
            .map(|(cycle, _)| cycle)
            .collect()
    };
    new.into_iter().for_each(|cycle| hook(cycle));
}

/// The hook; without one, no look is due any more.
fn next_look_hook() -> Option<Hook> {
    let mut place = lock();
    let watch = place.as_mut()?;
    watch.is_due = watch.hook.is_some();
    watch.hook.clone()
}

fn key(cycle: &Cycle) -> Vec<u64> {
    let mut ids: Vec<u64> = cycle.members().iter().map(|member| member.id).collect();
    ids.sort_unstable();
    ids
}
