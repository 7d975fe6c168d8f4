//! Heads of responses, as bytes.

use super::date::Date;
use super::status::Status;

/// Header lines of one response, in the order they are added.
#[derive(Debug)]
pub(super) struct ResponseHead<'a> {
    bytes: &'a mut Vec<u8>,
}

impl<'a> ResponseHead<'a> {
    /// Begins a head in `bytes`, whose old contents are dropped.
    pub(super) fn new(bytes: &'a mut Vec<u8>, status: Status, date: &Date) -> Self {
        bytes.clear();
        let mut head = Self { bytes };
        head.text("HTTP/1.1 ");
        head.number(u64::from(status.code()));
        head.text(" ");
        head.text(status.phrase());
        head.text("\r\nDate: ");
        date.append(head.bytes);
        head.text("\r\n");
        head
    }

    /// Adds a line; `value` must hold no line end.
    pub(super) fn line(&mut self, name: &str, value: &str) -> &mut Self {
        debug_assert!(!value.contains(['\r', '\n']));
        for part in [name, ": ", value, "\r\n"] {
            self.text(part);
        }
        self
    }

    /// Adds the length of the body.
    pub(super) fn length(&mut self, bytes: u64) -> &mut Self {
        self.text("Content-Length: ");
        self.number(bytes);
        self.text("\r\n");
        self
    }

    /// Adds `Content-Range: bytes {first}-{last}/{size}`.
    pub(super) fn content_range(&mut self, first: u64, last: u64, size: u64) -> &mut Self {
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
    pub(super) fn connection(&mut self, keep: bool, old: bool) -> &mut Self {
        match (keep, old) {
            (false, _) => self.line("Connection", "close"),
            (true, true) => self.line("Connection", "keep-alive"),
            (true, false) => self,
        }
    }

    /// Adds the empty line.
    pub(super) fn end(&mut self) {
        self.text("\r\n");
    }

    fn text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: u64) {
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
        let mut bytes = b"old".to_vec();
        ResponseHead::new(&mut bytes, Status::PartialContent, &Date::default())
            .line("A", "b")
            .length(0)
            .content_range(7, 9, u64::MAX)
            .connection(false, false)
            .end();
        let text = String::from_utf8(bytes).expect("text");
        let (line, rest) = text.split_once("\r\nDate: ").expect("a date");
        assert_eq!(line, "HTTP/1.1 206 Partial Content");
        let (date, rest) = rest.split_once("\r\n").expect("more lines");
        assert_eq!(date.len(), 29);
        let expected = "A: b\r\nContent-Length: 0\r\n\
            Content-Range: bytes 7-9/18446744073709551615\r\nConnection: close\r\n\r\n";
        assert_eq!(rest, expected);
    }
}
