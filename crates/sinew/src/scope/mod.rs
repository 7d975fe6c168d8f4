//! Scopes: coroutines that borrow from the frame that starts them.
//!
//! Owns: the count of children, the first panic that nobody joined, and the wait for the last child.
//! Thread: the scheduler's, for all of it.
//!
//! Invariants
//! - I1. [`scope`] returns, or unwinds, only when all of its children have ended and their results are gone or in handles, which
//!   cannot outlive the scope. So what the children borrow is there as long as they are.
//! - I2. The wait for the children cannot be ended by anything else: no cancel, no deadline, no forced unwind.
#![expect(
    unsafe_code,
    reason = "starts coroutines that borrow, and counts them through a raw pointer"
)]

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use sinew_context::unwind::catch_to_pass_on;
use sinew_core::wait::{Claim, Kind, Reason, Record};

use crate::cancel::CancelToken;
use crate::coroutine::Fence;
use crate::error::WaitError;
use crate::join::{JoinError, JoinHandle, Outcome};
use crate::scheduler::block::{Block, BlockRef, flag, life};
use crate::scheduler::body::{Payload, drop_payload};
use crate::scheduler::current::{self, Place, place};
use crate::scheduler::forced;

/// What a scope's children tell it; lies in the frame of [`scope`].
#[derive(Debug)]
pub(crate) struct Family {
    alive: Cell<usize>,
    /// Who waits for the last child: the coroutine that has come to the scope's end.
    waiting: Cell<Option<NonNull<Block>>>,
    panic: RefCell<Option<Payload>>,
}

impl Family {
    /// A child has ended, and its result is gone or in its handle. Owner thread; called by the end of a coroutine, last.
    pub(crate) fn child_ended(&self) {
        self.alive.set(self.alive.get() - 1);
        if self.alive.get() == 0
            && let Some(parent) = self.waiting.get()
        {
            // SAFETY: the parent waits in `scope`: its block is alive.
            let parent = unsafe { parent.as_ref() };
            // Nothing else claims the parent (I2), and this is its thread.
            if parent.waiter.word.claim_alone(Reason::Woken) == Claim::Won {
                // On the scheduler's own frame too: a child that got no stack ends there.
                current::with_scheduler(|scheduler| scheduler.push_ready(parent));
            }
        }
    }

    /// A child's panic that nobody joined; the first one counts.
    pub(crate) fn keep_panic(&self, payload: Payload) {
        let mut kept = self.panic.borrow_mut();
        if kept.is_none() {
            *kept = Some(payload);
        } else {
            drop(kept);
            drop_payload(payload);
        }
    }

    /// Waits until no child is left.
    fn wait(&self) {
        while self.alive.get() > 0 {
            let Place::Coroutine(scheduler, me) = place() else {
                // A stand-alone coroutine with a scope in it is unwound where nothing can wait, and what the children
                // borrow must not go before them.
                forced::report_stranded_scope();
            };
            self.waiting.set(Some(NonNull::from(me)));
            me.set(flag::DEAF);
            me.waiter.word.arm();
            let object = ptr::from_ref(self).addr();
            // Only `child_ended` ends this.
            let _woken = scheduler.wait(
                me,
                Record {
                    kind: Kind::Scope,
                    object,
                    owner: 0,
                },
                None,
            );
            me.clear(flag::DEAF);
            self.waiting.set(None);
        }
    }
}

/// Where children are started; see [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    family: &'scope Family,
    token: CancelToken,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
    not_send: PhantomData<*const ()>,
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("alive", &self.family.alive.get())
            .finish_non_exhaustive()
    }
}

/// Runs `f`, which may start coroutines that borrow from around it, and returns when all of them have ended.
///
/// # Suspends
///
/// At its end, until the last child has ended.
///
/// # Cancellation
///
/// The wait at the end cannot be cancelled; but the children's tokens are below the current coroutine's, so a cancel of it
/// reaches them. If `f` panics, or is unwound by force, the children are cancelled first.
///
/// # Panics
///
/// With the panic of `f`, or with the first panic of a child that nobody joined, after all children have ended; outside of
/// a coroutine; in a cleanup or the callback of an event, where nothing may wait.
///
/// # Examples
///
/// ```
/// sinew::run(|| {
///     let words = ["a", "few", "words"];
///     let mut lengths = vec![0; words.len()];
///     sinew::scope(|s| {
///         for (word, length) in words.iter().zip(&mut lengths) {
///             s.spawn(move || *length = word.len());
///         }
///     });
///     assert_eq!(lengths, [1, 3, 5]);
/// });
/// ```
#[track_caller]
pub fn scope<'env, F, R>(f: F) -> R
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
{
    // The children wake the coroutine that is the parent now: a stand-alone one must not suspend and be resumed by another.
    let _fence = Fence::raise();
    let here = place();
    let Place::Coroutine(_, me) = here else {
        panic!("scope called outside of sinew::run: no coroutine to wait in");
    };
    assert!(
        here.may_wait(),
        "scope called in a cleanup or a callback, where nothing may wait for its children"
    );
    current::expect_no_spin_lock();
    let family = Family {
        alive: Cell::new(0),
        waiting: Cell::new(None),
        panic: RefCell::new(None),
    };
    let token = CancelToken::attach(&BlockRef::of(me), None).child();
    let scope = Scope {
        family: &family,
        token,
        scope: PhantomData,
        env: PhantomData,
        not_send: PhantomData,
    };
    // Caught, so that whatever ends `f`, the children are waited for before its frame goes.
    let result = catch_to_pass_on(|| f(&scope));
    if result.is_err() {
        // A callback that panics must not keep the scope from waiting; the panic of `f` came first.
        let cancel = || scope.token.cancel("the scope was left by a panic");
        if let Err(second) = catch_unwind(AssertUnwindSafe(cancel)) {
            drop_payload(second);
        }
    }
    family.wait();
    let child_panic = family.panic.take();
    match (result, child_panic) {
        (Ok(value), None) => value,
        (Ok(value), Some(payload)) => {
            drop(value);
            resume_unwind(payload)
        }
        (Err(payload), child_panic) => {
            if let Some(second) = child_panic {
                drop_payload(second);
            }
            resume_unwind(payload)
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a child that may borrow what outlives the scope.
    ///
    /// # Suspends
    ///
    /// Never.
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + 'scope,
        T: 'scope,
    {
        let location = Location::caller();
        let Place::Coroutine(scheduler, _) = place() else {
            // A scope is `!Send` and lives in a coroutine's frame.
            unreachable!("a scope is used in coroutines only")
        };
        self.family.alive.set(self.family.alive.get() + 1);
        let family = NonNull::from(self.family);
        // SAFETY: I1: `f` and what it returns are good for 'scope, which lasts until the child has ended and its
        // handle is gone.
        let block = unsafe {
            scheduler.spawn_block(f, life::HANDLE, location, |block| {
                block.extra_or_new().family.set(family);
                CancelToken::attach(&BlockRef::of(block), Some(&self.token));
            })
        };
        // SAFETY: the block was made for `T`, with a count for the handle.
        let inner = unsafe { JoinHandle::new(block) };
        ScopedJoinHandle {
            inner: Some(inner),
            family: self.family,
            not_send: PhantomData,
        }
    }

    /// The token above those of the children: cancelling it cancels all of them, and those to come.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        self.token.clone()
    }
}

/// A handle to a child's end. It cannot outlive the scope. Dropping it leaves the child running; a panic that nobody joined is
/// raised by [`scope`] at its end.
pub struct ScopedJoinHandle<'scope, T> {
    /// Taken by `join` and by the drop.
    inner: Option<JoinHandle<T>>,
    family: &'scope Family,
    not_send: PhantomData<*const ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    fn inner(&self) -> &JoinHandle<T> {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("only join and drop take the handle"),
        }
    }

    /// Waits for the end and takes the value.
    ///
    /// # Errors
    ///
    /// As [`JoinHandle::join`].
    pub fn join(mut self) -> Result<T, JoinError> {
        match self.inner.take() {
            Some(inner) => inner.join(),
            None => unreachable!("only join and drop take the handle"),
        }
    }

    /// Waits for the end; the value stays.
    ///
    /// # Errors
    ///
    /// As [`JoinHandle::wait`].
    pub fn wait(&self) -> Result<(), WaitError> {
        self.inner().wait()
    }

    /// As [`ScopedJoinHandle::wait`], for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As [`JoinHandle::wait_timeout`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.inner().wait_timeout(timeout)
    }

    /// As [`ScopedJoinHandle::wait`], until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`JoinHandle::wait_deadline`].
    pub fn wait_deadline(&self, deadline: Instant) -> Result<(), WaitError> {
        self.inner().wait_deadline(deadline)
    }

    /// Whether the child has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.inner().is_finished()
    }

    /// How the child ended; `None` while it lives.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        self.inner().outcome()
    }

    /// Asks the child to stop.
    pub fn cancel(&self, reason: impl Into<String>) {
        self.inner().cancel(reason);
    }

    /// The child's id.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.inner().id()
    }
}

impl<T> Drop for ScopedJoinHandle<'_, T> {
    fn drop(&mut self) {
        if let Some(payload) = self.inner.take().and_then(JoinHandle::abandon) {
            self.family.keep_panic(payload);
        }
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
