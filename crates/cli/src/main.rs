//! The `sinew` command: arguments in, exit status out.
//!
//! Exit status: 0 all went well, 1 it ran and did not succeed, 2 it could not start.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sinew_cli::{bench, load, serve, tour};

#[derive(Debug, Parser)]
#[command(name = "sinew", version, about = "Stackful coroutines at work")]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what the runtime can do, step by step; this is what `sinew` alone does
    Tour(tour::command::Arguments),
    /// Serve the files of a folder over HTTP/1.1
    Serve(serve::command::Arguments),
    /// Put load on an HTTP server and report rates and latencies
    Load(load::command::Arguments),
    /// Measure the runtime beside its peers
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Some(Command::Serve(arguments)) => serve::command::execute(arguments),
        Some(Command::Load(arguments)) => load::command::execute(&arguments),
        Some(Command::Bench(arguments)) => bench::execute(&arguments),
        Some(Command::Tour(arguments)) => tour::command::execute(&arguments),
        None => tour::command::execute(&tour::command::Arguments::default()),
    }
}
