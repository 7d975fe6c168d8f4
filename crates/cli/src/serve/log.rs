//! The access log, in the combined format of Apache.
//!
//! Owns: the lines that are to be written, and the thread that writes them. A line is formatted where its answer is
//! given; the thread takes all that have gathered and writes them at once.
//!
//! Invariants:
//! - I1: the server never waits for the log: the lock is held by the thread for the exchange of two buffers, never while it
//!   writes. When [`QUEUE_BYTES_MAX`] have gathered, lines are dropped.
//! - I2: each answer is one line in the log, or one in the count of those that were dropped.
//! - I3: a line is one line whatever a client sends: quotes, backslashes and all that is not printable ASCII are escaped.
//! - I4: a line that was written in part is ended before another begins.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sinew_http::Date;

use crate::rt::{self, WaitGroup};

/// How many bytes of lines may wait to be written.
const QUEUE_BYTES_MAX: usize = 1 << 20;

/// The most bytes of one field that are logged; what comes is bounded by the size of a head.
const FIELD_BYTES_MAX: usize = 4 * 1024;

/// Where accesses are logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessLog {
    /// To standard output.
    Stdout,
    /// At the end of a file, which is made if it does not exist.
    File(PathBuf),
}

/// What one line says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) peer: &'a str,
    pub(super) line: &'a [u8],
    pub(super) status: u16,
    /// Of the body.
    pub(super) bytes: u64,
    pub(super) referer: &'a [u8],
    pub(super) agent: &'a [u8],
}

#[derive(Debug, Default)]
struct Queue {
    lines: Vec<u8>,
    /// Lines that the thread is writing at this moment.
    writing: u64,
    dropped: u64,
    closed: bool,
    thread_waits: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

/// A log that is being written.
#[derive(Debug)]
pub(super) struct Log {
    shared: Arc<Shared>,
    live: WaitGroup,
}

impl Log {
    /// Opens the log and starts its thread.
    pub(super) fn open(to: &AccessLog) -> io::Result<Self> {
        let named = |error: io::Error, what: &dyn std::fmt::Display| {
            io::Error::new(error.kind(), format!("cannot log to {what}: {error}"))
        };
        let file = match to {
            // Not by way of std's buffer, whose lock the thread would hold while nobody reads.
            AccessLog::Stdout => io::stdout()
                .as_fd()
                .try_clone_to_owned()
                .map(File::from)
                .map_err(|error| named(error, &"standard output"))?,
            AccessLog::File(path) => OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .map_err(|error| named(error, &format_args!("`{}`", path.display())))?,
        };
        let shared = Arc::new(Shared::default());
        let live = WaitGroup::new();
        let member = live.enter();
        let writer = Arc::clone(&shared);
        rt::thread("access-log", move || {
            writer.write_all(file);
            drop(member);
        })
        .map_err(|error| named(error, &"a thread"))?;
        Ok(Self { shared, live })
    }

    /// Adds a line.
    pub(super) fn add(&self, entry: &Entry<'_>, date: &Date) {
        let mut queue = self.shared.lock();
        // INVARIANT: I1, I2.
        if queue.lines.len() >= QUEUE_BYTES_MAX || queue.closed {
            queue.dropped += 1;
            return;
        }
        format(&mut queue.lines, entry, date);
        let wake = mem::take(&mut queue.thread_waits);
        drop(queue);
        if wake {
            self.shared.work.notify_one();
        }
    }

    /// Has the rest written, for at most `limit`; returns how many lines were dropped in all.
    ///
    /// # Suspends
    /// Until all is written.
    pub(super) fn finish(&self, limit: Duration) -> u64 {
        self.shared.lock().closed = true;
        self.shared.work.notify_one();
        // If it is late, or this coroutine is cancelled, the rest counts as dropped.
        let _written = self.live.wait_timeout(limit);
        let mut queue = self.shared.lock();
        let lines = mem::take(&mut queue.lines);
        queue.dropped += mem::take(&mut queue.writing) + count_lines(&lines);
        queue.dropped
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // What is formatted under the lock does not panic; if it did, the lines would still be lines.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's life.
    fn write_all(&self, mut file: File) {
        let mut batch = Vec::new();
        let mut torn = false;
        while self.take(&mut batch) {
            if torn {
                // INVARIANT: I4.
                batch.insert(0, b'\n');
            }
            let mut rest = batch.as_slice();
            while !rest.is_empty() {
                match file.write(rest) {
                    Ok(0) => break,
                    Ok(count) => rest = &rest[count..],
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // A full disk may have room again, so the next batch is tried.
                    Err(_lost) => break,
                }
            }
            let written = batch.len() - rest.len();
            torn = match written {
                0 => torn,
                _ => batch[written - 1] != b'\n',
            };
            let lost = count_lines(rest);
            let mut queue = self.lock();
            // If nobody waits for it any more, these were counted already.
            if mem::take(&mut queue.writing) > 0 {
                queue.dropped += lost;
            }
            drop(queue);
            batch.clear();
        }
    }

    /// Waits for lines and takes them all; `false` if no more will come.
    fn take(&self, batch: &mut Vec<u8>) -> bool {
        let mut queue = self.lock();
        while queue.lines.is_empty() {
            if queue.closed {
                return false;
            }
            queue.thread_waits = true;
            queue = self
                .work
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        mem::swap(&mut queue.lines, batch);
        queue.writing = count_lines(batch);
        true
    }
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|&&byte| byte == b'\n').count() as u64
}

/// Appends a line.
fn format(out: &mut Vec<u8>, entry: &Entry<'_>, date: &Date) {
    let Entry {
        peer,
        line,
        status,
        bytes,
        referer,
        agent,
    } = *entry;
    out.extend_from_slice(peer.as_bytes());
    out.extend_from_slice(b" - - [");
    date.append_to_log(out);
    out.extend_from_slice(b"] ");
    quoted(out, line);
    // Writing to memory does not fail.
    let _never_fails = match bytes {
        0 => write!(out, " {status} - "),
        _ => write!(out, " {status} {bytes} "),
    };
    quoted(out, referer);
    out.push(b' ');
    quoted(out, agent);
    out.push(b'\n');
}

// INVARIANT: I3.
fn quoted(out: &mut Vec<u8>, field: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    if field.is_empty() {
        out.push(b'-');
    }
    for &byte in &field[..field.len().min(FIELD_BYTES_MAX)] {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '..=b'~' => out.push(byte),
            _ => {
                let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
                out.extend_from_slice(&[b'\\', b'x', digits[0], digits[1]]);
            }
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn a_line_is_one_line() {
        let entry = Entry {
            peer: "::1",
            line: b"GET /\"\\\r\n\x7f\xc3\xa4 HTTP/1.1",
            status: 200,
            bytes: 7,
            referer: b"",
            agent: b"x\n y",
        };
        let date = Date::new(|| UNIX_EPOCH);
        let mut out = Vec::new();
        format(&mut out, &entry, &date);
        let expected = r#"::1 - - [01/Jan/1970:00:00:00 +0000] "GET /\"\\\x0d\x0a\x7f\xc3\xa4 HTTP/1.1" 200 7 "-" "x\x0a y""#;
        assert_eq!(String::from_utf8_lossy(&out), format!("{expected}\n"));
        let long = Entry {
            agent: &[b'\\'; 10 * FIELD_BYTES_MAX],
            bytes: 0,
            ..entry
        };
        out.clear();
        format(&mut out, &long, &date);
        assert!(out.len() < 3 * FIELD_BYTES_MAX);
        assert!(String::from_utf8_lossy(&out).contains(" 200 - \"-\""));
    }
}
