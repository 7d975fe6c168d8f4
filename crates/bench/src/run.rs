//! Which samples are taken, in which order.

use serde::Serialize;

use crate::child::Launcher;
use crate::figure::Outcome;
use crate::machine::{self, Machine};
use crate::meter::Sample;
use crate::workload::{Workload, workloads};

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The tiny size, which shows that everything works and measures nothing.
    pub quick: bool,
    /// Names of workloads, or what they begin with; empty for all.
    pub only: Vec<String>,
    /// How many samples make a figure, at least one.
    pub runs: u32,
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Samples taken.
    pub taken: u64,
    /// Samples to take in all.
    pub of: u64,
    /// The workload of the next one.
    pub workload: &'static str,
    /// Its side.
    pub side: &'static str,
}

/// What a run found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// Whether the size was the tiny one.
    pub quick: bool,
    /// How many samples make a figure.
    pub runs: u32,
    /// Whether every peer was there to be compared with.
    pub all_peers: bool,
    /// Whether the compiler optimised.
    pub optimised: bool,
    /// What came of each workload.
    pub outcomes: Vec<Outcome>,
}

impl Report {
    /// Whether each side did its work.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let mut rows = self.outcomes.iter().flat_map(|outcome| &outcome.rows);
        rows.all(|row| row.figure.is_ok())
    }
}

/// Measures; calls `show` before each sample.
///
/// # Errors
///
/// A name in [`Config::only`] that no workload has.
pub fn run(
    config: &Config,
    launcher: &Launcher,
    show: &mut dyn FnMut(Step),
) -> Result<Report, String> {
    let chosen = choose(config)?;
    let machine = Machine::probe();
    let each = u64::from(config.runs);
    let of = chosen.iter().map(|one| one.sides.len() as u64 * each).sum();
    let mut taken = 0;
    let mut outcomes = Vec::new();
    for workload in &chosen {
        let mut show = |side| {
            show(Step {
                taken,
                of,
                workload: workload.name,
                side,
            });
            taken += 1;
        };
        let outcome = match obstacle(workload, config.quick) {
            Some(reason) => Outcome::skipped(workload, reason),
            None => Outcome::of(workload, &take_turns(workload, config, launcher, &mut show)),
        };
        outcomes.push(if config.quick {
            outcome.without_comparisons()
        } else {
            outcome
        });
    }
    Ok(Report {
        machine,
        quick: config.quick,
        runs: config.runs,
        all_peers: cfg!(feature = "peers"),
        optimised: !cfg!(debug_assertions),
        outcomes,
    })
}

fn choose(config: &Config) -> Result<Vec<Workload>, String> {
    let all = workloads();
    let known = |prefix: &String| all.iter().any(|one| one.name.starts_with(prefix.as_str()));
    if let Some(stranger) = config.only.iter().find(|&prefix| !known(prefix)) {
        let names: Vec<_> = all.iter().map(|one| one.name).collect();
        return Err(format!(
            "no workload is called {stranger}; there are {}",
            names.join(", ")
        ));
    }
    let wanted = |one: &Workload| {
        let mut prefixes = config.only.iter();
        config.only.is_empty() || prefixes.any(|prefix| one.name.starts_with(prefix.as_str()))
    };
    Ok(all.into_iter().filter(wanted).collect())
}

/// What keeps a workload from running here.
fn obstacle(workload: &Workload, quick: bool) -> Option<String> {
    let gib = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64;
    let available = machine::available_bytes();
    if quick || available >= workload.memory_bytes_min {
        return None;
    }
    Some(format!(
        "it needs {:.1} GiB of memory, and {:.1} are available",
        gib(workload.memory_bytes_min),
        gib(available)
    ))
}

/// Takes the samples of all sides, one of each in turn; each turn begins with another side.
fn take_turns(
    workload: &Workload,
    config: &Config,
    launcher: &Launcher,
    show: &mut dyn FnMut(&'static str),
) -> Vec<Result<Vec<Sample>, String>> {
    let load = if config.quick {
        workload.quick
    } else {
        workload.full
    };
    let count = workload.sides.len();
    let mut taken: Vec<Result<Vec<Sample>, String>> = vec![Ok(Vec::new()); count];
    for turn in 0..config.runs as usize {
        for place in 0..count {
            let place = (turn + place) % count;
            let side = workload.sides[place].name;
            show(side);
            if let Ok(samples) = &mut taken[place] {
                match launcher.sample(workload.name, side, load) {
                    Ok(sample) => samples.push(sample),
                    Err(error) => taken[place] = Err(error),
                }
            }
        }
    }
    taken
}
