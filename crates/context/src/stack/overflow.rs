//! Overflow: a fault in a guard becomes a report that names the coroutine, then `SIGABRT`.
//!
//! `install` sets one handler for `SIGSEGV` and `SIGBUS`, for the process. It runs on the faulting
//! thread, on that thread's alternate stack (`AltStack`), in a signal handler: the stack it reports
//! on has no room left.
//!
//! A fault is an overflow when its address lies in the guard of a slot and the stack pointer lies
//! in that slot, or up to 1 MiB below it where no other coroutine runs (a frame larger than the guard,
//! set up before its first access). So is a signal whose frame did not fit above the guard: the kernel then says no address.
//! Every other fault, and a signal sent by `kill`, goes to the handler that was there before: std's, which
//! reports overflows of threads, a crash reporter's, or the default.
//!
//! Invariants:
//! - I1: until the report's first lines are written, the handler makes only system calls: it
//!   allocates nothing, takes no lock, and reads only the header and the signal's context.
//! - I2: an overflow always ends the process, by `SIGABRT`, in bounded time: what could fault or
//!   hang (the backtrace) runs last, under a watch.
//! - I3: a fault elsewhere leaves no trace: mask, errno and the alternate stack are as before.
//!
//! Not here: overflows of threads' own stacks; frames that step over the guard.

#![expect(unsafe_code, reason = "signal handlers and their contexts")]

mod alt_stack;
mod report;

pub use alt_stack::AltStack;

use super::error::StackError;
use super::{SlotRef, lookup, owner_of};
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// How far below the guard's slot the stack pointer may be for a fault to count as its overflow.
const OVERSHOOT_BYTES: usize = 1 << 20;

/// The code of a fault without an address, which libc does not name: sent by the kernel.
const SI_KERNEL: libc::c_int = 0x80;

/// What did not find room.
#[derive(Debug, Clone, Copy)]
enum Cause {
    /// An access to this address, in the guard.
    Access(usize),
    /// The frame of a signal.
    Signal,
}

/// The handlers that ours replaced. Each points to a leaked record, null before `install`.
static PREVIOUS: [AtomicPtr<libc::sigaction>; 2] = [
    AtomicPtr::new(ptr::null_mut()),
    AtomicPtr::new(ptr::null_mut()),
];

/// What a function may use below its stack pointer (System V ABI for x86-64; elsewhere less).
const RED_ZONE_BYTES: usize = 128;

const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Installs the handler, once for the process; later calls only repeat the first one's answer.
///
/// A handler installed afterwards by someone else replaces this one; it keeps working if that one
/// chains to it. Threads that run coroutines also need an [`AltStack`].
///
/// # Errors
///
/// `System` if the kernel refuses the handler.
pub fn install() -> Result<(), StackError> {
    static DONE: OnceLock<Result<(), StackError>> = OnceLock::new();
    *DONE.get_or_init(|| {
        for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
            install_for(signal, previous)?;
        }
        Ok(())
    })
}

fn install_for(
    signal: libc::c_int,
    previous: &AtomicPtr<libc::sigaction>,
) -> Result<(), StackError> {
    // The old handler is recorded before ours can run; should a third one slip in between, the
    // record is corrected afterwards.
    let before = change_action(signal, None)?;
    // ORDERING: release, pairs with the acquire in `chain`: the record is seen whole.
    previous.store(Box::into_raw(Box::new(before)), Ordering::Release);
    let mut ours = default_action();
    ours.sa_sigaction = handle as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    let replaced = change_action(signal, Some(&ours))?;
    if replaced.sa_sigaction != before.sa_sigaction {
        // ORDERING: release, as above.
        previous.store(Box::into_raw(Box::new(replaced)), Ordering::Release);
    }
    Ok(())
}

/// The default disposition, with an empty mask and no flags.
fn default_action() -> libc::sigaction {
    // SAFETY: all-zero is a valid sigaction: SIG_DFL, an empty mask, no flags.
    unsafe { mem::zeroed() }
}

/// Sets the signal's disposition, or only asks for it; gives the one before.
fn change_action(
    signal: libc::c_int,
    new: Option<&libc::sigaction>,
) -> Result<libc::sigaction, StackError> {
    let mut old = default_action();
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both are null or live sigactions; a handler among them is one of this module's,
    // which are written for signal context.
    let status = unsafe { libc::sigaction(signal, new, &raw mut old) };
    if status == 0 {
        Ok(old)
    } else {
        Err(StackError::System {
            call: "sigaction",
            errno: super::errno(),
        })
    }
}

/// The handler.
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let errno = super::errno();
    // SAFETY: the kernel passes a valid siginfo to a SA_SIGINFO handler.
    let details = unsafe { &*info };
    let sent = details.si_code <= 0;
    if !sent {
        // SAFETY: a fault carries its address.
        let address = unsafe { details.si_addr() }.addr();
        // SAFETY: the kernel passes a valid context to a SA_SIGINFO handler.
        let stack_pointer = unsafe { stack_pointer(context.cast()) };
        if let Some(slot) = overflowed(address, stack_pointer) {
            report::report_and_abort(slot, Cause::Access(address), stack_pointer);
        }
        if details.si_code == SI_KERNEL
            && let Some(slot) = overflowed_by_a_signal(stack_pointer)
        {
            report::report_and_abort(slot, Cause::Signal, stack_pointer);
        }
    }
    chain(signal, info, context, sent);
    super::set_errno(errno);
}

/// The slot that a fault at `address` overflowed, if it is an overflow.
fn overflowed(address: usize, stack_pointer: usize) -> Option<SlotRef> {
    let slot = lookup(address)?;
    if !slot.guard().contains(&address) {
        return None;
    }
    let span = slot.span();
    if span.contains(&stack_pointer) {
        return Some(slot);
    }
    let below = span.start.saturating_sub(OVERSHOOT_BYTES)..span.start;
    // Below there may be another stack. If somebody runs there, it is he who strayed upwards.
    let is_free = || lookup(stack_pointer).is_none_or(|other| owner_of(other).is_none());
    (below.contains(&stack_pointer) && is_free()).then_some(slot)
}

/// The slot that had no room for a signal's frame, if that may have been it: the stack pointer is as near to the guard as that.
/// (An access to an address that the processor cannot form looks the same; nearly every one of those is elsewhere.)
fn overflowed_by_a_signal(stack_pointer: usize) -> Option<SlotRef> {
    let slot = lookup(stack_pointer)?;
    // The frame is aligned, and leaves the interrupted function's red zone alone.
    let room = alt_stack::signal_frame_bytes() + RED_ZONE_BYTES + 64;
    let limit = slot.limit().addr().get();
    (!slot.guard().is_empty() && (limit..limit + room).contains(&stack_pointer)).then_some(slot)
}

/// The interrupted code's stack pointer.
///
/// # Safety
///
/// `context` is what the kernel passed to the handler.
#[cfg(target_arch = "x86_64")]
unsafe fn stack_pointer(context: *const libc::ucontext_t) -> usize {
    // SAFETY: the caller's duty.
    let register = unsafe { (*context).uc_mcontext.gregs[libc::REG_RSP as usize] };
    register.cast_unsigned() as usize
}

/// Hands the signal to whoever had it before, as the kernel would have.
fn chain(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void, sent: bool) {
    let place = &PREVIOUS[usize::from(signal == libc::SIGBUS)];
    // ORDERING: acquire, pairs with the release in `install_for`.
    let previous = place.load(Ordering::Acquire);
    // SAFETY: null, or a leaked record that is never written again.
    let previous = unsafe { previous.as_ref() };
    let action = previous.copied().unwrap_or_else(default_action);
    match action.sa_sigaction {
        libc::SIG_IGN if sent => {}
        // The kernel does not let a fault be ignored.
        libc::SIG_DFL | libc::SIG_IGN => die_of(signal, sent),
        handler => {
            if action.sa_flags & libc::SA_RESETHAND != 0 {
                // ORDERING: release, as in `install_for`; null stands for the default.
                place.store(ptr::null_mut(), Ordering::Release);
            }
            let mask = change_mask(libc::SIG_BLOCK, &action.sa_mask);
            if action.sa_flags & libc::SA_SIGINFO == 0 {
                // SAFETY: without SA_SIGINFO a handler has this type.
                let handler =
                    unsafe { mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler) };
                handler(signal);
            } else {
                // SAFETY: with SA_SIGINFO a handler has this type.
                let handler = unsafe { mem::transmute::<usize, Handler>(handler) };
                handler(signal, info, context);
            }
            change_mask(libc::SIG_SETMASK, &mask);
        }
    }
}

type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Restores the default, which strikes when this handler returns: a fault repeats itself, a signal
/// that was sent is sent again.
fn die_of(signal: libc::c_int, sent: bool) {
    let _ = change_action(signal, Some(&default_action()));
    if sent {
        // SAFETY: no preconditions; the signal is blocked until the handler returns.
        unsafe { libc::raise(signal) };
    }
}

/// Changes the thread's signal mask; gives the one before.
fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> libc::sigset_t {
    let mut old = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both are live signal sets.
    unsafe { libc::pthread_sigmask(how, set, old.as_mut_ptr()) };
    // SAFETY: zeroed, which is an empty set, then filled in.
    unsafe { old.assume_init() }
}

/// A set of these signals.
fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: all-zero is an empty set on Linux.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    for &signal in signals {
        // SAFETY: `set` is a valid set.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    set
}
