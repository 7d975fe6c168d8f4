//! The group: futures of any origin that are closed, cancelled and waited for together.
//!
//! Owns: the counts, and the promise of the end; of an item its seat, while it is pending. Any thread.
//!
//! Invariants
//! - I1. accepted = active + completed, and completed is the sum of the ends, whenever the lock is free.
//! - I2. Each place that is reserved is committed or given back, once.
//! - I3. The end is there when the group is closed, nothing is active and nothing reserved; it stays so.
//! - I4. No code of the user's, and no completion, runs under the lock.
//! - I5. Whoever has a place has the memory for its item: to commit allocates nothing.

mod policy;
mod room;
mod seat;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sinew_core::wait::Kind;

use crate::cancel::{CancelToken, Cause, Registration};
use crate::error::{Error, ErrorKind, WaitError};
use crate::future::{Callback, Promise, PromiseState, SharedFuture, TaskError};
use crate::scheduler::crew::{Caller, Need, Standing};
use crate::scheduler::{current, unhandled};

pub use policy::{CancelOn, TaskGroupBuilder};

/// In how many groups, one in the other, is looked for what holds a wait up.
const NESTED_MAX: u32 = 64;

use room::Room;
use seat::{Seat, Seats};

/// Futures that belong together. They may come from pools, coroutines, promises or anything else.
///
/// A group that is dropped is closed and cancelled; what is active in it ends when its producer says so.
///
/// # Examples
///
/// ```
/// use sinew::task::{CancelOn, Outcome, TaskGroup, TaskPool};
///
/// let pool = TaskPool::builder().threads(2).build().unwrap();
/// let group = TaskGroup::builder().limit(8).cancel_on(CancelOn::FAILED).build();
/// for n in 0..4_u64 {
///     group.submit(&pool, move |_| Outcome::Success(n * n)).unwrap();
/// }
/// group.wait().unwrap();
/// assert_eq!(group.stats().succeeded, 4);
/// ```
pub struct TaskGroup {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    state: Mutex<State>,
    limit: usize,
    cancel_on: CancelOn,
    /// Fires when the group is cancelled.
    token: CancelToken,
    /// Has those that are active asked when the token fires.
    asking: OnceLock<Registration>,
    /// Fires when the group is closed: for its child groups.
    closing: CancelToken,
    done: SharedFuture<()>,
}

struct State {
    stats: GroupStats,
    /// Who has a place that is reserved: a party for each.
    starters: Vec<u64>,
    seats: Seats,
    first_error: Option<Error>,
    /// Until the end is there.
    done: Option<Promise<()>>,
}

/// A group's counts, all of one moment.
///
/// At any time `accepted = active + completed`, and `completed` is the sum of the four ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupStats {
    /// Items that are pending.
    pub active: usize,
    /// Items that were taken in so far.
    pub accepted: u64,
    /// Of those, the ones that have ended.
    pub completed: u64,
    /// Of those, the ones that resolved.
    pub succeeded: u64,
    /// And those that failed.
    pub failed: u64,
    /// And those that were cancelled.
    pub cancelled: u64,
    /// And those whose producer went without a word.
    pub closed: u64,
    /// Items that were not taken in.
    pub rejected: u64,
    /// The first end that was not a success.
    pub first_stopped: Option<PromiseState>,
    /// Whether nothing is taken in any more.
    pub is_closed: bool,
    /// Whether the group was cancelled.
    pub is_cancelled: bool,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPlace {
    Closed,
    Full,
    NoMemory,
}

impl NoPlace {
    pub(super) fn kind(self) -> ErrorKind {
        match self {
            Self::Closed => ErrorKind::Closed,
            Self::Full => ErrorKind::Again,
            Self::NoMemory => ErrorKind::NoMemory,
        }
    }
}

/// A reserved place, with all the memory that it takes. Dropping it gives it back.
pub(super) struct Place<'a, T> {
    group: &'a Arc<Shared>,
    /// Who reserved it.
    starter: u64,
    /// Until it is committed.
    room: Option<Room<Seat<T>>>,
}

impl<T: Send + Sync + 'static> Place<'_, T> {
    /// Takes the future in. This cannot fail, and allocates nothing.
    pub(super) fn commit(self, future: &SharedFuture<T>) {
        self.commit_with(future, None);
    }

    /// The same, where it may be the end of this group.
    fn commit_with(mut self, future: &SharedFuture<T>, child: Option<Arc<Shared>>) {
        let Some(room) = self.room.take() else {
            return;
        };
        let group = self.group;
        let seat = {
            let mut state = group.lock();
            state.forget_starter(self.starter);
            group.seat(&mut state, room, future, child)
        };
        group.leave_at(future, seat);
    }
}

impl<T> Drop for Place<'_, T> {
    fn drop(&mut self) {
        if self.room.take().is_none() {
            return;
        }
        let mut state = self.group.lock();
        state.forget_starter(self.starter);
        state.stats.rejected += 1;
        let done = state.take_done();
        drop(state);
        finish(done);
    }
}

impl State {
    /// The promise of the end, if that is there now.
    fn take_done(&mut self) -> Option<Promise<()>> {
        let is_over = self.stats.is_closed && self.stats.active == 0 && self.starters.is_empty();
        is_over.then(|| self.done.take()).flatten()
    }

    /// One of its places is committed or given back.
    fn forget_starter(&mut self, starter: u64) {
        let place = self.starters.iter().rposition(|&one| one == starter);
        if let Some(place) = place {
            self.starters.swap_remove(place);
        }
    }

    /// Counts an end; says which it is.
    fn count(&mut self, error: Option<&TaskError>) -> PromiseState {
        let stats = &mut self.stats;
        stats.active -= 1;
        stats.completed += 1;
        let (end, counter) = match error {
            None => (PromiseState::Resolved, &mut stats.succeeded),
            Some(TaskError::Failed(_)) => (PromiseState::Failed, &mut stats.failed),
            Some(TaskError::Cancelled) => (PromiseState::Cancelled, &mut stats.cancelled),
            Some(TaskError::Closed) => (PromiseState::Closed, &mut stats.closed),
        };
        *counter += 1;
        if end != PromiseState::Resolved {
            stats.first_stopped.get_or_insert(end);
        }
        if let Some(TaskError::Failed(error)) = error {
            self.first_error.get_or_insert_with(|| error.clone());
        }
        end
    }
}

impl Need for Shared {
    fn blocker(&self, standing: &dyn Standing) -> Option<usize> {
        self.blocker_within(standing, NESTED_MAX)
    }
}

fn finish(done: Option<Promise<()>>) {
    if let Some(promise) = done {
        // Nobody else has it.
        let _first = promise.resolve(());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // I4: a panic cannot leave it half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn reserve<T>(self: &Arc<Self>) -> Result<Place<'_, T>, NoPlace> {
        let room = Room::try_new();
        let starter = current::party_number();
        let mut state = self.lock();
        let room = room.filter(|_| state.starters.try_reserve(1).is_ok());
        let room = self.check_place(&mut state, room)?;
        state.starters.push(starter);
        Ok(Place {
            group: self,
            starter,
            room: Some(room),
        })
    }

    /// The token of all that is in the group.
    pub(super) fn token(&self) -> &CancelToken {
        &self.token
    }

    /// Asks all that are active to stop.
    fn ask_all(&self, cause: &Cause) {
        loop {
            let next = self.lock().seats.next_to_ask();
            let Some(next) = next else { return };
            next.ask(cause.clone());
        }
    }

    /// Takes the future in, where nothing is to be started: both steps in one.
    fn add<T: Send + Sync + 'static>(
        self: &Arc<Self>,
        future: &SharedFuture<T>,
    ) -> Result<(), NoPlace> {
        let room = Room::try_new();
        let mut state = self.lock();
        let room = self.check_place(&mut state, room)?;
        let seat = self.seat(&mut state, room, future, None);
        drop(state);
        self.leave_at(future, seat);
        Ok(())
    }

    /// Whether there is a place for an item whose memory this is.
    fn check_place<R>(&self, state: &mut State, room: Option<R>) -> Result<R, NoPlace> {
        let no_place = if state.stats.is_closed {
            NoPlace::Closed
        } else if state.stats.active + state.starters.len() >= self.limit {
            NoPlace::Full
        } else {
            match room {
                Some(room) => return Ok(room),
                None => NoPlace::NoMemory,
            }
        };
        state.stats.rejected += 1;
        Err(no_place)
    }

    /// Takes a seat, which is to be left at the future when the lock is given back.
    fn seat<T: Send + Sync + 'static>(
        self: &Arc<Self>,
        state: &mut State,
        room: Room<Seat<T>>,
        future: &SharedFuture<T>,
        child: Option<Arc<Self>>,
    ) -> Callback<T> {
        state.stats.active += 1;
        state.stats.accepted += 1;
        Seat::take(room, (future, child), self, &mut state.seats)
    }

    /// The last step, without the lock.
    fn leave_at<T: Send + Sync + 'static>(&self, future: &SharedFuture<T>, seat: Callback<T>) {
        // Who fires the token after this look finds the seat; if it was fired before nobody may.
        if self.token.has_fired()
            && let Some(cause) = self.token.cause()
        {
            future.cancel_because(cause);
        }
        future.on_done_with(seat);
    }

    /// Waits for the end, unless that is the caller's to bring.
    fn wait(
        &self,
        wait: impl FnOnce(&SharedFuture<()>) -> Result<(), WaitError>,
    ) -> Result<(), WaitError> {
        if self.is_for_caller() {
            // What was asked to stop can be ended here.
            current::purge_own_jobs();
            if self.is_for_caller() {
                return Err(WaitError::State);
            }
        }
        current::awaiting(Kind::Future, self, || wait(&self.done))
    }

    fn is_for_caller(&self) -> bool {
        if self.done.is_done() {
            return false;
        }
        if current::has_duties() {
            return self.blocker(&Caller).is_some();
        }
        let caller = current::party_number();
        self.lock().starters.contains(&caller)
    }

    /// As [`Need::blocker`], within so many groups at most.
    fn blocker_within(&self, standing: &dyn Standing, depth: u32) -> Option<usize> {
        let depth = depth.checked_sub(1)?;
        let state = self.lock();
        let mut starters = state.starters.iter();
        starters
            .find_map(|&starter| standing.party(starter))
            .or_else(|| state.seats.blocker(standing, depth))
    }

    /// An item has ended, and leaves its seat. Nothing waits here, and nothing unwinds.
    fn ended(&self, error: Option<&TaskError>, leave: impl FnOnce(&mut Seats)) {
        let mut state = self.lock();
        leave(&mut state.seats);
        let end = state.count(error);
        let stops = self.cancel_on.has(end) && !state.stats.is_cancelled;
        let closes = stops && !state.stats.is_closed;
        state.stats.is_closed |= stops;
        state.stats.is_cancelled |= stops;
        let done = state.take_done();
        drop(state);
        if !stops && done.is_none() {
            return;
        }
        // What follows is others' code.
        let told = catch_unwind(AssertUnwindSafe(|| {
            current::without_waits(|| self.tell_of(end, stops, closes));
        }));
        finish(done);
        if let Err(payload) = told {
            unhandled::report_contained(0, payload);
        }
    }

    /// An item's end closes the group, and stops it.
    fn tell_of(&self, end: PromiseState, stops: bool, closes: bool) {
        if closes {
            self.closing.cancel("the group is closed");
        }
        if stops {
            self.token.cancel(match end {
                PromiseState::Failed => "one of the group has failed",
                PromiseState::Cancelled => "one of the group was cancelled",
                _ => "the producer of one of the group is gone",
            });
        }
    }

    fn close(&self) -> bool {
        let mut state = self.lock();
        let is_first = !state.stats.is_closed;
        state.stats.is_closed = true;
        let done = state.take_done();
        drop(state);
        if is_first {
            self.closing.cancel("the group is closed");
        }
        finish(done);
        is_first
    }

    fn cancel(&self, cause: Cause) -> bool {
        let mut state = self.lock();
        let closes = !state.stats.is_closed;
        let is_first = !state.stats.is_cancelled;
        state.stats.is_closed = true;
        state.stats.is_cancelled = true;
        let done = state.take_done();
        drop(state);
        if closes {
            self.closing.cancel("the group is cancelled");
        }
        if is_first {
            self.token.fire(cause);
        }
        finish(done);
        is_first
    }
}

impl TaskGroup {
    /// A group without a limit that collects all ends.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// To choose a limit, and when to cancel.
    pub fn builder() -> TaskGroupBuilder {
        TaskGroupBuilder::new()
    }

    fn with(limit: usize, cancel_on: CancelOn) -> Self {
        let (promise, done) = Promise::new();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                stats: GroupStats::default(),
                starters: Vec::new(),
                seats: Seats::default(),
                first_error: None,
                done: Some(promise),
            }),
            limit,
            cancel_on,
            token: CancelToken::new(),
            asking: OnceLock::new(),
            closing: CancelToken::new(),
            done,
        });
        let asked = Arc::downgrade(&shared);
        // The first of the token's listeners, before those that the items' own tokens are.
        let asking = shared.token.on_cancel(move |cause| {
            if let Some(asked) = asked.upgrade() {
                asked.ask_all(cause);
            }
        });
        shared.asking.get_or_init(|| asking);
        Self { shared }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Takes a future in.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    ///
    /// # Errors
    ///
    /// `Closed`; `Again` if as many are active as may be; `NoMemory`.
    pub fn add<T: Send + Sync + 'static>(&self, future: &SharedFuture<T>) -> Result<(), AddError> {
        self.shared.add(future).map_err(AddError)
    }

    /// Reserves a place, calls `starter`, which starts something and returns its future, and takes that in. If there is no place
    /// nothing is started; if there is one, what was started is in the group whatever happens meanwhile.
    ///
    /// # Suspends
    ///
    /// As `starter` does. The group does not end meanwhile.
    ///
    /// # Errors
    ///
    /// `Closed`, `Full` and `NoMemory`, with the starter, which was not called; `Failed` with what the starter failed with.
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::future::Promise;
    /// use sinew::task::TaskGroup;
    ///
    /// let group = TaskGroup::new();
    /// let future = group.start(|| {
    ///     let (promise, future) = Promise::new();
    ///     std::thread::Builder::new().spawn(move || promise.resolve(7))?;
    ///     Ok::<_, std::io::Error>(future)
    /// });
    /// group.wait().unwrap();
    /// assert_eq!(future.ok().unwrap().get().unwrap().unwrap(), &7);
    /// ```
    pub fn start<T, E, S>(&self, starter: S) -> Result<SharedFuture<T>, StartError<S, E>>
    where
        T: Send + Sync + 'static,
        S: FnOnce() -> Result<SharedFuture<T>, E>,
    {
        let place = match self.shared.reserve() {
            Ok(place) => place,
            Err(NoPlace::Closed) => return Err(StartError::Closed(starter)),
            Err(NoPlace::Full) => return Err(StartError::Full(starter)),
            Err(NoPlace::NoMemory) => return Err(StartError::NoMemory(starter)),
        };
        // If it panics the place is given back.
        let future = starter().map_err(StartError::Failed)?;
        place.commit(&future);
        Ok(future)
    }

    /// A group in this one, which counts as one item until it is done. This one's close closes it, this one's cancel cancels it.
    /// What it cannot do with its own items is nothing to this one.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn child(&self, builder: &TaskGroupBuilder) -> Result<Self, AddError> {
        // All of it is made before the place is reserved: nothing can fail after that.
        let child = builder.build();
        let to_close = child.shared.clone();
        let to_cancel = child.shared.clone();
        let closing = self.shared.closing.on_cancel(move |_| {
            to_close.close();
        });
        let cancelling = self.shared.token.on_cancel(move |cause| {
            to_cancel.cancel(cause.clone());
        });
        child
            .shared
            .done
            .on_done(move |_| drop((closing, cancelling)));
        let place = self.shared.reserve().map_err(AddError)?;
        place.commit_with(&child.shared.done, Some(child.shared.clone()));
        Ok(child)
    }

    /// Takes nothing in any more; what is active may end by itself. False if it was closed already.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    pub fn close(&self) -> bool {
        self.shared.close()
    }

    /// Closes the group and asks all that is active to stop. False if that was done already.
    ///
    /// # Suspends
    ///
    /// Never. From any thread.
    #[track_caller]
    pub fn cancel(&self, reason: impl Into<String>) -> bool {
        self.shared.cancel(Cause::now(reason.into()))
    }

    /// The token that fires when the group is cancelled. To fire it asks all that is active to stop, and does not close the group.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        self.shared.token.clone()
    }

    /// The end: resolved when the group is closed and nothing is active. How the items ended is no matter for it.
    #[must_use]
    pub fn done(&self) -> SharedFuture<()> {
        self.shared.done.clone()
    }

    /// Closes the group and waits for its end.
    ///
    /// # Suspends
    ///
    /// Until then.
    ///
    /// # Cancellation
    ///
    /// Ends early; the items are not touched. An end that is there wins.
    ///
    /// # Errors
    ///
    /// `Cancelled`; `State` where nothing may wait, and where it is for the caller to bring the end: in one of the group's own tasks
    /// and starters, and on the only worker of a pool that is to run one.
    pub fn wait(&self) -> Result<(), WaitError> {
        self.close();
        self.shared.wait(|done| done.wait())
    }

    /// As [`TaskGroup::wait`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`TaskGroup::wait`]; `Timeout` when the time is up.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.close();
        self.shared.wait(|done| done.wait_timeout(timeout))
    }

    /// As [`TaskGroup::wait`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`TaskGroup::wait`]; `Timeout` at the deadline.
    pub fn wait_deadline(&self, deadline: Instant) -> Result<(), WaitError> {
        self.close();
        self.shared.wait(|done| done.wait_deadline(deadline))
    }

    /// As [`TaskGroup::wait`], where `token` ends the wait too. It does nothing else: the items are not touched.
    ///
    /// # Errors
    ///
    /// As [`TaskGroup::wait`]; `Cancelled` when `token` fires.
    pub fn wait_cancel(&self, token: &CancelToken) -> Result<(), WaitError> {
        self.close();
        self.shared.wait(|done| done.wait_cancel(token))
    }

    /// Cancels the group and waits for its end: what is to be done where nothing of it is wanted any more.
    ///
    /// # Suspends
    ///
    /// Until then.
    ///
    /// # Errors
    ///
    /// As [`TaskGroup::wait`].
    ///
    /// # Examples
    ///
    /// ```
    /// use sinew::task::TaskGroup;
    ///
    /// sinew::run(|| {
    ///     let group = TaskGroup::new();
    ///     group.spawn(|_| sinew::park()).unwrap();
    ///     group.cancel_and_wait("not needed").unwrap();
    ///     assert_eq!(group.stats().cancelled, 1);
    /// });
    /// ```
    #[track_caller]
    pub fn cancel_and_wait(&self, reason: impl Into<String>) -> Result<(), WaitError> {
        self.cancel(reason);
        self.shared.wait(|done| done.wait())
    }

    /// Whether the end is there.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.shared.done.is_done()
    }

    /// The counts, all of one moment.
    #[must_use]
    pub fn stats(&self) -> GroupStats {
        self.shared.lock().stats
    }

    /// The error of the first item that failed.
    #[must_use]
    pub fn first_error(&self) -> Option<Error> {
        self.shared.lock().first_error.clone()
    }
}

impl Default for TaskGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TaskGroup {
    fn drop(&mut self) {
        if !self.is_done() {
            self.shared
                .cancel(Cause::now("the group was dropped".to_owned()));
        }
    }
}

impl fmt::Debug for TaskGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskGroup")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// A future was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddError(NoPlace);

impl AddError {
    /// Whether the group is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0 == NoPlace::Closed
    }

    /// Whether there was no memory for it.
    #[must_use]
    pub fn is_no_memory(&self) -> bool {
        self.0 == NoPlace::NoMemory
    }

    /// Whether as many are active as may be: try again when one has ended.
    #[must_use]
    pub fn is_again(&self) -> bool {
        self.0 == NoPlace::Full
    }
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            NoPlace::Closed => "the group is closed",
            NoPlace::Full => "as many of the group are active as may be: try again later",
            NoPlace::NoMemory => "there is no memory for one more in the group",
        })
    }
}

impl std::error::Error for AddError {}

impl From<AddError> for Error {
    #[track_caller]
    fn from(error: AddError) -> Self {
        Self::new(error.0.kind(), error.to_string())
    }
}

/// Nothing is in the group that was to be started.
#[non_exhaustive]
pub enum StartError<S, E> {
    /// The group is closed; the starter was not called.
    Closed(S),
    /// As many are active as may be; the starter was not called.
    Full(S),
    /// There is no memory for it; the starter was not called.
    NoMemory(S),
    /// The starter failed.
    Failed(E),
}

impl<S, E: fmt::Debug> fmt::Debug for StartError<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(_) => f.write_str("Closed"),
            Self::Full(_) => f.write_str("Full"),
            Self::NoMemory(_) => f.write_str("NoMemory"),
            Self::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
        }
    }
}

impl<S, E: fmt::Display> fmt::Display for StartError<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(_) => AddError(NoPlace::Closed).fmt(f),
            Self::Full(_) => AddError(NoPlace::Full).fmt(f),
            Self::NoMemory(_) => AddError(NoPlace::NoMemory).fmt(f),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl<S, E: std::error::Error> std::error::Error for StartError<S, E> {}
