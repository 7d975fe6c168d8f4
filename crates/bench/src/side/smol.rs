//! smol: `LocalExecutor` of async-executor, with async-channel and async-lock.
//!
//! Its timers belong to async-io, which is not here: workloads of time have no smol side.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

use async_executor::{LocalExecutor, Task};
use async_lock::{Mutex, Semaphore};
use futures_lite::future::{block_on, yield_now};

use super::{CHANNEL_CAPACITY, CONSUMERS, PERMITS, YIELD_EVERY};
use crate::meter::{Meter, Sample};
use crate::workload::Load;

type Executor = Rc<LocalExecutor<'static>>;

/// Runs the root as a task.
fn run<F: Future<Output = u64> + 'static>(root: impl FnOnce(Executor) -> F) -> u64 {
    let executor = Executor::default();
    let task = executor.spawn(root(executor.clone()));
    block_on(executor.run(task))
}

async fn join_all(tasks: Vec<Task<u64>>) -> u64 {
    let mut count = 0;
    for task in tasks {
        count += task.await;
    }
    count
}

pub(crate) fn yields(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(|executor| async move {
        let spawn = |_| {
            executor.spawn(async move {
                let mut count = 0;
                for _ in 0..load.rounds {
                    yield_now().await;
                    count += 1;
                }
                count
            })
        };
        join_all((0..load.tasks).map(spawn).collect()).await
    });
    Ok(meter.wall(done))
}

pub(crate) fn spawn(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(|executor| async move {
        let tasks = (0..load.tasks).map(|_| executor.spawn(async { 1 }));
        join_all(tasks.collect()).await
    });
    Ok(meter.wall(done))
}

pub(crate) fn spawn_join(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(|executor| async move {
        let mut count = 0;
        for _ in 0..load.tasks {
            count += executor.spawn(async { 1 }).await;
        }
        count
    });
    Ok(meter.wall(done))
}

pub(crate) fn pingpong(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(|executor| async move {
        let (there, from_there) = async_channel::bounded::<u64>(1);
        let (back, from_back) = async_channel::bounded(1);
        let ponger = executor.spawn(async move {
            let mut count = 0;
            while let Ok(value) = from_there.recv().await {
                back.send(value + 1).await.expect("the pinger waits for it");
                count += 1;
            }
            count
        });
        let pinger = executor.spawn(async move {
            let mut value = 0;
            for _ in 0..load.rounds {
                there.send(value).await.expect("the ponger waits for it");
                value = from_back.recv().await.expect("the ponger answers");
            }
            value
        });
        pinger.await.min(ponger.await)
    });
    Ok(meter.wall(done))
}

pub(crate) fn channel(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(|executor| async move {
        let (sender, receiver) = async_channel::bounded::<u64>(CHANNEL_CAPACITY);
        for _ in 0..load.tasks {
            let sender = sender.clone();
            let produce = async move {
                for value in 0..load.rounds {
                    sender.send(value).await.expect("consumers stay to the end");
                }
            };
            executor.spawn(produce).detach();
        }
        drop(sender);
        let consume = |_| {
            let receiver = receiver.clone();
            executor.spawn(async move {
                let mut count = 0;
                while receiver.recv().await.is_ok() {
                    count += 1;
                }
                count
            })
        };
        join_all((0..CONSUMERS).map(consume).collect()).await
    });
    Ok(meter.wall(done))
}

pub(crate) fn mutex(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(|executor| async move {
        let total = Arc::new(Mutex::new(0));
        let contend = |_| {
            let total = total.clone();
            executor.spawn(async move {
                for round in 1..=load.rounds {
                    let mut guard = total.lock().await;
                    *guard += 1;
                    if round % YIELD_EVERY == 0 {
                        yield_now().await;
                    }
                }
                load.rounds
            })
        };
        let joined = join_all((0..load.tasks).map(contend).collect()).await;
        joined.min(*total.lock().await)
    });
    Ok(meter.wall(done))
}

pub(crate) fn semaphore(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(|executor| async move {
        let permits = Arc::new(Semaphore::new(PERMITS));
        let contend = |_| {
            let permits = permits.clone();
            executor.spawn(async move {
                for round in 1..=load.rounds {
                    let _permit = permits.acquire().await;
                    if round % YIELD_EVERY == 0 {
                        yield_now().await;
                    }
                }
                load.rounds
            })
        };
        join_all((0..load.tasks).map(contend).collect()).await
    });
    Ok(meter.wall(done))
}
