//! The timing wheel, promise by promise: edges of the clock, order, staleness, work and size.

mod timer_rig;

use sinew_core::timer::{TICK_NS, TimerNode};
use timer_rig::{Random, Rig};

const HOUR_NS: u64 = 3_600_000_000_000;
/// Levels below the top: how often a node may be moved.
const MOVES_MAX: u64 = 7;

#[test]
fn a_node_is_small_and_starts_unlinked() {
    let node = const { TimerNode::new() };
    assert!(!node.is_linked());
    assert_eq!(size_of::<TimerNode>(), 24);
}

#[test]
fn an_empty_wheel_has_nothing_to_wait_for() {
    let mut rig = Rig::new(0, 123);
    assert_eq!(rig.wheel.next_deadline_ns(), None);
    assert_eq!(rig.pop(u64::MAX), None);
    assert!(rig.wheel.is_empty());
}

// contract: S16
#[test]
fn a_deadline_that_has_passed_is_due_at_once() {
    for now in [0, 1, 1_023, 1_024, 50_000, HOUR_NS + 77, u64::MAX] {
        for deadline in [0, now / 2, now.saturating_sub(1), now] {
            let mut rig = Rig::new(1, now);
            rig.insert(0, deadline);
            assert!(rig.wheel.next_deadline_ns() <= Some(now));
            assert_eq!(rig.pop(now), Some(0), "deadline {deadline} at {now}");
        }
    }
}

// contract: S16
#[test]
fn never_early_and_at_most_a_tick_late() {
    let starts = [
        0,
        1,
        1_023,
        5 * HOUR_NS + 1,
        u64::MAX / 2,
        u64::MAX - 5_000_000,
    ];
    let delays = [
        1,
        2,
        1_023,
        1_024,
        1_025,
        50_000,
        65_536,
        1 << 22,
        HOUR_NS,
        1 << 60,
    ];
    for start in starts {
        for delay in delays {
            let deadline: u64 = u64::saturating_add(start, delay);
            let mut rig = Rig::new(1, start);
            rig.insert(0, deadline);
            assert_eq!(rig.pop(deadline - 1), None, "early: {start} + {delay}");
            let latest = deadline.saturating_add(TICK_NS - 1);
            assert_eq!(rig.pop(latest), Some(0), "late: {start} + {delay}");
        }
    }
}

#[test]
fn the_last_nanoseconds_of_the_clock_work() {
    let mut rig = Rig::new(4, 0);
    for (id, back) in [(0, 0), (1, 1), (2, 1_024), (3, 1_023)] {
        rig.insert(id, u64::MAX - back);
    }
    assert_eq!(rig.drain(u64::MAX - 1_025), [] as [usize; 0]);
    assert_eq!(
        rig.drain(u64::MAX - 1_023),
        [2, 3],
        "one tick: rounded up to it, and on it"
    );
    assert_eq!(rig.wheel.next_deadline_ns(), Some(u64::MAX));
    assert_eq!(rig.drain(u64::MAX), [0, 1]);
    rig.insert(0, u64::MAX);
    assert_eq!(rig.drain(u64::MAX), [0]);
}

#[test]
fn equal_deadlines_fire_in_the_order_of_insertion_across_cascades() {
    let mut rig = Rig::new(300, 0);
    let deadline = HOUR_NS;
    let mut now = 0;
    for id in 0..300 {
        rig.insert(id, deadline);
        // Halve the distance, so that later nodes start at lower levels.
        if id % 10 == 9 {
            now += (deadline - now) / 2;
            assert_eq!(rig.pop(now), None);
        }
    }
    assert_eq!(rig.drain(deadline + TICK_NS), (0..300).collect::<Vec<_>>());
}

#[test]
fn time_going_back_is_ignored() {
    let mut rig = Rig::new(2, 1_000_000);
    assert_eq!(rig.pop(2_000_000), None);
    assert_eq!(rig.pop(0), None);
    rig.insert(0, 1_500_000);
    assert_eq!(
        rig.pop(0),
        Some(0),
        "1.5 ms had passed by the latest time given"
    );
    rig.insert(1, 3_000_000);
    assert_eq!(rig.pop(1), None);
    assert_eq!(rig.pop(3_001_000), Some(1));
}

// contract: S16
#[test]
fn a_removed_or_popped_node_never_fires_again() {
    let mut rig = Rig::new(3, 0);
    rig.insert(0, 10_000);
    rig.insert(1, 10_000);
    rig.insert(2, 10_000);
    assert!(rig.remove(1));
    assert!(!rig.remove(1), "removing twice is told apart");
    assert_eq!(rig.pop(20_000), Some(0));
    assert!(!rig.remove(0), "a popped node is not linked");
    assert!(
        rig.remove(2),
        "removed while its neighbours are being popped"
    );
    assert_eq!(rig.drain(u64::MAX), [] as [usize; 0]);
    // The next wait of the same coroutine uses the same node.
    let mut rig = Rig::new(1, 0);
    rig.insert(0, 10_000);
    assert!(rig.remove(0));
    rig.insert(0, 90_000);
    assert_eq!(rig.pop(80_000), None, "the old deadline is gone");
    assert_eq!(rig.pop(91_000), Some(0));
}

#[test]
#[should_panic(expected = "inserted twice")]
fn inserting_a_linked_node_is_refused() {
    let mut rig = Rig::new(1, 0);
    rig.insert(0, 1);
    rig.insert(0, 2);
}

#[test]
fn nodes_may_be_inserted_and_removed_while_others_are_popped() {
    let mut rig = Rig::new(10, 0);
    for id in 0..5 {
        rig.insert(id, 1_000 * (id as u64 + 1));
    }
    let now = 100_000;
    assert_eq!(rig.pop(now), Some(0));
    rig.insert(5, 0);
    rig.insert(6, now + 50_000);
    rig.insert(7, 4_500);
    assert!(rig.remove(3));
    assert_eq!(rig.drain(now), [5, 1, 2, 7, 4]);
    assert_eq!(rig.drain(now + 52_000), [6]);
}

// contract: S16
#[test]
fn a_million_timers_live_at_once_and_fire_in_order() {
    const TIMERS: usize = 1_000_000;
    let mut rig = Rig::new(TIMERS, 0);
    let mut random = Random(7);
    for id in 0..TIMERS {
        rig.insert(id, 1 + random.below(HOUR_NS));
    }
    assert_eq!(rig.wheel.len(), TIMERS);
    let (mut now, mut fired, mut last) = (0, 0, 0);
    while fired < TIMERS {
        now += HOUR_NS / 1_000;
        while let Some(id) = rig.pop(now) {
            let due = rig.node(id).deadline_ns().next_multiple_of(TICK_NS);
            assert!(due <= now && due >= last, "{due} after {last} at {now}");
            last = due;
            fired += 1;
        }
    }
    assert!(rig.wheel.is_empty());
    assert!(rig.wheel.cascades() <= MOVES_MAX * TIMERS as u64);
}

// contract: S16
#[test]
fn ten_million_long_deadlines_armed_and_cancelled_leave_nothing() {
    const LIVE: usize = 1_000;
    let mut rig = Rig::new(LIVE, 0);
    let mut now = 0;
    for round in 0..10_000_000_usize {
        let id = round % LIVE;
        rig.remove(id);
        rig.insert(id, now + HOUR_NS);
        // A million a second.
        now += 1_000;
        if round % 64 == 0 {
            assert_eq!(rig.pop(now), None);
        }
    }
    assert_eq!(rig.wheel.len(), LIVE);
    for id in 0..LIVE {
        assert!(rig.remove(id));
    }
    assert!(rig.wheel.is_empty());
    assert_eq!(rig.wheel.next_deadline_ns(), None);
    assert_eq!(
        rig.wheel.cascades(),
        0,
        "ten seconds bring no one-hour deadline nearer by a level"
    );
}

// contract: S16
#[test]
fn side_by_side_or_linked_equal_deadlines_keep_their_order() {
    const TIMERS: usize = 3_000;
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut rig = Rig::crowded(TIMERS, 0);
        let deadlines = [HOUR_NS, HOUR_NS + TICK_NS, 2 * HOUR_NS];
        let (mut now, mut expected) = (0, [const { Vec::new() }; 3]);
        for id in 0..TIMERS {
            let which = random.below(3) as usize;
            if random.below(2) == 0 {
                rig.insert(id, deadlines[which]);
            } else {
                rig.insert_reserving(id, deadlines[which]);
            }
            expected[which].push(id);
            if random.below(3) == 0 {
                let other = &mut expected[random.below(3) as usize];
                if !other.is_empty() {
                    let gone = other.remove(random.below(other.len() as u64) as usize);
                    assert!(rig.remove(gone));
                }
            }
            if id % 100 == 99 {
                now += (HOUR_NS - now) / 2;
                assert_eq!(rig.pop(now), None);
            }
        }
        assert_eq!(rig.drain(3 * HOUR_NS), expected.concat());
    }
}

// contract: S16
#[test]
fn where_there_is_no_memory_the_rest_of_a_slot_is_linked() {
    // More than there is room for side by side without another allocation.
    const TIMERS: usize = 600;
    for seed in 0..30 {
        let mut random = Random(seed);
        let mut rig = Rig::crowded(TIMERS, 0);
        let mut expected: Vec<usize> = (0..TIMERS).collect();
        (0..TIMERS).for_each(|id| rig.insert(id, HOUR_NS));
        while !expected.is_empty() {
            // From the front, from the back, or anywhere: what is side by side goes first, or what is linked.
            let last = expected.len() - 1;
            let at = match seed % 3 {
                0 => 0,
                1 => last,
                _ => random.below(last as u64 + 1) as usize,
            };
            assert!(rig.remove(expected.remove(at)));
            assert_eq!(rig.wheel.len(), expected.len());
            assert_eq!(
                rig.wheel.next_deadline_ns().is_some(),
                !rig.wheel.is_empty()
            );
            if random.below(TIMERS as u64 / 2) == 0 {
                break;
            }
        }
        assert_eq!(rig.drain(HOUR_NS + TICK_NS), expected);
        assert!(rig.wheel.is_empty());
    }
}

// contract: S16
#[test]
fn one_that_stays_of_each_so_many_keeps_its_deadline() {
    const TIMERS: usize = 100_000;
    let mut rig = Rig::crowded(TIMERS, 0);
    let mut random = Random(5);
    for _ in 0..3 {
        for id in 0..TIMERS {
            rig.insert_reserving(id, 1 + random.below(HOUR_NS));
        }
        for id in (0..TIMERS).filter(|id| id % 37 != 0) {
            assert!(rig.remove(id));
        }
        for id in (0..TIMERS).step_by(37) {
            assert!(rig.node(id).is_linked());
            assert!(rig.remove(id));
        }
        assert!(rig.wheel.is_empty());
        assert_eq!(rig.wheel.next_deadline_ns(), None);
    }
}

#[test]
fn work_is_bounded_by_levels_and_not_by_time() {
    let mut rig = Rig::new(1_000, 0);
    let mut random = Random(3);
    for id in 0..1_000 {
        rig.insert(id, random.next() >> random.below(50));
    }
    // From the beginning of time to its end in one step: a loop over ticks would not return.
    assert_eq!(rig.drain(u64::MAX).len(), 1_000);
    assert!(rig.wheel.cascades() <= MOVES_MAX * 1_000);
}

#[test]
fn a_sleeper_neither_oversleeps_nor_spins() {
    const TIMERS: usize = 2_000;
    let mut rig = Rig::new(TIMERS, 0);
    let mut random = Random(11);
    for id in 0..TIMERS {
        rig.insert(id, random.next() >> (4 + random.below(50)));
    }
    let (mut wakes, mut now) = (0, 0);
    while let Some(wake) = rig.wheel.next_deadline_ns() {
        assert!(wake >= now, "asked to wake in the past");
        assert!(wakes == 0 || wake > now, "asked to wake again at once");
        now = wake;
        wakes += 1;
        let before = rig.wheel.cascades();
        let fired = rig.drain(now);
        assert!(
            !fired.is_empty() || rig.wheel.cascades() > before,
            "woken for nothing"
        );
        for id in fired {
            let deadline = rig.node(id).deadline_ns();
            assert_eq!(
                deadline.next_multiple_of(TICK_NS),
                now,
                "slept past {deadline}"
            );
        }
    }
    assert!(wakes <= MOVES_MAX as usize * TIMERS, "{wakes} wakes");
}

#[test]
fn a_lone_timer_wakes_its_sleeper_once() {
    for delay in [1, 50_000, HOUR_NS, 1 << 62] {
        let mut rig = Rig::new(1, 12_345);
        rig.insert(0, 12_345 + delay);
        let wake = rig.wheel.next_deadline_ns().expect("a timer is armed");
        assert_eq!(rig.pop(wake), Some(0), "{delay}");
    }
}
