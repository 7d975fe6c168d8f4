//! What the tools around the switch are told: sanitizers at each switch, Valgrind at each new stack.
//!
//! A tool that models the stack (which of its bytes are live, who calls whom, what happens before what) is wrong about a
//! program that exchanges stacks behind its back. Each has an interface for being told.
//!
//! | tool | chosen by | told at |
//! |---|---|---|
//! | AddressSanitizer, with leak detection | `--cfg sinew_asan` | each switch, each stack that is taken or given back |
//! | ThreadSanitizer | `--cfg sinew_tsan` | each switch |
//! | MemorySanitizer | `--cfg sinew_msan` | each switch |
//! | Valgrind | found out when a slab is mapped | each stack that leaves or enters the depot |
//!
//! The build with a sanitizer names itself by a flag of our own, because `cfg(sanitize)` is not stable. Without one of them
//! [`plain`](self) notes stand in: they hold nothing and do nothing, and the switch has not one instruction more.
//!
//! # How a switch is noted
//!
//! 1. `leave` on the stack that is left, with both contexts. It returns one word, which the switch carries over in a
//!    register beside the value.
//! 2. The switch.
//! 3. `arrive` on the other stack, with the context that was resumed and that word; `arrive_first` where a new
//!    stack begins, where there is no such context.
//!
//! A flow that is over calls `leave_for_good` instead, so that what the tool keeps of it is released.
//!
//! Invariants
//! - I1. Between `leave` and `arrive` there is no call and no return, so they are inlined where the switch is.

#[cfg_attr(sinew_asan, path = "asan.rs")]
#[cfg_attr(sinew_tsan, path = "tsan.rs")]
#[cfg_attr(sinew_msan, path = "msan.rs")]
#[cfg_attr(not(any(sinew_asan, sinew_tsan, sinew_msan)), path = "plain.rs")]
mod notes;
pub(crate) mod valgrind;

pub use notes::Notes;
#[cfg(any(sinew_asan, sinew_tsan, sinew_msan))]
pub(crate) use notes::arrive_first;
#[cfg(sinew_msan)]
pub(crate) use notes::take_as_written;
pub(crate) use notes::{arrive, leave, leave_for_good, stack_idle, stack_in_use};

use core::mem::MaybeUninit;

/// The word that a switch carries over for the tool; nothing, if there is none.
pub(crate) type Word = MaybeUninit<usize>;

/// Where a stack is, by its base: from the slab that it is in, else a guess that is not too large for any sensible stack.
#[cfg(any(sinew_asan, sinew_msan))]
pub(crate) fn bounds(base: usize) -> (usize, usize) {
    const GUESS_BYTES: usize = 32 * 1024;
    let limit =
        crate::stack::lookup(base - 1).map_or(base - GUESS_BYTES, |slot| slot.limit().addr().get());
    (limit, base - limit)
}
