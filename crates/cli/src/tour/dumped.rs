//! A dump of live coroutines, with backtraces.

use std::hint::black_box;
use std::time::Duration;

use sinew::inspect::{Dump, full_dump};
use sinew::{spawn_local, yield_now};

use super::stage::{ensure, same};
use super::{Check, Failure, Stage};

const WAITERS: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(30);

/// Many wait at the same place: the dump has it once.
pub(super) fn dump(stage: &mut Stage<'_>) -> Check {
    let dump = sinew::run(|| {
        let waiters: Vec<_> = (0..WAITERS)
            .map(|_| spawn_local(wait_for_a_letter))
            .collect();
        yield_now()?;
        let dump = full_dump(PATIENCE);
        for waiter in waiters {
            waiter.cancel("the dump is made");
        }
        Ok::<_, Failure>(dump)
    })?;
    let place = place_of(&dump)?;
    stage.say(format!("{WAITERS} wait in {place}"));
    ensure(place.contains("dumped.rs:"), || {
        format!("the file and the line are missing: {place}")
    })
}

/// The frame of the waiters that is this file's own.
fn place_of(dump: &Dump) -> Result<String, Failure> {
    for group in dump.groups() {
        let frames = group.backtrace().map_or(&[][..], |trace| trace.frames());
        let own = frames.iter().find(|frame| {
            let name = frame.name.as_deref();
            name.is_some_and(|name| name.ends_with("wait_for_a_letter"))
        });
        if let Some(own) = own {
            same("how many wait there", group.members().len(), WAITERS)?;
            return Ok(own.to_string());
        }
    }
    Err(Failure::new(
        "no backtrace leads through the waiting function",
    ))
}

#[inline(never)]
fn wait_for_a_letter() {
    // The cancel ends it. What comes after the call keeps this frame in place.
    black_box(sinew::park().is_err());
}
