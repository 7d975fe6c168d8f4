//! From the handler to everybody who wants to hear of a signal.
//!
//! Owns: who hears of which signal, and the thread that tells them. Any thread. The thread is made at the first subscription and
//! stays: it sleeps.
//!
//! Invariants
//! - I1. A signal is taken exactly while somebody hears of it.
//! - I2. What has come is fetched under the lock, together with who is to hear of it: a signal that came before somebody left is
//!   told to him, by the thread or as he leaves.
//! - I3. Nobody is told while the lock is held.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::io::named;
use crate::scheduler::unhandled;
use crate::sys::signal::{self, Taken};

/// What is called when a signal has come. It must not wait: others hear of theirs after it.
type Ear = Arc<dyn Fn(i32) + Send + Sync>;

/// Those who hear of one signal.
struct Line {
    #[expect(dead_code, reason = "its drop is what counts")]
    taken: Taken,
    ears: Vec<(u64, Ear)>,
}

struct Lines {
    by_signal: BTreeMap<i32, Line>,
    next: u64,
    thread_runs: bool,
}

fn lines() -> MutexGuard<'static, Lines> {
    static LINES: Mutex<Lines> = Mutex::new(Lines {
        by_signal: BTreeMap::new(),
        next: 0,
        thread_runs: false,
    });
    // I3: no foreign code runs under it.
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Somebody hears of a signal, until the drop.
#[derive(Debug)]
pub(crate) struct Subscription {
    signal: i32,
    number: u64,
}

/// Has `ear` called when the signal comes, on the relay's thread or that of somebody who unsubscribes.
///
/// # Errors
///
/// `InvalidInput` if it is no signal, one of a fault, or one that cannot be handled; what the kernel says about a thread or a
/// descriptor.
pub(crate) fn subscribe(
    signal: i32,
    ear: impl Fn(i32) + Send + Sync + 'static,
) -> io::Result<Subscription> {
    // Made before the lock is taken: if it is dropped here, what it owns is the user's.
    let ear = Arc::new(ear) as Ear;
    let mut lines = lines();
    if !lines.thread_runs {
        let builder = std::thread::Builder::new().name("sinew-signal".to_owned());
        builder.spawn(serve)?;
        lines.thread_runs = true;
    }
    let number = lines.next;
    lines.next += 1;
    match lines.by_signal.entry(signal) {
        Entry::Occupied(mut line) => line.get_mut().ears.push((number, ear)),
        Entry::Vacant(place) => {
            let taken = signal::take(signal).map_err(|error| about(signal, error))?;
            let ears = vec![(number, ear)];
            place.insert(Line { taken, ears });
        }
    }
    Ok(Subscription { signal, number })
}

/// Says which signal it was.
fn about(signal: i32, error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::InvalidInput => io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{signal} is not a signal that can be waited for"),
        ),
        _ => named(error, || format!("taking signal {signal}")),
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut lines = lines();
        let Some(line) = lines.by_signal.get_mut(&self.signal) else {
            return;
        };
        let heard = line.ears.clone();
        line.ears.retain(|(number, _)| *number != self.number);
        if line.ears.is_empty() {
            // What the signal did before is put back before it is asked whether it has come.
            lines.by_signal.remove(&self.signal);
        }
        let has_come = signal::fetch_one(self.signal);
        drop(lines);
        if has_come {
            tell(self.signal, &heard);
        }
    }
}

fn tell(signal: i32, ears: &[(u64, Ear)]) {
    for (_, ear) in ears {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| ear(signal))) {
            unhandled::report_contained(0, payload);
        }
    }
}

/// The thread.
fn serve() {
    while signal::wait().is_ok() {
        let lines = lines();
        let came: Vec<_> = signal::fetch()
            .filter_map(|signal| Some((signal, lines.by_signal.get(&signal)?.ears.clone())))
            .collect();
        drop(lines);
        for (signal, ears) in came {
            tell(signal, &ears);
            // An ear's drop may be the user's.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(ears))) {
                unhandled::report_contained(0, payload);
            }
        }
    }
}
