//! Cycles of executors whose threads all wait for each other.
//!
//! Owns: nothing. Any thread. Why what is found is so is told in `scheduler::crew`.

use super::{Cycle, Member};
use crate::inspect::Wait;
use crate::scheduler::crew::{Still, standing_still};
use crate::sys::clock;

/// The cycles, each crew in one at most: whatever stands still leads into one.
pub(super) fn cycles() -> Vec<Cycle> {
    let still = standing_still();
    let mut seen = vec![false; still.len()];
    let mut found = Vec::new();
    for first in 0..still.len() {
        let mut path = Vec::new();
        let mut at = first;
        while !seen[at] {
            seen[at] = true;
            path.push(at);
            let Some(next) = next(&still, at) else { break };
            at = next;
        }
        if let Some(begin) = path.iter().position(|&index| index == at)
            && next(&still, at).is_some()
        {
            found.push(cycle(&still, &path[begin..]));
        }
    }
    found
}

/// Whom the first thread of a crew waits for.
fn next(still: &[Still], at: usize) -> Option<usize> {
    let awaited = still[at].stops.first()?.awaited;
    still.iter().position(|crew| crew.identity == awaited)
}

fn cycle(still: &[Still], path: &[usize]) -> Cycle {
    let members = path.iter().enumerate().filter_map(|(place, &index)| {
        let Still { crew, stops, .. } = &still[index];
        let stop = stops.first()?;
        let next = &still[path[(place + 1) % path.len()]];
        let since = clock::to_instant(stop.since_ns);
        Some(Member {
            id: stop.thread,
            name: Some(format!("{}-0", crew.name).into()),
            wait: Wait {
                what: stop.kind.name(),
                object: stop.awaited,
                owner: next.stops.first().map(|next| next.thread),
                since,
                until: None,
            },
            spawned_at: crew.built_at,
            waiting: clock::now().saturating_duration_since(since),
        })
    });
    Cycle {
        members: members.collect(),
    }
}
