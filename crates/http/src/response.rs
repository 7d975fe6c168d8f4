//! Heads of responses, as bytes.

use std::time::SystemTime;

use crate::date::Date;
use crate::status::Status;

/// Room for most heads.
const HEAD_BYTES: usize = 256;

/// Header lines of one response, in the order they are added.
#[derive(Debug)]
pub struct ResponseHead<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> ResponseHead<'a> {
    /// Begins a head behind what `bytes` holds already.
    #[inline]
    pub fn new(bytes: &'a mut Vec<u8>, status: Status, date: &Date) -> Self {
        bytes.reserve(HEAD_BYTES);
        let mut head = Self { bytes };
        if status == Status::Ok {
            head.text("HTTP/1.1 200 OK\r\nDate: ");
        } else {
            head.text("HTTP/1.1 ");
            head.number(u64::from(status.code()));
            head.text(" ");
            head.text(status.phrase());
            head.text("\r\nDate: ");
        }
        date.append(head.bytes);
        head.text("\r\n");
        head
    }

    /// Adds a line; `value` must hold no line end.
    #[inline]
    pub fn line(&mut self, name: &str, value: &str) -> &mut Self {
        self.joined(name, &[value])
    }

    /// Adds a line whose value is in pieces, none of which may hold a line end.
    #[inline]
    pub fn joined(&mut self, name: &str, values: &[&str]) -> &mut Self {
        self.text(name);
        self.text(": ");
        for value in values {
            debug_assert!(!value.contains(['\r', '\n']));
            self.text(value);
        }
        self.text("\r\n");
        self
    }

    /// Adds a line with a date, unless it is beyond what the format knows.
    pub fn date(&mut self, name: &str, second: u64) -> &mut Self {
        const LAST_SECOND: u64 = 253_402_300_800;
        if second < LAST_SECOND {
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second);
            self.text(name);
            self.text(": ");
            // A formatter over the buffer: no text in between.
            let _never_fails = std::io::Write::write_fmt(
                self.bytes,
                format_args!("{}", httpdate::HttpDate::from(time)),
            );
            self.text("\r\n");
        }
        self
    }

    /// Adds the length of the body.
    #[inline]
    pub fn length(&mut self, bytes: u64) -> &mut Self {
        self.text("Content-Length: ");
        self.number(bytes);
        self.text("\r\n");
        self
    }

    /// Adds `Content-Range: bytes {first}-{last}/{size}`.
    pub fn content_range(&mut self, first: u64, last: u64, size: u64) -> &mut Self {
        self.text("Content-Range: bytes ");
        self.number(first);
        self.text("-");
        self.number(last);
        self.text("/");
        self.number(size);
        self.text("\r\n");
        self
    }

    /// Says whether the connection stays; HTTP/1.0 (`old`) wants to be told that it does.
    #[inline]
    pub fn connection(&mut self, keep: bool, old: bool) -> &mut Self {
        match (keep, old) {
            (false, _) => self.line("Connection", "close"),
            (true, true) => self.line("Connection", "keep-alive"),
            (true, false) => self,
        }
    }

    /// Adds the empty line.
    #[inline]
    pub fn end(&mut self) {
        self.text("\r\n");
    }

    #[inline]
    fn text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    #[inline]
    fn number(&mut self, number: u64) {
        if number < 10 {
            self.bytes.push(b'0' + number as u8);
            return;
        }
        let mut digits = [0_u8; 20];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.bytes.extend_from_slice(&digits[at..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_a_head() {
        let mut bytes = Vec::new();
        ResponseHead::new(
            &mut bytes,
            Status::PartialContent,
            &Date::new(|| std::time::UNIX_EPOCH),
        )
        .line("A", "b")
        .length(0)
        .content_range(7, 9, u64::MAX)
        .date("When", 784_111_777)
        .joined("C", &["d", "; e"])
        .connection(false, false)
        .end();
        let text = String::from_utf8(bytes).expect("text");
        let (line, rest) = text.split_once("\r\nDate: ").expect("a date");
        assert_eq!(line, "HTTP/1.1 206 Partial Content");
        let (date, rest) = rest.split_once("\r\n").expect("more lines");
        assert_eq!(date.len(), 29);
        let expected = "A: b\r\nContent-Length: 0\r\n\
            Content-Range: bytes 7-9/18446744073709551615\r\n\
            When: Sun, 06 Nov 1994 08:49:37 GMT\r\nC: d; e\r\nConnection: close\r\n\r\n";
        assert_eq!(rest, expected);
    }
}
