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

use std::fmt;
use std::mem::MaybeUninit;

use crate::head::Extent;
use crate::status::Status;

/// How many header lines a request may have without an allocation for it.
pub const HEADERS_INLINE: usize = 48;

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

/// Where the header lines of one request are kept while it is looked at.
pub struct Slots<'a> {
    inline: [MaybeUninit<httparse::Header<'a>>; HEADERS_INLINE],
    more: Vec<httparse::Header<'a>>,
}

impl fmt::Debug for Slots<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Slots").finish_non_exhaustive()
    }
}

impl Default for Slots<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl Slots<'_> {
    /// Empty ones.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            inline: [const { MaybeUninit::uninit() }; HEADERS_INLINE],
            more: Vec::new(),
        }
    }
}

/// A request that is well formed.
#[derive(Debug)]
pub struct Request<'h, 'a> {
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
    headers: &'h [httparse::Header<'a>],
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

impl<'h, 'a> Request<'h, 'a> {
    /// Reads a head that ends with its empty line and has the size that was found.
    ///
    /// # Errors
    /// Why it is refused. Its body's end is unknown then: the connection must be closed after the answer.
    pub fn parse(head: &'a [u8], extent: Extent, slots: &'h mut Slots<'a>) -> Result<Self, Status> {
        let line = head.get(..extent.request_line).ok_or(Status::BadRequest)?;
        let (method, target, old) = request_line(line)?;
        let headers = parse_lines(head, extent, slots)?;
        let fields = Fields::gather(headers)?;
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
            headers,
        })
    }

    /// The values of every header of that name, in their order, without the white space around them.
    pub fn values<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'h, 'a, 'n> {
        let named = move |line: &&httparse::Header<'a>| line.name.eq_ignore_ascii_case(name);
        self.headers
            .iter()
            .filter(named)
            .map(|line| line.value.trim_ascii())
    }

    /// The value of a header that must stand there once to count.
    #[must_use]
    pub fn single(&self, name: &str) -> Option<&'a [u8]> {
        let mut values = self.values(name);
        let value = values.next()?;
        values.next().is_none().then_some(value)
    }
}

/// Has the header lines read by the grammar.
fn parse_lines<'h, 'a>(
    head: &'a [u8],
    extent: Extent,
    slots: &'h mut Slots<'a>,
) -> Result<&'h [httparse::Header<'a>], Status> {
    let Slots { inline, more } = slots;
    let parsed = if extent.headers <= HEADERS_INLINE {
        let mut parsed = httparse::Request::new(&mut []);
        let outcome = parsed.parse_with_uninit_headers(head, inline);
        (outcome, &*parsed.headers)
    } else {
        more.resize(extent.headers, httparse::EMPTY_HEADER);
        let mut parsed = httparse::Request::new(more);
        let outcome = parsed.parse(head);
        (outcome, &*parsed.headers)
    };
    match parsed {
        (Ok(httparse::Status::Complete(length)), headers) if length == head.len() => Ok(headers),
        _ => Err(Status::BadRequest),
    }
}

/// Splits the request line: method, target, and whether the version is 1.0.
fn request_line(line: &[u8]) -> Result<(Method, &[u8], bool), Status> {
    let mut parts = line.split(|&byte| byte == b' ');
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
        b"OPTIONS" => Method::Options,
        b"POST" => Method::Post,
        b"PUT" | b"DELETE" | b"PATCH" | b"TRACE" | b"CONNECT" => Method::Other,
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
            // By length first: most lines are of no interest here.
            match line.name.len() {
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
                    let name = line.name.as_bytes();
                    fields.conditional |= name
                        .get(..3)
                        .is_some_and(|start| start.eq_ignore_ascii_case(b"if-"));
                }
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
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether these are characters of a host and a port; an empty host is allowed.
fn is_host(host: &[u8]) -> bool {
    host.iter()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=:[]%".contains(byte))
}

#[cfg(test)]
mod tests;
