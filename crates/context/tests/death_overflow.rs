//! Death tests of the overflow handler: each test runs itself again as a child, which dies.
//!
//! The child switches onto a real `Stack` with a small assembly helper, not with the crate's
//! switch, so that these tests stand on their own.

#![allow(
    unsafe_code,
    reason = "switches stacks, installs handlers and breaks memory on purpose"
)]

use sinew_context::stack::overflow::{self, AltStack};
use sinew_context::stack::{
    GuardKind, SIZE_BYTES_MIN, Stack, StackConfig, guard_kind, use_protected_guards,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::arch::global_asm;
use std::fmt::Write;
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::{env, mem, ptr};

const CHILD: &str = "SINEW_DEATH_CHILD";

/// Whether this process is the child that shall die.
fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}

/// Runs the test of this name again as a child.
fn run_child(test: &str) -> Output {
    command(test).output().unwrap()
}

fn command(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, "1");
    command
}

fn assert_report(output: &Output, needles: &[&str]) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.signal(),
        Some(libc::SIGABRT),
        "{:?}\n{text}",
        output.status
    );
    for needle in needles {
        assert!(text.contains(needle), "no {needle:?} in:\n{text}");
    }
    assert!(!text.contains("(the report "), "{text}");
    assert!(
        !text.contains("write_names"),
        "frames of the handler:\n{text}"
    );
    text
}

/// What every report says.
const FACTS: [&str; 8] = [
    "sinew: coroutine #7 \"parser\" spawned at src/main.rs:12 overflowed its stack: ",
    " KiB at 0x",
    "fault address 0x",
    "into the guard of 4096",
    "high water ",
    "raise it with Builder::stack_size(bytes)",
    "backtrace (addresses; the program begins at 0x",
    "more frames of the same",
];

global_asm!(
    ".pushsection .text.death_call_on_stack,\"ax\",@progbits",
    ".globl death_call_on_stack",
    ".type death_call_on_stack,@function",
    "death_call_on_stack:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rsp, rdi",
    "mov rdi, rdx",
    "call rsi",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size death_call_on_stack, . - death_call_on_stack",
    ".popsection",
);

unsafe extern "C-unwind" {
    fn death_call_on_stack(
        base: *mut u8,
        function: extern "C-unwind" fn(*mut ()),
        argument: *mut (),
    );
}

/// Calls `body` on the stack; what it panics with is handed on.
fn call_on_stack<F: FnOnce()>(stack: &Stack, body: F) {
    type Slot<F> = (Option<F>, std::thread::Result<()>);
    extern "C-unwind" fn enter<F: FnOnce()>(slot: *mut ()) {
        // SAFETY: the caller passes its own slot, and waits.
        let slot = unsafe { &mut *slot.cast::<Slot<F>>() };
        let body = slot.0.take().unwrap();
        slot.1 = catch_unwind(AssertUnwindSafe(body));
    }
    let mut slot: Slot<F> = (Some(body), Ok(()));
    // SAFETY: the stack is ours and empty; `enter` does not unwind.
    unsafe { death_call_on_stack(stack.base().as_ptr(), enter::<F>, (&raw mut slot).cast()) };
    if let Err(panic) = slot.1 {
        std::panic::resume_unwind(panic);
    }
}

unsafe fn describe(owner: *const (), out: &mut dyn Write) {
    // SAFETY: the owner is a `u64` that the test keeps alive.
    let id = unsafe { *owner.cast::<u64>() };
    let _ = write!(out, "#{id} \"parser\" spawned at src/main.rs:12");
}

/// The child's part: runs `body` on a stack of 64 KiB owned by number 7.
fn overflow_by(body: impl FnOnce()) {
    overflow::install().unwrap();
    let _alt_stack = AltStack::ensure().unwrap();
    let stack = Stack::new(&StackConfig::new(64 * 1024, 0).unwrap()).unwrap();
    let owner: u64 = 7;
    // SAFETY: `owner` outlives the stack's use; `describe` only formats.
    unsafe { stack.set_owner((&raw const owner).cast(), describe) };
    call_on_stack(&stack, body);
    unreachable!("the stack did not overflow");
}

#[inline(never)]
#[expect(unconditional_recursion, reason = "overflows the stack")]
fn recurse(depth: u64) -> u64 {
    black_box(recurse(black_box(depth) + 1)) + 1
}

#[inline(never)]
#[expect(clippy::large_stack_frames, reason = "the test is about large frames")]
fn large_frame(depth: u64) -> u64 {
    let mut frame = [0_u8; 32 * 1024];
    black_box(&mut frame);
    if depth == u64::MAX {
        0
    } else {
        large_frame(depth + 1) + u64::from(frame[7])
    }
}

/// A comparator that sorts again, for ever.
extern "C-unwind" fn compare(_: *const libc::c_void, _: *const libc::c_void) -> libc::c_int {
    sort_by_recursion();
    0
}

type Compare = extern "C-unwind" fn(*const libc::c_void, *const libc::c_void) -> libc::c_int;

unsafe extern "C-unwind" {
    fn qsort(base: *mut libc::c_void, count: usize, size: usize, compare: Compare);
}

#[inline(never)]
fn sort_by_recursion() {
    let mut numbers = [3_i32, 1, 2];
    // SAFETY: three elements of four bytes; the comparator does not look at them.
    unsafe { qsort(numbers.as_mut_ptr().cast(), 3, 4, compare) };
    black_box(&mut numbers);
}

// contract: C18
#[test]
fn recursion_is_reported() {
    if is_child() {
        overflow_by(|| _ = black_box(recurse(0)));
    }
    let text = assert_report(&run_child("recursion_is_reported"), &FACTS);
    assert!(text.contains("recurse\n"), "{text}");
    assert!(text.lines().count() < 120, "not folded:\n{text}");
}

// contract: C18
#[test]
fn a_frame_of_32_kib_is_reported() {
    if is_child() {
        overflow_by(|| _ = black_box(large_frame(0)));
    }
    let output = run_child("a_frame_of_32_kib_is_reported");
    let text = assert_report(&output, &FACTS[..7]);
    assert!(text.contains("large_frame\n"), "{text}");
}

// contract: C18
#[test]
fn recursion_through_a_c_callback_is_reported() {
    if is_child() {
        overflow_by(sort_by_recursion);
    }
    let output = run_child("recursion_through_a_c_callback_is_reported");
    let text = assert_report(&output, &FACTS[..7]);
    assert!(text.contains("more frames of the same cycle"), "{text}");
    assert!(text.contains("compare\n"), "{text}");
}

// contract: C18
#[test]
fn an_mprotect_guard_is_reported() {
    if is_child() {
        assert!(use_protected_guards());
        assert_eq!(guard_kind(), GuardKind::Protected);
        overflow_by(|| _ = black_box(recurse(0)));
    }
    assert_report(&run_child("an_mprotect_guard_is_reported"), &FACTS);
}

#[test]
fn an_owner_that_was_cleared_is_not_described() {
    if is_child() {
        overflow::install().unwrap();
        let _alt_stack = AltStack::ensure().unwrap();
        let stack = Stack::new(&StackConfig::default()).unwrap();
        // SAFETY: cleared before it can be called.
        unsafe { stack.set_owner(ptr::dangling(), describe) };
        stack.clear_owner();
        call_on_stack(&stack, || _ = black_box(recurse(0)));
    }
    let output = run_child("an_owner_that_was_cleared_is_not_described");
    assert_report(
        &output,
        &["sinew: coroutine (unnamed) overflowed its stack: "],
    );
}

/// Naming half a million frames would outlast the alarm; their addresses are still folded.
#[test]
fn a_very_deep_recursion_is_reported_without_names() {
    if is_child() {
        overflow::install().unwrap();
        let _alt_stack = AltStack::ensure().unwrap();
        let stack = Stack::new(&StackConfig::new(16 << 20, 0).unwrap()).unwrap();
        call_on_stack(&stack, || _ = black_box(recurse(0)));
    }
    let output = run_child("a_very_deep_recursion_is_reported_without_names");
    let needles = [
        "overflowed its stack",
        "more frames of the same",
        "are too many",
    ];
    assert_report(&output, &needles);
}

/// A report that faults itself still ends the process by `SIGABRT`.
#[test]
fn a_describe_function_that_faults_does_not_change_the_signal() {
    unsafe fn faults(_: *const (), _: &mut dyn Write) {
        fault_elsewhere();
    }
    if is_child() {
        overflow::install().unwrap();
        let _alt_stack = AltStack::ensure().unwrap();
        let stack = Stack::new(&StackConfig::default()).unwrap();
        // SAFETY: not sound; the test wants the fault.
        unsafe { stack.set_owner(ptr::dangling(), faults) };
        call_on_stack(&stack, || _ = black_box(recurse(0)));
    }
    let output = run_child("a_describe_function_that_faults_does_not_change_the_signal");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    assert!(
        text.contains("(the report faulted; it ends here)"),
        "{text}"
    );
}

/// An allocator that never answers again once it was told so, like one whose lock is held.
struct Hanging;

static HANG: AtomicBool = AtomicBool::new(false);
/// Whether it waits for the answer instead of asking for it again and again.
static SLEEP: AtomicBool = AtomicBool::new(false);

// SAFETY: passes everything on to the system's allocator, or does not return.
unsafe impl GlobalAlloc for Hanging {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        while HANG.load(Ordering::Relaxed) {
            if SLEEP.load(Ordering::Relaxed) {
                // SAFETY: no preconditions.
                unsafe { libc::pause() };
            }
            std::hint::spin_loop();
        }
        // SAFETY: the caller's duty.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's duty.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Hanging = Hanging;

#[test]
fn a_held_allocator_does_not_hang_the_report() {
    if is_child() {
        overflow_by(|| {
            HANG.store(true, Ordering::Relaxed);
            _ = black_box(recurse(0));
        });
    }
    check_that_it_ended("a_held_allocator_does_not_hang_the_report");
}

/// The same where the lock lets the thread sleep.
#[test]
fn an_allocator_that_sleeps_does_not_hang_the_report() {
    if is_child() {
        overflow_by(|| {
            SLEEP.store(true, Ordering::Relaxed);
            HANG.store(true, Ordering::Relaxed);
            _ = black_box(recurse(0));
        });
    }
    check_that_it_ended("an_allocator_that_sleeps_does_not_hang_the_report");
}

fn check_that_it_ended(test: &str) {
    let output = run_child(test);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    for needle in FACTS
        .iter()
        .chain(&["(the report took too long; it ends here)"])
    {
        assert!(text.contains(needle), "no {needle:?} in:\n{text}");
    }
}

/// Writes where nothing is mapped.
fn fault_elsewhere() {
    // SAFETY: not sound; the test wants the fault.
    unsafe { ptr::without_provenance_mut::<u8>(0x10).write_volatile(1) };
}

fn set_handler(signal: libc::c_int, handler: usize, flags: libc::c_int) {
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: the handlers of this file only write and exit.
    let status = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    assert_eq!(status, 0);
}

fn say_and_exit(text: &str, code: libc::c_int) -> ! {
    // SAFETY: `text` is readable for its length.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    // SAFETY: no preconditions.
    unsafe { libc::_exit(code) }
}

extern "C" fn with_info(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's siginfo, handed on.
    let info = unsafe { &*info };
    // SAFETY: a fault carries its address.
    if unsafe { info.si_addr() }.addr() == 0x10 {
        say_and_exit("previous handler saw 0x10", 41);
    }
    say_and_exit("previous handler saw another address", 42);
}

extern "C" fn without_info(signal: libc::c_int) {
    say_and_exit(
        if signal == libc::SIGSEGV {
            "plain handler"
        } else {
            "wrong signal"
        },
        43,
    );
}

/// The child's part: faults on a stack, away from any guard.
fn fault_on_a_stack() {
    overflow::install().unwrap();
    let _alt_stack = AltStack::ensure().unwrap();
    let stack = Stack::new(&StackConfig::default()).unwrap();
    call_on_stack(&stack, fault_elsewhere);
}

#[test]
fn a_fault_elsewhere_reaches_the_previous_handler() {
    if is_child() {
        set_handler(
            libc::SIGSEGV,
            with_info as *const () as usize,
            libc::SA_SIGINFO,
        );
        fault_on_a_stack();
    }
    let output = run_child("a_fault_elsewhere_reaches_the_previous_handler");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(41), "{text}");
    assert!(text.contains("previous handler saw 0x10"), "{text}");
}

#[test]
fn a_fault_elsewhere_reaches_a_handler_without_siginfo() {
    if is_child() {
        set_handler(libc::SIGSEGV, without_info as *const () as usize, 0);
        fault_on_a_stack();
    }
    let output = run_child("a_fault_elsewhere_reaches_a_handler_without_siginfo");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(43), "{text}");
    assert!(text.contains("plain handler"), "{text}");
}

fn assert_bare_segv(test: &str) {
    let output = run_child(test);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.signal(),
        Some(libc::SIGSEGV),
        "{:?}\n{text}",
        output.status
    );
    assert!(!text.contains("overflowed"), "{text}");
}

#[test]
fn a_fault_elsewhere_kills_by_default() {
    if is_child() {
        set_handler(libc::SIGSEGV, libc::SIG_DFL, 0);
        fault_on_a_stack();
    }
    assert_bare_segv("a_fault_elsewhere_kills_by_default");
}

#[test]
fn a_fault_elsewhere_kills_even_if_ignored() {
    if is_child() {
        set_handler(libc::SIGSEGV, libc::SIG_IGN, 0);
        fault_on_a_stack();
    }
    assert_bare_segv("a_fault_elsewhere_kills_even_if_ignored");
}

#[test]
fn a_fault_elsewhere_kills_under_the_handler_of_std() {
    if is_child() {
        fault_on_a_stack();
    }
    assert_bare_segv("a_fault_elsewhere_kills_under_the_handler_of_std");
}

#[test]
fn a_signal_that_was_sent_kills_by_default() {
    if is_child() {
        set_handler(libc::SIGSEGV, libc::SIG_DFL, 0);
        overflow::install().unwrap();
        // SAFETY: no preconditions.
        unsafe { libc::raise(libc::SIGSEGV) };
        say_and_exit("still alive", 44);
    }
    assert_bare_segv("a_signal_that_was_sent_kills_by_default");
}

#[test]
fn a_signal_that_was_sent_is_ignored_if_it_was() {
    if is_child() {
        set_handler(libc::SIGSEGV, libc::SIG_IGN, 0);
        overflow::install().unwrap();
        // SAFETY: no preconditions.
        unsafe { libc::raise(libc::SIGSEGV) };
        say_and_exit("still alive", 45);
    }
    let output = run_child("a_signal_that_was_sent_is_ignored_if_it_was");
    assert_eq!(output.status.code(), Some(45), "{:?}", output.status);
}

static PAGE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());

/// Opens the page that was closed, and spoils errno.
extern "C" fn repair(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let page = PAGE.load(Ordering::Relaxed);
    // SAFETY: the test's own page.
    unsafe { libc::mprotect(page.cast(), 4096, libc::PROT_READ | libc::PROT_WRITE) };
    set_errno(libc::EXDEV);
}

fn set_errno(value: i32) {
    // SAFETY: libc returns a valid pointer to the calling thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *place = value };
}

fn signal_mask() -> [u8; mem::size_of::<libc::sigset_t>()] {
    let mut mask = [0; mem::size_of::<libc::sigset_t>()];
    // SAFETY: `mask` is as large as a signal set.
    let status =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr().cast()) };
    assert_eq!(status, 0);
    mask
}

/// A previous handler that repairs the fault (as garbage collectors and emulators do) goes on
/// working, and the interrupted code notices nothing.
#[test]
fn a_fault_that_the_previous_handler_repairs_leaves_no_trace() {
    if is_child() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping.
        let page = unsafe { libc::mmap(ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0) };
        PAGE.store(page.cast(), Ordering::Relaxed);
        set_handler(
            libc::SIGSEGV,
            repair as *const () as usize,
            libc::SA_SIGINFO,
        );
        overflow::install().unwrap();
        let _alt_stack = AltStack::ensure().unwrap();
        let stack = Stack::new(&StackConfig::default()).unwrap();
        call_on_stack(&stack, || {
            let mask = signal_mask();
            for value in [7, 8] {
                // SAFETY: the test's own page.
                let status = unsafe { libc::mprotect(page, 4096, libc::PROT_NONE) };
                assert_eq!(status, 0);
                set_errno(libc::EDOM);
                // SAFETY: the handler opens the page.
                unsafe { page.cast::<u8>().write_volatile(value) };
                assert_eq!(
                    std::io::Error::last_os_error().raw_os_error(),
                    Some(libc::EDOM)
                );
                // SAFETY: the page is open now.
                assert_eq!(unsafe { page.cast::<u8>().read_volatile() }, value);
                assert!(signal_mask() == mask);
            }
        });
        say_and_exit("repaired", 46);
    }
    let output = run_child("a_fault_that_the_previous_handler_repairs_leaves_no_trace");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(46), "{text}");
}

global_asm!(
    ".pushsection .text.death_unprobed_frame,\"ax\",@progbits",
    ".globl death_unprobed_frame",
    ".type death_unprobed_frame,@function",
    "death_unprobed_frame:",
    ".cfi_startproc",
    "sub rsp, 1048584",
    ".cfi_def_cfa_offset 1048592",
    "mov qword ptr [rsp], 0",
    "add rsp, 1048584",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
    ".size death_unprobed_frame, . - death_unprobed_frame",
    ".popsection",
);

unsafe extern "C-unwind" {
    /// What C compilers make of `alloca(1 << 20)`: no probes on the way down.
    fn death_unprobed_frame();
}

// contract: C18
#[test]
fn an_unprobed_frame_of_1_mib_is_caught_by_a_guard_that_large() {
    if is_child() {
        overflow::install().unwrap();
        let _alt_stack = AltStack::ensure().unwrap();
        let stack = Stack::new(&StackConfig::new(32 * 1024, 1 << 20).unwrap()).unwrap();
        // SAFETY: only touches the stack, which ends in the guard.
        call_on_stack(&stack, || unsafe { death_unprobed_frame() });
    }
    let output = run_child("an_unprobed_frame_of_1_mib_is_caught_by_a_guard_that_large");
    let needles = [
        "overflowed its stack",
        "into the guard of 1048576",
        "death_unprobed_frame",
    ];
    assert_report(&output, &needles);
}

/// A thread that strays into a coroutine's guard has not overflowed that coroutine's stack.
#[test]
fn a_stray_access_to_a_guard_is_not_called_an_overflow() {
    if is_child() {
        overflow::install().unwrap();
        let _alt_stack = AltStack::ensure().unwrap();
        let stack = Stack::new(&StackConfig::default()).unwrap();
        let place = stack.limit().as_ptr().wrapping_sub(1);
        // SAFETY: not sound; the test wants the fault.
        unsafe { place.write_volatile(1) };
    }
    assert_bare_segv("a_stray_access_to_a_guard_is_not_called_an_overflow");
}

/// A coroutine that runs off the upper end of its stack meets its neighbour's guard; the neighbour
/// has not overflowed.
#[test]
fn a_stray_access_from_the_neighbouring_stack_is_not_called_an_overflow() {
    if is_child() {
        overflow::install().unwrap();
        let _alt_stack = AltStack::ensure().unwrap();
        let config = StackConfig::default();
        let [lower, upper] = [(); 2].map(|()| Stack::new(&config).unwrap());
        assert_eq!(
            lower.guard().start + config.reserved_bytes(),
            upper.guard().start
        );
        let owner: u64 = 7;
        // SAFETY: `owner` outlives the stack's use; `describe` only formats.
        unsafe { lower.set_owner((&raw const owner).cast(), describe) };
        let place = upper.limit().as_ptr().wrapping_sub(1);
        // SAFETY: not sound; the test wants the fault.
        call_on_stack(&lower, || unsafe { place.write_volatile(1) });
    }
    assert_bare_segv("a_stray_access_from_the_neighbouring_stack_is_not_called_an_overflow");
}

#[test]
fn the_overflow_of_a_thread_is_still_reported_by_std() {
    if is_child() {
        overflow::install().unwrap();
        let thread = std::thread::Builder::new().name("plain".to_owned());
        let thread = thread.spawn(|| {
            let _alt_stack = AltStack::ensure().unwrap();
            black_box(recurse(0));
        });
        drop(thread.unwrap().join());
    }
    let output = run_child("the_overflow_of_a_thread_is_still_reported_by_std");
    let text = assert_report(&output, &["thread 'plain'", "has overflowed its stack"]);
    assert!(!text.contains("coroutine"), "{text}");
}

/// Two overflows at once give one whole report.
#[test]
fn two_threads_that_overflow_write_one_report() {
    if is_child() {
        let barrier = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    barrier.wait();
                    overflow_by(|| _ = black_box(recurse(0)));
                });
            }
        });
    }
    let text = assert_report(
        &run_child("two_threads_that_overflow_write_one_report"),
        &FACTS,
    );
    assert_eq!(text.matches("overflowed its stack").count(), 1, "{text}");
}

/// What `SIZE_BYTES_MIN` is measured by: a panic, its message, and its unwinding on a stack.
#[test]
fn a_panic_fits_the_smallest_stack() {
    if is_child() {
        overflow::install().unwrap();
        let _alt_stack = AltStack::ensure().unwrap();
        for size_bytes in [SIZE_BYTES_MIN, 1024 * 1024] {
            let stack = Stack::new(&StackConfig::new(size_bytes, 0).unwrap()).unwrap();
            let panics = || call_on_stack(&stack, || panic!("number {}", black_box(7)));
            assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
            eprintln!(
                "deepest use {} of {size_bytes} bytes",
                stack.high_water_bytes()
            );
        }
        return;
    }
    for backtrace in ["0", "1"] {
        let output = command("a_panic_fits_the_smallest_stack")
            .env("RUST_BACKTRACE", backtrace)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        for line in text.lines().filter(|line| line.starts_with("deepest")) {
            println!("RUST_BACKTRACE={backtrace}: {line}");
        }
        assert!(output.status.success(), "{:?}\n{text}", output.status);
    }
}
