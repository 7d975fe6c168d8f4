//! Medians, budgets and ratios of samples made up here.

use super::*;
use crate::workload::{Load, Metric};

fn side(name: &'static str, role: Role) -> Side {
    Side {
        name,
        role,
        run: |_| Err("not run".into()),
    }
}

fn workload(sides: Vec<Side>) -> Workload {
    let load = Load {
        tasks: 1,
        rounds: 1,
    };
    Workload {
        name: "example",
        operation: "one",
        metrics: &[Metric {
            what: "time",
            unit: "ns",
        }],
        full: load,
        quick: load,
        memory_bytes_min: 0,
        on_all_cpus: false,
        sides,
    }
}

fn samples(values: &[f64]) -> Result<Vec<Sample>, String> {
    let sample = |&value| Sample {
        done: 1,
        values: vec![value],
    };
    Ok(values.iter().map(sample).collect())
}

#[test]
fn a_median_lies_in_the_middle() {
    let odd = Figure::of(vec![9.0, 1.0, 2.0]).unwrap();
    assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 9.0));
    let even = Figure::of(vec![4.0, 1.0, 2.0, 9.0]).unwrap();
    assert_eq!(even.median, 3.0);
    assert_eq!(even.samples, [4.0, 1.0, 2.0, 9.0]);
    assert_eq!(Figure::of(Vec::new()), None);
}

#[test]
fn a_budget_is_held_against_the_best_peer() {
    let budgets = vec![
        Budget {
            metric: 0,
            limit: Limit::OfBestPeer(0.5),
        },
        Budget {
            metric: 0,
            limit: Limit::Of("loop", 1.05),
        },
        Budget {
            metric: 0,
            limit: Limit::Most(10.0),
        },
        Budget {
            metric: 1,
            limit: Limit::Most(0.0),
        },
    ];
    let workload = workload(vec![
        side("own", Role::Own(budgets)),
        side("slow", Role::Peer),
        side("quick", Role::Peer),
        side("broken", Role::Peer),
        side("loop", Role::Yardstick),
    ]);
    let outcome = Outcome::of(
        &workload,
        &[
            samples(&[10.0, 11.0, 9.0]),
            samples(&[100.0]),
            samples(&[20.0]),
            Err("it broke".into()),
            samples(&[8.0]),
        ],
    );
    let own = &outcome.rows[0];
    let seen: Vec<_> = own
        .comparisons
        .iter()
        .map(|one| (one.to.as_deref(), one.value, one.verdict))
        .collect();
    assert_eq!(
        seen,
        [
            (Some("quick"), 0.5, Some(Verdict::Met)),
            (Some("loop"), 1.25, Some(Verdict::Missed)),
            (None, 10.0, Some(Verdict::Met)),
        ]
    );
    assert_eq!(outcome.rows[3].figure, Err("it broke".into()));
    assert!(outcome.rows[1].comparisons.is_empty());
}

#[test]
fn without_a_budget_there_is_still_a_ratio() {
    let workload = workload(vec![
        side("own", Role::Own(Vec::new())),
        side("peer", Role::Peer),
    ]);
    let outcome = Outcome::of(&workload, &[samples(&[3.0]), samples(&[2.0])]);
    let comparison = &outcome.rows[0].comparisons[0];
    assert_eq!(comparison.value, 1.5);
    assert_eq!(comparison.verdict, None);
}
