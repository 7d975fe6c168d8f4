//! crossbeam-channel, between threads. A bounded channel of jobs before some is what a small pool is often made of: it has no result of a job's
//! own; they come through one channel without bound, in any order, and its submitter waits for room only.

use std::thread;

use crossbeam_channel::{bounded, unbounded};

use super::{CHANNEL_CAPACITY, CONSUMERS, POOL_THREADS, POOL_WINDOW, count, job};
use crate::meter::{Meter, Sample};
use crate::workload::Load;

type Job = Box<dyn FnOnce() + Send>;

#[expect(clippy::unnecessary_wraps, reason = "as every side")]
pub(crate) fn pool(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let (jobs, taken) = bounded::<Job>(POOL_WINDOW);
    let (say, said) = unbounded();
    for _ in 0..POOL_THREADS {
        let taken = taken.clone();
        thread::spawn(move || taken.iter().for_each(|job| job()));
    }
    for round in 0..load.operations() {
        let say = say.clone();
        let sent = jobs.send(Box::new(move || _ = say.send(job(round))));
        sent.expect("the threads are there");
    }
    drop((jobs, say));
    let done = said.iter().map(count).sum();
    Ok(meter.wall_and_cpu(done))
}

/// Threads, as there are no tasks here: 4 send and 4 receive.
#[expect(clippy::unnecessary_wraps, reason = "as every side")]
pub(crate) fn channel(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let (sender, receiver) = bounded::<u64>(CHANNEL_CAPACITY);
    for _ in 0..load.tasks {
        let sender = sender.clone();
        thread::spawn(move || {
            for value in 0..load.rounds {
                sender.send(value).expect("consumers stay to the end");
            }
        });
    }
    drop(sender);
    let consume = |_| {
        let receiver = receiver.clone();
        thread::spawn(move || receiver.iter().map(|_| 1).sum::<u64>())
    };
    let consumers: Vec<_> = (0..CONSUMERS).map(consume).collect();
    let done = consumers
        .into_iter()
        .map(|consumer| consumer.join().expect("it returns"))
        .sum();
    Ok(meter.wall(done))
}
