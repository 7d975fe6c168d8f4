//! What rounding promises, by examples and by proptest.

use proptest::prelude::*;

use super::with_slack;

const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn a_short_wait_keeps_its_deadline() {
    assert_eq!(with_slack(1_001_023, 1_000_000), 1_001_023);
    assert_eq!(with_slack(5, 10), 5, "a deadline that has passed");
    assert_eq!(with_slack(0, 0), 0);
}

#[test]
fn long_waits_of_about_the_same_time_end_together() {
    let now_ns = 7 * SECOND_NS + 123;
    let ends: std::collections::BTreeSet<_> = (0..1_000)
        .map(|spread_us| with_slack(now_ns + SECOND_NS + spread_us * 1_000, now_ns))
        .collect();
    assert!(
        ends.len() <= 3,
        "a thousand timers within 1 ms: {} wakes",
        ends.len()
    );
}

#[test]
fn the_end_of_the_clock_is_an_end() {
    assert_eq!(with_slack(u64::MAX, 0), u64::MAX);
    assert_eq!(with_slack(u64::MAX - 1, 0), u64::MAX);
}

proptest! {
    #[test]
    fn never_early_and_never_late_by_more_than_a_thousandth(deadline_ns: u64, now_ns: u64) {
        let rounded = with_slack(deadline_ns, now_ns);
        prop_assert!(rounded >= deadline_ns);
        let late = rounded - deadline_ns;
        prop_assert!(late < 524_288);
        prop_assert!(late == 0 || late <= deadline_ns.saturating_sub(now_ns) / 1_024);
    }
}
