//! Cancel tokens: a wish to stop, spread down a tree.
//!
//! Owns: the tree, the reasons, the callbacks. Any thread.
//!
//! Invariants
//! - I1. A token fires once; its cause does not change afterwards.
//! - I2. Whatever was registered before the firing is told once; whatever is registered after it is told at the registration.
//! - I3. No lock is held while callbacks run or coroutines are told.
//! - I4. A child that is gone, or a registration that was dropped, leaves nothing behind in its parent, whose memory follows
//!   the number of those that are there.
#![expect(unsafe_code, reason = "waits in the token's queue")]

mod deadline;
mod limited;
mod listeners;
mod polled;
mod record;

pub(crate) use deadline::{look_for_deadlocks_after, watch_stop};
pub use record::CancelRecord;
pub(crate) use record::Times;

pub use limited::{shield, timeout, timeout_deadline};

use std::collections::VecDeque;
use std::panic::Location;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{fmt, ptr};

use sinew_core::lock::Lock;
use sinew_core::wait::{Kind, Queue, Reason, Record, wait_in};

use crate::cancel::listeners::Listeners;
use crate::error::WaitError;
use crate::scheduler::block::BlockRef;
use crate::scheduler::current::{Place, place};
use crate::scheduler::request_cancel;
use crate::scheduler::waiting::Waiting;
use crate::sync::select::TokenArm;
use crate::sys::clock;

/// Why and when a token fired.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Cause {
    /// What the canceller said.
    pub reason: Arc<str>,
    /// The id of the coroutine that cancelled; 0 for a plain thread or a deadline.
    pub who: u64,
    /// Where in the source; `None` for a deadline.
    pub from: Option<&'static Location<'static>>,
    /// When.
    pub when: Instant,
}

impl Cause {
    /// That the calling party cancels now.
    #[track_caller]
    pub(crate) fn now(reason: String) -> Self {
        let who = match place() {
            Place::Coroutine(_, block) => block.id(),
            Place::Thread | Place::Frame => 0,
        };
        Self {
            reason: Arc::from(reason),
            who,
            from: Some(Location::caller()),
            when: clock::now(),
        }
    }
}

/// A wish to stop that can be asked, waited for, listened to and passed on.
///
/// Clones are the same token. Each coroutine has one ([`crate::CoroutineRef::cancel_token`]);
/// cancelling a token cancels its children, and the coroutine that it belongs to.
///
/// # Examples
///
/// ```
/// let parent = sinew::CancelToken::new();
/// let child = parent.child();
/// parent.cancel("enough");
/// assert!(child.is_cancelled());
/// assert_eq!(&*child.cause().unwrap().reason, "enough");
/// ```
#[derive(Clone)]
pub struct CancelToken {
    shared: Arc<Shared>,
}

/// How many tokens have fired in the process: while it stays, nobody has to look at tokens anew.
static FIRED: AtomicU64 = AtomicU64::new(1);

/// A place in a token's list of those to tell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key(Option<u64>);

impl Key {
    /// Whether there is such a place: it is not so if the token had fired before.
    pub(crate) fn is_registered(self) -> bool {
        self.0.is_some()
    }
}

type Callback = Box<dyn FnOnce(&Cause) + Send>;

/// Who is told when a token fires.
enum Entry {
    Child(Weak<Shared>),
    Callback(Callback),
    Coroutine(BlockRef),
}

struct Shared {
    fired: AtomicBool,
    deadline_ns: Option<u64>,
    parent: Option<(CancelToken, Key)>,
    state: Mutex<State>,
    waiters: Lock<Queue>,
}

struct State {
    cause: Option<Cause>,
    entries: Listeners<Entry>,
}

impl CancelToken {
    /// A token without a parent.
    #[must_use]
    pub fn new() -> Self {
        Self::make(None, None)
    }

    /// A token that fires with this one, or by itself.
    #[must_use]
    pub fn child(&self) -> Self {
        Self::make(Some(self), None)
    }

    /// A token that fires by itself when `timeout` is over.
    #[must_use]
    pub fn with_timeout(timeout: Duration) -> Self {
        Self::make(None, Some(clock::after_ns(timeout)))
    }

    /// A token that fires by itself at `deadline`.
    #[must_use]
    pub fn with_deadline(deadline: Instant) -> Self {
        Self::make(None, Some(clock::instant_ns(deadline)))
    }

    /// A child of this token that fires by itself when `timeout` is over.
    #[must_use]
    pub fn child_with_timeout(&self, timeout: Duration) -> Self {
        Self::make(Some(self), Some(clock::after_ns(timeout)))
    }

    fn make(parent: Option<&Self>, deadline_ns: Option<u64>) -> Self {
        let shared = Arc::new_cyclic(|weak: &Weak<Shared>| Shared {
            fired: AtomicBool::new(false),
            deadline_ns,
            parent: parent.map(|parent| (parent.clone(), parent.register_child(weak.clone()))),
            state: Mutex::new(State {
                cause: None,
                entries: Listeners::new(),
            }),
            waiters: Lock::new(Queue::new()),
        });
        let token = Self { shared };
        if let Some(deadline_ns) = deadline_ns {
            deadline::watch(deadline_ns, &token);
        }
        // The parent may have fired before the child was in its list, or while its `Weak` was still empty.
        if let Some(cause) = parent.and_then(Self::cause) {
            token.fire(cause);
        }
        token
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No user code runs under the lock (I3), so a panic cannot leave it half done.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn register_child(&self, child: Weak<Shared>) -> Key {
        let mut state = self.lock();
        // A fired token's child is told by `make`.
        Key(state
            .cause
            .is_none()
            .then(|| state.entries.insert(Entry::Child(child))))
    }

    /// Fires the token: its coroutine and its children are asked to stop, its callbacks run, its waiters wake.
    ///
    /// A second call changes nothing: the first cause stands.
    ///
    /// # Suspends
    ///
    /// Never. From any thread; callbacks run on the calling one.
    ///
    /// # Panics
    ///
    /// With the first panic of a callback, after all of them have run.
    #[track_caller]
    pub fn cancel(&self, reason: impl Into<String>) {
        self.fire(Cause::now(reason.into()));
    }

    /// Fires this token and all below it, level by level, in the order of their making: a deep tree needs no deep stack.
    pub(crate) fn fire(&self, cause: Cause) {
        let mut tokens = VecDeque::from([self.clone()]);
        let mut panicked = None;
        while let Some(token) = tokens.pop_front() {
            for entry in token.fire_one(&cause) {
                match entry {
                    Entry::Child(child) => {
                        tokens.extend(child.upgrade().map(|shared| Self { shared }));
                    }
                    Entry::Coroutine(block) => request_cancel(&block),
                    Entry::Callback(callback) => {
                        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| callback(&cause))) {
                            panicked.get_or_insert(payload);
                        }
                    }
                }
            }
        }
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
    }

    /// Marks this token as fired, wakes its waiters, and returns those that are to be told.
    fn fire_one(&self, cause: &Cause) -> Vec<Entry> {
        let entries = {
            let mut state = self.lock();
            if state.cause.is_some() {
                return Vec::new();
            }
            state.cause = Some(cause.clone());
            // ORDERING: Release: who sees the flag sees what came before the cancel.
            self.shared.fired.store(true, Release);
            // ORDERING: Release, after the flag: who reads the new count sees the flag.
            FIRED.fetch_add(1, Release);
            state.entries.take_all()
        };
        let waiters = self.shared.waiters.lock().claim_all(Reason::Woken);
        waiters.wake_all();
        entries
    }

    /// Whether the token has fired. A token with a deadline fires here if that has passed.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `fire_one`.
        if self.shared.fired.load(Acquire) {
            return true;
        }
        let due = self
            .shared
            .deadline_ns
            .is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns);
        if due {
            self.fire_deadline();
        }
        due
    }

    /// How many tokens have fired so far: a token that is found fired for the first time has changed it.
    pub(crate) fn fired_count() -> u64 {
        // ORDERING: Acquire pairs with the Release in `fire_one`.
        FIRED.load(Acquire)
    }

    /// Whether it has fired, deadlines that nobody has looked at aside: nothing is fired here.
    #[inline]
    pub(crate) fn has_fired(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `fire_one`.
        self.shared.fired.load(Acquire)
    }

    /// Whether the token has fired, or is about to because one above it has: it fires here then, with that one's cause.
    pub(crate) fn catch_up(&self) -> bool {
        if self.has_fired() {
            return true;
        }
        let mut shared = &self.shared;
        while let Some((parent, _)) = &shared.parent {
            if parent.has_fired()
                && let Some(cause) = parent.cause()
            {
                self.fire(cause);
                return true;
            }
            shared = &parent.shared;
        }
        false
    }

    /// Whether it will fire by itself at some time: because of a deadline of its own, or of one above it. Takes no lock.
    pub(crate) fn has_deadline(&self) -> bool {
        let mut shared = &self.shared;
        loop {
            if shared.deadline_ns.is_some() {
                return true;
            }
            match &shared.parent {
                Some((parent, _)) => shared = &parent.shared,
                None => return false,
            }
        }
    }

    /// Whether nobody else has it, and nothing above it fires it.
    pub(crate) fn is_alone(&self) -> bool {
        let is_alone = Arc::strong_count(&self.shared) == 1 && self.shared.parent.is_none();
        // ORDERING: pairs with the Release of the last clone's drop: a cancel before it is seen.
        fence(Acquire);
        is_alone
    }

    fn fire_deadline(&self) {
        self.fire(Cause {
            reason: Arc::from("the deadline passed"),
            who: 0,
            from: None,
            when: clock::now(),
        });
    }

    /// Why and when the token fired.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        self.lock().cause.clone()
    }

    /// Calls `f` once when the token fires, on the thread that fires it; at once if it has fired already. Dropping the
    /// registration takes `f` back.
    ///
    /// `f` should be short and must not wait: it may run on a thread that has other things to do.
    pub fn on_cancel(&self, f: impl FnOnce(&Cause) + Send + 'static) -> Registration {
        let callback: Callback = Box::new(f);
        let mut state = self.lock();
        let Some(cause) = state.cause.clone() else {
            let key = Key(Some(state.entries.insert(Entry::Callback(callback))));
            return Registration {
                token: self.clone(),
                key,
            };
        };
        drop(state);
        callback(&cause);
        Registration {
            token: self.clone(),
            key: Key(None),
        }
    }

    /// Waits until the token fires.
    ///
    /// # Suspends
    ///
    /// Until it fires.
    ///
    /// # Cancellation
    ///
    /// Ends early if the waiting coroutine is itself cancelled.
    ///
    /// # Errors
    ///
    /// `Cancelled`; `State` on a scheduler's own frame.
    pub fn wait(&self) -> Result<(), WaitError> {
        self.wait_until(None)
    }

    /// As [`CancelToken::wait`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`CancelToken::wait`]; `Timeout` when the time is up.
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.wait_until(Some(clock::after_ns(timeout)))
    }

    /// As [`CancelToken::wait`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`CancelToken::wait`]; `Timeout` at the deadline.
    pub fn wait_deadline(&self, deadline: Instant) -> Result<(), WaitError> {
        self.wait_until(Some(clock::instant_ns(deadline)))
    }

    /// To wait until it fires as one of several things of which one happens: an arm of a [`select`](crate::sync::select).
    #[must_use]
    pub fn wait_arm(&self) -> TokenArm<'_> {
        // A deadline that has passed fires here; one that passes later is fired by the thread that watches over them.
        let _fired = self.is_cancelled();
        TokenArm::new(&self.shared.waiters, &self.shared.fired)
    }

    fn wait_until(&self, deadline_ns: Option<u64>) -> Result<(), WaitError> {
        if self.is_cancelled() {
            return Ok(());
        }
        let waiting = Waiting::new(deadline_ns)?;
        let lock = &self.shared.waiters;
        let guard = lock.lock();
        // Looked at under the lock: `fire_one` sets the flag before it takes the lock to wake.
        if self.shared.fired.load(Acquire) {
            return Ok(());
        }
        let object = Arc::as_ptr(&self.shared).addr();
        let record = Record {
            kind: Kind::Cancel,
            object,
            owner: 0,
        };
        // SAFETY: always the same queue; the waiters' slots are not used.
        let reason = unsafe {
            wait_in(
                lock,
                guard,
                |queue| queue,
                ptr::null_mut(),
                &waiting,
                record,
            )
        };
        waiting.result(reason)
    }

    /// The token of a coroutine, made a child of `parent` if it does not exist yet.
    pub(crate) fn attach(block: &BlockRef, parent: Option<&Self>) -> Self {
        let extra = block.extra_or_new();
        if let Some((token, _)) = extra.token.get() {
            return token.clone();
        }
        let token = parent.map_or_else(Self::new, Self::child);
        if block.is_done() {
            return token;
        }
        let key = token.register_coroutine(block.clone());
        let (kept, _) = extra.token.get_or_init(|| (token.clone(), key));
        if Arc::ptr_eq(&kept.shared, &token.shared) {
            // A coroutine that ended meanwhile has looked for a token too early: nobody else breaks the ring
            // of references then.
            if block.is_done() {
                token.forget_coroutine(key);
            }
        } else {
            // Another thread was faster.
            token.forget_coroutine(key);
        }
        kept.clone()
    }

    fn register_coroutine(&self, block: BlockRef) -> Key {
        let mut state = self.lock();
        if state.cause.is_none() {
            return Key(Some(state.entries.insert(Entry::Coroutine(block))));
        }
        drop(state);
        request_cancel(&block);
        Key(None)
    }

    /// Takes the coroutine out, if it is still there: its end and `attach` may both do so.
    pub(crate) fn forget_coroutine(&self, key: Key) {
        self.forget(key);
    }

    /// Takes a registration back, if it is still there.
    fn forget(&self, key: Key) {
        let Some(number) = key.0 else { return };
        // After the firing there are none.
        let entry = self.lock().entries.remove(number);
        // Outside of the lock: what a callback owns is the user's.
        drop(entry);
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken")
            .field("cause", &self.cause())
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Takes the deadline's entry back; `address` is where the token was when it was made.
    fn unwatch(&mut self, address: usize) {
        if let Some(deadline_ns) = self.deadline_ns.take() {
            deadline::unwatch(deadline_ns, address);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.unwatch(ptr::from_ref(self).addr());
        // A long chain of parents, each held by its child alone, is taken apart in a loop, not by recursion.
        let mut next = self.parent.take();
        while let Some((parent, key)) = next {
            parent.forget(key);
            let address = Arc::as_ptr(&parent.shared).addr();
            next = Arc::into_inner(parent.shared).and_then(|mut shared| {
                // It has been moved, so its own drop would look under another address.
                shared.unwatch(address);
                shared.parent.take()
            });
        }
    }
}

/// A callback's place in a token. Dropping it takes the callback back; what has begun to run is not waited for.
#[derive(Debug)]
#[must_use = "dropping the registration takes the callback back"]
pub struct Registration {
    token: CancelToken,
    key: Key,
}

impl Registration {
    /// Leaves the callback registered for as long as the token lives.
    pub fn forget(mut self) {
        self.key = Key(None);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.token.forget(self.key);
    }
}
