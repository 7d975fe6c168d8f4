//! Signals of the operating system, as events.
//!
//! Owns: which signal is bound to which numbered event. Any thread.
//!
//! A signal's handler does nothing but note the signal and wake a thread of the runtime's own, which sets the events. As with
//! POSIX, signals coalesce: of one that comes several times before it is waited for, one wait tells. Whoever hears
//! of a signal takes its previous disposition away, and the last one to leave puts it back, unless somebody else has
//! installed a handler meanwhile.
//!
//! Any number of [`SignalEvent`]s, one binding to a numbered event and
//! [`dump_on_signal`](crate::inspect::dump_on_signal) may share a signal.
//!
//! Signals of a fault (`SIGSEGV`, `SIGBUS`, `SIGILL`, `SIGFPE`, `SIGTRAP`, `SIGABRT`, `SIGSYS`) and those that cannot be
//! handled (`SIGKILL`, `SIGSTOP`) are refused. The usual ones are here by name ([`SIGINT`], [`SIGTERM`]); the numbers are those of
//! [`libc`](https://docs.rs/libc).

pub(crate) mod relay;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::event::{Event, EventId, EventTable};
use relay::Subscription;

/// The signals that programs usually wait for, by their names.
pub use libc::{
    SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1,
    SIGUSR2, SIGWINCH,
};

/// An auto-reset [`Event`] that a signal sets; made by [`event`].
///
/// It dereferences to the event: wait for it in any form, or as one of several things in a
/// [`select!`](crate::select!). A signal that comes while nobody waits is kept for the next wait.
///
/// The drop takes the event back from the signal.
pub struct SignalEvent {
    event: Arc<Event>,
    subscription: Subscription,
    signal: i32,
}

impl SignalEvent {
    /// The signal's number.
    #[must_use]
    pub fn signal(&self) -> i32 {
        self.signal
    }
}

impl Deref for SignalEvent {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

impl fmt::Debug for SignalEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignalEvent")
            .field("signal", &self.signal)
            .field("event", &self.event)
            .field("subscription", &self.subscription)
            .finish()
    }
}

/// An event that is set whenever the process gets this signal.
///
/// # Suspends
///
/// Never.
///
/// # Errors
///
/// `InvalidInput` if the number is no signal's, or one of those that are refused; what the kernel says about a thread or a
/// descriptor.
///
/// # Examples
///
/// ```
/// let hangup = sinew::signal::event(sinew::signal::SIGHUP)?;
/// assert!(!hangup.try_wait());
/// // SAFETY: no preconditions.
/// unsafe { libc::kill(libc::getpid(), libc::SIGHUP) };
/// sinew::run(move || hangup.wait()).unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn event(signal: i32) -> io::Result<SignalEvent> {
    let event = Arc::new(Event::auto());
    let set = Arc::clone(&event);
    let subscription = relay::subscribe(signal, move |_| set.set())?;
    Ok(SignalEvent {
        event,
        subscription,
        signal,
    })
}

/// Waits until the process is interrupted from the terminal, by Ctrl-C (`SIGINT`).
///
/// The interrupt is taken for the length of the call: one that comes before or after it does what it did, which is to
/// end the program if nobody has changed that. To hear of all of them keep an [`event`].
///
/// # Suspends
///
/// Until it comes.
///
/// # Cancellation
///
/// Ends with an error that [`crate::is_cancelled`] recognises; the interrupt does what it did before.
///
/// # Errors
///
/// As [`event`]'s and [`Event::wait`]'s.
pub fn ctrl_c() -> io::Result<()> {
    Ok(event(libc::SIGINT)?.wait()?)
}

/// A signal's numbered event.
struct Binding {
    id: EventId,
    #[expect(dead_code, reason = "its drop is what counts")]
    subscription: Subscription,
}

fn bindings() -> MutexGuard<'static, BTreeMap<i32, Binding>> {
    static BINDINGS: Mutex<BTreeMap<i32, Binding>> = Mutex::new(BTreeMap::new());
    // No foreign code runs under it.
    BINDINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(kind: io::ErrorKind, what: String) -> io::Error {
    io::Error::new(kind, what)
}

/// Binds a signal to a numbered event: whenever the process gets the signal the event is triggered, with the signal's number as
/// its argument. The event's callback runs on a thread of the runtime's own, and other signals wait for its end.
///
/// A signal is bound to one event at most: another call binds it anew, and the number of the event it was bound to is returned.
/// A signal that comes meanwhile goes to the old or to the new one. If the event is removed from its table the
/// signal stays bound, and goes to nobody.
///
/// # Suspends
///
/// Never.
///
/// # Errors
///
/// As [`event`]; `NotFound` if the table has no such event. The signal stays bound as it was.
///
/// # Examples
///
/// ```
/// use sinew::event::EventTable;
/// use sinew::signal;
///
/// static EVENTS: EventTable<i32> = EventTable::new(10);
///
/// let id = EVENTS.create(None, |_, signal| assert_eq!(*signal, libc::SIGUSR2)).unwrap();
/// signal::bind(libc::SIGUSR2, &EVENTS, id)?;
/// assert_eq!(signal::bound(libc::SIGUSR2), Some(id));
/// assert_eq!(signal::unbind(libc::SIGUSR2)?, id);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn bind<T>(signal: i32, table: T, id: EventId) -> io::Result<Option<EventId>>
where
    T: Deref<Target = EventTable<i32>> + Send + Sync + 'static,
{
    if !table.contains(id) {
        let what = format!("there is no event {id}");
        return Err(refused(io::ErrorKind::NotFound, what));
    }
    // The new one hears of the signal before the old one ceases to, so that it is never put back between them.
    let subscription = relay::subscribe(signal, move |signal| {
        // Without the event it goes to nobody, as said.
        let _is_removed = table.trigger(id, signal).is_err();
    })?;
    let before = bindings().insert(signal, Binding { id, subscription });
    Ok(before.map(|before| before.id))
}

/// Takes a signal back from its event, whose number is returned.
///
/// # Errors
///
/// `NotFound` if it is not bound.
pub fn unbind(signal: i32) -> io::Result<EventId> {
    let before = bindings().remove(&signal);
    let not_bound = || {
        refused(
            io::ErrorKind::NotFound,
            format!("signal {signal} is not bound"),
        )
    };
    Ok(before.ok_or_else(not_bound)?.id)
}

/// The number of the event that a signal is bound to.
#[must_use]
pub fn bound(signal: i32) -> Option<EventId> {
    bindings().get(&signal).map(|binding| binding.id)
}
