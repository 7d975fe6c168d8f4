//! The first frame of a stack.
//!
//! Owns: the layout of what lies at the base of a stack that has not run yet.
//! Thread: whichever prepares the stack; then the one that runs it.
//!
//! ```text
//!  base        highest address, 16-byte aligned
//!  base -  8   mark    the address of `arch::start`: a return address for frame-pointer walkers
//!  base - 16   link    the context of the resumer                    <- frame pointer at the start
//!  base - 24   entry   the function that `start` calls
//!  base - 32   arg     its first argument                            <- stack pointer at the start
//!  base - 40   the return address into `start`, written by its call
//! ```
//!
//! Invariants
//! - I1. `link` is never dangling while the stack can run: it names a [`Context`] that outlives the
//!   stack's use. What that context holds is right while the stack runs and
//!   the named flow is the one that will go on when it stops.
#![expect(
    unsafe_code,
    reason = "writes the first frame at the base of a raw stack"
)]

use crate::arch::{Context, start};
use crate::tools::Notes;

/// The function that a new stack runs. Its arguments are the one given to [`prepare`]
/// and the value of the first switch. It ends by [`crate::switch_final`] or
/// [`crate::Pair::leave_for_good`], and nothing may unwind out of it.
pub type Entry = unsafe extern "C" fn(arg: usize, value: usize) -> !;

/// What lies at the base of a new stack, lowest address first.
#[derive(Debug)]
#[repr(C)]
pub struct FirstFrame {
    arg: usize,
    entry: Entry,
    link: *const Context,
    mark: usize,
}

/// Lays down a first frame below `base` and returns the context whose resumption runs `entry(arg, _)`.
///
/// `resumer` is the context in which the flow that resumes this one is saved whenever it does:
/// backtraces go on there.
///
/// # Safety
///
/// - `base` is 16-byte aligned and the memory below it, as much as will be used, is writable and
///   belongs to this flow until it has ended.
/// - `resumer` is valid for as long as this flow can run.
#[inline]
pub unsafe fn prepare(base: *mut u8, entry: Entry, arg: usize, resumer: *const Context) -> Context {
    debug_assert_eq!(base.addr() % 16, 0, "a stack base is 16-byte aligned");
    // SAFETY: stays below `base`, in memory that the caller has given over.
    let frame = unsafe { base.sub(size_of::<FirstFrame>()) }.cast::<FirstFrame>();
    let first = FirstFrame {
        arg,
        entry,
        link: resumer,
        mark: start as unsafe extern "C" fn() as usize,
    };
    // SAFETY: `frame` is aligned (32 bytes below a 16-byte aligned address) and writable.
    unsafe { frame.write(first) };
    Context {
        fp: frame.addr() + core::mem::offset_of!(FirstFrame, link),
        ip: start as unsafe extern "C" fn() as usize,
        sp: frame.expose_provenance(),
        bx: 0,
        notes: Notes::of_new_flow(base.addr()),
    }
}
