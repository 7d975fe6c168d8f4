//! The semaphore: a count of permits that can be waited for.
//!
//! Owns: the handle and its permits. Count, line and order are `sinew_core`'s `RawSemaphore`.

use std::fmt;
use std::mem;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use sinew_core::sharing::{Shared, Sharing};
use sinew_core::sync::{RawSemaphore, TryDown};

use crate::error::WaitError;
use crate::scheduler::waiting::Waiting;
use crate::sys::clock;

/// A count of permits: [`up`](Self::up) gives one, [`down`](Self::down) takes one and waits while there is none.
///
/// Permits taken by [`acquire`](Self::acquire) and its like are given back when the [`Permit`] is dropped.
///
/// Those who wait are served strictly in the order in which they came, each with all that it wants at once; nobody takes
/// permits past them. So one that wants many is not starved by others that want few, and holds up
/// those behind it until it has them. While permits are left nobody waits, and neither call switches.
///
/// # Examples
///
/// ```
/// use sinew::sync::Semaphore;
///
/// static BUSY: Semaphore = Semaphore::new(2);
/// sinew::run(|| {
///     for _ in 0..10 {
///         sinew::go_local(|| {
///             let _permit = BUSY.acquire()?;
///             assert!(BUSY.value() < 2);
///             sinew::yield_now()
///         });
///     }
/// });
/// assert_eq!(BUSY.value(), 2);
/// ```
///
/// `K` says whose parties share it, see [`kinds`](crate::sync::kinds).
pub struct Semaphore<K: Sharing> {
    raw: RawSemaphore<K>,
}

impl<K: Sharing> Semaphore<K> {
    /// A semaphore with so many permits to begin with.
    #[must_use]
    pub const fn new(count: usize) -> Self {
        Self {
            raw: RawSemaphore::of_kind(count),
        }
    }

    /// How many permits there are to take. Out of date as soon as it is said.
    #[must_use]
    pub fn value(&self) -> usize {
        self.raw.value()
    }

    /// Gives one permit: to the party that has waited longest, if it wants no more than there are then.
    ///
    /// # Suspends
    ///
    /// Never. It may be called anywhere, a closed semaphore's too.
    ///
    /// # Panics
    ///
    /// If there would be more than `usize::MAX` permits; nothing is changed then.
    #[inline]
    #[track_caller]
    pub fn up(&self) {
        self.up_many(1);
    }

    /// As [`Semaphore::up`], with `number` permits.
    ///
    /// # Panics
    ///
    /// As [`Semaphore::up`].
    #[inline]
    #[track_caller]
    pub fn up_many(&self, number: usize) {
        assert!(
            self.raw.up(number).is_ok(),
            "Semaphore::up_many({number}) overflows the count"
        );
    }

    /// Takes one permit.
    ///
    /// # Suspends
    ///
    /// While there is none, or others wait before.
    ///
    /// # Cancellation
    ///
    /// Ends early; no permit is taken. One that is there is taken all the same.
    ///
    /// # Errors
    ///
    /// `Cancelled`; `Closed` if the semaphore is closed; `State` where nothing may wait, whether there is a permit or not;
    /// `Deadlock` on a plain thread if the semaphore is of one thread and there is none.
    #[inline]
    pub fn down(&self) -> Result<(), WaitError> {
        self.down_until(1, None)
    }

    /// As [`Semaphore::down`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::down`]; `Timeout` when the time is up.
    pub fn down_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.down_until(1, Some(clock::after_ns(timeout)))
    }

    /// As [`Semaphore::down`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::down`]; `Timeout` at the deadline.
    pub fn down_deadline(&self, deadline: Instant) -> Result<(), WaitError> {
        self.down_until(1, Some(clock::instant_ns(deadline)))
    }

    /// Takes one permit if there is one, nobody waits, and the semaphore is open; says whether it did.
    #[inline]
    #[must_use]
    pub fn try_down(&self) -> bool {
        self.raw.try_down(1) == TryDown::Taken
    }

    /// As [`Semaphore::down`]; the permit is given back when it is dropped.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::down`].
    #[inline]
    pub fn acquire(&self) -> Result<Permit<'_, K>, WaitError> {
        self.acquire_until(1, None)
    }

    /// As [`Semaphore::acquire`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::down_timeout`].
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<Permit<'_, K>, WaitError> {
        self.acquire_until(1, Some(clock::after_ns(timeout)))
    }

    /// As [`Semaphore::acquire`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::down_deadline`].
    pub fn acquire_deadline(&self, deadline: Instant) -> Result<Permit<'_, K>, WaitError> {
        self.acquire_until(1, Some(clock::instant_ns(deadline)))
    }

    /// As [`Semaphore::try_down`]; the permit is given back when it is dropped.
    #[inline]
    pub fn try_acquire(&self) -> Option<Permit<'_, K>> {
        self.try_acquire_many(1)
    }

    /// Takes `number` permits, all at once: none is held while the others are waited for. With 0 it never waits.
    ///
    /// # Suspends
    ///
    /// While there are not so many, or others wait before. For ever, if there never are.
    ///
    /// # Cancellation
    ///
    /// Ends early; no permit is taken.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::down`].
    pub fn acquire_many(&self, number: usize) -> Result<Permit<'_, K>, WaitError> {
        self.acquire_until(number, None)
    }

    /// As [`Semaphore::acquire_many`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::down_timeout`].
    pub fn acquire_many_timeout(
        &self,
        number: usize,
        timeout: Duration,
    ) -> Result<Permit<'_, K>, WaitError> {
        self.acquire_until(number, Some(clock::after_ns(timeout)))
    }

    /// As [`Semaphore::acquire_many`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Semaphore::down_deadline`].
    pub fn acquire_many_deadline(
        &self,
        number: usize,
        deadline: Instant,
    ) -> Result<Permit<'_, K>, WaitError> {
        self.acquire_until(number, Some(clock::instant_ns(deadline)))
    }

    /// Takes `number` permits if there are so many, nobody waits, and the semaphore is open.
    #[inline]
    pub fn try_acquire_many(&self, number: usize) -> Option<Permit<'_, K>> {
        // Not made unless it is due: the drop of one gives permits.
        (self.raw.try_down(number) == TryDown::Taken).then(|| Permit {
            semaphore: self,
            count: number,
        })
    }

    /// Closes the semaphore for good: who waits, and who comes later, gets `Closed`, also while permits are left. Permits that
    /// are out are given back as before. Says whether it was open.
    pub fn close(&self) -> bool {
        self.raw.close()
    }

    /// Whether it was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.raw.is_closed()
    }

    #[inline]
    fn down_until(&self, number: usize, deadline_ns: Option<u64>) -> Result<(), WaitError> {
        let waiting = match Waiting::at::<K>(deadline_ns) {
            Ok(waiting) => waiting,
            Err(WaitError::Deadlock) => return self.down_here(number),
            Err(error) => return Err(error),
        };
        match self.raw.down(number, &waiting) {
            Ok(()) => Ok(()),
            Err(reason) => waiting.result(reason),
        }
    }

    /// Takes permits on a thread on which nobody else could give them.
    #[cold]
    fn down_here(&self, number: usize) -> Result<(), WaitError> {
        match self.raw.try_down(number) {
            TryDown::Taken => Ok(()),
            TryDown::Short => Err(WaitError::Deadlock),
            TryDown::Closed => Err(WaitError::Closed),
        }
    }

    #[inline]
    fn acquire_until(
        &self,
        number: usize,
        deadline_ns: Option<u64>,
    ) -> Result<Permit<'_, K>, WaitError> {
        self.down_until(number, deadline_ns)?;
        Ok(Permit {
            semaphore: self,
            count: number,
        })
    }
}

impl<K: Sharing> fmt::Debug for Semaphore<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("value", &self.value())
            .field("is_closed", &self.is_closed())
            .finish()
    }
}

/// Permits of a semaphore, given back when this is dropped, on any thread.
#[must_use = "the permits are given back when this is dropped"]
pub struct Permit<'a, K: Sharing = Shared> {
    semaphore: &'a Semaphore<K>,
    count: usize,
}

impl<'a, K: Sharing> Permit<'a, K> {
    /// How many permits these are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Keeps the permits from the semaphore for good, or until somebody gives as many by [`Semaphore::up_many`].
    pub fn forget(self) {
        mem::forget(self);
    }

    /// Takes `number` of these permits out, if there are so many.
    pub fn split(&mut self, number: usize) -> Option<Self> {
        self.count = self.count.checked_sub(number)?;
        Some(Self {
            semaphore: self.semaphore,
            count: number,
        })
    }

    /// Adds other permits of the same semaphore to these.
    ///
    /// # Panics
    ///
    /// If they are another semaphore's; both are given back by that.
    #[track_caller]
    pub fn merge(&mut self, other: Permit<'a, K>) {
        assert!(
            ptr::eq(self.semaphore, other.semaphore),
            "Permit::merge of permits of two semaphores"
        );
        // Each was taken from one count, so the sum is below its range.
        self.count += other.count;
        other.forget();
    }
}

impl<K: Sharing> Drop for Permit<'_, K> {
    #[inline]
    fn drop(&mut self) {
        let overflows = self.semaphore.raw.up(self.count).is_err();
        assert!(
            !overflows || thread::panicking(),
            "a permit that is given back overflows the count of its semaphore"
        );
    }
}

impl<K: Sharing> fmt::Debug for Permit<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}
