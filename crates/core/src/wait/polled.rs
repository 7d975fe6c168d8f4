//! A party that is polled instead of suspended: the place of a [`Future`](core::future::Future) in a primitive's queue.
//!
//! Owns: the seat, which is a waiter with its node, the slot for what is handed over, and the [`Waker`] to call.
//! Thread: the links are the primitive's lock's; the slot changes under it too; the stage and the waker have a short lock of the
//! seat's own; everything else is the polling party's.
//!
//! A future can be polled, moved, dropped or forgotten at any moment, also between a claim and its wake. So the seat
//! is not in the future but in an allocation of its own, made when the future first has to wait, and the last of
//! the two who know it frees it:
//!
//! | stage | who knows the seat | next |
//! |---|---|---|
//! | `Waiting` | the party, the queue or the winner of a claim | the winner's wake: `Woken`; the party leaves claimed: `Gone` |
//! | `Woken` | the party | used again, or freed |
//! | `Gone` | the winner of the claim | its wake frees it |
//!
//! Invariants
//! - I1. A seat is linked or claimed only while its stage is `Waiting` or `Gone`.
//! - I2. No code of the user's runs under a lock: wakers are cloned, called and dropped outside, as are values.
//! - I3. A claim stands: what was handed over to a party that leaves is given to the caller of [`Polled::leave`].
#![expect(
    unsafe_code,
    reason = "a seat is shared with queues and with the winners of claims"
)]

use alloc::boxed::Box;
use core::fmt;
use core::mem;
use core::ptr::{self, NonNull};
use core::task::{Poll, Waker};

use crate::facade::UnsafeCell;
use crate::lock::Lock;
use crate::wait::node::{Node, Waiter, Ways};
use crate::wait::queue::Queue;
use crate::wait::word::Reason;

/// How a waker is called: outside of all locks, and without unwinding into who wakes.
pub type Call = fn(Waker);

/// A wait at a primitive that is polled. `T` is what is handed over through its slot.
pub struct Polled<T> {
    /// Allocated at the first wait; kept for the next.
    seat: Option<NonNull<Seat<T>>>,
    /// Whether the seat was linked and its end has not been seen.
    waiting: bool,
    call: Call,
}

// SAFETY: what is reached through it goes with it: the slot's value and a waker, which is Send.
unsafe impl<T: Send> Send for Polled<T> {}
// SAFETY: by reference it only says whether it waits.
unsafe impl<T> Sync for Polled<T> {}

#[repr(C)]
struct Seat<T> {
    waiter: Waiter,
    node: Node,
    slot: UnsafeCell<Option<T>>,
    state: Lock<State>,
    call: Call,
    /// So that a model sees a seat that is not freed, or too early.
    #[cfg(loom)]
    alive: (loom::alloc::Track<()>, UnsafeCell<()>),
}

struct State {
    stage: Stage,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Woken,
    Gone,
}

/// What a party that left had come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "what was handed over to the party is to be passed on"]
pub enum Left {
    /// Nobody had claimed it: nothing was handed over, or taken from the slot.
    Unclaimed,
    /// It had been claimed for this reason: what is in the slot, or missing from it, is the claim's doing.
    Claimed(Reason),
}

impl<T> Polled<T> {
    /// A party that does not wait. Allocates nothing.
    #[must_use]
    pub const fn new(call: Call) -> Self {
        Self {
            seat: None,
            waiting: false,
            call,
        }
    }

    /// Whether it is in a queue, or was claimed from one and has not looked since.
    #[inline]
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Gets ready to wait: allocates the seat if there is none yet, and takes the waker. Without any lock.
    pub fn prepare(&mut self, waker: &Waker) {
        debug_assert!(!self.waiting, "a party waits once at a time");
        let waker = waker.clone();
        let Some(seat) = self.seat else {
            self.seat = Some(Seat::boxed(waker, self.call));
            return;
        };
        // SAFETY: the seat is the party's alone.
        let seat = unsafe { seat.as_ref() };
        let mut state = seat.state.lock();
        state.stage = Stage::Waiting;
        let old = state.waker.replace(waker);
        drop(state);
        drop(old);
    }

    /// Links the party at the end of `queue`, with `value` in its slot.
    ///
    /// # Panics
    ///
    /// Panics if it was not [prepared](Self::prepare).
    ///
    /// # Safety
    ///
    /// The caller holds the lock of the primitive that `queue` belongs to, the primitive's wakers expect a slot of this type or
    /// none, and until the party is seen to be woken, or has left, it is polled and taken away for this primitive only.
    pub unsafe fn link(&mut self, queue: &mut Queue, value: Option<T>) {
        // SAFETY: the caller's duties are the same.
        let node = unsafe { self.armed(Ok(value)) };
        // SAFETY: prepared, armed; it is freed only when it is out of the queue.
        unsafe { queue.push_back(node) };
    }

    /// Links the party at the end of `queue` or, if it `is_first`, before all others; without a slot of its own, but with `mark`
    /// in its place.
    ///
    /// # Panics
    ///
    /// Panics if it was not [prepared](Self::prepare).
    ///
    /// # Safety
    ///
    /// As for [`link`](Self::link); the primitive's wakers know a party without a slot by the mark.
    pub unsafe fn link_bare(&mut self, queue: &mut Queue, is_first: bool, mark: *mut ()) {
        // SAFETY: the caller's duties are the same.
        let node = unsafe { self.armed(Err(mark)) };
        if is_first {
            // SAFETY: prepared, armed; it is freed only when it is out of the queue.
            unsafe { queue.push_front(node) };
        } else {
            // SAFETY: as above.
            unsafe { queue.push_back(node) };
        }
    }

    /// The party begins to wait, with what goes into its slot or with a mark instead: its node, to be linked.
    ///
    /// # Safety
    ///
    /// As for [`link`](Self::link); the node is linked before the lock is given back.
    unsafe fn armed(&mut self, content: Result<Option<T>, *mut ()>) -> NonNull<Node> {
        let seat = self.seat.expect("a party is prepared before it is linked");
        // SAFETY: the party's alone until it is linked.
        let this = unsafe { seat.as_ref() };
        let slot = match content {
            Ok(value) => {
                this.slot.with_mut(|slot| {
                    // SAFETY: as above.
                    let before = mem::replace(unsafe { &mut *slot }, value);
                    debug_assert!(before.is_none(), "the slot of an earlier wait was emptied");
                    mem::forget(before);
                });
                ptr::from_ref(&this.slot).cast_mut().cast()
            }
            Err(mark) => mark,
        };
        this.waiter.word.arm();
        // SAFETY: unlinked, and the caller is its waiter.
        unsafe { this.node.prepare(seat.cast(), slot) };
        self.waiting = true;
        NonNull::from(&this.node)
    }

    /// Looks whether the party was woken, and why; if not, `waker` is the one to call. Without the primitive's lock.
    ///
    /// # Panics
    ///
    /// Panics if the party does not wait.
    pub fn poll(&mut self, waker: &Waker) -> Poll<Reason> {
        assert!(self.waiting, "only a party that waits is polled");
        let seat = self.seat.expect("a party that waits has a seat");
        // SAFETY: alive: it is freed by the party, or after the party has left.
        let seat = unsafe { seat.as_ref() };
        let is_same = {
            let state = seat.state.lock();
            if state.stage == Stage::Woken {
                drop(state);
                return Poll::Ready(self.finish());
            }
            state.waker.as_ref().is_some_and(|old| old.will_wake(waker))
        };
        if is_same {
            return Poll::Pending;
        }
        let new = waker.clone();
        let mut state = seat.state.lock();
        if state.stage == Stage::Woken {
            drop(state);
            drop(new);
            return Poll::Ready(self.finish());
        }
        let old = state.waker.replace(new);
        drop(state);
        drop(old);
        Poll::Pending
    }

    /// The wait is over: why?
    fn finish(&mut self) -> Reason {
        self.waiting = false;
        let seat = self.seat.expect("a party that waits has a seat");
        // SAFETY: alive.
        unsafe { seat.as_ref() }.waiter.word.finish()
    }

    /// Takes what is in the slot of a party that does not wait any more.
    ///
    /// # Panics
    ///
    /// Panics if it waits.
    #[must_use]
    pub fn take(&mut self) -> Option<T> {
        assert!(
            !self.waiting,
            "the slot is the primitive's while the party waits"
        );
        let seat = self.seat?;
        // SAFETY: alive.
        let seat = unsafe { seat.as_ref() };
        // SAFETY: whoever claimed it is done with the slot, and it is in no queue.
        seat.slot.with_mut(|slot| unsafe { (*slot).take() })
    }

    /// Gives a wait up: takes the node out of the queue, or learns that the party was claimed. Afterwards it does not wait, and
    /// [`take`](Self::take) has what is in the slot.
    ///
    /// # Safety
    ///
    /// `queue` finds the queue that the party was linked in, in what `lock` guards.
    pub unsafe fn leave<G>(
        &mut self,
        lock: &Lock<G>,
        queue: impl FnOnce(&mut G) -> &mut Queue,
    ) -> (Left, Option<T>) {
        if !self.waiting {
            return (Left::Unclaimed, None);
        }
        let is_out = {
            let mut guard = lock.lock();
            // SAFETY: passed on to the caller.
            unsafe { self.unlink(queue(&mut guard)) }
        };
        self.left(is_out)
    }

    /// As [`leave`](Self::leave), for a queue that needs no lock because one thread has it for itself.
    ///
    /// # Safety
    ///
    /// If the party is in a queue it is this one, and the queue is the caller's.
    pub unsafe fn leave_unlocked(&mut self, queue: &mut Queue) -> (Left, Option<T>) {
        if !self.waiting {
            return (Left::Unclaimed, None);
        }
        // SAFETY: passed on to the caller.
        let is_out = unsafe { self.unlink(queue) };
        self.left(is_out)
    }

    /// Takes the node out of the queue, if it was not claimed from there.
    ///
    /// # Safety
    ///
    /// As for [`leave_unlocked`](Self::leave_unlocked); it waits.
    unsafe fn unlink(&self, queue: &mut Queue) -> bool {
        let seat = self.seat.expect("a party that waits has a seat");
        // SAFETY: alive.
        let node = &unsafe { seat.as_ref() }.node;
        // The node of a claimed party is the winner's, who may be going along its links: it is not touched.
        // SAFETY: whoever could link or unlink it holds the lock, and that is the caller.
        if !unsafe { node.is_linked() } {
            return false;
        }
        // SAFETY: alive, and in this queue.
        unsafe { queue.remove(NonNull::from(node)) }
    }

    /// The party has left, unclaimed or not.
    fn left(&mut self, is_unclaimed: bool) -> (Left, Option<T>) {
        self.waiting = false;
        let seat = self.seat.expect("a party that waits has a seat");
        // SAFETY: alive.
        let this = unsafe { seat.as_ref() };
        if is_unclaimed {
            this.waiter.word.disarm();
            return (Left::Unclaimed, self.take());
        }
        // Claimed, under the lock: the slot is as the claimer left it, and only the wake may be still to come.
        let reason = this.waiter.word.finish();
        let value = self.take();
        let mut state = this.state.lock();
        let waker = state.waker.take();
        if state.stage == Stage::Waiting {
            state.stage = Stage::Gone;
            // The winner of the claim frees it.
            self.seat = None;
        }
        drop(state);
        drop(waker);
        (Left::Claimed(reason), value)
    }
}

impl<T> Seat<T> {
    const WAYS: Ways = Ways {
        wake: Self::wake,
        is_here: Self::is_never_here,
    };

    fn boxed(waker: Waker, call: Call) -> NonNull<Self> {
        let seat = Box::new(Self {
            waiter: Waiter::new(const { &Self::WAYS }),
            node: Node::new(),
            slot: UnsafeCell::new(None),
            state: Lock::new(State {
                stage: Stage::Waiting,
                waker: Some(waker),
            }),
            call,
            #[cfg(loom)]
            alive: (loom::alloc::Track::new(()), UnsafeCell::new(())),
        });
        NonNull::from(Box::leak(seat))
    }

    /// # Safety
    ///
    /// The caller alone knows the seat.
    unsafe fn free(seat: NonNull<Self>) {
        // SAFETY: made by `boxed`, and freed once.
        let seat = unsafe { Box::from_raw(seat.as_ptr()) };
        #[cfg(loom)]
        seat.alive.1.with_mut(|_| ());
        drop(seat);
    }

    /// A future has no thread of its own.
    unsafe fn is_never_here(_: NonNull<Waiter>) -> bool {
        false
    }

    /// The wake that a won claim owes.
    unsafe fn wake(waiter: NonNull<Waiter>) {
        // The waiter is the first field.
        let seat = waiter.cast::<Self>();
        // SAFETY: claimed and not woken: alive.
        let this = unsafe { seat.as_ref() };
        let call = this.call;
        #[cfg(loom)]
        this.alive.1.with(|_| ());
        let mut state = this.state.lock();
        if state.stage == Stage::Gone {
            drop(state);
            // SAFETY: the party has left it to the winner of the claim.
            unsafe { Self::free(seat) };
            return;
        }
        state.stage = Stage::Woken;
        let waker = state.waker.take();
        // From here on the party may free the seat.
        drop(state);
        if let Some(waker) = waker {
            call(waker);
        }
    }
}

impl<T> Drop for Polled<T> {
    /// A party that still waits leaks its seat, which is linked: whoever makes one calls [`leave`](Polled::leave) first.
    fn drop(&mut self) {
        debug_assert!(!self.waiting, "a party leaves before it goes");
        if let Some(seat) = self.seat
            && !self.waiting
        {
            // SAFETY: the party's alone: in no queue, and not claimed.
            unsafe { Seat::free(seat) };
        }
    }
}

impl<T> fmt::Debug for Polled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Polled")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}
