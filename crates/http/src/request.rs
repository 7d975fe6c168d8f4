//! What a request's head says.
//!
//! Owns: the reading of a complete head, in one pass, and every reason to refuse one. It is strict where two readings are possible.
//! Nothing is kept of the header lines that are not asked for by every request: who asks for another reads them anew.
//!
//! Invariants:
//! - I1: a [`Request`] has exactly one reading of where its body ends. Both framings at once, lengths
//!   that differ, a coding that is not exactly `chunked`, or a coding in HTTP/1.0 are refused.
//! - I2: a head that is refused here gives no framing, so its connection is closed after the answer.
//!
//! Source: RFC 9110, RFC 9112 (sections 3, 5 and 6).

use memchr::memchr;

use crate::head::Extent;
use crate::status::Status;

/// A method, as far as a server of files tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `OPTIONS`.
    Options,
    /// `POST`.
    Post,
    /// `PUT`, `DELETE`, `PATCH`, `TRACE` or `CONNECT`.
    Other,
    /// Not known at all.
    Unknown,
}

/// How the end of the body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// So many bytes, usually none.
    Length(u64),
    /// Chunked.
    Chunked,
}

/// A request that is well formed.
#[derive(Debug)]
pub struct Request<'a> {
    /// The request line, as it came.
    pub line: &'a [u8],
    /// The method.
    pub method: Method,
    /// The target, as it came: printable ASCII without `#`.
    pub target: &'a [u8],
    /// Whether the client counts on the connection staying open.
    pub keep_alive: bool,
    /// Whether the client is an HTTP/1.0 one, which must be told that the connection stays.
    pub old: bool,
    /// How the end of the body is found.
    pub body: Body,
    /// Whether the client waits for leave to send its body.
    pub waits_to_send: bool,
    /// Whether there is a precondition: a header whose name begins with `If-`.
    pub is_conditional: bool,
    /// Whether there is a header `Range`.
    pub has_range: bool,
    /// The header lines with their ends, without the empty one. All of them are well formed.
    lines: &'a [u8],
}

/// The header lines that matter to every request, gathered.
#[derive(Debug, Default)]
struct Fields<'a> {
    hosts: usize,
    host: &'a [u8],
    length: Option<u64>,
    codings: usize,
    coding: &'a [u8],
    close: bool,
    keep_alive: bool,
    expect: Option<&'a [u8]>,
    range: bool,
    conditional: bool,
}

impl<'a> Request<'a> {
    /// Reads a head that ends with its empty line and has the size that was found.
    ///
    /// # Errors
    /// Why it is refused. Its body's end is unknown then: the connection must be closed after the answer.
    pub fn parse(head: &'a [u8], extent: Extent) -> Result<Self, Status> {
        let Some((line, [b'\r', b'\n', lines @ ..])) = head.split_at_checked(extent.request_line)
        else {
            return Err(Status::BadRequest);
        };
        let (method, target, old) = request_line(line)?;
        let (fields, lines) = Fields::gather(lines)?;
        if fields.hosts > 1 || (fields.hosts == 0 && !old) || !is_host(fields.host) {
            return Err(Status::BadRequest);
        }
        let body = fields.body(old)?;
        let waits_to_send = match fields.expect {
            None => false,
            Some(value) if value.eq_ignore_ascii_case(b"100-continue") => !old,
            Some(_) => return Err(Status::ExpectationFailed),
        };
        Ok(Self {
            line,
            method,
            target,
            keep_alive: !fields.close && (!old || fields.keep_alive),
            old,
            body,
            waits_to_send,
            is_conditional: fields.conditional,
            has_range: fields.range,
            lines,
        })
    }

    /// The values of every header of that name, in their order, without the white space around them.
    pub fn values<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let mut rest = self.lines;
        let lines = std::iter::from_fn(move || {
            let (line, after) = rest.split_at_checked(memchr(b'\n', rest)? + 1)?;
            rest = after;
            line.split_at_checked(memchr(b':', line)?)
        });
        let named = lines.filter(|(of, _)| of.eq_ignore_ascii_case(name.as_bytes()));
        // Without the colon.
        named.map(|(_, value)| value[1..].trim_ascii())
    }

    /// The value of a header that must stand there once to count.
    #[must_use]
    pub fn single(&self, name: &str) -> Option<&'a [u8]> {
        let mut values = self.values(name);
        let value = values.next()?;
        values.next().is_none().then_some(value)
    }
}

/// Takes the bytes of a class from the beginning.
#[inline]
fn take(bytes: &[u8], class: u8) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|&byte| !is(byte, class));
    bytes.split_at(end.unwrap_or(bytes.len()))
}

/// How many bytes from the beginning may stand in a value: all up to a control character, but for tabs.
#[inline]
fn value_length(bytes: &[u8]) -> usize {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk() {
        let word = u64::from_le_bytes(*chunk);
        // The highest bit of each byte that is less than a space, or DEL. What is borrowed spoils only bytes behind such a one.
        let low = word.wrapping_sub(EACH * 0x20) & !word;
        let other = word ^ (EACH * 0x7f);
        let delete = other.wrapping_sub(EACH) & !other;
        let found = (low | delete) & (EACH * 0x80);
        if found == 0 {
            at += 8;
            continue;
        }
        at += found.trailing_zeros() as usize / 8;
        if bytes[at] != b'\t' {
            return at;
        }
        at += 1;
    }
    at + take(&bytes[at..], VALUE).0.len()
}

/// Takes one header line: its name, its value without the white space around, and what follows.
#[inline]
fn header_line(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (name, [b':', rest @ ..]) = take(bytes, TOKEN) else {
        return None;
    };
    let (value, [b'\r', b'\n', rest @ ..]) = rest.split_at(value_length(rest)) else {
        return None;
    };
    (!name.is_empty()).then_some((name, value.trim_ascii(), rest))
}

/// Splits the request line: method, target, and whether the version is 1.0.
fn request_line(line: &[u8]) -> Result<(Method, &[u8], bool), Status> {
    let (method, [b' ', rest @ ..]) = take(line, TOKEN) else {
        return Err(Status::BadRequest);
    };
    let (target, [b' ', version @ ..]) = take(rest, TARGET) else {
        return Err(Status::BadRequest);
    };
    if method.is_empty() || target.is_empty() {
        return Err(Status::BadRequest);
    }
    let old = match version {
        b"HTTP/1.1" => false,
        b"HTTP/1.0" => true,
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
            return Err(Status::VersionNotSupported);
        }
        _ => return Err(Status::BadRequest),
    };
    let method = match method {
        b"GET" => Method::Get,
        b"HEAD" => Method::Head,
        b"OPTIONS" => Method::Options,
        b"POST" => Method::Post,
        b"PUT" | b"DELETE" | b"PATCH" | b"TRACE" | b"CONNECT" => Method::Other,
        _ => Method::Unknown,
    };
    Ok((method, target, old))
}

impl<'a> Fields<'a> {
    /// Reads all header lines and the empty one, which are all that there is. Returns the lines too.
    fn gather(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Status> {
        let mut fields = Self::default();
        let mut rest = bytes;
        while rest != b"\r\n" {
            let (name, value, after) = header_line(rest).ok_or(Status::BadRequest)?;
            rest = after;
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            // By length first: most lines are of no interest here.
            match name.len() {
                4 if is("host") => {
                    fields.hosts += 1;
                    fields.host = value;
                }
                14 if is("content-length") => {
                    let length = length(value).ok_or(Status::BadRequest)?;
                    if fields.length.is_some_and(|other| other != length) {
                        return Err(Status::BadRequest);
                    }
                    fields.length = Some(length);
                }
                17 if is("transfer-encoding") => {
                    fields.codings += 1;
                    fields.coding = value;
                }
                10 if is("connection") => {
                    for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                        fields.close |= option.eq_ignore_ascii_case(b"close");
                        fields.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                6 if is("expect") => fields.expect = Some(value),
                5 if is("range") => fields.range = true,
                _ => {
                    fields.conditional |= name
                        .get(..3)
                        .is_some_and(|start| start.eq_ignore_ascii_case(b"if-"));
                }
            }
        }
        Ok((fields, &bytes[..bytes.len() - rest.len()]))
    }

    // INVARIANT: I1.
    fn body(&self, old: bool) -> Result<Body, Status> {
        match (self.codings, self.length) {
            (0, length) => Ok(Body::Length(length.unwrap_or(0))),
            (1, None) if old => Err(Status::BadRequest),
            (1, None) if self.coding.eq_ignore_ascii_case(b"chunked") => Ok(Body::Chunked),
            (_, None) if !old && !self.coding.is_empty() => Err(Status::NotImplemented),
            _ => Err(Status::BadRequest),
        }
    }
}

/// A length: digits only, within 64 bits.
fn length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Characters of a token: RFC 9110, section 5.6.2.
const TOKEN: u8 = 1;
/// Characters of a target: printable ASCII without `#`.
const TARGET: u8 = 1 << 1;
/// Characters of a host and a port.
const HOST: u8 = 1 << 2;
/// Characters of a value.
const VALUE: u8 = 1 << 3;

/// The classes of each byte.
static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0_u8;
    loop {
        classes[byte as usize] = classes_of(byte);
        if byte == u8::MAX {
            break classes;
        }
        byte += 1;
    }
};

const fn classes_of(byte: u8) -> u8 {
    let letter = if byte.is_ascii_alphanumeric() {
        TOKEN | HOST
    } else {
        0
    };
    let of_token = match byte {
        b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~' => TOKEN,
        _ => 0,
    };
    let of_host = match byte {
        b'!' | b'$'..=b'+' | b'-' | b'.' | b':' | b';' | b'=' | b'[' | b']' | b'_' | b'~' => HOST,
        _ => 0,
    };
    let of_target = if byte.is_ascii_graphic() && byte != b'#' {
        TARGET
    } else {
        0
    };
    let of_value = match byte {
        b'\t' | b' '..=b'~' | 0x80.. => VALUE,
        _ => 0,
    };
    letter | of_token | of_host | of_target | of_value
}

#[inline]
fn is(byte: u8, class: u8) -> bool {
    CLASSES[usize::from(byte)] & class != 0
}

/// Whether it is a character of a token.
#[inline]
pub(crate) fn is_token(byte: u8) -> bool {
    is(byte, TOKEN)
}

/// Whether these are characters of a host and a port; an empty host is allowed.
fn is_host(host: &[u8]) -> bool {
    host.iter().all(|&byte| is(byte, HOST))
}

#[cfg(test)]
mod tests;
