//! Backtraces inside of coroutines, taken by gdb and by std: the body's own frames by name, then those of whoever resumed.

#![expect(unsafe_code, reason = "a name for gdb to stop at")]
#![allow(clippy::print_stdout, reason = "says what it skips")]

use std::process::Command;

use sinew::coroutine::{Coroutine, Generator, Step, Suspender, anchor};

/// Set in the process that gdb runs.
const STAGE: &str = "SINEW_BACKTRACE_STAGE";

/// What has to be in a backtrace, in this order.
const FRAMES: &[&str] = &[
    "stop_here",
    "innermost_call",
    "closure_of_an_adaptor",
    "body_of_the_inner",
    "resumer_of_the_inner",
    "body_of_the_outer",
    "resumer_of_the_outer",
];

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn sinew_test_stop_here(depth: usize) -> usize {
    std::hint::black_box(depth)
}

/// The trace that std takes, where the debugger stops.
#[inline(never)]
fn stop_here(depth: usize) -> String {
    std::hint::black_box(sinew_test_stop_here(depth));
    std::backtrace::Backtrace::force_capture().to_string()
}

#[inline(never)]
fn innermost_call(depth: usize) -> String {
    if depth == 0 {
        return stop_here(depth);
    }
    std::hint::black_box(innermost_call(depth - 1))
}

#[inline(never)]
fn closure_of_an_adaptor(suspended: Option<usize>) -> String {
    std::hint::black_box(innermost_call(suspended.unwrap_or(3)))
}

/// Suspends before, so that whoever resumes is another call than the first.
#[inline(never)]
fn body_of_the_inner(s: &Suspender<(), ()>) -> String {
    s.suspend(()).unwrap();
    let traces = [None].into_iter().map(closure_of_an_adaptor);
    std::hint::black_box(traces.collect::<Vec<_>>().remove(0))
}

#[inline(never)]
fn resumer_of_the_inner(inner: &mut Coroutine<'_, (), (), String>) -> String {
    std::hint::black_box(inner.resume(()).unwrap().done().unwrap())
}

#[inline(never)]
fn body_of_the_outer(s: &Suspender<(), ()>) -> String {
    anchor(|a| {
        let mut inner = Coroutine::new(a, |s: &Suspender<(), ()>, ()| body_of_the_inner(s));
        assert_eq!(inner.resume(()).unwrap(), Step::Suspended(()));
        s.suspend(()).unwrap();
        std::hint::black_box(resumer_of_the_inner(&mut inner))
    })
}

#[inline(never)]
fn resumer_of_the_outer(outer: &mut Coroutine<'_, (), (), String>) -> String {
    std::hint::black_box(outer.resume(()).unwrap().done().unwrap())
}

/// A coroutine that resumes another one, in whose depth a backtrace is taken.
fn nested() -> String {
    anchor(|a| {
        let mut outer = Coroutine::new(a, |s: &Suspender<(), ()>, ()| body_of_the_outer(s));
        assert_eq!(outer.resume(()).unwrap(), Step::Suspended(()));
        resumer_of_the_outer(&mut outer)
    })
}

/// Panics unless the frames are there, in their order, and after them the test itself.
fn check(trace: &str, frames: &[&str], test: &str) {
    let mut rest = trace;
    for frame in frames.iter().chain([&test]) {
        let at = rest.find(frame);
        let at = at.unwrap_or_else(|| panic!("no {frame} in its place:\n{trace}"));
        rest = &rest[at..];
    }
}

// contract: C25
#[test]
fn a_trace_inside_has_the_full_chain_and_goes_on_in_the_resumers() {
    let trace = nested();
    let test = "a_trace_inside_has_the_full_chain_and_goes_on_in_the_resumers";
    check(&trace, FRAMES, test);
    let depth = trace.matches("innermost_call").count();
    assert!(depth >= 4, "each frame of a recursion: {trace}");
}

// contract: C25
#[test]
fn a_trace_in_a_generator_goes_on_in_the_loop_that_asks() {
    #[inline(never)]
    fn loop_that_asks<'a>(generator: Generator<'a, String>) -> Vec<String> {
        generator.collect()
    }
    let traces = anchor(|a| {
        loop_that_asks(Generator::new(a, |y| {
            y.suspend(innermost_call(1)).unwrap();
            y.suspend(innermost_call(1)).unwrap();
        }))
    });
    assert_eq!(traces.len(), 2);
    for trace in traces {
        check(
            &trace,
            &["stop_here", "innermost_call", "loop_that_asks"],
            "a_trace_in_a_generator_goes_on_in_the_loop_that_asks",
        );
    }
}

/// In a coroutine of a scheduler nobody resumes but the scheduler: the chain goes on there, down to the thread's start.
// contract: C25
#[test]
fn a_trace_in_a_coroutine_of_a_scheduler_goes_on_in_run() {
    #[inline(never)]
    fn body_of_a_child() -> String {
        sinew::yield_now().unwrap();
        std::hint::black_box(innermost_call(1))
    }
    let trace = sinew::run(|| sinew::spawn_local(body_of_a_child).join().unwrap());
    check(
        &trace,
        &["stop_here", "innermost_call", "body_of_a_child"],
        "a_trace_in_a_coroutine_of_a_scheduler_goes_on_in_run",
    );
}

// contract: C25
#[test]
fn gdb_shows_the_same_chain() {
    let name = "gdb_shows_the_same_chain";
    if std::env::var_os(STAGE).is_some() {
        nested();
        return;
    }
    let there = Command::new("gdb").arg("--version").output();
    if !there.is_ok_and(|output| output.status.success()) {
        skip("gdb is not installed");
        return;
    }
    let program = std::env::current_exe().expect("the test's own path");
    let output = Command::new("gdb")
        .args(["--batch", "-nx", "-ex", "set debuginfod enabled off"])
        .args(["-ex", "break sinew_test_stop_here"])
        .args(["-ex", "run", "-ex", "bt", "-ex", "kill", "--args"])
        .arg(program)
        .args(["--exact", name, "--test-threads=1", "--nocapture"])
        .env(STAGE, "1")
        .output()
        .expect("gdb ran a moment ago");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    // Without the right to trace, in a container for example, gdb cannot run anything.
    if !text.contains("Breakpoint 1, ")
        && ["ptrace", "Operation not permitted"]
            .iter()
            .any(|why| errors.contains(why))
    {
        skip(&format!("gdb may not trace here: {errors}"));
        return;
    }
    let trace = text
        .find("#0 ")
        .unwrap_or_else(|| panic!("no backtrace:\n{text}\n{errors}"));
    check(&text[trace..], FRAMES, name);
    assert!(!text.contains("Backtrace stopped"), "{text}");
}

/// Says that a test cannot run; where all have to, it fails.
fn skip(why: &str) {
    assert!(std::env::var_os("SINEW_NO_SKIPS").is_none(), "{why}");
    println!("SKIPPED: {why}");
}
