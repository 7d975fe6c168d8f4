//! The monotonic clock, in nanoseconds since the process first asked.
//!
//! Owns: the origin. Any thread. No other file of the crate reads a clock.
#![expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the clock"
)]

use std::sync::OnceLock;
use std::time::{Duration, Instant};

fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// Now, in nanoseconds since the origin.
pub(crate) fn now_ns() -> u64 {
    let origin = origin();
    to_ns(Instant::now().saturating_duration_since(origin))
}

/// Now.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A point in time as nanoseconds since the origin; 0 if it is before it.
pub(crate) fn instant_ns(instant: Instant) -> u64 {
    to_ns(instant.saturating_duration_since(origin()))
}

/// The point in time `timeout` from now; never, if that is out of range.
pub(crate) fn after_ns(timeout: Duration) -> u64 {
    now_ns().saturating_add(to_ns(timeout))
}

/// A length of time in nanoseconds; half a millennium is the most.
pub(crate) fn to_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The point in time that lies so many nanoseconds after the origin; the origin if there is no such point.
pub(crate) fn to_instant(ns: u64) -> Instant {
    origin()
        .checked_add(Duration::from_nanos(ns))
        .unwrap_or_else(origin)
}
