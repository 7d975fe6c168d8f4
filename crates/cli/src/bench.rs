//! The arguments of `sinew bench`, and how far it has come.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use sinew_bench::child::{self, Launcher};
use sinew_bench::{Config, Report, Step};

/// What a person can say to `sinew bench`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Show that everything works, in tiny sizes; measures nothing
    #[arg(long)]
    quick: bool,
    /// Only workloads whose names begin like one of these
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Samples for each figure
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Write all figures and samples to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the page that is published, docs/BENCHMARKS.md
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "only"])]
    write: Option<PathBuf>,
}

impl Arguments {
    /// Why the figures of this build are not to be published.
    fn refusal(&self) -> Option<&'static str> {
        self.write.as_ref()?;
        if cfg!(debug_assertions) {
            Some("figures of a build that is not optimised are not published: use --release")
        } else if cfg!(not(feature = "peers")) {
            Some("the page wants all peers: use --features peers")
        } else {
            None
        }
    }

    /// The command that does the same again.
    fn command(&self) -> String {
        let mut command = "cargo run --release --features peers -- bench".to_owned();
        if self.runs != 7 {
            command.push_str(&format!(" --runs {}", self.runs));
        }
        if let Some(path) = &self.write {
            command.push_str(&format!(" --write {}", path.display()));
        }
        command
    }
}

/// Measures and shows the figures; returns the exit status: 1 if a side did not do its work, 2 if it could not
/// start. A missed budget is a figure like others.
#[must_use]
pub fn execute(arguments: &Arguments) -> ExitCode {
    if let Some(code) = child::take_over() {
        return code;
    }
    if let Some(refusal) = arguments.refusal() {
        return complain(refusal);
    }
    match measure(arguments) {
        Err(error) => complain(&error),
        Ok(report) => match publish(&report, arguments) {
            Err(error) => complain(&error),
            Ok(()) if report.is_complete() => ExitCode::SUCCESS,
            Ok(()) => ExitCode::FAILURE,
        },
    }
}

fn complain(error: &str) -> ExitCode {
    match writeln!(io::stderr(), "sinew bench: {error}") {
        Ok(()) | Err(_) => ExitCode::from(2),
    }
}

fn measure(arguments: &Arguments) -> Result<Report, String> {
    let config = Config {
        quick: arguments.quick,
        only: arguments.only.clone(),
        runs: arguments.runs,
    };
    let launcher = Launcher::new(["bench"]).map_err(|error| error.to_string())?;
    let bar = bar();
    let mut show = |step: Step| {
        bar.set_length(step.of);
        bar.set_position(step.taken);
        bar.set_message(format!("{}: {}", step.workload, step.side));
    };
    let report = sinew_bench::run(&config, &launcher, &mut show);
    bar.finish_and_clear();
    report
}

/// Shown only where someone looks.
fn bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    match ProgressStyle::with_template("[{elapsed}] {bar:30} {percent}% {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn publish(report: &Report, arguments: &Arguments) -> Result<(), String> {
    let named = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    write!(io::stdout(), "{report}").map_err(|error| error.to_string())?;
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
        fs::write(path, text + "\n").map_err(|error| named(path, error))?;
    }
    if let Some(path) = &arguments.write {
        let page = report.markdown(&arguments.command());
        fs::write(path, page).map_err(|error| named(path, error))?;
    }
    Ok(())
}
