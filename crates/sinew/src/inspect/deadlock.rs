//! Deadlocks: cycles of coroutines of which each waits for the next, with no way out.
//!
//! Owns: nothing. Any thread, but see "What is seen".
//!
//! # Why a report is true
//!
//! 1. Every suspended coroutine's record is read, consistently in itself, with its sequence number.
//! 2. From the records come the edges. A join: to what it joins, which lives as long as it is suspended itself. A scope: to
//!    each child that it has. A mutex: to its owner. That one is not taken from the record, which tells who held the mutex
//!    when the wait began: the mutex may have changed hands since. It is read from the mutex itself.
//! 3. Every record is looked at again. Those with another number, or whose wait has been ended meanwhile, are left out. The
//!    others were suspended in the same wait from their first look to their second, so all of them at the time between. Whoever
//!    was found to be a mutex's owner then is suspended, so it has not given the mutex back.
//! 4. Cycles are searched among those that are left, so that each reported one existed at that time. All of its edges are of the
//!    kind "not before the next one goes on", and none of its waits has a deadline, so it stays until someone cancels a member.
//!
//! # What is seen
//!
//! A mutex can be read while a waiter's frame borrows it. That is certain for the coroutines of the calling thread's
//! scheduler only: they do not run while this does. The same goes for who is a child of which scope. So a cycle through mutexes or
//! scopes is seen from the thread on which those of its members are that wait in them; one of joins alone is seen from everywhere.
#![expect(
    unsafe_code,
    reason = "reads the mutexes that suspended coroutines wait for"
)]

use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;
use std::time::Duration;

use sinew_core::sync::owner_at;
use sinew_core::wait::Kind;

use crate::inspect::Wait;
use crate::scheduler::block::{Block, TIMED};
use crate::scheduler::door::Door;
use crate::scheduler::{current, cycle, slab};
use crate::sys::clock;

/// One of the coroutines that wait for each other.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Member {
    /// Its id.
    pub id: u64,
    /// The name that it was given.
    pub name: Option<Arc<str>>,
    /// What it waits for. The owner is the next member.
    pub wait: Wait,
    /// Where it was spawned.
    pub spawned_at: &'static Location<'static>,
}

/// Coroutines of which each waits for the next, and the last for the first.
#[derive(Debug, Clone)]
pub struct Cycle {
    members: Vec<Member>,
    waiting: Vec<Duration>,
}

impl Cycle {
    /// The members: each waits for the next one, and the last for the first.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "deadlock of {}:", self.members.len())?;
        for (member, waiting) in self.members.iter().zip(&self.waiting) {
            write!(f, "\n  #{}", member.id)?;
            if let Some(name) = &member.name {
                write!(f, " {name:?}")?;
            }
            write!(f, " waits in {}", member.wait.what)?;
            if let Some(next) = member.wait.owner {
                write!(f, " for #{next}")?;
            }
            write!(
                f,
                ", for {waiting:.3?} so far, spawned at {}",
                member.spawned_at
            )?;
        }
        Ok(())
    }
}

/// The cycles of coroutines that wait for each other in mutexes, joins and scopes, without deadlines.
///
/// What is reported is so: at one moment during the call all members waited, each for the next. Nothing but a cancel of a
/// member will end that; or, where a mutex is in the cycle, code that has been given the guard by the coroutine which
/// took it, and drops that. Of cycles that share members at least one is reported.
///
/// A wait with a deadline, its own or a [`timeout`](crate::timeout)'s or a cancel token's, is in no cycle. Cycles of joins
/// alone are refused when they would close ([`JoinHandle::wait`](crate::JoinHandle::wait)), so those seen here go over several schedulers.
///
/// Waits in mutexes and scopes are seen of the coroutines of the calling thread's scheduler; those in joins, of all.
/// [`SchedulerHandle::post`](crate::SchedulerHandle::post) brings the call to another thread's scheduler. A cycle through
/// mutexes or scopes over several schedulers is not seen.
///
/// # Suspends
///
/// Never.
///
/// # Examples
///
/// ```
/// use std::rc::Rc;
/// use sinew::sync::Mutex;
///
/// sinew::run(|| {
///     let (left, right) = (Rc::new(Mutex::new(())), Rc::new(Mutex::new(())));
///     let philosopher = |first: &Rc<Mutex<()>>, second: &Rc<Mutex<()>>| {
///         let (first, second) = (first.clone(), second.clone());
///         sinew::spawn_local(move || {
///             let _first = first.lock()?;
///             sinew::yield_now()?;
///             second.lock().map(drop)
///         })
///     };
///     let one = philosopher(&left, &right);
///     let other = philosopher(&right, &left);
///     while sinew::inspect::deadlocks().is_empty() {
///         sinew::yield_now().unwrap();
///     }
///     let cycles = sinew::inspect::deadlocks();
///     assert_eq!(cycles[0].members().len(), 2);
///     one.cancel("resolve the deadlock");
///     other.join().unwrap().unwrap();
/// });
/// ```
#[must_use]
pub fn deadlocks() -> Vec<Cycle> {
    let door = current::with_scheduler(|scheduler| ptr::from_ref(scheduler.door()));
    let mut waits = Vec::new();
    slab::for_each_block(|block| waits.extend(Suspended::read(block, door)));
    let edges = edges(&waits);
    let still: Vec<bool> = waits.iter().map(Suspended::is_unchanged).collect();
    cycles(&edges, &still)
        .into_iter()
        .filter_map(|path| report(&waits, &path))
        .collect()
}

/// A coroutine that waits for another.
struct Suspended {
    block: &'static Block,
    seq: u32,
    id: u64,
    kind: Kind,
    object: usize,
    /// What the record says, which is right for a join.
    owner: u64,
    since_ns: u64,
    location: *const Location<'static>,
    /// Which scope it is a child of, if that is known.
    family: Option<usize>,
}

impl Suspended {
    fn read(block: &'static Block, door: Option<*const Door>) -> Option<Self> {
        // In this order: the look at the life acquires the door that belongs to it.
        let is_mine = !block.is_done()
            && block.id() != 0
            && door.is_some_and(|door| ptr::eq(block.door.load(Relaxed), door));
        let this = block.read(|| {
            let is_armed = block.waiter.word.is_armed();
            // ORDERING: pairs with the fence in `clear_record`: the record is not older than the arming.
            fence(Acquire);
            let kind = block.kind.load(Relaxed);
            let kind = if is_armed && kind & TIMED == 0 {
                Kind::from_u8(kind)
            } else {
                Kind::Nothing
            };
            Self {
                block,
                seq: block.seq.load(Relaxed),
                id: block.id(),
                kind,
                object: block.object.load(Relaxed),
                owner: block.owner.load(Relaxed),
                since_ns: block.since.load(Relaxed),
                location: block.location.load(Relaxed),
                family: None,
            }
        })?;
        let in_graph = match this.kind {
            Kind::Join => true,
            Kind::Scope => is_mine,
            kind => kind.has_owner() && is_mine,
        };
        if !in_graph || this.id == 0 || cycle::has_way_out(block, is_mine) {
            return None;
        }
        // The extra part of a live one of this thread stays.
        let family = is_mine.then(|| block.extra()?.family.get()).flatten();
        Some(Self {
            family: family.map(|family| family.addr().get()),
            ..this
        })
    }

    /// Whether it is in the same wait still, and was all the time: every wait changes the number, and its end clears the kind.
    fn is_unchanged(&self) -> bool {
        // ORDERING: what was read before stays before: the edges are of the time before this look.
        fence(Acquire);
        let now = self.block.read(|| {
            let is_armed = self.block.waiter.word.is_armed();
            // ORDERING: as in `read`.
            fence(Acquire);
            let kind = Kind::from_u8(self.block.kind.load(Relaxed));
            (
                is_armed,
                kind,
                self.block.seq.load(Relaxed),
                self.block.id(),
            )
        });
        now == Some((true, self.kind, self.seq, self.id))
    }
}

/// For which of the others each one waits.
fn edges(waits: &[Suspended]) -> Vec<Vec<usize>> {
    let by_id: HashMap<u64, usize> = waits.iter().map(|wait| wait.id).zip(0..).collect();
    let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, wait) in waits.iter().enumerate() {
        if let Some(family) = wait.family {
            children.entry(family).or_default().push(index);
        }
    }
    let one = |owner| by_id.get(&owner).copied().into_iter().collect();
    waits
        .iter()
        .map(|wait| match wait.kind {
            Kind::Join => one(wait.owner),
            Kind::Scope => children.get(&wait.object).cloned().unwrap_or_default(),
            // SAFETY: `read` takes those of this thread's scheduler only: the waiter is suspended in the wait that the record
            // is of, and cannot go on before this thread switches to it.
            kind => one(unsafe { owner_at(kind, wait.object) }),
        })
        .collect()
}

/// Cycles among the nodes that `still` has, at least one of each knot, by depth-first search.
fn cycles(edges: &[Vec<usize>], still: &[bool]) -> Vec<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        OnPath,
        Done,
    }
    let mut marks: Vec<Mark> = still
        .iter()
        .map(|&still| if still { Mark::New } else { Mark::Done })
        .collect();
    let mut found = Vec::new();
    // The path from the root, each with the number of its edges that have been followed.
    let mut path: Vec<(usize, usize)> = Vec::new();
    for root in 0..edges.len() {
        if marks[root] == Mark::New {
            marks[root] = Mark::OnPath;
            path.push((root, 0));
        }
        while let Some((at, followed)) = path.last_mut() {
            let Some(&next) = edges[*at].get(*followed) else {
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

fn report(waits: &[Suspended], path: &[usize]) -> Option<Cycle> {
    let now = clock::now();
    let mut cycle = Cycle {
        members: Vec::with_capacity(path.len()),
        waiting: Vec::with_capacity(path.len()),
    };
    for (place, &index) in path.iter().enumerate() {
        let wait = &waits[index];
        let next = &waits[path[(place + 1) % path.len()]];
        let name = wait.block.name();
        let since = clock::to_instant(wait.since_ns);
        cycle.members.push(Member {
            id: wait.id,
            // Read after the rest: it is this coroutine's only if the block still is.
            name: name.filter(|_| wait.block.id() == wait.id),
            wait: Wait {
                what: wait.kind.name(),
                object: wait.object,
                owner: Some(next.id),
                since,
                until: None,
            },
            // SAFETY: a location is a static, and was stored with the id.
            spawned_at: unsafe { wait.location.as_ref() }?,
        });
        cycle.waiting.push(now.saturating_duration_since(since));
    }
    Some(cycle)
}
