//! The proof that a scheduler has come to a standstill for good.
//!
//! Owns: nothing. Thread: the scheduler's, on its own frame, when nothing is ready; its coroutines do not move meanwhile.
//!
//! # What is proven
//!
//! A scheduler stands still for good if each of its coroutines is in one of two sets.
//!
//! *Knotted* is the greatest set of coroutines, of any scheduler, each of which waits without a deadline, in a join, a mutex or
//! a scope, for one in the set. It consists of the cycles and of those who wait for them. Nothing but a cancel ends any of
//! these waits, so they are a deadlock whoever may hold a handle. One thing could make the owner of a mutex be somebody else
//! than who took it: a guard that was handed to other code of the same thread, be it another coroutine, a post, or what
//! runs a scheduler by hand. So the edge from a mutex to its owner counts only if
//! all coroutines of the owner's scheduler are in the set, and it is [sealed](Door::seal): then nobody is left to drop the guard.
//!
//! *Forsaken* coroutines are parked, and nobody has a reference by which they could be unparked or cancelled: no unparker, no
//! handle but one that is consumed by the join that waits for it, no token but their own. With them go those who wait for
//! them in joins, mutexes and scopes and whom nobody could cancel either. All of them are of this scheduler, and it has no
//! handle anywhere by which anything could be posted to it.
//!
//! # What is not
//!
//! A coroutine that waits for an event, a channel, a wait group, a descriptor or a token is never in one of the sets: these things may be
//! reachable from a static, another thread or a signal's handler, and nothing counts who can reach them. Nor is one
//! whose handle merely lies in the frame of another one that sleeps. Such a scheduler may be stuck, but nothing says so.
//!
//! Stopping a coroutine by its number ([`crate::cancel_id`]) is not taken for a way out: numbers can be had from a listing.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use sinew_core::wait::Kind;

use crate::inspect::deadlock::graph::Graph;
use crate::inspect::deadlock::{Cycle, Member, member};
use crate::scheduler::block::Block;
use crate::scheduler::door::Door;
use crate::scheduler::{Scheduler, slab};

/// A deadlock that was proven: none of the coroutines of a scheduler can ever go on.
///
/// It is why [`crate::run`] panics and what [`crate::try_run`] fails with. Each coroutine of the scheduler waits, without a
/// deadline, in a join, a mutex or a scope, for another one that does; or is parked where nobody has a reference to
/// unpark it.
///
/// A mutex counts only where all that its owner's scheduler has waits in the same way, and that scheduler sleeps in a [`crate::run`]
/// (or [`crate::try_run`], [`crate::run_code`]), of which nobody has a [`SchedulerHandle`](crate::SchedulerHandle): otherwise the guard could
/// be dropped by a post, or by the code that runs a scheduler by hand ([`Scheduler::run`](crate::Scheduler::run),
/// [`step`](crate::Scheduler::step) and the like, also while they sleep: what comes after them is not known). Such a scheduler is never
/// proven to stand still either: whoever runs it may have a handle to unpark or cancel with. The cycles that dumps and
/// [`crate::inspect::on_deadlock`] tell of are known there, too.
///
/// One that waits for anything else, which somebody outside could bring about, keeps the report away: it is not made on
/// suspicion.
#[derive(Debug, Clone)]
pub struct Deadlock {
    cycles: Vec<Cycle>,
    others: Vec<Member>,
}

impl Deadlock {
    /// The cycles among them, which may go over other schedulers. There is none if somebody is parked whom nobody can unpark.
    #[must_use]
    pub fn cycles(&self) -> &[Cycle] {
        &self.cycles
    }

    /// The coroutines of the scheduler that are in none of the cycles: they wait for some that are, or for each other, or are
    /// parked.
    #[must_use]
    pub fn others(&self) -> &[Member] {
        &self.others
    }
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing on this thread can go on: ")?;
        for (index, cycle) in self.cycles.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{cycle}")?;
        }
        if !self.others.is_empty() {
            f.write_str(if self.cycles.is_empty() {
                "everybody waits"
            } else {
                "\nothers that wait:"
            })?;
        }
        self.others.iter().try_for_each(|member| {
            member.fmt_line(f)?;
            if member.wait.what == Kind::Park.name() {
                f.write_str("; nobody can unpark it")?;
            }
            Ok(())
        })
    }
}

/// Whether none of the scheduler's coroutines can ever go on, see the file's head. The caller knows that nothing is ready and
/// nobody waits for a timer or a descriptor.
pub(crate) fn standstill(scheduler: &Scheduler) -> Option<Deadlock> {
    if !may_stand_still(scheduler) {
        return None;
    }
    let graph = Graph::take();
    let here = scheduler.door();
    let is_mine: Vec<bool> = graph
        .nodes
        .iter()
        .map(|node| std::ptr::eq(node.door, here))
        .collect();
    let all_in = |set: &[bool]| {
        let inside = set
            .iter()
            .zip(&is_mine)
            .filter(|(inside, mine)| **inside && **mine);
        inside.count() == scheduler.alive()
    };
    let nobody = vec![false; graph.nodes.len()];
    let knotted = knot(&graph, &nobody, |_| true);
    let stuck = if all_in(&knotted) {
        knotted
    } else if scheduler.has_no_handles() {
        // Looked at after the handles: what was posted by the last one is seen.
        let alone: Vec<bool> = graph
            .nodes
            .iter()
            .zip(&is_mine)
            .map(|(node, mine)| *mine && is_out_of_reach(node.block))
            .collect();
        let bases: Vec<bool> = graph
            .nodes
            .iter()
            .zip(&alone)
            .map(|(node, alone)| *alone && node.kind == Kind::Park)
            .collect();
        let forsaken = knot(&graph, &bases, |node| knotted[node] || alone[node]);
        if !all_in(&forsaken) || !scheduler.has_nothing_posted() {
            return None;
        }
        forsaken
    } else {
        return None;
    };
    // A reference that was gone when they were counted may have been used right before: they are looked at once more.
    let all_still = (0..graph.nodes.len())
        .filter(|&index| stuck[index] && is_mine[index])
        .all(|index| graph.nodes[index].is_unchanged());
    if !all_still {
        return None;
    }
    // Those of other schedulers on which nobody here waits are not this one's.
    let stuck = graph.reachable(&stuck, &is_mine);
    let paths = graph.cycles(&stuck);
    let is_in_cycle = |index: usize| paths.iter().any(|path| path.contains(&index));
    let cycles = paths
        .iter()
        .filter_map(|path| Cycle::of(&graph, path))
        .collect();
    let others = (0..graph.nodes.len())
        .filter(|&index| stuck[index] && is_mine[index] && !is_in_cycle(index))
        .filter_map(|index| {
            let next = graph.edges[index].iter().find(|&&next| stuck[next]);
            member(&graph.nodes[index], next.map(|&next| graph.nodes[next].id))
        })
        .collect();
    Some(Deadlock { cycles, others })
}

/// The greatest set of which each member waits for a member or is a base; and with each owner of a mutex that is waited for, its
/// whole scheduler.
fn knot(graph: &Graph, bases: &[bool], allowed: impl Fn(usize) -> bool) -> Vec<bool> {
    let mut among: Vec<bool> = graph
        .still
        .iter()
        .enumerate()
        .map(|(node, still)| *still && allowed(node))
        .collect();
    loop {
        let inside = graph.closure(&among, bases);
        among.clone_from(&inside);
        let mut members: HashMap<*const Door, usize> = HashMap::new();
        for (node, _) in graph
            .nodes
            .iter()
            .zip(&inside)
            .filter(|(_, inside)| **inside)
        {
            *members.entry(std::ptr::from_ref(node.door)).or_default() += 1;
        }
        let mut changed = false;
        for (index, node) in graph.nodes.iter().enumerate() {
            let owner = graph.edges[index].first();
            if let Some(&owner) = owner
                && inside[index]
                && node.kind.has_owner()
            {
                let door = graph.nodes[owner].door;
                if members.get(&std::ptr::from_ref(door))
                    != graph.sealed.get(&std::ptr::from_ref(door))
                {
                    among[index] = false;
                    changed = true;
                }
            }
        }
        if !changed {
            return inside;
        }
    }
}

/// Whether each of the scheduler's coroutines waits for something that could keep it for ever. Of many that do not, the first one that is met
/// says so: the picture of the whole process is not taken then.
fn may_stand_still(scheduler: &Scheduler) -> bool {
    let mut may = true;
    slab::for_each_block(|block| {
        may = may
            && (!scheduler.has(block)
                || match Kind::from_u8(block.kind.load(Relaxed)) {
                    Kind::Join | Kind::Scope => true,
                    Kind::Park => is_out_of_reach(block),
                    kind => kind.has_owner(),
                });
    });
    may
}

/// Whether nobody has a reference by which the coroutine, one of this thread's scheduler, could be unparked or cancelled.
fn is_out_of_reach(block: &Block) -> bool {
    // ORDERING: Acquire: what was done by references that are gone is seen by the looks that follow.
    let refs = block.refs.load(Acquire);
    // The handle that a join or `run` has taken for itself.
    let handle = u32::from(block.life.is_sole());
    let token = match block.extra().and_then(|extra| extra.token.get()) {
        Some((token, key)) if token.is_alone() => u32::from(key.is_registered()),
        Some(_) => return false,
        None => 0,
    };
    refs == 1 + handle + token
}
