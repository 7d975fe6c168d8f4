//! Where does the head of a request end?
//!
//! Owns: the search for the empty line, one pass over the bytes however small the pieces are in
//! which they come. Reading what the head says is the part of `request`.
//!
//! Invariants:
//! - I1: every LF of a head follows a CR. A bare LF is refused as soon as it comes, because two
//!   parsers that disagree about line ends disagree about where the next request starts.

/// A line ended with a bare LF.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BareLineFeed;

/// What was found so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Not the end yet.
    Open,
    /// An empty line before the request line, to be skipped: two bytes.
    Blank,
    /// The whole head.
    Whole(Extent),
}

/// The size of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Bytes, the empty line included.
    pub(super) bytes: usize,
    /// Bytes of the request line, without its end.
    pub(super) request_line: usize,
    /// Header lines.
    pub(super) headers: usize,
}

/// The search within one head.
#[derive(Debug, Default)]
pub(super) struct Search {
    seen: usize,
    line_start: usize,
    lines: usize,
    request_line: usize,
}

impl Search {
    /// Goes on over `bytes`, which begin with the head and only ever grow.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<Found, BareLineFeed> {
        while let Some(step) = bytes[self.seen..].iter().position(|&byte| byte == b'\n') {
            let at = self.seen + step;
            // INVARIANT: I1.
            if at == self.line_start || bytes[at - 1] != b'\r' {
                return Err(BareLineFeed);
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
        self.seen = bytes.len();
        Ok(Found::Open)
    }

    /// Whether the request line is still incomplete.
    pub(super) fn in_request_line(&self) -> bool {
        self.lines == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_end_at_any_split() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nB: c\r\n\r\n";
        let whole = Found::Whole(Extent {
            bytes: head.len(),
            request_line: 14,
            headers: 2,
        });
        let followed = [head.as_slice(), b"GET"].concat();
        assert_eq!(Search::default().advance(&followed), Ok(whole));
        for split in 0..head.len() {
            let mut search = Search::default();
            assert_eq!(search.advance(&head[..split]), Ok(Found::Open), "{split}");
            assert_eq!(search.in_request_line(), split < 16);
            assert_eq!(search.advance(head), Ok(whole), "{split}");
        }
    }

    #[test]
    fn reports_a_leading_blank_line() {
        assert_eq!(Search::default().advance(b"\r\nGET"), Ok(Found::Blank));
        assert_eq!(Search::default().advance(b"\r"), Ok(Found::Open));
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
                Search::default().advance(bytes),
                Err(BareLineFeed),
                "{bytes:?}"
            );
        }
    }
}
