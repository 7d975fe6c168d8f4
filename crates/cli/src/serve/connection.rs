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
//!
//! Not here: limits on the number of connections, and stopping (`roster`).

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Service;
use super::folder::{OpenError, Opened};
use super::head::{Extent, Found, Search};
use super::path::Name;
use super::range::Slice;
use super::request::{Body, Method, Request};
use super::response::ResponseHead;
use super::roster::Seat;
use super::status::Status;
use super::wire::{NoInput, Wire};
use crate::chunked::Decoder;
use crate::rt;

/// The longest request line; beyond it the answer is 414.
const REQUEST_LINE_BYTES_MAX: usize = 8 * 1024;

/// The longest request body that is read off to keep a connection.
const BODY_BYTES_MAX: u64 = 64 * 1024;

/// How long a closed connection may still send before it is dropped.
pub(super) const LINGER: Duration = Duration::from_secs(2);

/// What to do with a connection after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Go on with the next request.
    Keep,
    /// Send what is left, then close in order.
    Close,
    /// Close without another word.
    Drop,
}

/// How an answer must be framed.
#[derive(Debug, Clone, Copy)]
struct Frame {
    /// Whether the connection stays open after it.
    keep: bool,
    /// Whether the client is an HTTP/1.0 one.
    old: bool,
    /// Whether only the head is wanted.
    head_only: bool,
}

/// A connection being served.
#[derive(Debug)]
pub(super) struct Connection<'a> {
    service: &'a Service,
    seat: &'a Seat,
    wire: Wire<'a>,
    head: Vec<u8>,
}

impl<'a> Connection<'a> {
    pub(super) fn new(service: &'a Service, seat: &'a Seat) -> Self {
        let config = &service.config;
        // One byte more than a head may have, so that too long is not taken for incomplete.
        let input_bytes_max = config.header_bytes_max + 1;
        let wire = Wire::new(seat.stream(), input_bytes_max, config.write_timeout);
        Self {
            service,
            seat,
            wire,
            head: Vec::with_capacity(256),
        }
    }

    /// Serves requests until one side closes.
    pub(super) fn serve(&mut self) {
        loop {
            match self.exchange() {
                Ok(Next::Keep) => {}
                Ok(Next::Close) => return self.wire.linger(rt::now() + LINGER),
                Ok(Next::Drop) | Err(_) => return,
            }
        }
    }

    /// One request and its answer. An error is one of the socket: nothing more can be said.
    fn exchange(&mut self) -> io::Result<Next> {
        if self.wire.pending().is_empty() && !self.wait_idle()? {
            return Ok(Next::Drop);
        }
        let deadline = rt::now() + self.service.config.header_timeout;
        match self.read_head(deadline)? {
            Ok(Some(extent)) => self.answer(extent),
            Ok(None) => Ok(Next::Drop),
            Err(status) => {
                let head_only = self.wire.pending().starts_with(b"HEAD ");
                self.refuse(
                    status,
                    Frame {
                        keep: false,
                        old: false,
                        head_only,
                    },
                )
            }
        }
    }

    /// Waits for the first byte of a request; `false` if none came.
    fn wait_idle(&mut self) -> io::Result<bool> {
        self.wire.flush()?;
        let come = self.seat.set_idle()
            && self
                .wire
                .fill(rt::now() + self.service.config.idle_timeout)
                .is_ok();
        self.seat.set_busy();
        Ok(come)
    }

    /// Reads until the head is whole. `None` means that the client went away in the middle.
    fn read_head(&mut self, deadline: Instant) -> io::Result<Result<Option<Extent>, Status>> {
        let limit = self.service.config.header_bytes_max;
        let mut search = Search::default();
        loop {
            let have = self.wire.pending().len();
            match search.advance(self.wire.pending()) {
                Err(_bare) => return Ok(Err(Status::BadRequest)),
                Ok(Found::Blank) => {
                    self.wire.consume(2);
                    search = Search::default();
                    continue;
                }
                Ok(Found::Whole(extent)) if extent.request_line > REQUEST_LINE_BYTES_MAX => {
                    return Ok(Err(Status::UriTooLong));
                }
                Ok(Found::Whole(extent)) if extent.bytes > limit => {
                    return Ok(Err(Status::HeaderFieldsTooLarge));
                }
                Ok(Found::Whole(extent)) => return Ok(Ok(Some(extent))),
                Ok(Found::Open) => {}
            }
            // The CR of the line's end may be here already.
            let line_over = have > limit || have > REQUEST_LINE_BYTES_MAX + 1;
            if search.in_request_line() && line_over {
                return Ok(Err(Status::UriTooLong));
            }
            if have > limit {
                return Ok(Err(Status::HeaderFieldsTooLarge));
            }
            self.wire.flush()?;
            match self.wire.fill(deadline) {
                Ok(()) => {}
                Err(NoInput::End) => return Ok(Ok(None)),
                Err(NoInput::Late) => return Ok(Err(Status::RequestTimeout)),
            }
        }
    }

    /// Answers the request whose head is pending.
    fn answer(&mut self, extent: Extent) -> io::Result<Next> {
        let head = &self.wire.pending()[..extent.bytes];
        let head_only = head.starts_with(b"HEAD ");
        let parsed = if extent.headers > self.service.config.headers_max {
            Err(Status::HeaderFieldsTooLarge)
        } else {
            Request::parse(head, extent.headers)
        };
        self.wire.consume(extent.bytes);
        let request = match parsed {
            Ok(request) => request,
            Err(status) => {
                return self.refuse(
                    status,
                    Frame {
                        keep: false,
                        old: false,
                        head_only,
                    },
                );
            }
        };
        let mut frame = Frame {
            keep: request.keep_alive,
            old: request.old,
            head_only,
        };
        let read = self.read_body(&request)?;
        frame.keep &= read.is_ok() && !self.seat.is_draining();
        match (request.method, read) {
            (Method::NotAllowed, Ok(()) | Err(Some(Status::ContentTooLarge))) => {
                self.refuse(Status::MethodNotAllowed, frame)
            }
            (Method::Unknown, Ok(()) | Err(Some(Status::ContentTooLarge))) => {
                self.refuse(Status::NotImplemented, frame)
            }
            (_, Err(Some(status))) => self.refuse(status, frame),
            (_, Err(None)) => Ok(Next::Drop),
            (_, Ok(())) => self.send_named(&request, frame),
        }
    }

    /// Reads the body off. `Err(None)` means that the client went away in the middle.
    fn read_body(&mut self, request: &Request) -> io::Result<Result<(), Option<Status>>> {
        let mut left = match request.body {
            Body::Length(0) => return Ok(Ok(())),
            Body::Length(length) if length > BODY_BYTES_MAX => {
                return Ok(Err(Some(Status::ContentTooLarge)));
            }
            // It may send the body or not after a final answer: the next request cannot be found.
            _ if request.waits_to_send => return Ok(Err(Some(Status::ContentTooLarge))),
            Body::Length(length) => length,
            Body::Chunked => BODY_BYTES_MAX,
        };
        let mut chunks = (request.body == Body::Chunked).then(Decoder::new);
        let deadline = rt::now() + self.service.config.header_timeout;
        loop {
            let have = self.wire.pending();
            let within = &have[..usize::try_from(left).map_or(have.len(), |n| n.min(have.len()))];
            let (consumed, done) = match &mut chunks {
                None => (within.len(), within.len() as u64 == left),
                Some(decoder) => match decoder.advance(within) {
                    Ok(piece) => (piece.consumed, piece.done),
                    Err(_malformed) => return Ok(Err(Some(Status::BadRequest))),
                },
            };
            self.wire.consume(consumed);
            left -= consumed as u64;
            if done {
                return Ok(Ok(()));
            }
            if left == 0 {
                return Ok(Err(Some(Status::ContentTooLarge)));
            }
            self.wire.flush()?;
            match self.wire.fill(deadline) {
                Ok(()) => {}
                Err(NoInput::End) => return Ok(Err(None)),
                Err(NoInput::Late) => return Ok(Err(Some(Status::RequestTimeout))),
            }
        }
    }

    /// Answers a GET or HEAD with what its target names.
    fn send_named(&mut self, request: &Request, frame: Frame) -> io::Result<Next> {
        let Ok(name) = Name::parse(&request.target) else {
            return self.refuse(Status::BadRequest, frame);
        };
        let folder = &self.service.folder;
        let outcome = match folder.find(&name.bytes) {
            Ok(Opened::File(..)) if name.folder => Err(OpenError::Missing),
            Ok(Opened::Folder) => {
                let index = name.join("index.html");
                match folder.find(&index.bytes) {
                    Ok(Opened::File(..)) if !name.folder => {
                        return self.redirect(&name.folder_target(), frame);
                    }
                    outcome => outcome.map(|opened| (index, opened)),
                }
            }
            outcome => outcome.map(|opened| (name, opened)),
        };
        match outcome {
            Ok((name, Opened::File(file, size))) => {
                self.send_file(&name, &file, size, request, frame)
            }
            Ok((_, Opened::Folder)) | Err(OpenError::Missing) => {
                self.refuse(Status::NotFound, frame)
            }
            Err(OpenError::Exhausted) => self.refuse(Status::ServiceUnavailable, frame),
            Err(OpenError::Failed) => self.refuse(Status::InternalServerError, frame),
        }
    }

    fn send_file(
        &mut self,
        name: &Name,
        file: &File,
        size: u64,
        request: &Request,
        frame: Frame,
    ) -> io::Result<Next> {
        let whole = Slice {
            start: 0,
            length: size,
        };
        let (status, slice) = match request.range.map(|range| range.within(size)) {
            None => (Status::Ok, whole),
            Some(Some(slice)) => (Status::PartialContent, slice),
            Some(None) => return self.refuse_range(size, frame),
        };
        let mut head = ResponseHead::new(&mut self.head, status, &self.service.date);
        content_type(&mut head, &name.bytes);
        head.length(slice.length).line("Accept-Ranges", "bytes");
        if status == Status::PartialContent {
            head.content_range(slice.start, slice.start + slice.length - 1, size);
        }
        head.connection(frame.keep, frame.old).end();
        self.wire.put(&self.head)?;
        if !frame.head_only
            && let Err(error) = self.wire.put_file(file, slice)
        {
            // The length is promised already: only closing says that it was not kept.
            self.wire.flush()?;
            return Err(error);
        }
        Ok(self.sent(frame))
    }

    fn refuse_range(&mut self, size: u64, frame: Frame) -> io::Result<Next> {
        let every = format!("bytes */{size}");
        self.send_text(
            Status::RangeNotSatisfiable,
            &[("Content-Range", &every)],
            frame,
        )
    }

    fn redirect(&mut self, target: &str, frame: Frame) -> io::Result<Next> {
        self.send_text(Status::MovedPermanently, &[("Location", target)], frame)
    }

    fn refuse(&mut self, status: Status, frame: Frame) -> io::Result<Next> {
        match status {
            Status::MethodNotAllowed => self.send_text(status, &[("Allow", "GET, HEAD")], frame),
            Status::ServiceUnavailable => self.send_text(status, &[("Retry-After", "1")], frame),
            _ => self.send_text(status, &[], frame),
        }
    }

    /// Sends a line of text that says the status.
    fn send_text(
        &mut self,
        status: Status,
        lines: &[(&str, &str)],
        frame: Frame,
    ) -> io::Result<Next> {
        append_text(&mut self.head, status, lines, frame, self.service);
        self.wire.put(&self.head)?;
        Ok(self.sent(frame))
    }

    fn sent(&self, frame: Frame) -> Next {
        self.service.count_answer();
        if frame.keep { Next::Keep } else { Next::Close }
    }
}

/// Refuses a connection that is over the limit.
pub(super) fn turn_away(service: &Service, stream: &rt::TcpStream) {
    let frame = Frame {
        keep: false,
        old: false,
        head_only: false,
    };
    let mut head = Vec::new();
    let lines = [("Retry-After", "1")];
    append_text(
        &mut head,
        Status::ServiceUnavailable,
        &lines,
        frame,
        service,
    );
    let mut wire = Wire::new(stream, 1024, LINGER);
    if wire.put(&head).is_ok() {
        wire.linger(rt::now() + LINGER);
    }
}

fn append_text(
    out: &mut Vec<u8>,
    status: Status,
    lines: &[(&str, &str)],
    frame: Frame,
    service: &Service,
) {
    let body = format!("{} {}\n", status.code(), status.phrase());
    let mut head = ResponseHead::new(out, status, &service.date);
    head.line("Content-Type", "text/plain; charset=utf-8")
        .length(body.len() as u64);
    for (name, value) in lines {
        head.line(name, value);
    }
    head.connection(frame.keep, frame.old).end();
    if !frame.head_only {
        out.extend_from_slice(body.as_bytes());
    }
}

fn content_type(head: &mut ResponseHead<'_>, name: &[u8]) {
    let file = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    let file = String::from_utf8_lossy(file);
    let guess = mime_guess::from_path(Path::new(&*file)).first_raw();
    match guess.unwrap_or("application/octet-stream") {
        text if text.starts_with("text/") => {
            head.line("Content-Type", &format!("{text}; charset=utf-8"));
        }
        other => {
            head.line("Content-Type", other);
        }
    }
}
