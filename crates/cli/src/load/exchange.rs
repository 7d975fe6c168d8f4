//! One client: its connection, requests out, answers in.
//!
//! Owns: the socket and the input buffer of one coroutine of the generator, and how many requests are on the wire.
//!
//! Invariants:
//! - I1: answers are counted for requests in the order in which these were sent. A connection is used for more only after
//!   answers that were whole and well formed, that did not announce its end, and of which the last was followed by nothing.
//! - I2: every wait ends at the deadline that its caller gives.
//! - I3: after a failure nothing is on the wire: what had been sent and was not answered has to be sent again.
//!
//! Source: RFC 9112, section 6.3.

use std::io::{self, Read, Write};
use std::mem;
use std::net::SocketAddr;
use std::time::Instant;

use sinew_http::Decoder;

use super::tally::Failure;
use crate::rt::{self, TcpStream};
use crate::serve::wire::is_timeout;

/// The largest head of an answer, and the unit of reading.
const INPUT_BYTES: usize = 16 * 1024;

/// The most header lines of an answer.
const HEADERS_MAX: usize = 64;

/// A whole answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Bytes of the body, coding not counted.
    pub(super) body_bytes: u64,
    /// Bytes that came, all counted.
    pub(super) wire_bytes: u64,
}

/// How the end of an answer's body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Length(u64),
    Chunked,
    /// The connection's end is the body's.
    UntilClose,
}

/// What the head of an answer says.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    bytes: usize,
    status: u16,
    body: Body,
    keep: bool,
}

/// One client of the server under load.
#[derive(Debug)]
pub(super) struct Client<'a> {
    addresses: &'a [SocketAddr],
    /// The same request, as often as there may be on the wire.
    requests: &'a [u8],
    request_bytes: usize,
    stream: Option<TcpStream>,
    /// Requests on the wire that were not answered.
    sent: usize,
    input: Vec<u8>,
    start: usize,
    end: usize,
    wire_bytes: u64,
    /// Connections that replaced one that the server had closed.
    pub(super) reconnects: u64,
    connected_before: bool,
}

impl<'a> Client<'a> {
    /// A client that sends `requests`, so many times the same, at most so many at a time.
    pub(super) fn new(addresses: &'a [SocketAddr], requests: &'a [u8], times: usize) -> Self {
        Self {
            addresses,
            requests,
            request_bytes: requests.len() / times,
            stream: None,
            sent: 0,
            input: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            wire_bytes: 0,
            reconnects: 0,
            connected_before: false,
        }
    }

    /// Whether answers, or the beginning of one, have come already: asking for more can wait.
    pub(super) fn has_input(&self) -> bool {
        self.start < self.end
    }

    /// Has `flight` requests on the wire, connecting first where necessary, and reads the next answer.
    ///
    /// A server may close a connection after any answer, at the moment when more requests are on their way. That is
    /// no failure: these are sent once more on a new connection.
    pub(super) fn exchange(&mut self, flight: usize, deadline: Instant) -> Result<Answer, Failure> {
        self.wire_bytes = 0;
        let nothing_of_it = !self.has_input();
        let used = self.stream.is_some();
        match self.attempt(flight, deadline) {
            Err(Failure::Reset) if used && nothing_of_it && self.wire_bytes == 0 => {
                self.attempt(flight, deadline)
            }
            outcome => outcome,
        }
    }

    fn attempt(&mut self, flight: usize, deadline: Instant) -> Result<Answer, Failure> {
        // INVARIANT: I3. Both come back only if all goes well.
        let (stream, mut sent) = match self.stream.take() {
            Some(stream) => (stream, mem::take(&mut self.sent)),
            None => {
                (self.start, self.end, self.sent) = (0, 0, 0);
                if rt::now() >= deadline {
                    return Err(Failure::Timeout);
                }
                (self.connect(deadline)?, 0)
            }
        };
        if sent < flight && !self.has_input() {
            self.send(&stream, flight - sent, deadline)?;
            sent = flight;
        }
        let head = self.head(&stream, deadline)?;
        let body_bytes = match head.body {
            Body::Length(length) => self.counted(&stream, length, deadline)?,
            Body::Chunked => self.chunked(&stream, deadline)?,
            Body::UntilClose => self.until_close(&stream, deadline)?,
        };
        if sent == 1 && self.has_input() {
            // Nobody asked for more than that.
            return Err(Failure::Protocol);
        }
        if head.keep && head.body != Body::UntilClose {
            self.stream = Some(stream);
            self.sent = sent - 1;
        }
        Ok(Answer {
            status: head.status,
            body_bytes,
            wire_bytes: self.wire_bytes,
        })
    }

    fn connect(&mut self, deadline: Instant) -> Result<TcpStream, Failure> {
        for &address in self.addresses {
            let left = deadline.saturating_duration_since(rt::now());
            if left.is_zero() {
                break;
            }
            if let Ok(stream) = rt::connect(address, left) {
                stream.set_nodelay(true).map_err(|_gone| Failure::Reset)?;
                self.reconnects += u64::from(self.connected_before);
                self.connected_before = true;
                return Ok(stream);
            }
        }
        Err(Failure::Connect)
    }

    fn send(&self, mut stream: &TcpStream, times: usize, deadline: Instant) -> Result<(), Failure> {
        let mut rest = &self.requests[..times * self.request_bytes];
        while !rest.is_empty() {
            let left = deadline.saturating_duration_since(rt::now());
            if left.is_zero() {
                return Err(Failure::Timeout);
            }
            stream
                .set_write_timeout(Some(left))
                .map_err(|_gone| Failure::Reset)?;
            match stream.write(rest) {
                Ok(0) => return Err(Failure::Reset),
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {}
                Err(_gone) => return Err(Failure::Reset),
            }
        }
        Ok(())
    }

    /// Reads behind what is pending; `Ok(false)` is the end of the stream.
    fn fill(&mut self, mut stream: &TcpStream, deadline: Instant) -> Result<bool, Failure> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        loop {
            let left = deadline.saturating_duration_since(rt::now());
            if left.is_zero() {
                return Err(Failure::Timeout);
            }
            stream
                .set_read_timeout(Some(left))
                .map_err(|_gone| Failure::Reset)?;
            match stream.read(&mut self.input[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    self.wire_bytes += count as u64;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {}
                Err(_gone) => return Err(Failure::Reset),
            }
        }
    }

    /// Reads the head of the final answer; interim ones (1xx) are skipped.
    fn head(&mut self, stream: &TcpStream, deadline: Instant) -> Result<Head, Failure> {
        loop {
            if let Some(head) = parse_head(&self.input[self.start..self.end])? {
                self.start += head.bytes;
                match head.status {
                    101 => return Err(Failure::Protocol),
                    100..200 => continue,
                    _ => return Ok(head),
                }
            }
            if self.start > 0 {
                self.input.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            if self.end == self.input.len() {
                return Err(Failure::Protocol);
            }
            if !self.fill(stream, deadline)? {
                return Err(if self.end == 0 {
                    Failure::Reset
                } else {
                    Failure::Protocol
                });
            }
        }
    }

    fn counted(
        &mut self,
        stream: &TcpStream,
        length: u64,
        deadline: Instant,
    ) -> Result<u64, Failure> {
        let mut left = length;
        loop {
            let have = self.end - self.start;
            let take = usize::try_from(left).map_or(have, |left| left.min(have));
            self.start += take;
            left -= take as u64;
            if left == 0 {
                return Ok(length);
            }
            if !self.fill(stream, deadline)? {
                return Err(Failure::Length);
            }
        }
    }

    fn chunked(&mut self, stream: &TcpStream, deadline: Instant) -> Result<u64, Failure> {
        let mut decoder = Decoder::new();
        let mut body = 0;
        loop {
            let piece = decoder.advance(&self.input[self.start..self.end]);
            let piece = piece.map_err(|_malformed| Failure::Protocol)?;
            self.start += piece.consumed;
            body += piece.body as u64;
            if piece.done {
                return Ok(body);
            }
            if !self.fill(stream, deadline)? {
                return Err(Failure::Length);
            }
        }
    }

    fn until_close(&mut self, stream: &TcpStream, deadline: Instant) -> Result<u64, Failure> {
        let mut body = 0;
        loop {
            body += (self.end - self.start) as u64;
            self.start = self.end;
            if !self.fill(stream, deadline)? {
                return Ok(body);
            }
        }
    }
}

/// Reads a head; `None` means that it is not whole yet.
fn parse_head(input: &[u8]) -> Result<Option<Head>, Failure> {
    let mut lines = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Response::new(&mut lines);
    let bytes = match parsed.parse(input) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(Failure::Protocol),
    };
    let status = parsed.code.ok_or(Failure::Protocol)?;
    let old = parsed.version == Some(0);
    let (mut length, mut chunked, mut coded) = (None, false, false);
    let (mut close, mut keep_alive) = (false, false);
    for line in parsed.headers.iter() {
        let value = line.value.trim_ascii();
        if line.name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(value).map_err(|_| Failure::Protocol)?;
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let number: u64 = text.parse().map_err(|_| Failure::Protocol)?;
            if !digits || length.is_some_and(|other| other != number) {
                return Err(Failure::Protocol);
            }
            length = Some(number);
        } else if line.name.eq_ignore_ascii_case("transfer-encoding") {
            coded = true;
            let last = value.rsplit(|&byte| byte == b',').next().unwrap_or(value);
            chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
        } else if line.name.eq_ignore_ascii_case("connection") {
            for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                close |= option.eq_ignore_ascii_case(b"close");
                keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        }
    }
    let body = match (status, coded, length) {
        (100..200 | 204 | 304, ..) => Body::Length(0),
        (_, true, Some(_)) => return Err(Failure::Protocol),
        (_, true, None) if chunked => Body::Chunked,
        (_, false, Some(length)) => Body::Length(length),
        (_, _, None) => Body::UntilClose,
    };
    Ok(Some(Head {
        bytes,
        status,
        body,
        keep: !close && (!old || keep_alive),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_heads() {
        let table = [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
                200,
                Body::Length(5),
                true,
            ),
            (
                "HTTP/1.1 200\r\nContent-Length: 5\r\nConnection: Close\r\n\r\n",
                200,
                Body::Length(5),
                false,
            ),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n",
                200,
                Body::Length(5),
                false,
            ),
            (
                "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n",
                200,
                Body::UntilClose,
                true,
            ),
            (
                "HTTP/1.1 404 No\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n",
                404,
                Body::Chunked,
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
                200,
                Body::UntilClose,
                true,
            ),
            (
                "HTTP/1.1 304 Same\r\nContent-Length: 5\r\n\r\n",
                304,
                Body::Length(0),
                true,
            ),
            ("HTTP/1.1 204 None\r\n\r\n", 204, Body::Length(0), true),
        ];
        for (text, status, body, keep) in table {
            let head = Head {
                bytes: text.len(),
                status,
                body,
                keep,
            };
            assert_eq!(parse_head(text.as_bytes()), Ok(Some(head)), "{text:?}");
            assert_eq!(
                parse_head(&text.as_bytes()[..text.len() - 1]),
                Ok(None),
                "{text:?}"
            );
        }
    }

    #[test]
    fn refuses_what_is_not_http() {
        for text in [
            "SSH-2.0-x\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 2x0 OK\r\n\r\n",
        ] {
            assert_eq!(
                parse_head(text.as_bytes()),
                Err(Failure::Protocol),
                "{text:?}"
            );
        }
    }
}
