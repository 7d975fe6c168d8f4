//! The table of workloads, their sides and their budgets.
//!
//! Owns: names, sizes and limits. What a side does is in [`crate::side`] and [`crate::echo`].

use crate::echo;
use crate::meter::Sample;
#[cfg(feature = "corosensei")]
use crate::side::corosensei;
use crate::side::{context, sinew, yardstick};
#[cfg(feature = "peers")]
use crate::side::{crossbeam, may, rayon, smol, threadpool, tokio};

/// How much of a workload is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// How many coroutines, tasks or connections.
    pub tasks: u64,
    /// How many operations each of them does.
    pub rounds: u64,
}

impl Load {
    const fn new(tasks: u64, rounds: u64) -> Self {
        Self { tasks, rounds }
    }

    /// How many operations that makes.
    #[must_use]
    pub const fn operations(&self) -> u64 {
        self.tasks * self.rounds
    }
}

/// What a value of a sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// What is measured.
    pub what: &'static str,
    /// In what.
    pub unit: &'static str,
}

/// What a figure may be at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// So many times the best peer's.
    OfBestPeer(f64),
    /// So many times that of the side with this name.
    Of(&'static str, f64),
    /// So much, in the metric's unit.
    Most(f64),
}

/// A limit for one metric of a side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    /// The place of the metric in the workload's list.
    pub metric: usize,
    /// Its limit.
    pub limit: Limit,
}

/// What a side is compared as.
#[derive(Debug, Clone, PartialEq)]
pub enum Role {
    /// Part of this project, with what it is held to.
    Own(Vec<Budget>),
    /// Another runtime.
    Peer,
    /// No runtime: what the least possible costs.
    Yardstick,
}

/// A program that does a workload.
#[derive(Debug, Clone)]
pub struct Side {
    /// Its name.
    pub name: &'static str,
    /// What it is compared as.
    pub role: Role,
    /// Does the work in this process.
    ///
    /// # Errors
    ///
    /// What kept it from being done.
    pub run: fn(Load) -> Result<Sample, String>,
}

/// One kind of work.
#[derive(Debug, Clone)]
pub struct Workload {
    /// What `--only` calls it.
    pub name: &'static str,
    /// What one operation is.
    pub operation: &'static str,
    /// What is measured.
    pub metrics: &'static [Metric],
    /// The size that is published.
    pub full: Load,
    /// The size that shows that it works.
    pub quick: Load,
    /// Memory that must be available for the full size, in bytes.
    pub memory_bytes_min: u64,
    /// Whether it runs on all CPUs; else on one.
    pub on_all_cpus: bool,
    /// Who does it.
    pub sides: Vec<Side>,
}

const WALL: &[Metric] = &[Metric {
    what: "time",
    unit: "ns",
}];
const CPU: &[Metric] = &[Metric {
    what: "CPU time",
    unit: "ns",
}];
const SERVER_CPU: &[Metric] = &[Metric {
    what: "server CPU time",
    unit: "ns",
}];
const SLEEPERS: &[Metric] = &[
    Metric {
        what: "time",
        unit: "ns",
    },
    Metric {
        what: "peak memory",
        unit: "GiB",
    },
];

const fn of_best_peer(times: f64) -> Budget {
    Budget {
        metric: 0,
        limit: Limit::OfBestPeer(times),
    }
}

const fn most(metric: usize, value: f64) -> Budget {
    Budget {
        metric,
        limit: Limit::Most(value),
    }
}

fn own(
    name: &'static str,
    budgets: impl Into<Vec<Budget>>,
    run: fn(Load) -> Result<Sample, String>,
) -> Side {
    Side {
        name,
        role: Role::Own(budgets.into()),
        run,
    }
}

#[cfg(feature = "corosensei")]
const fn peer(name: &'static str, run: fn(Load) -> Result<Sample, String>) -> Side {
    Side {
        name,
        role: Role::Peer,
        run,
    }
}

const fn yardstick(name: &'static str, run: fn(Load) -> Result<Sample, String>) -> Side {
    Side {
        name,
        role: Role::Yardstick,
        run,
    }
}

/// Every workload, in the order of the report.
#[must_use]
pub fn workloads() -> Vec<Workload> {
    let mut all = vec![resume(), create()];
    all.extend([yields(2), yields(100), yields(1_000), yields(10_000)]);
    all.extend([spawn(), spawn_join(), pingpong(), channel(), mutex()]);
    all.extend(later_ones());
    all
}

/// The second half: the table as one array would take more stack than a function may.
fn later_ones() -> Vec<Workload> {
    let mut all = vec![promise(), pool(), group()];
    all.extend([timers(), timer_wheel(), sleepers()]);
    all.extend([echo_over(64), echo_over(1_024)]);
    all
}

fn resume() -> Workload {
    Workload {
        name: "resume",
        operation: "resume a coroutine and have it suspend, a word each way",
        metrics: CPU,
        full: Load::new(1, 30_000_000),
        quick: Load::new(1, 1_000),
        memory_bytes_min: 0,
        on_all_cpus: false,
        sides: vec![
            own("sinew-context", [of_best_peer(1.0)], context::resume),
            own("sinew::coroutine", [of_best_peer(1.6)], sinew::resume),
            #[cfg(feature = "corosensei")]
            peer("corosensei", corosensei::resume),
            yardstick("a plain call", yardstick::call),
        ],
    }
}

fn create() -> Workload {
    Workload {
        name: "create",
        operation: "create a coroutine on a pooled stack, run it, drop it",
        metrics: CPU,
        full: Load::new(5_000_000, 1),
        quick: Load::new(1_000, 1),
        memory_bytes_min: 0,
        on_all_cpus: false,
        sides: vec![
            own("sinew-context", [of_best_peer(1.0)], context::create),
            #[cfg(feature = "corosensei")]
            peer("corosensei", corosensei::create),
        ],
    }
}

fn yields(tasks: u64) -> Workload {
    let (name, budgets) = match tasks {
        2 => ("yield-2", vec![]),
        100 => ("yield-100", vec![]),
        1_000 => ("yield-1000", vec![of_best_peer(0.3)]),
        _ => ("yield-10000", vec![]),
    };
    Workload {
        name,
        operation: "one yield",
        metrics: WALL,
        full: Load::new(tasks, 5_000_000 / tasks),
        quick: Load::new(tasks, 3),
        memory_bytes_min: 0,
        on_all_cpus: false,
        sides: vec![
            own("sinew", budgets, sinew::yields),
            #[cfg(feature = "peers")]
            peer("tokio", tokio::yields),
            #[cfg(feature = "peers")]
            peer("may", may::yields),
            #[cfg(feature = "peers")]
            peer("smol", smol::yields),
        ],
    }
}

fn spawn() -> Workload {
    Workload {
        name: "spawn",
        operation: "spawn an empty task among 1,000,000; join it once all are spawned",
        metrics: WALL,
        full: Load::new(1_000_000, 1),
        quick: Load::new(3_000, 1),
        memory_bytes_min: 0,
        on_all_cpus: false,
        sides: vec![
            own("sinew", [of_best_peer(0.4)], sinew::spawn),
            #[cfg(feature = "peers")]
            peer("tokio", tokio::spawn),
            #[cfg(feature = "peers")]
            peer("may, 10,000 at a time", may::spawn),
            #[cfg(feature = "peers")]
            peer("smol", smol::spawn),
        ],
    }
}

fn spawn_join() -> Workload {
    Workload {
        name: "spawn-join",
        operation: "spawn an empty task, join it, and again",
        metrics: WALL,
        full: Load::new(1_000_000, 1),
        quick: Load::new(1_000, 1),
        memory_bytes_min: 0,
        on_all_cpus: false,
        sides: vec![
            own("sinew", [of_best_peer(0.3)], sinew::spawn_join),
            #[cfg(feature = "peers")]
            peer("tokio", tokio::spawn_join),
            #[cfg(feature = "peers")]
            peer("may", may::spawn_join),
            #[cfg(feature = "peers")]
            peer("smol", smol::spawn_join),
        ],
    }
}

fn pingpong() -> Workload {
    Workload {
        name: "pingpong",
        operation: "a value there and back over two channels of capacity 0 (sinew), 1 or unbounded (may)",
        metrics: WALL,
        full: Load::new(1, 1_000_000),
        quick: Load::new(1, 1_000),
        memory_bytes_min: 0,
        on_all_cpus: false,
        sides: vec![
            own("sinew", [of_best_peer(0.5)], sinew::pingpong),
            #[cfg(feature = "peers")]
            peer("tokio", tokio::pingpong),
            #[cfg(feature = "peers")]
            peer("may", may::pingpong),
            #[cfg(feature = "peers")]
            peer("smol", smol::pingpong),
        ],
    }
}

fn channel() -> Workload {
    Workload {
        name: "channel",
        operation: "a message from one of 4 producers to one of 4 consumers, at most 128 on the way",
        metrics: WALL,
        full: Load::new(4, 1_000_000),
        quick: Load::new(4, 1_000),
        memory_bytes_min: 0,
        on_all_cpus: false,
        sides: vec![
            own("sinew", [of_best_peer(0.8)], sinew::channel),
            #[cfg(feature = "peers")]
            peer("tokio, async-channel", tokio::channel),
            #[cfg(feature = "peers")]
            peer("may, semaphore and mpmc", may::channel),
            #[cfg(feature = "peers")]
            peer("smol", smol::channel),
        ],
    }
}

fn mutex() -> Workload {
    Workload {
        name: "mutex",
        operation: "lock, add one, unlock, 1,000 in contention; every 16th yields while it holds",
        metrics: WALL,
        full: Load::new(1_000, 1_000),
        quick: Load::new(1_000, 16),
        memory_bytes_min: 0,
        on_all_cpus: false,
        sides: vec![
            own("sinew", [of_best_peer(0.8)], sinew::mutex),
            #[cfg(feature = "peers")]
            peer("tokio", tokio::mutex),
            #[cfg(feature = "peers")]
            peer("may", may::mutex),
            #[cfg(feature = "peers")]
            peer("smol", smol::mutex),
        ],
    }
}

fn promise() -> Workload {
    Workload {
        name: "promise",
        operation: "make a promise, complete it, read it and drop both sides",
        metrics: WALL,
        full: Load::new(1, 5_000_000),
        quick: Load::new(1, 1_000),
        memory_bytes_min: 0,
        on_all_cpus: false,
        sides: vec![
            own("sinew", [of_best_peer(1.0)], sinew::promise),
            #[cfg(feature = "peers")]
            peer("tokio, oneshot", tokio::promise),
        ],
    }
}

fn pool() -> Workload {
    Workload {
        name: "pool",
        operation: "a job of a microsecond through a pool of two threads, 1,024 on their way at most; on all CPUs",
        metrics: WALL,
        full: Load::new(1, 1_000_000),
        quick: Load::new(1, 2_000),
        memory_bytes_min: 0,
        on_all_cpus: true,
        sides: vec![
            // 1.1 times as many in the same time.
            own("sinew", [of_best_peer(1.0 / 1.1)], sinew::pool),
            #[cfg(feature = "peers")]
            peer("tokio, spawn_blocking", tokio::pool),
            #[cfg(feature = "peers")]
            peer("crossbeam, a channel before threads", crossbeam::pool),
            #[cfg(feature = "peers")]
            peer("rayon, spawn", rayon::pool),
            #[cfg(feature = "peers")]
            peer("threadpool", threadpool::pool),
        ],
    }
}

fn group() -> Workload {
    Workload {
        name: "group",
        operation: "take a future into a group of eight places, and complete it; the promise is made before and dropped after",
        metrics: CPU,
        full: Load::new(1, 5_000_000),
        quick: Load::new(1, 1_000),
        memory_bytes_min: 0,
        on_all_cpus: false,
        sides: vec![own("sinew", [most(0, 150.0)], sinew::group)],
    }
}

fn timers() -> Workload {
    Workload {
        name: "timers",
        operation: "a task that sleeps below 2 s among 100,000; every other one is cancelled",
        metrics: CPU,
        full: Load::new(100_000, 1),
        quick: Load::new(100, 1),
        memory_bytes_min: 1 << 30,
        on_all_cpus: false,
        sides: vec![
            own("sinew", [of_best_peer(0.3)], sinew::timers),
            #[cfg(feature = "peers")]
            peer("tokio", tokio::timers),
        ],
    }
}

fn timer_wheel() -> Workload {
    Workload {
        name: "timer-wheel",
        operation: "a bare timer below 2 s among 1,000,000, looked at every millisecond; every other one is cancelled",
        metrics: CPU,
        full: Load::new(1_000_000, 1),
        quick: Load::new(1_000, 1),
        memory_bytes_min: 1 << 29,
        on_all_cpus: false,
        sides: vec![
            own("sinew-core", [of_best_peer(0.3)], sinew::timer_wheel),
            #[cfg(feature = "peers")]
            peer("tokio", tokio::timer_wheel),
        ],
    }
}

fn sleepers() -> Workload {
    Workload {
        name: "sleepers",
        operation: "spawn a task and have it fall asleep, 1,000,000 asleep at once; guards on",
        metrics: SLEEPERS,
        full: Load::new(1_000_000, 1),
        quick: Load::new(2_000, 1),
        memory_bytes_min: 6 << 30,
        on_all_cpus: false,
        sides: vec![
            own("sinew", [most(0, 3_000.0), most(1, 4.6)], sinew::sleepers),
            #[cfg(feature = "peers")]
            peer("tokio", tokio::sleepers),
        ],
    }
}

fn echo_over(connections: u64) -> Workload {
    let (name, quick) = match connections {
        64 => ("echo-64", Load::new(64, 4)),
        _ => ("echo-1024", Load::new(1_024, 2)),
    };
    Workload {
        name,
        operation: "one request and reply of 64 bytes over loopback",
        metrics: SERVER_CPU,
        full: Load::new(connections, 204_800 / connections),
        quick,
        memory_bytes_min: 0,
        // A server and its client pin themselves.
        on_all_cpus: true,
        sides: vec![
            own(
                "sinew",
                [
                    of_best_peer(1.0),
                    Budget {
                        metric: 0,
                        limit: Limit::Of(echo::BARE_LOOP, 1.05),
                    },
                ],
                |load| echo::measure("sinew", load),
            ),
            #[cfg(feature = "peers")]
            peer("tokio", |load| echo::measure("tokio", load)),
            yardstick(echo::BARE_LOOP, |load| echo::measure(echo::BARE_LOOP, load)),
        ],
    }
}
