//! The dump: everything at once, for a person ([`text`]) or a program ([`json`]).
//!
//! Owns: what it has read. Any thread. Like the listing it is not a snapshot: coroutines go on while it is made.

mod json;
mod text;

use std::collections::{HashMap, HashSet};
use std::panic::Location;
use std::ptr;
use std::time::{Duration, Instant};

use sinew_core::wait::Kind;

use crate::inspect::backtrace::Backtrace;
use crate::inspect::survey::{self, Answer, Question, Trace};
#[cfg(feature = "backtrace")]
use crate::inspect::symbols::Resolver;
use crate::inspect::{Cycle, Info, State, Stats, Wait, deadlocks, for_each, listing, stats};
use crate::scheduler::door::Door;
use crate::sys::clock;

/// Coroutines in the same state, with the same backtrace and the same reason to wait. Where there is no backtrace: which were
/// spawned at the same place, and if they wait, for the same thing.
#[derive(Debug, Clone)]
pub struct Group {
    members: Vec<Info>,
    backtrace: Option<Backtrace>,
}

impl Group {
    /// Its members: at least one.
    #[must_use]
    pub fn members(&self) -> &[Info] {
        &self.members
    }

    /// The calls that they all are in; `None` if they have not started, or run, or were not asked for it.
    #[must_use]
    pub fn backtrace(&self) -> Option<&Backtrace> {
        self.backtrace.as_ref()
    }
}

/// How a scheduler has taken the question of a [`full_dump`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answered {
    /// Which one: its place in [`Stats::schedulers`].
    pub scheduler: usize,
    /// How many coroutines it has described; `None` if it did not answer in time: a coroutine has the thread
    /// and does not stop, or nobody runs the scheduler.
    pub coroutines: Option<usize>,
    /// In how many visits, each of which held it up for [`WALKS_PER_VISIT`](super::WALKS_PER_VISIT) walks at most.
    pub visits: usize,
    /// The id of the coroutine that had the thread when the waiting for answers was over.
    pub running: Option<u64>,
    /// Whether all of its coroutines waited for something that may never come: none could run, none had a deadline, and none waited
    /// for a descriptor. That is no proof: another thread or a signal may bring it about. What is proven are the
    /// [deadlocks](Dump::deadlocks).
    pub is_possibly_stuck: bool,
}

/// All live coroutines, with the figures of the process and the deadlocks that were seen; see [`dump`].
///
/// `Display` writes it for a person: figures, deadlocks, and a paragraph for each group, the largest first.
#[derive(Debug, Clone)]
pub struct Dump {
    taken_at: Instant,
    figures: Stats,
    groups: Vec<Group>,
    deadlocks: Vec<Cycle>,
    answered: Vec<Answered>,
    patience: Duration,
}

/// What the members of a group have in common.
#[derive(PartialEq, Eq, Hash)]
enum Common {
    /// The state, what is waited for, where it was spawned.
    Record(
        State,
        Option<(&'static str, usize)>,
        *const Location<'static>,
    ),
    /// The state, the kind of wait, the number of the backtrace.
    Calls(State, Option<&'static str>, usize),
}

/// Takes a dump of all live coroutines of the process, from any thread.
///
/// # Suspends
///
/// Never. It stops no scheduler, and takes no lock that one holds while user code runs.
///
/// # Examples
///
/// ```
/// sinew::run(|| {
///     let sleepers: Vec<_> = (0..100).map(|_| sinew::spawn_local(sinew::park)).collect();
///     sinew::yield_now().unwrap();
///     let dump = sinew::inspect::dump();
///     assert!(dump.to_string().contains("100 coroutines suspended in park"));
///     for sleeper in sleepers {
///         sleeper.cancel("enough");
///     }
/// });
/// ```
#[must_use]
pub fn dump() -> Dump {
    let mut coroutines = Vec::new();
    for_each(|info| coroutines.push((info.clone(), None)));
    Dump::of(coroutines, &[])
}

/// Takes a dump for which each scheduler of the process is asked: it describes its own coroutines, at a time when none of
/// them runs, with their backtraces (with the feature `backtrace`). From any thread.
///
/// The work is done in slices of [`WALKS_PER_VISIT`](super::WALKS_PER_VISIT) walks, between which a scheduler goes on with
/// its coroutines. One that does not answer within `patience` is named in the dump ([`Dump::answered`]), and
/// its coroutines are listed as in [`dump`], without backtraces.
///
/// Names and lines are looked up on the calling thread, and the unwind tables of the process are read there if
/// they are not yet known: milliseconds, for which a coroutine that calls this holds up its own scheduler. A thread that
/// has none holds up nobody.
///
/// # Suspends
///
/// Until all have answered, for up to `patience`. Blocks a plain thread. Where nothing may wait, in a post or a callback, only the
/// scheduler of the thread is asked, and all at once.
///
/// # Cancellation
///
/// The dump is of what was known by then.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// #[inline(never)]
/// fn serve() -> Result<(), sinew::WaitError> {
///     sinew::park()
/// }
///
/// sinew::run(|| {
///     let servers: Vec<_> = (0..100).map(|_| sinew::spawn_local(serve)).collect();
///     sinew::yield_now().unwrap();
///     let dump = sinew::inspect::full_dump(Duration::from_secs(1));
///     // A hundred times the same backtrace is one group.
///     assert_eq!(dump.groups()[0].members().len(), 100);
///     for server in servers {
///         server.cancel("enough");
///     }
/// });
/// ```
#[must_use]
pub fn full_dump(patience: Duration) -> Dump {
    let doors: Vec<_> = Door::all()
        .into_iter()
        .enumerate()
        .filter(|(_, door)| door.has_owner() && door.figures().read().alive > 0)
        .collect();
    let question = Question::about(None);
    // What was refused is told by who did not answer.
    let (mut answers, _) = survey::ask(&question, &doors, patience);
    let mut traces: HashMap<Trace, usize> = HashMap::new();
    let mut coroutines = Vec::new();
    let mut seen = HashSet::new();
    for (_, answer) in &mut answers {
        let numbers: Vec<usize> = answer
            .traces
            .drain(..)
            .map(|trace| {
                let next = traces.len();
                *traces.entry(trace).or_insert(next)
            })
            .collect();
        for (info, place) in &answer.coroutines {
            seen.insert(info.id);
            let number = place.and_then(|place| numbers.get(place).copied());
            coroutines.push((info.clone(), number));
        }
    }
    for_each(|info| {
        if !seen.contains(&info.id) {
            coroutines.push((info.clone(), None));
        }
    });
    let backtraces = backtraces(&question, traces);
    let mut dump = Dump::of(coroutines, &backtraces);
    dump.patience = patience;
    dump.answered = doors
        .iter()
        .map(|&(number, door)| answered(number, door, &answers))
        .collect();
    dump
}

fn answered(scheduler: usize, door: &Door, answers: &[(usize, Answer)]) -> Answered {
    let answer = answers
        .iter()
        .find(|(number, _)| *number == scheduler)
        .map(|(_, answer)| answer);
    Answered {
        scheduler,
        coroutines: answer.map(|answer| answer.coroutines.len()),
        visits: answer.map_or(0, |answer| answer.visits),
        running: listing::running_in(door),
        is_possibly_stuck: answer.is_some_and(|answer| {
            let mut coroutines = answer.coroutines.iter();
            !answer.coroutines.is_empty() && coroutines.all(|(info, _)| may_wait_for_ever(info))
        }),
    }
}

fn may_wait_for_ever(info: &Info) -> bool {
    info.cancel.is_none()
        && info.wait.is_some_and(|wait| {
            let kinds = [Kind::Readable, Kind::Writable].map(Kind::name);
            wait.until.is_none() && !kinds.contains(&wait.what)
        })
}

/// The backtraces, by their numbers.
#[cfg(feature = "backtrace")]
fn backtraces(question: &Question, traces: HashMap<Trace, usize>) -> Vec<Backtrace> {
    let mut traces: Vec<_> = traces.into_iter().collect();
    traces.sort_unstable_by_key(|(_, number)| *number);
    let mut resolver = Resolver::new(&question.images);
    traces
        .iter()
        .map(|(trace, _)| resolver.resolve(trace))
        .collect()
}

#[cfg(not(feature = "backtrace"))]
fn backtraces(_: &Question, _: HashMap<Trace, usize>) -> Vec<Backtrace> {
    Vec::new()
}

impl Dump {
    /// Sorts coroutines into groups, each with the number of its backtrace.
    fn of(coroutines: Vec<(Info, Option<usize>)>, backtraces: &[Backtrace]) -> Self {
        let mut places: HashMap<Common, usize> = HashMap::new();
        let mut groups: Vec<Group> = Vec::new();
        for (info, number) in coroutines {
            let common = match number {
                Some(number) => Common::Calls(info.state, info.wait.map(|wait| wait.what), number),
                None => {
                    let wait = info.wait.map(|wait| (wait.what, wait.object));
                    Common::Record(info.state, wait, ptr::from_ref(info.spawned_at))
                }
            };
            let place = *places.entry(common).or_insert(groups.len());
            if place == groups.len() {
                groups.push(Group {
                    members: Vec::new(),
                    backtrace: number.and_then(|number| backtraces.get(number).cloned()),
                });
            }
            groups[place].members.push(info);
        }
        for group in &mut groups {
            group.members.sort_by_key(|info| info.id);
        }
        // The first member's id makes the order the same each time.
        groups.sort_by_key(|group| {
            let first = group.members.first().map(|info| info.id);
            (std::cmp::Reverse(group.members.len()), first)
        });
        Self {
            figures: stats(),
            groups,
            deadlocks: deadlocks(),
            taken_at: clock::now(),
            answered: Vec::new(),
            patience: Duration::ZERO,
        }
    }
}

impl Dump {
    /// How many coroutines are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.iter().map(|group| group.members.len()).sum()
    }

    /// Whether no coroutine is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The coroutines: alike ones together, the largest group first.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The figures of the process.
    #[must_use]
    pub fn figures(&self) -> &Stats {
        &self.figures
    }

    /// What [`deadlocks`] has found.
    #[must_use]
    pub fn deadlocks(&self) -> &[Cycle] {
        &self.deadlocks
    }

    /// How each scheduler has taken the question; empty unless it is a [`full_dump`].
    #[must_use]
    pub fn answered(&self) -> &[Answered] {
        &self.answered
    }

    /// The dump as one JSON object, on one line: `figures`, `answered` (of a [`full_dump`]: how each scheduler has taken it),
    /// `deadlocks` (lists of members) and `groups`, each with what its members have in common and the list of them. Times
    /// are lengths in nanoseconds; an object is a string with its number in hexadecimal.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _never_fails = self.write_json(&mut out).is_err();
        out
    }

    fn since(&self, wait: &Wait) -> Duration {
        self.taken_at.saturating_duration_since(wait.since)
    }

    fn left(&self, wait: &Wait) -> Option<Duration> {
        let until = wait.until?;
        Some(until.saturating_duration_since(self.taken_at))
    }
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Ready => "ready",
        State::Running => "running",
        State::Suspended => "suspended",
    }
}
