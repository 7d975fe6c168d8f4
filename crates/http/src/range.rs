//! One byte range of a file.
//!
//! Owns: the meaning of a `Range` header. A set of several ranges, another unit and anything that is
//! not a valid range are ignored, which RFC 9110 allows: the answer is then the whole file.
//!
//! Invariants:
//! - I1: a [`Slice`] that comes out lies inside the file and is not empty.
//!
//! Source: RFC 9110, section 14.

/// A range as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// From an offset to the end.
    From(u64),
    /// From an offset to an offset, both included.
    Between(u64, u64),
    /// The last so many bytes.
    Last(u64),
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// Offset of the first byte.
    pub start: u64,
    /// How many bytes, at least one.
    pub length: u64,
}

impl Range {
    /// Reads the value of a `Range` header; `None` if it is to be ignored.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let value = value.trim_ascii();
        let (unit, set) = value.split_at_checked(6)?;
        if !unit.eq_ignore_ascii_case(b"bytes=") {
            return None;
        }
        let set = set.trim_ascii();
        let dash = set.iter().position(|&byte| byte == b'-')?;
        match (&set[..dash], &set[dash + 1..]) {
            (b"", last) => Some(Self::Last(number(last)?)),
            (first, b"") => Some(Self::From(number(first)?)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::Between(first, last))
            }
        }
    }

    /// The part of a file of `size` bytes; `None` if the range lies outside of it.
    #[must_use]
    pub fn within(self, size: u64) -> Option<Slice> {
        let (start, end) = match self {
            Self::From(first) => (first, size),
            Self::Between(first, last) => (first, size.min(last.saturating_add(1))),
            Self::Last(length) => (size.saturating_sub(length), size),
        };
        // INVARIANT: I1.
        (start < end).then(|| Slice {
            start,
            length: end - start,
        })
    }
}

/// Digits only; a number beyond 64 bits is as good as the largest one.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| digit - b'0')?;
        Some(value.saturating_mul(10).saturating_add(u64::from(digit)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: &str = "99999999999999999999999999";

    #[test]
    fn reads_one_range() {
        let table = [
            ("bytes=0-0", Some(Range::Between(0, 0))),
            ("bytes=5-", Some(Range::From(5))),
            ("bytes=-5", Some(Range::Last(5))),
            ("Bytes= 2-3 ", Some(Range::Between(2, 3))),
            (
                "bytes=0-99999999999999999999999999",
                Some(Range::Between(0, u64::MAX)),
            ),
            ("bytes=", None),
            ("bytes=-", None),
            ("bytes=3-2", None),
            ("bytes=1", None),
            ("bytes=a-b", None),
            ("bytes=+1-2", None),
            ("bytes=1--2", None),
            ("bytes=--2", None),
            ("bytes=1 - 2", None),
            ("bytes=0-1,3-4", None),
            ("bytes=0-1,", None),
            ("bytes 0-1", None),
            ("items=0-1", None),
            ("", None),
        ];
        for (value, range) in table {
            assert_eq!(Range::parse(value.as_bytes()), range, "{value}");
        }
    }

    #[test]
    fn clips_to_the_file() {
        let slice = |start, length| Some(Slice { start, length });
        let table = [
            ("bytes=0-0", 10, slice(0, 1)),
            ("bytes=0-", 10, slice(0, 10)),
            ("bytes=9-", 10, slice(9, 1)),
            ("bytes=10-", 10, None),
            ("bytes=5-100", 10, slice(5, 5)),
            ("bytes=10-100", 10, None),
            ("bytes=-1", 10, slice(9, 1)),
            ("bytes=-10", 10, slice(0, 10)),
            ("bytes=-11", 10, slice(0, 10)),
            ("bytes=-0", 10, None),
            ("bytes=0-", 0, None),
            ("bytes=-1", 0, None),
        ];
        for (value, size, expected) in table {
            let range = Range::parse(value.as_bytes()).expect(value);
            assert_eq!(range.within(size), expected, "{value} of {size}");
        }
        let huge = Range::parse(format!("bytes=0-{MANY}").as_bytes()).expect("a range");
        assert_eq!(huge.within(u64::MAX), slice(0, u64::MAX));
        let beyond = Range::parse(format!("bytes={MANY}-").as_bytes()).expect("a range");
        assert_eq!(beyond.within(u64::MAX), None);
    }

    #[test]
    fn agrees_with_counting() {
        for size in 0..6_u64 {
            for first in 0..8 {
                for last in first..8 {
                    let wanted = (0..size).filter(|at| (first..=last).contains(at)).count() as u64;
                    let slice = Range::Between(first, last).within(size);
                    assert_eq!(slice.map_or(0, |slice| slice.length), wanted);
                }
                let wanted = first.min(size);
                let slice = Range::Last(first).within(size);
                assert_eq!(slice.map_or(0, |slice| slice.length), wanted);
            }
        }
    }
}
