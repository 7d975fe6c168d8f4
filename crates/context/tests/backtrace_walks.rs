//! Backtraces from outside: gdb's, and a walk along the frame pointers; both go on in whoever resumed.
#![expect(unsafe_code, reason = "drives raw coroutines; walks frames by hand")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "bodies are written inside the block that makes their coroutine"
)]

use std::arch::asm;
use std::cell::Cell;
use std::process::Command;

use sinew_context::Coroutine;
use sinew_context::stack::{Stack, StackConfig};

/// Set in the process that gdb runs.
const STAGE: &str = "SINEW_BACKTRACE_STAGE";

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn sinew_test_stop_here(word: usize) -> usize {
    std::hint::black_box(word)
}

#[inline(never)]
fn inner_of_the_body(word: usize) -> usize {
    std::hint::black_box(sinew_test_stop_here(word)) + 1
}

#[inline(never)]
fn outer_of_the_body(word: usize) -> usize {
    std::hint::black_box(inner_of_the_body(word)) + 1
}

#[inline(never)]
fn resumer_of_the_body(body: fn(usize) -> usize) {
    let stack = Stack::new(&StackConfig::default()).expect("a stack");
    // SAFETY: the stack outlives the coroutine, which runs to its end on this thread.
    let mut co = unsafe {
        Coroutine::new(stack.base(), move |yielder, word| {
            let word = yielder.suspend(word);
            body(word)
        })
    };
    // SAFETY: not ended, not running.
    unsafe { co.enter(1) };
    // SAFETY: as above.
    std::hint::black_box(unsafe { co.enter(2) });
}

// contract: C25
#[test]
fn gdb_shows_the_frames_and_goes_on_in_the_resumer() {
    if std::env::var_os(STAGE).is_some() {
        resumer_of_the_body(outer_of_the_body);
        return;
    }
    let there = Command::new("gdb").arg("--version").output();
    if !there.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: gdb is not installed");
        return;
    }
    let program = std::env::current_exe().expect("the test's own path");
    let output = Command::new("gdb")
        .args(["--batch", "-nx", "-ex", "set debuginfod enabled off"])
        .args([
            "-ex",
            "break sinew_test_stop_here",
            "-ex",
            "run",
            "-ex",
            "bt",
            "-ex",
            "kill",
        ])
        .arg("--args")
        .arg(program)
        .args(["--exact", "gdb_shows_the_frames_and_goes_on_in_the_resumer"])
        .args(["--test-threads=1", "--nocapture"])
        .env(STAGE, "1")
        .output()
        .expect("gdb ran a moment ago");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if !text.contains("Breakpoint 1, ") {
        // Without the right to trace, in a container for example, gdb cannot run anything.
        let refused = ["ptrace", "Operation not permitted"];
        if refused.iter().any(|why| errors.contains(why)) {
            println!("SKIPPED: gdb may not trace here: {errors}");
            return;
        }
    }
    let frames = [
        "sinew_test_stop_here",
        "inner_of_the_body",
        "outer_of_the_body",
        "enter_body",
        "resumer_of_the_body",
    ];
    let trace = text.find("#0 ").map_or("", |at| &text[at..]);
    let mut rest = trace;
    for frame in frames {
        let at = rest.find(frame);
        let at = at.unwrap_or_else(|| panic!("no {frame} in its place:\n{text}\n{errors}"));
        rest = &rest[at..];
    }
}

/// Finds out whether a chain of frame records leads from here to a frame whose address is in the range, and leaves the number
/// of records up to there in `found`.
#[inline(never)]
fn walk(range: std::ops::Range<usize>) -> Option<usize> {
    let mut record: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rbp", out(reg) record, options(nomem, nostack, preserves_flags)) };
    for count in 0..60 {
        if range.contains(&record) {
            return Some(count);
        }
        if record == 0 || !record.is_multiple_of(8) {
            return None;
        }
        // SAFETY: with frame pointers everywhere each record leads to the next one.
        record = unsafe { std::ptr::with_exposed_provenance::<usize>(record).read() };
    }
    None
}

thread_local! {
    static RANGE: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    static FOUND: Cell<Option<usize>> = const { Cell::new(None) };
}

fn walking_body(word: usize) -> usize {
    let (low, high) = RANGE.get();
    FOUND.set(walk(low..high));
    word
}

// contract: C25
#[test]
fn a_walk_along_frame_pointers_goes_on_in_the_resumer() {
    if cfg!(not(sinew_frame_pointers)) {
        println!("SKIPPED: built without frame pointers; cargo xtask backtraces has them");
        return;
    }
    // A record in this frame or further out, on the thread's stack: its addresses lie above this local.
    let here = 0_u8;
    let low = (&raw const here).addr();
    RANGE.set((low, low + 64 * 1024));
    resumer_of_the_body(walking_body);
    let records = FOUND.get().expect("the chain ends before the resumer");
    assert!(records >= 4, "the body's own frames come first: {records}");
    RANGE.set((1, 2));
    resumer_of_the_body(walking_body);
    assert_eq!(FOUND.get(), None, "the check can fail");
}
