//! Figures of the whole process and of each scheduler.

use std::sync::atomic::Ordering::Relaxed;

use sinew_context::stack;

use crate::scheduler::door::Door;

/// Figures of one scheduler, which may be gone by now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedulerStats {
    /// Coroutines that were started and have not ended.
    pub alive: usize,
    /// Coroutines that were ever made.
    pub created: u64,
    /// Switches from one coroutine to another, as of the last time its own frame ran.
    pub switches: u64,
    /// How often it had nothing to do and slept in the kernel, until a timer, a descriptor or another thread.
    pub sleeps: u64,
    /// Timers that wait, as of the same time.
    pub timers: usize,
    /// Posted closures that wait for their turn, as of the same time.
    pub posts: u64,
    /// Coroutines that wait for a descriptor, as of the same time.
    pub io_waits: usize,
}

/// Figures of the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// All schedulers together. (A scheduler's place is used again by a later one: the totals are of the whole process.)
    pub total: SchedulerStats,
    /// Each of them.
    pub schedulers: Vec<SchedulerStats>,
    /// Address space reserved for stacks, guards included, in bytes.
    pub stack_reserved_bytes: usize,
    /// Stacks that coroutines have now.
    pub stacks_in_use: usize,
    /// Warm stacks kept for the next ones.
    pub stacks_cached: usize,
}

impl Stats {
    /// How much memory the kernel has given to stacks now, in bytes. Asks the kernel: about half a microsecond for
    /// each stack ever made.
    #[must_use]
    pub fn stack_committed_bytes(&self) -> usize {
        stack::committed_bytes()
    }
}

/// Figures of the process, as each scheduler has published them. From any thread.
///
/// # Examples
///
/// ```
/// sinew::run(|| {
///     let _parked = sinew::spawn_local(|| sinew::sleep(std::time::Duration::from_millis(1)));
///     assert!(sinew::inspect::stats().total.alive >= 2);
/// });
/// ```
#[must_use]
pub fn stats() -> Stats {
    let schedulers: Vec<SchedulerStats> = Door::all()
        .into_iter()
        .map(|door| door.figures().read())
        .collect();
    let mut total = SchedulerStats::default();
    for one in &schedulers {
        total.alive += one.alive;
        total.created += one.created;
        total.switches += one.switches;
        total.sleeps += one.sleeps;
        total.timers += one.timers;
        total.posts += one.posts;
        total.io_waits += one.io_waits;
    }
    let stacks = stack::stats();
    Stats {
        total,
        schedulers,
        stack_reserved_bytes: stacks.reserved_bytes,
        stacks_in_use: stacks.stacks_in_use,
        stacks_cached: stacks.stacks_cached,
    }
}

impl crate::scheduler::door::Figures {
    pub(crate) fn read(&self) -> SchedulerStats {
        SchedulerStats {
            alive: self.alive.load(Relaxed),
            created: self.created.load(Relaxed),
            switches: self.switches.load(Relaxed),
            sleeps: self.sleeps.load(Relaxed),
            timers: self.timers.load(Relaxed),
            posts: self.posts.load(Relaxed),
            io_waits: self.io_waits.load(Relaxed),
        }
    }
}
