//! Bytes to and from one client, each with its deadline.
//!
//! Owns: the two directions of a connection and their buffers. Only the connection's coroutine touches them.
//!
//! Invariants:
//! - I1: every wait on the socket has a deadline that no trickle of bytes moves: input by the
//!   deadline its caller gives, output by one deadline for each buffer of [`OUTPUT_BYTES_MAX`]. A
//!   client must therefore take at least that many bytes per write timeout, or is cut off.
//! - I2: output leaves in the order it was put in; nothing is lost between [`Outgoing::put`] and the
//!   next [`Outgoing::flush`] unless that flush fails.

use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use sinew_http::{Input, Limits, Slice};

use crate::rt::{self, File, TcpStream};

/// The most output that is held back, and the unit in which files are read.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// How a wait for input ended, if not with input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoInput {
    /// The client has finished sending, or is gone.
    End,
    /// The deadline has passed.
    Late,
}

/// What comes from the client.
#[derive(Debug)]
pub(super) struct Incoming<'a> {
    stream: &'a TcpStream,
    pub(super) input: Input,
}

impl<'a> Incoming<'a> {
    pub(super) fn new(stream: &'a TcpStream, limits: Limits) -> Self {
        Self {
            stream,
            input: Input::new(limits),
        }
    }

    /// Waits for more input; there must be room for it.
    pub(super) fn fill(&mut self, deadline: Instant) -> Result<(), NoInput> {
        loop {
            let left = deadline.saturating_duration_since(rt::now());
            if left.is_zero() {
                return Err(NoInput::Late);
            }
            self.stream
                .set_read_timeout(Some(left))
                .map_err(|_gone| NoInput::End)?;
            match (&mut &*self.stream).read(self.input.room()) {
                Ok(0) => return Err(NoInput::End),
                Ok(count) => {
                    self.input.add(count);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Whether it is late is the clock's to say.
                Err(error) if is_timeout(&error) => {}
                Err(_gone) => return Err(NoInput::End),
            }
        }
    }
}

/// What goes to the client.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    stream: &'a TcpStream,
    output: Vec<u8>,
    filled: usize,
    taken: u64,
    write_timeout: Duration,
}

impl<'a> Outgoing<'a> {
    pub(super) fn new(stream: &'a TcpStream, write_timeout: Duration) -> Self {
        Self {
            stream,
            output: Vec::new(),
            filled: 0,
            taken: 0,
            write_timeout,
        }
    }

    /// How many bytes were put in all.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Puts bytes behind what is already to be sent.
    pub(super) fn put(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = self.room(bytes.len())?;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.output[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.put_so_many(now.len());
            bytes = later;
        }
        Ok(())
    }

    /// Puts a part of a file, waiting for the disk where the kernel has it not cached. A file that has become too short is an `UnexpectedEof`, after what
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
                    self.put_so_many(count);
                    at += count as u64;
                    left -= count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn put_so_many(&mut self, count: usize) {
        self.filled += count;
        self.taken += count as u64;
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

    /// Gives the memory back, if nothing is to be sent.
    pub(super) fn release(&mut self) {
        if self.filled == 0 {
            self.output = Vec::new();
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
