//! The overflow report: what is written between the fault and `SIGABRT`.
//!
//! One thread, in the signal handler; a second thread that overflows meanwhile waits for the end.
//!
//! 1. The facts: whose stack, its size, the address, how to raise the size. System calls only.
//! 2. The return addresses of the coroutine's frames, repeated ones folded. The unwinder may take
//!    the loader's lock, or fault on a frame without unwind information.
//! 3. The same by name. This allocates and reads files.
//!
//! Steps 2 and 3 run under an alarm and with `SIGSEGV` and `SIGBUS` let through: whichever strikes
//! ends the process with `SIGABRT`, and what was written so far stands.

#![expect(unsafe_code, reason = "the unwinder's interface, signals")]

mod fold;
mod writer;

use super::{change_action, change_mask, default_action, set_of};
use crate::stack::slab::SlotRef;
use crate::stack::{owner_of, residency};
use fold::{Fold, FrameText};
use std::fmt::Write as _;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use writer::Stderr;

/// Time for the backtrace.
const BACKTRACE_SECONDS: libc::c_uint = 3;
/// More frames than this are not named: it would take longer than that.
const NAMED_FRAMES_MAX: usize = 20_000;

/// Writes the report of an overflow of `slot` and ends the process.
pub(super) fn report_and_abort(slot: SlotRef, address: usize, stack_pointer: usize) -> ! {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    // ORDERING: relaxed; only one thread may win, nothing else is shared.
    if BEGUN.swap(true, Ordering::Relaxed) {
        loop {
            // SAFETY: no preconditions.
            unsafe { libc::pause() };
        }
    }
    let mut all = set_of(&[]);
    // SAFETY: `all` is a valid set.
    unsafe { libc::sigfillset(&raw mut all) };
    change_mask(libc::SIG_BLOCK, &all);
    write_facts(slot, address, stack_pointer);
    guard_against_trouble();
    let frames = write_addresses(slot);
    write_names(frames);
    abort();
}

fn write_facts(slot: SlotRef, address: usize, stack_pointer: usize) {
    let mut out = Stderr::new();
    let (limit, base) = (slot.limit().addr().get(), slot.base().addr().get());
    let guard_bytes = slot.guard().len();
    let _ = out.write_str("\nsinew: coroutine ");
    match owner_of(slot) {
        // SAFETY: `set_owner`'s caller promised this for as long as the owner is set.
        Some((owner, describe)) => unsafe { describe(owner, &mut out) },
        None => {
            let _ = out.write_str("(unnamed)");
        }
    }
    let _ = writeln!(
        out,
        " overflowed its stack: {} KiB at {limit:#x}..{base:#x}",
        slot.size_bytes() / 1024
    );
    let _ = writeln!(
        out,
        "  fault address {address:#x}, {} bytes into the guard of {guard_bytes}; stack pointer {stack_pointer:#x}; high water {} KiB",
        limit - address,
        residency::high_water_bytes(slot) / 1024
    );
    let _ = writeln!(
        out,
        "  raise it with Builder::stack_size(bytes) where the coroutine is built, or look for endless recursion below"
    );
    out.flush();
}

/// From here on a fault, or three seconds, end the process with `SIGABRT`.
fn guard_against_trouble() {
    let signals = [libc::SIGALRM, libc::SIGSEGV, libc::SIGBUS];
    let mut action = default_action();
    action.sa_sigaction = give_up as *const () as usize;
    action.sa_flags = libc::SA_ONSTACK;
    for signal in signals {
        let _ = change_action(signal, Some(&action));
    }
    change_mask(libc::SIG_UNBLOCK, &set_of(&signals));
    // SAFETY: no preconditions.
    unsafe { libc::alarm(BACKTRACE_SECONDS) };
}

extern "C" fn give_up(signal: libc::c_int) {
    let mut out = Stderr::new();
    let why = if signal == libc::SIGALRM {
        "took too long"
    } else {
        "faulted"
    };
    let _ = writeln!(out, "\n  (the backtrace {why}; it ends here)");
    out.flush();
    abort();
}

fn abort() -> ! {
    let _ = change_action(libc::SIGABRT, Some(&default_action()));
    change_mask(libc::SIG_UNBLOCK, &set_of(&[libc::SIGABRT]));
    // SAFETY: no preconditions. Unlike `abort`, it takes no lock.
    unsafe { libc::raise(libc::SIGABRT) };
    // Not reached: the default disposition ends the process.
    std::process::abort();
}

/// The unwinder's view of a frame.
#[repr(C)]
struct UnwindContext {
    opaque: [u8; 0],
}

type Visit = extern "C" fn(*mut UnwindContext, *mut libc::c_void) -> libc::c_int;

const URC_NO_REASON: libc::c_int = 0;
const URC_NORMAL_STOP: libc::c_int = 4;

// The Itanium C++ ABI's unwinder, which std links.
unsafe extern "C" {
    fn _Unwind_Backtrace(visit: Visit, argument: *mut libc::c_void) -> libc::c_int;
    fn _Unwind_GetIP(context: *mut UnwindContext) -> usize;
    fn _Unwind_GetCFA(context: *mut UnwindContext) -> usize;
}

/// A walk over the frames of one stack.
struct Walk {
    slot: SlotRef,
    /// The walk has left the handler's own frames.
    entered: bool,
    frames: usize,
    fold: Fold,
    out: Stderr,
}

/// Writes the return addresses of the frames on `slot`; gives their number.
fn write_addresses(slot: SlotRef) -> usize {
    let mut out = Stderr::new();
    // SAFETY: no preconditions; zero means unknown.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) };
    // The program headers follow the file header, at the start of the image.
    let _ = writeln!(
        out,
        "backtrace (addresses; the program begins at {:#x}):",
        headers & !0xfff
    );
    let mut walk = Walk {
        slot,
        entered: false,
        frames: 0,
        fold: Fold::new(),
        out,
    };
    // SAFETY: `visit` takes its argument for a `Walk`, which this is, used by nobody else.
    unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
    walk.fold.finish(&mut walk.out);
    if walk.frames == 0 {
        let _ = writeln!(walk.out, "  (no frame could be unwound)");
    }
    walk.out.flush();
    walk.frames
}

extern "C" fn visit(context: *mut UnwindContext, walk: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `write_addresses` passes a live `Walk`, borrowed by nobody else during the call.
    let walk = unsafe { &mut *walk.cast::<Walk>() };
    // SAFETY: the unwinder passes a valid context.
    let frame = unsafe { _Unwind_GetCFA(context) };
    let span = walk.slot.span();
    if !(span.start.saturating_sub(super::OVERSHOOT_BYTES)..=span.end).contains(&frame) {
        // Outside: the handler's own frames at first, the resumer's in the end.
        return if walk.entered {
            URC_NORMAL_STOP
        } else {
            URC_NO_REASON
        };
    }
    walk.entered = true;
    walk.frames += 1;
    // SAFETY: as above.
    let address = unsafe { _Unwind_GetIP(context) };
    walk.fold
        .frame(address as u64, &mut walk.out, &mut |index, out| {
            let _ = writeln!(out, "  {index:>4}: {address:#x}");
        });
    URC_NO_REASON
}

/// Writes the names of all frames of the thread, the coroutine's resumer included.
fn write_names(frames: usize) {
    let mut out = Stderr::new();
    if frames > NAMED_FRAMES_MAX {
        let _ = writeln!(
            out,
            "backtrace by name: left out, {frames} frames are too many"
        );
        out.flush();
        return;
    }
    let _ = writeln!(out, "backtrace (names, as far as they can be had):");
    out.flush();
    let trace = std::backtrace::Backtrace::force_capture();
    let mut text = FrameText::new(out);
    let _ = write!(text, "{trace}");
    text.finish();
    // Dropping would only free memory, and freeing can hang.
    mem::forget(trace);
}
