//! The promise: a place for one value, filled once, that any number of parties wait for.
//!
//! Owns: the value, the queue and the callbacks. Any thread may call anything here.
//!
//! | bit | meaning | set by |
//! |---|---|---|
//! | `CLAIMED` | someone has won the right to fill the place | the completer, before it writes |
//! | `DONE` | the place is filled, for good; the end's number is in bits 8–15 | the completer, after it wrote |
//! | `WAITED` | someone waits, has waited or left a callback: the list is worth a look | the waiter, under the lock |
//!
//! Invariants
//! - I1. Of all completions one wins; the others get their value back.
//! - I2. The value is written between `CLAIMED` and `DONE` by the winner, and only read afterwards, until this is dropped.
//! - I3. Who sets `WAITED` and does not see `DONE` is in the list when the winner, who sees `WAITED`, takes the lock: each of
//!   the two sets its bit in the one word before it looks for the other's.
//! - I4. No code of the user's runs under the lock; the winner is given the callbacks, each once.
#![expect(
    unsafe_code,
    reason = "a place that is filled through a shared reference, and waits through the queue"
)]

mod polled;

use core::fmt;
use core::mem::{self, MaybeUninit};
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::facade::{AtomicU32, UnsafeCell};
use crate::lock::Lock;
use crate::wait::{Kind, Probe, Queue, QueueArm, Reason, Record, Suspend, wait_in};

const CLAIMED: u32 = 1;
const DONE: u32 = 2;
const WAITED: u32 = 4;
const END_SHIFT: u32 = 8;

/// What is called at the end, with its place in the promise's list in itself: to leave it allocates nothing.
pub trait Chained: Sized {
    /// The place for the next one in the list.
    fn next(&mut self) -> &mut Option<Self>;
}

/// A place for one value of type `V`, with callbacks of type `C`.
pub struct RawPromise<V, C: Chained> {
    word: AtomicU32,
    value: UnsafeCell<MaybeUninit<V>>,
    list: Lock<List<C>>,
}

/// Who is to be told.
pub struct List<C: Chained> {
    waiters: Queue,
    /// The newest one first.
    callbacks: Option<C>,
}

// SAFETY: the value and the callbacks go with it.
unsafe impl<V: Send, C: Chained + Send> Send for RawPromise<V, C> {}
// SAFETY: several threads may read the value at once; callbacks are moved out under the lock.
unsafe impl<V: Send + Sync, C: Chained + Send> Sync for RawPromise<V, C> {}

impl<V, C: Chained> RawPromise<V, C> {
    /// A place that is empty.
    #[must_use]
    pub fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            value: UnsafeCell::new(MaybeUninit::uninit()),
            list: Lock::new(List {
                waiters: Queue::new(),
                callbacks: None,
            }),
        }
    }

    /// Fills the place, wakes all who wait, and returns the callbacks, for the caller to call. `end` says how it ended.
    ///
    /// # Errors
    ///
    /// The value comes back if another completion was first.
    #[inline]
    pub fn complete(&self, value: V, end: u8) -> Result<Callbacks<C>, V> {
        // ORDERING: Relaxed: the claim decides who writes, and publishes nothing.
        if self.word.fetch_or(CLAIMED, Relaxed) & CLAIMED != 0 {
            return Err(value);
        }
        Ok(self.fill(value, end))
    }

    /// As [`complete`](Self::complete), where no other completion can come at the same time.
    ///
    /// # Errors
    ///
    /// The value comes back if another completion was first.
    ///
    /// # Safety
    ///
    /// No other thread completes this meanwhile, and what others did before is visible here.
    #[inline]
    pub unsafe fn complete_alone(&self, value: V, end: u8) -> Result<Callbacks<C>, V> {
        if self.word.load(Relaxed) & CLAIMED != 0 {
            return Err(value);
        }
        Ok(self.fill(value, end))
    }

    /// The winner's part.
    #[inline]
    fn fill(&self, value: V, end: u8) -> Callbacks<C> {
        // SAFETY: I2: nobody else writes, and nobody reads yet.
        self.value
            .with_mut(|place| unsafe { (*place).write(value) });
        let done = CLAIMED | DONE | u32::from(end) << END_SHIFT;
        // ORDERING: Release publishes the value to who sees DONE; Acquire sees what who set WAITED did before.
        if self.word.fetch_or(done, AcqRel) & WAITED == 0 {
            return Callbacks { first: None };
        }
        self.tell()
    }

    #[cold]
    fn tell(&self) -> Callbacks<C> {
        let mut list = self.list.lock();
        let woken = list.waiters.claim_all(Reason::Woken);
        let callbacks = list.callbacks.take();
        drop(list);
        woken.wake_all();
        Callbacks::in_order(callbacks)
    }

    /// Whether a completion has won: another one would fail.
    #[inline]
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        self.word.load(Relaxed) & CLAIMED != 0
    }

    /// How it ended; `None` while it is empty.
    #[inline]
    #[must_use]
    pub fn end(&self) -> Option<u8> {
        // ORDERING: Acquire pairs with the Release in `fill`.
        let word = self.word.load(Acquire);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the number is in these bits"
        )]
        (word & DONE != 0).then_some((word >> END_SHIFT) as u8)
    }

    /// The value, if there is one.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<&V> {
        // ORDERING: Acquire pairs with the Release in `fill`.
        if self.word.load(Acquire) & DONE == 0 {
            return None;
        }
        Some(self.value.with(|place| {
            // SAFETY: I2: written, and only read while `self` is shared.
            unsafe { &*place.cast::<V>() }
        }))
    }

    /// Takes the value out, if there is one. Nothing can be put in its place.
    #[must_use]
    pub fn take(&mut self) -> Option<V> {
        let word = self.word.load(Acquire);
        if word & DONE == 0 {
            return None;
        }
        self.word.store(word & !DONE, Relaxed);
        Some(self.value.with(|place| {
            // SAFETY: I2: written; read once, as DONE is gone.
            unsafe { place.cast::<V>().read() }
        }))
    }

    /// Leaves a callback for the completer.
    ///
    /// # Errors
    ///
    /// It comes back if there is a value already: the caller calls it.
    pub fn add_callback(&self, mut callback: C) -> Result<(), C> {
        let mut list = self.list.lock();
        if self.is_done_or_waited() {
            drop(list);
            return Err(callback);
        }
        *callback.next() = list.callbacks.take();
        list.callbacks = Some(callback);
        Ok(())
    }

    /// Waits until there is a value.
    ///
    /// # Errors
    ///
    /// The reason for which the party gave up: [`Reason::Timeout`] or [`Reason::Cancelled`].
    pub fn wait<S: Suspend>(&self, party: &S) -> Result<(), Reason> {
        let list = self.list.lock();
        if self.is_done_or_waited() {
            return Ok(());
        }
        let record = Record {
            kind: Kind::Future,
            object: ptr::from_ref(self).addr(),
            owner: 0,
        };
        // SAFETY: the same queue, and nothing is handed over through the slot.
        let reason = unsafe {
            wait_in(
                &self.list,
                list,
                |list| &mut list.waiters,
                ptr::null_mut(),
                party,
                record,
            )
        };
        match reason {
            Reason::Woken => Ok(()),
            reason => Err(reason),
        }
    }

    /// An arm that waits until there is a value.
    #[must_use]
    pub fn arm(&self) -> PromiseArm<'_, V, C> {
        QueueArm::new(&self.list, FilledProbe(self))
    }

    /// Says whether there is a value; if not, the completer will look into the list. Under its lock.
    fn is_done_or_waited(&self) -> bool {
        // ORDERING: AcqRel, I3: Acquire sees the value; Release as in `fill`.
        self.word.fetch_or(WAITED, AcqRel) & DONE != 0
    }
}

/// Looks whether a promise has its value.
pub struct FilledProbe<'a, V, C: Chained>(&'a RawPromise<V, C>);

/// Waits for a promise's value, as one of several things of which one happens.
pub type PromiseArm<'a, V, C> = QueueArm<'a, List<C>, FilledProbe<'a, V, C>>;

// SAFETY: the one queue of the promise's waiters; whoever fills it and sees that somebody waits takes the lock and claims them all.
unsafe impl<V, C: Chained> Probe<List<C>> for FilledProbe<'_, V, C> {
    fn take(&self, _: &mut List<C>) -> Option<Reason> {
        self.0.end().map(|_| Reason::Woken)
    }

    fn is_there(&self, _: &mut List<C>) -> bool {
        // INVARIANT: I3: either the completer sees that somebody waits, or the value is seen here.
        self.0.is_done_or_waited()
    }

    fn queue<'a>(&self, list: &'a mut List<C>) -> &'a mut Queue {
        &mut list.waiters
    }
}

impl<V, C: Chained> fmt::Debug for FilledProbe<'_, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilledProbe").finish_non_exhaustive()
    }
}

impl<C: Chained> fmt::Debug for List<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").finish_non_exhaustive()
    }
}

impl<V, C: Chained> Default for RawPromise<V, C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V, C: Chained> Drop for RawPromise<V, C> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<V, C: Chained> fmt::Debug for RawPromise<V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawPromise")
            .field("end", &self.end())
            .finish_non_exhaustive()
    }
}

/// The callbacks of a promise, in the order in which they were added.
#[must_use = "whoever completes a promise calls its callbacks"]
pub struct Callbacks<C: Chained> {
    first: Option<C>,
}

impl<C: Chained> Callbacks<C> {
    /// Turns the list around.
    fn in_order(mut newest: Option<C>) -> Self {
        let mut first = None;
        while let Some(mut callback) = newest {
            newest = mem::replace(callback.next(), first);
            first = Some(callback);
        }
        Self { first }
    }
}

impl<C: Chained> Iterator for Callbacks<C> {
    type Item = C;

    #[inline]
    fn next(&mut self) -> Option<C> {
        let mut callback = self.first.take()?;
        self.first = callback.next().take();
        Some(callback)
    }
}

impl<C: Chained> Drop for Callbacks<C> {
    /// One after the other: a long list needs no deep stack.
    fn drop(&mut self) {
        for callback in self {
            drop(callback);
        }
    }
}

impl<C: Chained> Drop for List<C> {
    fn drop(&mut self) {
        drop(Callbacks::in_order(self.callbacks.take()));
    }
}

impl<C: Chained> fmt::Debug for Callbacks<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks").finish_non_exhaustive()
    }
}
