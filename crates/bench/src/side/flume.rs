//! flume, between threads.

use std::thread;

use flume::bounded;

use super::{CHANNEL_CAPACITY, CONSUMERS};
use crate::meter::{Meter, Sample};
use crate::workload::Load;

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
