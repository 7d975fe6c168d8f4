//! Timers: a hierarchical timing wheel whose nodes live inside the things that wait.
//!
//! Owns the order of deadlines and nothing else. Time is a `u64` of nanoseconds since an origin
//! that the caller picks; this module reads no clock, wakes nobody and allocates only in
//! [`Wheel::new`] and [`Wheel::reserve`]. A [`Wheel`] and the [`TimerNode`]s linked into it belong to one thread.
//!
//! # How it works
//!
//! Deadlines are counted in ticks of [`TICK_NS`], rounded up. Level 0 has one slot for each of
//! the 1,024 ticks around the current one, level 1 one slot for each group of 1,024 ticks, level 2 one for each group of 1,024
//! of those, and the levels above 64 slots each; a
//! tick is kept at the level of the highest digit (of ten bits at the two lowest levels, of six above) in which it differs from the current
//! tick, in the slot that this digit names:
//!
//! ```text
//!                       digit 2   digit 1   digit 0
//!   current tick           3       317       640
//!   a timer at tick        3       317       641   ->  level 0, slot 641
//!   a timer at tick        3       320         5   ->  level 1, slot 320
//!   a timer at tick        9         0       963   ->  level 2, slot 9
//! ```
//!
//! When time enters a slot of a higher level, the nodes in it are dealt out to lower levels (a
//! cascade). So a node is moved at most once for each level, and never if it is cancelled first,
//! which is what happens to most timeouts. One bit per slot says whether it is occupied; because
//! every occupied slot of a level lies ahead of the current digit, the lowest bit of the lowest
//! occupied level is always the next thing to do, and empty time costs nothing however long.
//!
//! The nodes of a slot are linked to each other. Where a caller may allocate ([`Wheel::reserve`]) and timers are many, a slot has their
//! addresses side by side instead, in sheaves (`sheaf`): then dealing out fetches nodes ahead, and inserting and removing touch no other
//! node. A slot may have both, sheaves first, so whoever may not allocate never has to.
//!
//! Two levels of ten bits and six of six are more than the 54 bits that the 64 bits of the clock have above those of a tick: the tick
//! beyond, that of deadlines in the last microsecond of the range, which round up to 2⁶⁴, has a slot too, so no deadline needs
//! clamping.
//!
//! # Bounds
//!
//! Insert and remove are O(1). Over its life a node is moved at most seven times, so firing is O(1)
//! amortised, but a single [`Wheel::pop_due`] may move all nodes of one slot.
//!
//! # Source
//!
//! G. Varghese and T. Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987, scheme 7. Dealing
//! out by the highest differing digit, so that slots never wrap around, is a later refinement
//! common to kernels and runtimes.

mod node;
mod sheaf;
mod slack;
mod wheel;

pub use node::TimerNode;
pub use slack::Slack;
pub use wheel::Wheel;

/// The width of a tick, in nanoseconds: how late a wheel may fire a timer.
pub const TICK_NS: u64 = 1 << TICK_BITS;

/// Bits of a nanosecond count that lie below the tick.
const TICK_BITS: u32 = 10;
