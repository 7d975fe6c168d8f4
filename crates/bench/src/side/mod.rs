//! How each runtime does each workload: one file per runtime, one function per workload.
//!
//! What is the same on every side: how many tasks there are and what each does, and that a function returns what was
//! counted to have happened. A task's count is summed when it is joined.

pub(crate) mod context;
#[cfg(feature = "corosensei")]
pub(crate) mod corosensei;
#[cfg(feature = "peers")]
pub(crate) mod crossbeam;
#[cfg(feature = "peers")]
pub(crate) mod flume;
#[cfg(feature = "peers")]
pub(crate) mod foreign;
pub(crate) mod kinds;
#[cfg(feature = "peers")]
pub(crate) mod may;
#[cfg(feature = "peers")]
pub(crate) mod rayon;
pub(crate) mod sinew;
#[cfg(feature = "peers")]
pub(crate) mod smol;
#[cfg(feature = "peers")]
pub(crate) mod threadpool;
#[cfg(feature = "peers")]
pub(crate) mod tokio;
pub(crate) mod yardstick;

use std::time::Duration;

use crate::meter::Delays;

/// How much may be on its way through the channel of the `channel` workload.
const CHANNEL_CAPACITY: usize = 128;
/// How many consumers that channel has.
const CONSUMERS: u64 = 4;
/// How many permits those of the `semaphore` workload contend for.
const PERMITS: usize = 8;
/// After so many values the sender of the `broadcast` workload gives way: fewer than a receiver takes in one turn, so that none lags.
const BURST: u64 = 32;
/// Every so many locks or permits, one is held across a yield.
const YIELD_EVERY: u64 = 16;
/// Timers end before this, or sooner if they are few.
const TIMERS_WITHIN: Duration = Duration::from_secs(2);
/// How long a few timers take, each.
const TIMERS_APART: Duration = Duration::from_micros(20);
/// How many steps a job of the `pool` workload takes. A step is six dependent instructions of one cycle each, so this is a microsecond
/// at 3.24 GHz.
const JOB_STEPS: u32 = 540;
/// Longer than any run takes.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

/// How many threads run the jobs of the `pool` workload.
const POOL_THREADS: usize = 2;
/// How many of its jobs may be on their way.
const POOL_WINDOW: usize = 1_024;

/// A job of about a microsecond: a chain of dependent steps, which no compiler shortens.
#[inline(never)]
fn job(seed: u64) -> u64 {
    let mut x = seed.wrapping_mul(2).wrapping_add(1);
    for _ in 0..JOB_STEPS {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x | 1
}

/// Counts a job that was done; its result is used.
fn count(result: u64) -> u64 {
    std::hint::black_box(result) & 1
}

/// The delays of so many timers.
fn delays(timers: u64) -> Delays {
    let apart = TIMERS_APART.saturating_mul(u32::try_from(timers).unwrap_or(u32::MAX));
    Delays::below(apart.min(TIMERS_WITHIN))
}
