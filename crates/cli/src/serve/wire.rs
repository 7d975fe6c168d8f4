//! Bytes to and from one client, each with its deadline.
//!
//! Owns: the buffered input and the buffered output of a connection. Only the connection's coroutine
//! touches them.
//!
//! Invariants:
//! - I1: every wait on the socket has a deadline that no trickle of bytes moves: input by the
//!   deadline its caller gives, output by one deadline for each buffer of [`OUTPUT_BYTES_MAX`]. A
//!   client must therefore take at least that many bytes per write timeout, or is cut off.
//! - I2: output leaves in the order it was put in; nothing is lost between [`Wire::put`] and the
//!   next [`Wire::flush`] unless that flush fails.
//! - I3: the input buffer never grows beyond the limit it was made with.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::range::Slice;
use crate::rt::{self, Shutdown, TcpStream};

/// The most output that is held back, and the unit in which files are read.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// The input buffer at the beginning.
const INPUT_BYTES_MIN: usize = 2 * 1024;

/// How a wait for input ended, if not with input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoInput {
    /// The client has finished sending, or is gone.
    End,
    /// The deadline has passed.
    Late,
}

/// The two directions of a connection.
#[derive(Debug)]
pub(super) struct Wire<'a> {
    stream: &'a TcpStream,
    input: Vec<u8>,
    start: usize,
    end: usize,
    input_bytes_max: usize,
    output: Vec<u8>,
    filled: usize,
    write_timeout: Duration,
}

impl<'a> Wire<'a> {
    pub(super) fn new(stream: &'a TcpStream, input_max: usize, write_timeout: Duration) -> Self {
        Self {
            stream,
            input: Vec::new(),
            start: 0,
            end: 0,
            input_bytes_max: input_max,
            output: Vec::new(),
            filled: 0,
            write_timeout,
        }
    }

    /// What has come and was not consumed.
    pub(super) fn pending(&self) -> &[u8] {
        &self.input[self.start..self.end]
    }

    /// Drops the first `count` pending bytes.
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Waits for more input; the buffer must not be full.
    pub(super) fn fill(&mut self, deadline: Instant) -> Result<(), NoInput> {
        self.make_room();
        debug_assert!(self.end < self.input.len());
        loop {
            let left = deadline.saturating_duration_since(rt::now());
            if left.is_zero() {
                return Err(NoInput::Late);
            }
            self.stream
                .set_read_timeout(Some(left))
                .map_err(|_gone| NoInput::End)?;
            match (&mut &*self.stream).read(&mut self.input[self.end..]) {
                Ok(0) => return Err(NoInput::End),
                Ok(count) => {
                    self.end += count;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Whether it is late is the clock's to say.
                Err(error) if is_timeout(&error) => {}
                Err(_gone) => return Err(NoInput::End),
            }
        }
    }

    fn make_room(&mut self) {
        if self.end < self.input.len() {
            return;
        }
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        } else {
            let size = (self.input.len() * 2)
                .max(INPUT_BYTES_MIN)
                .min(self.input_bytes_max);
            self.input.resize(size, 0);
        }
    }

    /// Puts bytes behind what is already to be sent.
    pub(super) fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = self.room(bytes.len())?;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.output[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            bytes = later;
        }
        Ok(())
    }

    /// Puts a part of a file. A file that has become too short is an `UnexpectedEof`, after what
    /// there was of it has been put.
    pub(super) fn put_file(&mut self, file: &File, slice: Slice) -> io::Result<()> {
        let Slice {
            start: mut at,
            length: mut left,
        } = slice;
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX);
            let room = self.room(wanted)?.min(wanted);
            let target = &mut self.output[self.filled..self.filled + room];
            match file.read_at(target, at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.filled += count;
                    at += count as u64;
                    left -= count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// How many bytes fit behind the output, at least one; `wanted` is how many would be good.
    fn room(&mut self, wanted: usize) -> io::Result<usize> {
        if self.filled == OUTPUT_BYTES_MAX {
            self.flush()?;
        }
        let size = self.filled.saturating_add(wanted).min(OUTPUT_BYTES_MAX);
        if self.output.len() < size {
            self.output.resize(size, 0);
        }
        Ok(self.output.len() - self.filled)
    }

    /// Sends all that was put.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.filled == 0 {
            return Ok(());
        }
        // INVARIANT: I1.
        let deadline = rt::now() + self.write_timeout;
        let mut sent = 0;
        while sent < self.filled {
            let left = deadline.saturating_duration_since(rt::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_write_timeout(Some(left))?;
            match (&mut &*self.stream).write(&self.output[sent..self.filled]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.filled = 0;
        Ok(())
    }

    /// Ends the sending side and reads off what the client still sends, until `deadline`. Closing a
    /// socket with unread input resets the connection, which can destroy an answer on its way.
    pub(super) fn linger(&mut self, deadline: Instant) {
        if self.flush().is_err() || self.stream.shutdown(Shutdown::Write).is_err() {
            return;
        }
        (self.start, self.end) = (0, 0);
        while self.fill(deadline).is_ok() {
            (self.start, self.end) = (0, 0);
        }
    }
}

/// A timeout of a socket: `TimedOut`, or `WouldBlock` where the system says it so.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
    )
}
