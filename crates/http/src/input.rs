//! What has come from a client: heads and bodies, one after the other.
//!
//! Owns: the buffer, and where in it the next request starts. Who reads asks for the [`room`](Input::room) to read into, says how
//! much came, and asks for the next head; if there is none yet, it reads again.
//!
//! Invariants:
//! - I1: the buffer never grows beyond one head of the largest size and one byte.
//! - I2: whenever a head is asked for and none is complete, there is room.
//! - I3: the outcome depends on the bytes and on no other thing: not on how they were cut, and not on when they came.

use crate::chunked::Decoder;
use crate::head::{Extent, Found, Search};
use crate::request::{Body, Request};
use crate::status::Status;

/// The buffer at the beginning.
const BYTES_MIN: usize = 2 * 1024;

/// What is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a request line; beyond it the answer is 414.
    pub request_line_bytes: usize,
    /// The most bytes of a head, its empty line included; beyond it the answer is 431.
    pub head_bytes: usize,
    /// The most header lines; beyond it the answer is 431.
    pub headers: usize,
    /// The longest body, with its coding, that is read off to keep a connection; beyond it the answer is 413.
    pub body_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_line_bytes: 8 * 1024,
            head_bytes: 16 * 1024,
            headers: 100,
            body_bytes: 64 * 1024,
        }
    }
}

/// The bytes that have come and were not consumed.
#[derive(Debug)]
pub struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    search: Search,
    limits: Limits,
}

impl Input {
    /// Nothing yet; allocates nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            search: Search::new(limits.request_line_bytes, limits.head_bytes),
            limits,
        }
    }

    /// What has come and was not consumed.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Where to read into. It is empty only if as much is pending as a head may have at most, and one byte.
    pub fn room(&mut self) -> &mut [u8] {
        if self.end == self.buffer.len() {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            } else {
                // One byte more than a head may have, so that too long is not taken for incomplete.
                let most = self.limits.head_bytes.saturating_add(1);
                let size = (self.buffer.len() * 2).max(BYTES_MIN).min(most);
                self.buffer.resize(size, 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes were read into the room.
    ///
    /// # Panics
    /// They would not have fitted.
    pub fn add(&mut self, count: usize) {
        assert!(
            count <= self.buffer.len() - self.end,
            "more than there was room for"
        );
        self.end += count;
    }

    /// Drops the first `count` pending bytes. What follows is a new request.
    ///
    /// # Panics
    /// There are not so many.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "more than there is");
        self.start += count;
        self.search.restart();
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.consume(self.end - self.start);
    }

    /// Gives the buffer's memory back, if nothing is pending.
    pub fn release(&mut self) {
        if self.start == self.end {
            self.buffer = Vec::new();
            (self.start, self.end) = (0, 0);
        }
    }

    /// Looks for a whole head; empty lines before it are dropped. `None` means that more has to come.
    ///
    /// # Errors
    /// Why the connection has to be closed after an answer that says so.
    pub fn find_head(&mut self) -> Result<Option<Extent>, Status> {
        loop {
            match self.search.advance(&self.buffer[self.start..self.end])? {
                Found::Open => return Ok(None),
                Found::Blank => self.consume(2),
                Found::Whole(extent) if extent.headers > self.limits.headers => {
                    return Err(Status::HeaderFieldsTooLarge);
                }
                Found::Whole(extent) => return Ok(Some(extent)),
            }
        }
    }

    /// The head that was found.
    ///
    /// # Panics
    /// It was consumed since.
    #[must_use]
    pub fn head(&self, extent: Extent) -> &[u8] {
        &self.pending()[..extent.bytes]
    }
}

/// How far a body was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// More has to come.
    Open,
    /// To its end.
    Done,
}

/// Reads off a body whose head was consumed.
#[derive(Debug)]
pub struct BodyReader {
    left: u64,
    chunks: Option<Decoder>,
}

impl BodyReader {
    /// For the body of `request`; `None` if it has none.
    ///
    /// # Errors
    /// It is longer than the limit says.
    pub fn new(request: &Request<'_>, limits: &Limits) -> Result<Option<Self>, Status> {
        match request.body {
            Body::Length(0) => Ok(None),
            Body::Length(length) if length > limits.body_bytes => Err(Status::ContentTooLarge),
            Body::Length(left) => Ok(Some(Self { left, chunks: None })),
            Body::Chunked => Ok(Some(Self {
                left: limits.body_bytes,
                chunks: Some(Decoder::new()),
            })),
        }
    }

    /// Consumes what of the body is pending in `input`.
    ///
    /// # Errors
    /// The coding is malformed, or the body is longer than the limit says.
    pub fn advance(&mut self, input: &mut Input) -> Result<Reading, Status> {
        let have = input.pending();
        let most = usize::try_from(self.left).map_or(have.len(), |left| left.min(have.len()));
        let (consumed, done) = match &mut self.chunks {
            None => (most, most as u64 == self.left),
            Some(decoder) => match decoder.advance(&have[..most]) {
                Ok(piece) => (piece.consumed, piece.done),
                Err(_malformed) => return Err(Status::BadRequest),
            },
        };
        input.consume(consumed);
        self.left -= consumed as u64;
        match (done, self.left) {
            (true, _) => Ok(Reading::Done),
            (false, 0) => Err(Status::ContentTooLarge),
            (false, _) => Ok(Reading::Open),
        }
    }
}
