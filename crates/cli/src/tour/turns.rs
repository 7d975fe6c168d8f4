//! Whose turn it is: by yielding, and by the clock.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use sinew::sync::WaitGroup;
use sinew::{WaitError, sleep_until, spawn_local, yield_now};

use super::figures::grouped;
use super::stage::{ensure, same};
use super::{Check, Failure, Stage};

/// The time between one deadline and the next.
const STEP: Duration = Duration::from_micros(20);
/// The time in which all sleepers fall asleep.
const LEAD: Duration = Duration::from_millis(100);

/// Three coroutines print letters by turns.
pub(super) fn interleaving(stage: &mut Stage<'_>) -> Check {
    let printed = sinew::run(|| {
        let page = Rc::new(RefCell::new(String::new()));
        let writers = ['a', 'b', 'c'].map(|letter| {
            let page = Rc::clone(&page);
            spawn_local(move || {
                for _ in 0..5 {
                    page.borrow_mut().push(letter);
                    yield_now()?;
                }
                Ok::<(), WaitError>(())
            })
        });
        for writer in writers {
            writer.join()??;
        }
        Ok::<String, Failure>(page.take())
    })?;
    stage.say(format!("they printed: {printed}"));
    same("the letters", printed, "abcabcabcabcabc")
}

/// A sleeper that has woken.
struct Woken {
    /// How long after the start it was to wake.
    after: Duration,
    /// Whether it fell asleep before that: on a machine with other things to do, some may not.
    in_time: bool,
    at: Instant,
}

/// Many coroutines sleep until deadlines given in no order.
pub(super) fn timers(stage: &mut Stage<'_>) -> Check {
    let count: usize = stage.choose(100, 10_000);
    let (start, woken) = sinew::run(|| scattered_sleep(count))?;
    same("sleepers that woke", woken.len(), count)?;
    let early = woken.iter().filter(|one| one.at < start + one.after);
    same("sleepers that woke early", early.count(), 0)?;
    let slept: Vec<&Woken> = woken.iter().filter(|one| one.in_time).collect();
    ensure(slept.len() > count / 10, || {
        format!("only {} fell asleep before their deadlines", slept.len())
    })?;
    let is_in_order = |one: &&Woken, next: &&Woken| {
        // Deadlines within a thousandth of each other may be one wake.
        one.after.saturating_sub(next.after) <= (LEAD + next.after) / 1_000
    };
    ensure(slept.is_sorted_by(is_in_order), || {
        "some woke before others with an earlier deadline".into()
    })?;
    let latest = slept.iter().map(|one| one.at - (start + one.after)).max();
    stage.say(format!(
        "{} sleepers, spawned in a scattered order, woke in order; the latest was {:.2} ms late",
        grouped(slept.len() as u64),
        latest.unwrap_or_default().as_secs_f64() * 1e3
    ));
    Ok(())
}

/// The start, and the sleepers in the order of their waking.
fn scattered_sleep(count: usize) -> Result<(Instant, Vec<Woken>), Failure> {
    let woken = Rc::new(RefCell::new(Vec::new()));
    let (gate, start) = (WaitGroup::new(), Rc::new(Cell::new(sinew::time::now())));
    gate.add(1);
    let sleepers: Vec<_> = (0..count)
        .map(|number| {
            // Each of them once, in a scattered order: 37 has no factor in common with the counts.
            let after = STEP * ((number * 37) % count) as u32;
            let (gate, start, woken) = (gate.clone(), Rc::clone(&start), Rc::clone(&woken));
            spawn_local(move || {
                gate.wait()?;
                let deadline = start.get() + after;
                let in_time = sinew::time::now() < deadline;
                sleep_until(deadline)?;
                let at = sinew::time::now();
                woken.borrow_mut().push(Woken { after, in_time, at });
                Ok::<(), WaitError>(())
            })
        })
        .collect();
    // All of them have a stack and wait at the gate; then all of them sleep before the first wakes.
    yield_now()?;
    start.set(sinew::time::now() + LEAD);
    gate.done();
    for sleeper in sleepers {
        sleeper.join()??;
    }
    Ok((start.get(), woken.take()))
}
