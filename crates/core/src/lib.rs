//! Pure algorithms of the sinew runtime: wait words, wait queues, inboxes, posts and timers.
//!
//! No operating system, no assembly, no clock, no randomness: what is here can be model-checked
//! (`--cfg loom` swaps the atomics, see `facade`) and tested against naive models.
//! The `sinew` crate gives these parts a scheduler, a clock and a kernel.
#![no_std]

extern crate alloc;
#[cfg(any(loom, test))]
extern crate std;

mod facade;
pub mod inbox;
pub mod life;
pub mod lock;
pub mod post;
pub mod sharing;
pub mod sync;
pub mod timer;
pub mod wait;
