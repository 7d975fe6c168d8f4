//! What goes wrong stays where it is: a coroutine that never yields, and one that panics.

use std::panic::{self, PanicHookInfo};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use sinew::inspect::{self, State};
use sinew::{Builder, Outcome, sleep, spawn_local, yield_now};

use super::figures::grouped;
use super::runner::message;
use super::stage::{ensure, same};
use super::{Check, Failure, Stage};

/// What another thread has seen of a coroutine: its name, its state, and what it waits for.
type Seen = (String, State, &'static str);

/// Another thread lists a scheduler that is kept busy.
pub(super) fn listing(stage: &mut Stage<'_>) -> Check {
    let (spun, [busy, held_up]) = watch_busy()?;
    stage.say(format!(
        "seen from another thread: \"{}\" runs; \"{}\" waits for a {}; the busy one spun {} times \
         without a yield until it was seen",
        busy.0,
        held_up.0,
        held_up.2,
        grouped(spun),
    ));
    let running = ("busy bee".to_owned(), State::Running, "nothing");
    same("the busy one", busy, running)?;
    let sleeping = ("held up".to_owned(), State::Suspended, "sleep");
    same("the one that it holds up", held_up, sleeping)
}

fn watch_busy() -> Result<(u64, [Seen; 2]), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    let watcher = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let seen = told.recv().map(|ids: [u64; 2]| ids.map(see));
            // Whatever came of it, the busy coroutine must end.
            stop.store(true, Ordering::Relaxed);
            seen
        }
    });
    let spun = sinew::run(|| keep_busy(&stop, tell));
    let seen = watcher.join();
    let [busy, held_up] = seen.map_err(|_| Failure::new("the watcher panicked"))??;
    Ok((spun?, [busy?, held_up?]))
}

fn see(id: u64) -> Result<Seen, Failure> {
    let info = inspect::find(id);
    let info = info.ok_or_else(|| Failure::new(format!("coroutine {id} was not listed")))?;
    let name = info.name.as_deref().unwrap_or_default().to_owned();
    Ok((
        name,
        info.state,
        info.wait.map_or("nothing", |wait| wait.what),
    ))
}

fn keep_busy(stop: &Arc<AtomicBool>, tell: mpsc::Sender<[u64; 2]>) -> Result<u64, Failure> {
    let held_up = Builder::new()
        .name("held up")
        .spawn_local(|| sleep(Duration::from_secs(3600)))
        .map_err(|error| Failure::new(error.to_string()))?;
    yield_now()?;
    let stop = Arc::clone(stop);
    let sleeper = held_up.id();
    let busy = Builder::new()
        .name("busy bee")
        .spawn_local(move || {
            let me = sinew::current().map_or(0, |me| me.id());
            let mut spun = 0_u64;
            // If nobody listens, nobody will say stop.
            if tell.send([me, sleeper]).is_ok() {
                while !stop.load(Ordering::Relaxed) {
                    spun += 1;
                    std::hint::spin_loop();
                }
            }
            spun
        })
        .map_err(|error| Failure::new(error.to_string()))?;
    let spun = busy.join()?;
    held_up.cancel("the busy one has been seen");
    held_up.wait()?;
    Ok(spun)
}

/// The payload of the panic that is shown.
const MISHAP: &str = "this panic is part of the tour";

/// One of three panics.
pub(super) fn panic(stage: &mut Stage<'_>) -> Check {
    stage.say("(its message is not printed: the panic hook is quiet about this one)");
    let quiet = QuietHook::set();
    let ended = sinew::run(|| {
        let coroutines = [0, 1, 2].map(|number| {
            spawn_local(move || {
                yield_now()?;
                if number == 1 {
                    panic!("{MISHAP}");
                }
                yield_now()?;
                Ok::<i32, Failure>(number)
            })
        });
        for coroutine in &coroutines {
            coroutine.wait()?;
        }
        let outcomes = coroutines.each_ref().map(|coroutine| coroutine.outcome());
        Ok::<_, Failure>((outcomes, coroutines.map(|coroutine| coroutine.join())))
    });
    drop(quiet);
    let (outcomes, [first, second, third]) = ended?;
    same("the first one's value", first??, 0)?;
    same("the third one's value", third??, 2)?;
    let returned = Some(Outcome::Returned);
    same(
        "the outcomes",
        outcomes,
        [returned, Some(Outcome::Error), returned],
    )?;
    let Err(error) = second else {
        return Err(Failure::new("the second one did not panic"));
    };
    stage.say(format!("the join of the second one: {error}"));
    ensure(error.is_panic(), || format!("it ended otherwise: {error}"))?;
    same(
        "what it panicked with",
        message(&*error.into_panic()),
        MISHAP,
    )
}

type Hook = dyn Fn(&PanicHookInfo<'_>) + Send + Sync;

/// A panic hook that passes on every panic but the tour's own; the former hook is back when this is dropped.
struct QuietHook(Arc<Hook>);

impl QuietHook {
    fn set() -> Self {
        let former: Arc<Hook> = Arc::from(panic::take_hook());
        let hook = Arc::clone(&former);
        panic::set_hook(Box::new(move |info| {
            if info.payload_as_str() != Some(MISHAP) {
                hook(info);
            }
        }));
        Self(former)
    }
}

impl Drop for QuietHook {
    fn drop(&mut self) {
        // A hook cannot be changed by a thread that panics.
        if !thread::panicking() {
            let former = Arc::clone(&self.0);
            panic::set_hook(Box::new(move |info| former(info)));
        }
    }
}
