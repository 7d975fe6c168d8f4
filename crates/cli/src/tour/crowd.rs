//! A hundred thousand coroutines at once.

use sinew::go_local;
use sinew::inspect::State;
use sinew::sync::channel::{Receiver, bounded};
use sinew::yield_now;

use super::figures::{bytes, grouped};
use super::stage::{ensure, same};
use super::{Check, Failure, Stage};

/// After how many the bar moves.
const BATCH: usize = 1_000;

/// A chain: each receives from the one before, adds 1, and sends to the one behind.
pub(super) fn crowd(stage: &mut Stage<'_>) -> Check {
    let count: usize = stage.choose(1_000, 100_000);
    let bar = stage.bar(count as u64, "coroutines");
    let outcome = sinew::run(|| {
        let (first, mut tail) = bounded::<usize>(1);
        for number in 1..=count {
            tail = link(tail);
            if number.is_multiple_of(BATCH) || number == count {
                // They start, and block.
                yield_now()?;
                bar.set_position(number as u64);
            }
        }
        bar.finish_and_clear();
        let stats = stage.figures.look();
        let mut blocked = 0_usize;
        sinew::inspect::for_each(|info| {
            let receives = info.wait.is_some_and(|wait| wait.what == "receive");
            blocked += usize::from(receives && info.state == State::Suspended);
        });
        first.send(0)?;
        Ok::<_, Failure>((stats, blocked, tail.recv()?))
    });
    let (stats, blocked, arrived) = outcome?;
    let committed = stage.figures.stack_committed_bytes;
    stage.say(format!(
        "{} coroutines were alive, {} of them blocked on a channel, on {} stacks\n\
         the stacks reserve {} of addresses and hold {} of memory: {} each\n\
         0 went in at the front, {} came out at the end",
        grouped(stats.total.alive as u64),
        grouped(blocked as u64),
        grouped(stats.stacks_in_use as u64),
        bytes(stats.stack_reserved_bytes),
        bytes(committed),
        bytes(committed / stats.stacks_in_use.max(1)),
        grouped(arrived as u64),
    ));
    same("what came out", arrived, count)?;
    same("how many were blocked on a channel", blocked, count)?;
    ensure(stats.total.alive > count, || {
        format!("only {} were alive", stats.total.alive)
    })?;
    ensure(stats.stacks_in_use > count, || {
        format!("only {} stacks were in use", stats.stacks_in_use)
    })?;
    let after = sinew::inspect::stats();
    same("stacks in use afterwards", after.stacks_in_use, 0)
}

/// One more coroutine behind `before`.
fn link(before: Receiver<usize>) -> Receiver<usize> {
    let (sender, receiver) = bounded(1);
    go_local(move || {
        let number = before.recv()?;
        // The chain is broken only if the tour has given up.
        sender.send(number + 1).map_err(|error| error.reason)
    });
    receiver
}
