//! The raw synchronisation primitives: what locks, channels, events, semaphores and the like are made of.
//!
//! Each keeps its state and its queue of waiting parties under a [`Lock`](crate::lock::Lock) of its own, and
//! waits by [`wait_in`](crate::wait::wait_in), so that coroutines of any scheduler and plain threads can
//! meet in it. Who waits is a [`Suspend`](crate::wait::Suspend); deadlines and cancels are
//! its matter, and come out of every waiting call as a [`Reason`](crate::wait::Reason).
//!
//! No code of the user's (a value's drop, a clone) runs while such a lock is held, and waiting allocates nothing.

mod fifo;
mod raw_barrier;
mod raw_channel;
mod raw_condvar;
mod raw_event;
mod raw_mutex;
mod raw_once;
mod raw_rwlock;
mod raw_semaphore;
mod raw_wait_group;

pub use raw_barrier::{RawBarrier, Role};
pub use raw_channel::{Channel, SendFailed, TryRecv, TrySend};
pub use raw_condvar::RawCondvar;
pub use raw_event::{Mode, RawEvent, Signal};
pub use raw_mutex::{LOST_MAX, RawMutex};
pub use raw_once::{Begin, NOT_AN_ID, RawOnce, TryBegin, Turn};
pub use raw_rwlock::RawRwLock;
pub use raw_semaphore::{Overflow, RawSemaphore, TryDown};
pub use raw_wait_group::{CountError, RawWaitGroup};
