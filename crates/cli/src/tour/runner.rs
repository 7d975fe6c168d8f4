//! Runs steps one after the other and tells which have failed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use super::{Check, Failure, Stage, Step, Watchdog};
use crate::rt;

/// How a tour went.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Outcome {
    /// How many steps there were.
    pub steps: usize,
    /// The names of those that failed.
    pub failed: Vec<&'static str>,
}

/// Runs all of the steps, whatever becomes of each, and prints the figures and a verdict.
pub fn run(steps: &[Step], stage: &mut Stage<'_>, watchdog: &Watchdog) -> Outcome {
    stage.line(
        "A tour of sinew: stackful coroutines, each step a small program that checks itself.",
    );
    let begun = rt::now();
    let mut failed = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        stage.title(index + 1, step.name, step.shows);
        let started = rt::now();
        let watched = watchdog.watch(step.name);
        let ended = attempt(step, stage);
        drop(watched);
        let seconds = (rt::now() - started).as_secs_f64();
        stage.verdict(ended.as_ref().err(), seconds);
        if ended.is_err() {
            failed.push(step.name);
        }
    }
    let outcome = Outcome {
        steps: steps.len(),
        failed,
    };
    stage.line("");
    for line in stage.figures.clone().table() {
        stage.line(&line);
    }
    stage.line("");
    let seconds = (rt::now() - begun).as_secs_f64();
    stage.line(&outcome.sentence(seconds));
    outcome
}

/// One step; its panic is a failure like another.
fn attempt(step: &Step, stage: &mut Stage<'_>) -> Check {
    catch_unwind(AssertUnwindSafe(|| (step.act)(stage))).unwrap_or_else(|payload| {
        let message = message(&*payload);
        Err(Failure::new(format!("the step panicked: {message}")))
    })
}

/// A panic's message, if it is text.
pub(super) fn message(payload: &(dyn Any + Send)) -> &str {
    if let Some(text) = payload.downcast_ref::<&str>() {
        text
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text
    } else {
        "a payload that is not text"
    }
}

impl Outcome {
    /// The exit status that tells it: 1 if a step failed.
    #[must_use]
    pub fn status(&self) -> ExitCode {
        if self.failed.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    fn sentence(&self, seconds: f64) -> String {
        let Self { steps, failed } = self;
        if failed.is_empty() {
            format!("all {steps} steps held, in {seconds:.1} s")
        } else {
            format!(
                "{} of {steps} steps failed: {}",
                failed.len(),
                failed.join(", ")
            )
        }
    }
}
