//! Bytes in pieces, given to the server's loop, beside a naive reading of the same bytes as a whole: what `framing_model.rs` tries
//! with random input and the fuzz target with libFuzzer's.
#![allow(dead_code, reason = "each of the two uses its part")]
#![allow(
    unreachable_pub,
    reason = "a module of a test and of a fuzz target, exported from neither"
)]

mod naive;

use std::io::{self, ErrorKind, Read, Write};
use std::time::UNIX_EPOCH;

use sinew_http::{Date, End, Limits, Method, Status, serve};

pub use naive::{Ending, Exchange, read};

/// What a case is made of.
#[derive(Debug)]
pub struct Case {
    pub limits: Limits,
    /// How long the pieces are, over and over.
    pub cuts: Vec<usize>,
    pub input: Vec<u8>,
}

/// Limits that short input reaches.
pub const TIGHT: Limits = Limits {
    request_line_bytes: 40,
    head_bytes: 160,
    headers: 5,
    body_bytes: 70,
};

/// Any bytes are a case: one for the limits, four for the cuts, the rest is what comes.
pub fn decode(bytes: &[u8]) -> Case {
    let (head, input) = bytes.split_at(bytes.len().min(5));
    let tight = head.first().is_some_and(|byte| byte & 1 == 1);
    Case {
        limits: if tight { TIGHT } else { Limits::default() },
        cuts: head
            .iter()
            .skip(1)
            .map(|&byte| usize::from(byte).max(1))
            .collect(),
        input: input.to_vec(),
    }
}

/// A client that sends its input in pieces.
struct Script<'a> {
    rest: &'a [u8],
    cuts: Box<dyn Iterator<Item = usize> + 'a>,
    room_max: usize,
    out: Vec<u8>,
}

impl Read for Script<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        assert!(!buffer.is_empty(), "there is no room, and more is to come");
        assert!(
            buffer.len() <= self.room_max,
            "the buffer is beyond its limit"
        );
        let cut = self.cuts.next().unwrap_or(usize::MAX);
        let count = cut.min(buffer.len()).min(self.rest.len());
        let (now, later) = self.rest.split_at(count);
        buffer[..count].copy_from_slice(now);
        self.rest = later;
        Ok(count)
    }
}

impl Write for Script<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Which requests the server saw, how it ended, and what it said.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    exchanges: Vec<Exchange>,
    end: Result<End, ErrorKind>,
    said: Vec<u8>,
}

fn run<'a>(case: &'a Case, cuts: impl Iterator<Item = usize> + 'a) -> Outcome {
    let mut script = Script {
        rest: &case.input,
        cuts: Box::new(cuts),
        room_max: case.limits.head_bytes + 1,
        out: Vec::new(),
    };
    let date = Date::new(|| UNIX_EPOCH);
    let mut exchanges = Vec::new();
    let end = serve(&mut script, case.limits, &date, |request, reply| {
        exchanges.push(Exchange {
            line: request.line.to_vec(),
            head_only: request.method == Method::Head,
            keep: request.keep_alive,
        });
        reply.send(Status::Ok, "text/plain", request.target)
    });
    Outcome {
        exchanges,
        end: end.map_err(|error| error.kind()),
        // Whether leave to send is given depends on what has come already, and may.
        said: without_leave(&script.out),
    }
}

const LEAVE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

fn without_leave(mut said: &[u8]) -> Vec<u8> {
    let mut rest = Vec::new();
    while let Some(&first) = said.first() {
        if let Some(after) = said.strip_prefix(LEAVE) {
            said = after;
        } else {
            rest.push(first);
            said = &said[1..];
        }
    }
    rest
}

/// Gives the input at once, byte by byte and in its pieces, and compares all that with the naive reading.
///
/// # Errors
/// What differs.
pub fn compare(case: &Case) -> Result<Vec<Exchange>, String> {
    let at_once = run(case, std::iter::repeat(usize::MAX));
    let by_byte = run(case, std::iter::repeat(1));
    let in_pieces = run(case, case.cuts.iter().copied().cycle());
    for (other, how) in [(by_byte, "byte by byte"), (in_pieces, "in pieces")] {
        if at_once != other {
            return Err(format!("at once {at_once:?}, {how} {other:?}"));
        }
    }
    let (exchanges, ending) = read(&case.input, &case.limits);
    let end = match ending {
        Ending::Client => Ok(End::Client),
        Ending::Cut => Err(ErrorKind::UnexpectedEof),
        Ending::Close | Ending::Refused(_) => Ok(End::Answered),
    };
    if (&exchanges, &end) != (&at_once.exchanges, &at_once.end) {
        return Err(format!("naively {exchanges:?} {ending:?}, but {at_once:?}"));
    }
    let refused = match ending {
        Ending::Refused(status) => Some(status),
        _ => None,
    };
    let statuses: Vec<u16> = statuses(&at_once.said, &exchanges)?;
    let expected = exchanges.iter().map(|_| 200).chain(refused);
    if !expected.clone().eq(statuses.iter().copied()) {
        let expected: Vec<_> = expected.collect();
        return Err(format!("naively {expected:?}, but it said {statuses:?}"));
    }
    Ok(exchanges)
}

/// The status of each answer; every one must be whole.
fn statuses(mut said: &[u8], exchanges: &[Exchange]) -> Result<Vec<u16>, String> {
    let mut statuses = Vec::new();
    while !said.is_empty() {
        let end = said.windows(4).position(|end| end == b"\r\n\r\n");
        let head = &said[..end.ok_or("an answer without an end")?];
        let head = std::str::from_utf8(head).map_err(|error| error.to_string())?;
        said = &said[head.len() + 4..];
        let status = head.get(9..12).and_then(|status| status.parse().ok());
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "));
        let length: usize = length
            .and_then(|length| length.parse().ok())
            .ok_or("no length")?;
        let number = statuses.len();
        statuses.push(status.ok_or("no status")?);
        let bodiless = match exchanges.get(number) {
            Some(exchange) => exchange.head_only,
            // A refusal has a body unless it was asked not to.
            None => said.is_empty(),
        };
        if !bodiless {
            said = said.get(length..).ok_or("an answer is cut short")?;
        }
    }
    Ok(statuses)
}
