//! The kinds of checks that run the tests under a sanitizer, and those that show that the sanitizer would find something.
//!
//! Each has a directory of its own for what it builds, since its flags change every crate. AddressSanitizer works with the
//! standard library as it comes. The other two need one that is instrumented, built from its source, and are skipped where
//! that is not installed. docs/TESTING.md says what each finds.

use std::path::Path;
use std::process::Command;

use crate::runner::{cargo, execute, expect_failure, root, say};
use crate::step::{Outcome, target};
use crate::tool::integration_tests;

/// The target of the sanitizer builds. It is named, so that build scripts and macros are built without the sanitizer.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// What a sanitizer needs of the compiler is behind a gate that this opens.
const BOOTSTRAP: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");

/// The packages whose tests run under a sanitizer, and their folders.
const PACKAGES: &[&str] = &["sinew-context", "sinew-core", "sinew"];
const CRATES: &[&str] = &["context", "core", "sinew"];

/// How the names of those tests begin that run under AddressSanitizer in `ci`: the switch, the stacks, coroutines and what they
/// own, their ends.
const ADDRESS_CHOSEN: &[&str] = &[
    "arena_",
    "cleanup_",
    "coroutine_",
    "error_",
    "scope_",
    "stress_ends",
    "switch_",
    "tools_",
];

/// What runs in no build with a sanitizer, and why.
const NOWHERE: &[(&str, &str)] = &[
    (
        "death_",
        "the sanitizer handles the faults that they provoke",
    ),
    ("compile_fail", "nothing runs"),
    ("loom_", "one thread runs, and has its own checks"),
    (
        "backtrace_",
        "gdb and frame pointers have a build of their own",
    ),
];

/// What AddressSanitizer leaves out besides.
const NOT_ADDRESS: &[(&str, &str)] = &[
    ("scheduler_ends", "limits memory"),
    ("coroutine_limits", "limits memory"),
    ("inspect_listing", "measures memory"),
    ("event_stress", "takes minutes"),
    ("stack_refused", "limits memory"),
];

/// How the names of those tests begin that run under ThreadSanitizer: what crosses threads, and the switch.
const THREAD_CHOSEN: &[&str] = &[
    "cancel_tokens",
    "coroutine_",
    "event_signals",
    "inspect_fresh",
    "join_",
    "net_threads",
    "scheduler_posts",
    "stress_ends",
    "stress_wakes",
    "switch_",
    "sync_",
    "tools_",
];

/// What ThreadSanitizer and MemorySanitizer leave out besides.
const NOT_SHADOWED: &[(&str, &str)] = &[
    (
        "coroutine_limits",
        "limits memory, of which the sanitizer's shadow takes terabytes",
    ),
    (
        "switch_marks",
        "reads its own disassembly, which takes minutes with instruments and shows nothing of them",
    ),
];

/// How the names of those tests begin that run under MemorySanitizer. Those that call the C libraries by pointers of their own are
/// not among them: it takes what code without instruments writes for never written.
const MEMORY_CHOSEN: &[&str] = &[
    "arena_",
    "cleanup_",
    "coroutine_",
    "error_",
    "scope_",
    "switch_",
    "tools_",
];

/// A build of the tests with a sanitizer, and how it is run.
struct Build {
    /// The compiler's name of the sanitizer.
    sanitizer: &'static str,
    /// The flag of ours that has the switches noted; none if they are not to be.
    notes: Option<&'static str>,
    /// The folder of what is built.
    folder: &'static str,
    /// The toolchain that has the standard library's source, if that is to be built.
    sources: Option<Toolchain>,
}

impl Build {
    /// `cargo test` in this build.
    fn command(&self) -> Command {
        let mut flags = format!("-Zsanitizer={}", self.sanitizer);
        if let Some(notes) = self.notes {
            flags.push_str(" --cfg ");
            flags.push_str(notes);
        }
        if self.sanitizer == "memory" {
            // Its system calls are by assembly otherwise, and what the kernel writes counts as never written.
            flags.push_str(" --cfg rustix_use_libc");
        }
        let mut command = match self.sources {
            Some(Toolchain::Nightly) => {
                let mut command = Command::new("rustup");
                command.args(["run", "nightly", "cargo", "test", "-Zbuild-std"]);
                command.current_dir(root());
                command
            }
            Some(Toolchain::Own) => cargo(["test", "-Zbuild-std"]),
            None => cargo(["test"]),
        };
        command
            .args(["--target", TRIPLE, "--no-fail-fast"])
            .env("RUSTFLAGS", flags)
            .env("CARGO_TARGET_DIR", target().join(self.folder))
            // The panics of tests are many, and the tables of an instrumented build are long.
            .env("RUST_BACKTRACE", "0")
            .env("PROPTEST_CASES", "32")
            // More memory than there is comes back as an error, as from every allocator, and some tests ask for that.
            .env("ASAN_OPTIONS", "allocator_may_return_null=1")
            .env("TSAN_OPTIONS", "allocator_may_return_null=1")
            .env("MSAN_OPTIONS", "allocator_may_return_null=1")
            .env(BOOTSTRAP.0, BOOTSTRAP.1);
        command
    }

    /// Runs the unit tests of these packages, then these integration tests.
    fn run(
        &self,
        units: &[&str],
        tests: &[String],
        rest: &[String],
        leave_out: &[&str],
    ) -> Outcome {
        let mut command = self.command();
        for package in units {
            command.args(["-p", package]);
        }
        command.arg("--lib");
        if let outcome @ (Outcome::Failed(_) | Outcome::Skipped(_)) =
            self.finish(command, rest, leave_out)
        {
            return outcome;
        }
        let mut command = self.command();
        for package in PACKAGES {
            command.args(["-p", package]);
        }
        for test in tests {
            command.args(["--test", test]);
        }
        self.finish(command, rest, leave_out)
    }

    fn finish(&self, mut command: Command, rest: &[String], leave_out: &[&str]) -> Outcome {
        if !rest.iter().any(|arg| arg == "--") {
            command.arg("--");
        }
        command.args(rest);
        for test in leave_out {
            command.args(["--skip", test]);
        }
        let suppressions = root().join("xtask/lsan.supp");
        command.env(
            "LSAN_OPTIONS",
            format!("suppressions={}", suppressions.display()),
        );
        execute(&mut command)
    }
}

/// Who has the standard library's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Toolchain {
    /// The one that this project is built with.
    Own,
    /// The nightly one.
    Nightly,
}

/// A toolchain with the standard library's source.
fn sources() -> Result<Toolchain, Outcome> {
    let has_source = |command: &mut Command| {
        let output = command.args(["--print", "sysroot"]).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let path = Path::new(text.trim()).join("lib/rustlib/src/rust/library/std/Cargo.toml");
        (output.status.success() && path.is_file()).then_some(())
    };
    if has_source(Command::new("rustc").current_dir(root())).is_some() {
        return Ok(Toolchain::Own);
    }
    if has_source(Command::new("rustup").args(["run", "nightly", "rustc"])).is_some() {
        return Ok(Toolchain::Nightly);
    }
    Err(Outcome::Skipped(
        "it needs the standard library's source: rustup component add rust-src --toolchain nightly"
            .to_owned(),
    ))
}

/// Says which tests a sanitizer does not run, and why.
fn say_left_out(sanitizer: &str, left_out: &[(&str, &str)]) {
    say(&format!(
        "SKIPPED under {sanitizer}: doctests: they have no flags"
    ));
    for (tests, why) in left_out {
        say(&format!("SKIPPED under {sanitizer}: {tests}*: {why}"));
    }
}

/// The tests that a sanitizer is to run: those whose names begin in one of these ways (any, if there are none), but for those that
/// are left out.
fn chosen(begin: &[&str], left_out: &[(&str, &str)]) -> Result<Vec<String>, Outcome> {
    let without: Vec<&str> = left_out.iter().map(|(name, _)| *name).collect();
    let mut tests = integration_tests(CRATES, &without).map_err(Outcome::Failed)?;
    tests.retain(|test| begin.is_empty() || begin.iter().any(|begin| test.starts_with(begin)));
    for begin in begin {
        if !tests.iter().any(|test| test.starts_with(begin)) {
            return Err(Outcome::Failed(format!("there are no tests {begin}*")));
        }
    }
    Ok(tests)
}

/// The switch, the stacks and coroutines under AddressSanitizer, with leak detection; and one of the tests without the
/// notes, which has to fail.
pub(crate) fn address(rest: &[String]) -> Outcome {
    run_address(ADDRESS_CHOSEN, rest)
}

/// As [`address`], with all of the tests.
pub(crate) fn address_all(rest: &[String]) -> Outcome {
    run_address(&[], rest)
}

fn run_address(begin: &[&str], rest: &[String]) -> Outcome {
    let left_out = [NOWHERE, NOT_ADDRESS].concat();
    say_left_out("AddressSanitizer", &left_out);
    let tests = match chosen(begin, &left_out) {
        Ok(tests) => tests,
        Err(outcome) => return outcome,
    };
    let build = Build {
        sanitizer: "address",
        notes: Some("sinew_asan"),
        folder: "asan",
        sources: None,
    };
    let slow: &[&str] = if begin.is_empty() {
        &["gdb_"]
    } else {
        &["gdb_", "a_hundred_thousand"]
    };
    match build.run(PACKAGES, &tests, rest, slow) {
        Outcome::Passed => address_without_notes(),
        other => other,
    }
}

/// What happens if the sanitizer is not told of the switches: it reports what is not there. If it did not, the notes would
/// be tested by nothing.
fn address_without_notes() -> Outcome {
    say("the same without the notes at the switches: this has to fail");
    let build = Build {
        sanitizer: "address",
        notes: None,
        folder: "asan-without-notes",
        sources: None,
    };
    let mut command = build.command();
    command.args(["-p", "sinew-context", "--test", "tools_find"]);
    expect_failure(&mut command, "ERROR: AddressSanitizer: ")
}

/// What crosses threads, and the switch, under ThreadSanitizer. A race that is seeded in one of the tests has to be found.
pub(crate) fn thread(rest: &[String]) -> Outcome {
    let toolchain = match sources() {
        Ok(toolchain) => toolchain,
        Err(outcome) => return outcome,
    };
    let left_out = [NOWHERE, NOT_SHADOWED].concat();
    say_left_out("ThreadSanitizer", &left_out);
    let tests = match chosen(THREAD_CHOSEN, &left_out) {
        Ok(tests) => tests,
        Err(outcome) => return outcome,
    };
    let build = Build {
        sanitizer: "thread",
        notes: Some("sinew_tsan"),
        folder: "tsan",
        sources: Some(toolchain),
    };
    // The names of a backtrace are looked up in the tables by code with instruments, for a minute and more; and a million
    // tokens of one thread show nothing here.
    build.run(
        PACKAGES,
        &tests,
        rest,
        &[
            "a_hundred_thousand",
            "a_backtrace_",
            "a_trace_",
            "gdb_",
            "trees_that_are_deep_or_wide",
        ],
    )
}

/// The switch and coroutines under MemorySanitizer. A use of what was never written, seeded in one of the tests, has to be
/// found.
pub(crate) fn memory(rest: &[String]) -> Outcome {
    let toolchain = match sources() {
        Ok(toolchain) => toolchain,
        Err(outcome) => return outcome,
    };
    let left_out = [
        NOWHERE,
        NOT_SHADOWED,
        &[
            (
                "coroutine_callbacks",
                "what C code writes that has no instruments counts as never written",
            ),
            ("coroutine_foreign", "C code, too"),
        ],
    ]
    .concat();
    say_left_out("MemorySanitizer", &left_out);
    let tests = match chosen(MEMORY_CHOSEN, &left_out) {
        Ok(tests) => tests,
        Err(outcome) => return outcome,
    };
    let build = Build {
        sanitizer: "memory",
        notes: Some("sinew_msan"),
        folder: "msan",
        sources: Some(toolchain),
    };
    // It does not know that epoll writes events, which some unit tests of the runtime wait for.
    let units = &["sinew-context", "sinew-core"];
    // Backtraces as under ThreadSanitizer.
    build.run(
        units,
        &tests,
        rest,
        &["a_hundred_thousand", "a_backtrace_", "a_trace_", "gdb_"],
    )
}

/// What libFuzzer makes up bytes for: lives of coroutines, and requests of HTTP.
const FUZZED: [&str; 2] = ["coroutine_lives", "http_framing"];

/// Has libFuzzer try each target, or the one that is named, in a build with AddressSanitizer, for a minute or as long as its
/// `-max_total_time=` says. What it finds it leaves in the folder that it is told of.
pub(crate) fn fuzz(rest: &[String]) -> Outcome {
    if !Command::new("c++")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        return Outcome::Skipped(
            "libFuzzer is built by a C++ compiler, and there is none".to_owned(),
        );
    }
    let (named, rest): (Vec<&String>, Vec<&String>) =
        rest.iter().partition(|arg| FUZZED.contains(&arg.as_str()));
    for target in FUZZED {
        if !named.is_empty() && !named.iter().any(|name| *name == target) {
            continue;
        }
        match fuzz_one(target, &rest) {
            Outcome::Passed => {}
            other => return other,
        }
    }
    Outcome::Passed
}

fn fuzz_one(name: &str, rest: &[&String]) -> Outcome {
    let folder = target().join("fuzz");
    let flags = [
        "--cfg fuzzing --cfg sinew_asan -Zsanitizer=address -Ccodegen-units=1",
        "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4",
        "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
        "-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares",
    ];
    let mut command = cargo(["build", "--release", "--target", TRIPLE, "--bin", name]);
    command
        .current_dir(root().join("fuzz"))
        .env("RUSTFLAGS", flags.join(" "))
        .env("CARGO_TARGET_DIR", &folder)
        .env(BOOTSTRAP.0, BOOTSTRAP.1);
    match execute(&mut command) {
        Outcome::Passed => {}
        other => return other,
    }
    let corpus = folder.join("corpus").join(name);
    if let Err(error) = std::fs::create_dir_all(&corpus) {
        return Outcome::Failed(format!("no folder for the corpus: {error}"));
    }
    let mut command = Command::new(folder.join(TRIPLE).join("release").join(name));
    command.args(["-max_len=600", "-len_control=20"]);
    if !rest.iter().any(|arg| arg.starts_with("-max_total_time=")) {
        command.arg("-max_total_time=60");
    }
    command
        .arg(format!("-artifact_prefix={}/", folder.display()))
        .args(rest)
        .arg(corpus);
    execute(&mut command)
}

/// The notes of every sanitizer compile, and say nothing to the linter: also where nothing can run them.
pub(crate) fn notes(_: &[String]) -> Outcome {
    for notes in ["sinew_asan", "sinew_tsan", "sinew_msan"] {
        let mut command = cargo(["clippy", "-p", "sinew-context", "--all-targets"]);
        command
            .args(["--", "-D", "warnings"])
            .env("RUSTFLAGS", format!("--cfg {notes}"))
            .env("CARGO_TARGET_DIR", target().join("notes"));
        match execute(&mut command) {
            Outcome::Passed => {}
            other => return other,
        }
    }
    Outcome::Passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_tests_exist_and_those_left_out_are_not_among_them() {
        for begin in [ADDRESS_CHOSEN, THREAD_CHOSEN, MEMORY_CHOSEN, &[]] {
            let tests = chosen(begin, NOWHERE).unwrap();
            assert!(tests.len() > 5, "{tests:?}");
            for (name, _) in NOWHERE {
                assert!(tests.iter().all(|test| !test.starts_with(name)), "{name}");
            }
        }
        assert!(chosen(&["no_such_thing"], NOWHERE).is_err());
    }
}
