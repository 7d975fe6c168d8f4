//! The kinds of checks: what each one runs.
//!
//! To add a kind, add a function and a line in [`KINDS`]; the command line, the order within `ci` and
//! the usage follow from there. docs/TESTING.md says what each is for.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::process::Command;

use crate::runner::{cargo, execute, execute_without_terminal, files, root};
use crate::{sanitizer, tidy, tool};

/// How much longer than usual stress tests run under `ci`, unless `SINEW_STRESS` is set already.
const STRESS_CI: &str = "2";

/// How many pre-emptions loom explores, unless `LOOM_MAX_PREEMPTIONS` is set already. Without a bound
/// a model with a lock in it does not end.
const LOOM_PREEMPTIONS: &str = "3";

/// The seeds of `shuffled`.
const SEEDS: [&str; 3] = ["11", "44", "77"];

/// The integration tests of `sinew` that `shuffled` runs: those that most depend on who of several coroutines comes first.
const SHUFFLED: [&str; 20] = [
    "cancel_table",
    "cancel_tokens",
    "channel_suites",
    "deadlock_proof",
    "event_numbers",
    "event_signals",
    "future_promise",
    "inspect_dump",
    "io_raw",
    "join_cycles",
    "scheduler_basics",
    "scheduler_exit",
    "scheduler_orders",
    "scheduler_posts",
    "scheduler_steps",
    "scope_borrow",
    "select_basics",
    "sync_classics",
    "sync_primitives",
    "task_group",
];

/// A kind of check.
#[derive(Debug)]
pub(crate) struct Kind {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    /// One line for the usage and the log.
    pub(crate) what: &'static str,
    /// Whether `ci` runs it.
    pub(crate) in_ci: bool,
    /// Runs it, with the arguments that came after `--`.
    pub(crate) run: fn(&[String]) -> Outcome,
}

/// What came of a step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It ran and found nothing.
    Passed,
    /// It could not run here, for this reason.
    Skipped(String),
    /// It found something, or broke.
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Skipped(why) => write!(f, "SKIPPED: {why}"),
            Self::Failed(why) => write!(f, "FAILED: {why}"),
        }
    }
}

/// Every kind, the cheap ones first.
pub(crate) const KINDS: &[Kind] = &[
    Kind {
        name: "fmt",
        what: "rustfmt over every file of the repository",
        in_ci: true,
        run: fmt,
    },
    Kind {
        name: "tidy",
        what: "the project's own rules",
        in_ci: true,
        run: tidy,
    },
    Kind {
        name: "clippy",
        what: "lints, warnings are errors",
        in_ci: true,
        run: clippy,
    },
    Kind {
        name: "doc",
        what: "rustdoc, warnings are errors",
        in_ci: true,
        run: doc,
    },
    Kind {
        name: "test",
        what: "tests and doctests",
        in_ci: true,
        run: test,
    },
    Kind {
        name: "one-cpu",
        what: "the tests again, on one CPU",
        in_ci: true,
        run: one_cpu,
    },
    Kind {
        name: "shuffled",
        what: "chosen tests of sinew with the scheduler's order changed",
        in_ci: true,
        run: shuffled,
    },
    Kind {
        name: "shuffled-all",
        what: "all of sinew's tests so, in an order that no run had before",
        in_ci: false,
        run: shuffled_all,
    },
    Kind {
        name: "loom",
        what: "every interleaving of the protocols",
        in_ci: true,
        run: loom,
    },
    Kind {
        name: "release",
        what: "the tests of coroutines, optimised and without debug checks",
        in_ci: true,
        run: release,
    },
    Kind {
        name: "abort",
        what: "coroutines in a program built with panic=abort",
        in_ci: true,
        run: abort,
    },
    Kind {
        name: "backtraces",
        what: "gdb and frame-pointer walks, with frame pointers",
        in_ci: true,
        run: tool::backtraces,
    },
    Kind {
        name: "valgrind",
        what: "chosen tests under memcheck",
        in_ci: true,
        run: tool::valgrind,
    },
    Kind {
        name: "notes",
        what: "the notes for each sanitizer compile",
        in_ci: true,
        run: sanitizer::notes,
    },
    Kind {
        name: "asan",
        what: "coroutines under AddressSanitizer",
        in_ci: true,
        run: sanitizer::address,
    },
    Kind {
        name: "asan-all",
        what: "all tests under AddressSanitizer",
        in_ci: false,
        run: sanitizer::address_all,
    },
    Kind {
        name: "tsan",
        what: "what crosses threads under ThreadSanitizer",
        in_ci: false,
        run: sanitizer::thread,
    },
    Kind {
        name: "msan",
        what: "coroutines under MemorySanitizer",
        in_ci: false,
        run: sanitizer::memory,
    },
    Kind {
        name: "fuzz",
        what: "lives of coroutines and requests of HTTP from libFuzzer's bytes",
        in_ci: false,
        run: sanitizer::fuzz,
    },
    Kind {
        name: "tour",
        what: "the default command, not on a terminal",
        in_ci: true,
        run: tour,
    },
    Kind {
        name: "deny",
        what: "licences, sources, bans (cargo-deny)",
        in_ci: true,
        run: deny,
    },
    Kind {
        name: "bench",
        what: "the figures of docs/BENCHMARKS.md",
        in_ci: false,
        run: bench,
    },
];

fn fmt(_: &[String]) -> Outcome {
    let files = match files(&["*.rs"]) {
        Ok(files) => files,
        Err(text) => return Outcome::Failed(text),
    };
    let mut command = Command::new("rustfmt");
    command
        .args(["--check", "--edition", "2024"])
        .args(files)
        .current_dir(root());
    execute(&mut command)
}

fn tidy(_: &[String]) -> Outcome {
    match tidy::run() {
        Ok(0) => Outcome::Passed,
        Ok(count) => Outcome::Failed(format!("{count} breaches of the rules, listed above")),
        Err(text) => Outcome::Failed(text),
    }
}

fn clippy(_: &[String]) -> Outcome {
    let refuse = ["--", "-D", "warnings"];
    let all = execute(cargo(["clippy", "--workspace", "--all-targets"]).args(refuse));
    if all != Outcome::Passed {
        return all;
    }
    // There the tests turn on every feature of the runtime; who depends on it gets it without.
    execute(cargo(["clippy", "--package", "sinew", "--lib"]).args(refuse))
}

fn doc(_: &[String]) -> Outcome {
    // The features of the runtime that only its users turn on.
    let features = "sinew/futures-io,sinew/hyper,sinew/tls,sinew/tokio";
    let mut command = cargo(["doc", "--workspace", "--no-deps", "--features", features]);
    execute(command.env("RUSTDOCFLAGS", "-D warnings"))
}

fn test(rest: &[String]) -> Outcome {
    execute(or_set(
        cargo(["test", "--workspace"]).args(rest),
        "SINEW_STRESS",
        STRESS_CI,
    ))
}

fn one_cpu(rest: &[String]) -> Outcome {
    let Some(cpu) = first_cpu() else {
        return Outcome::Failed("no CPU is listed in /proc/self/status".to_owned());
    };
    // Doctests are left out: they would be compiled again, and on one CPU.
    let inner = cargo(["test", "--workspace", "--tests"]);
    let mut command = Command::new("taskset");
    command
        .args(["-c", &cpu])
        .arg(inner.get_program())
        .args(inner.get_args())
        .args(rest);
    execute(command.current_dir(root()))
}

/// Runs those of the runtime's tests in which several coroutines meet with the order of the ready queues changed, by the same seeds each
/// time: what `ci` says does not depend on a draw.
fn shuffled(rest: &[String]) -> Outcome {
    let tests = match tool::integration_tests(&["sinew"], &[]) {
        Ok(tests) => tests,
        Err(text) => return Outcome::Failed(text),
    };
    let chosen = |test: &&String| SHUFFLED.contains(&test.as_str());
    let mut names = Vec::new();
    for test in tests.iter().filter(chosen) {
        names.extend(["--test", test]);
    }
    if names.len() != 2 * SHUFFLED.len() {
        return Outcome::Failed("some of the chosen tests are not there".to_owned());
    }
    for seed in SEEDS {
        match shuffled_by(seed, &names, rest) {
            Outcome::Passed => {}
            other => return other,
        }
    }
    Outcome::Passed
}

/// Runs all of the runtime's tests with the order of the ready queues changed by a seed: that of `SINEW_SHUFFLE`, or a new one. It is
/// printed, so that the same order can be had again.
fn shuffled_all(rest: &[String]) -> Outcome {
    let seed = std::env::var("SINEW_SHUFFLE").unwrap_or_else(|_| new_seed().to_string());
    // Those that must not compile do not run, so no order changes them.
    shuffled_by(&seed, &["--tests"], rest)
}

fn shuffled_by(seed: &str, tests: &[&str], rest: &[String]) -> Outcome {
    println!("SINEW_SHUFFLE={seed}");
    let mut command = cargo(["test", "-p", "sinew"]);
    // A directory of its own: the flag changes every crate, and would evict the usual build. Of tables for debuggers only the lines, for the
    // time; and nothing is said of imports for tests that are left out.
    command
        .args(tests)
        .env("SINEW_SHUFFLE", seed)
        .env("RUSTFLAGS", "--cfg sinew_shuffle -A unused")
        .env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")
        .env("CARGO_TARGET_DIR", target().join("shuffled"));
    execute(command.args(rest))
}

/// A seed that no other run had: what the standard library keys its hash maps with.
fn new_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn loom(rest: &[String]) -> Outcome {
    match files(&["crates/core/tests/loom_*.rs"]) {
        Ok(models) if models.is_empty() => {
            return Outcome::Skipped("there is no crates/core/tests/loom_*.rs".to_owned());
        }
        Ok(_) => {}
        Err(text) => return Outcome::Failed(text),
    }
    let mut command = cargo(["test", "-p", "sinew-core", "--release", "--test", "loom_*"]);
    // A directory of its own: the flag changes every crate, and would evict the usual build.
    command
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", target().join("loom"));
    execute(or_set(
        command.args(rest),
        "LOOM_MAX_PREEMPTIONS",
        LOOM_PREEMPTIONS,
    ))
}

fn release(rest: &[String]) -> Outcome {
    // A debug build looks at the control words at every switch, so it takes other ways through a resume.
    execute(
        cargo([
            "test",
            "--release",
            "-p",
            "sinew",
            "--test",
            "coroutine_*",
            "--test",
            "death_coroutine",
        ])
        .args(rest),
    )
}

fn abort(rest: &[String]) -> Outcome {
    // Tests are always built to unwind, so this is an example, which checks itself.
    execute(
        cargo([
            "run",
            "--profile",
            "abort",
            "-p",
            "sinew",
            "--example",
            "without_unwinding",
            "--",
        ])
        .args(rest),
    )
}

fn tour(rest: &[String]) -> Outcome {
    let mut command = cargo(["run", "--release"]);
    if !rest.is_empty() {
        command.arg("--").args(rest);
    }
    execute_without_terminal(&mut command)
}

fn deny(_: &[String]) -> Outcome {
    let found = cargo(["deny", "--version"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        return Outcome::Skipped("cargo-deny is not installed".to_owned());
    }
    execute(&mut cargo(["deny", "check", "bans", "licenses", "sources"]))
}

fn bench(rest: &[String]) -> Outcome {
    execute(
        cargo([
            "run",
            "--release",
            "-p",
            "sinew-cli",
            "--features",
            "peers",
            "--",
            "bench",
        ])
        .args(rest),
    )
}

/// Sets a variable for a program, unless the caller has set it.
fn or_set<'a>(command: &'a mut Command, key: &str, value: &str) -> &'a mut Command {
    if std::env::var_os(key).is_none() {
        command.env(key, value);
    }
    command
}

/// The directory of build results.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(given) => root().join(given),
        None => root().join("target"),
    }
}

/// The first CPU that this process may use, which is not always number 0.
fn first_cpu() -> Option<String> {
    first_cpu_of(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// The first CPU listed in the text of a `/proc/…/status`.
fn first_cpu_of(status: &str) -> Option<String> {
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let first = list.trim().split([',', '-']).next()?;
    first.parse::<u32>().ok().map(|cpu| cpu.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_allowed_cpu_is_found() {
        assert_eq!(
            first_cpu_of("A:\t1\nCpus_allowed_list:\t4-7,9\n"),
            Some("4".to_owned())
        );
        assert_eq!(
            first_cpu_of("Cpus_allowed_list:\t3\n"),
            Some("3".to_owned())
        );
        assert_eq!(first_cpu_of("Cpus_allowed:\tff\n"), None);
    }

    #[test]
    fn kinds_have_distinct_names() {
        for (index, kind) in KINDS.iter().enumerate() {
            assert!(KINDS[..index].iter().all(|other| other.name != kind.name));
        }
    }
}
