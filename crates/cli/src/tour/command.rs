//! The arguments of `sinew tour`, and where its output goes.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use super::{STEPS, Size, Stage, Watchdog, run};

/// A step that takes longer hangs.
const STEP_LIMIT: Duration = Duration::from_secs(60);

/// What a person can say to `sinew tour`.
#[derive(Debug, Default, clap::Args)]
pub struct Arguments {
    /// No colours and no progress bars, on a terminal either
    #[arg(long)]
    plain: bool,
    /// Small numbers: for tests of the tour itself
    #[arg(long, hide = true)]
    tiny: bool,
}

/// Gives the tour; returns the exit status: 1 if a step failed.
#[must_use]
pub fn execute(arguments: &Arguments) -> ExitCode {
    let size = if arguments.tiny {
        Size::Tiny
    } else {
        Size::Full
    };
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let mut out = io::stdout();
    let mut stage = Stage::new(&mut out, size);
    stage.colours(!arguments.plain && !no_colour && io::stdout().is_terminal());
    stage.bars(!arguments.plain && io::stderr().is_terminal());
    let watchdog = match Watchdog::start(STEP_LIMIT, end_stuck) {
        Ok(watchdog) => watchdog,
        Err(error) => return complain(&format!("no thread for the watchdog: {error}")),
    };
    run(STEPS, &mut stage, &watchdog).status()
}

/// A step hangs: says so, with what its coroutines wait for, and ends the process.
#[expect(
    clippy::exit,
    reason = "whatever hangs holds the thread that could return from main"
)]
fn end_stuck(step: &str) {
    let mut text = format!(
        "the step `{step}` has not ended after {} s",
        STEP_LIMIT.as_secs()
    );
    let mut listed = 0;
    sinew::inspect::for_each(|info| {
        listed += 1;
        if listed <= 10 {
            let wait = info.wait.map_or("nothing", |wait| wait.what);
            text.push_str(&format!(
                "\n  coroutine {} is {:?}, waits for {wait}, spawned at {}",
                info.id, info.state, info.spawned_at
            ));
        }
    });
    complain(&text);
    std::process::exit(1);
}

fn complain(text: &str) -> ExitCode {
    match writeln!(io::stderr(), "sinew tour: {text}") {
        Ok(()) | Err(_) => ExitCode::FAILURE,
    }
}
