//! Ten thousand timers on two workers, each a task of a few microseconds on the worker's own loop; and all of them in one group, so
//! that they can be waited for, or cancelled, together.
//!
//!     cargo run --example fan_out
#![allow(dead_code, reason = "a test runs parts of it")]
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use std::time::Duration;

use sinew::task::{GroupStats, Outcome, TaskContext, TaskGroup, Worker};
use sinew::time::now;
use sinew::{Error, WaitError};

/// What came of it.
#[derive(Debug)]
pub(crate) struct Report {
    /// How the timers ended.
    pub(crate) stats: GroupStats,
    /// How many were run before their time.
    pub(crate) early: usize,
    /// By how much the latest was late.
    pub(crate) latest: Duration,
}

/// Starts so many timers within a time; cancels what is left after `patience`.
///
/// # Errors
///
/// A worker could not be started, or did not take a task.
pub(crate) fn fan_out(timers: u32, within: Duration, patience: Duration) -> Result<Report, Error> {
    let workers = [
        Worker::builder().name("left").build()?,
        Worker::builder().name("right").build()?,
    ];
    let group = TaskGroup::new();
    let begin = now();
    let mut started = Vec::new();
    for n in 0..timers {
        let at = begin + within * (n * 7 % timers) / timers;
        let task = move |context: &TaskContext<'_>| {
            let now = now();
            // The worker's memory, used again and again.
            if let Some(worker) = context.worker() {
                worker.buffer()[..4].copy_from_slice(&n.to_le_bytes());
            }
            Outcome::Success((now < at, now.saturating_duration_since(at)))
        };
        started.push(group.on_worker_at(&workers[n as usize % 2], at, task)?);
    }
    if group.wait_timeout(patience) == Err(WaitError::Timeout) {
        group.cancel_and_wait("no more patience")?;
    }
    let ran = || started.iter().filter_map(|future| future.get()?.ok());
    Ok(Report {
        stats: group.stats(),
        early: ran().filter(|(is_early, _)| *is_early).count(),
        latest: ran().map(|(_, late)| *late).max().unwrap_or_default(),
    })
}

fn main() -> Result<(), Error> {
    let report = fan_out(10_000, Duration::from_millis(500), Duration::from_secs(30))?;
    println!(
        "{} timers ran, {} of them early; the latest was {:?} late",
        report.stats.succeeded, report.early, report.latest
    );
    Ok(())
}
