#![doc = include_str!("README.md")]

mod node;
mod queue;
mod word;

pub use node::{Node, Waiter};
pub use queue::{Claimed, Queue, WakeList};
pub use word::{Claim, Outcome, Reason, WaitWord};
