//! Running steps: progress, times, the closing table, the exit status.
//!
//! Everything here runs on the main thread, one program at a time. Lines that are xtask's own begin with
//! `==>`, so they are found in a long log.
//!
//! Not here: limits on time. A hung step is ended by whoever started xtask, and the last `==>` line
//! tells which it was.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use crate::step::{Kind, Outcome};

/// Runs the kinds in order and prints a table at the end.
pub(crate) fn run(kinds: &[&Kind], keep_going: bool, rest: &[String]) -> ExitCode {
    let mut results: Vec<(&str, Outcome, Duration)> = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        say(&format!(
            "[{}/{}] {}: {}",
            index + 1,
            kinds.len(),
            kind.name,
            kind.what
        ));
        let started = now();
        let outcome = (kind.run)(rest);
        let took = started.elapsed();
        say(&format!(
            "{}: {} after {:.1} s",
            kind.name,
            outcome,
            took.as_secs_f64()
        ));
        let failed = matches!(outcome, Outcome::Failed(_));
        results.push((kind.name, outcome, took));
        if failed && !keep_going {
            break;
        }
    }
    let failed = results
        .iter()
        .any(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_)));
    println!();
    for kind in kinds {
        match results.iter().find(|(name, ..)| *name == kind.name) {
            Some((name, outcome, took)) => {
                println!("  {name:<10} {:>7.1} s   {outcome}", took.as_secs_f64());
            }
            None => println!("  {:<10} {:>9}   not run", kind.name, "-"),
        }
    }
    let total: Duration = results.iter().map(|(.., took)| *took).sum();
    let verdict = if failed { "FAILED" } else { "all passed" };
    println!(
        "  {:<10} {:>7.1} s   {verdict}",
        "total",
        total.as_secs_f64()
    );
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Runs a program to its end with what it prints passed through.
pub(crate) fn execute(command: &mut Command) -> Outcome {
    say(&describe(command));
    let status = command.stdin(Stdio::null()).status();
    outcome(command, status)
}

/// Runs a program that has to fail, with this text in what it prints on either stream: a check of a check.
pub(crate) fn expect_failure(command: &mut Command, text: &str) -> Outcome {
    say(&describe(command));
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => {
            let program = command.get_program().to_string_lossy();
            return Outcome::Failed(format!("{program} could not be run: {error}"));
        }
    };
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    if output.status.success() {
        println!("{printed}");
        return Outcome::Failed("it passed, and should have failed".to_owned());
    }
    match printed.lines().find(|line| line.contains(text)) {
        Some(line) => {
            say(&format!("it failed, as it should: {line}"));
            Outcome::Passed
        }
        None => {
            println!("{printed}");
            Outcome::Failed(format!("it failed in another way than by {text:?}"))
        }
    }
}

/// Runs a program as a log file would see it: no terminal on any of its three streams.
pub(crate) fn execute_without_terminal(command: &mut Command) -> Outcome {
    say(&describe(command));
    let (mut reader, writer) = match std::io::pipe() {
        Ok(ends) => ends,
        Err(error) => return Outcome::Failed(format!("no pipe: {error}")),
    };
    let errors = match writer.try_clone() {
        Ok(errors) => errors,
        Err(error) => return Outcome::Failed(format!("no second end of a pipe: {error}")),
    };
    command.stdin(Stdio::null()).stdout(writer).stderr(errors);
    let started = command.spawn();
    // The command keeps its ends of the pipe open; without this, reading would never end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let status = started.and_then(|mut child| {
        std::io::copy(&mut reader, &mut std::io::stdout().lock())?;
        child.wait()
    });
    outcome(command, status)
}

/// Cargo, in the root of the repository: the one that runs this program.
pub(crate) fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    command
}

/// The root of the repository: above the manifest that cargo runs, or the one this was built from.
pub(crate) fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let here = here.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    here.parent().map_or_else(|| here.clone(), PathBuf::from)
}

/// The files of the repository that match one of the patterns: those committed, and new ones that are
/// not ignored.
///
/// # Errors
///
/// What git said, if it could not list them.
pub(crate) fn files(patterns: &[&str]) -> Result<Vec<String>, String> {
    let output = Command::new("git")
        // A clone that belongs to another user is still the one to check.
        .args([
            "-c",
            "safe.directory=*",
            "ls-files",
            "-z",
            "--cached",
            "--others",
        ])
        .args(["--exclude-standard", "--"])
        .args(patterns)
        .current_dir(root())
        .output()
        .map_err(|error| format!("git could not be started: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "git ls-files: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    let text = String::from_utf8(output.stdout).map_err(|error| format!("a path: {error}"))?;
    let mut files: Vec<String> = text
        .split('\0')
        .filter(|path| root().join(path).is_file())
        .map(str::to_owned)
        .collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// Prints one of xtask's own lines, at once.
pub(crate) fn say(line: &str) {
    println!("==> {line}");
    // Nothing depends on it, and a closed output shows at the next line anyway.
    let _ = std::io::stdout().flush();
}

/// What came of a program.
fn outcome(command: &Command, status: std::io::Result<std::process::ExitStatus>) -> Outcome {
    let program = command.get_program().to_string_lossy();
    match status {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(status) => Outcome::Failed(status.to_string()),
        Err(error) => Outcome::Failed(format!("{program} could not be run: {error}")),
    }
}

/// A command as one would type it, long lists of files shortened.
fn describe(command: &Command) -> String {
    const ARGS_MAX: usize = 12;
    let mut words: Vec<String> = command
        .get_envs()
        .filter_map(|(key, value)| Some((key, value?)))
        .map(|(key, value)| format!("{}={:?}", key.to_string_lossy(), value))
        .collect();
    let program = PathBuf::from(command.get_program());
    words.push(
        program
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
    );
    words.extend(
        command
            .get_args()
            .take(ARGS_MAX)
            .map(|arg| arg.to_string_lossy().into_owned()),
    );
    let more = command.get_args().len().saturating_sub(ARGS_MAX);
    if more > 0 {
        words.push(format!("… and {more} more"));
    }
    words.join(" ")
}

/// The clock of the closing table.
fn now() -> std::time::Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "xtask measures real time; nothing simulates it"
    )]
    std::time::Instant::now()
}
