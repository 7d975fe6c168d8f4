//! A hundred thousand coroutines at once.

use std::fs;

use sinew::go_local;
use sinew::inspect::State;
use sinew::sync::channel::{Receiver, bounded};
use sinew::yield_now;
use sinew_context::stack::{GuardKind, guard_kind};

use super::figures::{bytes, grouped};
use super::stage::{ensure, same};
use super::{Check, Failure, Stage};

/// The kernel's limit of mappings, unless someone has changed it.
const MAPPINGS_USUAL: usize = 65_530;
/// After how many the bar moves.
const BATCH: usize = 1_000;

/// What was seen while all of them were blocked.
struct Seen {
    alive: usize,
    stacks: usize,
    reserved_bytes: usize,
    blocked: usize,
}

/// A chain: each receives from the one before, adds 1, and sends to the one behind.
pub(super) fn crowd(stage: &mut Stage<'_>) -> Check {
    let wanted: usize = stage.choose(1_000, 100_000);
    let count = wanted.min(stacks_max());
    if count < wanted {
        stage.say(format!(
            "(not {} of them: before Linux 6.13 a guard is a mapping, and the sysctl \
             vm.max_map_count limits those)",
            grouped(wanted as u64)
        ));
    }
    let (seen, arrived) = sinew::run(|| chain(stage, count))?;
    let committed = stage.figures.stack_committed_bytes;
    stage.say(format!(
        "{} coroutines were alive, {} of them blocked on a channel, on {} stacks\n\
         the stacks reserve {} of addresses and hold {} of memory: {} each\n\
         0 went in at the front, {} came out at the end",
        grouped(seen.alive as u64),
        grouped(seen.blocked as u64),
        grouped(seen.stacks as u64),
        bytes(seen.reserved_bytes),
        bytes(committed),
        bytes(committed / seen.stacks.max(1)),
        grouped(arrived as u64),
    ));
    same("what came out", arrived, count)?;
    let after = sinew::inspect::stats();
    same("stacks in use afterwards", after.stacks_in_use, 0)
}

fn chain(stage: &mut Stage<'_>, count: usize) -> Result<(Seen, usize), Failure> {
    let bar = stage.bar(count as u64, "coroutines");
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
    let mut blocked = 0;
    sinew::inspect::for_each(|info| {
        let receives = info.wait.is_some_and(|wait| wait.what == "receive");
        blocked += usize::from(receives && info.state == State::Suspended);
    });
    // Fewer than all means that some got no stack; a number put into the chain would not arrive.
    same("how many are blocked on a channel", blocked, count)?;
    // The one that looks is alive too.
    ensure(
        stats.total.alive > count && stats.stacks_in_use > count,
        || {
            format!(
                "only {} are alive, on {} stacks",
                stats.total.alive, stats.stacks_in_use
            )
        },
    )?;
    first.send(0)?;
    let seen = Seen {
        alive: stats.total.alive,
        stacks: stats.stacks_in_use,
        reserved_bytes: stats.stack_reserved_bytes,
        blocked,
    };
    Ok((seen, tail.recv()?))
}

/// How many stacks with guards a process may have.
fn stacks_max() -> usize {
    if guard_kind() != GuardKind::Protected {
        return usize::MAX;
    }
    let mappings = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let mappings: usize = mappings.trim().parse().unwrap_or(MAPPINGS_USUAL);
    // Two for each stack, and some for everything else.
    (mappings / 2).saturating_sub(2_000)
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
