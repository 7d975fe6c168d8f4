//! The chunked transfer coding, as a byte counter: where does the body end?
//!
//! Owns: the state between two pieces of input. It never copies body bytes: neither the server,
//! which only reads bodies off, nor the load generator, which only counts, wants them.
//!
//! Invariants:
//! - I1: a line ends with CR LF and nothing else; a bare CR or LF is malformed.
//! - I2: no byte beyond the end of the body is ever consumed.
//! - I3: a chunk-size line is at most [`SIZE_LINE_BYTES_MAX`] long, the trailer section at most
//!   [`TRAILER_BYTES_MAX`]: what is not body is bounded.
//!
//! Source: RFC 9112, section 7.1.

/// The longest line that gives a chunk's size, extensions included.
const SIZE_LINE_BYTES_MAX: usize = 256;

/// The longest trailer section.
const TRAILER_BYTES_MAX: usize = 8 * 1024;

/// The input is not a chunked body.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed;

/// What one piece of input held.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of the input that belong to this body, coding included.
    pub consumed: usize,
    /// How many of them are the body itself.
    pub body: usize,
    /// Whether the body has ended.
    pub done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// At the first digit of a size.
    SizeFirst,
    /// Among the digits of a size.
    Size,
    /// After the size, in extensions.
    Extension,
    /// After the size and white space.
    SizeSpace,
    /// A size line's CR was seen.
    SizeEnd,
    /// In a chunk; `left` bytes are missing.
    Data,
    /// After a chunk, before its CR.
    DataCr,
    /// After a chunk, before its LF.
    DataLf,
    /// At the start of a trailer line.
    TrailerFirst,
    /// In a trailer line.
    Trailer,
    /// A trailer line's CR was seen.
    TrailerEnd,
    /// The CR of the last, empty line was seen.
    LastLf,
    /// The body has ended.
    Done,
}

/// Follows one chunked body.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    /// Bytes left in the chunk, or the size read so far.
    left: u64,
    /// Bytes of the size line or of the trailer section so far.
    line: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// At the start of a body.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: State::SizeFirst,
            left: 0,
            line: 0,
        }
    }

    /// Takes as much of `input` as belongs to the body.
    ///
    /// # Errors
    /// The input is not a chunked body; whatever follows must not be read.
    pub fn advance(&mut self, input: &[u8]) -> Result<Piece, Malformed> {
        let mut at = 0;
        let mut body = 0;
        while at < input.len() && self.state != State::Done {
            if self.state == State::Data {
                let rest = input.len() - at;
                let take = usize::try_from(self.left).map_or(rest, |left| left.min(rest));
                at += take;
                body += take;
                self.left -= take as u64;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
            } else {
                self.state = self.step(input[at])?;
                at += 1;
            }
        }
        Ok(Piece {
            consumed: at,
            body,
            done: self.state == State::Done,
        })
    }

    fn step(&mut self, byte: u8) -> Result<State, Malformed> {
        self.line += 1;
        match (self.state, byte) {
            (State::SizeFirst | State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.digit(byte)
            }
            (State::Size | State::SizeSpace | State::Extension, b'\r') => Ok(State::SizeEnd),
            (State::Size | State::SizeSpace, b' ' | b'\t') => {
                self.state = State::SizeSpace;
                self.within(SIZE_LINE_BYTES_MAX)
            }
            (State::Size | State::SizeSpace, b';') => Ok(State::Extension),
            (State::Extension, b'\t' | b' '..=b'~' | 0x80..) => self.within(SIZE_LINE_BYTES_MAX),
            (State::SizeEnd, b'\n') => {
                self.line = 0;
                Ok(if self.left == 0 {
                    State::TrailerFirst
                } else {
                    State::Data
                })
            }
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => {
                self.line = 0;
                Ok(State::SizeFirst)
            }
            (State::TrailerFirst, b'\r') => Ok(State::LastLf),
            (State::Trailer, b'\r') => Ok(State::TrailerEnd),
            (State::TrailerFirst, b'!'..=b'~') => {
                self.state = State::Trailer;
                self.within(TRAILER_BYTES_MAX)
            }
            (State::Trailer, b'\t' | b' '..=b'~' | 0x80..) => self.within(TRAILER_BYTES_MAX),
            (State::TrailerEnd, b'\n') => Ok(State::TrailerFirst),
            (State::LastLf, b'\n') => Ok(State::Done),
            _ => Err(Malformed),
        }
    }

    fn digit(&mut self, byte: u8) -> Result<State, Malformed> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            _ => (byte | 0x20) - b'a' + 10,
        };
        self.state = State::Size;
        self.left = self.left.checked_mul(16).ok_or(Malformed)? + u64::from(digit);
        self.within(SIZE_LINE_BYTES_MAX)
    }

    fn within(&self, limit: usize) -> Result<State, Malformed> {
        if self.line > limit {
            Err(Malformed)
        } else {
            Ok(self.state)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole bodies: input, bytes of body, bytes consumed.
    const WHOLE: [(&[u8], usize, usize); 6] = [
        (b"0\r\n\r\n", 0, 5),
        (b"5\r\nhello\r\n0\r\n\r\n", 5, 15),
        (b"5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n", 5, 15),
        (
            b"A;name=\"v\"\r\n0123456789\r\n000\r\nDigest: x\r\nB: y\r\n\r\n",
            10,
            48,
        ),
        (b"1 \r\nx\r\n0\r\n\r\n", 1, 12),
        (b"2\r\n\r\n\r\n0\r\n\r\n", 2, 12),
    ];

    #[test]
    fn finds_the_end_whole_and_byte_by_byte() {
        for (input, body, consumed) in WHOLE {
            let piece = Decoder::new().advance(input);
            assert_eq!(
                piece,
                Ok(Piece {
                    consumed,
                    body,
                    done: true
                }),
                "{input:?}"
            );

            let mut decoder = Decoder::new();
            let mut seen = 0;
            for (at, byte) in input.iter().enumerate() {
                let piece = decoder.advance(std::slice::from_ref(byte)).expect("valid");
                seen += piece.body;
                assert_eq!(piece.done, at + 1 >= consumed, "{input:?} at {at}");
                assert_eq!(piece.consumed, usize::from(at < consumed));
            }
            assert_eq!(seen, body);
        }
    }

    #[test]
    fn refuses_every_loose_form() {
        let table: [&[u8]; 15] = [
            b"\r\n",
            b"x\r\n",
            b"-1\r\n",
            b"+1\r\n",
            b"0x5\r\nhello",
            b"5\nhello",
            b"5\r\nhelloX",
            b"5\r\nhello\n",
            b"5\rhello",
            b"10000000000000000\r\n",
            b"0\r\n folded\r\n\r\n",
            b"0\r\na: b\n\r\n",
            b"5;a\0b\r\nhello",
            b"5 5\r\nhello",
            b"5;a\r\rhello",
        ];
        for input in table {
            assert_eq!(Decoder::new().advance(input), Err(Malformed), "{input:?}");
        }
    }

    #[test]
    fn bounds_what_is_not_body() {
        let mut zeros = vec![b'0'; SIZE_LINE_BYTES_MAX + 1];
        assert_eq!(Decoder::new().advance(&zeros), Err(Malformed));
        zeros[1] = b';';
        zeros[2..].fill(b'e');
        assert_eq!(Decoder::new().advance(&zeros), Err(Malformed));
        let mut trailer = b"0\r\n".to_vec();
        trailer.extend(b"a: b\r\n".repeat(TRAILER_BYTES_MAX / 6 + 2));
        assert_eq!(Decoder::new().advance(&trailer), Err(Malformed));
    }
}
