//! Cycles of executors whose threads wait for each other.
//!
//! Owns: nothing. Any thread. Why what is found is so is told in `scheduler::crew`.

use super::{Cycle, Member};
use crate::inspect::Wait;
use crate::scheduler::crew::{Still, standing_still};
use crate::sys::clock;

/// The cycles, each thread in one at most: whatever stands still leads into one.
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

/// The first thread of the executor that a thread waits for.
fn next(still: &[Still], at: usize) -> Option<usize> {
    let awaited = still[at].awaited;
    still.iter().position(|other| other.identity == awaited)
}

fn cycle(still: &[Still], path: &[usize]) -> Cycle {
    let members = path.iter().enumerate().map(|(place, &index)| {
        let this = &still[index];
        let next = &still[path[(place + 1) % path.len()]];
        let since = clock::to_instant(this.since_ns);
        Member {
            id: this.thread,
            name: Some(this.crew.thread_name(this.place).into()),
            wait: Wait {
                what: this.kind.name(),
                object: this.awaited,
                owner: Some(next.thread),
                since,
                until: None,
            },
            spawned_at: this.crew.built_at,
            waiting: clock::now().saturating_duration_since(since),
        }
    });
    Cycle {
        members: members.collect(),
    }
}
