#![doc = include_str!("README.md")]

mod arm;
mod node;
mod polled;
mod published;
mod queue;
mod suspend;
mod waking;
mod word;

pub use arm::{Arm, ArmNode, Linking, Probe, QueueArm, Turn, attempt_any, wait_any};
pub use node::{Node, Waiter, Ways};
pub use polled::{Call, Left, Polled};
pub use published::{Look, PublishedKind, Sequence};
pub use queue::{Claimed, ClaimedBy, Queue, WakeList};
pub use suspend::{Kind, Record, Suspend, wait_in, wait_in_front};
pub use waking::{Anyone, Course, Waking};
pub use word::{Claim, Outcome, Reason, WaitWord};
