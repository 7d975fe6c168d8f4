//! The `sinew` command: arguments in, exit status out.
//!
//! Exit status: 0 all went well, 1 it ran and did not succeed, 2 it could not start.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use sinew_cli::{load, serve};

#[derive(Debug, Parser)]
#[command(name = "sinew", version, about = "Stackful coroutines at work")]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the files of a folder over HTTP/1.1
    Serve(serve::command::Arguments),
    /// Put load on an HTTP server and report rates and latencies
    Load(load::command::Arguments),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Some(Command::Serve(arguments)) => serve::command::execute(arguments),
        Some(Command::Load(arguments)) => load::command::execute(&arguments),
        None => default_command(),
    }
}

/// What `sinew` without a subcommand does.
fn default_command() -> ExitCode {
    let help = Arguments::command().render_help();
    match write!(io::stdout(), "{help}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_closed) => ExitCode::FAILURE,
    }
}
