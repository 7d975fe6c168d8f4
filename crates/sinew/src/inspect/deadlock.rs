//! Deadlocks: cycles of coroutines of which each waits for the next, with no way out.
//!
//! Owns: nothing. Any thread.
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
//! The picture is taken in `graph`, over all schedulers, from any thread. What follows from it for a scheduler that has nothing to run is in
//! `proof`.
mod crews;
mod graph;
mod proof;
mod watch;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use sinew_core::sync::NOT_AN_ID;

use crate::inspect::Wait;
use crate::inspect::deadlock::graph::{Graph, Node};
use crate::sys::clock;

pub use proof::Deadlock;
pub(crate) use proof::standstill;
pub(crate) use watch::look;
pub use watch::{DeadlockHook, on_deadlock};

/// One of the coroutines that wait for each other.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Member {
    /// Its id; for a thread of a pool a number that no coroutine has.
    pub id: u64,
    /// The name that it was given.
    pub name: Option<Arc<str>>,
    /// What it waits for. The owner is the next member.
    pub wait: Wait,
    /// Where it was spawned.
    pub spawned_at: &'static Location<'static>,
    /// For how long it had waited when it was seen.
    pub waiting: Duration,
}

impl Member {
    fn fmt_line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\n  ")?;
        fmt_id(f, self.id)?;
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        write!(f, " waits in {}", self.wait.what)?;
        if let Some(next) = self.wait.owner {
            f.write_str(" for ")?;
            fmt_id(f, next)?;
        }
        let Self {
            waiting,
            spawned_at,
            ..
        } = self;
        write!(f, ", for {waiting:.3?} so far, spawned at {spawned_at}")
    }
}

/// A coroutine's id; a thread has none that would tell anything.
fn fmt_id(f: &mut fmt::Formatter<'_>, id: u64) -> fmt::Result {
    match id {
        NOT_AN_ID.. => f.write_str("a thread"),
        id => write!(f, "#{id}"),
    }
}

/// Coroutines of which each waits for the next, and the last for the first.
#[derive(Debug, Clone)]
pub struct Cycle {
    members: Vec<Member>,
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
        self.members
            .iter()
            .try_for_each(|member| member.fmt_line(f))
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
/// Pools and workers wait for each other too: their threads, without a deadline, for room, for the end of tasks or of groups of such, in a
/// `select!` of tasks alone, or for the end of a pool or a worker that they drop. Room and tasks are held up if all threads
/// of the executor wait so, its end if one of them does. That is a cycle of one thread of each. So it is if a pool's
/// threads all wait for tasks of their own pool. The end of a group is seen where its `wait` is called, not where its
/// [`done`](crate::task::TaskGroup::done) is waited for. Not seen are coroutines that wait for pools and workers, since whatever else runs on their
/// thread may go on and help, and a [`block_on`](crate::block_on), which anything that has its waker may end: both are in the listing and in a dump.
///
/// They are found from any thread, whatever schedulers the members are of, and whatever else goes on beside them. If nothing else
/// does, [`crate::run`] ends with a report of its own ([`Deadlock`]).
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
    let graph = Graph::take();
    graph
        .cycles(&graph.still)
        .into_iter()
        .filter_map(|path| Cycle::of(&graph, &path))
        .chain(crews::cycles())
        .collect()
}

/// What a report says of a node, which waits for the coroutine `next`.
fn member(node: &Node, next: Option<u64>) -> Option<Member> {
    let name = node.block.name();
    Some(Member {
        id: node.id,
        // Read after the rest: it is this coroutine's only if the block still is.
        name: name.filter(|_| node.block.id() == node.id),
        wait: Wait {
            what: node.kind.name(),
            object: node.object,
            owner: next,
            since: clock::to_instant(node.since_ns),
            until: None,
        },
        spawned_at: node.location?,
        waiting: clock::now().saturating_duration_since(clock::to_instant(node.since_ns)),
    })
}

impl Cycle {
    fn of(graph: &Graph, path: &[usize]) -> Option<Self> {
        let members = path.iter().enumerate().map(|(place, &index)| {
            let next = path[(place + 1) % path.len()];
            member(&graph.nodes[index], Some(graph.nodes[next].id))
        });
        Some(Self {
            members: members.collect::<Option<_>>()?,
        })
    }
}
