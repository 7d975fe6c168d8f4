//! What rounding promises, by examples and by proptest.
#![expect(unsafe_code, reason = "links timers into a wheel")]

use core::ptr::NonNull;
use std::collections::BTreeSet;
use std::vec::Vec;

use proptest::prelude::*;

use super::{Slack, on_grid};
use crate::timer::{TICK_NS, TimerNode, Wheel};

const SECOND_NS: u64 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;

fn fine(deadline_ns: u64, now_ns: u64) -> u64 {
    Slack::FINE.deadline_ns(deadline_ns, now_ns)
}

#[test]
fn a_short_wait_keeps_its_deadline() {
    assert_eq!(fine(1_001_023, 1_000_000), 1_001_023);
    assert_eq!(fine(5, 10), 5, "a deadline that has passed");
    assert_eq!(fine(0, 0), 0);
}

#[test]
fn long_waits_of_about_the_same_time_end_together() {
    let now_ns = 7 * SECOND_NS + 123;
    let ends: BTreeSet<_> = (0..1_000)
        .map(|spread_us| fine(now_ns + SECOND_NS + spread_us * 1_000, now_ns))
        .collect();
    assert!(
        ends.len() <= 3,
        "a thousand timers within 1 ms: {} wakes",
        ends.len()
    );
}

#[test]
fn the_end_of_the_clock_is_an_end() {
    for slack in [Slack::FINE, Slack::of_ns(1), Slack::of_ns(u64::MAX)] {
        assert_eq!(slack.deadline_ns(u64::MAX, 0), u64::MAX);
        assert!(slack.deadline_ns(u64::MAX - 1, 0) >= u64::MAX - 1);
        assert!(slack.wake_ns(u64::MAX, 0) >= u64::MAX - TICK_NS);
    }
    assert_eq!(fine(u64::MAX - 1, 0), u64::MAX);
    assert_eq!(
        Slack::of_ns(MS_NS).deadline_ns(u64::MAX - 1, 0),
        u64::MAX,
        "there is no multiple"
    );
}

#[test]
fn no_slack_is_the_default_and_the_most_is_a_second() {
    assert_eq!(Slack::of_ns(0), Slack::FINE);
    assert_eq!(Slack::of_ns(u64::MAX), Slack::of_ns(SECOND_NS));
    assert_eq!(Slack::of_ns(u64::MAX).deadline_ns(1, 0), SECOND_NS);
    assert_eq!(Slack::of_ns(MS_NS).deadline_ns(2_050, 2_050), 2_048, "due");
    assert_eq!(Slack::of_ns(MS_NS).deadline_ns(2_051, 2_050), MS_NS);
}

/// The deadlines that ten thousand waits within 50 ms come to, begun at about the same time.
fn ends_of_many(slack: Slack) -> usize {
    let now_ns = 7 * SECOND_NS + 123;
    (0..10_000)
        .map(|number| slack.deadline_ns(now_ns + number * 5_000, now_ns))
        .collect::<BTreeSet<_>>()
        .len()
}

#[test]
fn a_slack_makes_few_of_many() {
    assert!(ends_of_many(Slack::of_ns(10 * MS_NS)) <= 6 + 1);
    assert!(ends_of_many(Slack::FINE) > 1_000);
    assert!(ends_of_many(Slack::of_ns(1)) == 10_000);
}

/// Sleeps as a scheduler does until the wheel is empty, by a clock that is never late. Says how often.
fn sleeps(slack: Slack, start_ns: u64, deadlines_ns: &[u64]) -> u64 {
    let nodes: Vec<_> = deadlines_ns.iter().map(|_| TimerNode::new()).collect();
    let mut wheel = Wheel::new(start_ns);
    for (node, &deadline_ns) in nodes.iter().zip(deadlines_ns) {
        let deadline_ns = slack.deadline_ns(deadline_ns, start_ns);
        // SAFETY: not linked; in place until all have been popped below.
        unsafe { wheel.insert(NonNull::from(node), deadline_ns) };
    }
    let (mut now_ns, mut sleeps) = (start_ns, 0);
    while let Some(next_ns) = wheel.next_deadline_ns() {
        let wake_ns = slack.wake_ns(next_ns, now_ns);
        assert!(wake_ns >= next_ns || next_ns <= now_ns);
        sleeps += u64::from(wake_ns > now_ns);
        now_ns = now_ns.max(wake_ns);
        while let Some(node) = wheel.pop_due(now_ns) {
            let at = (node.addr().get() - nodes.as_ptr().addr()) / size_of::<TimerNode>();
            let asked_ns = deadlines_ns[at];
            assert!(now_ns >= asked_ns, "early");
            let due_ns = on_grid(slack.deadline_ns(asked_ns, start_ns), TICK_NS);
            assert!(now_ns <= due_ns.max(start_ns), "overslept");
        }
    }
    sleeps
}

#[test]
fn nobody_is_woken_for_the_wheel_s_sake() {
    let start_ns = 3 * SECOND_NS + 777;
    let deadlines_ns: Vec<_> = (0..20_000)
        .map(|number| start_ns + 1 + number * 100_000)
        .collect();
    // Two seconds, of which every millisecond has an end. The wheel's own slots are of 1.05 ms.
    assert_eq!(sleeps(Slack::of_ns(MS_NS), start_ns, &deadlines_ns), 2_000);
    assert!(sleeps(Slack::FINE, start_ns, &deadlines_ns) > 3_500);
}

#[test]
fn what_is_due_is_not_slept_for() {
    let start_ns = 3 * SECOND_NS + 777;
    let slack = Slack::of_ns(MS_NS);
    let due_ns = [start_ns, start_ns - 5_000, 1];
    assert_eq!(sleeps(slack, start_ns, &due_ns), 0);
    assert_eq!(slack.wake_ns(start_ns, start_ns), start_ns);
}

proptest! {
    #[test]
    fn never_early_and_never_late_by_more_than_a_thousandth(deadline_ns: u64, now_ns: u64) {
        let rounded = fine(deadline_ns, now_ns);
        prop_assert!(rounded >= deadline_ns);
        let late = rounded - deadline_ns;
        prop_assert!(late < 524_288);
        prop_assert!(late == 0 || late <= deadline_ns.saturating_sub(now_ns) / 1_024);
    }

    #[test]
    fn never_early_and_later_by_less_than_the_slack(deadline_ns: u64, now_ns: u64, slack_ns in 1..=SECOND_NS) {
        let rounded = Slack::of_ns(slack_ns).deadline_ns(deadline_ns, now_ns);
        let is_due = deadline_ns <= now_ns;
        prop_assert_eq!(rounded < deadline_ns, is_due && !deadline_ns.is_multiple_of(TICK_NS));
        prop_assert!(rounded.saturating_sub(deadline_ns) < slack_ns);
    }

    #[test]
    fn nobody_oversleeps(
        slack_ns in 0..20 * MS_NS,
        start_ns in 0..10 * SECOND_NS,
        delays_ns in proptest::collection::vec(0..3 * SECOND_NS, 1..60),
    ) {
        let deadlines_ns: Vec<_> = delays_ns.iter().map(|delay_ns| start_ns + delay_ns).collect();
        sleeps(Slack::of_ns(slack_ns), start_ns, &deadlines_ns);
    }
}
