//! Scopes: a group for the length of a closure, with a rule for what its items come to together.
//!
//! Owns: the group, until everything in it has ended. Thread: the caller's, coroutine or plain.
//!
//! Invariants
//! - I1. Nothing that was started in a scope is active when it returns or unwinds.
//!
//! There is nothing here that a [`TaskGroup`] could not do: it is closed, cancelled and waited for in the order that one would
//! otherwise write each time.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::cancel::{CancelToken, Registration, shield};
use crate::error::{Error, ErrorKind, WaitError};
use crate::future::{PromiseState, SharedFuture};
use crate::scheduler::waiting::Waiting;
use crate::sys::clock;
use crate::task::{CancelOn, GroupStats, TaskGroup, TaskGroupBuilder};

/// A scope to be: its limit, its deadline and its parent are chosen first, and the rule last, with the closure that starts its tasks.
///
/// Whatever the rule, no task outlives the scope: it returns when the last one has ended. So a task that is deaf to a cancel delays it.
/// If the caller is cancelled while it waits, or the deadline passes, the group is cancelled, and waited for all the same.
///
/// # Examples
///
/// All are to succeed; the first failure cancels the others, and is the scope's:
///
/// ```
/// use sinew::task::{TaskPool, scope};
/// use sinew::{Error, ErrorKind};
///
/// let pool = TaskPool::builder().threads(2).build().unwrap();
/// let sum = scope().all_succeed(|group| {
///     let one = group.submit(&pool, |_| Ok::<_, Error>(20))?;
///     let two = group.submit(&pool, |_| Ok::<_, Error>(22))?;
///     one.wait()?;
///     two.wait()?;
///     Ok(one.get().unwrap()? + two.get().unwrap()?)
/// });
/// assert_eq!(sum.unwrap(), 42);
///
/// let failed = scope().all_succeed(|group| {
///     group.submit(&pool, |context| {
///         // Until the other one fails.
///         context.cancel_token().wait()?;
///         Err::<(), _>(Error::new(ErrorKind::Cancelled, "asked to stop"))
///     })?;
///     group.submit(&pool, |_| Err::<(), _>(Error::new(ErrorKind::Invalid, "oops")))?;
///     Ok(())
/// });
/// assert_eq!(failed.unwrap_err().message(), "oops");
/// ```
///
/// The first success is enough; it cancels the others:
///
/// ```
/// use sinew::task::{Outcome, scope};
///
/// sinew::run(|| {
///     let fastest = scope().first_success(|group, race| {
///         race.enter(&group.spawn(|_| sinew::park().map(|()| "never"))?);
///         race.enter(&group.spawn(|_| Outcome::Success("first"))?);
///         Ok(())
///     });
///     assert_eq!(fastest.unwrap().get().unwrap().unwrap(), &"first");
/// });
/// ```
///
/// All ends are collected, failures too:
///
/// ```
/// use sinew::task::{Outcome, scope};
///
/// sinew::run(|| {
///     let (_, stats) = scope().collect_all(|group| {
///         group.spawn(|_| Outcome::Success(()))?;
///         group.spawn(|_| Outcome::<()>::failed())?;
///         Ok(())
///     })
///     .unwrap();
///     assert_eq!((stats.succeeded, stats.failed), (1, 1));
/// });
/// ```
///
/// A deadline for all of it:
///
/// ```
/// use std::time::Duration;
/// use sinew::task::scope;
///
/// sinew::run(|| {
///     let late = scope().timeout(Duration::from_millis(2)).all_succeed(|group| {
///         group.spawn(|_| sinew::park())?;
///         Ok(())
///     });
///     assert_eq!(late.unwrap_err().kind(), sinew::ErrorKind::Timeout);
/// });
/// ```
///
/// A scope within a scope: the outer one's cancel reaches the inner one's tasks, and what the inner one comes to is its caller's affair.
///
/// ```
/// use sinew::task::{Outcome, scope};
///
/// sinew::run(|| {
///     let total = scope().all_succeed(|outer| {
///         let inner = scope().within(outer).collect_all(|group| {
///             group.spawn(|_| Outcome::<()>::failed())?;
///             Ok(1)
///         });
///         let (one, stats) = inner?;
///         assert_eq!(stats.failed, 1);
///         outer.spawn(|_| ())?;
///         Ok(one + 1)
///     });
///     assert_eq!(total.unwrap(), 2);
/// });
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[must_use = "a scope does nothing before its rule is chosen"]
pub struct ScopeBuilder<'a> {
    limit: usize,
    deadline_ns: Option<u64>,
    parent: Option<&'a TaskGroup>,
}

/// A scope, to be told its limit, deadline and rule. See [`ScopeBuilder`].
pub fn scope<'a>() -> ScopeBuilder<'a> {
    ScopeBuilder::default()
}

/// What cancels the group at the deadline, while it is kept.
struct Alarm {
    /// Whether it has: whether the deadline passed while not everything had ended.
    rang: Arc<AtomicBool>,
    _ring: Registration,
    token: CancelToken,
}

/// How the wait for the end went.
enum Waited {
    /// As it should.
    Ended,
    /// The deadline passed.
    Late,
    /// The caller was cancelled.
    Cancelled,
    /// The caller itself was to run some of it.
    Refused,
}

impl<'a> ScopeBuilder<'a> {
    /// How many items may be active at a time; 0: any number.
    ///
    /// One that would be too many is refused (`is_again` of the error), not waited for: a limit against too much work. To have
    /// each wait for its turn, let it begin by [`Semaphore::acquire`](crate::sync::Semaphore::acquire).
    pub fn limit(mut self, items: usize) -> Self {
        self.limit = items;
        self
    }

    /// Cancels the group when this time is over, and fails the scope with `Timeout`; not if everything has ended by then.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.deadline_ns = Some(clock::after_ns(timeout));
        self
    }

    /// The same at an instant.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline_ns = Some(clock::instant_ns(deadline));
        self
    }

    /// Makes the group a child of this one.
    pub fn within(mut self, parent: &'a TaskGroup) -> Self {
        self.parent = Some(parent);
        self
    }

    /// Every item has to succeed. The first that does not cancels the others; so do a failure and a panic of `body`.
    ///
    /// # Suspends
    ///
    /// Until everything in the group has ended.
    ///
    /// # Errors
    ///
    /// With that of `body`; the first failure of an item; `Cancelled` if one was cancelled, or the caller was; `Closed` if a producer went
    /// without a word, or the parent is closed; `Timeout`; `State` where nothing may wait, and `body` was not called then.
    ///
    /// # Panics
    ///
    /// With the panic of `body`, when everything has ended.
    #[track_caller]
    pub fn all_succeed<R>(
        self,
        body: impl FnOnce(&TaskGroup) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let group = self.group(CancelOn::STOPPED)?;
        let (value, waited) = self.run(&group, || body(&group));
        // An item's failure may be why the closure failed: it is the one to tell of.
        if let Some(error) = group.first_error() {
            return Err(error);
        }
        let value = waited.check(value)?;
        let stats = group.stats();
        if stats.closed != 0 {
            return Err(Error::new(ErrorKind::Closed, "a producer is gone"));
        }
        if stats.cancelled != 0 {
            return Err(Error::new(ErrorKind::Cancelled, "a task was cancelled"));
        }
        Ok(value)
    }

    /// The first item in the race that succeeds is the result, and cancels the others. Failures are waited out.
    ///
    /// # Suspends
    ///
    /// Until everything in the group has ended.
    ///
    /// # Errors
    ///
    /// If none succeeded: with that of `body`, `Timeout` or `Cancelled` if that is why, else with the first failure, or with `Closed` if
    /// there was nothing in the race; `State` where nothing may wait, and `body` was not called then.
    ///
    /// # Panics
    ///
    /// With the panic of `body`, when everything has ended.
    #[track_caller]
    pub fn first_success<T: Send + Sync + 'static>(
        self,
        body: impl FnOnce(&TaskGroup, &Race<T>) -> Result<(), Error>,
    ) -> Result<SharedFuture<T>, Error> {
        let group = self.group(CancelOn::NEVER)?;
        let race = Race {
            first: Arc::new(OnceLock::new()),
            entered: Mutex::new(Vec::new()),
            won: group.cancel_token(),
        };
        let (value, waited) = self.run(&group, || body(&group, &race));
        if let Some(first) = race.winner() {
            return Ok(first);
        }
        waited.check(value)?;
        Err(group
            .first_error()
            .unwrap_or_else(|| Error::new(ErrorKind::Closed, "nothing in the race succeeded")))
    }

    /// Every item is waited for, however it ends. The counts say how they did.
    ///
    /// # Suspends
    ///
    /// Until everything in the group has ended.
    ///
    /// # Errors
    ///
    /// With that of `body`, which cancels the group; `Timeout`; `Cancelled` if the caller was; `State` where nothing may wait, and
    /// `body` was not called then.
    ///
    /// # Panics
    ///
    /// With the panic of `body`, when everything has ended.
    #[track_caller]
    pub fn collect_all<R>(
        self,
        body: impl FnOnce(&TaskGroup) -> Result<R, Error>,
    ) -> Result<(R, GroupStats), Error> {
        let group = self.group(CancelOn::NEVER)?;
        let (value, waited) = self.run(&group, || body(&group));
        let value = waited.check(value)?;
        Ok((value, group.stats()))
    }

    fn group(&self, cancel_on: CancelOn) -> Result<TaskGroup, Error> {
        Waiting::new(None)?;
        let builder = TaskGroupBuilder::new()
            .limit(self.limit)
            .cancel_on(cancel_on);
        Ok(match self.parent {
            Some(parent) => parent.child(&builder)?,
            None => builder.build(),
        })
    }

    /// Cancels the group at the deadline, while what comes back is kept.
    fn alarm(&self, group: &TaskGroup) -> Option<Alarm> {
        let alarm = CancelToken::with_deadline(clock::to_instant(self.deadline_ns?));
        let (late, end) = (group.cancel_token(), group.done());
        let rang = Arc::new(AtomicBool::new(false));
        let rings = rang.clone();
        let ring = alarm.on_cancel(move |_| {
            // A deadline that passes when everything has ended is kept.
            if !end.is_done() {
                rings.store(true, Relaxed);
                late.cancel("the scope's deadline passed");
            }
        });
        // One that has passed already rings here: nobody else listens yet.
        let _rings = alarm.is_cancelled();
        Some(Alarm {
            rang,
            _ring: ring,
            token: alarm,
        })
    }

    /// Runs the closure, and waits until nothing of the group is active, whatever happens meanwhile.
    fn run<R>(
        &self,
        group: &TaskGroup,
        body: impl FnOnce() -> Result<R, Error>,
    ) -> (Result<R, Error>, Waited) {
        let alarm = self.alarm(group);
        let value = catch_unwind(AssertUnwindSafe(body));
        if !matches!(value, Ok(Ok(_))) {
            group.cancel("the scope's closure failed");
        }
        // A forced unwind may come out of the wait: it goes on when I1 holds.
        let waited = catch_unwind(AssertUnwindSafe(|| {
            // A deadline that has passed by now rings now: the group has not ended, as it is open.
            let _rings = alarm
                .as_ref()
                .is_some_and(|alarm| alarm.token.is_cancelled());
            group.wait()
        }));
        if !matches!(waited, Ok(Ok(()))) {
            group.cancel("the scope's caller was cancelled");
            // I1.
            let ended = shield(|| group.wait());
            debug_assert!(
                matches!(ended, Ok(()) | Err(WaitError::State)),
                "where a scope begins it may wait"
            );
        }
        let waited = match waited {
            Ok(Ok(())) => Waited::Ended,
            Ok(Err(WaitError::Timeout)) => Waited::Late,
            Ok(Err(WaitError::State)) => Waited::Refused,
            Ok(Err(_)) => Waited::Cancelled,
            Err(forced) => resume_unwind(value.err().unwrap_or(forced)),
        };
        let is_late = alarm.is_some_and(|alarm| alarm.rang.load(Relaxed));
        let waited = if is_late { Waited::Late } else { waited };
        match value {
            Ok(value) => (value, waited),
            Err(payload) => resume_unwind(payload),
        }
    }
}

impl Waited {
    /// What a closure came to whose group ended so.
    fn check<R>(self, value: Result<R, Error>) -> Result<R, Error> {
        match self {
            Self::Late => Err(Error::new(
                ErrorKind::Timeout,
                "the scope's deadline passed",
            )),
            Self::Cancelled if value.is_ok() => Err(WaitError::Cancelled.into()),
            Self::Refused if value.is_ok() => Err(WaitError::State.into()),
            Self::Ended | Self::Cancelled | Self::Refused => value,
        }
    }
}

/// Who of a scope is in the race for the first success.
pub struct Race<T> {
    first: Arc<OnceLock<SharedFuture<T>>>,
    /// All of them: the group may be done before the callback of the winner was called.
    entered: Mutex<Vec<SharedFuture<T>>>,
    /// Cancels the group.
    won: CancelToken,
}

impl<T: Send + Sync + 'static> Race<T> {
    /// Puts a future of the scope's group into the race.
    pub fn enter(&self, future: &SharedFuture<T>) {
        // Where it is done the callback is called here.
        if !future.is_done() {
            self.lock().push(future.clone());
        }
        let (first, won) = (self.first.clone(), self.won.clone());
        let this = future.clone();
        future.on_done(move |result| {
            if result.is_ok() && first.set(this).is_ok() {
                won.cancel("another one was first");
            }
        });
    }

    /// The first success, when the group is done.
    fn winner(&self) -> Option<SharedFuture<T>> {
        if let Some(first) = self.first.get() {
            return Some(first.clone());
        }
        let succeeded = |one: &&SharedFuture<T>| one.state() == PromiseState::Resolved;
        if let Some(one) = self.lock().iter().find(succeeded) {
            // Whoever is faster, it is the first now.
            let _other = self.first.set(one.clone());
        }
        self.first.get().cloned()
    }
}

impl<T> Race<T> {
    fn lock(&self) -> MutexGuard<'_, Vec<SharedFuture<T>>> {
        // No code of the user's runs under it.
        self.entered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for Race<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Race")
            .field("is_won", &self.first.get().is_some())
            .finish_non_exhaustive()
    }
}
