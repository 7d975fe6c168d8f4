//! The broadcast: each value to every receiver there is when it is sent; who falls behind loses the oldest and is told how many.
//!
//! Owns: the ring, the queue and the counts, under the broadcast's lock. Any thread may call anything here; a receiver's position is
//! its own.
//!
//! Invariants
//! - I1. The ring holds the last `capacity` values that were sent, by their numbers `next - len .. next`, except those that
//!   every receiver has had.
//! - I2. A value's `remaining` is the number of receivers whose position is not behind it.
//! - I3. While somebody waits who could still be claimed, it has had all values, and the broadcast is open.
//! - I4. No code of the user's runs under the lock: values are counted references, cloned or moved there, and dropped outside.
//!
//! Sending never waits and wakes all who wait; they take for themselves what they were woken for. The last receiver
//! of a value gets the value itself, the others clones of it, made outside of the lock.
#![expect(unsafe_code, reason = "waits through the queue")]

mod polled;

use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;
use core::mem;
use core::ops::Deref;
use core::ptr;

use crate::lock::{Guard, Lock};
use crate::sharing::{Shared, Sharing};
use crate::wait::{Kind, Probe, Queue, QueueArm, Reason, Record, Suspend, wait_in};

/// A channel that gives each value to every receiver.
///
/// `K` says whose parties share it: of all threads, or of one.
pub struct Broadcast<T, K: Sharing = Shared> {
    places: Places,
    state: Lock<State<T, K>, K>,
}

/// What is under a broadcast's lock.
pub struct State<T, K: Sharing> {
    /// The value with the number `n` is at `n % capacity`.
    ring: Vec<Entry<T, K>>,
    /// The number of the next value.
    next: u64,
    waiters: Queue,
    closed: bool,
    sender_count: usize,
    receiver_count: usize,
}

/// How many values are kept, and the place of each.
#[derive(Debug, Clone, Copy)]
struct Places {
    capacity: u64,
    /// What a number is masked with, instead of a division; 0 if there is no such mask.
    mask: u64,
}

impl Places {
    fn new(capacity: usize) -> Self {
        let capacity = capacity as u64;
        let mask = if capacity.is_power_of_two() {
            capacity - 1
        } else {
            0
        };
        Self { capacity, mask }
    }

    /// The place of a number in a ring.
    #[inline(always)]
    fn index(self, number: u64) -> usize {
        let index = match self.mask {
            0 => number % self.capacity,
            mask => number & mask,
        };
        // Less than the capacity, so it fits.
        index as usize
    }
}

/// A value that was received, and whether nobody receives it after this one.
pub struct News<T, K: Sharing = Shared> {
    value: K::Ref<T>,
    is_last: bool,
}

impl<T: Clone, K: Sharing> News<T, K> {
    /// The value itself for its last receiver if all others have their clones, else a clone.
    #[inline]
    pub fn into_owned(self) -> T {
        if self.is_last {
            return K::unwrap_or_clone(self.value);
        }
        // PERF: a locked instruction less than to ask whether it is the last reference, which it hardly ever is.
        T::clone(&self.value)
    }
}

impl<T, K: Sharing> Deref for News<T, K> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Debug, K: Sharing> fmt::Debug for News<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A receive that has the broadcast's lock, and has done nothing yet. Until it goes on or is dropped others spin: no code of the
/// user's runs meanwhile.
#[must_use = "the broadcast is locked"]
pub struct BegunNews<'a, T, K: Sharing = Shared>(Guard<'a, State<T, K>, K>);

impl<T, K: Sharing> fmt::Debug for BegunNews<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BegunNews").finish_non_exhaustive()
    }
}

struct Entry<T, K: Sharing> {
    value: Option<K::Ref<T>>,
    remaining: usize,
}

/// Why nothing was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Nothing is there yet.
    Empty,
    /// Besides, the broadcast is closed: nothing will come.
    Closed,
    /// So many values are lost to this receiver. What it receives next is the oldest that is left.
    Lagged(u64),
}

impl<T> Broadcast<T> {
    /// A broadcast that keeps up to `capacity` values, with one sender and one receiver, whose position is 0; for all threads.
    ///
    /// # Panics
    ///
    /// Panics if `capacity` is zero, or if the memory for so many values cannot be had.
    #[must_use]
    #[track_caller]
    pub fn new(capacity: usize) -> Self {
        Self::of_kind(capacity)
    }
}

impl<T, K: Sharing> Broadcast<T, K> {
    /// As [`new`](Broadcast::new), of either kind.
    ///
    /// # Panics
    ///
    /// Panics if `capacity` is zero, or if the memory for so many values cannot be had.
    #[must_use]
    #[track_caller]
    pub fn of_kind(capacity: usize) -> Self {
        assert!(capacity > 0, "a broadcast keeps at least one value");
        let mut ring = Vec::new();
        if ring.try_reserve_exact(capacity).is_err() {
            panic!("no memory for a broadcast of {capacity} values");
        }
        Self {
            places: Places::new(capacity),
            state: Lock::of_kind(State {
                ring,
                next: 0,
                waiters: Queue::new(),
                closed: false,
                sender_count: 1,
                receiver_count: 1,
            }),
        }
    }

    /// Sends a value to all receivers; says how many those are.
    ///
    /// # Errors
    ///
    /// The value comes back if there is no receiver, or if the broadcast is closed.
    #[inline]
    pub fn send(&self, value: T) -> Result<usize, T> {
        let value = K::Ref::from(value);
        let mut state = self.state.lock();
        let receivers = state.receiver_count;
        if state.closed || receivers == 0 {
            drop(state);
            return Err(unwrap::<T, K>(value));
        }
        let at = self.places.index(state.next);
        let entry = Entry {
            value: Some(value),
            remaining: receivers,
        };
        let before = if at < state.ring.len() {
            Some(mem::replace(&mut state.ring[at], entry))
        } else {
            // There is place: it was reserved.
            state.ring.push(entry);
            None
        };
        state.next += 1;
        let woken = state.waiters.claim_all(Reason::Woken);
        drop(state);
        woken.wake_all();
        drop(before);
        Ok(receivers)
    }

    /// Receives what comes next at this position, if it is there.
    ///
    /// # Errors
    ///
    /// See [`Missing`].
    #[inline]
    pub fn try_recv(&self, position: &Cell<u64>) -> Result<News<T, K>, Missing> {
        self.state.lock().get(position, self.places)
    }

    /// Receives what comes next at this position if it is there; the caller goes on by [`recv_on`](Self::recv_on) otherwise.
    ///
    /// # Errors
    ///
    /// The call that has begun.
    #[inline(always)]
    pub fn recv_begin(&self, position: &Cell<u64>) -> Result<News<T, K>, BegunNews<'_, T, K>> {
        let mut state = self.state.lock();
        state
            .get_kept(position, self.places)
            .ok_or(BegunNews(state))
    }

    /// Receives what comes next at this position, waiting for it if need be.
    ///
    /// # Errors
    ///
    /// [`Missing`] if values were lost, or the broadcast is closed and all were received; else the reason for which the
    /// party gave up.
    pub fn recv<S: Suspend>(
        &self,
        position: &Cell<u64>,
        party: &S,
    ) -> Result<Result<News<T, K>, Missing>, Reason> {
        self.recv_on(BegunNews(self.state.lock()), position, party)
    }

    /// Goes on with a receive at this position as [`recv`](Self::recv) does.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    #[inline]
    pub fn recv_on<S: Suspend>(
        &self,
        begun: BegunNews<'_, T, K>,
        position: &Cell<u64>,
        party: &S,
    ) -> Result<Result<News<T, K>, Missing>, Reason> {
        let BegunNews(mut state) = begun;
        loop {
            match state.get(position, self.places) {
                Err(Missing::Empty) => {}
                result => return Ok(result),
            }
            let record = Record {
                kind: Kind::Receive,
                object: ptr::from_ref(self).addr(),
                owner: 0,
            };
            // SAFETY: the same queue, and nothing is handed over through the slot.
            let reason = unsafe {
                wait_in(
                    &self.state,
                    state,
                    |state| &mut state.waiters,
                    ptr::null_mut(),
                    party,
                    record,
                )
            };
            if matches!(reason, Reason::Timeout | Reason::Cancelled) {
                return Err(reason);
            }
            state = self.state.lock();
        }
    }

    /// An arm that receives at this position.
    #[must_use]
    pub fn arm<'a>(&'a self, position: &'a Cell<u64>) -> BroadcastArm<'a, T, K> {
        let probe = NewsProbe {
            position,
            places: self.places,
            got: Cell::new(None),
        };
        QueueArm::new(&self.state, probe)
    }

    /// Ends sending; what was sent can still be received. Says whether the broadcast was open.
    pub fn close(&self) -> bool {
        self.shut(self.state.lock())
    }

    fn shut(&self, mut state: Guard<'_, State<T, K>, K>) -> bool {
        let opened = !mem::replace(&mut state.closed, true);
        let woken = state.waiters.claim_all(Reason::Closed);
        drop(state);
        woken.wake_all();
        opened
    }

    /// How many values wait at this position, lost ones not counted.
    #[must_use]
    pub fn len(&self, position: u64) -> usize {
        let state = self.state.lock();
        let oldest = state.oldest(self.places).max(position);
        usize::try_from(state.next - oldest).unwrap_or(usize::MAX)
    }

    /// How many values are kept.
    #[must_use]
    pub fn capacity(&self) -> usize {
        // It was one.
        self.places.capacity as usize
    }

    /// Whether sending has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// The receivers.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        self.state.lock().receiver_count
    }

    /// Counts one more sender.
    pub fn add_sender(&self) {
        self.state.lock().sender_count += 1;
    }

    /// Counts one sender less; after the last one the broadcast [closes](Self::close).
    pub fn remove_sender(&self) {
        let mut state = self.state.lock();
        state.sender_count -= 1;
        if state.sender_count == 0 {
            self.shut(state);
        }
    }

    /// Counts one more receiver, of what is sent from now on; returns its position.
    pub fn add_receiver(&self) -> u64 {
        let mut state = self.state.lock();
        state.receiver_count += 1;
        state.next
    }

    /// Counts one more receiver, at the place of the one with this position.
    pub fn add_receiver_at(&self, position: u64) {
        let mut state = self.state.lock();
        state.receiver_count += 1;
        let first = state.oldest(self.places).max(position);
        for number in first..state.next {
            let at = self.places.index(number);
            state.ring[at].remaining += 1;
        }
    }

    /// Counts one receiver less: the one with this position, which is not used any more.
    ///
    /// A value that nobody else waits for is dropped here, when the receiver is counted off: none that is sent from then on is kept for
    /// it. If the drop of one panics, the others are dropped nevertheless and the panic goes on to the caller.
    pub fn remove_receiver(&self, position: u64) {
        /// What the receiver has not had: the values from the one number up to the other.
        struct Rest<'a, T, K: Sharing>(&'a Broadcast<T, K>, u64, u64);
        impl<T, K: Sharing> Rest<'_, T, K> {
            fn release_all(&mut self) {
                while self.1 < self.2 {
                    drop(self.0.release_one(&mut self.1, self.2));
                }
            }
        }
        impl<T, K: Sharing> Drop for Rest<'_, T, K> {
            fn drop(&mut self) {
                self.release_all();
            }
        }
        let end = {
            let mut state = self.state.lock();
            state.receiver_count -= 1;
            state.next
        };
        let mut rest = Rest(self, position, end);
        rest.release_all();
        mem::forget(rest);
    }

    /// Releases the first value that is kept from this position on and before the end, if there is one, and goes on behind it.
    fn release_one(&self, position: &mut u64, end: u64) -> Option<K::Ref<T>> {
        let mut state = self.state.lock();
        let at = state.oldest(self.places).max(*position);
        *position = at + 1;
        if at >= end {
            return None;
        }
        state.release(at, self.places)
    }
}

/// The value of the only reference; the caller has just made it.
fn unwrap<T, K: Sharing>(value: K::Ref<T>) -> T {
    match K::try_unwrap(value) {
        Ok(value) => value,
        Err(_) => unreachable!("the reference was given to nobody"),
    }
}

impl<T, K: Sharing> State<T, K> {
    /// The number of the oldest value that is kept.
    fn oldest(&self, places: Places) -> u64 {
        self.next.saturating_sub(places.capacity)
    }

    #[inline]
    fn get(&mut self, position: &Cell<u64>, places: Places) -> Result<News<T, K>, Missing> {
        match self.get_kept(position, places) {
            Some(news) => Ok(news),
            None => Err(self.miss(position, places)),
        }
    }

    /// What comes next at this position, if it is there.
    #[inline(always)]
    fn get_kept(&mut self, position: &Cell<u64>, places: Places) -> Option<News<T, K>> {
        let at = position.get();
        // Of as many as were sent since, 0 is none, and more than are kept are not all there.
        if (self.next - at).wrapping_sub(1) >= places.capacity {
            return None;
        }
        position.set(at + 1);
        let entry = &mut self.ring[places.index(at)];
        entry.remaining -= 1;
        let is_last = entry.remaining == 0;
        let value = match is_last {
            true => entry.value.take(),
            false => entry.value.clone(),
        };
        // I2: it is there for each of its receivers.
        let value = value.unwrap_or_else(|| unreachable!("I2"));
        Some(News { value, is_last })
    }

    /// Why it is not.
    #[cold]
    fn miss(&self, position: &Cell<u64>, places: Places) -> Missing {
        let at = position.get();
        let oldest = self.oldest(places);
        if at < oldest {
            position.set(oldest);
            return Missing::Lagged(oldest - at);
        }
        if self.closed {
            Missing::Closed
        } else {
            Missing::Empty
        }
    }

    /// One receiver less waits for this value; after the last one it comes out.
    fn release(&mut self, number: u64, places: Places) -> Option<K::Ref<T>> {
        let entry = &mut self.ring[places.index(number)];
        entry.remaining -= 1;
        if entry.remaining == 0 {
            entry.value.take()
        } else {
            None
        }
    }
}

/// How an arm looks at a broadcast.
pub struct NewsProbe<'a, T, K: Sharing = Shared> {
    position: &'a Cell<u64>,
    places: Places,
    got: Cell<Option<Result<News<T, K>, Missing>>>,
}

impl<T, K: Sharing> NewsProbe<'_, T, K> {
    /// What was received last.
    pub fn take_value(&self) -> Option<Result<News<T, K>, Missing>> {
        self.got.take()
    }
}

impl<T, K: Sharing> fmt::Debug for NewsProbe<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewsProbe").finish_non_exhaustive()
    }
}

/// Receives from a broadcast as one of several things. Who takes the arm's outcome takes the
/// [value](NewsProbe::take_value), too.
pub type BroadcastArm<'a, T, K = Shared> = QueueArm<'a, State<T, K>, NewsProbe<'a, T, K>, K>;

// SAFETY: the one queue; who is claimed from it looks again. References are moved under the lock; what was there before is none.
unsafe impl<T, K: Sharing> Probe<State<T, K>> for NewsProbe<'_, T, K> {
    const IS_HINT: bool = true;

    fn take(&self, state: &mut State<T, K>) -> Option<Reason> {
        match state.get(self.position, self.places) {
            Err(Missing::Empty) => None,
            result => {
                self.got.set(Some(result));
                Some(Reason::Woken)
            }
        }
    }

    fn is_there(&self, state: &mut State<T, K>) -> bool {
        state.closed || self.position.get() != state.next
    }

    fn queue<'b>(&self, state: &'b mut State<T, K>) -> &'b mut Queue {
        &mut state.waiters
    }
}

impl<T, K: Sharing> fmt::Debug for State<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl<T, K: Sharing> fmt::Debug for Broadcast<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broadcast")
            .field("capacity", &self.capacity())
            .field("receivers", &self.receiver_count())
            .finish_non_exhaustive()
    }
}
