//! The dump: everything at once, for a person (`Display`) or a program (`to_json`).
//!
//! Owns: what it has read. Any thread. Like the listing it is not a snapshot: coroutines go on while it is made.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::panic::Location;
use std::ptr;
use std::time::{Duration, Instant};

use crate::inspect::{Cycle, Info, State, Stats, Wait, deadlocks, for_each, stats};
use crate::sys::clock;

/// Coroutines in the same state, which were spawned at the same place, and if they wait, for the same thing.
#[derive(Debug, Clone)]
pub struct Group {
    members: Vec<Info>,
}

impl Group {
    /// Its members: at least one.
    #[must_use]
    pub fn members(&self) -> &[Info] {
        &self.members
    }
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
}

/// What the members of a group have in common.
type Common = (
    State,
    Option<(&'static str, usize)>,
    *const Location<'static>,
);

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
    let mut places: HashMap<Common, usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for_each(|info| {
        let wait = info.wait.map(|wait| (wait.what, wait.object));
        let place = *places
            .entry((info.state, wait, ptr::from_ref(info.spawned_at)))
            .or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.members.push(info.clone()),
            None => groups.push(Group {
                members: vec![info.clone()],
            }),
        }
    });
    for group in &mut groups {
        group.members.sort_by_key(|info| info.id);
    }
    // The first member's id makes the order the same each time.
    groups.sort_by_key(|group| {
        let first = group.members.first().map(|info| info.id);
        (std::cmp::Reverse(group.members.len()), first)
    });
    Dump {
        figures: stats(),
        groups,
        deadlocks: deadlocks(),
        taken_at: clock::now(),
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

    /// The dump as one JSON object, on one line: `figures`, `deadlocks` (lists of members) and `groups`, each with what its members
    /// have in common and the list of them. Times are lengths in nanoseconds; an object is a string with its
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
             \"stacks_in_use\":{},\"stacks_cached\":{},\"stack_reserved_bytes\":{}}},\"deadlocks\":[",
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
        list(out, &self.deadlocks, |out, cycle| {
            out.push('[');
            list(out, cycle.members(), |out, member| {
                write!(out, "{{\"id\":{},\"name\":", member.id)?;
                write_text(out, member.name.as_deref())?;
                out.push(',');
                self.write_wait(out, &member.wait)?;
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
        out.push_str(",\"members\":[");
        list(out, &group.members, |out, info| {
            write!(out, "{{\"id\":{},\"name\":", info.id)?;
            write_text(out, info.name.as_deref())?;
            write_number(out, "parent", info.parent)?;
            write_number(out, "stack_used_bytes", info.stack_used_bytes)?;
            write_number(out, "stack_bytes", info.stack_bytes)?;
            if let Some(wait) = &info.wait {
                out.push(',');
                self.write_wait(out, wait)?;
                write_times(out, self.since(wait), self.left(wait))?;
            }
            out.push('}');
            Ok(())
        })?;
        out.push_str("]}");
        Ok(())
    }

    #[expect(
        clippy::unused_self,
        reason = "one of a family that writes parts of the dump"
    )]
    fn write_wait(&self, out: &mut String, wait: &Wait) -> fmt::Result {
        out.push_str("\"waits_in\":");
        write_text(out, Some(wait.what))?;
        write!(out, ",\"object\":\"{:#x}\"", wait.object)?;
        write_number(out, "owner", wait.owner)
    }
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
        for cycle in &self.deadlocks {
            writeln!(f, "\n{cycle}")?;
        }
        for group in &self.groups {
            f.write_char('\n')?;
            self.display_group(f, &group.members)?;
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
        if let Some(wait) = &first.wait {
            write!(f, " in {}", wait.what)?;
            if wait.object != 0 {
                write!(f, " {:#x}", wait.object)?;
            }
        }
        writeln!(f, ", spawned at {}", first.spawned_at)?;
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
            if let Some(owner) = wait.owner {
                match wait.what {
                    "join" => write!(f, ", until the end of #{owner}")?,
                    _ => write!(f, ", held by #{owner} when that began")?,
                }
            }
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

fn is_like(one: &Info, other: &Info) -> bool {
    let owner = |info: &Info| info.wait.and_then(|wait| wait.owner);
    let is_timed = |info: &Info| info.wait.map(|wait| wait.until.is_some());
    one.name.is_none()
        && other.name.is_none()
        && one.parent == other.parent
        && owner(one) == owner(other)
        && owner(one).is_none()
        && is_timed(one) == is_timed(other)
}
