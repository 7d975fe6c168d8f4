//! The kinds of checks that run tests under Valgrind and under gdb; the sanitizers are in `sanitizer`.
//!
//! A tool that is not there is said to be missing, and nothing is installed. docs/TESTING.md says what each finds.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::runner::{cargo, execute, expect_failure, root, say};
use crate::step::{Outcome, target};

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
    ("sinew-context", "tools_find", &[]),
    ("sinew-core", "sync_channel", &[]),
    ("sinew-core", "sync_mutex", &["it_does_what_the_model_does"]),
    (
        "sinew-core",
        "sync_event",
        &["no_signal_is_lost_or_doubled_among_threads_that_give_up"],
    ),
    ("sinew", "cleanup_order", &[]),
    ("sinew", "coroutine_basics", &[]),
    ("sinew", "coroutine_anchor", &[]),
    ("sinew", "coroutine_callbacks", &[]),
    ("sinew", "coroutine_lives", &[]),
    ("sinew", "coroutine_model", &[]),
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
        let mut command = memcheck(&binary);
        command.args(rest);
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
        memcheck_with_a_defect()
    } else {
        Outcome::Failed(failed.join("; "))
    }
}

/// A test binary under memcheck.
fn memcheck(binary: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command
        .args(["--quiet", "--error-exitcode=99", "--leak-check=no"])
        // Threads take turns; without this one that spins holds its turn to the end.
        .args(["--fair-sched=try", "--num-callers=30"])
        .arg(binary)
        .arg("--test-threads=1");
    command
}

/// What is seeded in a coroutine has to be reported, with the name of the function.
fn memcheck_with_a_defect() -> Outcome {
    say("a coroutine that uses what was never written: this has to fail");
    let binary = match test_binary("sinew-context", "tools_find") {
        Ok(binary) => binary,
        Err(text) => return Outcome::Failed(text),
    };
    let test = "memcheck_tells_what_was_written_from_what_was_not";
    let mut command = memcheck(&binary);
    command
        .args(["--exact", test])
        .env("SINEW_TOOLS_DEFECT", "1");
    expect_failure(&mut command, "decides_by_what_was_never_written")
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

/// The integration tests in these crates, but for those whose names begin so.
pub(crate) fn integration_tests(crates: &[&str], without: &[&str]) -> Result<Vec<String>, String> {
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
