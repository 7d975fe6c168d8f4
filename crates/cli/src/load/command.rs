//! The arguments of `sinew load`, and how its outcome is shown.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::{Config, Progress, Report, Target};
use crate::{duration, rt};

/// A run that is shorter shows no progress bar.
const BAR_AFTER: Duration = Duration::from_secs(1);

/// How long a run takes if nothing else is said.
const DURATION: Duration = Duration::from_secs(10);

/// What a person can say to `sinew load`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The URL to ask for, such as http://127.0.0.1:8080/
    url: Target,
    /// Connections kept busy at a time
    #[arg(short, long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// When to stop [default: 10s, or when --requests are done]
    #[arg(short, long, value_parser = duration::parse)]
    duration: Option<Duration>,
    /// After how many requests to stop
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// How long one request may take, the connecting included
    #[arg(long, default_value = "10s", value_parser = duration::parse)]
    timeout: Duration,
    /// Requests under way at a time on each connection
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pipeline: u32,
    /// The length in bytes that every body must have
    #[arg(long)]
    body_bytes: Option<u64>,
    /// Print the outcome as one JSON object
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn config(&self) -> Config {
        Config {
            target: self.url.clone(),
            connections: self.connections as usize,
            duration: self
                .duration
                .or(self.requests.is_none().then_some(DURATION)),
            requests: self.requests,
            timeout: self.timeout,
            pipeline: self.pipeline as usize,
            body_bytes: self.body_bytes,
        }
    }
}

/// Runs the load and prints the outcome; returns the exit status: 1 if no request succeeded, 2 if
/// the run could not start.
#[must_use]
pub fn execute(arguments: &Arguments) -> ExitCode {
    let config = arguments.config();
    let mut bar = Bar::new(&config);
    let outcome = rt::run(|| super::run(config, |progress| bar.show(progress)));
    bar.clear();
    match outcome {
        Ok(report) => match print(&report, arguments.json) {
            Ok(()) if report.succeeded > 0 => ExitCode::SUCCESS,
            Ok(()) | Err(_) => ExitCode::FAILURE,
        },
        Err(error) => match writeln!(io::stderr(), "sinew load: {error}") {
            Ok(()) | Err(_) => ExitCode::from(2),
        },
    }
}

fn print(report: &Report, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, report)?;
        writeln!(out)?;
    } else {
        writeln!(out, "{report}")?;
    }
    out.flush()
}

/// A progress bar that appears only where someone looks at it and only if the run lasts.
struct Bar {
    bar: Option<ProgressBar>,
    wanted: bool,
    duration: Option<Duration>,
    requests: Option<u64>,
}

impl Bar {
    fn new(config: &Config) -> Self {
        let short = config
            .duration
            .is_some_and(|duration| duration <= BAR_AFTER);
        Self {
            bar: None,
            wanted: !short && io::stderr().is_terminal(),
            duration: config.duration,
            requests: config.requests,
        }
    }

    fn show(&mut self, progress: Progress) {
        let long = self.requests.is_none() || progress.elapsed > BAR_AFTER;
        if !self.wanted || !long {
            return;
        }
        let done = progress.succeeded + progress.failed;
        // Whichever limit is nearer to being reached.
        let by_time = self
            .duration
            .map(|all| progress.elapsed.as_secs_f64() / all.as_secs_f64());
        let by_count = self.requests.map(|all| done as f64 / all as f64);
        let share = by_time.unwrap_or(0.0).max(by_count.unwrap_or(0.0)).min(1.0);
        let bar = self.bar.get_or_insert_with(new_bar);
        bar.set_position((share * 1000.0) as u64);
        let rate = progress.succeeded as f64 / progress.elapsed.as_secs_f64().max(1e-9);
        bar.set_message(format!(
            "{done} requests, {rate:.0}/s, {} failed",
            progress.failed
        ));
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::new(1000);
    match ProgressStyle::with_template("[{elapsed}] {bar:30} {percent}% {msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
