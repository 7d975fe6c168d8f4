//! Who waits for whom: the suspended coroutines of the process and the known edges between them.
//!
//! Owns: nothing; a [`Graph`] is a picture. Any thread. `super`'s head says why what is in the picture was so.
//!
//! Invariants
//! - I1. A [`Node`] of which [`Graph::still`] says so was suspended in one and the same wait from its first look to its second. All
//!   edges were read in between.
//! - I2. A lock is read only while the block of a waiter is pinned in its wait: who waited in one passes the block's short lock
//!   before it goes on ([`Block::leave_lock`]), so while that is held and the record stands, the waiter's frame
//!   borrows the lock. The same goes for what is initialised once.
#![expect(
    unsafe_code,
    reason = "reads the locks that suspended coroutines wait for"
)]

use std::collections::HashMap;
use std::panic::Location;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use sinew_core::sync::owner_at;
use sinew_core::wait::{Kind, Look};

use crate::scheduler::block::{Block, TIMED};
use crate::scheduler::door::Door;
use crate::scheduler::{Scheduler, current, cycle, slab};

/// A coroutine that waits, with no way out, for another one or to be unparked.
pub(super) struct Node {
    pub(super) block: &'static Block,
    pub(super) door: &'static Door,
    look: Look,
    pub(super) id: u64,
    pub(super) kind: Kind,
    pub(super) object: usize,
    /// What the record says, which is right for a join.
    owner: u64,
    pub(super) since_ns: u64,
    pub(super) location: Option<&'static Location<'static>>,
    /// Which scope it is a child of.
    family: Option<usize>,
}

impl Node {
    /// `door` is that of the calling thread's scheduler.
    fn read(block: &'static Block, door: Option<&'static Door>) -> Option<Self> {
        // In this order: the look at the life acquires the door that belongs to it.
        let is_mine = !block.is_done()
            && block.id() != 0
            && door.is_some_and(|door| ptr::eq(block.door.load(Relaxed), door));
        let (look, this) = Look::with(&block.seq, &block.waiter.word, &block.kind, || {
            Some(Self {
                block,
                // SAFETY: doors are never freed.
                door: unsafe { block.door.load(Relaxed).as_ref() }?,
                look: Look::NOTHING,
                id: block.id(),
                kind: Kind::Nothing,
                object: block.object.load(Relaxed),
                owner: block.owner.load(Relaxed),
                since_ns: block.since.load(Relaxed),
                // SAFETY: null, or a static.
                location: unsafe { block.location.load(Relaxed).as_ref() },
                family: None,
            })
        })?;
        let this = this?;
        // One with a deadline has its bit beside the kind, and a way out.
        let kind = if look.is_armed && look.kind & TIMED == 0 {
            Kind::from_u8(look.kind)
        } else {
            Kind::Nothing
        };
        let in_graph = kind.has_owner() || matches!(kind, Kind::Join | Kind::Scope | Kind::Park);
        if !in_graph || this.id == 0 || cycle::has_way_out(block, is_mine) {
            return None;
        }
        // The lock keeps the extra part in place, as for the name.
        let in_place = block.park.lock();
        let family = block.extra().and_then(|extra| extra.family.get());
        drop(in_place);
        Some(Self {
            look,
            kind,
            family: family.map(|family| family.addr().get()),
            ..this
        })
    }

    /// Whether it is in the same wait still, and was all the time. The edges are of the time before this look. It pairs with the
    /// Release of whoever hands a mutex over, too: who was seen to be its owner is seen to be claimed.
    pub(super) fn is_unchanged(&self) -> bool {
        let Block {
            seq, waiter, kind, ..
        } = self.block;
        self.look.is_still(seq, &waiter.word, kind)
    }

    /// Who holds the lock that it waits for, or runs the initialiser; 0 if that is not known, or it does not wait any more.
    fn lock_owner(&self) -> u64 {
        let _pinned = self.block.park.lock();
        if !self.kind.has_owner() || !self.has_its_record() {
            return 0;
        }
        // SAFETY: I2.
        unsafe { owner_at(self.kind, self.object) }
    }

    /// Whether the record still says what it said, be it that the coroutine was claimed meanwhile.
    fn has_its_record(&self) -> bool {
        let Block {
            seq, waiter, kind, ..
        } = self.block;
        Look::with(seq, &waiter.word, kind, || ())
            .is_some_and(|(now, ())| (now.kind, now.number) == (self.look.kind, self.look.number))
    }
}

/// See the file's head.
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// For which of the others each one waits. A scope waits for all of them, the rest have one at most.
    pub(super) edges: Vec<Vec<usize>>,
    /// Which nodes were there all the time.
    pub(super) still: Vec<bool>,
    /// The schedulers that were [sealed](Door::seal) all the time, by their doors, with the number of their coroutines.
    pub(super) sealed: HashMap<*const Door, usize>,
}

impl Graph {
    /// Of the whole process.
    pub(super) fn take() -> Self {
        let door = current::with_scheduler(Scheduler::door);
        let mut nodes = Vec::new();
        slab::for_each_block(|block| nodes.extend(Node::read(block, door)));
        let seals: Vec<_> = Door::all()
            .into_iter()
            .filter_map(|door| Some((door, door.seal_now()?, door.alive())))
            .collect();
        let edges = edges(&nodes);
        let still = nodes.iter().map(Node::is_unchanged).collect();
        let sealed = seals
            .into_iter()
            .filter(|(door, seal, _)| door.is_still_sealed(*seal))
            .map(|(door, _, alive)| (ptr::from_ref(door), alive))
            .collect();
        Self {
            nodes,
            edges,
            still,
            sealed,
        }
    }

    /// Cycles among the nodes that `among` has, at least one of each knot, by depth-first search.
    pub(super) fn cycles(&self, among: &[bool]) -> Vec<Vec<usize>> {
        #[derive(Clone, Copy, PartialEq)]
        enum Mark {
            New,
            OnPath,
            Done,
        }
        let mut marks: Vec<Mark> = among
            .iter()
            .map(|&among| if among { Mark::New } else { Mark::Done })
            .collect();
        let mut found = Vec::new();
        // The path from the root, each with the number of its edges that have been followed.
        let mut path: Vec<(usize, usize)> = Vec::new();
        for root in 0..self.edges.len() {
            if marks[root] == Mark::New {
                marks[root] = Mark::OnPath;
                path.push((root, 0));
            }
            while let Some((at, followed)) = path.last_mut() {
                let Some(&next) = self.edges[*at].get(*followed) else {
                    marks[*at] = Mark::Done;
                    path.pop();
                    continue;
                };
                *followed += 1;
                match marks[next] {
                    Mark::New => {
                        marks[next] = Mark::OnPath;
                        path.push((next, 0));
                    }
                    Mark::OnPath => {
                        let start = path.iter().position(|&(node, _)| node == next);
                        let cycle = &path[start.unwrap_or(0)..];
                        found.push(cycle.iter().map(|&(node, _)| node).collect());
                    }
                    Mark::Done => {}
                }
            }
        }
        found
    }

    /// What of `among` can be reached from those members that `from` has.
    pub(super) fn reachable(&self, among: &[bool], from: &[bool]) -> Vec<bool> {
        let mut reached = vec![false; self.nodes.len()];
        let mut open: Vec<usize> = (0..self.nodes.len()).filter(|&node| from[node]).collect();
        while let Some(node) = open.pop() {
            if among[node] && !std::mem::replace(&mut reached[node], true) {
                open.extend(&self.edges[node]);
            }
        }
        reached
    }

    /// The greatest set within `among` of which each member waits for a member, or is one of the `bases`.
    pub(super) fn closure(&self, among: &[bool], bases: &[bool]) -> Vec<bool> {
        let mut inside = among.to_vec();
        let mut waiters: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut support = vec![0_usize; self.nodes.len()];
        for (from, targets) in self.edges.iter().enumerate() {
            for &to in targets.iter().filter(|&&to| among[to]) {
                waiters[to].push(from);
                support[from] += 1;
            }
        }
        let is_lost =
            |node: usize, support: &[usize]| !bases[node] && support[node] == 0 && among[node];
        let mut lost: Vec<usize> = (0..self.nodes.len())
            .filter(|&node| is_lost(node, &support))
            .collect();
        while let Some(node) = lost.pop() {
            inside[node] = false;
            for &from in &waiters[node] {
                support[from] -= 1;
                if is_lost(from, &support) {
                    lost.push(from);
                }
            }
        }
        inside
    }
}

/// For which of the others each one waits.
fn edges(nodes: &[Node]) -> Vec<Vec<usize>> {
    let by_id: HashMap<u64, usize> = nodes.iter().map(|node| node.id).zip(0..).collect();
    let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        if let Some(family) = node.family {
            children.entry(family).or_default().push(index);
        }
    }
    let one = |owner| by_id.get(&owner).copied().into_iter().collect();
    nodes
        .iter()
        .map(|node| match node.kind {
            Kind::Join => one(node.owner),
            Kind::Scope => children.get(&node.object).cloned().unwrap_or_default(),
            kind if kind.has_owner() => one(node.lock_owner()),
            _ => Vec::new(),
        })
        .collect()
}
