//! The raw synchronisation primitives: what locks, channels, events, semaphores and the like are made of.
//!
//! Each keeps its state and its queue of waiting parties under a [`Lock`](crate::lock::Lock) of its own, and
//! waits by [`wait_in`](crate::wait::wait_in), so that coroutines of any scheduler and plain threads can
//! meet in it. Who waits is a [`Suspend`](crate::wait::Suspend); deadlines and cancels are
//! its matter, and come out of every waiting call as a [`Reason`](crate::wait::Reason).
//!
//! No code of the user's (a value's drop, a clone) runs while such a lock is held, and waiting allocates nothing.

#![expect(unsafe_code, reason = "follows the object of a wait record")]

mod fifo;
mod raw_barrier;
mod raw_broadcast;
mod raw_channel;
mod raw_condvar;
mod raw_event;
mod raw_mutex;
mod raw_once;
mod raw_pool;
mod raw_promise;
mod raw_rwlock;
mod raw_semaphore;
mod raw_wait_group;
mod raw_watch;

pub use raw_barrier::{RawBarrier, Role};
pub use raw_broadcast::{BegunNews, Broadcast, BroadcastArm, Missing, News, NewsProbe};
pub use raw_channel::{
    Begun, Channel, OVERTAKEN_MAX, RecvArm, RecvParty, SendArm, SendFailed, TryRecv, TrySend,
};
pub use raw_condvar::RawCondvar;
pub use raw_event::{EventArm, Mode, RawEvent, Signal};
pub use raw_mutex::{LOST_MAX, RawMutex};
pub use raw_once::{Begin, NOT_AN_ID, RawOnce, TryBegin, Turn};
pub use raw_pool::{
    DrainArm, DrainProbe, Figures, Full, JobEnd, Link, Next, RawPool, RoomArm, RoomProbe,
};
pub use raw_promise::{Callbacks, Chained, PromiseArm, RawPromise};
pub use raw_rwlock::RawRwLock;
pub use raw_semaphore::{Overflow, RawSemaphore, TryDown};
pub use raw_wait_group::{CountError, RawWaitGroup, WaitGroupArm};
pub use raw_watch::{ChangeArm, RawWatch};

use crate::wait::Kind;

/// The id of the coroutine that holds what a waiter with this record waits for; 0 if none is known to.
///
/// # Safety
///
/// `kind` and `object` are from a record whose waiter has not gone on and cannot before this returns: it borrows what it
/// waits for, which keeps that in place.
#[must_use]
pub unsafe fn owner_at(kind: Kind, object: usize) -> u64 {
    match kind {
        // SAFETY: the caller's duties are the same.
        Kind::Mutex => unsafe { RawMutex::owner_at(object) },
        // SAFETY: as above.
        Kind::Read | Kind::Write => unsafe { RawRwLock::owner_at(object) },
        // SAFETY: as above.
        Kind::Once => unsafe { RawOnce::runner_at(object) },
        _ => 0,
    }
}
