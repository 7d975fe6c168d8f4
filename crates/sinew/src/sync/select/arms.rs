//! The arms of a select: what can be waited for together with other things.
//!
//! Owns: the arms' outcomes until they are taken. Thread: the waiting one.
#![expect(unsafe_code, reason = "implements the arms' side of the wait protocol")]

use std::cell::Cell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Acquire;

use sinew_core::life::Join;
use sinew_core::sharing::{Shared, Sharing};
use sinew_core::sync::{self as raw, Channel, News};
use sinew_core::wait::{Arm as RawArm, ArmNode, Linking, Probe, Queue, QueueArm, Reason, Waiter};

use super::sealed::Sealed;
use super::{Arm, Common};
use crate::error::WaitError;
use crate::future::{Callback, Filled};
use crate::io::ReadyArm;
use crate::scheduler::block::Block;
use crate::sync::channel::broadcast::{RecvError, of_missing};
use crate::sys::clock;

/// What a finished arm's reason means.
fn outcome(reason: Reason) -> Result<(), WaitError> {
    match reason {
        Reason::Closed => Err(WaitError::Closed),
        _ => Ok(()),
    }
}

/// Passes the raw arm's methods on.
macro_rules! pass_on {
    ([$($generics:tt)*] $name:ty $(, $extra:item)?) => {
        // SAFETY: the raw arm keeps the promises.
        unsafe impl<$($generics)*> RawArm for $name {
            fn attempt(&self) -> bool {
                self.raw.attempt()
            }
            fn node(&self) -> &ArmNode {
                self.raw.node()
            }
            unsafe fn link(&self, waiter: NonNull<Waiter>) -> Linking {
                // SAFETY: passed on to the caller.
                unsafe { self.raw.link(waiter) }
            }
            unsafe fn unlink(&self) {
                // SAFETY: passed on to the caller.
                unsafe { self.raw.unlink() }
            }
            unsafe fn settle(&self, reason: Reason) -> bool {
                // SAFETY: passed on to the caller.
                unsafe { self.raw.settle(reason) }
            }
        }
        impl<$($generics)*> Sealed for $name {
            fn common(&self) -> &Common {
                &self.common
            }
            $($extra)?
        }
        impl<$($generics)*> Arm for $name {}
        impl<$($generics)*> fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

/// Receives from a channel. Made by [`Receiver::recv_arm`](crate::sync::channel::Receiver::recv_arm).
pub struct RecvArm<'a, T, K: Sharing = Shared> {
    raw: raw::RecvArm<'a, T, K>,
    common: Common,
}

pass_on!(['a, T, K: Sharing] RecvArm<'a, T, K>);

impl<'a, T, K: Sharing> RecvArm<'a, T, K> {
    pub(crate) fn new(channel: &'a Channel<T, K>) -> Self {
        Self {
            raw: raw::RecvArm::new(channel),
            common: Common::new(),
        }
    }

    /// What was received, if the arm was the one that took effect. It can be waited for again afterwards.
    #[must_use]
    pub fn take(&self) -> Option<Result<T, WaitError>> {
        let received = self.raw.take()?;
        Some(received.map_err(|_| WaitError::Closed))
    }
}

/// Sends to a channel. Made by [`Sender::send_arm`](crate::sync::channel::Sender::send_arm).
pub struct SendArm<'a, T, K: Sharing = Shared> {
    raw: raw::SendArm<'a, T, K>,
    common: Common,
}

pass_on!(['a, T, K: Sharing] SendArm<'a, T, K>);

impl<'a, T, K: Sharing> SendArm<'a, T, K> {
    pub(crate) fn new(channel: &'a Channel<T, K>, value: &'a mut Option<T>) -> Self {
        Self {
            raw: raw::SendArm::new(channel, Cell::from_mut(value)),
            common: Common::new(),
        }
    }

    /// Whether the value was sent, if the arm was the one that took effect: the channel may have been closed instead.
    #[must_use]
    pub fn take(&self) -> Option<Result<(), WaitError>> {
        let sent = self.raw.take()?;
        Some(sent.map_err(|_| WaitError::Closed))
    }
}

/// Waits for an event. Made by [`Event::wait_arm`](crate::event::Event::wait_arm).
pub struct EventArm<'a, K: Sharing = Shared> {
    raw: raw::EventArm<'a, K>,
    common: Common,
}

pass_on!(['a, K: Sharing] EventArm<'a, K>);

impl<'a, K: Sharing> EventArm<'a, K> {
    pub(crate) fn new(event: &'a raw::RawEvent<K>) -> Self {
        Self {
            raw: event.arm(),
            common: Common::new(),
        }
    }

    /// Whether the arm was the one that took effect: the caller has the signal then. An arm that is dropped with a
    /// signal that was not taken loses it.
    #[must_use]
    pub fn take(&self) -> Option<Result<(), WaitError>> {
        self.raw.take().map(outcome)
    }
}

/// Waits for the count of a wait group. Made by [`WaitGroup::wait_arm`](crate::sync::WaitGroup::wait_arm).
pub struct WaitGroupArm<'a, K: Sharing = Shared> {
    raw: raw::WaitGroupArm<'a, K>,
    common: Common,
}

pass_on!(['a, K: Sharing] WaitGroupArm<'a, K>);

impl<'a, K: Sharing> WaitGroupArm<'a, K> {
    pub(crate) fn new(group: &'a raw::RawWaitGroup<K>) -> Self {
        Self {
            raw: group.arm(),
            common: Common::new(),
        }
    }

    /// Whether the arm was the one that took effect.
    #[must_use]
    pub fn take(&self) -> Option<Result<(), WaitError>> {
        self.raw.take().map(outcome)
    }
}

/// Receives from a broadcast. Made by [`Receiver::recv_arm`](crate::sync::channel::broadcast::Receiver::recv_arm).
pub struct BroadcastArm<'a, T, K: Sharing = Shared> {
    raw: raw::BroadcastArm<'a, T, K>,
    common: Common,
}

pass_on!(['a, T, K: Sharing] BroadcastArm<'a, T, K>);

impl<'a, T: Clone, K: Sharing> BroadcastArm<'a, T, K> {
    pub(crate) fn new(raw: raw::BroadcastArm<'a, T, K>) -> Self {
        Self {
            raw,
            common: Common::new(),
        }
    }

    /// What was received, if the arm was the one that took effect.
    #[must_use]
    pub fn take(&self) -> Option<Result<T, RecvError>> {
        self.raw.take()?;
        let got = self.raw.probe().take_value()?;
        Some(got.map(News::into_owned).map_err(of_missing))
    }
}

/// Waits for a watched value to change. Made by
/// [`Receiver::changed_arm`](crate::sync::channel::watch::Receiver::changed_arm).
pub struct ChangeArm<'a, T, K: Sharing = Shared> {
    raw: raw::ChangeArm<'a, T, K>,
    common: Common,
}

pass_on!(['a, T, K: Sharing] ChangeArm<'a, T, K>);

impl<'a, T, K: Sharing> ChangeArm<'a, T, K> {
    pub(crate) fn new(raw: raw::ChangeArm<'a, T, K>) -> Self {
        Self {
            raw,
            common: Common::new(),
        }
    }

    /// Whether the arm was the one that took effect: there may be no other value instead.
    #[must_use]
    pub fn take(&self) -> Option<Result<(), WaitError>> {
        self.raw.take().map(outcome)
    }
}

/// Looks at the end of a coroutine.
struct EndProbe<'a>(&'a Block);

// SAFETY: the one queue of the block's joiners; the end claims them all.
unsafe impl Probe<Queue> for EndProbe<'_> {
    fn take(&self, _: &mut Queue) -> Option<Reason> {
        self.0.is_done().then_some(Reason::Woken)
    }

    fn is_there(&self, _: &mut Queue) -> bool {
        // As in `join::wait_for_end`: either the end sees that somebody waits and takes the lock, or it is seen here.
        self.0.life.join(false) == Join::Ended
    }

    fn queue<'a>(&self, state: &'a mut Queue) -> &'a mut Queue {
        state
    }
}

/// Waits for a coroutine's end. Made by [`JoinHandle::wait_arm`](crate::JoinHandle::wait_arm).
pub struct EndArm<'a> {
    raw: QueueArm<'a, Queue, EndProbe<'a>>,
    common: Common,
}

pass_on!(['a] EndArm<'a>);

impl<'a> EndArm<'a> {
    pub(crate) fn new(block: &'a Block) -> Self {
        Self {
            raw: QueueArm::new(&block.joiners, EndProbe(block)),
            common: Common::new(),
        }
    }

    /// Whether the arm was the one that took effect: a join does not wait then.
    #[must_use]
    pub fn take(&self) -> Option<Result<(), WaitError>> {
        self.raw.take().map(outcome)
    }
}

/// What a promise's place holds, and what is called when it is filled.
type RawFuture<'a, T> = raw::PromiseArm<'a, Filled<T>, Callback<T>>;

/// Waits for the end of a promise. Made by [`SharedFuture::wait_arm`](crate::future::SharedFuture::wait_arm).
pub struct FutureArm<'a, T> {
    raw: RawFuture<'a, T>,
    executor: usize,
    common: Common,
}

pass_on!(
    ['a, T] FutureArm<'a, T>,
    fn executor(&self) -> usize {
        self.executor
    }
);

impl<'a, T> FutureArm<'a, T> {
    pub(crate) fn new(raw: RawFuture<'a, T>, executor: usize) -> Self {
        Self {
            raw,
            executor,
            common: Common::new(),
        }
    }

    /// Whether the arm was the one that took effect: the future has its value then, or why there is none.
    #[must_use]
    pub fn take(&self) -> Option<Result<(), WaitError>> {
        self.raw.take().map(outcome)
    }
}

/// Looks at whether a cancel token has fired.
struct FiredProbe<'a>(&'a AtomicBool);

// SAFETY: the one queue of the token's waiters; who fires it sets the flag, takes the lock and claims them all.
unsafe impl Probe<Queue> for FiredProbe<'_> {
    fn take(&self, _: &mut Queue) -> Option<Reason> {
        // ORDERING: as in `CancelToken::is_cancelled`.
        self.0.load(Acquire).then_some(Reason::Woken)
    }

    fn is_there(&self, _: &mut Queue) -> bool {
        self.0.load(Acquire)
    }

    fn queue<'a>(&self, state: &'a mut Queue) -> &'a mut Queue {
        state
    }
}

/// Waits for a cancel token to fire. Made by [`CancelToken::wait_arm`](crate::CancelToken::wait_arm).
pub struct TokenArm<'a> {
    raw: QueueArm<'a, Queue, FiredProbe<'a>>,
    common: Common,
}

pass_on!(['a] TokenArm<'a>);

impl<'a> TokenArm<'a> {
    pub(crate) fn new(waiters: &'a sinew_core::lock::Lock<Queue>, fired: &'a AtomicBool) -> Self {
        Self {
            raw: QueueArm::new(waiters, FiredProbe(fired)),
            common: Common::new(),
        }
    }

    /// Whether the arm was the one that took effect.
    #[must_use]
    pub fn take(&self) -> Option<Result<(), WaitError>> {
        self.raw.take().map(outcome)
    }
}

/// Waits for a point in time. Made by [`after`](super::after) and [`at`](super::at).
pub struct TimeArm {
    deadline_ns: u64,
    /// Never linked: the deadline is the wait's own.
    node: ArmNode,
    is_over: Cell<bool>,
    common: Common,
}

impl TimeArm {
    pub(super) fn at_ns(deadline_ns: u64) -> Self {
        Self {
            deadline_ns,
            node: ArmNode::new(),
            is_over: Cell::new(false),
            common: Common::new(),
        }
    }

    /// Whether the arm was the one that took effect. Its time does not begin anew.
    #[must_use]
    pub fn take(&self) -> Option<()> {
        self.is_over.take().then_some(())
    }
}

// SAFETY: never linked.
unsafe impl RawArm for TimeArm {
    fn attempt(&self) -> bool {
        let is_over = self.is_over.get() || self.deadline_ns <= clock::now_ns();
        self.is_over.set(is_over);
        is_over
    }

    fn node(&self) -> &ArmNode {
        &self.node
    }

    unsafe fn link(&self, _: NonNull<Waiter>) -> Linking {
        Linking::Linked
    }

    unsafe fn unlink(&self) {}

    unsafe fn settle(&self, _: Reason) -> bool {
        false
    }
}

impl Sealed for TimeArm {
    fn common(&self) -> &Common {
        &self.common
    }

    fn deadline_ns(&self) -> Option<u64> {
        Some(self.deadline_ns)
    }

    fn strike(&self) {
        self.is_over.set(true);
    }
}

impl Arm for TimeArm {}

impl fmt::Debug for TimeArm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeArm").finish_non_exhaustive()
    }
}

impl Sealed for ReadyArm<'_> {
    fn common(&self) -> &Common {
        self.common()
    }

    fn ready(&self) -> Option<&ReadyArm<'_>> {
        Some(self)
    }
}

impl Arm for ReadyArm<'_> {}
