//! The `Date` header, formatted once a second.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::rt;

/// The current date as text, kept for the second it is valid.
#[derive(Debug, Default)]
pub(super) struct Date {
    cached: RefCell<(u64, String)>,
}

impl Date {
    /// Appends the date of now.
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        self.append_at(rt::wall_clock(), out);
    }

    fn append_at(&self, now: SystemTime, out: &mut Vec<u8>) {
        let second = now
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let mut cached = self.cached.borrow_mut();
        if cached.0 != second || cached.1.is_empty() {
            *cached = (second, httpdate::fmt_http_date(now));
        }
        out.extend_from_slice(cached.1.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn follows_the_clock_by_the_second() {
        let date = Date::default();
        let at = |millis| {
            let mut out = Vec::new();
            date.append_at(UNIX_EPOCH + Duration::from_millis(millis), &mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(at(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(at(999), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(at(1_000), "Thu, 01 Jan 1970 00:00:01 GMT");
        assert_eq!(at(784_111_777_500), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
