//! The three kinds of channels.

use std::cell::RefCell;
use std::rc::Rc;

use sinew::sync::channel::{bounded, rendezvous, unbounded};
use sinew::{WaitError, spawn_local, yield_now};

use super::figures::grouped;
use super::stage::{ensure, same};
use super::{Check, Failure, Stage};

/// How many values the pipeline's channels hold.
const ROOM: usize = 4;

/// All of them.
pub(super) fn channels(stage: &mut Stage<'_>) -> Check {
    let events = sinew::run(meeting)?;
    stage.say(format!("rendezvous: {}", events.join(", ")));
    same(
        "the order of events at the rendezvous",
        events,
        [
            "the sender offers",
            "the receiver comes",
            "it is taken",
            "the send returns",
        ],
    )?;

    let count = stage.choose(100, 100_000);
    let (sum, most) = sinew::run(|| pipeline(count))?;
    stage.say(format!(
        "bounded: {} numbers squared and summed by three coroutines, at most {most} of them in a \
         channel at a time",
        grouped(count)
    ));
    same(
        "the sum of squares",
        sum,
        count * (count + 1) * (2 * count + 1) / 6,
    )?;
    ensure(most <= ROOM, || {
        format!("{most} values in a channel for {ROOM}")
    })?;

    sinew::run(|| drain(count))?;
    stage.say(format!(
        "unbounded: {} sent without a wait, the channel closed, and all of them received in order",
        grouped(count)
    ));
    Ok(())
}

/// A send meets a receiver that comes later.
fn meeting() -> Result<Vec<&'static str>, Failure> {
    let events = Rc::new(RefCell::new(Vec::new()));
    let (sender, receiver) = rendezvous();
    let sending = spawn_local({
        let events = Rc::clone(&events);
        move || {
            events.borrow_mut().push("the sender offers");
            sender.send("a parcel")?;
            events.borrow_mut().push("the send returns");
            Ok::<(), Failure>(())
        }
    });
    // The sender has every chance to go on too early.
    for _ in 0..10 {
        yield_now()?;
    }
    events.borrow_mut().push("the receiver comes");
    let parcel = receiver.recv()?;
    events.borrow_mut().push("it is taken");
    sending.join()??;
    same("what was handed over", parcel, "a parcel")?;
    Ok(events.take())
}

/// One counts, one squares, one sums.
fn pipeline(count: u64) -> Result<(u64, usize), Failure> {
    let (numbers, from_numbers) = bounded(ROOM);
    let (squares, from_squares) = bounded(ROOM);
    let counting = spawn_local(move || (1..=count).try_for_each(|number| numbers.send(number)));
    let squaring = spawn_local(move || {
        let mut most = 0;
        for number in &from_numbers {
            most = most.max(from_numbers.len());
            squares.send(number * number)?;
        }
        Ok::<usize, Failure>(most)
    });
    let mut sum = 0;
    let mut most = 0;
    for square in &from_squares {
        most = most.max(from_squares.len());
        sum += square;
    }
    counting.join()??;
    Ok((sum, most.max(squaring.join()??)))
}

/// What was sent before the closing is received after it.
fn drain(count: u64) -> Check {
    let (sender, receiver) = unbounded();
    for number in 0..count {
        sender.send(number)?;
    }
    same("values held", sender.len() as u64, count)?;
    ensure(sender.close(), || "the channel was closed already".into())?;
    let refused = sender
        .send(count)
        .map_err(|error| (error.value, error.reason));
    same(
        "a send after the closing",
        refused,
        Err::<(), _>((count, WaitError::Closed)),
    )?;
    let received: Vec<u64> = receiver.iter().collect();
    ensure(received.iter().copied().eq(0..count), || {
        "the values came in another order, or not all of them".into()
    })?;
    same(
        "a receive after the last value",
        receiver.recv(),
        Err(WaitError::Closed),
    )
}
