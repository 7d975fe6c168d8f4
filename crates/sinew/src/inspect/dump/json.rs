//! A dump as JSON.

use std::fmt::{self, Write};
use std::panic::Location;
use std::time::Duration;

use super::{Dump, Group, state_name};
use crate::inspect::{Backtrace, Stats, Wait};

impl Dump {
    pub(super) fn write_json(&self, out: &mut String) -> fmt::Result {
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
            write!(out, ",\"is_possibly_stuck\":{}}}", one.is_possibly_stuck)
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
