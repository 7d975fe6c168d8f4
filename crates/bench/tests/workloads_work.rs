//! The tiny size of everything: each side does what it counts, in this process and in children of it.

use std::collections::HashSet;

use sinew_bench::child::{self, Launcher};
use sinew_bench::{Config, Limit, Role, Step, run, workloads};

/// Where children of this program arrive.
#[test]
fn child_entry() {
    if let Some(code) = child::take_over() {
        assert_eq!(
            format!("{code:?}"),
            format!("{:?}", std::process::ExitCode::SUCCESS)
        );
    }
}

fn launcher() -> Launcher {
    Launcher::new(["--exact", "child_entry", "--nocapture"]).expect("the path of this program")
}

#[test]
fn every_side_does_its_work_in_this_process() {
    for workload in workloads() {
        // The servers need processes of their own.
        if workload.has_server() {
            continue;
        }
        for side in &workload.sides {
            let sample = (side.run)(workload.quick)
                .unwrap_or_else(|error| panic!("{}, {}: {error}", workload.name, side.name));
            assert_eq!(
                sample.done,
                workload.quick.operations(),
                "{}, {}",
                workload.name,
                side.name
            );
            assert_eq!(sample.values.len(), workload.metrics.len());
        }
    }
}

#[test]
fn a_quick_run_has_a_figure_for_every_side() {
    let config = Config {
        quick: true,
        only: Vec::new(),
        runs: 1,
    };
    let mut steps = Vec::new();
    let mut show = |step: Step| steps.push((step.workload, step.side));
    let report = run(&config, &launcher(), &mut show).expect("no names are given");
    for outcome in &report.outcomes {
        assert_eq!(outcome.skipped, None);
        for row in &outcome.rows {
            let figure = row.figure.as_ref();
            let figure = figure.unwrap_or_else(|error| {
                panic!("{}, {}: {error}", outcome.workload, row.side);
            });
            assert_eq!(figure.samples.len(), 1);
        }
    }
    assert!(report.is_complete());
    let sides: usize = workloads().iter().map(|one| one.sides.len()).sum();
    assert_eq!(steps.len(), sides);
    let page = report.markdown("the command");
    for workload in workloads() {
        assert!(page.contains(&format!("| {} |", workload.name)));
    }
}

#[test]
fn the_sides_take_turns_and_each_turn_begins_with_another() {
    let config = Config {
        quick: true,
        only: vec!["resume".into()],
        runs: 2,
    };
    let mut order = Vec::new();
    let mut show = |step: Step| order.push((step.taken, step.side));
    let report = run(&config, &launcher(), &mut show).expect("there is such a workload");
    assert!(report.is_complete());
    let sides = report.outcomes[0].rows.len();
    let (first, second) = order.split_at(sides);
    let turn = |steps: &[(u64, &'static str)]| steps.iter().map(|step| step.1).collect::<Vec<_>>();
    let mut rotated = turn(first);
    rotated.rotate_left(1);
    assert_eq!(turn(second), rotated);
    assert!(order.iter().map(|step| step.0).eq(0..2 * sides as u64));
}

#[test]
fn budgets_name_sides_that_exist() {
    for workload in workloads() {
        let names: HashSet<_> = workload.sides.iter().map(|side| side.name).collect();
        assert_eq!(names.len(), workload.sides.len(), "{}", workload.name);
        for side in &workload.sides {
            let name = side.name;
            assert!(!name.contains(';'), "{name} could not be told to a child");
            let Role::Own(budgets) = &side.role else {
                continue;
            };
            for budget in budgets {
                assert!(budget.metric < workload.metrics.len(), "{name}");
                if let Limit::Of(other, _) = budget.limit {
                    assert!(names.contains(other), "{name} is compared with {other}");
                }
            }
        }
    }
}

#[test]
fn an_unknown_name_is_named() {
    let config = Config {
        quick: true,
        only: vec!["yield".into(), "nonsense".into()],
        runs: 1,
    };
    let error = run(&config, &launcher(), &mut |_| ()).expect_err("there is no such workload");
    assert!(
        error.contains("nonsense") && error.contains("pingpong"),
        "{error}"
    );
}
