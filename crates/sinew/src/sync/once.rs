//! What is done once, and the cell that is filled once.
//!
//! Owns: the handle and the cell's value. Who may do it and who waits is `sinew_core`'s `RawOnce`.
//!
//! Invariants
//! - I1. The value of a cell is written by the holder of its turn only, who completes that right after, and is there from then on until
//!   the cell is borrowed exclusively.
#![expect(
    unsafe_code,
    reason = "hands out references to a cell guarded by a raw once"
)]

use std::cell::UnsafeCell;
use std::error::Error as StdError;
use std::fmt;
use std::time::{Duration, Instant};

use sinew_core::sharing::{Shared, Sharing};
use sinew_core::sync::{Begin, RawOnce, TryBegin, Turn};

use crate::error::WaitError;
use crate::scheduler::current::party_number;
use crate::scheduler::waiting::{Deaf, Waiting};
use crate::sys::clock;

/// Something that is done once, by the first that comes; who comes meanwhile waits for it.
///
/// If it fails by a panic it is not done, and nothing is poisoned: it is the turn of who has waited longest to do it, or of who comes
/// next. It may suspend.
///
/// # Examples
///
/// ```
/// use sinew::sync::Once;
///
/// static READY: Once = Once::new();
/// sinew::run(|| {
///     for _ in 0..3 {
///         sinew::go_local(|| READY.call_once(|| sinew::yield_now().unwrap()));
///     }
///     READY.wait().unwrap();
///     assert!(READY.is_completed());
/// });
/// ```
pub struct Once<K: Sharing> {
    raw: RawOnce<K>,
}

impl<K: Sharing> Once<K> {
    /// Nothing is done yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            raw: RawOnce::of_kind(),
        }
    }

    /// Runs `f` if nobody has run his to the end yet. When this returns, somebody has.
    ///
    /// # Suspends
    ///
    /// While another runs his, and as `f` does.
    ///
    /// # Cancellation
    ///
    /// Ends the wait for another early. What `f` does about a cancel is its affair: if it returns, it is done.
    ///
    /// # Errors
    ///
    /// `Cancelled`; `Deadlock` if the caller is at it already: `f` calls this; `State` where nothing may wait and another is at it.
    /// It is not an error if it is done.
    ///
    /// # Panics
    ///
    /// As `f` does; it is not done then.
    pub fn call_once(&self, f: impl FnOnce()) -> Result<(), WaitError> {
        self.call_until(|| None, f)
    }

    /// As [`Once::call_once`], waiting for another for at most `timeout`. It does not limit `f`.
    ///
    /// # Errors
    ///
    /// As [`Once::call_once`]; `Timeout` when the time is up.
    pub fn call_once_timeout(&self, timeout: Duration, f: impl FnOnce()) -> Result<(), WaitError> {
        self.call_until(|| Some(clock::after_ns(timeout)), f)
    }

    /// As [`Once::call_once`], waiting for another until `deadline`. It does not limit `f`.
    ///
    /// # Errors
    ///
    /// As [`Once::call_once`]; `Timeout` at the deadline.
    pub fn call_once_deadline(&self, deadline: Instant, f: impl FnOnce()) -> Result<(), WaitError> {
        self.call_until(|| Some(clock::instant_ns(deadline)), f)
    }

    /// Runs `f` if nobody has run his to the end and nobody is at it; says whether it is done now.
    pub fn try_call_once(&self, f: impl FnOnce()) -> bool {
        match self.raw.try_begin(party_number()) {
            TryBegin::Done => true,
            TryBegin::Busy => false,
            TryBegin::Turn(turn) => {
                f();
                turn.complete();
                true
            }
        }
    }

    /// Whether it is done.
    #[inline]
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.raw.is_done()
    }

    /// Waits until somebody has done it.
    ///
    /// # Suspends
    ///
    /// While it is not done; through failures, too.
    ///
    /// # Cancellation
    ///
    /// Ends early.
    ///
    /// # Errors
    ///
    /// `Cancelled`; `Deadlock` if the caller is at it itself; `State` where nothing may wait. It is not an error if it is done.
    pub fn wait(&self) -> Result<(), WaitError> {
        wait_until(&self.raw, || None)
    }

    /// As [`Once::wait`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`Once::wait`]; `Timeout` when the time is up.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        wait_until(&self.raw, || Some(clock::after_ns(timeout)))
    }

    /// As [`Once::wait`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Once::wait`]; `Timeout` at the deadline.
    pub fn wait_deadline(&self, deadline: Instant) -> Result<(), WaitError> {
        wait_until(&self.raw, || Some(clock::instant_ns(deadline)))
    }

    fn call_until(
        &self,
        deadline_ns: impl FnOnce() -> Option<u64>,
        f: impl FnOnce(),
    ) -> Result<(), WaitError> {
        if let Some(turn) = begin(&self.raw, deadline_ns)? {
            f();
            turn.complete();
        }
        Ok(())
    }
}

impl<K: Sharing> Default for Once<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Sharing> fmt::Debug for Once<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("is_completed", &self.is_completed())
            .finish()
    }
}

/// The turn to do it; `None` if it is done. Waits for another who is at it.
fn begin<K: Sharing>(
    raw: &RawOnce<K>,
    deadline_ns: impl FnOnce() -> Option<u64>,
) -> Result<Option<Turn<'_, K>>, WaitError> {
    let me = party_number();
    match raw.try_begin(me) {
        TryBegin::Done => return Ok(None),
        TryBegin::Turn(turn) => return Ok(Some(turn)),
        TryBegin::Busy if raw.runner() == me => return Err(WaitError::Deadlock),
        TryBegin::Busy => {}
    }
    let waiting = Waiting::at::<K>(deadline_ns())?;
    match raw.begin(me, &waiting) {
        Ok(begin) => of_begin(begin),
        Err(reason) => Err(waiting.error(reason)),
    }
}

/// As [`begin`], where nothing ends the wait but what is waited for.
fn begin_deaf<K: Sharing>(raw: &RawOnce<K>) -> Result<Option<Turn<'_, K>>, WaitError> {
    let me = party_number();
    match raw.try_begin(me) {
        TryBegin::Done => return Ok(None),
        TryBegin::Turn(turn) => return Ok(Some(turn)),
        TryBegin::Busy => {}
    }
    let waiting = Waiting::at::<K>(None)?;
    match raw.begin(me, &Deaf(&waiting)) {
        Ok(begin) => of_begin(begin),
        Err(reason) => Err(waiting.error(reason)),
    }
}

fn of_begin<K: Sharing>(begin: Begin<'_, K>) -> Result<Option<Turn<'_, K>>, WaitError> {
    match begin {
        Begin::Done => Ok(None),
        Begin::Turn(turn) => Ok(Some(turn)),
        Begin::Reentered => Err(WaitError::Deadlock),
    }
}

fn wait_until<K: Sharing>(
    raw: &RawOnce<K>,
    deadline_ns: impl FnOnce() -> Option<u64>,
) -> Result<(), WaitError> {
    if raw.is_done() {
        return Ok(());
    }
    if raw.runner() == party_number() {
        return Err(WaitError::Deadlock);
    }
    let waiting = Waiting::at::<K>(deadline_ns())?;
    match raw.wait(&waiting) {
        Ok(()) => Ok(()),
        Err(reason) => waiting.result(reason),
    }
}

/// A cell that is filled once, by the first that comes; who comes meanwhile waits for it.
///
/// It is std's `OnceLock`, with waits that suspend and can end early. An initialiser that fails, panics or is unwound by force leaves the
/// cell empty: it is the turn of who has waited longest with an initialiser of its own, or of who comes next. An initialiser may suspend.
///
/// # Examples
///
/// ```
/// use sinew::sync::OnceCell;
///
/// static CONFIG: OnceCell<String> = OnceCell::new();
/// sinew::run(|| {
///     let failed = CONFIG.get_or_try_init(|| Err("not there yet"));
///     assert!(failed.is_err() && CONFIG.get().is_none());
///     let config = CONFIG.get_or_init(|| "verbose".to_owned()).unwrap();
///     assert_eq!(config, "verbose");
/// });
/// ```
pub struct OnceCell<T, K: Sharing> {
    raw: RawOnce<K>,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: I1: sending the cell sends the value.
unsafe impl<T: Send> Send for OnceCell<T, Shared> {}
// SAFETY: I1: the value comes from one thread, is shared among all, and may be dropped by another.
unsafe impl<T: Send + Sync> Sync for OnceCell<T, Shared> {}

/// Why a cell was not filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InitError<E> {
    /// The wait for another's initialiser ended without a value.
    Wait(WaitError),
    /// The caller's initialiser failed.
    Init(E),
}

impl<E: fmt::Display> fmt::Display for InitError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(error) => error.fmt(f),
            Self::Init(error) => write!(f, "the initialiser failed: {error}"),
        }
    }
}

impl<E: StdError + 'static> StdError for InitError<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Wait(error) => Some(error),
            Self::Init(error) => Some(error),
        }
    }
}

impl<E> From<WaitError> for InitError<E> {
    fn from(error: WaitError) -> Self {
        Self::Wait(error)
    }
}

/// What an initialiser that cannot fail fails with.
enum Never {}

fn only_wait(error: InitError<Never>) -> WaitError {
    match error {
        InitError::Wait(error) => error,
        InitError::Init(never) => match never {},
    }
}

impl<T, K: Sharing> OnceCell<T, K> {
    /// An empty cell.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            raw: RawOnce::of_kind(),
            value: UnsafeCell::new(None),
        }
    }

    /// The value, if the cell is filled. Never waits.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if !self.raw.is_done() {
            return None;
        }
        // SAFETY: I1: nobody writes to a filled cell that is shared.
        unsafe { &*self.value.get() }.as_ref()
    }

    /// The value, if the cell is filled, to be changed.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut().as_mut()
    }

    /// Fills the cell with `value`. Never waits.
    ///
    /// # Errors
    ///
    /// Gives the value back if the cell is filled, or somebody's initialiser is at it.
    pub fn set(&self, value: T) -> Result<(), T> {
        match self.raw.try_begin(party_number()) {
            TryBegin::Turn(turn) => {
                self.fill(turn, value);
                Ok(())
            }
            TryBegin::Done | TryBegin::Busy => Err(value),
        }
    }

    /// Takes the value out; the cell is empty then.
    pub fn take(&mut self) -> Option<T> {
        // In this order: a cell that is done has a value.
        self.raw.reset();
        self.value.get_mut().take()
    }

    /// The value, out of the cell.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }

    /// The value; the cell is filled by `f` if it is empty.
    ///
    /// # Suspends
    ///
    /// While another's initialiser is at it, and as `f` does.
    ///
    /// # Cancellation
    ///
    /// Ends the wait for another early. What `f` does about a cancel is its affair.
    ///
    /// # Errors
    ///
    /// `Cancelled`; `Deadlock` if the caller's own initialiser calls this; `State` where nothing may wait and another is at
    /// it. A value that is there is returned in any case.
    ///
    /// # Panics
    ///
    /// As `f` does; the cell stays empty then.
    #[inline]
    pub fn get_or_init(&self, f: impl FnOnce() -> T) -> Result<&T, WaitError> {
        self.init_until(|| None, || Ok(f())).map_err(only_wait)
    }

    /// As [`OnceCell::get_or_init`], waiting for another for at most `timeout`. It does not limit `f`.
    ///
    /// # Errors
    ///
    /// As [`OnceCell::get_or_init`]; `Timeout` when the time is up.
    pub fn get_or_init_timeout(
        &self,
        timeout: Duration,
        f: impl FnOnce() -> T,
    ) -> Result<&T, WaitError> {
        self.init_until(|| Some(clock::after_ns(timeout)), || Ok(f()))
            .map_err(only_wait)
    }

    /// As [`OnceCell::get_or_init`], waiting for another until `deadline`. It does not limit `f`.
    ///
    /// # Errors
    ///
    /// As [`OnceCell::get_or_init`]; `Timeout` at the deadline.
    pub fn get_or_init_deadline(
        &self,
        deadline: Instant,
        f: impl FnOnce() -> T,
    ) -> Result<&T, WaitError> {
        self.init_until(|| Some(clock::instant_ns(deadline)), || Ok(f()))
            .map_err(only_wait)
    }

    /// As [`OnceCell::get_or_init`], but without waiting: `None` if another's initialiser is at it, or the caller's own.
    pub fn try_get_or_init(&self, f: impl FnOnce() -> T) -> Option<&T> {
        if let TryBegin::Turn(turn) = self.raw.try_begin(party_number()) {
            let value = f();
            self.fill(turn, value);
        }
        self.get()
    }

    /// As [`OnceCell::get_or_init`], with an initialiser that may fail; the cell stays empty then.
    ///
    /// # Errors
    ///
    /// [`InitError::Init`] if `f` fails; [`InitError::Wait`] with the errors of [`OnceCell::get_or_init`].
    pub fn get_or_try_init<E>(&self, f: impl FnOnce() -> Result<T, E>) -> Result<&T, InitError<E>> {
        self.init_until(|| None, f)
    }

    /// As [`OnceCell::get_or_try_init`], waiting for another for at most `timeout`. It does not limit `f`.
    ///
    /// # Errors
    ///
    /// As [`OnceCell::get_or_try_init`]; `Timeout` when the time is up.
    pub fn get_or_try_init_timeout<E>(
        &self,
        timeout: Duration,
        f: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, InitError<E>> {
        self.init_until(|| Some(clock::after_ns(timeout)), f)
    }

    /// As [`OnceCell::get_or_try_init`], waiting for another until `deadline`. It does not limit `f`.
    ///
    /// # Errors
    ///
    /// As [`OnceCell::get_or_try_init`]; `Timeout` at the deadline.
    pub fn get_or_try_init_deadline<E>(
        &self,
        deadline: Instant,
        f: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, InitError<E>> {
        self.init_until(|| Some(clock::instant_ns(deadline)), f)
    }

    /// Waits until the cell is filled.
    ///
    /// # Suspends
    ///
    /// While it is empty; through failures of initialisers, too.
    ///
    /// # Cancellation
    ///
    /// Ends early.
    ///
    /// # Errors
    ///
    /// `Cancelled`; `Deadlock` if the caller's own initialiser calls this; `State` where nothing may wait. A value that is there is
    /// returned in any case.
    pub fn wait(&self) -> Result<&T, WaitError> {
        wait_until(&self.raw, || None).map(|()| self.filled())
    }

    /// As [`OnceCell::wait`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`OnceCell::wait`]; `Timeout` when the time is up.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<&T, WaitError> {
        wait_until(&self.raw, || Some(clock::after_ns(timeout))).map(|()| self.filled())
    }

    /// As [`OnceCell::wait`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`OnceCell::wait`]; `Timeout` at the deadline.
    pub fn wait_deadline(&self, deadline: Instant) -> Result<&T, WaitError> {
        wait_until(&self.raw, || Some(clock::instant_ns(deadline))).map(|()| self.filled())
    }

    /// The value; the cell is filled by `f` if it is empty. No deadline and no cancel ends the wait for another.
    ///
    /// Fails with `Deadlock` and `State`.
    pub(super) fn get_or_init_deaf(&self, f: impl FnOnce() -> T) -> Result<&T, WaitError> {
        if let Some(turn) = begin_deaf(&self.raw)? {
            let value = f();
            self.fill(turn, value);
        }
        Ok(self.filled())
    }

    #[inline]
    fn init_until<E>(
        &self,
        deadline_ns: impl FnOnce() -> Option<u64>,
        f: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, InitError<E>> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        if let Some(turn) = begin(&self.raw, deadline_ns)? {
            let value = f().map_err(InitError::Init)?;
            self.fill(turn, value);
        }
        Ok(self.filled())
    }

    /// Fills the cell, and ends the turn.
    fn fill(&self, turn: Turn<'_, K>, value: T) {
        // SAFETY: I1: nobody else reaches the value before it is done, and this is the turn of this cell.
        let cell = unsafe { &mut *self.value.get() };
        *cell = Some(value);
        // INVARIANT: I1.
        turn.complete();
    }

    fn filled(&self) -> &T {
        self.get()
            .expect("a cell whose filling is done has a value")
    }
}

impl<T, K: Sharing> Default for OnceCell<T, K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, K: Sharing> From<T> for OnceCell<T, K> {
    fn from(value: T) -> Self {
        let cell = Self::new();
        // It is empty, so nothing comes back.
        let _nothing = cell.set(value).is_ok();
        cell
    }
}

impl<T: Clone, K: Sharing> Clone for OnceCell<T, K> {
    fn clone(&self) -> Self {
        self.get().cloned().map_or_else(Self::new, Self::from)
    }
}

impl<T: PartialEq, K: Sharing> PartialEq for OnceCell<T, K> {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq, K: Sharing> Eq for OnceCell<T, K> {}

impl<T: fmt::Debug, K: Sharing> fmt::Debug for OnceCell<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_tuple("OnceCell");
        match self.get() {
            Some(value) => out.field(value),
            None => out.field(&format_args!("<empty>")),
        };
        out.finish()
    }
}
