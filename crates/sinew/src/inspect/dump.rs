//! The dump: everything at once, for a person (`Display`) or a program (`to_json`).
//!
//! Owns: what it has read. Any thread. Like the listing it is not a snapshot: coroutines go on while it is made.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write};
use std::panic::Location;
use std::ptr;
use std::time::{Duration, Instant};

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
    }
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
    /// `deadlocks` (lists of members) and `groups`, each with what its members have in common and the list of them. Times are lengths in nanoseconds; an object is a string with its
    /// number in hexadecimal.
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

    fn write_json(&self, out: &mut String) -> fmt::Result {
        let Stats { total, .. } = &self.figures;
        write!(
            out,
            "{{\"figures\":{{\"coroutines\":{},\"schedulers\":{},\"created\":{},\"switches\":{},\"timers\":{},\"io_waits\":{},\
             \"stacks_in_use\":{},\"stacks_cached\":{},\"stack_reserved_bytes\":{}}},\"answered\":[",
            self.len(),
            self.figures.schedulers.len(),
            total.created,
            total.switches,
            total.timers,
            total.io_waits,
            self.figures.stacks_in_use,
            self.figures.stacks_cached,
            self.figures.stack_reserved_bytes,
        )?;
        list(out, &self.answered, |out, one| {
            write!(out, "{{\"scheduler\":{}", one.scheduler)?;
            write_number(out, "coroutines", one.coroutines)?;
            write_number(out, "visits", Some(one.visits))?;
            write_number(out, "running", one.running)?;
            out.push('}');
            Ok(())
        })?;
        out.push_str("],\"deadlocks\":[");
        list(out, &self.deadlocks, |out, cycle| {
            out.push('[');
            list(out, cycle.members(), |out, member| {
                write!(out, "{{\"id\":{},\"name\":", member.id)?;
                write_text(out, member.name.as_deref())?;
                out.push(',');
                write_wait(out, &member.wait)?;
                write_times(out, self.since(&member.wait), None)?;
                out.push(',');
                write_location(out, member.spawned_at)?;
                out.push('}');
                Ok(())
            })?;
            out.push(']');
            Ok(())
        })?;
        out.push_str("],\"groups\":[");
        list(out, &self.groups, |out, group| self.write_group(out, group))?;
        out.push_str("]}");
        Ok(())
    }

    fn write_group(&self, out: &mut String, group: &Group) -> fmt::Result {
        let Some(first) = group.members.first() else {
            return Ok(());
        };
        write!(
            out,
            "{{\"count\":{},\"state\":\"{}\",",
            group.members.len(),
            state_name(first.state)
        )?;
        write_location(out, first.spawned_at)?;
        out.push_str(",\"backtrace\":");
        match &group.backtrace {
            Some(backtrace) => write_backtrace(out, backtrace)?,
            None => out.push_str("null"),
        }
        out.push_str(",\"members\":[");
        list(out, &group.members, |out, info| {
            write!(out, "{{\"id\":{},\"name\":", info.id)?;
            write_text(out, info.name.as_deref())?;
            if info.spawned_at != first.spawned_at {
                out.push(',');
                write_location(out, info.spawned_at)?;
            }
            write_number(out, "parent", info.parent)?;
            write_number(out, "stack_used_bytes", info.stack_used_bytes)?;
            write_number(out, "stack_bytes", info.stack_bytes)?;
            if let Some(wait) = &info.wait {
                out.push(',');
                write_wait(out, wait)?;
                write_times(out, self.since(wait), self.left(wait))?;
            }
            out.push('}');
            Ok(())
        })?;
        out.push_str("]}");
        Ok(())
    }
}

fn write_backtrace(out: &mut String, backtrace: &Backtrace) -> fmt::Result {
    write!(out, "{{\"is_whole\":{},\"frames\":[", backtrace.is_whole())?;
    list(out, backtrace.frames(), |out, frame| {
        write!(out, "{{\"address\":\"{:#x}\",\"name\":", frame.address)?;
        write_text(out, frame.name.as_deref())?;
        out.push_str(",\"file\":");
        write_text(out, frame.file.as_deref())?;
        write_number(out, "line", frame.line)?;
        write!(out, ",\"is_inlined\":{}}}", frame.is_inlined)
    })?;
    out.push_str("]}");
    Ok(())
}

/// Writes what is waited for, without the times.
fn write_wait(out: &mut String, wait: &Wait) -> fmt::Result {
    out.push_str("\"waits_in\":");
    write_text(out, Some(wait.what))?;
    write!(out, ",\"object\":\"{:#x}\"", wait.object)?;
    write_number(out, "owner", wait.owner)
}

/// Writes the items with commas between them.
fn list<T>(
    out: &mut String,
    items: &[T],
    mut f: impl FnMut(&mut String, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        f(out, item)?;
    }
    Ok(())
}

fn write_times(out: &mut String, since: Duration, left: Option<Duration>) -> fmt::Result {
    write_number(out, "waiting_ns", Some(since.as_nanos()))?;
    write_number(out, "left_ns", left.map(|left| left.as_nanos()))
}

/// Writes a further field, `null` if there is no number.
fn write_number(out: &mut String, key: &str, number: Option<impl fmt::Display>) -> fmt::Result {
    match number {
        Some(number) => write!(out, ",\"{key}\":{number}"),
        None => write!(out, ",\"{key}\":null"),
    }
}

fn write_location(out: &mut String, location: &Location<'_>) -> fmt::Result {
    out.push_str("\"spawned_at\":{\"file\":");
    write_text(out, Some(location.file()))?;
    write!(
        out,
        ",\"line\":{},\"column\":{}}}",
        location.line(),
        location.column()
    )
}

/// Writes a string as JSON has it, or `null`.
fn write_text(out: &mut String, text: Option<&str>) -> fmt::Result {
    let Some(text) = text else {
        out.push_str("null");
        return Ok(());
    };
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // The last two end a line for JavaScript.
            '\0'..='\x1f' | '\x7f' | '\u{2028}' | '\u{2029}' => {
                write!(out, "\\u{:04x}", u32::from(character))?;
            }
            _ => out.push(character),
        }
    }
    out.push('"');
    Ok(())
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Ready => "ready",
        State::Running => "running",
        State::Suspended => "suspended",
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats { total, .. } = &self.figures;
        writeln!(
            f,
            "{}, {} made so far, {} switches, {} timers, {} waits for descriptors",
            Counted(self.len()),
            total.created,
            total.switches,
            total.timers,
            total.io_waits
        )?;
        writeln!(
            f,
            "stacks: {} in use, {} kept warm, {} bytes of addresses",
            self.figures.stacks_in_use,
            self.figures.stacks_cached,
            self.figures.stack_reserved_bytes
        )?;
        for silent in self.answered.iter().filter(|one| one.coroutines.is_none()) {
            write!(
                f,
                "scheduler {} did not answer within {:?}",
                silent.scheduler, self.patience
            )?;
            if let Some(running) = silent.running {
                write!(f, " (#{running} has its thread)")?;
            }
            writeln!(f, ": its coroutines are listed without backtraces")?;
        }
        for cycle in &self.deadlocks {
            writeln!(f, "\n{cycle}")?;
        }
        for group in &self.groups {
            f.write_char('\n')?;
            self.display_group(f, &group.members)?;
            if let Some(backtrace) = &group.backtrace {
                writeln!(f, "{backtrace}")?;
            }
        }
        Ok(())
    }
}

/// A number of coroutines, in words.
struct Counted(usize);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} coroutine{plural}", self.0)
    }
}

impl Dump {
    fn display_group(&self, f: &mut fmt::Formatter<'_>, members: &[Info]) -> fmt::Result {
        let Some(first) = members.first() else {
            return Ok(());
        };
        write!(f, "{} {}", Counted(members.len()), state_name(first.state))?;
        if first.stack_bytes.is_none() {
            f.write_str(", not started")?;
        }
        if let Some(wait) = &first.wait {
            write!(f, " in {}", wait.what)?;
            if wait.object != 0 && all_alike(members, object_of) {
                write!(f, " {:#x}", wait.object)?;
            }
        }
        write!(f, ", spawned at {}", first.spawned_at)?;
        if !all_alike(members, |info| info.spawned_at) {
            f.write_str(" and elsewhere")?;
        }
        writeln!(f)?;
        // Long runs of ids without anything to tell them apart take one line.
        let mut rest = members;
        while let Some(first) = rest.first() {
            let alike = rest
                .iter()
                .zip(first.id..)
                .take_while(|(info, id)| info.id == *id && is_like(info, first))
                .count()
                .max(1);
            let (run, after) = rest.split_at(alike);
            self.display_run(f, run)?;
            rest = after;
        }
        Ok(())
    }

    /// Writes coroutines that differ by their ids, times and depths only.
    fn display_run(&self, f: &mut fmt::Formatter<'_>, run: &[Info]) -> fmt::Result {
        let [first, .., last] = run else {
            return run.first().map_or(Ok(()), |one| self.display_one(f, one));
        };
        write!(f, "  #{} to #{}", first.id, last.id)?;
        display_parent(f, first)?;
        if let Some(longest) = run
            .iter()
            .filter_map(|info| info.wait.as_ref())
            .map(|wait| self.since(wait))
            .max()
        {
            write!(f, ", for {longest:.3?} at most")?;
        }
        if let Some(next) = run
            .iter()
            .filter_map(|info| self.left(info.wait.as_ref()?))
            .min()
        {
            write!(f, ", the first until in {next:.3?}")?;
        }
        if let Some(wait) = &first.wait {
            display_owner(f, wait)?;
        }
        if let Some(deepest) = run.iter().filter_map(|info| info.stack_used_bytes).max() {
            write!(f, ", stacks of up to {deepest} bytes used")?;
        }
        writeln!(f)
    }

    fn display_one(&self, f: &mut fmt::Formatter<'_>, info: &Info) -> fmt::Result {
        write!(f, "  #{}", info.id)?;
        if let Some(name) = &info.name {
            write!(f, " {name:?}")?;
        }
        display_parent(f, info)?;
        if let Some(wait) = &info.wait {
            write!(f, ", for {:.3?}", self.since(wait))?;
            if let Some(left) = self.left(wait) {
                write!(f, ", until in {left:.3?}")?;
            }
            display_owner(f, wait)?;
        }
        if let (Some(used), Some(size)) = (info.stack_used_bytes, info.stack_bytes) {
            write!(f, ", {used} of {size} bytes of stack")?;
        }
        writeln!(f)
    }
}

fn display_parent(f: &mut fmt::Formatter<'_>, info: &Info) -> fmt::Result {
    match info.parent {
        Some(parent) => write!(f, ", child of #{parent}"),
        None => Ok(()),
    }
}

fn display_owner(f: &mut fmt::Formatter<'_>, wait: &Wait) -> fmt::Result {
    match (wait.what, wait.owner) {
        (_, None) => Ok(()),
        ("join", Some(owner)) => write!(f, ", until the end of #{owner}"),
        (_, Some(owner)) => write!(f, ", held by #{owner} when that began"),
    }
}

fn object_of(info: &Info) -> usize {
    info.wait.map_or(0, |wait| wait.object)
}

fn all_alike<T: PartialEq>(members: &[Info], of: impl Fn(&Info) -> T) -> bool {
    members.windows(2).all(|two| of(&two[0]) == of(&two[1]))
}

/// Whether two members of a group differ by their ids, times and depths only.
fn is_like(one: &Info, other: &Info) -> bool {
    let owner = |info: &Info| info.wait.and_then(|wait| wait.owner);
    let is_timed = |info: &Info| info.wait.map(|wait| wait.until.is_some());
    one.name.is_none()
        && other.name.is_none()
        && one.parent == other.parent
        && owner(one) == owner(other)
        && is_timed(one) == is_timed(other)
        && object_of(one) == object_of(other)
        && one.spawned_at == other.spawned_at
}
