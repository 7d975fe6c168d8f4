//! Dumps on a signal.
//!
//! Owns: the thread that makes them, and who wants them. Any thread.
//!
//! The signal's relay only wakes that thread; everything else happens there, outside of every scheduler. It is made at
//! the first call and stays: it sleeps.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::inspect::{Dump, full_dump};
use crate::scheduler::unhandled;
use crate::signal::relay::{self, Subscription};

/// Who wants a dump.
struct Wish {
    patience: Duration,
    sink: Box<dyn Fn(&Dump) + Send + Sync>,
}

fn wishes() -> MutexGuard<'static, HashMap<i32, Arc<Wish>>> {
    static WISHES: OnceLock<Mutex<HashMap<i32, Arc<Wish>>>> = OnceLock::new();
    WISHES
        .get_or_init(Mutex::default)
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Takes a [`full_dump`] whenever the process gets this signal, and gives it to `sink`.
///
/// The signal's handler does nothing but wake a thread of the runtime's own, which takes the dump and calls `sink`. Signals that come while a
/// dump is being made are answered by one more. What the signal did before, ending the process perhaps, it does again after the
/// drop of what is returned, unless its handler has been replaced by another one meanwhile. A dump that is
/// being made then is still given to `sink`.
///
/// A scheduler whose thread is kept busy by a coroutine delays the dump by `patience`, and is named in it.
/// If `sink` panics, the panic goes to the hook of [`on_unhandled`](super::on_unhandled).
///
/// # Suspends
///
/// Never.
///
/// # Errors
///
/// `InvalidInput` if the number is no signal's, or is one that cannot be handled (`SIGKILL`, `SIGSTOP`) or tells of a fault;
/// `AlreadyExists` if an earlier call has taken the signal and its result is still there; else what the
/// kernel says about a thread or a descriptor.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use sinew::inspect::{dump_on_signal, write_to_stderr};
///
/// let _on_quit = dump_on_signal(libc::SIGQUIT, Duration::from_secs(1), write_to_stderr)?;
/// # std::io::Result::Ok(())
/// ```
pub fn dump_on_signal(
    signal: i32,
    patience: Duration,
    sink: impl Fn(&Dump) + Send + Sync + 'static,
) -> io::Result<DumpOnSignal> {
    start()?;
    let subscription = relay::subscribe(signal, |signal| {
        asked().insert(signal);
        ASKED.notify_one();
    })?;
    match wishes().entry(signal) {
        Entry::Occupied(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        Entry::Vacant(place) => {
            let sink = Box::new(sink);
            place.insert(Arc::new(Wish { patience, sink }))
        }
    };
    Ok(DumpOnSignal {
        signal,
        subscription,
    })
}

/// Writes a dump to the standard error output, as text, past the lock that Rust's own output takes: a coroutine may be
/// holding that. For [`dump_on_signal`]. What cannot be written is lost.
pub fn write_to_stderr(dump: &Dump) {
    let text = dump.to_string();
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        match rustix::io::write(rustix::stdio::stderr(), rest) {
            Ok(written) => rest = &rest[written..],
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// The wish for dumps on a signal; its drop takes it back.
#[must_use = "dropping it gives the signal back"]
pub struct DumpOnSignal {
    signal: i32,
    /// Dropped after the wish.
    #[expect(dead_code, reason = "its drop is what counts")]
    subscription: Subscription,
}

impl fmt::Debug for DumpOnSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DumpOnSignal")
            .field("signal", &self.signal)
            .finish_non_exhaustive()
    }
}

impl Drop for DumpOnSignal {
    fn drop(&mut self) {
        let wish = wishes().remove(&self.signal);
        // The sink's drop is the user's: without the lock.
        drop(wish);
    }
}

/// Starts the thread, unless it runs.
fn start() -> io::Result<()> {
    static RUNS: Mutex<bool> = Mutex::new(false);
    let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    if !*runs {
        std::thread::Builder::new()
            .name("sinew-dump".to_owned())
            .spawn(serve)?;
        *runs = true;
    }
    Ok(())
}

/// Wakes the thread.
static ASKED: Condvar = Condvar::new();

/// Signals that have come and have not been answered.
fn asked() -> MutexGuard<'static, BTreeSet<i32>> {
    static SIGNALS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
    SIGNALS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread.
fn serve() {
    loop {
        let nothing = |signals: &mut BTreeSet<i32>| signals.is_empty();
        let waited = ASKED.wait_while(asked(), nothing);
        let came = std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner));
        for signal in came {
            let wish = wishes().get(&signal).cloned();
            if let Some(wish) = wish {
                let give = || (wish.sink)(&full_dump(wish.patience));
                if let Err(payload) = catch_unwind(AssertUnwindSafe(give)) {
                    unhandled::report_contained(0, payload);
                }
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(wish))) {
                    unhandled::report_contained(0, payload);
                }
            }
        }
    }
}
