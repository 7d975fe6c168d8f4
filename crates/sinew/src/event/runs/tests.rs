//! The runs against a plain set.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

use super::Runs;

const LIMIT: u32 = 24;

fn check(runs: &Runs, naive: &BTreeSet<u32>) {
    for start in 0..LIMIT {
        assert_eq!(runs.contains(start), naive.contains(&start));
        let free = (start..LIMIT)
            .chain(0..start)
            .find(|number| !naive.contains(number));
        assert_eq!(runs.next_free(start, LIMIT), free, "from {start}");
    }
    let mut before = None;
    for (&first, &end) in &runs.runs {
        assert!(
            first < end && before.is_none_or(|before| before < first),
            "I1"
        );
        before = Some(end);
    }
}

#[test]
fn the_runs_are_the_set() {
    let hasher = RandomState::new();
    let mut runs = Runs::new();
    let mut naive = BTreeSet::new();
    let mut history = Vec::new();
    for round in 0_u64..20_000 {
        let chance = hasher.hash_one(round);
        let number = u32::try_from(chance % u64::from(LIMIT)).unwrap();
        // Long stretches of putting in and of taking out, so that it is full and empty at times.
        if (chance >> 32) % 10 < if round / 100 % 2 == 0 { 7 } else { 3 } {
            history.push(i64::from(number));
            if naive.insert(number) {
                runs.insert(number);
            }
        } else {
            history.push(-i64::from(number) - 1);
            assert_eq!(runs.remove(number), naive.remove(&number), "{history:?}");
        }
        check(&runs, &naive);
    }
}

#[test]
fn the_greatest_numbers() {
    let mut runs = Runs::new();
    runs.insert(u32::MAX - 1);
    assert_eq!(runs.next_free(u32::MAX - 1, u32::MAX), Some(0));
    runs.insert(u32::MAX - 2);
    assert!(runs.remove(u32::MAX - 1));
    assert_eq!(runs.next_free(u32::MAX - 2, u32::MAX), Some(u32::MAX - 1));
    assert_eq!(runs.next_free(0, 0), None);
}
