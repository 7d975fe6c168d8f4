//! What a request's head says.
//!
//! Owns: the reading of a complete head, and every reason to refuse one. The grammar of header lines
//! is `httparse`'s; what this file adds is strictness where two readings are possible.
//!
//! Invariants:
//! - I1: a [`Request`] has exactly one reading of where its body ends. Both framings at once, lengths
//!   that differ, a coding that is not exactly `chunked`, or a coding in HTTP/1.0 are refused.
//! - I2: a head that is refused here gives no framing, so its connection is closed after the answer.
//!
//! Source: RFC 9110, RFC 9112 (sections 3, 5 and 6).

use super::range::Range;
use super::status::Status;

/// A method, as far as this server tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Head,
    /// Defined by HTTP, not offered for files.
    NotAllowed,
    /// Not known at all.
    Unknown,
}

/// How the end of the body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// So many bytes, usually none.
    Length(u64),
    /// Chunked.
    Chunked,
}

/// A request that is well formed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) target: Vec<u8>,
    /// Whether the client counts on the connection staying open.
    pub(super) keep_alive: bool,
    /// Whether the client is an HTTP/1.0 one, which must be told that the connection stays.
    pub(super) old: bool,
    pub(super) body: Body,
    /// Whether the client waits for leave to send its body.
    pub(super) waits_to_send: bool,
    pub(super) range: Option<Range>,
}

/// The header lines that matter here, gathered.
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
    ranges: usize,
    range: &'a [u8],
    if_range: bool,
}

impl Request {
    /// Reads a head of `headers` header lines that ends with its empty line.
    pub(super) fn parse(head: &[u8], headers: usize) -> Result<Self, Status> {
        let (method, target, old) = request_line(head)?;
        let mut lines = vec![httparse::EMPTY_HEADER; headers];
        let mut parsed = httparse::Request::new(&mut lines);
        match parsed.parse(head) {
            Ok(httparse::Status::Complete(length)) if length == head.len() => {}
            _ => return Err(Status::BadRequest),
        }
        let fields = Fields::gather(parsed.headers)?;
        if fields.hosts > 1 || (fields.hosts == 0 && !old) || !is_host(fields.host) {
            return Err(Status::BadRequest);
        }
        let body = fields.body(old)?;
        let waits_to_send = match fields.expect {
            None => false,
            Some(value) if value.eq_ignore_ascii_case(b"100-continue") => !old,
            Some(_) => return Err(Status::ExpectationFailed),
        };
        // Without validators nobody can say that a conditional range still fits: send the whole.
        let range = if method == Method::Get && fields.ranges == 1 && !fields.if_range {
            Range::parse(fields.range)
        } else {
            None
        };
        Ok(Self {
            method,
            target: target.to_vec(),
            keep_alive: !fields.close && (!old || fields.keep_alive),
            old,
            body,
            waits_to_send,
            range,
        })
    }
}

/// Splits the request line: method, target, and whether the version is 1.0.
fn request_line(head: &[u8]) -> Result<(Method, &[u8], bool), Status> {
    let end = head
        .iter()
        .position(|&byte| byte == b'\r')
        .ok_or(Status::BadRequest)?;
    let mut parts = head[..end].split(|&byte| byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Status::BadRequest);
    };
    if method.is_empty() || !method.iter().copied().all(is_token) {
        return Err(Status::BadRequest);
    }
    let graphic = |&byte: &u8| byte.is_ascii_graphic() && byte != b'#';
    if target.is_empty() || !target.iter().all(graphic) {
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
        b"POST" | b"PUT" | b"DELETE" | b"PATCH" | b"OPTIONS" | b"TRACE" | b"CONNECT" => {
            Method::NotAllowed
        }
        _ => Method::Unknown,
    };
    Ok((method, target, old))
}

impl<'a> Fields<'a> {
    fn gather(lines: &[httparse::Header<'a>]) -> Result<Self, Status> {
        let mut fields = Self::default();
        for line in lines {
            let value = line.value.trim_ascii();
            let is = |name: &str| line.name.eq_ignore_ascii_case(name);
            if is("host") {
                fields.hosts += 1;
                fields.host = value;
            } else if is("content-length") {
                let length = length(value).ok_or(Status::BadRequest)?;
                if fields.length.is_some_and(|other| other != length) {
                    return Err(Status::BadRequest);
                }
                fields.length = Some(length);
            } else if is("transfer-encoding") {
                fields.codings += 1;
                fields.coding = value;
            } else if is("connection") {
                for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                    fields.close |= option.eq_ignore_ascii_case(b"close");
                    fields.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            } else if is("expect") {
                fields.expect = Some(value);
            } else if is("range") {
                fields.ranges += 1;
                fields.range = value;
            } else if is("if-range") {
                fields.if_range = true;
            }
        }
        Ok(fields)
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

/// RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether these are characters of a host and a port; an empty host is allowed.
fn is_host(host: &[u8]) -> bool {
    host.iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=:[]%".contains(byte))
}

#[cfg(test)]
mod tests;
