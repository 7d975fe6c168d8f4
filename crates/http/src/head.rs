//! Where does the head of a request end?
//!
//! Owns: the search for the empty line, one pass over the bytes however small the pieces are in
//! which they come, and the limits of a head's size. Reading what the head says is the part of `request`.
//!
//! Invariants:
//! - I1: every LF of a head follows a CR. A bare LF is refused as soon as it comes, because two
//!   parsers that disagree about line ends disagree about where the next request starts.
//! - I2: of several things that are wrong, the one at the lowest offset is reported, so that the
//!   outcome does not depend on how much has come already.

use memchr::memchr;

use crate::request::is_token;
use crate::status::Status;

/// What was found so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Not the end yet.
    Open,
    /// An empty line before the request line, to be skipped: two bytes.
    Blank,
    /// The whole head.
    Whole(Extent),
}

/// The size of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes, the empty line included.
    pub bytes: usize,
    /// Bytes of the request line, without its end.
    pub request_line: usize,
    /// Header lines.
    pub headers: usize,
}

/// The search within one head.
#[derive(Debug)]
pub(crate) struct Search {
    /// The most bytes of a request line, its end not counted.
    line_max: usize,
    /// The most bytes of a head, its end counted.
    head_max: usize,
    seen: usize,
    line_start: usize,
    lines: usize,
    request_line: usize,
}

impl Search {
    pub(crate) fn new(line_max: usize, head_max: usize) -> Self {
        Self {
            line_max,
            head_max,
            seen: 0,
            line_start: 0,
            lines: 0,
            request_line: 0,
        }
    }

    /// Forgets the head.
    pub(crate) fn restart(&mut self) {
        (self.seen, self.line_start, self.lines) = (0, 0, 0);
    }

    /// Goes on over `bytes`, which begin with the head and only ever grow.
    pub(crate) fn advance(&mut self, bytes: &[u8]) -> Result<Found, Status> {
        if bytes.first().is_some_and(|&first| !may_begin(first)) {
            return Err(Status::BadRequest);
        }
        loop {
            let line_feed = memchr(b'\n', &bytes[self.seen..]).map(|step| self.seen + step);
            // INVARIANT: I2. What is too long is so before whatever comes at the line's end.
            self.check_size(line_feed, bytes.len())?;
            let Some(at) = line_feed else {
                self.seen = bytes.len();
                return Ok(Found::Open);
            };
            // INVARIANT: I1.
            if at == self.line_start || bytes[at - 1] != b'\r' {
                return Err(Status::BadRequest);
            }
            let length = at - 1 - self.line_start;
            self.seen = at + 1;
            self.line_start = at + 1;
            match (self.lines, length) {
                (0, 0) => return Ok(Found::Blank),
                (0, _) => self.request_line = length,
                (lines, 0) => {
                    return Ok(Found::Whole(Extent {
                        bytes: at + 1,
                        request_line: self.request_line,
                        headers: lines - 1,
                    }));
                }
                _ => {}
            }
            self.lines += 1;
        }
    }

    /// The line ends at `line_feed`, or goes on beyond what `have` come.
    fn check_size(&self, line_feed: Option<usize>, have: usize) -> Result<(), Status> {
        // How many bytes the head has at least.
        let bytes = line_feed.map_or(have, |at| at + 1);
        let in_request_line = self.lines == 0;
        let line = line_feed.unwrap_or(have).saturating_sub(1);
        if in_request_line && (line > self.line_max || bytes > self.head_max) {
            return Err(Status::UriTooLong);
        }
        if bytes > self.head_max {
            return Err(Status::HeaderFieldsTooLarge);
        }
        Ok(())
    }
}

/// Whether a head may begin so: with a method, or with an empty line. What cannot is said at once; who speaks TLS here would
/// send no line end, and wait.
fn may_begin(byte: u8) -> bool {
    is_token(byte) || byte == b'\r'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search() -> Search {
        Search::new(100, 1_000)
    }

    #[test]
    fn finds_the_end_at_any_split() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nB: c\r\n\r\n";
        let whole = Found::Whole(Extent {
            bytes: head.len(),
            request_line: 14,
            headers: 2,
        });
        let followed = [head.as_slice(), b"GET"].concat();
        assert_eq!(search().advance(&followed), Ok(whole));
        for split in 0..head.len() {
            let mut search = search();
            assert_eq!(search.advance(&head[..split]), Ok(Found::Open), "{split}");
            assert_eq!(search.advance(head), Ok(whole), "{split}");
        }
    }

    #[test]
    fn reports_a_leading_blank_line() {
        assert_eq!(search().advance(b"\r\nGET"), Ok(Found::Blank));
        assert_eq!(search().advance(b"\r"), Ok(Found::Open));
    }

    #[test]
    fn refuses_at_once_what_is_no_head() {
        for bytes in [
            b"\x16".as_slice(),
            b"\x16\x03\x01",
            b" GET",
            b"\0",
            b"\x80",
            b"(",
        ] {
            let refused = Err(Status::BadRequest);
            assert_eq!(search().advance(bytes), refused, "{bytes:?}");
        }
    }

    #[test]
    fn refuses_a_bare_line_feed() {
        for bytes in [
            b"\n".as_slice(),
            b"GET / HTTP/1.1\n",
            b"G\r\nA: b\n",
            b"G\r\nA: b\r\n\n",
        ] {
            assert_eq!(
                search().advance(bytes),
                Err(Status::BadRequest),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn measures_lines_and_heads_to_the_byte() {
        let outcome = |line: usize, rest: usize| {
            let head = [
                "x".repeat(line).into_bytes(),
                b"\r\n".to_vec(),
                "y".repeat(rest).into_bytes(),
                b"\r\n\r\n".to_vec(),
            ];
            let head = head.concat();
            let at_once = Search::new(10, 20).advance(&head).map(|_| ());
            // Byte by byte it is the same.
            let mut search = Search::new(10, 20);
            let pieces =
                (1..=head.len()).try_for_each(|end| search.advance(&head[..end]).map(drop));
            assert_eq!(at_once, pieces, "{line} {rest}");
            at_once
        };
        assert_eq!(outcome(10, 4), Ok(()));
        assert_eq!(outcome(11, 1), Err(Status::UriTooLong));
        assert_eq!(outcome(10, 5), Err(Status::HeaderFieldsTooLarge));
        assert_eq!(outcome(40, 5), Err(Status::UriTooLong));
        // The first thing that is wrong counts.
        let long = [b"x".repeat(12).as_slice(), b"\n"].concat();
        assert_eq!(Search::new(10, 20).advance(&long), Err(Status::UriTooLong));
    }
}
