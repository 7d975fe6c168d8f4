//! A dump as text.

use std::fmt::{self, Write};

use super::{Dump, state_name};
use crate::inspect::{Info, Stats, Wait};

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
        for stuck in self.answered.iter().filter(|one| one.is_possibly_stuck) {
            writeln!(
                f,
                "scheduler {} is possibly stuck: nobody on it can run, and nobody waits with a deadline or for a descriptor",
                stuck.scheduler
            )?;
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
