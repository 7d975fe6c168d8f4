//! From samples to figures: medians, spreads, ratios, verdicts.
//!
//! Deliberately not here: how they are shown.

use serde::{Serialize, Serializer};

use crate::meter::Sample;
use crate::workload::{Budget, Limit, Role, Side, Workload};

/// The middle of several samples, and how far they lie apart.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// All of them, in the order in which they were taken.
    pub samples: Vec<f64>,
}

impl Figure {
    /// `None` without samples.
    #[must_use]
    pub fn of(samples: Vec<f64>) -> Option<Self> {
        let mut sorted = samples.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let high = sorted[sorted.len() / 2];
        let low = sorted[(sorted.len() - 1) / 2];
        Some(Self {
            median: low.midpoint(high),
            min,
            max,
            samples,
        })
    }
}

/// Whether a budget holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// At or below the limit.
    Met,
    /// Above it.
    Missed,
}

/// A figure beside another, or beside a limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The side it is so many times of; `None` for a limit in the figure's own unit.
    pub to: Option<String>,
    /// How many times, or how much.
    pub value: f64,
    /// What that may be at most, if anything is asked.
    pub limit: Option<f64>,
    /// Whether it is.
    pub verdict: Option<Verdict>,
}

impl Comparison {
    fn new(to: Option<String>, value: f64, limit: Option<f64>) -> Self {
        let judge = |limit| match value <= limit {
            true => Verdict::Met,
            false => Verdict::Missed,
        };
        Self {
            to,
            value,
            limit,
            verdict: limit.map(judge),
        }
    }
}

/// One metric of one side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The side.
    pub side: &'static str,
    /// Whether it is sinew's own.
    pub own: bool,
    /// What was measured.
    pub what: &'static str,
    /// In what.
    pub unit: &'static str,
    /// The figure, or why there is none.
    #[serde(serialize_with = "figure_or_error")]
    pub figure: Result<Figure, String>,
    /// What it is compared with.
    pub comparisons: Vec<Comparison>,
}

/// A figure is written as it is, and its absence as `{"error": why}`.
fn figure_or_error<S: Serializer>(
    figure: &Result<Figure, String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match figure {
        Ok(figure) => figure.serialize(serializer),
        Err(error) => serializer.collect_map([("error", error)]),
    }
}

/// What came of a workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The workload.
    pub workload: &'static str,
    /// What one operation is.
    pub operation: &'static str,
    /// Why it was not run.
    pub skipped: Option<String>,
    /// Its figures.
    pub rows: Vec<Row>,
}

impl Outcome {
    pub(crate) fn skipped(workload: &Workload, reason: String) -> Self {
        Self {
            workload: workload.name,
            operation: workload.operation,
            skipped: Some(reason),
            rows: Vec::new(),
        }
    }

    /// Leaves the figures beside each other, uncompared.
    pub(crate) fn without_comparisons(mut self) -> Self {
        for row in &mut self.rows {
            row.comparisons.clear();
        }
        self
    }

    /// `samples` has a list, or the first error, for each side.
    pub(crate) fn of(workload: &Workload, samples: &[Result<Vec<Sample>, String>]) -> Self {
        let mut rows = Vec::new();
        for (place, metric) in workload.metrics.iter().enumerate() {
            let figures: Vec<_> = samples.iter().map(|side| figure(side, place)).collect();
            for (side, figure) in workload.sides.iter().zip(&figures) {
                rows.push(Row {
                    side: side.name,
                    own: matches!(side.role, Role::Own(_)),
                    what: metric.what,
                    unit: metric.unit,
                    figure: figure.clone(),
                    comparisons: compare(side, figure, place, &workload.sides, &figures),
                });
            }
        }
        Self {
            workload: workload.name,
            operation: workload.operation,
            skipped: None,
            rows,
        }
    }
}

fn figure(samples: &Result<Vec<Sample>, String>, place: usize) -> Result<Figure, String> {
    let samples = samples.as_ref().map_err(String::clone)?;
    let values = samples.iter().filter_map(|sample| sample.values.get(place));
    Figure::of(values.copied().collect()).ok_or_else(|| "no samples".into())
}

/// A side's figure against its budgets; without any, against the best peer.
fn compare(
    side: &Side,
    figure: &Result<Figure, String>,
    place: usize,
    sides: &[Side],
    figures: &[Result<Figure, String>],
) -> Vec<Comparison> {
    let (Role::Own(budgets), Ok(figure)) = (&side.role, figure) else {
        return Vec::new();
    };
    let others = || {
        let pairs = sides.iter().zip(figures);
        pairs.filter_map(|(side, figure)| Some((side, figure.as_ref().ok()?.median)))
    };
    let best_peer = || {
        let peers = others().filter(|(side, _)| side.role == Role::Peer);
        peers.min_by(|(_, one), (_, other)| one.total_cmp(other))
    };
    let named = |name| others().find(|(side, _)| side.name == name);
    let beside = |other: Option<(&Side, f64)>, limit| {
        let (side, median) = other?;
        let times = figure.median / median;
        Some(Comparison::new(Some(side.name.into()), times, limit))
    };
    let mut comparisons: Vec<_> = budgets
        .iter()
        .filter(|budget| budget.metric == place)
        .filter_map(|Budget { limit, .. }| match *limit {
            Limit::OfBestPeer(times) => beside(best_peer(), Some(times)),
            Limit::Of(name, times) => beside(named(name), Some(times)),
            Limit::Most(value) => Some(Comparison::new(None, figure.median, Some(value))),
        })
        .collect();
    if comparisons.iter().all(|comparison| comparison.to.is_none()) {
        comparisons.extend(beside(best_peer(), None));
    }
    comparisons
}

#[cfg(test)]
mod tests;
