//! The date as text, formatted once a second.

use std::cell::Cell;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A date in an answer, `Sun, 06 Nov 1994 08:49:37 GMT`.
const HTTP_BYTES: usize = 29;

/// A date in a log, `06/Nov/1994:08:49:37 +0000`.
const LOG_BYTES: usize = 26;

/// The current date as text, kept for the second in which it is valid.
pub struct Date {
    clock: fn() -> SystemTime,
    cached: Cell<Texts>,
}

#[derive(Debug, Clone, Copy)]
struct Texts {
    second: u64,
    http: [u8; HTTP_BYTES],
    log: [u8; LOG_BYTES],
}

impl fmt::Debug for Date {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Date").finish_non_exhaustive()
    }
}

impl Date {
    /// The date that `clock` says.
    #[must_use]
    pub fn new(clock: fn() -> SystemTime) -> Self {
        Self {
            clock,
            cached: Cell::new(Texts::of(0, UNIX_EPOCH)),
        }
    }

    /// What the clock says now.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        (self.clock)()
    }

    /// Appends the date of now as answers have it.
    pub fn append(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.texts().http);
    }

    /// Appends the date of now as logs have it, in UTC.
    pub fn append_to_log(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.texts().log);
    }

    fn texts(&self) -> Texts {
        let now = self.now();
        let second = now
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let mut texts = self.cached.get();
        if texts.second != second {
            texts = Texts::of(second, now);
            self.cached.set(texts);
        }
        texts
    }
}

impl Texts {
    fn of(second: u64, now: SystemTime) -> Self {
        // `fmt_http_date` knows no date outside of these.
        let in_range = second < LAST_SECOND && now >= UNIX_EPOCH;
        let text = httpdate::fmt_http_date(if in_range { now } else { UNIX_EPOCH });
        let mut http = [b' '; HTTP_BYTES];
        for (to, from) in http.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        let mut log = *b"DD/MMM/YYYY:hh:mm:ss +0000";
        log[..2].copy_from_slice(&http[5..7]);
        log[3..6].copy_from_slice(&http[8..11]);
        log[7..11].copy_from_slice(&http[12..16]);
        log[12..20].copy_from_slice(&http[17..25]);
        Self { second, http, log }
    }
}

/// The year 10000, which has no date in the format of HTTP.
const LAST_SECOND: u64 = 253_402_300_800;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;

    static MILLIS: AtomicU64 = AtomicU64::new(0);

    fn clock() -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(MILLIS.load(Ordering::Relaxed))
    }

    #[test]
    fn follows_the_clock_by_the_second() {
        let date = Date::new(clock);
        let at = |millis| {
            MILLIS.store(millis, Ordering::Relaxed);
            let (mut http, mut log) = (Vec::new(), Vec::new());
            date.append(&mut http);
            date.append_to_log(&mut log);
            [http, log].map(|text| String::from_utf8(text).expect("text"))
        };
        let epoch = [
            "Thu, 01 Jan 1970 00:00:00 GMT",
            "01/Jan/1970:00:00:00 +0000",
        ];
        assert_eq!(at(0), epoch);
        assert_eq!(at(999), epoch);
        assert_eq!(at(1_000)[0], "Thu, 01 Jan 1970 00:00:01 GMT");
        let later = [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "06/Nov/1994:08:49:37 +0000",
        ];
        assert_eq!(at(784_111_777_500), later);
        // No clock makes it panic.
        assert_eq!(at(LAST_SECOND * 1_000), epoch);
    }
}
