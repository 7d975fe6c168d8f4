//! The tour as a person starts it, and what it makes of steps that fail.

use std::io;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::Duration;

use sinew_cli::tour::{Failure, Outcome, STEPS, Size, Stage, Step, Watchdog, run};

/// A limit that only a hang exceeds.
const SAFETY: Duration = Duration::from_secs(60);

fn tour(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sinew"))
        .args(arguments)
        .output()
        .expect("starts")
}

#[test]
fn every_step_holds_and_says_so() {
    let output = tour(&["tour", "--tiny"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{text}");
    for (index, step) in STEPS.iter().enumerate() {
        let title = format!("{:2}. {}", index + 1, step.name);
        assert!(text.lines().any(|line| line == title), "{title}: {text}");
    }
    let held = text.lines().filter(|line| line.starts_with("    ok in "));
    assert_eq!(held.count(), STEPS.len(), "{text}");
    for row in [
        "coroutines created",
        "switches between coroutines",
        "stacks: address space reserved",
        "stacks: memory committed",
        "stacks: high-water mark",
        "HTTP requests per second",
        "latency p99.9",
    ] {
        assert!(text.contains(row), "{row}: {text}");
    }
    let verdict = format!("all {} steps held, in ", STEPS.len());
    assert!(text.contains(&verdict), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours without a terminal");
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
}

#[test]
fn a_reader_that_is_gone_changes_nothing() {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_sinew"))
        .args(["tour", "--tiny"])
        .stdout(writer)
        .status()
        .expect("starts");
    assert!(status.success(), "{status}");
}

fn watchdog() -> Watchdog {
    Watchdog::start(SAFETY, |step| panic!("{step} hangs")).expect("a thread")
}

fn run_all(steps: &[Step]) -> (Outcome, String) {
    let mut out = Vec::new();
    let mut stage = Stage::new(&mut out, Size::Tiny);
    let outcome = run(steps, &mut stage, &watchdog());
    (outcome, String::from_utf8(out).expect("text"))
}

#[test]
fn failures_and_panics_are_named_and_the_rest_goes_on() {
    let (outcome, text) = run_all(&[
        Step {
            name: "good",
            shows: "It holds.",
            act: |_| Ok(()),
        },
        Step {
            name: "bad",
            shows: "It does not.",
            act: |_| Err(Failure::new("two instead of one")),
        },
        Step {
            name: "worse",
            shows: "It panics in a coroutine.",
            act: |_| sinew::run(|| panic!("the step gave up")),
        },
        Step {
            name: "late",
            shows: "It comes after them.",
            act: |stage| {
                stage.say("it was reached");
                Ok(())
            },
        },
    ]);
    assert_eq!(
        (outcome.steps, &*outcome.failed),
        (4, &["bad", "worse"][..])
    );
    for part in [
        "two instead of one",
        "the step panicked: the step gave up",
        "it was reached",
        "2 of 4 steps failed: bad, worse",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(outcome.status(), std::process::ExitCode::FAILURE);
}

#[test]
fn a_tour_without_failures_succeeds() {
    let (outcome, text) = run_all(&[]);
    assert_eq!(outcome.status(), std::process::ExitCode::SUCCESS);
    assert!(text.contains("all 0 steps held"), "{text}");
}

#[test]
fn a_step_that_hangs_is_named() {
    let (tell, told) = mpsc::channel();
    let limit = Duration::from_millis(1);
    let watchdog = Watchdog::start(limit, move |step| {
        tell.send(step.to_owned()).expect("the test waits");
    });
    let watchdog = watchdog.expect("a thread");
    let watched = watchdog.watch("sleepyhead");
    assert_eq!(told.recv_timeout(SAFETY).as_deref(), Ok("sleepyhead"));
    drop(watched);
}

#[test]
fn a_step_that_ends_in_time_is_not_watched_on() {
    let watchdog = watchdog();
    for step in ["one", "two"] {
        drop(watchdog.watch(step));
    }
    drop(watchdog);
}
