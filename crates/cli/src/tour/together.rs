//! Coroutines that share something, and one that waits for many.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use sinew::sync::{Mutex, WaitGroup};
use sinew::{go_local, sleep, spawn_local, yield_now};

use super::figures::grouped;
use super::stage::{ensure, same};
use super::{Check, Failure, Stage};

const WORKERS: u64 = 10;

/// Read, yield, write: with a lock around it, and without.
pub(super) fn mutex(stage: &mut Stage<'_>) -> Check {
    let rounds: u64 = stage.choose(10, 1_000);
    let (careless, careful) = sinew::run(|| {
        let cell = Rc::new(Cell::new(0));
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let cell = Rc::clone(&cell);
                spawn_local(move || {
                    for _ in 0..rounds {
                        let seen = cell.get();
                        yield_now()?;
                        cell.set(seen + 1);
                    }
                    Ok::<(), Failure>(())
                })
            })
            .collect();
        for worker in workers {
            worker.join()??;
        }
        let total = Arc::new(Mutex::new(0));
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let total = Arc::clone(&total);
                spawn_local(move || {
                    for _ in 0..rounds {
                        let mut total = total.lock()?;
                        let seen = *total;
                        yield_now()?;
                        *total = seen + 1;
                    }
                    Ok::<(), Failure>(())
                })
            })
            .collect();
        for worker in workers {
            worker.join()??;
        }
        let careful = *total.lock()?;
        Ok::<(u64, u64), Failure>((cell.get(), careful))
    })?;
    stage.say(format!(
        "{WORKERS} coroutines add 1 to a number {} times each: read it, yield, write it back\n\
         without the lock {} is what is left of {}, with it {}",
        grouped(rounds),
        grouped(careless),
        grouped(WORKERS * rounds),
        grouped(careful)
    ));
    same("the number behind the lock", careful, WORKERS * rounds)?;
    ensure(careless < careful, || {
        "nothing was lost without the lock either, so this has shown nothing".into()
    })
}

/// The wait ends with the last of many.
pub(super) fn wait_group(stage: &mut Stage<'_>) -> Check {
    let count: usize = stage.choose(50, 5_000);
    let done = sinew::run(|| {
        let group = WaitGroup::new();
        let done = Rc::new(Cell::new(0));
        group.add(count);
        for number in 0..count {
            let (group, done) = (group.clone(), Rc::clone(&done));
            go_local(move || {
                sleep(Duration::from_micros((number * 7 % 50) as u64 * 100))?;
                done.set(done.get() + 1);
                group.done();
                Ok::<(), sinew::WaitError>(())
            });
        }
        ensure(!group.try_wait(), || "the group was empty at once".into())?;
        group.wait()?;
        Ok::<usize, Failure>(done.get())
    })?;
    stage.say(format!(
        "{} of {} were done when the wait returned",
        grouped(done as u64),
        grouped(count as u64)
    ));
    same("how many were done", done, count)
}
