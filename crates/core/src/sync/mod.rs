//! The raw synchronisation primitives: what a mutex, a channel, an event and a wait group are made of.
//!
//! Each keeps its state and its queue of waiting parties under a [`Lock`](crate::lock::Lock) of its own, and
//! waits by [`wait_in`](crate::wait::wait_in), so that coroutines of any scheduler and plain threads can
//! meet in it. Who waits is a [`Suspend`](crate::wait::Suspend); deadlines and cancels are
//! its matter, and come out of every waiting call as a [`Reason`](crate::wait::Reason).
//!
//! No code of the user's (a value's drop, a clone) runs while such a lock is held, and waiting allocates nothing.

mod fifo;
mod raw_broadcast;
mod raw_channel;
mod raw_event;
mod raw_mutex;
mod raw_wait_group;
mod raw_watch;

pub use raw_broadcast::{Broadcast, BroadcastArm, Missing, NewsProbe};
pub use raw_channel::{Channel, RecvArm, SendArm, SendFailed, TryRecv, TrySend};
pub use raw_event::{EventArm, Mode, RawEvent, Signal};
pub use raw_mutex::{LOST_MAX, RawMutex};
pub use raw_wait_group::{CountError, RawWaitGroup, WaitGroupArm};
pub use raw_watch::{ChangeArm, RawWatch};
