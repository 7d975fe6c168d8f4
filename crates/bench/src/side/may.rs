//! may: stackful coroutines on one worker thread. The thread that asks only waits.
#![expect(
    unsafe_code,
    reason = "may's spawn is unsafe: a body may not rely on thread-locals across a wait"
)]

use std::sync::Once;

use may::coroutine::{self, Builder, JoinHandle, yield_now};
use may::sync::{Mutex, Semphore, mpmc, spsc};
use std::sync::Arc;

use super::{CHANNEL_CAPACITY, CONSUMERS, YIELD_EVERY};
use crate::meter::{Meter, Sample};
use crate::workload::Load;

/// Stack of a coroutine, in words, as `may` counts: 16 KiB.
const STACK_WORDS: usize = 0x800;
/// Stack of a root, in words.
const ROOT_STACK_WORDS: usize = 0x8000;
/// Every stack is two mappings, and the kernel's default limit is 65,530.
const ALIVE_MAX: u64 = 10_000;
/// What ends a consumer of [`channel`].
const STOP: u64 = u64::MAX;

/// Starts may's threads, once in a process.
fn start() -> Result<(), String> {
    static CONFIGURED: Once = Once::new();
    CONFIGURED.call_once(|| {
        may::config()
            .set_workers(1)
            .set_stack_size(STACK_WORDS)
            .set_pool_capacity(1_000);
    });
    run(|| ())
}

fn go<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    // SAFETY: no body here uses a thread-local, and none needs more than its 16 KiB.
    unsafe { coroutine::spawn(body) }
}

fn run<T: Send + 'static>(root: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let builder = Builder::new().stack_size(ROOT_STACK_WORDS);
    // SAFETY: as in `go`; a root has more.
    let spawned = unsafe { builder.spawn(root) };
    let handle = spawned.map_err(|error| error.to_string())?;
    handle.join().map_err(|_panic| "it panicked".into())
}

fn join_all(handles: Vec<JoinHandle<u64>>) -> u64 {
    handles
        .into_iter()
        .map(|handle| handle.join().expect("a coroutine of a benchmark returns"))
        .sum()
}

pub(crate) fn yields(load: Load) -> Result<Sample, String> {
    start()?;
    let meter = Meter::start();
    let done = run(move || {
        let spawn = |_| {
            go(move || {
                let mut count = 0;
                for _ in 0..load.rounds {
                    yield_now();
                    count += 1;
                }
                count
            })
        };
        join_all((0..load.tasks).map(spawn).collect())
    })?;
    Ok(meter.wall(done))
}

pub(crate) fn spawn(load: Load) -> Result<Sample, String> {
    start()?;
    let meter = Meter::start();
    let done = run(move || {
        let mut count = 0;
        let mut left = load.tasks;
        while left > 0 {
            let some = left.min(ALIVE_MAX);
            count += join_all((0..some).map(|_| go(|| 1)).collect());
            left -= some;
        }
        count
    })?;
    Ok(meter.wall(done))
}

pub(crate) fn spawn_join(load: Load) -> Result<Sample, String> {
    start()?;
    let meter = Meter::start();
    let done = run(move || {
        (0..load.tasks)
            .map(|_| go(|| 1).join().expect("it returns one"))
            .sum()
    })?;
    Ok(meter.wall(done))
}

/// `spsc` is may's quickest channel; it is unbounded, but never holds more than one value here.
pub(crate) fn pingpong(load: Load) -> Result<Sample, String> {
    start()?;
    let meter = Meter::start();
    let done = run(move || {
        let (there, from_there) = spsc::channel::<u64>();
        let (back, from_back) = spsc::channel::<u64>();
        let ponger = go(move || {
            let mut count = 0;
            while let Ok(value) = from_there.recv() {
                back.send(value + 1).expect("the pinger waits for it");
                count += 1;
            }
            count
        });
        let pinger = go(move || {
            let mut value = 0;
            for _ in 0..load.rounds {
                there.send(value).expect("the ponger waits for it");
                value = from_back.recv().expect("the ponger answers");
            }
            value
        });
        join_all(vec![pinger]).min(join_all(vec![ponger]))
    })?;
    Ok(meter.wall(done))
}

/// may's channels are unbounded; a semaphore counts the free places.
pub(crate) fn channel(load: Load) -> Result<Sample, String> {
    start()?;
    let meter = Meter::start();
    let done = run(move || {
        let free = Arc::new(Semphore::new(CHANNEL_CAPACITY));
        let (sender, receiver) = mpmc::channel::<u64>();
        let produce = |_| {
            let (free, sender) = (free.clone(), sender.clone());
            go(move || {
                for value in 0..load.rounds {
                    free.wait();
                    sender.send(value).expect("consumers stay to the end");
                }
                load.rounds
            })
        };
        let producers = (0..load.tasks).map(produce).collect();
        let consume = |_| {
            let (free, receiver) = (free.clone(), receiver.clone());
            go(move || {
                let mut count = 0;
                while receiver.recv().expect("the root keeps a sender") != STOP {
                    free.post();
                    count += 1;
                }
                count
            })
        };
        let consumers: Vec<_> = (0..CONSUMERS).map(consume).collect();
        let sent = join_all(producers);
        for _ in 0..CONSUMERS {
            sender.send(STOP).expect("consumers wait for it");
        }
        sent.min(join_all(consumers))
    })?;
    Ok(meter.wall(done))
}

pub(crate) fn mutex(load: Load) -> Result<Sample, String> {
    start()?;
    let meter = Meter::start();
    let done = run(move || {
        let total = Arc::new(Mutex::new(0));
        let contend = |_| {
            let total = total.clone();
            go(move || {
                for round in 1..=load.rounds {
                    let mut guard = total.lock().expect("nobody panics");
                    *guard += 1;
                    if round % YIELD_EVERY == 0 {
                        yield_now();
                    }
                }
                load.rounds
            })
        };
        let joined = join_all((0..load.tasks).map(contend).collect());
        joined.min(*total.lock().expect("nobody panics"))
    })?;
    Ok(meter.wall(done))
}
