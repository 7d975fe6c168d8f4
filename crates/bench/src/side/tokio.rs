//! tokio: its `current_thread` runtime. The root of each workload is a task, as it is in a program.
#![expect(unsafe_code, reason = "timers are pinned in place, as in a task")]

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, Semaphore, broadcast, mpsc, oneshot};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Sleep, sleep};

use super::{
    BURST, CHANNEL_CAPACITY, CONSUMERS, FOR_EVER, PERMITS, POOL_THREADS, POOL_WINDOW, YIELD_EVERY,
    count, delays, job,
};
use crate::machine;
use crate::meter::{Meter, Sample};
use crate::workload::Load;

pub(crate) fn runtime() -> Result<Runtime, String> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
}

/// Runs the root as a task.
fn run<F>(root: F) -> Result<F::Output, String>
where
    F: Future<Output: Send> + Send + 'static,
{
    let runtime = runtime()?;
    runtime
        .block_on(async { tokio::spawn(root).await })
        .map_err(|error| error.to_string())
}

async fn join_all(handles: Vec<JoinHandle<u64>>) -> u64 {
    let mut count = 0;
    for handle in handles {
        count += handle.await.expect("a task of a benchmark returns");
    }
    count
}

pub(crate) fn yields(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(async move {
        let spawn = |_| {
            tokio::spawn(async move {
                let mut count = 0;
                for _ in 0..load.rounds {
                    yield_now().await;
                    count += 1;
                }
                count
            })
        };
        join_all((0..load.tasks).map(spawn).collect()).await
    })?;
    Ok(meter.wall(done))
}

pub(crate) fn spawn(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(async move {
        let handles = (0..load.tasks).map(|_| tokio::spawn(async { 1 }));
        join_all(handles.collect()).await
    })?;
    Ok(meter.wall(done))
}

pub(crate) fn spawn_join(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(async move {
        let mut count = 0;
        for _ in 0..load.tasks {
            count += tokio::spawn(async { 1 }).await.expect("it returns one");
        }
        count
    })?;
    Ok(meter.wall(done))
}

pub(crate) fn pingpong(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(async move {
        let (there, mut from_there) = mpsc::channel::<u64>(1);
        let (back, mut from_back) = mpsc::channel(1);
        let ponger = tokio::spawn(async move {
            let mut count = 0;
            while let Some(value) = from_there.recv().await {
                back.send(value + 1).await.expect("the pinger waits for it");
                count += 1;
            }
            count
        });
        let pinger = tokio::spawn(async move {
            let mut value = 0;
            for _ in 0..load.rounds {
                there.send(value).await.expect("the ponger waits for it");
                value = from_back.recv().await.expect("the ponger answers");
            }
            value
        });
        join_all(vec![pinger])
            .await
            .min(join_all(vec![ponger]).await)
    })?;
    Ok(meter.wall(done))
}

/// tokio has no bounded channel with many receivers; async-channel is what its users take.
pub(crate) fn channel(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(async move {
        let (sender, receiver) = async_channel::bounded::<u64>(CHANNEL_CAPACITY);
        for _ in 0..load.tasks {
            let sender = sender.clone();
            tokio::spawn(async move {
                for value in 0..load.rounds {
                    sender.send(value).await.expect("consumers stay to the end");
                }
            });
        }
        drop(sender);
        let consume = |_| {
            let receiver = receiver.clone();
            tokio::spawn(async move {
                let mut count = 0;
                while receiver.recv().await.is_ok() {
                    count += 1;
                }
                count
            })
        };
        join_all((0..CONSUMERS).map(consume).collect()).await
    })?;
    Ok(meter.wall(done))
}

/// Its threads for what blocks, of which there are as many as may run; their queue is without bound, so a window bounds it.
pub(crate) fn pool(load: Load) -> Result<Sample, String> {
    let runtime = Builder::new_current_thread()
        .max_blocking_threads(POOL_THREADS)
        .build()
        .map_err(|error| error.to_string())?;
    let meter = Meter::start();
    let done = runtime.block_on(async move {
        let mut window = VecDeque::with_capacity(POOL_WINDOW);
        let mut done = 0;
        for round in 0..load.operations() {
            if window.len() == POOL_WINDOW
                && let Some(oldest) = window.pop_front()
            {
                done += result(oldest).await;
            }
            window.push_back(tokio::task::spawn_blocking(move || job(round)));
        }
        for rest in window {
            done += result(rest).await;
        }
        done
    });
    Ok(meter.wall_and_cpu(done))
}

async fn result(task: JoinHandle<u64>) -> u64 {
    task.await.map_or(0, count)
}

pub(crate) fn promise(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(async move {
        let mut done = 0;
        for round in 0..load.operations() {
            let (sender, receiver) = oneshot::channel();
            sender.send(round).expect("the receiver is here");
            done += u64::from(receiver.await.is_ok_and(|value| value == round));
        }
        done
    })?;
    Ok(meter.wall(done))
}

pub(crate) fn mutex(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(async move {
        let total = Arc::new(Mutex::new(0));
        let contend = |_| {
            let total = total.clone();
            tokio::spawn(async move {
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
    })?;
    Ok(meter.wall(done))
}

pub(crate) fn semaphore(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(async move {
        let permits = Arc::new(Semaphore::new(PERMITS));
        let contend = |_| {
            let permits = permits.clone();
            tokio::spawn(async move {
                for round in 1..=load.rounds {
                    let _permit = permits.acquire().await.expect("it is never closed");
                    if round % YIELD_EVERY == 0 {
                        yield_now().await;
                    }
                }
                load.rounds
            })
        };
        join_all((0..load.tasks).map(contend).collect()).await
    })?;
    Ok(meter.wall(done))
}

pub(crate) fn broadcasts(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = run(async move {
        let (sender, _) = broadcast::channel::<u64>(CHANNEL_CAPACITY);
        let listen = |_| {
            let mut receiver = sender.subscribe();
            tokio::spawn(async move {
                let mut count = 0;
                while receiver.recv().await.is_ok() {
                    count += 1;
                }
                count
            })
        };
        let listeners: Vec<_> = (0..load.tasks).map(listen).collect();
        for value in 1..=load.rounds {
            sender.send(value).expect("receivers stay to the end");
            if value % BURST == 0 {
                yield_now().await;
            }
        }
        drop(sender);
        join_all(listeners).await
    })?;
    Ok(meter.wall(done))
}

/// Spawns tasks that count themselves and sleep, and returns once all are asleep.
async fn lull(tasks: u64, mut delay: impl FnMut() -> Duration) -> Vec<JoinHandle<()>> {
    let asleep = Arc::new(AtomicU64::new(0));
    let mut handles = Vec::new();
    for _ in 0..tasks {
        let (asleep, delay) = (asleep.clone(), delay());
        handles.push(tokio::spawn(async move {
            asleep.fetch_add(1, Relaxed);
            sleep(delay).await;
        }));
    }
    while asleep.load(Relaxed) < tasks {
        yield_now().await;
    }
    handles
}

/// How many have ended, by themselves or by being aborted.
async fn ended(handles: Vec<JoinHandle<()>>) -> u64 {
    let mut count = 0;
    for handle in handles {
        count += match handle.await {
            Ok(()) => 1,
            Err(error) => u64::from(error.is_cancelled()),
        };
    }
    count
}

pub(crate) fn naps(load: Load) -> Result<Sample, String> {
    let mut delays = delays(load.tasks);
    let meter = Meter::start();
    let done = run(async move {
        let handles = lull(load.tasks, move || delays.draw()).await;
        for handle in handles.iter().step_by(2) {
            handle.abort();
        }
        ended(handles).await
    })?;
    Ok(meter.cpu(done))
}

pub(crate) fn sleepers(load: Load) -> Result<Sample, String> {
    let (done, mut sample, peak) = run(async move {
        let meter = Meter::start();
        let handles = lull(load.tasks, || FOR_EVER).await;
        let sample = meter.wall(load.tasks);
        let peak = machine::peak_gib();
        for handle in &handles {
            handle.abort();
        }
        (ended(handles).await, sample, peak)
    })?;
    sample.done = done;
    sample.values.push(peak);
    Ok(sample)
}

/// Counts its wake-ups.
struct Fired(AtomicU64);

impl Wake for Fired {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Timers without tasks: each is registered by one poll with a waker that counts.
pub(crate) fn timers(load: Load) -> Result<Sample, String> {
    let mut delays = delays(load.tasks);
    let meter = Meter::start();
    // Without its budget the root would be sent to the back of the queue while it arms.
    let done = run(tokio::task::unconstrained(async move {
        let fired = Arc::new(Fired(AtomicU64::new(0)));
        let waker = Waker::from(fired.clone());
        let mut ended = 0;
        let mut timers: Vec<Option<Sleep>> = Vec::new();
        timers.resize_with(load.tasks as usize, || None);
        for slot in &mut timers {
            let timer = slot.insert(sleep(delays.draw()));
            // SAFETY: `timers` is not resized any more, and a slot is only overwritten: its timer is dropped in place.
            let timer = unsafe { Pin::new_unchecked(timer) };
            if let Poll::Ready(()) = timer.poll(&mut Context::from_waker(&waker)) {
                ended += 1;
            }
        }
        for slot in timers.iter_mut().step_by(2) {
            if slot.as_ref().is_some_and(|timer| !timer.is_elapsed()) {
                ended += 1;
            }
            // Dropped in place: what has been pinned does not move.
            *slot = None;
        }
        while fired.0.load(Relaxed) + ended < load.tasks {
            sleep(Duration::from_millis(1)).await;
        }
        fired.0.load(Relaxed) + ended
    }))?;
    Ok(meter.cpu(done))
}
