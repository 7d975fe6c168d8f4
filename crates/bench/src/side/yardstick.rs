//! What the least possible costs.

use std::hint::black_box;
use std::thread;

use super::{POOL_THREADS, count, job};
use crate::meter::{Meter, Sample};
use crate::workload::Load;

/// Calls a function that the compiler does not see through, a word each way.
pub(crate) fn call(load: Load) -> Result<Sample, String> {
    let callee: fn(u64) -> u64 = black_box(flip);
    let mut count = 0;
    let meter = Meter::start();
    for word in 0..load.operations() {
        count += callee(word) ^ word;
    }
    Ok(meter.cpu(count))
}

/// Threads that each run their share of the jobs: what is left of a pool without its queue, its submitter and its results.
pub(crate) fn jobs(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let threads = POOL_THREADS as u64;
    let share = move |first| {
        move || {
            (first..load.operations())
                .step_by(POOL_THREADS)
                .map(|round| count(job(round)))
                .sum::<u64>()
        }
    };
    let running: Vec<_> = (0..threads)
        .map(|first| thread::spawn(share(first)))
        .collect();
    let mut done = 0;
    for thread in running {
        done += thread.join().map_err(|_| "a thread has panicked")?;
    }
    Ok(meter.wall_and_cpu(done))
}

/// One thread that makes and calls the jobs itself: a box for each, and the job.
#[expect(clippy::unnecessary_wraps, reason = "as every side")]
pub(crate) fn jobs_alone(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let mut done = 0;
    for round in 0..load.operations() {
        let job: Box<dyn FnOnce() -> u64> = Box::new(move || job(round));
        done += count(black_box(job)());
    }
    Ok(meter.wall_and_cpu(done))
}

#[inline(never)]
fn flip(word: u64) -> u64 {
    word ^ 1
}
