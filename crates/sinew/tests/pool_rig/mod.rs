//! What the tests of pools share: a pool's counts are checked whenever it is settled.
#![allow(
    dead_code,
    reason = "each test file includes this module and uses its own part of it"
)]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use sinew::future::SharedFuture;
use sinew::task::{PoolStats, TaskContext, TaskPool};
use sinew::time::now;

pub(crate) fn rounds(number: usize) -> usize {
    let factor = std::env::var("SINEW_STRESS").map_or(1, |text| match text.as_str() {
        "full" => 100,
        text => text
            .parse()
            .unwrap_or_else(|_| panic!("SINEW_STRESS={text} is not a number")),
    });
    number * factor
}

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

pub(crate) fn pool(threads: usize, limit: usize) -> TaskPool {
    TaskPool::builder()
        .threads(threads)
        .queue_limit(limit)
        .build()
        .unwrap()
}

/// What holds at any time.
pub(crate) fn check(stats: PoolStats) {
    assert_eq!(
        stats.submitted,
        stats.queued as u64 + stats.running as u64 + stats.completed,
        "{stats:?}"
    );
    assert_eq!(
        stats.completed,
        stats.succeeded + stats.failed + stats.cancelled,
        "{stats:?}"
    );
    assert!(
        stats.queued <= stats.queue_limit && stats.running <= stats.threads,
        "{stats:?}"
    );
}

/// Closes the pool and checks its counts when it is drained.
pub(crate) fn settled(pool: &TaskPool) -> PoolStats {
    check(pool.stats());
    pool.close();
    pool.wait().unwrap();
    let stats = pool.stats();
    check(stats);
    assert_eq!((stats.queued, stats.running), (0, 0));
    assert_eq!(stats.submitted, stats.completed);
    assert!(stats.is_closed && pool.is_drained());
    stats
}

/// A task that is cancelled before it starts.
pub(crate) fn must_not_run(_: &TaskContext<'_>) {
    panic!("it runs");
}

/// Keeps one worker busy until it is opened or dropped.
pub(crate) struct Gate {
    pub(crate) open: mpsc::Sender<()>,
    future: SharedFuture<()>,
}

impl Gate {
    pub(crate) fn new(pool: &TaskPool) -> Self {
        let (open, opened) = mpsc::channel::<()>();
        let (say, said) = mpsc::channel();
        let future = pool
            .submit(move |_| {
                say.send(()).unwrap();
                let _opened = opened.recv();
            })
            .unwrap();
        said.recv().unwrap();
        Self { open, future }
    }

    pub(crate) fn open(self) {
        drop(self.open);
        self.future.wait().unwrap();
    }
}

/// Waits until this is so, giving way meanwhile.
pub(crate) fn until(mut f: impl FnMut() -> bool) {
    let end = now() + Duration::from_secs(60);
    while !f() {
        assert!(now() < end, "it does not come about");
        thread::yield_now();
    }
}

/// How many threads have such a name. A thread takes its name when it begins, and is seen a moment longer than a join lasts.
pub(crate) fn threads_named(name: &str) -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|comm| comm.starts_with(name))
        .count()
}
