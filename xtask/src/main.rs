//! One door for checks: `cargo xtask ci` runs what a change must pass, `cargo xtask KIND` one kind.
//!
//! Owns the list of kinds and the command line. What a kind runs is in `step`, the project's own
//! rules are in `tidy`, and how programs are started and timed is in `runner`.
//!
//! - I1: every kind in [`step::KINDS`] can be run by its name, and `ci` runs those marked for it, in
//!   the order of the list.
//! - I2: the exit status is zero only if every step that was asked for passed or was skipped, and a
//!   step that was skipped says why.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing what it does is what this program is for"
)]

mod runner;
mod sanitizer;
mod step;
mod tidy;
mod tool;

use std::process::ExitCode;

use step::{KINDS, Kind};

/// What was asked for on the command line.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// Print the usage.
    Help,
    /// Run these kinds; go on after a failure if `keep_going`.
    Run {
        /// The names, in order.
        kinds: Vec<&'static str>,
        /// Whether a failure does not stop the rest.
        keep_going: bool,
        /// Arguments handed through to the programs run.
        rest: Vec<String>,
    },
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(Request::Help) => {
            print!("{}", usage());
            ExitCode::SUCCESS
        }
        Ok(Request::Run {
            kinds,
            keep_going,
            rest,
        }) => {
            let kinds = KINDS
                .iter()
                .filter(|kind| kinds.contains(&kind.name))
                .collect::<Vec<_>>();
            runner::run(&kinds, keep_going, &rest)
        }
        Err(text) => {
            eprintln!("error: {text}\n\n{}", usage());
            ExitCode::from(2)
        }
    }
}

/// Reads the command line.
fn parse(args: impl Iterator<Item = String>) -> Result<Request, String> {
    let mut kinds: Vec<&'static str> = Vec::new();
    let mut keep_going = false;
    let mut args = args;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "help" | "--help" | "-h" => return Ok(Request::Help),
            "--keep-going" => keep_going = true,
            "--" => return request(kinds, keep_going, args.collect()),
            "ci" => kinds.extend(KINDS.iter().filter(|kind| kind.in_ci).map(|kind| kind.name)),
            name => match KINDS.iter().find(|kind| kind.name == name) {
                Some(kind) => kinds.push(kind.name),
                None => return Err(format!("there is no kind of check named {name:?}")),
            },
        }
    }
    request(kinds, keep_going, Vec::new())
}

/// Checks that what was asked for makes sense together.
fn request(
    kinds: Vec<&'static str>,
    keep_going: bool,
    rest: Vec<String>,
) -> Result<Request, String> {
    if kinds.is_empty() {
        return Ok(Request::Help);
    }
    if kinds.len() > 1 && !rest.is_empty() {
        return Err("arguments after `--` go to a single kind".to_owned());
    }
    Ok(Request::Run {
        kinds,
        keep_going,
        rest,
    })
}

/// The text of `--help`.
fn usage() -> String {
    let mut text = String::from(
        "usage: cargo xtask [--keep-going] KIND… [-- ARGUMENTS]\n\n  \
         ci         all kinds marked *, in this order; stops at the first failure\n",
    );
    for Kind {
        name, what, in_ci, ..
    } in KINDS
    {
        let mark = if *in_ci { '*' } else { ' ' };
        text.push_str(&format!("{mark} {name:<10} {what}\n"));
    }
    text.push_str("\nSINEW_STRESS=N makes stress tests N times as long (docs/TESTING.md).\n");
    text
}

#[cfg(test)]
mod tests;
