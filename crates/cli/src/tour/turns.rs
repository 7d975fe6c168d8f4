//! Whose turn it is: by yielding, and by the clock.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use sinew::{WaitError, sleep_until, spawn_local, yield_now};

use super::figures::grouped;
use super::stage::{ensure, same};
use super::{Check, Failure, Stage};

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

/// Many coroutines sleep until deadlines given in no order.
pub(super) fn timers(stage: &mut Stage<'_>) -> Check {
    let count: usize = stage.choose(100, 10_000);
    let woken = sinew::run(|| {
        // Far enough that all of them sleep before the first deadline.
        let start = sinew::time::now() + Duration::from_millis(50);
        let woken = Rc::new(RefCell::new(Vec::<(Duration, Instant)>::new()));
        let sleepers: Vec<_> = (0..count)
            .map(|number| {
                // Each of them once, in a scattered order: 37 has no factor in common with the counts.
                let after = Duration::from_micros(20) * ((number * 37) % count) as u32;
                let woken = Rc::clone(&woken);
                spawn_local(move || {
                    sleep_until(start + after)?;
                    let late = sinew::time::now() - start;
                    woken.borrow_mut().push((after, start + late));
                    Ok::<(), WaitError>(())
                })
            })
            .collect();
        for sleeper in sleepers {
            sleeper.join()??;
        }
        Ok::<_, Failure>((start, woken.take()))
    });
    let (start, woken) = woken?;
    same("sleepers that woke", woken.len(), count)?;
    let early = woken.iter().filter(|(after, at)| *at < start + *after);
    same("sleepers that woke early", early.count(), 0)?;
    let ordered = woken.is_sorted_by_key(|(after, _)| *after);
    ensure(ordered, || {
        "some woke before others with an earlier deadline".into()
    })?;
    let latest = woken.iter().map(|(after, at)| *at - (start + *after)).max();
    stage.say(format!(
        "{} sleepers, spawned in a scattered order, woke in order; the latest was {:.2} ms late",
        grouped(count as u64),
        latest.unwrap_or_default().as_secs_f64() * 1e3
    ));
    Ok(())
}
