//! The table of workloads, their sides and their budgets.
//!
//! Owns: names, sizes and limits. What a side does is in [`crate::side`], [`crate::echo`] and
//! [`crate::http`].

use crate::meter::Sample;
use crate::server::BARE_LOOP;
#[cfg(feature = "corosensei")]
use crate::side::corosensei;
use crate::side::{context, kinds, sinew, yardstick};
#[cfg(feature = "peers")]
use crate::side::{crossbeam, flume, foreign, may, rayon, smol, threadpool, tokio};
use crate::{echo, http};

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

impl Workload {
    /// Whether its sides are servers, which need processes of their own.
    #[must_use]
    pub fn has_server(&self) -> bool {
        self.metrics == SERVER_CPU || self.metrics == RESIDENT
    }
}

const WALL: &[Metric] = &[Metric {
    what: "time",
    unit: "ns",
}];
const WALL_AND_CPU: &[Metric] = &[WALL[0], CPU[0]];
const CPU: &[Metric] = &[Metric {
    what: "CPU time",
    unit: "ns",
}];
const RESIDENT: &[Metric] = &[Metric {
    what: "memory",
    unit: "KiB",
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
    let mut all = of_coroutines();
    all.extend(of_waits());
    all.extend(of_one_thread());
    all.extend([timers(), naps(), sleepers()]);
    all.extend([echo_over(64), echo_over(1_024), idle()]);
    all.extend([http_over(64), http_over(1_024)]);
    all
}

fn of_coroutines() -> Vec<Workload> {
    let mut all = vec![resume(), create()];
    all.extend([yields(2), yields(100), yields(1_000), yields(10_000)]);
    all.extend([spawn(), spawn_join()]);
    all
}

fn of_waits() -> Vec<Workload> {
    let mut all = vec![pingpong(), channel(), mutex()];
    #[cfg(feature = "peers")]
    for workload in &mut all {
        workload.sides.extend(in_other_languages(workload.name));
    }
    all.extend([broadcast(), semaphore(), promise()]);
    all.extend([pool(), group()]);
    all
}

/// The sides of those languages whose compilers are here.
#[cfg(feature = "peers")]
fn in_other_languages(workload: &str) -> Vec<Side> {
    let [go, boost]: [fn(Load) -> Result<Sample, String>; 2] = match workload {
        "pingpong" => [
            |load| foreign::GO.run("pingpong", load),
            |load| foreign::BOOST.run("pingpong", load),
        ],
        "channel" => [
            |load| foreign::GO.run("channel", load),
            |load| foreign::BOOST.run("channel", load),
        ],
        _ => [
            |load| foreign::GO.run("mutex", load),
            |load| foreign::BOOST.run("mutex", load),
        ],
    };
    let mut sides = Vec::new();
    if foreign::GO.is_there() {
        sides.push(peer("Go", go));
    }
    if foreign::BOOST.is_there() {
        sides.push(peer("Boost.Fiber", boost));
    }
    sides
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
            own("sinew::coroutine", [of_best_peer(1.55)], sinew::resume),
            own("sinew::coroutine, fp_env", [], sinew::resume_fp_env),
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
            own("sinew::coroutine", [of_best_peer(1.6)], sinew::create),
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
            #[cfg(feature = "peers")]
            peer("crossbeam, threads", crossbeam::channel),
            #[cfg(feature = "peers")]
            peer("flume, threads", flume::channel),
        ],
    }
}

fn broadcast() -> Workload {
    Workload {
        name: "broadcast",
        operation: "a value got by one of 8 receivers that each get all; 128 are kept, and the sender gives way after 32",
        metrics: WALL,
        full: Load::new(8, 1_000_000),
        quick: Load::new(8, 1_000),
        memory_bytes_min: 0,
        on_all_cpus: false,
        sides: vec![
            own("sinew", [of_best_peer(1.0)], sinew::broadcast),
            #[cfg(feature = "peers")]
            peer("tokio", tokio::broadcasts),
        ],
    }
}

fn semaphore() -> Workload {
    Workload {
        name: "semaphore",
        operation: "take one of 8 permits, give it back, 1,000 in contention; every 16th yields while it holds",
        metrics: WALL,
        full: Load::new(1_000, 1_000),
        quick: Load::new(1_000, 16),
        memory_bytes_min: 0,
        on_all_cpus: false,
        sides: vec![
            own("sinew", [of_best_peer(1.0)], sinew::semaphore),
            #[cfg(feature = "peers")]
            peer("tokio", tokio::semaphore),
            #[cfg(feature = "peers")]
            peer("smol", smol::semaphore),
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

/// What is of one thread beside what is of all threads.
fn of_one_thread() -> Vec<Workload> {
    type Run = fn(Load) -> Result<Sample, String>;
    let both = |name, operation, [local, shared]: [Run; 2], rounds| Workload {
        name,
        operation,
        metrics: CPU,
        full: Load::new(1, rounds),
        quick: Load::new(1, 1_000),
        memory_bytes_min: 0,
        on_all_cpus: false,
        sides: vec![
            own(
                LOCAL,
                [Budget {
                    metric: 0,
                    limit: Limit::Of(SHARED, 0.5),
                }],
                local,
            ),
            own(SHARED, [], shared),
        ],
    };
    vec![
        both(
            "local-mutex",
            "lock and unlock a free mutex",
            [kinds::local_mutex, kinds::shared_mutex],
            20_000_000,
        ),
        both(
            "local-rwlock",
            "lock to read, and unlock, a free lock",
            [kinds::local_rwlock, kinds::shared_rwlock],
            20_000_000,
        ),
        both(
            "local-semaphore",
            "take a permit that is there and give it back",
            [kinds::local_semaphore, kinds::shared_semaphore],
            20_000_000,
        ),
        both(
            "local-event",
            "set an event and take the signal",
            [kinds::local_event, kinds::shared_event],
            20_000_000,
        ),
        both(
            "local-channel",
            "a value into a buffer of one and out again",
            [kinds::local_channel, kinds::shared_channel],
            20_000_000,
        ),
        both(
            "local-pingpong",
            "a value there and back over two rendezvous",
            [kinds::local_pingpong, kinds::shared_pingpong],
            2_000_000,
        ),
        both(
            "local-signals",
            "a signal there and back by two events",
            [kinds::local_signals, kinds::shared_signals],
            2_000_000,
        ),
    ]
}

/// What the sides of [`of_one_thread`] are called.
const LOCAL: &str = "sinew::sync::local";
const SHARED: &str = "sinew::sync";

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
        metrics: WALL_AND_CPU,
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
            yardstick("two threads without a queue", yardstick::jobs),
            yardstick("the submitting thread alone", yardstick::jobs_alone),
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
        operation: "arm a bare timer below 2 s, among 1,000,000, and have it fire; every other one is cancelled; looked at every millisecond (tokio's clock \
                    ticks by 1 ms; ours is finer unless it is told to do the same)",
        metrics: CPU,
        full: Load::new(1_000_000, 1),
        quick: Load::new(1_000, 1),
        memory_bytes_min: 1 << 29,
        on_all_cpus: false,
        sides: vec![
            own("sinew", [], sinew::timers),
            own(
                "sinew, slack of 1 ms as tokio's",
                [of_best_peer(0.3)],
                sinew::timers_coarse,
            ),
            own("sinew-core, the wheel alone", [], sinew::timer_wheel),
            #[cfg(feature = "peers")]
            peer("tokio", tokio::timers),
        ],
    }
}

fn naps() -> Workload {
    Workload {
        name: "naps",
        operation: "spawn a task that sleeps below 2 s, 100,000 asleep at once; every other one is cancelled (sinew: with a stack for each)",
        metrics: CPU,
        full: Load::new(100_000, 1),
        quick: Load::new(100, 1),
        memory_bytes_min: 1 << 30,
        on_all_cpus: false,
        sides: vec![
            own("sinew", [], sinew::naps),
            #[cfg(feature = "peers")]
            peer("tokio", tokio::naps),
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
                        limit: Limit::Of(BARE_LOOP, 1.05),
                    },
                ],
                |load| echo::measure("sinew", load),
            ),
            #[cfg(feature = "peers")]
            peer("tokio", |load| echo::measure("tokio", load)),
            #[cfg(feature = "peers")]
            peer("may", |load| echo::measure("may", load)),
            yardstick(BARE_LOOP, |load| echo::measure(BARE_LOOP, load)),
        ],
    }
}

fn idle() -> Workload {
    Workload {
        name: "idle",
        operation: "hold a connection that has had one request, of 8,000; resident memory of the server",
        metrics: RESIDENT,
        full: Load::new(8_000, 1),
        quick: Load::new(200, 1),
        memory_bytes_min: 1 << 29,
        // A server and its client pin themselves.
        on_all_cpus: true,
        sides: vec![
            own(
                "sinew",
                [
                    most(0, 4.6),
                    Budget {
                        metric: 0,
                        limit: Limit::Of("may", 1.0),
                    },
                ],
                |load| echo::measure_idle("sinew", load),
            ),
            #[cfg(feature = "peers")]
            peer("tokio", |load| echo::measure_idle("tokio", load)),
            #[cfg(feature = "peers")]
            peer("may", |load| echo::measure_idle("may", load)),
        ],
    }
}

fn http_over(connections: u64) -> Workload {
    let (name, quick) = match connections {
        64 => ("http-64", Load::new(64, 4)),
        _ => ("http-1024", Load::new(1_024, 2)),
    };
    Workload {
        name,
        operation: "one HTTP request and its reply of 13 bytes of text over loopback",
        metrics: SERVER_CPU,
        full: Load::new(connections, 204_800 / connections),
        quick,
        memory_bytes_min: 0,
        // A server and its client pin themselves.
        on_all_cpus: true,
        sides: vec![
            own("sinew", [of_best_peer(0.9)], |load| {
                http::measure("sinew", load)
            }),
            #[cfg(feature = "peers")]
            peer("hyper on tokio", |load| {
                http::measure("hyper on tokio", load)
            }),
            #[cfg(feature = "peers")]
            peer("may_minihttp", |load| http::measure("may_minihttp", load)),
            yardstick(BARE_LOOP, |load| http::measure(BARE_LOOP, load)),
        ],
    }
}
