//! Unit tests of `report`: the watch.

use super::*;

const MS: u64 = 1_000_000;

/// After how many seconds the watch ends a report that gets `ns` of CPU time in each.
fn seconds_with(ns: u64) -> u32 {
    let watch = Watch::new();
    watch.start(5 * MS);
    let mut seconds = 1;
    while watch.may_go_on(5 * MS + u64::from(seconds) * ns) {
        seconds += 1;
    }
    seconds
}

#[test]
fn a_report_that_waits_or_spins_is_ended_soon() {
    assert_eq!(seconds_with(0), IDLE_SECONDS_MAX, "it waits for a lock");
    assert_eq!(seconds_with(STIR_NS / 2), IDLE_SECONDS_MAX);
    assert_eq!(seconds_with(1000 * MS), 3, "it spins");
    assert_eq!(seconds_with(2000 * MS), 2);
}

#[test]
fn a_report_on_a_busy_machine_is_left_alone_but_not_for_ever() {
    // A twentieth of a processor: more than three seconds of wall time are no reason.
    assert_eq!(seconds_with(50 * MS), 60);
    assert_eq!(seconds_with(100 * MS), 30);
    assert_eq!(seconds_with(2 * STIR_NS), SECONDS_MAX);
    // Idle seconds count in a row only.
    let watch = Watch::new();
    watch.start(0);
    let times = [0, 0, 10, 10, 10, 20, 20, 20];
    assert!(times.iter().all(|&ms| watch.may_go_on(ms * MS)));
    assert!(!watch.may_go_on(20 * MS));
}
