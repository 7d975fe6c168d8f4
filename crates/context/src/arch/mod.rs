//! The switch, one file per instruction set.
//!
//! Each file provides the same items and nothing else: [`Context`] (the registers of a
//! suspended flow of control), [`switch`], [`switch_final`], [`Pair`] (two flows that switch to one another only) and [`start`] (the address at which
//! a first frame begins), together with [`stack_pointer`] and [`runs_within`], which tell on which stack
//! the caller runs, [`FpEnv`], the control words that a switch does not exchange, and for those who walk
//! suspended stacks [`peek`] and [`is_in_start`].

#[cfg(all(target_arch = "x86_64", not(windows)))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", not(windows)))]
pub use x86_64::{
    Arrival, Context, FpEnv, Pair, is_in_start, peek, runs_within, stack_pointer, start, switch,
    switch_final,
};

#[cfg(not(all(target_arch = "x86_64", not(windows))))]
compile_error!("sinew-context has no switch for this target yet: x86-64 System V only");
