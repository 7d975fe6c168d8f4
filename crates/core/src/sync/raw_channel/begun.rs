//! The first half of a call: what it does where nobody waits and the buffer has the value or the room, small enough for the caller's
//! frame. The other half goes on under the same lock.
//!
//! Owns: the lock from the one half to the other. Any thread.
//!
//! PERF: of 100 calls at a channel for 128 values 97 end here, after some thirty instructions, of which one is locked.
#![expect(unsafe_code, reason = "fills and empties the slots of claimed waiters")]

use core::fmt;

use super::{Channel, Got, Put, SendFailed, State, exchange, give, is_given};
use crate::lock::Guard;
use crate::sharing::{Shared, Sharing};
use crate::wait::{Course, Reason, Suspend, Waking};

/// A call that has the channel's lock, and has done nothing yet. Until it goes on or is dropped others spin: no code of the
/// user's runs meanwhile.
#[must_use = "the channel is locked"]
pub struct Begun<'a, T, K: Sharing = Shared>(Guard<'a, State<T>, K>);

impl<T, K: Sharing> fmt::Debug for Begun<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begun").finish_non_exhaustive()
    }
}

impl<T, K: Sharing> Channel<T, K> {
    /// Sends a value if it goes into the buffer and no receiver is to hear of it; the caller goes on by
    /// [`send_on`](Self::send_on) otherwise.
    ///
    /// # Errors
    ///
    /// The value comes back, and the call that has begun.
    #[inline(always)]
    pub fn send_begin(&self, value: T) -> Result<(), (T, Begun<'_, T, K>)> {
        let mut state = self.state.lock();
        if state.closed || !state.receivers.is_empty() {
            return Err((value, Begun(state)));
        }
        // A bounded buffer has as many places as it may hold values.
        match state.buffer.push_here(value) {
            Ok(()) => Ok(()),
            Err(value) => Err((value, Begun(state))),
        }
    }

    /// Goes on with a send as [`send`](Self::send) does.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    #[inline]
    pub fn send_on<S: Suspend>(
        &self,
        value: T,
        begun: Begun<'_, T, K>,
        party: &S,
    ) -> Result<(), SendFailed<T>> {
        match self.put_locked(value, begun.0) {
            Put::Done => Ok(()),
            Put::Closed(value) => Err(SendFailed {
                value,
                reason: Reason::Closed,
            }),
            Put::Full(value, guard) => self.send_slow(value, guard, party),
        }
    }

    /// As [`send_on`](Self::send_on), by a party that knows who is near; says whether it has waited.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    #[inline(always)]
    pub fn send_on_by<S: Suspend, W: Waking>(
        &self,
        value: T,
        begun: Begun<'_, T, K>,
        party: S,
        by: &W,
    ) -> Result<Course, SendFailed<T>> {
        let mut state = begun.0;
        if state.gives_next()
            && let Some(receiver) = state
                .receivers
                .claim_front_near(by, Reason::Woken, is_given)
        {
            // SAFETY: claimed from the receivers of this channel, with a slot.
            unsafe { give(&receiver, value) };
            drop(state);
            receiver.wake();
            return Ok(Course::AtOnce);
        }
        if state.gives_nobody(self.limit) {
            self.send_waiting(value, state, &party)?;
            return Ok(Course::Waited);
        }
        self.send_rest(value, state, party)
    }

    /// Whatever else a send comes to.
    ///
    /// PERF: out of the caller's frame, which has room for what is common only.
    #[inline(never)]
    fn send_rest<S: Suspend>(
        &self,
        value: T,
        state: Guard<'_, State<T>, K>,
        party: S,
    ) -> Result<Course, SendFailed<T>> {
        match self.put_locked(value, state) {
            Put::Done => Ok(Course::AtOnce),
            Put::Closed(value) => Err(SendFailed {
                value,
                reason: Reason::Closed,
            }),
            Put::Full(value, guard) => {
                self.send_slow(value, guard, party)?;
                Ok(Course::Waited)
            }
        }
    }

    /// Receives a value if it comes from the buffer and no sender waits for its place; the caller goes on by
    /// [`recv_on`](Self::recv_on) otherwise.
    ///
    /// # Errors
    ///
    /// The call that has begun.
    #[inline(always)]
    pub fn recv_begin(&self) -> Result<T, Begun<'_, T, K>> {
        let mut state = self.state.lock();
        if state.reserved > 0 || !state.senders.is_empty() {
            return Err(Begun(state));
        }
        match state.buffer.pop_here() {
            Some(value) => Ok(value),
            None => Err(Begun(state)),
        }
    }

    /// Goes on with a receive as [`recv`](Self::recv) does.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    #[inline]
    pub fn recv_on<S: Suspend>(&self, begun: Begun<'_, T, K>, party: &S) -> Result<T, Reason> {
        match self.get_locked(begun.0) {
            Got::Value(value) => Ok(value),
            Got::Closed => Err(Reason::Closed),
            Got::Empty(guard) => self.recv_slow(guard, party),
        }
    }

    /// As [`recv_on`](Self::recv_on), by a party that knows who is near; says whether it has waited.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    ///
    /// # Panics
    ///
    /// If a sender waits without its value, which none does.
    #[inline(always)]
    pub fn recv_on_by<S: Suspend, W: Waking>(
        &self,
        begun: Begun<'_, T, K>,
        party: S,
        by: &W,
    ) -> Result<(T, Course), Reason> {
        let mut state = begun.0;
        if state.has_something() {
            if state.is_given_next()
                && let Some(sender) = state.senders.claim_front_near(by, Reason::Woken, |_| true)
            {
                // SAFETY: claimed from the senders of this channel.
                let value = unsafe { exchange(&sender, None) };
                drop(state);
                sender.wake();
                let value = value.expect("a sender waits with its value in its slot");
                return Ok((value, Course::AtOnce));
            }
            return self.recv_rest(state, party);
        }
        Ok((self.recv_slow(state, party)?, Course::Waited))
    }

    /// Whatever else a receive comes to.
    ///
    /// PERF: as [`send_rest`](Self::send_rest).
    #[inline(never)]
    fn recv_rest<S: Suspend>(
        &self,
        state: Guard<'_, State<T>, K>,
        party: S,
    ) -> Result<(T, Course), Reason> {
        match self.get_locked(state) {
            Got::Value(value) => Ok((value, Course::AtOnce)),
            Got::Closed => Err(Reason::Closed),
            Got::Empty(guard) => Ok((self.recv_slow(guard, party)?, Course::Waited)),
        }
    }
}

impl<T> State<T> {
    /// Whether a value that is sent goes to the first receiver, if that takes values.
    #[inline(always)]
    fn gives_next(&self) -> bool {
        !self.closed && self.reserved == 0 && self.buffer.len() == 0 && self.senders.is_empty()
    }

    /// Whether a value that is sent is to wait, and no receiver is to hear of it.
    #[inline(always)]
    fn gives_nobody(&self, limit: usize) -> bool {
        !self.closed && self.receivers.is_empty() && self.buffer.len() >= limit
    }

    /// Whether a receiver is given the value of the first sender.
    #[inline(always)]
    fn is_given_next(&self) -> bool {
        self.reserved == 0 && self.buffer.len() == 0
    }

    /// Whether there may be anything for a receiver: a value, or the end.
    #[inline(always)]
    fn has_something(&self) -> bool {
        self.closed || self.reserved > 0 || self.buffer.len() > 0 || !self.senders.is_empty()
    }
}
