//! The overflow report: what is written between the fault and `SIGABRT`.
//!
//! One thread, in the signal handler; a second thread that overflows meanwhile waits for the end.
//!
//! 1. The facts: whose stack, its size, the address, how to raise the size. System calls only.
//! 2. The return addresses of the coroutine's frames, repeated ones folded. The unwinder may take
//!    the loader's lock, or fault on a frame without unwind information.
//! 3. The same by name. This allocates and reads files.
//!
//! Steps 2 and 3 run under a watch; a fault of this thread in any step is caught. Whichever strikes
//! ends the process with `SIGABRT`, and what was written so far stands. The watch looks once a second at the CPU time of the
//! thread: a report that waits for a lock gets none, and one that spins gets too much, while one on a busy machine gets
//! little and is left alone.

#![expect(unsafe_code, reason = "the unwinder's interface, signals")]

mod fold;
#[cfg(test)]
mod tests;
mod writer;

use super::{Cause, change_action, change_mask, default_action, set_of};
use crate::stack::{SlotRef, owner_of, residency};
use fold::{Fold, FrameText};
use std::fmt::Write as _;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use writer::Stderr;

/// CPU time for the backtrace.
const BACKTRACE_NS: u64 = 3_000_000_000;
/// A second in which it got less than this was spent waiting; so many of them in a row are too many.
const STIR_NS: u64 = 1_000_000;
const IDLE_SECONDS_MAX: u32 = 3;
/// Nothing takes longer.
const SECONDS_MAX: u32 = 60;
/// More frames than this are not named: it would take longer than that. (65,000 took 1.2 s in a debug
/// build on a busy machine.)
const NAMED_FRAMES_MAX: usize = 50_000;

/// The thread that writes the report; zero until there is one.
static REPORTER: AtomicI32 = AtomicI32::new(0);

/// What the watch has seen; all of it by the thread that writes the report.
struct Watch {
    started_ns: AtomicU64,
    seen_ns: AtomicU64,
    seconds: AtomicU32,
    idle_seconds: AtomicU32,
}

static WATCH: Watch = Watch::new();

impl Watch {
    const fn new() -> Watch {
        Watch {
            started_ns: AtomicU64::new(0),
            seen_ns: AtomicU64::new(0),
            seconds: AtomicU32::new(0),
            idle_seconds: AtomicU32::new(0),
        }
    }

    // ORDERING: relaxed throughout; one thread, and a handler on it.
    fn start(&self, now_ns: u64) {
        self.started_ns.store(now_ns, Ordering::Relaxed);
        self.seen_ns.store(now_ns, Ordering::Relaxed);
    }

    /// A second is over, at this CPU time: whether the report may go on.
    fn may_go_on(&self, now_ns: u64) -> bool {
        let seconds = self.seconds.load(Ordering::Relaxed) + 1;
        self.seconds.store(seconds, Ordering::Relaxed);
        let stirred = now_ns.saturating_sub(self.seen_ns.swap(now_ns, Ordering::Relaxed));
        let idle_seconds = if stirred < STIR_NS {
            self.idle_seconds.load(Ordering::Relaxed) + 1
        } else {
            0
        };
        self.idle_seconds.store(idle_seconds, Ordering::Relaxed);
        let used_ns = now_ns.saturating_sub(self.started_ns.load(Ordering::Relaxed));
        used_ns < BACKTRACE_NS && idle_seconds < IDLE_SECONDS_MAX && seconds < SECONDS_MAX
    }
}

/// The CPU time of the calling thread.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is live; async-signal-safe.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Writes the report of an overflow of `slot` and ends the process.
pub(super) fn report_and_abort(slot: SlotRef, cause: Cause, stack_pointer: usize) -> ! {
    // ORDERING: relaxed; only one thread may win, nothing else is shared.
    let won = REPORTER.compare_exchange(0, thread_id(), Ordering::Relaxed, Ordering::Relaxed);
    if won.is_err() {
        wait_for_the_end();
    }
    let mut all = set_of(&[]);
    // SAFETY: `all` is a valid set.
    unsafe { libc::sigfillset(&raw mut all) };
    change_mask(libc::SIG_BLOCK, &all);
    catch_trouble();
    write_facts(slot, cause, stack_pointer);
    start_watch();
    let frames = write_addresses(slot);
    write_names(frames);
    abort();
}

fn thread_id() -> libc::pid_t {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

/// For a thread that faults while another one writes: the process ends soon.
fn wait_for_the_end() -> ! {
    loop {
        // SAFETY: no preconditions.
        unsafe { libc::pause() };
    }
}

fn write_facts(slot: SlotRef, cause: Cause, stack_pointer: usize) {
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
    let _ = match cause {
        Cause::Access(address) => write!(
            out,
            "  fault address {address:#x}, {} bytes into the guard of {guard_bytes}",
            limit.saturating_sub(address)
        ),
        Cause::Signal => write!(
            out,
            "  a signal's frame did not fit above the guard of {guard_bytes}"
        ),
    };
    let _ = writeln!(
        out,
        "; stack pointer {stack_pointer:#x}; high water {} KiB",
        residency::high_water_bytes(slot) / 1024
    );
    let (advice, of_all) = if slot.is_provided() {
        ("provide a larger one", "")
    } else {
        (
            "raise it with Builder::stack_size(bytes)",
            ", for a scheduler's first and all others with SchedulerBuilder::stack_size(bytes)",
        )
    };
    let _ = writeln!(
        out,
        "  {advice} where the coroutine is built{of_all}, or look for endless recursion below"
    );
    out.flush();
}

const TROUBLE: [libc::c_int; 3] = [libc::SIGALRM, libc::SIGSEGV, libc::SIGBUS];

/// From here on a fault of this thread ends the process with `SIGABRT`.
fn catch_trouble() {
    let mut action = default_action();
    action.sa_sigaction = give_up as *const () as usize;
    action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
    for signal in TROUBLE {
        let _ = change_action(signal, Some(&action));
    }
    change_mask(libc::SIG_UNBLOCK, &set_of(&TROUBLE));
}

/// From here on the process ends with `SIGABRT` when the watch says so.
///
/// It is woken by a timer of this thread: an ordinary one could strike a thread that runs a coroutine
/// and has no room left for the handler. The system calls are made directly, because some C
/// libraries allocate in `timer_create`.
fn start_watch() {
    WATCH.start(cpu_ns());
    // SAFETY: all-zero is a valid sigevent.
    let mut event: libc::sigevent = unsafe { mem::zeroed() };
    event.sigev_signo = libc::SIGALRM;
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_notify_thread_id = thread_id();
    let mut timer: libc::c_int = 0;
    // SAFETY: both pointers are live; the kernel's timers are named by an int.
    let made = unsafe {
        libc::syscall(
            libc::SYS_timer_create,
            libc::CLOCK_MONOTONIC,
            &raw mut event,
            &raw mut timer,
        )
    };
    // SAFETY: all-zero is a valid itimerspec.
    let mut time: libc::itimerspec = unsafe { mem::zeroed() };
    time.it_value.tv_sec = 1;
    time.it_interval.tv_sec = 1;
    let none = ptr::null_mut::<libc::itimerspec>();
    // SAFETY: `time` is live; the kernel checks the timer's number.
    let set = unsafe { libc::syscall(libc::SYS_timer_settime, timer, 0, &raw const time, none) };
    if made != 0 || set != 0 {
        let second = libc::timeval {
            tv_sec: 1,
            tv_usec: 0,
        };
        let each = libc::itimerval {
            it_interval: second,
            it_value: second,
        };
        // SAFETY: `each` is live; nobody asks for what was there before.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const each, ptr::null_mut()) };
    }
}

extern "C" fn give_up(signal: libc::c_int) {
    // ORDERING: relaxed; a thread compares with its own number.
    let reporter = REPORTER.load(Ordering::Relaxed);
    if reporter != thread_id() {
        if signal != libc::SIGALRM {
            wait_for_the_end();
        }
        // A second of the process's timer that has struck another thread.
        // SAFETY: no preconditions.
        let process = unsafe { libc::getpid() };
        // SAFETY: no preconditions.
        unsafe { libc::syscall(libc::SYS_tgkill, process, reporter, signal) };
        return;
    }
    if signal == libc::SIGALRM {
        let errno = crate::stack::errno();
        if WATCH.may_go_on(cpu_ns()) {
            crate::stack::set_errno(errno);
            return;
        }
    }
    let mut out = Stderr::new();
    let why = if signal == libc::SIGALRM {
        "took too long"
    } else {
        "faulted"
    };
    let _ = writeln!(out, "\n  (the report {why}; it ends here)");
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
