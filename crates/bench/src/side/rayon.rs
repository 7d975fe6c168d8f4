//! rayon: tasks spawned on its pool, whose queue is without bound; a window bounds it.

use std::sync::mpsc;

use super::{POOL_THREADS, POOL_WINDOW, count, job};
use crate::meter::{Meter, Sample};
use crate::workload::Load;

pub(crate) fn pool(load: Load) -> Result<Sample, String> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(POOL_THREADS)
        .build()
        .map_err(|error| error.to_string())?;
    let meter = Meter::start();
    let (say, said) = mpsc::channel();
    let mut done = 0;
    for round in 0..load.operations() {
        if round >= POOL_WINDOW as u64 {
            done += said.recv().map_or(0, count);
        }
        let say = say.clone();
        pool.spawn(move || _ = say.send(job(round)));
    }
    drop(say);
    done += said.iter().map(count).sum::<u64>();
    Ok(meter.wall_and_cpu(done))
}
