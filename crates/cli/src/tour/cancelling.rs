//! Telling a coroutine to stop.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use sinew::{Outcome, WaitError, confirm_cancel, current, sleep, spawn_local, yield_now};

use super::stage::{ensure, same};
use super::{Check, Failure, Stage};

const HOUR: Duration = Duration::from_secs(3600);
const REASON: &str = "the tour has to go on";

/// Leaves a note when it is dropped.
struct Lamp(Rc<RefCell<Vec<String>>>);

impl Drop for Lamp {
    fn drop(&mut self) {
        self.0.borrow_mut().push("its destructor ran".into());
    }
}

/// A sleeper is cancelled.
pub(super) fn cancel(stage: &mut Stage<'_>) -> Check {
    let events = sinew::run(|| {
        let events = Rc::new(RefCell::new(Vec::new()));
        let sleeper = spawn_local({
            let events = Rc::clone(&events);
            move || doze(&events)
        });
        yield_now()?;
        ensure(!sleeper.is_finished(), || {
            "the sleeper ended by itself".into()
        })?;
        let begun = sinew::time::now();
        sleeper.cancel(REASON);
        sleeper.wait()?;
        let took = sinew::time::now() - begun;
        ensure(took < Duration::from_secs(5), || {
            format!("it took {took:?} to stop")
        })?;
        same("its outcome", sleeper.outcome(), Some(Outcome::Cancelled))?;
        let joined = sleeper.join();
        ensure(joined.is_err_and(|error| error.is_cancelled()), || {
            "its join gave something else than `cancelled`".into()
        })?;
        Ok::<_, Failure>(events.take())
    })?;
    stage.say(format!("the sleeper: {}", events.join(", ")));
    same(
        "what the sleeper noted",
        events,
        [
            "its sleep ended early".to_owned(),
            format!("it was told \"{REASON}\""),
            "its destructor ran".to_owned(),
        ],
    )
}

fn doze(events: &Rc<RefCell<Vec<String>>>) -> Check {
    let _lamp = Lamp(Rc::clone(events));
    same(
        "how the sleep ended",
        sleep(HOUR),
        Err(WaitError::Cancelled),
    )?;
    events.borrow_mut().push("its sleep ended early".into());
    let cause = current().and_then(|me| me.cancel_token().cause());
    let reason = cause.map_or_else(|| "nothing".into(), |cause| cause.reason);
    events
        .borrow_mut()
        .push(format!("it was told \"{reason}\""));
    confirm_cancel()?;
    Ok(())
}
