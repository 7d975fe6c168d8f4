//! Machine state of the sinew runtime: the context switch, first frames and stacks.
//!
//! Machine state is touched here and nowhere else in the project. This crate knows no scheduler, no
//! clock and no I/O; [`Coroutine`] is the smallest useful thing made of its parts, and
//! the `sinew` crate builds its typed coroutines and its scheduler on the same parts.
//!
//! Almost everything here is `unsafe`: a caller decides which stack runs when. The safe interface is
//! the `sinew` crate.

pub mod arch;
mod coroutine;
mod errno;
pub mod frame;
pub mod stack;
pub mod tools;
pub mod unwind;

pub use arch::{Arrival, Context, FpEnv, Pair, switch, switch_final};
pub use coroutine::{Coroutine, Entered, Yielder};
pub use errno::Errno;
