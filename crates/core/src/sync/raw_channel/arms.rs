//! The channel's arms: to send or to receive as one of several things of which one happens.
//!
//! Owns: the slots in which the arms lend or await a value. Thread: the waiter's; a claimer reaches the slot of its arm.
//!
//! Invariants
//! - I1. A value to be sent is in its home, except from `link` to `unlink` or `settle`, when it is in the slot; once it is
//!   sent it is in neither.
#![expect(
    unsafe_code,
    reason = "waits through queues, and lends values to other parties"
)]

use core::cell::Cell;
use core::fmt;
use core::ptr::{self, NonNull};

use super::telling::wake;
use super::turns::Turn;
use super::{Channel, Got, Slot, State, TrySend, is_given};
use crate::facade::UnsafeCell;
use crate::sharing::{Shared, Sharing};
use crate::wait::{Arm, ArmNode, Linking, Reason, Waiter};

/// Receives from a channel, as one of several things of which one happens.
///
/// One that was told of a value which was gone when it looked waits before all others the next time, and is overtaken
/// [`OVERTAKEN_MAX`](super::OVERTAKEN_MAX) times at most, from wait to wait until it has a value.
pub struct RecvArm<'a, T, K: Sharing = Shared> {
    channel: &'a Channel<T, K>,
    node: ArmNode,
    slot: Slot<T>,
    /// Nothing is reserved for it but from the claim by its node until it settles.
    turn: Cell<Turn>,
    /// Whether it has taken effect; without a value in the slot, by finding the channel closed.
    is_done: Cell<bool>,
}

impl<'a, T, K: Sharing> RecvArm<'a, T, K> {
    /// An arm that receives from this channel.
    #[must_use]
    pub fn new(channel: &'a Channel<T, K>) -> Self {
        Self {
            channel,
            node: ArmNode::new(),
            slot: UnsafeCell::new(None),
            turn: Cell::new(Turn::new()),
            is_done: Cell::new(false),
        }
    }

    /// Keeps what was got until it is taken; says whether the arm has taken effect.
    fn keep(&self, got: Got<'_, T, K>) -> bool {
        match got {
            Got::Value(value) => {
                // SAFETY: not linked, so the slot is the waiter's; it is empty.
                self.slot.with_mut(|slot| unsafe { *slot = Some(value) });
            }
            Got::Closed => {}
            Got::Empty(_) => return false,
        }
        self.turn.set(Turn::new());
        self.is_done.set(true);
        true
    }

    /// What was received, if the arm has taken effect; it can be waited for again afterwards.
    ///
    /// # Errors
    ///
    /// [`Reason::Closed`] if the channel is closed and nothing is left.
    pub fn take(&self) -> Option<Result<T, Reason>> {
        self.is_done.take().then(|| {
            // SAFETY: not linked, so the slot is the waiter's.
            let value = self.slot.with_mut(|slot| unsafe { (*slot).take() });
            value.ok_or(Reason::Closed)
        })
    }
}

// SAFETY: linked into the receivers, under the channel's lock, only if nothing can be received; `get` takes claimed senders out.
unsafe impl<T, K: Sharing> Arm for RecvArm<'_, T, K> {
    fn attempt(&self) -> bool {
        self.is_done.get() || self.keep(self.channel.get())
    }

    fn node(&self) -> &ArmNode {
        &self.node
    }

    unsafe fn link(&self, waiter: NonNull<Waiter>) -> Linking {
        let mut state = self.channel.state.lock();
        if state.can_receive(waiter) {
            return Linking::Ready;
        }
        let turn = self.turn.get();
        let slot = turn.slot_or(ptr::from_ref(&self.slot).cast_mut().cast());
        // SAFETY: unlinked, and the caller is its waiter.
        let node = unsafe { self.node.prepare(waiter, slot) };
        if turn.was_overtaken() {
            // SAFETY: prepared, spread; `unlink` or the claim takes it out.
            unsafe { state.receivers.push_front(node) };
        } else {
            // SAFETY: as above.
            unsafe { state.receivers.push_back(node) };
        }
        Linking::Linked
    }

    unsafe fn unlink(&self) {
        let mut state = self.channel.state.lock();
        // SAFETY: alive; if it is in a queue then in this one.
        unsafe { state.receivers.remove(self.node.as_node()) };
    }

    unsafe fn settle(&self, reason: Reason) -> bool {
        // SAFETY: not linked any more, so the slot is the waiter's.
        let is_given = self.slot.with(|slot| unsafe { (*slot).is_some() });
        if is_given {
            self.turn.set(Turn::new());
            self.is_done.set(true);
            return true;
        }
        // It was told that there is something to see.
        let mut turn = self.turn.get();
        turn.end(reason);
        let got = self.channel.get_told(&mut turn);
        self.turn.set(turn);
        self.keep(got)
    }
}

impl<T, K: Sharing> fmt::Debug for RecvArm<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvArm").finish_non_exhaustive()
    }
}

/// Sends to a channel, as one of several things of which one happens.
///
/// The value stays in its home, which is the caller's, until it is sent. While there is none the arm never takes effect.
pub struct SendArm<'a, T, K: Sharing = Shared> {
    channel: &'a Channel<T, K>,
    home: &'a Cell<Option<T>>,
    node: ArmNode,
    slot: Slot<T>,
    outcome: Cell<Option<Result<(), Reason>>>,
}

impl<'a, T, K: Sharing> SendArm<'a, T, K> {
    /// An arm that sends what is in `home` to this channel.
    #[must_use]
    pub fn new(channel: &'a Channel<T, K>, home: &'a Cell<Option<T>>) -> Self {
        Self {
            channel,
            home,
            node: ArmNode::new(),
            slot: UnsafeCell::new(None),
            outcome: Cell::new(None),
        }
    }

    /// Whether the value was sent, if the arm has taken effect; it can be waited for again afterwards.
    ///
    /// # Errors
    ///
    /// [`Reason::Closed`] if the channel is closed: the value is still at home.
    pub fn take(&self) -> Option<Result<(), Reason>> {
        self.outcome.take()
    }

    /// Brings the value home, if nobody has taken it; says whether there was one.
    fn come_home(&self) -> bool {
        // SAFETY: not linked any more, so the slot is the waiter's.
        match self.slot.with_mut(|slot| unsafe { (*slot).take() }) {
            Some(value) => {
                self.put_home(value);
                true
            }
            None => false,
        }
    }

    fn put_home(&self, value: T) {
        let before = self.home.replace(Some(value));
        debug_assert!(before.is_none(), "I1");
    }
}

// SAFETY: linked into the senders, under the channel's lock, only if nothing can be sent; `put` takes claimed receivers out.
unsafe impl<T, K: Sharing> Arm for SendArm<'_, T, K> {
    fn attempt(&self) -> bool {
        if self.outcome.get().is_some() {
            return true;
        }
        let Some(value) = self.home.take() else {
            return false;
        };
        let outcome = match self.channel.try_send(value) {
            Ok(()) => Ok(()),
            Err(TrySend::Closed(value)) => {
                self.put_home(value);
                Err(Reason::Closed)
            }
            Err(TrySend::Full(value)) => {
                self.put_home(value);
                return false;
            }
        };
        self.outcome.set(Some(outcome));
        true
    }

    fn node(&self) -> &ArmNode {
        &self.node
    }

    unsafe fn link(&self, waiter: NonNull<Waiter>) -> Linking {
        let Some(value) = self.home.take() else {
            return Linking::Linked;
        };
        let mut state = self.channel.state.lock();
        if state.can_send(waiter, self.channel.limit) {
            drop(state);
            self.put_home(value);
            return Linking::Ready;
        }
        // SAFETY: not linked, so the slot is the waiter's; it is empty.
        self.slot.with_mut(|slot| unsafe { *slot = Some(value) });
        let slot = ptr::from_ref(&self.slot).cast_mut().cast();
        // SAFETY: unlinked, and the caller is its waiter.
        let node = unsafe { self.node.prepare(waiter, slot) };
        // SAFETY: prepared, spread; `unlink` or the claim takes it out.
        unsafe { state.senders.push_back(node) };
        let told = state.receivers.claim_other(waiter, Reason::Woken);
        let told = state.reserve_for(told);
        drop(state);
        wake(told);
        Linking::Linked
    }

    unsafe fn unlink(&self) {
        let mut state = self.channel.state.lock();
        // SAFETY: alive; if it is in a queue then in this one.
        unsafe { state.senders.remove(self.node.as_node()) };
        drop(state);
        self.come_home();
    }

    unsafe fn settle(&self, reason: Reason) -> bool {
        let outcome = if self.come_home() {
            debug_assert_eq!(reason, Reason::Closed);
            Err(Reason::Closed)
        } else {
            Ok(())
        };
        self.outcome.set(Some(outcome));
        true
    }
}

impl<T, K: Sharing> fmt::Debug for SendArm<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendArm").finish_non_exhaustive()
    }
}

impl<T> State<T> {
    /// Whether `waiter` would receive something, or hear that nothing comes.
    fn can_receive(&self, waiter: NonNull<Waiter>) -> bool {
        if self.reserved > 0 {
            return self.closed || self.has_unreserved(Some(waiter));
        }
        self.closed || self.buffer.len() > 0 || self.senders.has_other(waiter)
    }

    /// Whether `waiter` could send, or would hear that it cannot.
    fn can_send(&self, waiter: NonNull<Waiter>, limit: usize) -> bool {
        let can_give = || {
            let first = self.receivers.first_other(waiter);
            first.is_some_and(is_given)
                && self.reserved == 0
                && self.buffer.len() == 0
                && !self.senders.has_other(waiter)
        };
        self.closed || self.buffer.len() < limit || can_give()
    }
}
