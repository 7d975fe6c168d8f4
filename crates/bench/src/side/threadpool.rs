//! threadpool: jobs on its threads, whose queue is without bound; a window bounds it.

use std::sync::mpsc;

use super::{POOL_THREADS, POOL_WINDOW, count, job};
use crate::meter::{Meter, Sample};
use crate::workload::Load;

#[expect(clippy::unnecessary_wraps, reason = "as every side")]
pub(crate) fn pool(load: Load) -> Result<Sample, String> {
    let pool = threadpool::ThreadPool::new(POOL_THREADS);
    let meter = Meter::start();
    let (say, said) = mpsc::channel();
    let mut done = 0;
    for round in 0..load.operations() {
        if round >= POOL_WINDOW as u64 {
            done += said.recv().map_or(0, count);
        }
        let say = say.clone();
        pool.execute(move || _ = say.send(job(round)));
    }
    drop(say);
    done += said.iter().map(count).sum::<u64>();
    Ok(meter.wall_and_cpu(done))
}
