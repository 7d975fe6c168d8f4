//! What the tests of groups share: a group's counts are checked whenever it is settled.
#![allow(
    dead_code,
    reason = "each test file includes this module and uses its own part of it"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use sinew::future::PromiseState;
use sinew::task::{GroupStats, TaskGroup};
use sinew::time::now;

/// Counts its drops.
#[derive(Debug)]
pub(crate) struct Counted(pub(crate) Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

pub(crate) fn counted() -> (Counted, Arc<AtomicUsize>) {
    let drops = Arc::new(AtomicUsize::new(0));
    (Counted(drops.clone()), drops)
}

pub(crate) fn rounds(number: usize) -> usize {
    let factor = std::env::var("SINEW_STRESS").map_or(1, |text| match text.as_str() {
        "full" => 100,
        text => text
            .parse()
            .unwrap_or_else(|_| panic!("SINEW_STRESS={text} is not a number")),
    });
    number * factor
}

/// What holds at any time.
pub(crate) fn check(stats: GroupStats) {
    assert_eq!(
        stats.accepted,
        stats.completed + stats.active as u64,
        "{stats:?}"
    );
    assert_eq!(
        stats.completed,
        stats.succeeded + stats.failed + stats.cancelled + stats.closed,
        "{stats:?}"
    );
    assert_eq!(
        stats.first_stopped.is_some(),
        stats.succeeded < stats.completed,
        "{stats:?}"
    );
}

/// Waits for the end and checks the counts.
pub(crate) fn settled(group: &TaskGroup) -> GroupStats {
    check(group.stats());
    group.wait().unwrap();
    let stats = group.stats();
    check(stats);
    assert!(stats.is_closed && stats.active == 0);
    assert_eq!(group.done().state(), PromiseState::Resolved);
    stats
}

/// Waits until this is so, giving way meanwhile.
pub(crate) fn until(mut f: impl FnMut() -> bool) {
    let end = now() + Duration::from_secs(60);
    while !f() {
        assert!(now() < end, "it does not come about");
        thread::yield_now();
    }
}
