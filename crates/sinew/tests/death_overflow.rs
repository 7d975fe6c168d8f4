//! A coroutine that runs into its stack's guard ends the process with a report: in Rust, and in a callback from C.
#![expect(unsafe_code, reason = "calls qsort")]

use std::ffi::{c_int, c_void};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

use sinew::{Builder, run};

const CHILD: &str = "SINEW_DEATH";

/// Runs this very test in a child process, with the variable set.
fn die(test: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap()
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let block = std::hint::black_box([depth; 32]);
    if depth == u64::MAX {
        0
    } else {
        recurse(depth + 1) + block[3]
    }
}

fn check(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{text}");
    for part in [
        "digger",
        "overflowed its stack",
        "stack_size",
        "death_overflow.rs",
        "recurse",
    ] {
        assert!(text.contains(part), "no {part:?} in the report:\n{text}");
    }
}

// contract: C18
#[test]
fn an_overflow_in_rust_is_reported() {
    if is_child() {
        run(|| {
            let digger = Builder::new().name("digger").stack_size(64 * 1024);
            drop(digger.spawn_local(|| recurse(0)).unwrap().join());
        });
        return;
    }
    check(&die("an_overflow_in_rust_is_reported"));
}

unsafe extern "C-unwind" fn compare(_: *const c_void, _: *const c_void) -> c_int {
    sinew::yield_now().unwrap();
    c_int::from(recurse(0) == 0)
}

unsafe extern "C-unwind" {
    fn qsort(
        base: *mut c_void,
        count: usize,
        size: usize,
        compare: unsafe extern "C-unwind" fn(*const c_void, *const c_void) -> c_int,
    );
}

// contract: C18, C4
#[test]
fn an_overflow_in_a_c_callback_is_reported() {
    if is_child() {
        run(|| {
            let digger = Builder::new().name("digger").spawn_local(|| {
                let mut numbers = [3_i32, 1, 2];
                // SAFETY: three numbers of four bytes; the comparator does not look at them.
                unsafe { qsort(numbers.as_mut_ptr().cast(), 3, 4, compare) };
            });
            drop(digger.unwrap().join());
        });
        return;
    }
    check(&die("an_overflow_in_a_c_callback_is_reported"));
}

// contract: C18
#[test]
fn an_overflow_of_a_plain_thread_is_still_stds() {
    if is_child() {
        run(|| ());
        std::thread::spawn(|| recurse(0)).join().unwrap();
        return;
    }
    let output = die("an_overflow_of_a_plain_thread_is_still_stds");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("has overflowed its stack"), "{text}");
    assert!(!text.contains("coroutine"), "{text}");
}
