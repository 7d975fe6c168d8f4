//! Promises: the two sides of a value to come.
//!
//! Owns: the shared part, which the references count. The place for the value is `sinew_core`'s `RawPromise`. Any thread.
//!
//! Invariants
//! - I1. It is pending, then exactly one of resolved, failed, cancelled and closed, for good.
//! - I2. While it is pending, a [`Promise`] exists: the last one that goes closes it.
//! - I3. The value is dropped once: with the last reference, by who takes it out, or by the caller whom it came back to.
#![expect(
    unsafe_code,
    reason = "shares a value between threads by its own rules; completes alone where it is the only one that can"
)]

use std::error::Error as StdError;
use std::future::{Future, IntoFuture};
use std::mem::{self, ManuallyDrop};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{fmt, io};

use sinew_core::sync::{Callbacks, RawPromise};
use sinew_core::wait::{Kind, Polled};

use super::callback::{Callback, callback};
use super::counted::Counted;
use super::end::{Begun, EndRecord, Filled, STATE_MASK};
use super::own::OwnWait;
use crate::cancel::shield;
use crate::cancel::{CancelToken, Cause, Registration};
use crate::coroutine::TaskEstate;
use crate::error::{Cancelled, Closed, Error, ErrorKind, WaitError};
use crate::scheduler::crew::{Need, Progress};
use crate::scheduler::waiting::{Deaf, Waiting};
use crate::scheduler::{current, unhandled};
use crate::sync::select::{self, FutureArm};
use crate::sys::clock;

/// Why a promise came to no value.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum TaskError {
    /// It failed with this error.
    Failed(Error),
    /// Its producer stopped because it was asked to, or did not begin.
    Cancelled,
    /// Its producer went without a word.
    Closed,
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Cancelled => f.write_str("the task was cancelled"),
            Self::Closed => f.write_str("the producer is gone"),
        }
    }
}

impl StdError for TaskError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Failed(error) => error.source(),
            Self::Cancelled | Self::Closed => None,
        }
    }
}

impl From<Error> for TaskError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Cancelled> for TaskError {
    fn from(_: Cancelled) -> Self {
        Self::Cancelled
    }
}

impl From<Closed> for TaskError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<TaskError> for Error {
    #[track_caller]
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Failed(error) => error,
            TaskError::Cancelled => Self::new(ErrorKind::Cancelled, "the task was cancelled"),
            TaskError::Closed => Self::new(ErrorKind::Closed, "the producer is gone"),
        }
    }
}

impl From<&TaskError> for Error {
    /// What was lent, cloned: for `?` behind [`SharedFuture::get`].
    #[track_caller]
    fn from(error: &TaskError) -> Self {
        error.clone().into()
    }
}

/// How far a promise is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum PromiseState {
    /// Nothing has come yet.
    Pending = 0,
    /// The value is there.
    Resolved = 1,
    /// It failed with an error.
    Failed = 2,
    /// It was cancelled.
    Cancelled = 3,
    /// The last [`Promise`] went without a word.
    Closed = 4,
}

impl PromiseState {
    /// Whether it has ended.
    #[must_use]
    pub const fn is_done(self) -> bool {
        !matches!(self, Self::Pending)
    }

    fn from_end(end: Option<u8>) -> Self {
        match end.map(|end| end & STATE_MASK) {
            None => Self::Pending,
            Some(1) => Self::Resolved,
            Some(2) => Self::Failed,
            Some(3) => Self::Cancelled,
            Some(_) => Self::Closed,
        }
    }

    fn of<T>(result: &Result<T, TaskError>) -> Self {
        match result {
            Ok(_) => Self::Resolved,
            Err(TaskError::Failed(_)) => Self::Failed,
            Err(TaskError::Cancelled) => Self::Cancelled,
            Err(TaskError::Closed) => Self::Closed,
        }
    }
}

struct Inner<T> {
    raw: RawPromise<Filled<T>, Callback<T>>,
    /// How many [`Promise`]s there are.
    producers: AtomicUsize,
    /// Whether someone has seen the error.
    looked: AtomicBool,
    /// The token of cancel requests, made when someone first asks for it.
    token: OnceLock<CancelToken>,
    /// The executor that is to bring the value, as an identity; 0 if that is not known.
    executor: AtomicUsize,
}

impl<T> Inner<T> {
    fn new(token: OnceLock<CancelToken>) -> Self {
        Self {
            raw: RawPromise::new(),
            producers: AtomicUsize::new(1),
            looked: AtomicBool::new(false),
            token,
            executor: AtomicUsize::new(0),
        }
    }

    fn identity(&self) -> *const () {
        ptr::from_ref(self).cast()
    }

    fn state(&self) -> PromiseState {
        PromiseState::from_end(self.raw.end())
    }

    fn get(&self) -> Option<Result<&T, &TaskError>> {
        let result = &self.raw.get()?.result;
        if result.is_err() {
            self.looked.store(true, Relaxed);
        }
        Some(result.as_ref())
    }

    /// Who asked to stop, if anyone has so far.
    fn requested(&self) -> Option<Cause> {
        let token = self.token.get()?;
        token.has_fired().then(|| token.cause()).flatten()
    }

    /// What the place is filled with: who asked to stop by now is part of it, and nobody after that.
    #[inline]
    fn filled(&self, result: Result<T, TaskError>) -> Filled<T> {
        let cause = match self.token.get() {
            None => None,
            Some(_) => self.requested().map(Box::new),
        };
        Filled { result, cause }
    }

    /// What follows a completion.
    #[inline]
    fn call(&self, callbacks: Callbacks<Callback<T>>) {
        for callback in callbacks {
            self.call_one(callback);
        }
    }

    /// Calls a callback after the end.
    #[cold]
    fn call_one(&self, callback: Callback<T>) {
        let Some(result) = self.get() else { return };
        if callback.is_own() {
            // PERF: 20 of the 160 ns that an item of a group took.
            return callback.call(result);
        }
        let called = catch_unwind(AssertUnwindSafe(|| {
            current::without_waits(|| callback.call(result));
        }));
        if let Err(payload) = called {
            unhandled::report_contained(0, payload);
        }
    }
}

impl<T> Drop for Inner<T> {
    fn drop(&mut self) {
        if !*self.looked.get_mut()
            && let Some(filled) = self.raw.get()
            && let Err(TaskError::Failed(error)) = &filled.result
        {
            unhandled::report_error(0, &io::Error::from(error.clone()));
        }
    }
}

/// The side of a value to come that brings it. Clones bring the same one: the first to complete it wins.
///
/// When the last one is dropped and nothing was brought, the promise is closed.
///
/// # Examples
///
/// ```
/// use sinew::future::Promise;
///
/// let (promise, future) = Promise::new();
/// std::thread::spawn(move || promise.resolve(42));
/// sinew::run(|| {
///     future.wait().unwrap();
///     assert_eq!(future.get().unwrap().unwrap(), &42);
/// });
/// ```
pub struct Promise<T> {
    inner: Counted<Inner<T>>,
}

// SAFETY: what it does with the value is to bring it, and perhaps to drop it. That another thread reads it meanwhile
// takes a `SharedFuture` there, which is only sent where `T: Sync`.
unsafe impl<T: Send> Send for Promise<T> {}
// SAFETY: as above: a shared one gives no way to the value but a `SharedFuture`, see `Promise::future`.
unsafe impl<T: Send> Sync for Promise<T> {}

impl<T> Promise<T> {
    /// The two sides of a value to come.
    #[must_use]
    pub fn new() -> (Self, SharedFuture<T>) {
        let (inner, second) = Counted::pair(Inner::new(OnceLock::new()));
        (Self { inner }, SharedFuture { inner: second })
    }

    /// The same, where a token of requests to stop may be there already, and something is kept beside the promise: see
    /// [`beside`](Self::beside).
    pub(crate) fn with_requests<X>(
        token: OnceLock<CancelToken>,
        beside: X,
    ) -> (Self, SharedFuture<T>) {
        let (inner, second) = Counted::pair_beside(Inner::new(token), beside);
        (Self { inner }, SharedFuture { inner: second })
    }

    /// What is kept beside the promise, for the one that uses it. Nobody else drops it.
    ///
    /// # Safety
    ///
    /// The promise was made with such a thing.
    pub(crate) unsafe fn beside<X>(&self) -> NonNull<X> {
        // SAFETY: as the caller says.
        unsafe { self.inner.beside() }
    }

    /// The promise as a pointer, for [`from_raw`](Self::from_raw).
    pub(crate) fn into_raw(self) -> NonNull<()> {
        let this = ManuallyDrop::new(self);
        // SAFETY: read once; `this` is not dropped.
        unsafe { ptr::read(&raw const this.inner) }.into_raw()
    }

    /// # Safety
    ///
    /// The pointer came from [`into_raw`](Self::into_raw) of this type, and makes one promise at a time.
    pub(crate) unsafe fn from_raw(raw: NonNull<()>) -> Self {
        Self {
            // SAFETY: as the caller says.
            inner: unsafe { Counted::from_raw(raw) },
        }
    }

    /// Brings the value. Who waits is woken; callbacks are called here.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    ///
    /// # Errors
    ///
    /// The value comes back if the promise has ended already.
    #[inline]
    pub fn resolve(self, value: T) -> Result<(), T> {
        match self.complete(Ok(value)) {
            Err(Ok(value)) => Err(value),
            Ok(()) | Err(Err(_)) => Ok(()),
        }
    }

    /// Says that there will be no value, and why.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    ///
    /// # Errors
    ///
    /// The error comes back if the promise has ended already.
    pub fn fail(self, error: impl Into<Error>) -> Result<(), Error> {
        match self.complete(Err(TaskError::Failed(error.into()))) {
            Err(Err(TaskError::Failed(error))) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Says that there will be no value because the producer was asked to stop. False if the promise has ended already.
    pub fn cancel(self) -> bool {
        self.complete(Err(TaskError::Cancelled)).is_ok()
    }

    /// Brings the one or the other.
    ///
    /// # Errors
    ///
    /// It comes back if the promise has ended already.
    #[inline]
    pub fn complete(self, result: Result<T, TaskError>) -> Result<(), Result<T, TaskError>> {
        self.complete_as(result, Begun::Unknown)
    }

    /// The same, of a task that has begun or not.
    #[inline]
    pub(crate) fn complete_as(
        self,
        result: Result<T, TaskError>,
        begun: Begun,
    ) -> Result<(), Result<T, TaskError>> {
        let inner = &*self.inner;
        let end = PromiseState::of(&result) as u8 | begun as u8;
        let filled = inner.filled(result);
        // ORDERING: Acquire pairs with the Release of a clone that went: what it did is seen.
        let callbacks = if inner.producers.load(Acquire) == 1 {
            // SAFETY: `self` is the only one that can complete it, it is here by value, and nobody can clone it.
            unsafe { inner.raw.complete_alone(filled, end) }
        } else {
            inner.raw.complete(filled, end)
        };
        inner.call(callbacks.map_err(|filled| filled.result)?);
        Ok(())
    }

    /// Whether someone asked to stop, by [`SharedFuture::cancel`].
    #[must_use]
    pub fn is_cancel_requested(&self) -> bool {
        self.inner
            .token
            .get()
            .is_some_and(CancelToken::is_cancelled)
    }

    /// The future as an identity.
    pub(crate) fn identity(&self) -> *const () {
        self.inner.identity()
    }

    /// The place of the token of requests to stop.
    pub(crate) fn requests(&self) -> &OnceLock<CancelToken> {
        &self.inner.token
    }

    /// The token that fires when someone asks to stop. It is for the producer to heed: nothing else happens.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        self.inner.token.get_or_init(CancelToken::new).clone()
    }

    /// How far it is. Other clones may change that.
    #[must_use]
    pub fn state(&self) -> PromiseState {
        self.inner.state()
    }

    /// One more reference to the value to come.
    #[must_use]
    pub fn future(&self) -> SharedFuture<T>
    where
        T: Sync,
    {
        SharedFuture {
            inner: self.inner.clone(),
        }
    }
}

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Self {
        self.inner.producers.fetch_add(1, Relaxed);
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<T> Drop for Promise<T> {
    #[inline]
    fn drop(&mut self) {
        let inner = &*self.inner;
        // ORDERING: Acquire, as in `complete`; the last one need not count down. Release: what this one did is before its end.
        let is_last =
            inner.producers.load(Acquire) == 1 || inner.producers.fetch_sub(1, AcqRel) == 1;
        if is_last && !inner.raw.is_claimed() {
            // Nobody is left to be faster.
            let filled = inner.filled(Err(TaskError::Closed));
            if let Ok(callbacks) = inner.raw.complete(filled, PromiseState::Closed as u8) {
                inner.call(callbacks);
            }
        }
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise")
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// The side of a value to come that waits for it. Clones share the value: it is lent, and dropped with the last reference.
///
/// To be waited for from coroutines and threads ([`wait`](Self::wait)), and awaited: `(&future).await` lends the value,
/// `future.await` clones it, or takes it out if this is the last reference.
///
/// An error that nobody has looked at goes to the unhandled hook ([`crate::inspect::on_unhandled`]), once, with the last reference.
pub struct SharedFuture<T> {
    inner: Counted<Inner<T>>,
}

// SAFETY: references on several threads read the value at once, and any may be the one that drops it.
unsafe impl<T: Send + Sync> Send for SharedFuture<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for SharedFuture<T> {}

impl<T> SharedFuture<T> {
    /// One that has ended already.
    #[must_use]
    pub fn ready(result: Result<T, TaskError>) -> Self {
        let (promise, future) = Promise::new();
        // A new promise has not ended.
        let _ = promise.complete(result);
        future
    }

    /// How far it is. An error that is only seen here still counts as not looked at.
    #[inline]
    #[must_use]
    pub fn state(&self) -> PromiseState {
        self.inner.state()
    }

    /// Whether it has ended.
    #[inline]
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.state().is_done()
    }

    /// The value, or why there is none; `None` while it is pending.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<Result<&T, &TaskError>> {
        self.inner.get()
    }

    /// Takes the value out, if it has ended and this is the last reference of all, promises included.
    ///
    /// # Errors
    ///
    /// The reference comes back if not.
    pub fn try_take(mut self) -> Result<Result<T, TaskError>, Self> {
        if self.is_done()
            && let Some(inner) = self.inner.get_mut()
            && let Some(filled) = inner.raw.take()
        {
            return Ok(filled.result);
        }
        Err(self)
    }

    /// Waits until it has ended.
    ///
    /// # Suspends
    ///
    /// Until then; on a plain thread it blocks the thread.
    ///
    /// # Cancellation
    ///
    /// Ends early; the promise is not touched. An end that is there wins.
    ///
    /// # Errors
    ///
    /// `Cancelled`; `State` on a scheduler's own frame, in a cleanup or in a callback, and where it is for the caller to bring it: in the task itself, and on the
    /// only worker of the pool that is to run it.
    pub fn wait(&self) -> Result<(), WaitError> {
        self.wait_until(None)
    }

    /// As [`SharedFuture::wait`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`SharedFuture::wait`]; `Timeout` when the time is up.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.wait_until(Some(clock::after_ns(timeout)))
    }

    /// As [`SharedFuture::wait`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`SharedFuture::wait`]; `Timeout` at the deadline.
    pub fn wait_deadline(&self, deadline: Instant) -> Result<(), WaitError> {
        self.wait_until(Some(clock::instant_ns(deadline)))
    }

    /// As [`SharedFuture::wait`], where `token` ends the wait too. It does nothing else: the promise is not touched.
    ///
    /// # Errors
    ///
    /// As [`SharedFuture::wait`]; `Cancelled` when `token` fires.
    pub fn wait_cancel(&self, token: &CancelToken) -> Result<(), WaitError> {
        if self.is_done() {
            return Ok(());
        }
        if self.is_for_caller() {
            return Err(WaitError::State);
        }
        if self.is_done() {
            return Ok(());
        }
        let (end, fired) = (self.wait_arm(), token.wait_arm());
        match select::wait_for(&[&end, &fired]) {
            // One that has ended meanwhile counts.
            _ if self.is_done() => Ok(()),
            Ok(_) => Err(WaitError::Cancelled),
            Err(error) => Err(error),
        }
    }

    /// An arm of a select that waits until it has ended: `r = future.wait()` in [`select!`](crate::select!).
    #[must_use]
    pub fn wait_arm(&self) -> FutureArm<'_, T> {
        FutureArm::new(self.inner.raw.arm(), self.executor())
    }

    /// The executor that is to bring it, as an identity; 0 if that is not known.
    pub(crate) fn executor(&self) -> usize {
        self.inner.executor.load(Relaxed)
    }

    /// The future as an identity.
    pub(crate) fn identity(&self) -> *const () {
        self.inner.identity()
    }

    /// Whether it is the caller who would have to bring it, so that a wait for it would never end. What can be ended here and
    /// now, because it was asked to stop, is.
    fn is_for_caller(&self) -> bool {
        let is_own = || {
            current::is_sole_worker_of(self.executor()) || TaskEstate::is_task_of(self.identity())
        };
        if !is_own() {
            return false;
        }
        current::purge_own_jobs();
        !self.is_done()
    }

    /// Waits for the end of a thread, which closes this one, before that is joined: in a coroutine by suspending; on a thread that others may
    /// wait for, and be its code where nothing may wait, so that they see it. No cancel ends it.
    pub(crate) fn wait_for_thread(&self, need: &impl Need) {
        if current::with_scheduler(|_| ()).is_some() {
            // Other coroutines go on meanwhile.
            let _waited = shield(|| self.wait());
        }
        if self.is_done() || current::place_in_crew().is_null() {
            return;
        }
        let waiting = Waiting::blocking();
        let wait = || self.inner.raw.wait(&Deaf(&waiting));
        let _woken = current::awaiting_blocked(Kind::Drain, need, wait);
    }

    fn wait_until(&self, deadline_ns: Option<u64>) -> Result<(), WaitError> {
        if self.is_done() {
            return Ok(());
        }
        if self.is_for_caller() {
            // Nobody would be left to bring it.
            return Err(WaitError::State);
        }
        let waiting = Waiting::new(deadline_ns)?;
        let wait = || self.inner.raw.wait(&waiting);
        let waited = match self.executor() {
            0 => wait(),
            executor => current::awaiting(Kind::Future, &Progress(executor), wait),
        };
        match waited {
            Ok(()) => Ok(()),
            // One that has ended meanwhile counts.
            Err(_) if self.is_done() => Ok(()),
            Err(reason) => waiting.result(reason),
        }
    }

    /// Waits until it has ended, as a future. Polling it suspends nothing, and may be done anywhere.
    pub fn wait_async(&self) -> PromiseWait<'_, T> {
        PromiseWait {
            future: self,
            own: OwnWait::default(),
            party: Polled::new(super::call),
        }
    }

    /// Asks the producer to stop. That is a wish: how the promise ends is for the producer to say. What the first call gave
    /// as the reason stands.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    #[track_caller]
    pub fn cancel(&self, reason: impl Into<String>) {
        if !self.is_done() {
            self.cancel_because(Cause::now(reason.into()));
        }
    }

    /// As [`cancel`](Self::cancel), for a cause that came about elsewhere.
    pub(crate) fn cancel_because(&self, cause: Cause) {
        if !self.is_done() {
            self.inner.token.get_or_init(CancelToken::new).fire(cause);
        }
    }

    /// Who asked the producer to stop, from where, when and why, if anyone did before the end.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        match self.inner.raw.get() {
            Some(filled) => filled.cause.as_deref().cloned(),
            None => self.inner.requested(),
        }
    }

    /// All there is to say of the end but the value; `None` while it is pending. It was decided once, and is the same whoever asks.
    ///
    /// An error that is read here counts as looked at.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::future::PromiseState;
    /// use sinew::task::{Outcome, Task};
    ///
    /// let (task, future) = Task::new(|_| Outcome::Success(1));
    /// future.cancel("not needed");
    /// task.run();
    /// let end = future.end().unwrap();
    /// assert_eq!((end.state, end.has_started), (PromiseState::Cancelled, Some(false)));
    /// let cause = end.cause.unwrap();
    /// assert_eq!(&*cause.reason, "not needed");
    /// assert!(cause.from.unwrap().line() > 0);
    /// ```
    #[must_use]
    pub fn end(&self) -> Option<EndRecord> {
        let end = self.inner.raw.end()?;
        let error = match self.inner.get()? {
            Err(TaskError::Failed(error)) => Some(error.clone()),
            _ => None,
        };
        Some(EndRecord {
            state: self.state(),
            has_started: Begun::of_end(end),
            error,
            cause: self.cause(),
        })
    }

    /// Says who is to bring the value.
    pub(crate) fn set_executor(&self, executor: *const ()) {
        self.inner.executor.store(executor.addr(), Relaxed);
    }

    /// Calls `f` once when it has ended, on the thread that ends it; here, at once, if it has ended already. Callbacks are called in
    /// the order in which they were left.
    ///
    /// `f` should be short. It must not wait (that fails with `State`), and a panic of it goes to the unhandled hook.
    pub fn on_done(&self, f: impl FnOnce(Result<&T, &TaskError>) + Send + 'static)
    where
        T: Send + Sync + 'static,
    {
        self.on_done_with(callback(f));
    }

    /// Asks the producer to stop when `token` fires, as long as the registration is kept.
    pub(super) fn cancel_with(&self, token: &CancelToken) -> Registration
    where
        T: Send + Sync + 'static,
    {
        let future = self.clone();
        token.on_cancel(move |cause| future.cancel_because(cause.clone()))
    }

    /// As [`on_done`](Self::on_done), allocating nothing.
    pub(crate) fn on_done_with(&self, callback: Callback<T>) {
        if let Err(callback) = self.inner.raw.add_callback(callback) {
            self.inner.call_one(callback);
        }
    }

    /// The token of the requests to stop.
    pub(super) fn cancel_token(&self) -> CancelToken {
        self.inner.token.get_or_init(CancelToken::new).clone()
    }
}

impl<T> Clone for SharedFuture<T> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<T> fmt::Debug for SharedFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedFuture")
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// The end of a promise, lent. Made by [`SharedFuture::wait_async`] and by awaiting a `&SharedFuture`.
#[must_use = "a future does nothing unless it is polled"]
pub struct PromiseWait<'a, T> {
    future: &'a SharedFuture<T>,
    own: OwnWait,
    party: Polled<()>,
}

impl<'a, T> Future for PromiseWait<'a, T> {
    type Output = Result<&'a T, &'a TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        poll_result(this.future, &mut this.party, &mut this.own, context)
    }
}

fn poll_result<'a, T>(
    future: &'a SharedFuture<T>,
    party: &mut Polled<()>,
    own: &mut OwnWait,
    context: &Context<'_>,
) -> Poll<Result<&'a T, &'a TaskError>> {
    match future.inner.raw.poll_wait(party, context.waker()) {
        Poll::Ready(()) => future.get().map_or(Poll::Pending, Poll::Ready),
        Poll::Pending => {
            own.note(future.executor(), context.waker());
            Poll::Pending
        }
    }
}

impl<T> Drop for PromiseWait<'_, T> {
    fn drop(&mut self) {
        self.own.forget();
        self.future.inner.raw.leave_wait(&mut self.party);
    }
}

impl<T> fmt::Debug for PromiseWait<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromiseWait").finish_non_exhaustive()
    }
}

impl<'a, T> IntoFuture for &'a SharedFuture<T> {
    type Output = Result<&'a T, &'a TaskError>;
    type IntoFuture = PromiseWait<'a, T>;

    fn into_future(self) -> PromiseWait<'a, T> {
        self.wait_async()
    }
}

/// The end of a promise, taken out or cloned. Made by awaiting a [`SharedFuture`].
#[must_use = "a future does nothing unless it is polled"]
pub struct PromiseFuture<T> {
    future: Option<SharedFuture<T>>,
    own: OwnWait,
    party: Polled<()>,
}

impl<T: Clone> Future for PromiseFuture<T> {
    type Output = Result<T, TaskError>;

    /// # Panics
    ///
    /// If it was ready before.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let future = this
            .future
            .as_ref()
            .expect("a future is not polled after its end");
        if poll_result(future, &mut this.party, &mut this.own, context).is_pending() {
            return Poll::Pending;
        }
        let future = this.future.take().expect("it was there before");
        Poll::Ready(future.try_take().unwrap_or_else(|future| {
            future.get().map_or(Err(TaskError::Closed), |result| {
                result.cloned().map_err(TaskError::clone)
            })
        }))
    }
}

impl<T> Unpin for PromiseFuture<T> {}

impl<T> Drop for PromiseFuture<T> {
    fn drop(&mut self) {
        self.own.forget();
        if let Some(future) = mem::take(&mut self.future) {
            future.inner.raw.leave_wait(&mut self.party);
        }
    }
}

impl<T> fmt::Debug for PromiseFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromiseFuture")
            .field("future", &self.future)
            .finish_non_exhaustive()
    }
}

impl<T: Clone> IntoFuture for SharedFuture<T> {
    type Output = Result<T, TaskError>;
    type IntoFuture = PromiseFuture<T>;

    fn into_future(self) -> PromiseFuture<T> {
        PromiseFuture {
            future: Some(self),
            own: OwnWait::default(),
            party: Polled::new(super::call),
        }
    }
}
