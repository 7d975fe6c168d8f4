//! One connection: requests in, answers out, in straight lines.
//!
//! Owns: the life of a connection, on its own coroutine.
//!
//! Invariants:
//! - I1: answers leave in the order of their requests, each after its request was read whole, body
//!   included, or the connection is closed after it. Where the next request starts is never guessed.
//! - I2: a head has one deadline, from its first byte; a body has another. Neither moves when a byte
//!   comes.
//! - I3: output is flushed before any wait for input, so no answer waits for the next request; the
//!   answers to requests that came together leave together.
//! - I4: a connection that waits for a request for longer than a moment keeps no buffers.
//! - I5: however many requests come together, after [`REQUESTS_PER_TURN`] of them other connections have their turn.
//!
//! Not here: what the answers are (`answer`), limits on the number of connections, and stopping (`roster`).

use std::io;
use std::mem;
use std::net::IpAddr;
use std::time::Duration;

use sinew_http::{Body, BodyReader, Extent, Method, Reading, Request, Status};

use super::Service;
use super::answer::{Answers, Frame};
use super::roster::Seat;
use super::wire::{Incoming, NoInput, Outgoing};
use crate::rt::{self, Shutdown, TcpStream};

/// How long a closed connection may still send before it is dropped.
pub(super) const LINGER: Duration = Duration::from_secs(2);

/// How long a connection is idle before its buffers are given back.
const MOMENT: Duration = Duration::from_secs(1);

/// How many requests are answered before other coroutines have their turn. One read of the socket can bring
/// hundreds.
const REQUESTS_PER_TURN: u32 = 16;

/// Leave to send a body.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// What to do with a connection after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Go on with the next request.
    Keep,
    /// Send what is left, then close in order.
    Close,
    /// Close without another word.
    Drop,
}

/// A connection being served.
#[derive(Debug)]
pub(super) struct Connection<'a> {
    service: &'a Service,
    seat: &'a Seat,
    incoming: Incoming<'a>,
    answers: Answers<'a>,
    /// The head of a request whose body is being read.
    kept: Vec<u8>,
    /// Requests in this turn.
    in_turn: u32,
}

impl<'a> Connection<'a> {
    pub(super) fn new(service: &'a Service, seat: &'a Seat, peer: IpAddr) -> Self {
        let outgoing = Outgoing::new(seat.stream(), service.config.write_timeout);
        Self {
            service,
            seat,
            incoming: Incoming::new(seat.stream(), service.limits),
            answers: Answers::new(service, outgoing, peer),
            kept: Vec::new(),
            in_turn: 0,
        }
    }

    /// Serves requests until one side closes.
    pub(super) fn serve(&mut self) {
        loop {
            match self.exchange() {
                Ok(Next::Keep) => {}
                Ok(Next::Close) => {
                    let outgoing = &mut self.answers.outgoing;
                    linger(self.seat.stream(), &mut self.incoming, outgoing);
                    return;
                }
                Ok(Next::Drop) | Err(_) => return,
            }
        }
    }

    /// One request and its answer. An error is one of the socket: nothing more can be said.
    fn exchange(&mut self) -> io::Result<Next> {
        if self.incoming.input.pending().is_empty() {
            self.in_turn = 0;
            if !self.wait_idle()? {
                return Ok(Next::Drop);
            }
        }
        // INVARIANT: I5.
        self.in_turn += 1;
        if self.in_turn > REQUESTS_PER_TURN {
            self.in_turn = 1;
            rt::yield_now()?;
        }
        match self.read_head()? {
            Ok(Some(extent)) => self.answer(extent),
            Ok(None) => Ok(Next::Drop),
            Err(status) => self.refuse_unread(status),
        }
    }

    /// Waits for the first byte of a request; `false` if none came.
    fn wait_idle(&mut self) -> io::Result<bool> {
        self.answers.outgoing.flush()?;
        let come = self.seat.set_idle() && self.fill_idle().is_ok();
        self.seat.set_busy();
        Ok(come)
    }

    fn fill_idle(&mut self) -> Result<(), NoInput> {
        let limit = self.service.config.idle_timeout;
        let begun = rt::now();
        match self.incoming.fill(begun + limit.min(MOMENT)) {
            Err(NoInput::Late) if limit > MOMENT => {
                // INVARIANT: I4.
                self.incoming.input.release();
                self.answers.outgoing.release();
                self.incoming.fill(begun + limit)
            }
            outcome => outcome,
        }
    }

    /// Reads until the head is whole. `None` means that the client went away in the middle.
    fn read_head(&mut self) -> io::Result<Result<Option<Extent>, Status>> {
        let mut deadline = None;
        loop {
            match self.incoming.input.find_head() {
                Ok(None) => {}
                found => return Ok(found),
            }
            // INVARIANT: I2. The first byte has just come, or had come with the last request.
            let at = || rt::now() + self.service.config.header_timeout;
            let deadline = *deadline.get_or_insert_with(at);
            self.answers.outgoing.flush()?;
            match self.incoming.fill(deadline) {
                Ok(()) => {}
                Err(NoInput::End) => return Ok(Ok(None)),
                Err(NoInput::Late) => return Ok(Err(Status::RequestTimeout)),
            }
        }
    }

    /// Refuses what is pending, which is no request, or not one that can be read.
    fn refuse_unread(&mut self, status: Status) -> io::Result<Next> {
        let pending = self.incoming.input.pending();
        let end = pending
            .iter()
            .position(|&byte| matches!(byte, b'\r' | b'\n'));
        let frame = Frame {
            head_only: pending.starts_with(b"HEAD "),
            line: &pending[..end.unwrap_or(pending.len())],
            ..Frame::closing()
        };
        self.answers.refuse(status, frame)
    }

    /// Answers the request whose head is pending.
    fn answer(&mut self, extent: Extent) -> io::Result<Next> {
        let head = self.incoming.input.head(extent);
        let request = match Request::parse(head, extent) {
            Ok(request) => request,
            Err(status) => return self.refuse_unread(status),
        };
        if request.body != Body::Length(0) {
            return self.answer_with_body(extent);
        }
        let keep = !self.seat.is_draining();
        let next = self.answers.give(&request, Ok(()), keep)?;
        self.incoming.input.consume(extent.bytes);
        Ok(next)
    }

    /// The same for a request with a body, which takes the head's place in the buffer.
    fn answer_with_body(&mut self, extent: Extent) -> io::Result<Next> {
        let mut kept = mem::take(&mut self.kept);
        kept.clear();
        kept.extend_from_slice(self.incoming.input.head(extent));
        self.incoming.input.consume(extent.bytes);
        let request = match Request::parse(&kept, extent) {
            Ok(request) => request,
            Err(status) => return self.refuse_unread(status),
        };
        let read = match self.read_body(&request)? {
            Ok(()) => Ok(()),
            Err(Some(status)) => Err(status),
            Err(None) => return Ok(Next::Drop),
        };
        let keep = !self.seat.is_draining();
        let next = self.answers.give(&request, read, keep);
        self.kept = kept;
        next
    }

    /// Reads the body off. `Err(None)` means that the client went away in the middle.
    fn read_body(&mut self, request: &Request<'_>) -> io::Result<Result<(), Option<Status>>> {
        let mut body = match BodyReader::new(request, &self.service.limits) {
            Ok(None) => return Ok(Ok(())),
            Ok(Some(body)) => body,
            Err(status) => return Ok(Err(Some(status))),
        };
        if request.waits_to_send && self.incoming.input.pending().is_empty() {
            if !matches!(request.method, Method::Get | Method::Head) {
                // It may send the body or not after a final answer: the next request cannot be found.
                return Ok(Err(Some(Status::ContentTooLarge)));
            }
            self.answers.outgoing.put(CONTINUE)?;
        }
        let deadline = rt::now() + self.service.config.header_timeout;
        loop {
            match body.advance(&mut self.incoming.input) {
                Ok(Reading::Done) => return Ok(Ok(())),
                Ok(Reading::Open) => {}
                Err(status) => return Ok(Err(Some(status))),
            }
            self.answers.outgoing.flush()?;
            match self.incoming.fill(deadline) {
                Ok(()) => {}
                Err(NoInput::End) => return Ok(Err(None)),
                Err(NoInput::Late) => return Ok(Err(Some(Status::RequestTimeout))),
            }
        }
    }
}

/// Ends the sending side and reads off what the client still sends, for a while. Closing a
/// socket with unread input resets the connection, which can destroy an answer on its way.
fn linger(stream: &TcpStream, incoming: &mut Incoming<'_>, outgoing: &mut Outgoing<'_>) {
    let deadline = rt::now() + LINGER;
    if outgoing.flush().is_err() || stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    incoming.input.clear();
    while incoming.fill(deadline).is_ok() {
        incoming.input.clear();
    }
}

/// Refuses a connection that is over the limit.
pub(super) fn turn_away(service: &Service, stream: &TcpStream, peer: IpAddr) {
    let mut answers = Answers::new(service, Outgoing::new(stream, LINGER), peer);
    if answers
        .refuse(Status::ServiceUnavailable, Frame::closing())
        .is_ok()
    {
        let mut incoming = Incoming::new(stream, service.limits);
        linger(stream, &mut incoming, &mut answers.outgoing);
    }
}
