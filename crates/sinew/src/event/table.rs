//! Numbered events: created with a callback, triggered with an argument, waited for by number.
//!
//! Owns: the table, and per event its callback and its line of waiters. Any thread may call anything here.
//!
//! Invariants
//! - I1. An id is in `taken` exactly if it is in `entries`.
//! - I2. Once an event is removed its line holds nobody who could still be claimed.
//! - I3. No code of the user's (callbacks, clones and drops of arguments) runs while a lock is held.
//!
//! The argument of a trigger is shared by those who are woken: a count is written into each one's slot under the
//! line's lock, and each makes its own value of it once it runs.
#![expect(unsafe_code, reason = "waits through the queue, and fills slots")]

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};
use std::{error, fmt, ptr};

use sinew_core::lock::Lock;
use sinew_core::wait::{Claimed, Kind, Queue, Reason, Record, WakeList, wait_in};

use crate::error::WaitError;
use crate::event::runs::Runs;
use crate::scheduler::current::without_waits;
use crate::scheduler::waiting::Waiting;
use crate::sys::clock;

/// The number of an event in its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u32);

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Events with numbers, a callback each, and an argument of type `T` with each trigger.
///
/// `T` is shared by those who are woken, so a table crosses threads if `T` is `Send` and `Sync`:
///
/// ```compile_fail,E0277
/// fn crosses_threads(_: impl Sync) {}
/// crosses_threads(sinew::event::EventTable::<std::rc::Rc<u8>>::new(1));
/// ```
///
/// A trigger is a moment, not a state: it wakes those who wait, and nobody who comes later. A table is shared by reference,
/// in a static or an [`Arc`], among coroutines of any scheduler and threads.
///
/// # Examples
///
/// ```
/// use sinew::event::EventTable;
///
/// static EVENTS: EventTable<String> = EventTable::new(100);
///
/// sinew::run(|| {
///     let id = EVENTS.create(None, |id, news| assert_eq!((id.0, news.len()), (0, 5))).unwrap();
///     let waiter = sinew::spawn_local(move || EVENTS.wait(id));
///     sinew::yield_now().unwrap();
///     assert_eq!(EVENTS.trigger(id, "hello".to_owned()), Ok(1));
///     assert_eq!(waiter.join().unwrap(), Ok("hello".to_owned()));
///     EVENTS.remove(id).unwrap();
///     assert!(EVENTS.wait(id).is_err());
/// });
/// ```
pub struct EventTable<T> {
    limit: u32,
    inner: RwLock<Inner<T>>,
}

struct Inner<T> {
    entries: BTreeMap<u32, Arc<Entry<T>>>,
    taken: Runs,
    /// Where the search for an automatic id begins: after the one given last.
    next: u32,
}

type Callback<T> = dyn Fn(EventId, &T) + Send + Sync;

struct Entry<T> {
    callback: Box<Callback<T>>,
    /// Apart from the callback, so that no waiter keeps that alive.
    line: Arc<Line<T>>,
}

/// Those who wait for one event.
struct Line<T> {
    state: Lock<State>,
    /// What crosses threads is shared arguments; neither the queue nor the callback's type would say so.
    args: PhantomData<Arc<T>>,
}

struct State {
    removed: bool,
    waiters: Queue,
}

/// Where a waiter has the argument put, in its own frame.
type Slot<T> = UnsafeCell<Option<Arc<T>>>;

impl<T> EventTable<T> {
    /// An empty table for events with ids below `limit`. Allocates nothing yet.
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        Self {
            limit,
            inner: RwLock::new(Inner {
                entries: BTreeMap::new(),
                taken: Runs::new(),
                next: 0,
            }),
        }
    }

    /// Every id is below this.
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// How many events there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is an event with this id.
    #[must_use]
    pub fn contains(&self, id: EventId) -> bool {
        self.read().entries.contains_key(&id.0)
    }

    /// Creates an event with the chosen id, or with an automatic one: the first free one after the one that was
    /// last given out so, going round, so that an id is not soon used again.
    ///
    /// `callback` runs at each [`trigger`](Self::trigger), on the triggering coroutine or thread, at times on several at
    /// once. It is dropped by [`remove`](Self::remove), or after
    /// its last run if it runs then.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    ///
    /// # Errors
    ///
    /// `OutOfRange` if the chosen id is not below the limit, `Taken` if there is an event with it, `Full` if all ids
    /// are taken. The callback comes back inside the error; nothing has changed.
    pub fn create<F>(&self, id: Option<EventId>, callback: F) -> Result<EventId, CreateError<F>>
    where
        F: Fn(EventId, &T) + Send + Sync + 'static,
    {
        let mut inner = self.write();
        match inner.choose(id, self.limit) {
            Ok(number) => {
                let entry = Arc::new(Entry {
                    callback: Box::new(callback),
                    line: Arc::new(Line::new()),
                });
                // INVARIANT: I1.
                inner.taken.insert(number);
                inner.entries.insert(number, entry);
                Ok(EventId(number))
            }
            Err(reason) => {
                // The callback is the caller's again, and is dropped without the lock.
                drop(inner);
                Err(CreateError { callback, reason })
            }
        }
    }

    /// Runs the event's callback, then wakes all who wait for the event, each with a clone of `arg`. Says how many.
    ///
    /// The callback must not wait: every wait in it fails with `State`, in a coroutine as on a plain thread.
    /// Who begins to wait while it runs is woken too. A trigger that finds nobody waiting is not kept. No lock
    /// is held while the callback runs: it may use the table, remove this very event included.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    ///
    /// # Errors
    ///
    /// [`Missing`] if there is no such event; nothing has run. `arg` is dropped.
    ///
    /// # Panics
    ///
    /// With the callback's panic, after all who waited have been woken.
    pub fn trigger(&self, id: EventId, arg: T) -> Result<usize, Missing> {
        let entry = self.entry(id)?;
        let arg = Arc::new(arg);
        let called = catch_unwind(AssertUnwindSafe(|| {
            without_waits(|| (entry.callback)(id, &arg));
        }));
        let woken = entry.line.wake_with(&arg);
        match called {
            Ok(()) => Ok(woken),
            Err(payload) => resume_unwind(payload),
        }
    }

    /// Removes an event: all who wait for it are woken with `Closed`. Its id is free again.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    ///
    /// # Errors
    ///
    /// [`Missing`] if there is no such event.
    pub fn remove(&self, id: EventId) -> Result<(), Missing> {
        let entry = {
            let mut inner = self.write();
            // INVARIANT: I1.
            inner.taken.remove(id.0);
            inner.entries.remove(&id.0)
        };
        let entry = entry.ok_or(Missing(id))?;
        entry.line.close();
        Ok(())
    }

    fn entry(&self, id: EventId) -> Result<Arc<Entry<T>>, Missing> {
        let entry = self.read().entries.get(&id.0).cloned();
        entry.ok_or(Missing(id))
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner<T>> {
        // I3: a panic under the lock could only be an allocation's, before anything has changed.
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inner<T>> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> EventTable<T> {
    /// Waits for the next trigger of an event, and returns its argument.
    ///
    /// # Suspends
    ///
    /// Always, unless it fails.
    ///
    /// # Cancellation
    ///
    /// Ends early. Once a trigger has chosen the waiter the argument is returned all the same.
    ///
    /// # Errors
    ///
    /// [`TableWaitError::Missing`] if there is no such event. [`TableWaitError::Wait`] with `Closed` if it is removed
    /// meanwhile, with `Cancelled`, or with `State` on a scheduler's own frame or in an event's callback.
    pub fn wait(&self, id: EventId) -> Result<T, TableWaitError> {
        self.wait_until(id, None)
    }

    /// As [`EventTable::wait`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`EventTable::wait`]; `Timeout` when the time is up.
    pub fn wait_timeout(&self, id: EventId, timeout: Duration) -> Result<T, TableWaitError> {
        self.wait_until(id, Some(clock::after_ns(timeout)))
    }

    /// As [`EventTable::wait`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`EventTable::wait`]; `Timeout` at the deadline.
    pub fn wait_deadline(&self, id: EventId, deadline: Instant) -> Result<T, TableWaitError> {
        self.wait_until(id, Some(clock::instant_ns(deadline)))
    }

    fn wait_until(&self, id: EventId, deadline_ns: Option<u64>) -> Result<T, TableWaitError> {
        let waiting = Waiting::new(deadline_ns)?;
        let line = self
            .read()
            .entries
            .get(&id.0)
            .map(|entry| entry.line.clone());
        let arg = line.ok_or(Missing(id))?.wait(id, &waiting)?;
        Ok(Arc::unwrap_or_clone(arg))
    }
}

impl<T> Inner<T> {
    /// The id for a new event.
    fn choose(&mut self, id: Option<EventId>, limit: u32) -> Result<u32, Refusal> {
        let Some(id) = id else {
            let free = self.taken.next_free(self.next, limit);
            let free = free.ok_or(Refusal::Full { limit })?;
            self.next = free + 1;
            return Ok(free);
        };
        if id.0 >= limit {
            Err(Refusal::OutOfRange { id, limit })
        } else if self.taken.contains(id.0) {
            Err(Refusal::Taken(id))
        } else {
            Ok(id.0)
        }
    }
}

impl<T> Line<T> {
    fn new() -> Self {
        Self {
            state: Lock::new(State {
                removed: false,
                waiters: Queue::new(),
            }),
            args: PhantomData,
        }
    }

    /// Waits for a trigger that comes after this.
    fn wait(&self, id: EventId, waiting: &Waiting<'_>) -> Result<Arc<T>, TableWaitError> {
        let slot: Slot<T> = UnsafeCell::new(None);
        let state = self.state.lock();
        if state.removed {
            drop(state);
            return Err(Missing(id).into());
        }
        let record = Record {
            kind: Kind::Event,
            object: ptr::from_ref(self).addr(),
            owner: 0,
        };
        // SAFETY: the same queue, and the slot that `wake_with` expects, which outlives the wait.
        let reason = unsafe {
            wait_in(
                &self.state,
                state,
                |state| &mut state.waiters,
                ptr::from_ref(&slot).cast_mut().cast(),
                waiting,
                record,
            )
        };
        match slot.into_inner() {
            Some(arg) => Ok(arg),
            None => match waiting.result(reason) {
                Err(error) => Err(error.into()),
                Ok(()) => unreachable!("who wakes a waiter fills its slot"),
            },
        }
    }

    /// Wakes all who wait, each with its count of `arg`; says how many.
    fn wake_with(&self, arg: &Arc<T>) -> usize {
        let mut woken = WakeList::new();
        let mut state = self.state.lock();
        while let Some(waiter) = state.waiters.claim_front(Reason::Woken) {
            // SAFETY: claimed from the queue of an event with arguments of type `T`.
            unsafe { fill(&waiter, arg.clone()) };
            woken.push(waiter);
        }
        drop(state);
        woken.wake_all()
    }

    /// Wakes all who wait with `Closed`; nobody can wait here afterwards.
    fn close(&self) {
        let mut state = self.state.lock();
        state.removed = true;
        // INVARIANT: I2.
        let woken = state.waiters.claim_all(Reason::Closed);
        drop(state);
        woken.wake_all();
    }
}

/// Puts the argument into the slot of a claimed waiter.
///
/// # Safety
///
/// The waiter was claimed from the queue of an event with arguments of type `T`.
unsafe fn fill<T>(waiter: &Claimed, arg: Arc<T>) {
    let slot = waiter.slot().cast::<Slot<T>>();
    // SAFETY: the slot is in the waiter's frame, which stays until the waiter is woken.
    let slot = unsafe { &*slot };
    // SAFETY: claimed by this thread, so nobody else reaches the slot; it holds nothing yet.
    unsafe { *slot.get() = Some(arg) };
}

impl<T> fmt::Debug for EventTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventTable")
            .field("limit", &self.limit)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// There is no event with this id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing(pub EventId);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no event {}", self.0)
    }
}

impl error::Error for Missing {}

/// Why a wait for a numbered event returned no argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableWaitError {
    /// There is no event with this id.
    Missing(EventId),
    /// The wait ended without a trigger: `Closed` if the event was removed meanwhile.
    Wait(WaitError),
}

impl fmt::Display for TableWaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(id) => Missing(*id).fmt(f),
            Self::Wait(WaitError::Closed) => f.write_str("the event was removed while waiting"),
            Self::Wait(error) => error.fmt(f),
        }
    }
}

impl error::Error for TableWaitError {}

impl From<Missing> for TableWaitError {
    fn from(missing: Missing) -> Self {
        Self::Missing(missing.0)
    }
}

impl From<WaitError> for TableWaitError {
    fn from(error: WaitError) -> Self {
        Self::Wait(error)
    }
}

/// Why an event was not created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The chosen id is not below the table's limit.
    OutOfRange {
        /// The id.
        id: EventId,
        /// The limit.
        limit: u32,
    },
    /// There is an event with the chosen id.
    Taken(EventId),
    /// All ids are taken.
    Full {
        /// How many there are.
        limit: u32,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { id, limit } => {
                write!(
                    f,
                    "the event id {id} is not below the table's limit {limit}"
                )
            }
            Self::Taken(id) => write!(f, "the event id {id} is taken"),
            Self::Full { limit } => write!(f, "all {limit} event ids are taken"),
        }
    }
}

impl error::Error for Refusal {}

/// An event was not created; its callback comes back.
pub struct CreateError<F> {
    /// The callback.
    pub callback: F,
    /// Why.
    pub reason: Refusal,
}

impl<F> fmt::Debug for CreateError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreateError")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl<F> fmt::Display for CreateError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<F> error::Error for CreateError<F> {}

#[cfg(test)]
mod tests;
