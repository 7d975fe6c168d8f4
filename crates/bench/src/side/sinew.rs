//! sinew: the typed coroutine, and the scheduler of one thread.
#![expect(unsafe_code, reason = "timers are linked into a bare wheel by address")]

use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::thread::nanosleep;
use rustix::time::Timespec;
use sinew::coroutine::{Coroutine, Step, Suspender, anchor};
use sinew::future::{Promise, SharedFuture};
use sinew::sync::{Mutex, Semaphore, channel};
use sinew::task::{Outcome, TaskGroup, TaskPool};
use sinew::time::Timer;
use sinew::{JoinHandle, Scheduler, SchedulerBuilder, WaitError, spawn_local, yield_now};
use sinew_core::timer::{TimerNode, Wheel};

use super::{
    BURST, CHANNEL_CAPACITY, CONSUMERS, FOR_EVER, PERMITS, POOL_THREADS, POOL_WINDOW, YIELD_EVERY,
    count, delays, job,
};
use crate::machine;
use crate::meter::{Meter, Sample, cpu_time, now, per};
use crate::workload::Load;

/// Joins all and sums what they counted.
fn join_all(handles: Vec<JoinHandle<u64>>) -> u64 {
    handles
        .into_iter()
        .map(|handle| handle.join().expect("a coroutine of a benchmark returns"))
        .sum()
}

fn uncancelled<T>(result: Result<T, WaitError>) -> T {
    result.expect("nothing is cancelled here")
}

pub(crate) fn promise(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = sinew::run(move || {
        let mut done = 0;
        for round in 0..load.operations() {
            let (promise, future) = Promise::new();
            promise.resolve(round).expect("it is pending");
            uncancelled(future.wait());
            done += u64::from(matches!(future.get(), Some(Ok(value)) if *value == round));
        }
        done
    });
    Ok(meter.wall(done))
}

/// Jobs in a pool, submitted by a plain thread, with the same window as the peers have.
pub(crate) fn pool(load: Load) -> Result<Sample, String> {
    let pool = TaskPool::builder()
        .threads(POOL_THREADS)
        .queue_limit(POOL_WINDOW)
        .build()
        .map_err(|error| error.to_string())?;
    let meter = Meter::start();
    let mut window = VecDeque::with_capacity(POOL_WINDOW);
    let mut done = 0;
    for round in 0..load.operations() {
        if window.len() == POOL_WINDOW
            && let Some(oldest) = window.pop_front()
        {
            done += ended(&oldest);
        }
        let submitted = pool.submit(move |_| Outcome::Success(job(round)));
        window.push_back(submitted.map_err(|error| error.to_string())?);
    }
    for rest in window {
        done += ended(&rest);
    }
    Ok(meter.wall_and_cpu(done))
}

fn ended(future: &SharedFuture<u64>) -> u64 {
    uncancelled(future.wait());
    match future.get() {
        Some(Ok(result)) => count(*result),
        _ => 0,
    }
}

/// A promise's future is taken into a group of eight places, and completes there. To make and to drop the promise is another workload's: that
/// is done before and after, in batches.
#[expect(clippy::unnecessary_wraps, reason = "as every side")]
pub(crate) fn group(load: Load) -> Result<Sample, String> {
    const PLACES: usize = 8;
    const BATCH: u64 = 1_000;
    let group = TaskGroup::builder().limit(PLACES).build();
    let mut spent = Duration::ZERO;
    let mut taken = 0;
    while taken < load.operations() {
        let size = (load.operations() - taken).min(BATCH);
        let (mut promises, futures): (VecDeque<_>, Vec<_>) =
            (0..size).map(|_| Promise::<u64>::new()).unzip();
        let mut active = VecDeque::with_capacity(PLACES);
        let begin = cpu_time();
        for future in &futures {
            if active.len() == PLACES {
                complete(active.pop_front());
            }
            group.add(future).expect("there is a place");
            active.extend(promises.pop_front());
        }
        active.into_iter().for_each(|rest| complete(Some(rest)));
        spent += cpu_time().saturating_sub(begin);
        taken += size;
    }
    let done = group.stats().succeeded;
    Ok(Sample {
        done,
        values: vec![per(spent, done)],
    })
}

fn complete(promise: Option<Promise<u64>>) {
    if let Some(promise) = promise {
        promise.resolve(1).expect("it is pending");
    }
}

/// What makes the body of [`resume`] return.
const STOP: u64 = u64::MAX;

/// The typed coroutine, outside of a scheduler.
pub(crate) fn resume(load: Load) -> Result<Sample, String> {
    anchor(|anchor| round_trips(Coroutine::new(anchor, answer), load))
}

/// One that has its own rounding modes.
pub(crate) fn resume_fp_env(load: Load) -> Result<Sample, String> {
    anchor(|anchor| {
        let builder = Coroutine::builder(anchor).fp_env(true);
        let coroutine = builder.build(answer).map_err(|error| error.to_string())?;
        round_trips(coroutine, load)
    })
}

/// Answers each word with the next one, until it is told to stop.
fn answer(suspender: &Suspender<u64, u64>, first: u64) -> u64 {
    let mut word = first;
    while word != STOP {
        word = match suspender.suspend(word ^ 1) {
            Ok(word) => word,
            Err(_) => return 0,
        };
    }
    word
}

#[inline(always)]
fn round_trips(mut coroutine: Coroutine<'_, u64, u64, u64>, load: Load) -> Result<Sample, String> {
    let mut count = 0;
    let meter = Meter::start();
    for word in 0..load.operations() {
        match coroutine.resume(word) {
            Ok(Step::Suspended(answer)) => count += answer ^ word,
            _ => return Err("it ended early".into()),
        }
    }
    let sample = meter.cpu(count);
    match coroutine.resume(STOP) {
        Ok(Step::Done(STOP)) => Ok(sample),
        _ => Err("it did not end".into()),
    }
}

pub(crate) fn create(load: Load) -> Result<Sample, String> {
    anchor(|anchor| {
        let mut count = 0;
        let meter = Meter::start();
        for word in 0..load.operations() {
            let mut coroutine =
                Coroutine::new(anchor, |_: &Suspender<u64, ()>, word: u64| word ^ 1);
            match coroutine.resume(word) {
                Ok(Step::Done(answer)) => count += answer ^ word,
                _ => return Err("it did not return".into()),
            }
        }
        Ok(meter.cpu(count))
    })
}

pub(crate) fn yields(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = sinew::run(|| {
        let spawn = |_| {
            spawn_local(move || {
                let mut count = 0;
                for _ in 0..load.rounds {
                    uncancelled(yield_now());
                    count += 1;
                }
                count
            })
        };
        join_all((0..load.tasks).map(spawn).collect())
    });
    Ok(meter.wall(done))
}

pub(crate) fn spawn(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = sinew::run(|| join_all((0..load.tasks).map(|_| spawn_local(|| 1)).collect()));
    Ok(meter.wall(done))
}

pub(crate) fn spawn_join(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = sinew::run(|| {
        (0..load.tasks)
            .map(|_| spawn_local(|| 1).join().expect("it returns one"))
            .sum()
    });
    Ok(meter.wall(done))
}

pub(crate) fn pingpong(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = sinew::run(|| {
        let (there, from_there) = channel::rendezvous::<u64>();
        let (back, from_back) = channel::rendezvous();
        let ponger = spawn_local(move || {
            let mut count = 0;
            while let Ok(value) = from_there.recv() {
                back.send(value + 1).expect("the pinger waits for it");
                count += 1;
            }
            count
        });
        let pinger = spawn_local(move || {
            let mut value = 0;
            for _ in 0..load.rounds {
                there.send(value).expect("the ponger waits for it");
                value = uncancelled(from_back.recv());
            }
            value
        });
        join_all(vec![pinger]).min(join_all(vec![ponger]))
    });
    Ok(meter.wall(done))
}

pub(crate) fn channel(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = sinew::run(|| {
        let (sender, receiver) = channel::bounded::<u64>(CHANNEL_CAPACITY);
        for _ in 0..load.tasks {
            let sender = sender.clone();
            sinew::go_local(move || {
                for value in 0..load.rounds {
                    sender.send(value).expect("consumers stay to the end");
                }
            });
        }
        drop(sender);
        let consume = |_| {
            let receiver = receiver.clone();
            spawn_local(move || {
                let mut count = 0;
                while receiver.recv().is_ok() {
                    count += 1;
                }
                count
            })
        };
        join_all((0..CONSUMERS).map(consume).collect())
    });
    Ok(meter.wall(done))
}

pub(crate) fn mutex(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = sinew::run(|| {
        let total = Arc::new(Mutex::new(0));
        let contend = |_| {
            let total = total.clone();
            spawn_local(move || {
                for round in 1..=load.rounds {
                    let mut guard = uncancelled(total.lock());
                    *guard += 1;
                    if round % YIELD_EVERY == 0 {
                        uncancelled(yield_now());
                    }
                }
                load.rounds
            })
        };
        let joined = join_all((0..load.tasks).map(contend).collect());
        joined.min(*uncancelled(total.lock()))
    });
    Ok(meter.wall(done))
}

pub(crate) fn semaphore(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = sinew::run(|| {
        let permits = Rc::new(Semaphore::new(PERMITS));
        let contend = |_| {
            let permits = permits.clone();
            spawn_local(move || {
                for round in 1..=load.rounds {
                    let _permit = uncancelled(permits.acquire());
                    if round % YIELD_EVERY == 0 {
                        uncancelled(yield_now());
                    }
                }
                load.rounds
            })
        };
        join_all((0..load.tasks).map(contend).collect())
    });
    Ok(meter.wall(done))
}

/// What each receiver gets is counted; one that lags would be short of it.
pub(crate) fn broadcast(load: Load) -> Result<Sample, String> {
    let meter = Meter::start();
    let done = sinew::run(|| {
        let (sender, receiver) = channel::broadcast::broadcast::<u64>(CHANNEL_CAPACITY);
        let listen = |_| {
            let receiver = receiver.clone();
            spawn_local(move || {
                let mut count = 0;
                while receiver.recv().is_ok() {
                    count += 1;
                }
                count
            })
        };
        let listeners: Vec<_> = (0..load.tasks).map(listen).collect();
        drop(receiver);
        for value in 1..=load.rounds {
            sender.send(value).expect("receivers stay to the end");
            if value % BURST == 0 {
                uncancelled(yield_now());
            }
        }
        drop(sender);
        join_all(listeners)
    });
    Ok(meter.wall(done))
}

pub(crate) fn naps(load: Load) -> Result<Sample, String> {
    let mut delays = delays(load.tasks);
    let meter = Meter::start();
    let done = sinew::run(|| {
        let asleep = Rc::new(Cell::new(0));
        let arm = |_| {
            let (asleep, delay) = (asleep.clone(), delays.draw());
            spawn_local(move || {
                asleep.set(asleep.get() + 1);
                match sinew::sleep(delay) {
                    Ok(()) | Err(WaitError::Cancelled) => 1,
                    Err(_) => 0,
                }
            })
        };
        let handles: Vec<_> = (0..load.tasks).map(arm).collect();
        while asleep.get() < load.tasks {
            uncancelled(yield_now());
        }
        for handle in handles.iter().step_by(2) {
            handle.cancel("");
        }
        join_all(handles)
    });
    Ok(meter.cpu(done))
}

/// Timers without coroutines: each has a callback that counts.
pub(crate) fn timers(load: Load) -> Result<Sample, String> {
    timers_by(Scheduler::builder(), load)
}

/// The same where timers end at whole milliseconds, as tokio's do.
pub(crate) fn timers_coarse(load: Load) -> Result<Sample, String> {
    let builder = Scheduler::builder().timer_slack(Duration::from_millis(1));
    timers_by(builder, load)
}

fn timers_by(builder: SchedulerBuilder, load: Load) -> Result<Sample, String> {
    let mut delays = delays(load.tasks);
    let meter = Meter::start();
    let done = builder.run(|| {
        let fired = Rc::new(Cell::new(0));
        let arm = |_| {
            let fired = fired.clone();
            Some(Timer::after(delays.draw(), move || {
                fired.set(fired.get() + 1);
            }))
        };
        let mut timers: Vec<_> = (0..load.tasks).map(arm).collect();
        let mut cancelled = 0;
        for timer in timers.iter_mut().step_by(2) {
            cancelled += timer.take().map_or(0, |timer| u64::from(timer.cancel()));
        }
        while fired.get() + cancelled < load.tasks {
            uncancelled(sinew::sleep(Duration::from_millis(1)));
        }
        fired.get() + cancelled
    });
    Ok(meter.cpu(done))
}

pub(crate) fn timer_wheel(load: Load) -> Result<Sample, String> {
    let mut delays = delays(load.tasks);
    let meter = Meter::start();
    let start = now();
    let now_ns = || start.elapsed().as_nanos() as u64;
    let nodes: Vec<TimerNode> = (0..load.tasks).map(|_| TimerNode::new()).collect();
    let mut wheel = Wheel::new(0);
    for node in &nodes {
        let deadline_ns = now_ns() + delays.draw().as_nanos() as u64;
        wheel.reserve();
        // SAFETY: not linked, never moved, and dropped after the wheel has given it up below.
        unsafe { wheel.insert(NonNull::from(node), deadline_ns) };
    }
    let mut ended = 0;
    for node in nodes.iter().step_by(2) {
        // SAFETY: of this wheel.
        ended += u64::from(unsafe { wheel.remove(NonNull::from(node)) });
    }
    while !wheel.is_empty() {
        while wheel.pop_due(now_ns()).is_some() {
            ended += 1;
        }
        millisecond();
    }
    Ok(meter.cpu(ended))
}

/// Waits as long as the other side's clock ticks.
fn millisecond() {
    let time = Timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    // Interrupted or not, the clock is read afterwards.
    let _slept = nanosleep(&time);
}

pub(crate) fn sleepers(load: Load) -> Result<Sample, String> {
    let (done, mut sample, peak) = sinew::run(|| {
        let asleep = Rc::new(Cell::new(0));
        let meter = Meter::start();
        let lull = |_| {
            let asleep = asleep.clone();
            spawn_local(move || {
                asleep.set(asleep.get() + 1);
                u64::from(sinew::sleep(FOR_EVER) == Err(WaitError::Cancelled))
            })
        };
        let handles: Vec<_> = (0..load.tasks).map(lull).collect();
        while asleep.get() < load.tasks {
            uncancelled(yield_now());
        }
        let sample = meter.wall(asleep.get());
        let peak = machine::peak_gib();
        for handle in &handles {
            handle.cancel("");
        }
        (join_all(handles), sample, peak)
    });
    sample.done = done;
    sample.values.push(peak);
    Ok(sample)
}
