//! The kinds of checks that run the tests under a tool which watches memory: Valgrind, the sanitizers; and the backtraces.
//!
//! Each has a directory of its own for what it builds, since its flags change every crate. A tool that is not there is
//! said to be missing, and nothing is installed. docs/TESTING.md says what each finds.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::runner::{cargo, execute, root, say};
use crate::step::{Outcome, target};

/// The target of the sanitizer builds. It is named, so that build scripts and macros are built without the sanitizer.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// What a sanitizer needs of the compiler is behind a gate that this opens.
const BOOTSTRAP: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");

/// What memcheck runs: the package, the test binary (empty: the unit tests), and tests to leave out because they measure
/// memory, time or limits, which are Valgrind's own there.
const MEMCHECK: &[(&str, &str, &[&str])] = &[
    ("sinew-context", "switch_basics", &[]),
    (
        "sinew-context",
        "switch_registers",
        // It computes with rounding modes that Valgrind does not keep.
        &["each_rounding_mode_stays_on_its_side"],
    ),
    ("sinew-context", "switch_marks", &[]),
    ("sinew-core", "sync_channel", &[]),
    ("sinew-core", "sync_mutex", &[]),
    (
        "sinew-core",
        "sync_event",
        &["no_signal_is_lost_or_doubled_among_threads_that_give_up"],
    ),
    ("sinew", "coroutine_basics", &[]),
    ("sinew", "coroutine_anchor", &[]),
    ("sinew", "coroutine_scheduler", &[]),
    ("sinew", "coroutine_thread_state", &[]),
    (
        "sinew",
        "scheduler_basics",
        &["a_hundred_thousand_are_alive_at_once"],
    ),
    ("sinew", "scope_borrow", &[]),
    (
        "sinew",
        "sync_channels",
        &["a_hundred_thousand_wait_at_a_channel"],
    ),
];

/// Runs a chosen set of test binaries under memcheck.
pub(crate) fn valgrind(rest: &[String]) -> Outcome {
    if !answers("valgrind", "--version") {
        return Outcome::Skipped("valgrind is not installed".to_owned());
    }
    let mut failed = Vec::new();
    for (package, test, left_out) in MEMCHECK {
        let binary = match test_binary(package, test) {
            Ok(binary) => binary,
            Err(text) => return Outcome::Failed(text),
        };
        let mut command = Command::new("valgrind");
        command
            .args(["--quiet", "--error-exitcode=99", "--leak-check=no"])
            // Threads take turns; without this one that spins holds its turn to the end.
            .args(["--fair-sched=try", "--num-callers=30"])
            .arg(&binary)
            .arg("--test-threads=1")
            .args(rest);
        for test in *left_out {
            command.args(["--skip", test]);
            say(&format!(
                "SKIPPED under Valgrind: {test} of {package}: too much for it"
            ));
        }
        command.env("PROPTEST_CASES", "16").env("SINEW_STRESS", "1");
        command.current_dir(root().join(folder(package)));
        if let Outcome::Failed(why) = execute(&mut command) {
            failed.push(format!("{package} {test}: {why}"));
        }
    }
    if failed.is_empty() {
        Outcome::Passed
    } else {
        Outcome::Failed(failed.join("; "))
    }
}

/// Where a package's sources are; tests run there.
fn folder(package: &str) -> PathBuf {
    Path::new("crates").join(package.strip_prefix("sinew-").unwrap_or(package))
}

/// Builds a test binary as `cargo test` does, and says where it is.
fn test_binary(package: &str, test: &str) -> Result<PathBuf, String> {
    let mut command = cargo(["test", "--no-run", "--message-format=json", "-p", package]);
    let output = command
        .args(["--test", test])
        .output()
        .map_err(|error| format!("cargo could not be run: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{package} {test} does not build: {errors}"));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    executable(&messages, test).ok_or_else(|| format!("cargo names no executable of {test}"))
}

/// The executable of a target in cargo's messages, one JSON object a line.
fn executable(messages: &str, test: &str) -> Option<PathBuf> {
    let name = format!("\"name\":\"{test}\"");
    messages
        .lines()
        .filter(|line| line.contains(&name))
        .find_map(|line| {
            let (_, rest) = line.split_once("\"executable\":\"")?;
            Some(PathBuf::from(rest.split_once('"')?.0))
        })
}

/// Whether a program can be run.
fn answers(program: &str, question: &str) -> bool {
    let output = Command::new(program).arg(question).output();
    output.is_ok_and(|output| output.status.success())
}

/// Says which kinds of tests a tool does not run, and why.
fn say_left_out(tool: &str, left_out: &[(&str, &str)]) {
    for (tests, why) in left_out {
        say(&format!("SKIPPED under {tool}: {tests}: {why}"));
    }
}

/// The tests of the runtime under AddressSanitizer, with leak detection.
pub(crate) fn asan(rest: &[String]) -> Outcome {
    say_left_out(
        "AddressSanitizer",
        &[
            (
                "death_*",
                "the sanitizer handles the faults that they provoke",
            ),
            ("compile_fail", "nothing runs"),
            ("doctests", "they have no flags"),
            (
                "scheduler_ends, inspect_listing, event_stress, stack_refused",
                "they limit or measure memory, or take minutes",
            ),
        ],
    );
    let tests = match integration_tests(
        &["context", "core", "sinew"],
        &[
            "death_",
            "compile_fail",
            "loom_",
            "scheduler_ends",
            "inspect_listing",
            "event_stress",
            "stack_refused",
        ],
    ) {
        Ok(tests) => tests,
        Err(text) => return Outcome::Failed(text),
    };
    let mut command = cargo(["test", "--target", TRIPLE, "--no-fail-fast", "--lib"]);
    command.args(["-p", "sinew-context", "-p", "sinew-core", "-p", "sinew"]);
    for test in &tests {
        command.args(["--test", test]);
    }
    command
        .args(rest)
        .env("RUSTFLAGS", "-Zsanitizer=address --cfg sinew_asan")
        .env("CARGO_TARGET_DIR", target().join("asan"))
        .env(
            "LSAN_OPTIONS",
            format!("suppressions={}", root().join("xtask/lsan.supp").display()),
        )
        .env(BOOTSTRAP.0, BOOTSTRAP.1);
    execute(&mut command)
}

/// The integration tests in these crates, but for those whose names begin so.
fn integration_tests(crates: &[&str], without: &[&str]) -> Result<Vec<String>, String> {
    let patterns: Vec<String> = crates
        .iter()
        .map(|name| format!("crates/{name}/tests/*.rs"))
        .collect();
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    let files = crate::runner::files(&patterns)?;
    let tests = files.iter().filter_map(|file| {
        let (folder, name) = file.rsplit_once('/')?;
        let name = name.strip_suffix(".rs")?;
        let wanted =
            folder.ends_with("/tests") && !without.iter().any(|begin| name.starts_with(begin));
        wanted.then(|| name.to_owned())
    });
    Ok(tests.collect())
}

/// gdb's and frame-pointer walkers' backtraces, in a build with frame pointers.
pub(crate) fn backtraces(rest: &[String]) -> Outcome {
    execute(
        cargo(["test", "-p", "sinew-context", "--test", "backtrace_walks"])
            .args(rest)
            .env(
                "RUSTFLAGS",
                "-C force-frame-pointers=yes --cfg sinew_frame_pointers",
            )
            .env("CARGO_TARGET_DIR", target().join("frames")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executable_is_found_by_its_target() {
        let messages = concat!(
            r#"{"target":{"name":"other"},"executable":"/t/other-1"}"#,
            "\n",
            r#"{"target":{"name":"walks"},"executable":null}"#,
            "\n",
            r#"{"target":{"name":"walks"},"executable":"/t/walks-2"}"#,
        );
        assert_eq!(
            executable(messages, "walks"),
            Some(PathBuf::from("/t/walks-2"))
        );
        assert_eq!(executable(messages, "none"), None);
    }

    #[test]
    fn packages_lie_in_their_folders() {
        assert_eq!(folder("sinew"), Path::new("crates/sinew"));
        assert_eq!(folder("sinew-core"), Path::new("crates/core"));
    }

    #[test]
    fn memcheck_runs_tests_that_exist() {
        let known = integration_tests(&["context", "core", "sinew"], &[]).unwrap();
        for (package, test, _) in MEMCHECK {
            assert!(known.iter().any(|name| name == test), "{package} {test}");
        }
    }
}
