//! The shortest server: a loop over one connection that answers requests from memory.
//!
//! Owns: the order of reading and writing. It has no deadlines: who needs them sets them on the stream.
//!
//! Invariants:
//! - I1: the requests that one read brings are answered by one write.
//! - I2: all that was answered is written before more is read.
//! - I3: after a refusal nothing is read as a request any more.

use std::io::{self, ErrorKind, Read, Write};

use crate::date::Date;
use crate::head::Extent;
use crate::input::{BodyReader, Input, Limits, Reading};
use crate::request::{Method, Request};
use crate::response::ResponseHead;
use crate::status::Status;

/// Output is written when that much has gathered, whatever else is to be answered.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Leave to send a body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How a connection ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The client has finished sending, or went away.
    Client,
    /// The last answer said so. The client may still be sending: closing the socket at once can destroy the answer on its way.
    Answered,
}

/// An answer to be given.
#[derive(Debug)]
pub struct Reply<'a> {
    out: &'a mut Vec<u8>,
    date: &'a Date,
    keep: bool,
    old: bool,
    head_only: bool,
}

/// The proof that an answer was given.
#[derive(Debug)]
pub struct Sent(());

impl<'a> Reply<'a> {
    fn to(request: &Request<'_>, out: &'a mut Vec<u8>, date: &'a Date) -> Self {
        Self {
            out,
            date,
            keep: request.keep_alive,
            old: request.old,
            head_only: request.method == Method::Head,
        }
    }

    /// Answers with a body from memory. `content_type` must hold no line end.
    pub fn send(self, status: Status, content_type: &str, body: &[u8]) -> Sent {
        ResponseHead::new(self.out, status, self.date)
            .line("Content-Type", content_type)
            .length(body.len() as u64)
            .connection(self.keep, self.old)
            .end();
        if !self.head_only {
            self.out.extend_from_slice(body);
        }
        Sent(())
    }
}

/// Serves one connection until one side closes. Bodies of requests are read off before the answer; `answer` does not see them.
///
/// # Errors
/// What the stream reports; `UnexpectedEof` if it ends in the middle of a request.
pub fn serve<S, H>(stream: &mut S, limits: Limits, date: &Date, answer: H) -> io::Result<End>
where
    S: Read + Write,
    H: FnMut(&Request<'_>, Reply<'_>) -> Sent,
{
    let mut connection = Connection {
        stream,
        input: Input::new(limits),
        output: Vec::new(),
        limits,
        date,
        answer,
    };
    loop {
        let next = match connection.input.find_head() {
            Ok(Some(extent)) => connection.request(extent)?,
            Ok(None) => {
                let whole = connection.input.pending().is_empty();
                match connection.more()? {
                    true => None,
                    false if whole => Some(End::Client),
                    false => return Err(ErrorKind::UnexpectedEof.into()),
                }
            }
            Err(status) => connection.refuse_head(status)?,
        };
        if let Some(end) = next {
            return Ok(end);
        }
    }
}

struct Connection<'a, S, H> {
    stream: &'a mut S,
    input: Input,
    output: Vec<u8>,
    limits: Limits,
    date: &'a Date,
    answer: H,
}

impl<S, H> Connection<'_, S, H>
where
    S: Read + Write,
    H: FnMut(&Request<'_>, Reply<'_>) -> Sent,
{
    /// Answers the request whose head is pending.
    fn request(&mut self, extent: Extent) -> io::Result<Option<End>> {
        let parsed = Request::parse(self.input.head(extent), extent);
        let request = match parsed {
            Ok(request) => request,
            Err(status) => return self.refuse_head(status),
        };
        let head_only = request.method == Method::Head;
        match BodyReader::new(&request, &self.limits) {
            Ok(None) => {
                let keep = request.keep_alive;
                let reply = Reply::to(&request, &mut self.output, self.date);
                let Sent(()) = (self.answer)(&request, reply);
                self.input.consume(extent.bytes);
                self.answered(keep)
            }
            Ok(Some(body)) => {
                // The body is about to take the head's place in the buffer.
                let head = self.input.head(extent).to_vec();
                let waits = request.waits_to_send;
                self.input.consume(extent.bytes);
                self.request_with_body(&head, extent, body, waits)
            }
            Err(status) => self.refuse(status, head_only),
        }
    }

    #[cold]
    fn request_with_body(
        &mut self,
        head: &[u8],
        extent: Extent,
        mut body: BodyReader,
        waits: bool,
    ) -> io::Result<Option<End>> {
        if waits && self.input.pending().is_empty() {
            self.output.extend_from_slice(CONTINUE);
        }
        let request = match Request::parse(head, extent) {
            Ok(request) => request,
            Err(status) => return self.refuse(status, false),
        };
        loop {
            match body.advance(&mut self.input) {
                Ok(Reading::Done) => break,
                Ok(Reading::Open) => {
                    if !self.more()? {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(status) => return self.refuse(status, request.method == Method::Head),
            }
        }
        let reply = Reply::to(&request, &mut self.output, self.date);
        let Sent(()) = (self.answer)(&request, reply);
        self.answered(request.keep_alive)
    }

    fn answered(&mut self, keep: bool) -> io::Result<Option<End>> {
        if keep && self.output.len() < OUTPUT_BYTES_MAX {
            return Ok(None);
        }
        self.flush()?;
        Ok((!keep).then_some(End::Answered))
    }

    /// Refuses a head, which is pending.
    #[cold]
    fn refuse_head(&mut self, status: Status) -> io::Result<Option<End>> {
        let head_only = self.input.pending().starts_with(b"HEAD ");
        self.refuse(status, head_only)
    }

    // INVARIANT: I3.
    #[cold]
    fn refuse(&mut self, status: Status, head_only: bool) -> io::Result<Option<End>> {
        let reply = Reply {
            out: &mut self.output,
            date: self.date,
            keep: false,
            old: false,
            head_only,
        };
        let Sent(()) = reply.send(status, "text/plain", status.phrase().as_bytes());
        self.flush()?;
        Ok(Some(End::Answered))
    }

    /// Reads on; false at the end.
    fn more(&mut self) -> io::Result<bool> {
        // INVARIANT: I2.
        self.flush()?;
        loop {
            match self.stream.read(self.input.room()) {
                Ok(count) => {
                    self.input.add(count);
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        self.stream.write_all(&self.output)?;
        self.output.clear();
        Ok(())
    }
}
