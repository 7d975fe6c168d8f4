//! The channel: values from many senders to many receivers, each to exactly one.
//!
//! Owns: the buffer, the two queues and the counts, under the channel's lock. Any thread may call anything here.
//!
//! Invariants
//! - I1. While a receiver that could still be claimed waits, there are no more values, in the buffer and of senders of other parties that
//!   could still be claimed, than receivers that were told of one and have neither looked nor left.
//! - I2. While a sender that could still be claimed waits, the buffer is full and the channel is not closed.
//! - I3. A closed channel has nobody waiting who could still be claimed, and its buffer only shrinks.
//! - I4. A value is in one place: the caller's hands, a waiting sender's slot, the buffer, or the slot of a claimed receiver.
//! - I5. No code of the user's runs under the lock: values are only moved there; they are dropped outside.
//! - I6. `reserved` counts the starving receivers that were told and have neither looked nor left. While the channel is open nobody
//!   else takes one of the last so many values.
//!
//! # How values travel
//!
//! - To a waiting receiver that cannot but go on, if no value is there before: into the slot in its frame. Whoever claimed it has
//!   delivered; its deadline comes too late.
//! - Into the buffer, if there is room.
//! - From the frame of a waiting sender: a receiver that finds nothing in the buffer takes it from there (a capacity of 0 is
//!   thereby a true hand-over: `send` returns when a receiver has the value); one that takes from a full buffer moves
//!   the first waiting sender's value into the freed place. Either way the sender is claimed first, so
//!   it either was sent or comes back in the error, never both.
//!
//! A future waits without a slot: it may be dropped at any moment, so nothing is given to it. It is told, in its turn, that a value is
//! there, and takes it when it is polled: until then the value is in the buffer or with its sender, who waits. So is any receiver
//! told while a value is there that was meant for a future. Who was told looks once; a future that leaves instead tells the
//! next. Who finds that another was faster waits again, before all others.
//!
//! Values do not overtake each other, by I2 and because a value is given only where none is before it: their order is that of the
//! calls' turns at the lock.
//!
//! A receiver that comes between another's being told and its look is served before it, [`OVERTAKEN_MAX`] times at most: who has looked in
//! vain so often waits as a starving one, and when it is told one value is reserved (I6). Which one is left open, so the order of
//! the values stays: others still take the first while enough are left. The turn of a starving future that is told and neither polled
//! nor dropped holds back one value, and no more. After the close nothing is reserved, so what is left can be drained.
//! What a starving receiver was told of may still be gone when it looks, but only with the sender that gave up; then it waits
//! before all others, as starving as before.
//!
//! A party that waits at several places, see [`RecvArm`] and [`SendArm`], may be in both queues at once; it does not count as its
//! own other side, and is claimed by a compare-and-swap as any other.
//!
//! Waiting allocates nothing. A bounded channel allocates when it is made; an unbounded one grows by
//! rings that are allocated and freed outside of the lock.
#![expect(
    unsafe_code,
    reason = "waits through queues, and moves values through the frames of waiting parties"
)]

mod arms;
mod begun;
mod polled;
mod telling;
mod turns;

use alloc::boxed::Box;
use core::error::Error;
use core::fmt;
use core::mem;
use core::ptr;

use crate::facade::UnsafeCell;
use crate::lock::{Guard, Lock};
use crate::sharing::{Shared, Sharing};
use crate::sync::fifo::{Fifo, Ring};
use crate::wait::{
    Claimed, Kind, Queue, Reason, Record, Suspend, WakeList, wait_in, wait_in_front,
};

pub use arms::{RecvArm, SendArm};
pub use begun::Begun;
pub use polled::RecvParty;
use telling::{Telling, wake};
pub use turns::OVERTAKEN_MAX;
use turns::{Turn, is_given};

/// A channel for values of type `T`, shared by reference.
///
/// `K` says whose parties share it: of all threads, or of one.
pub struct Channel<T, K: Sharing = Shared> {
    /// The most values that are buffered; `usize::MAX` if there is no limit.
    limit: usize,
    state: Lock<State<T>, K>,
}

struct State<T> {
    buffer: Fifo<T>,
    senders: Queue,
    receivers: Queue,
    closed: bool,
    /// I6.
    reserved: u32,
    sender_count: usize,
    receiver_count: usize,
}

/// What the slot of a waiting party points to: a sender's value until it is taken, a receiver's once
/// it is delivered. A future and a starving receiver receive without one.
type Slot<T> = UnsafeCell<Option<T>>;

/// Why a value was not sent at once; it comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySend<T> {
    /// The buffer is full, or there is none and no receiver waits that could be given the value.
    Full(T),
    /// The channel is closed.
    Closed(T),
}

/// A value that was not sent, and why.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendFailed<T> {
    /// The value.
    pub value: T,
    /// Why: closed, timed out or cancelled.
    pub reason: Reason,
}

/// Why nothing was received at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TryRecv {
    /// Nothing is buffered and no sender waits, but for what is reserved to those whose turn it is.
    Empty,
    /// Besides, the channel is closed: nothing will come.
    Closed,
}

/// What became of a value under the lock.
enum Put<'a, T, K: Sharing> {
    Done,
    Closed(T),
    Full(T, Guard<'a, State<T>, K>),
}

/// What was found under the lock.
enum Got<'a, T, K: Sharing> {
    Value(T),
    Closed,
    Empty(Guard<'a, State<T>, K>),
}

impl<T> Channel<T> {
    /// A channel without a buffer: a value goes from a sender straight to a receiver.
    #[must_use]
    pub fn rendezvous() -> Self {
        Self::rendezvous_of_kind()
    }

    /// A channel that buffers up to `capacity` values. The buffer is allocated here.
    ///
    /// # Panics
    ///
    /// Panics if the memory for `capacity` values cannot be had.
    #[must_use]
    #[track_caller]
    pub fn bounded(capacity: usize) -> Self {
        Self::bounded_of_kind(capacity)
    }

    /// A channel that buffers any number of values.
    #[must_use]
    pub fn unbounded() -> Self {
        Self::unbounded_of_kind()
    }
}

impl<T, K: Sharing> Channel<T, K> {
    /// As [`rendezvous`](Channel::rendezvous), of either kind.
    #[must_use]
    pub fn rendezvous_of_kind() -> Self {
        Self::bounded_of_kind(0)
    }

    /// As [`bounded`](Channel::bounded), of either kind.
    ///
    /// # Panics
    ///
    /// Panics if the memory for `capacity` values cannot be had.
    #[must_use]
    #[track_caller]
    pub fn bounded_of_kind(capacity: usize) -> Self {
        Self::with_buffer(capacity, Fifo::reserved(capacity))
    }

    /// As [`unbounded`](Channel::unbounded), of either kind.
    #[must_use]
    pub fn unbounded_of_kind() -> Self {
        Self::with_buffer(usize::MAX, Fifo::new(0))
    }

    fn with_buffer(limit: usize, buffer: Fifo<T>) -> Self {
        Self {
            limit,
            state: Lock::of_kind(State {
                buffer,
                senders: Queue::new(),
                receivers: Queue::new(),
                closed: false,
                reserved: 0,
                sender_count: 1,
                receiver_count: 1,
            }),
        }
    }

    /// Sends a value if that is possible at once.
    ///
    /// # Errors
    ///
    /// The value comes back if the channel is full or closed.
    #[inline]
    pub fn try_send(&self, value: T) -> Result<(), TrySend<T>> {
        match self.put(value) {
            Put::Done => Ok(()),
            Put::Closed(value) => Err(TrySend::Closed(value)),
            Put::Full(value, guard) => {
                drop(guard);
                Err(TrySend::Full(value))
            }
        }
    }

    /// Sends a value, waiting for room, or without a buffer for a receiver, if need be.
    ///
    /// Room wins over a deadline that has passed and over a cancel.
    ///
    /// # Errors
    ///
    /// The value comes back if the channel is closed or becomes so while it waits, or if the party gave up.
    #[inline]
    pub fn send<S: Suspend>(&self, value: T, party: &S) -> Result<(), SendFailed<T>> {
        match self.send_begin(value) {
            Ok(()) => Ok(()),
            Err((value, begun)) => self.send_on(value, begun, party),
        }
    }

    /// Receives a value if there is one at once.
    ///
    /// # Errors
    ///
    /// Says whether there may ever be one.
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecv> {
        match self.get() {
            Got::Value(value) => Ok(value),
            Got::Closed => Err(TryRecv::Closed),
            Got::Empty(_) => Err(TryRecv::Empty),
        }
    }

    /// Receives a value, waiting for one if need be.
    ///
    /// A value wins over a deadline that has passed, over a cancel and over the channel's being closed.
    ///
    /// # Errors
    ///
    /// [`Reason::Closed`] if the channel is closed and nothing is left, else the reason for which the party gave up.
    #[inline]
    pub fn recv<S: Suspend>(&self, party: &S) -> Result<T, Reason> {
        match self.recv_begin() {
            Ok(value) => Ok(value),
            Err(begun) => self.recv_on(begun, party),
        }
    }

    /// Ends sending: who waits is woken, waiting senders get their values back, and what is buffered can
    /// still be received. Says whether the channel was open.
    pub fn close(&self) -> bool {
        self.shut(self.state.lock())
    }

    /// Ends receiving: as [`close`](Self::close), and what is buffered is dropped.
    ///
    /// If the drop of a value panics, the others are dropped nevertheless and the panic goes on to the caller.
    pub fn close_receivers(&self) -> bool {
        // Made and dropped without the lock: a value's drop may come back here, and takes as long as it likes.
        let empty = Fifo::new(0);
        let mut state = self.state.lock();
        let buffer = mem::replace(&mut state.buffer, empty);
        let opened = self.shut(state);
        drop(buffer);
        opened
    }

    /// How many values are buffered. Out of date as soon as it is said, as the following are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.lock().buffer.len()
    }

    /// Whether nothing is buffered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether as much is buffered as can be; always so without a buffer.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Whether sending has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// The most values that are buffered; `None` if there is no limit.
    #[must_use]
    pub fn capacity(&self) -> Option<usize> {
        (self.limit != usize::MAX).then_some(self.limit)
    }

    /// Counts one more handle that sends. A new channel has one.
    pub fn add_sender(&self) {
        let mut state = self.state.lock();
        state.sender_count += 1;
    }

    /// The same unless the channel is closed or no such handle is left; says whether it was counted.
    pub fn try_add_sender(&self) -> bool {
        let mut state = self.state.lock();
        let is_open = !state.closed && state.sender_count > 0;
        if is_open {
            state.sender_count += 1;
        }
        is_open
    }

    /// Counts one handle less that sends; after the last one the channel [closes](Self::close).
    ///
    /// # Panics
    ///
    /// Panics if none is left to be taken away.
    pub fn remove_sender(&self) {
        let mut state = self.state.lock();
        let left = state.sender_count.checked_sub(1);
        state.sender_count = left.expect("a handle is counted before it goes");
        if state.sender_count == 0 {
            self.shut(state);
        }
    }

    /// Counts one more handle that receives. A new channel has one.
    pub fn add_receiver(&self) {
        let mut state = self.state.lock();
        state.receiver_count += 1;
    }

    /// Counts one handle less that receives; after the last one the channel [closes for
    /// receivers](Self::close_receivers).
    ///
    /// # Panics
    ///
    /// Panics if none is left to be taken away.
    pub fn remove_receiver(&self) {
        let mut state = self.state.lock();
        let left = state.receiver_count.checked_sub(1);
        state.receiver_count = left.expect("a handle is counted before it goes");
        let last = state.receiver_count == 0;
        drop(state);
        if last {
            self.close_receivers();
        }
    }

    /// The handles that send.
    #[must_use]
    pub fn sender_count(&self) -> usize {
        self.state.lock().sender_count
    }

    /// The handles that receive.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        self.state.lock().receiver_count
    }

    /// Gives a value to the first waiting receiver, or to the buffer.
    ///
    /// Where it is full a receiver that waits has still to be [told](State::tell), of a value that is going to wait.
    #[inline]
    fn put(&self, value: T) -> Put<'_, T, K> {
        self.put_locked(value, self.state.lock())
    }

    #[inline]
    fn put_locked<'a>(&'a self, value: T, state: Guard<'a, State<T>, K>) -> Put<'a, T, K> {
        if state.closed {
            return Put::Closed(value);
        }
        if !state.receivers.is_empty() {
            return self.put_to_receiver(value, state);
        }
        self.put_to_buffer(value, state)
    }

    fn put_to_receiver<'a>(&'a self, value: T, mut state: Guard<'a, State<T>, K>) -> Put<'a, T, K> {
        if state.has_values() || state.reserved > 0 {
            return self.put_and_tell(value, state);
        }
        let Some(receiver) = state.receivers.claim_front_if(Reason::Woken, is_given) else {
            return self.put_and_tell(value, state);
        };
        // SAFETY: claimed from the receivers of this channel, with a slot.
        unsafe { give(&receiver, value) };
        drop(state);
        receiver.wake();
        Put::Done
    }

    /// Puts a value into the buffer, and tells the first receiver that something is there.
    #[cold]
    fn put_and_tell<'a>(&'a self, value: T, mut state: Guard<'a, State<T>, K>) -> Put<'a, T, K> {
        if state.buffer.len() >= self.limit {
            return Put::Full(value, state);
        }
        match state.buffer.push(value) {
            Ok(()) => {
                let told = state.tell();
                drop(state);
                wake(told);
                Put::Done
            }
            Err(value) => {
                drop(state);
                self.put_growing(value)
            }
        }
    }

    #[inline]
    fn put_to_buffer<'a>(&'a self, value: T, mut state: Guard<'a, State<T>, K>) -> Put<'a, T, K> {
        if state.buffer.len() >= self.limit {
            return Put::Full(value, state);
        }
        match state.buffer.push(value) {
            Ok(()) => Put::Done,
            Err(value) => {
                drop(state);
                self.put_growing(value)
            }
        }
    }

    /// As [`put`](Self::put), to an unbounded channel whose buffer needs another ring.
    #[cold]
    fn put_growing(&self, value: T) -> Put<'_, T, K> {
        let capacity = self.state.lock().buffer.growth();
        let ring = Ring::boxed(capacity);
        let mut state = self.state.lock();
        // The ring goes in first, whatever has happened meanwhile, so that one round suffices.
        let unneeded = state.buffer.adopt(ring);
        let put = if state.closed {
            Put::Closed(value)
        } else {
            self.put_to_receiver(value, state)
        };
        drop(unneeded);
        put
    }

    /// Takes the first value from the buffer, or from the first waiting sender.
    #[inline]
    fn get(&self) -> Got<'_, T, K> {
        self.get_locked(self.state.lock())
    }

    #[inline]
    fn get_locked<'a>(&'a self, state: Guard<'a, State<T>, K>) -> Got<'a, T, K> {
        if state.reserved > 0 {
            return self.get_unreserved(state);
        }
        self.get_first(state)
    }

    #[inline]
    fn get_first<'a>(&'a self, mut state: Guard<'a, State<T>, K>) -> Got<'a, T, K> {
        let mut retired = None;
        let Some(value) = state.buffer.pop(&mut retired) else {
            return self.get_from_sender(state);
        };
        if state.senders.is_empty() {
            drop(state);
        } else {
            refill(state);
        }
        drop_retired(retired);
        Got::Value(value)
    }

    fn get_from_sender<'a>(&'a self, mut state: Guard<'a, State<T>, K>) -> Got<'a, T, K> {
        let Some(sender) = state.senders.claim_front(Reason::Woken) else {
            if state.closed {
                return Got::Closed;
            }
            return Got::Empty(state);
        };
        // SAFETY: claimed from the senders of this channel.
        let value = unsafe { exchange(&sender, None) };
        drop(state);
        sender.wake();
        Got::Value(value.expect("a sender waits with its value in its slot"))
    }

    /// PERF: in the frame of its only caller, as [`recv_slow`](Self::recv_slow). The party is given by value: a small one stays in
    /// registers.
    #[inline(always)]
    fn send_slow<S: Suspend>(
        &self,
        value: T,
        guard: Guard<'_, State<T>, K>,
        party: S,
    ) -> Result<(), SendFailed<T>> {
        if guard.receivers.is_empty() {
            self.send_waiting(value, guard, &party)
        } else {
            self.send_telling(value, guard, party)
        }
    }

    /// As [`send_waiting`](Self::send_waiting), where receivers wait that are not given the value: the first of them is told.
    #[cold]
    #[inline(never)]
    fn send_telling<S: Suspend>(
        &self,
        value: T,
        mut guard: Guard<'_, State<T>, K>,
        party: S,
    ) -> Result<(), SendFailed<T>> {
        if let Some(told) = guard.tell() {
            let party = Telling::new(&party, told);
            return self.send_waiting(value, guard, &party);
        }
        self.send_waiting(value, guard, &party)
    }

    #[inline(always)]
    fn send_waiting<S: Suspend>(
        &self,
        value: T,
        guard: Guard<'_, State<T>, K>,
        party: &S,
    ) -> Result<(), SendFailed<T>> {
        let slot: Slot<T> = UnsafeCell::new(Some(value));
        // SAFETY: the same queue, and the slot that receivers expect, which outlives the wait.
        let reason = unsafe {
            wait_in(
                &self.state,
                guard,
                |state| &mut state.senders,
                ptr::from_ref(&slot).cast_mut().cast(),
                party,
                self.record(Kind::Send),
            )
        };
        // The waiter goes on: its frame is its own again.
        match slot.into_inner() {
            None => Ok(()),
            Some(value) => Err(SendFailed { value, reason }),
        }
    }

    /// PERF: in the frame of its only caller, see the runtime's suspension.
    #[inline(always)]
    fn recv_slow<S: Suspend>(&self, guard: Guard<'_, State<T>, K>, party: S) -> Result<T, Reason> {
        let slot: Slot<T> = UnsafeCell::new(None);
        // SAFETY: the same queue, and the slot that senders expect, which outlives the wait.
        let reason = unsafe {
            wait_in(
                &self.state,
                guard,
                |state| &mut state.receivers,
                ptr::from_ref(&slot).cast_mut().cast(),
                &party,
                self.record(Kind::Receive),
            )
        };
        // The waiter goes on: its frame is its own again.
        if let Some(value) = slot.into_inner() {
            return Ok(value);
        }
        if matches!(reason, Reason::Timeout | Reason::Cancelled) {
            return Err(reason);
        }
        self.recv_told(party)
    }

    /// Receives as one that was told that there is something to see, and waits before all others if that was in vain.
    #[cold]
    #[inline(never)]
    fn recv_told<S: Suspend>(&self, party: S) -> Result<T, Reason> {
        let mut turn = Turn::new();
        loop {
            let guard = match self.get_told(&mut turn) {
                Got::Value(value) => return Ok(value),
                Got::Closed => return Err(Reason::Closed),
                Got::Empty(guard) => guard,
            };
            if let Some(reason) = party.expired() {
                return Err(reason);
            }
            let slot: Slot<T> = UnsafeCell::new(None);
            let place = ptr::from_ref(&slot).cast_mut().cast();
            // SAFETY: the same queue, and the slot that senders expect, which outlives the wait, or the mark of a starving one.
            let reason = unsafe {
                wait_in_front(
                    &self.state,
                    guard,
                    |state| &mut state.receivers,
                    turn.slot_or(place),
                    &party,
                    self.record(Kind::Receive),
                )
            };
            // The waiter goes on: its frame is its own again.
            if let Some(value) = slot.into_inner() {
                return Ok(value);
            }
            if matches!(reason, Reason::Timeout | Reason::Cancelled) {
                return Err(reason);
            }
            turn.end(reason);
        }
    }

    fn record(&self, kind: Kind) -> Record {
        Record {
            kind,
            object: ptr::from_ref(self).addr(),
            owner: 0,
        }
    }

    /// Closes the channel and wakes everyone; says whether it was open.
    fn shut(&self, mut state: Guard<'_, State<T>, K>) -> bool {
        let (opened, senders, receivers) = state.shut();
        drop(state);
        senders.wake_all();
        receivers.wake_all();
        opened
    }
}

impl<T> State<T> {
    /// Whether something is there for a receiver that looks.
    fn has_values(&mut self) -> bool {
        self.buffer.len() > 0 || (!self.senders.is_empty() && self.senders.has_claimable())
    }

    /// Claims the first receiver, to look: something is there, or will be when the lock is given back. It is woken thereafter.
    #[inline]
    fn tell(&mut self) -> Option<Claimed> {
        let told = self.receivers.claim_front(Reason::Woken);
        self.reserve_for(told)
    }

    fn shut(&mut self) -> (bool, WakeList, WakeList) {
        let opened = !mem::replace(&mut self.closed, true);
        let senders = self.senders.claim_all(Reason::Closed);
        let receivers = self.receivers.claim_all(Reason::Closed);
        (opened, senders, receivers)
    }
}

/// Moves the value of the first waiting sender into the place that was just freed in the buffer, and wakes it.
fn refill<T, K: Sharing>(mut state: Guard<'_, State<T>, K>) {
    let Some(sender) = state.senders.claim_front(Reason::Woken) else {
        return;
    };
    // SAFETY: claimed from the senders of this channel.
    let value = unsafe { exchange(&sender, None) };
    if let Some(value) = value
        && let Err(value) = state.buffer.push(value)
    {
        // Cannot be: senders wait only at a bounded channel, whose ring has the place that was freed.
        // Putting the value back would be wrong as well, as the sender is claimed.
        mem::forget(value);
        debug_assert!(false, "a place was freed in the ring");
    }
    drop(state);
    sender.wake();
}

/// Puts a value into the slot of a claimed receiver.
///
/// # Safety
///
/// As for [`exchange`].
#[inline(always)]
unsafe fn give<T>(receiver: &Claimed, value: T) {
    // SAFETY: passed on to the caller.
    let before = unsafe { exchange(receiver, Some(value)) };
    debug_assert!(before.is_none(), "a receiver waits with an empty slot");
    // Nothing is in there; forgetting it says that no drop of a T can run here.
    mem::forget(before);
}

/// Puts `new` into the slot of a claimed party, and takes out what is there.
///
/// # Safety
///
/// The party was claimed from one of the queues of a channel for `T`, where it waits with a slot.
#[inline]
unsafe fn exchange<T>(party: &Claimed, new: Option<T>) -> Option<T> {
    // SAFETY: the slot is in the party's frame or seat, and it cannot go on before the wake.
    let slot = unsafe { &*party.slot().cast::<Slot<T>>() };
    // SAFETY: claimed by this thread, so nobody else reaches the slot.
    slot.with_mut(|slot| mem::replace(unsafe { &mut *slot }, new))
}

/// Frees a ring of the buffer, which is rare, out of line.
#[inline]
fn drop_retired<T>(retired: Option<Box<Ring<T>>>) {
    #[cold]
    fn free<T>(ring: Box<Ring<T>>) {
        drop(ring);
    }
    if let Some(ring) = retired {
        free(ring);
    }
}

impl<T, K: Sharing> fmt::Debug for Channel<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let (len, closed) = (state.buffer.len(), state.closed);
        drop(state);
        f.debug_struct("Channel")
            .field("len", &len)
            .field("capacity", &self.capacity())
            .field("closed", &closed)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for TrySend<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Display for TrySend<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "sending to a full channel",
            Self::Closed(_) => "sending to a closed channel",
        })
    }
}

impl<T> Error for TrySend<T> {}

impl<T> fmt::Debug for SendFailed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendFailed")
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for TryRecv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "receiving from an empty channel",
            Self::Closed => "receiving from an empty and closed channel",
        })
    }
}

impl Error for TryRecv {}
