//! The waiting side, written once: steps 2 to 7 of the protocol.
//!
//! Owns: nothing. Thread: the waiter's.
#![expect(
    unsafe_code,
    reason = "links the waiter's node into a primitive's queue"
)]

use core::ptr::NonNull;

use crate::lock::{Guard, Lock};
use crate::sharing::Sharing;
use crate::wait::{Node, Queue, Reason, Waiter};

/// What a suspended party waits for, as its wait record tells it: for listings, dumps and the
/// search for deadlocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// What kind of thing.
    pub kind: Kind,
    /// Which one: its address, as an identity that is never dereferenced.
    pub object: usize,
    /// The id of the coroutine that holds it, if that is known; 0 if not.
    pub owner: u64,
}

/// The kinds of things that can be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
#[non_exhaustive]
pub enum Kind {
    /// Nothing: it runs or is ready.
    #[default]
    Nothing = 0,
    /// A bare `park`.
    Park = 1,
    /// A point in time.
    Sleep = 2,
    /// Another coroutine's end.
    Join = 3,
    /// A mutex.
    Mutex = 4,
    /// Something to receive from a channel.
    Receive = 5,
    /// Room in a channel, or a receiver for a value.
    Send = 6,
    /// A wait group's count to reach zero.
    WaitGroup = 7,
    /// A descriptor to become readable.
    Readable = 8,
    /// A descriptor to become writable.
    Writable = 9,
    /// A cancel token to fire.
    Cancel = 10,
    /// An event to be set or triggered.
    Event = 11,
    /// The children of a scope to end.
    Scope = 12,
    /// A reader-writer lock, to read.
    Read = 13,
    /// A reader-writer lock, to write.
    Write = 14,
    /// A condition variable to be notified.
    Condvar = 15,
    /// Permits of a semaphore.
    Semaphore = 16,
    /// The other parties of a barrier.
    Barrier = 17,
    /// Another's initialisation to end.
    Once = 18,
    /// Whichever comes first of several things.
    Select = 20,
    /// A std future to be ready.
    Future = 21,
    /// Room in the queue of a pool.
    Room = 22,
    /// A pool to have done what it accepted.
    Drain = 23,
    /// What another thread does for it: a file system call, a lookup.
    Errand = 24,
}

impl Kind {
    /// The kind with this number, as [`Kind`] `as u8` gave it.
    #[must_use]
    pub const fn from_u8(number: u8) -> Self {
        match number {
            1 => Self::Park,
            2 => Self::Sleep,
            3 => Self::Join,
            4 => Self::Mutex,
            5 => Self::Receive,
            6 => Self::Send,
            7 => Self::WaitGroup,
            8 => Self::Readable,
            9 => Self::Writable,
            10 => Self::Cancel,
            11 => Self::Event,
            12 => Self::Scope,
            13 => Self::Read,
            14 => Self::Write,
            15 => Self::Condvar,
            16 => Self::Semaphore,
            17 => Self::Barrier,
            18 => Self::Once,
            20 => Self::Select,
            21 => Self::Future,
            22 => Self::Room,
            23 => Self::Drain,
            24 => Self::Errand,
            _ => Self::Nothing,
        }
    }

    /// Whether the thing waited for may be held by a coroutine before whose going on the waiter cannot go on:
    /// [`owner_at`](crate::sync::owner_at) says by which.
    #[must_use]
    pub const fn has_owner(self) -> bool {
        matches!(self, Self::Mutex | Self::Read | Self::Write | Self::Once)
    }

    /// What a listing calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Park => "park",
            Self::Sleep => "sleep",
            Self::Join => "join",
            Self::Mutex => "mutex",
            Self::Receive => "receive",
            Self::Send => "send",
            Self::WaitGroup => "wait group",
            Self::Readable => "readable",
            Self::Writable => "writable",
            Self::Cancel => "cancel",
            Self::Event => "event",
            Self::Scope => "scope",
            Self::Read => "read lock",
            Self::Write => "write lock",
            Self::Condvar => "condvar",
            Self::Semaphore => "semaphore",
            Self::Barrier => "barrier",
            Self::Once => "once",
            Self::Select => "select",
            Self::Future => "future",
            Self::Room => "room in a pool",
            Self::Drain => "drain of a pool",
            Self::Errand => "errand",
        }
    }
}

/// A party about to wait, with its deadline if it has one: the current coroutine or thread.
///
/// # Safety
///
/// - `party` returns a waiter and a node that stay in place as long as `self` is borrowed, that belong to whoever calls,
///   and of which the node is unlinked and the waiter idle whenever the caller's own code runs.
/// - `suspend` returns only after the waiter has been claimed and woken, with the reason of the claim. It does not
///   unwind: the node is linked meanwhile, and what it was woken for may be in its slot. Who unwinds a party by force does
///   so after the wait.
/// - `refused` does not unwind either, runs no code of the user's, and takes no lock: it is called under the primitive's.
pub unsafe trait Suspend {
    /// The waiter and its node.
    fn party(&self) -> (NonNull<Waiter>, NonNull<Node>);

    /// Why the party must not wait, if so: a cancel was requested before.
    fn refused(&self) -> Option<Reason>;

    /// Why the party must not wait again after a wake that was a hint only, if so: its deadline has passed meanwhile.
    fn expired(&self) -> Option<Reason> {
        None
    }

    /// Stops the party, whose waiter is armed, until it is made runnable.
    fn suspend(&self, record: Record) -> Reason;

    /// The party will not be suspended after all, though [`party`](Self::party) was called for that.
    fn withdraw(&self) {}
}

// SAFETY: it is the party itself, which keeps these duties.
unsafe impl<S: Suspend> Suspend for &S {
    #[inline(always)]
    fn party(&self) -> (NonNull<Waiter>, NonNull<Node>) {
        (**self).party()
    }

    #[inline(always)]
    fn refused(&self) -> Option<Reason> {
        (**self).refused()
    }

    #[inline(always)]
    fn expired(&self) -> Option<Reason> {
        (**self).expired()
    }

    #[inline(always)]
    fn suspend(&self, record: Record) -> Reason {
        (**self).suspend(record)
    }

    #[inline(always)]
    fn withdraw(&self) {
        (**self).withdraw();
    }
}

/// Waits in the queue that `queue` finds in the locked state; gives the lock back meanwhile.
///
/// `slot` is for the waker: where what is handed over lies or goes. The reason is
/// [`Reason::Woken`] or [`Reason::Closed`] if a waker came first, and whatever it did under the lock stands.
/// Otherwise nobody knows the waiter any more, and the slot was not touched.
///
/// # Safety
///
/// `queue` always finds the same queue, and `slot` is what the primitive's wakers expect, valid until this returns.
#[inline(always)]
pub unsafe fn wait_in<T, K: Sharing, S: Suspend>(
    lock: &Lock<T, K>,
    guard: Guard<'_, T, K>,
    queue: impl Fn(&mut T) -> &mut Queue,
    slot: *mut (),
    party: &S,
    record: Record,
) -> Reason {
    // SAFETY: the caller's duties are the same.
    unsafe { wait_at(Place::Last, lock, guard, queue, slot, party, record) }
}

/// As [`wait_in`], but before all who wait already: for a party that was woken in its turn and
/// did not get what it was woken for.
///
/// # Safety
///
/// As for [`wait_in`].
#[inline]
pub unsafe fn wait_in_front<T, K: Sharing, S: Suspend>(
    lock: &Lock<T, K>,
    guard: Guard<'_, T, K>,
    queue: impl Fn(&mut T) -> &mut Queue,
    slot: *mut (),
    party: &S,
    record: Record,
) -> Reason {
    // SAFETY: the caller's duties are the same.
    unsafe { wait_at(Place::First, lock, guard, queue, slot, party, record) }
}

/// Where in its queue a party waits.
#[derive(Clone, Copy)]
enum Place {
    First,
    Last,
}

/// The waiting side.
///
/// # Safety
///
/// As for [`wait_in`].
#[inline(always)]
unsafe fn wait_at<T, K: Sharing, S: Suspend>(
    place: Place,
    lock: &Lock<T, K>,
    mut guard: Guard<'_, T, K>,
    queue: impl Fn(&mut T) -> &mut Queue,
    slot: *mut (),
    party: &S,
    record: Record,
) -> Reason {
    if let Some(reason) = party.refused() {
        return reason;
    }
    let (waiter, node) = party.party();
    // SAFETY: the party's own waiter, alive while `party` is borrowed.
    unsafe { waiter.as_ref() }.word.arm();
    // SAFETY: alive as the waiter is.
    let links = unsafe { node.as_ref() };
    // SAFETY: unlinked, and the caller is its waiter.
    unsafe { links.prepare(waiter, slot) };
    let line = queue(&mut guard);
    match place {
        // SAFETY: prepared, armed; it leaves the queue before this function returns.
        Place::First => unsafe { line.push_front(node) },
        // SAFETY: as above.
        Place::Last => unsafe { line.push_back(node) },
    }
    drop(guard);
    let reason = party.suspend(record);
    if matches!(reason, Reason::Timeout | Reason::Cancelled) {
        // SAFETY: alive; if it is linked then in this queue.
        unsafe { leave(lock, queue, node) };
    }
    reason
}

/// Takes a node out of the queue if it is still in.
///
/// # Safety
///
/// The node is alive, and if it is linked then in the queue that `queue` finds.
#[cold]
#[inline(never)]
unsafe fn leave<T, K: Sharing>(
    lock: &Lock<T, K>,
    queue: impl Fn(&mut T) -> &mut Queue,
    node: NonNull<Node>,
) {
    let mut guard = lock.lock();
    // SAFETY: the caller vouches for it.
    unsafe { queue(&mut guard).remove(node) };
}
