//! Entity tags, preconditions, and the order in which they are looked at.
//!
//! Owns: what `If-Match`, `If-Unmodified-Since`, `If-None-Match`, `If-Modified-Since` and `If-Range` mean for a representation that
//! exists.
//!
//! Invariants:
//! - I1: a header that does not parse never makes an answer 304 or 206, and an `If-Match` that does not parse is not met.
//! - I2: where both stand, the tag decides and the date is not looked at.
//!
//! Source: RFC 9110, sections 8.8, 13.1 and 13.2.2.

use std::fmt::{self, Write};
use std::time::UNIX_EPOCH;

use crate::request::{Method, Request};

/// The most numbers of a tag.
const NUMBERS_MAX: usize = 4;

/// Numbers of 16 digits, what stands between them and around them.
const TAG_BYTES: usize = NUMBERS_MAX * 17 + 1;

/// A strong entity tag, kept without an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EntityTag {
    bytes: [u8; TAG_BYTES],
    length: u8,
}

impl fmt::Debug for EntityTag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl Write for EntityTag {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let start = usize::from(self.length);
        let end = start + text.len();
        let target = self.bytes.get_mut(start..end).ok_or(fmt::Error)?;
        target.copy_from_slice(text.as_bytes());
        self.length = end as u8;
        Ok(())
    }
}

impl EntityTag {
    /// The tag of some numbers, of one to four.
    #[must_use]
    pub fn new<const N: usize>(numbers: [u64; N]) -> Self {
        const { assert!(1 <= N && N <= NUMBERS_MAX, "one number to four") };
        let mut tag = Self {
            bytes: [0; TAG_BYTES],
            length: 0,
        };
        let mut before = '"';
        for number in numbers {
            let written = write!(tag, "{before}{number:x}");
            debug_assert!(written.is_ok(), "they fit");
            before = '-';
        }
        let closed = tag.write_char('"');
        debug_assert!(closed.is_ok(), "it fits");
        tag
    }

    /// The tag with its quotes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = &self.bytes[..usize::from(self.length)];
        std::str::from_utf8(bytes).unwrap_or("\"\"")
    }

    fn opaque(&self) -> &[u8] {
        self.as_str().as_bytes()
    }
}

/// What tells two versions of a representation apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validators {
    /// Changes whenever the representation does.
    pub tag: EntityTag,
    /// When it changed last, in seconds since 1970. Whoever says `Last-Modified` only after that second is over makes it as
    /// strong as the tag.
    pub modified: u64,
}

/// What the preconditions of a request make of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: it is to be answered.
    Proceed,
    /// 304: the client has it already.
    NotModified,
    /// 412: it is not what the client thinks.
    Failed,
}

impl Validators {
    /// Looks at the preconditions in their order; `If-Range` is not among them.
    #[must_use]
    pub fn judge(&self, request: &Request<'_>) -> Verdict {
        if !request.is_conditional {
            return Verdict::Proceed;
        }
        let reading = matches!(request.method, Method::Get | Method::Head);
        if let Some(met) = self.listed(request, "if-match", Comparison::Strong) {
            if !met {
                return Verdict::Failed;
            }
        } else if let Some(date) = seconds(request.single("if-unmodified-since"))
            && self.modified > date
        {
            return Verdict::Failed;
        }
        match self.listed(request, "if-none-match", Comparison::Weak) {
            Some(true) if reading => Verdict::NotModified,
            Some(true) => Verdict::Failed,
            Some(false) => Verdict::Proceed,
            None => match seconds(request.single("if-modified-since")) {
                Some(date) if reading && self.modified <= date => Verdict::NotModified,
                _ => Verdict::Proceed,
            },
        }
    }

    /// Whether a range of this representation is what the client wants; without `If-Range` it is.
    #[must_use]
    pub fn fit_range(&self, request: &Request<'_>) -> bool {
        if !request.is_conditional || request.values("if-range").next().is_none() {
            return true;
        }
        match request.single("if-range") {
            Some(value) if value.starts_with(b"\"") => value == self.tag.opaque(),
            // A weak tag, which says nothing about bytes, is no date either.
            value => seconds(value) == Some(self.modified),
        }
    }

    /// Whether one of the tags of a header is ours; `None` if there is no such header.
    fn listed(&self, request: &Request<'_>, name: &str, comparison: Comparison) -> Option<bool> {
        let mut values = request.values(name).peekable();
        values.peek()?;
        // All of them are read: a list that is malformed at its end is malformed.
        let matches = values.map(|value| matches_list(value, self.tag.opaque(), comparison));
        let all: Option<bool> = matches
            .into_iter()
            .try_fold(false, |any, one| Some(any | one?));
        Some(all.unwrap_or(false))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    /// Weak tags match nothing.
    Strong,
    /// Weak tags match as strong ones do.
    Weak,
}

/// Whether a list of tags, or the star, matches; `None` if it is neither.
fn matches_list(value: &[u8], ours: &[u8], comparison: Comparison) -> Option<bool> {
    if value == b"*" {
        return Some(true);
    }
    let mut rest = value;
    let (mut any, mut tags) = (false, 0);
    loop {
        rest = rest.trim_ascii_start();
        // Empty elements of a list mean nothing.
        if let Some(after) = rest.strip_prefix(b",") {
            rest = after;
            continue;
        }
        if rest.is_empty() {
            return (tags > 0).then_some(any);
        }
        let (weak, tag) = match rest.strip_prefix(b"W/") {
            Some(tag) => (true, tag),
            None => (false, rest),
        };
        let inner = tag.strip_prefix(b"\"")?;
        let length = inner
            .iter()
            .position(|&byte| !matches!(byte, 0x21 | 0x23..=0x7e | 0x80..))?;
        if inner[length] != b'"' {
            return None;
        }
        let (tag, after) = tag.split_at(length + 2);
        any |= tag == ours && !(weak && comparison == Comparison::Strong);
        tags += 1;
        rest = after.trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(b",") {
            return None;
        }
    }
}

/// A date of HTTP in any of its three forms, in seconds since 1970.
fn seconds(value: Option<&[u8]>) -> Option<u64> {
    let text = std::str::from_utf8(value?).ok()?;
    let time = httpdate::parse_http_date(text).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests;
