//! What has happened so far, of all connections together.
//!
//! Owns: the counters and the latency histogram.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// The longest latency that is told apart from longer ones: an hour.
const LATENCY_NANOS_MAX: u64 = 3_600_000_000_000;

/// Why an exchange did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// No connection came about.
    Connect,
    /// No whole answer within the timeout.
    Timeout,
    /// The connection ended before an answer began, or broke in the middle.
    Reset,
    /// The answer's status was not 2xx.
    Status,
    /// The answer was shorter than it said, or not as long as expected.
    Length,
    /// The answer was not HTTP.
    Protocol,
}

/// Failed exchanges by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Errors {
    /// No connection came about.
    pub connect: u64,
    /// No whole answer came within the timeout.
    pub timeout: u64,
    /// The connection ended before an answer began, or broke in the middle.
    pub reset: u64,
    /// The answer's status was not 2xx.
    pub status: u64,
    /// The answer was shorter than it said, or not as long as expected.
    pub length: u64,
    /// The answer was not HTTP.
    pub protocol: u64,
}

impl Errors {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self {
            connect,
            timeout,
            reset,
            status,
            length,
            protocol,
        } = self;
        connect + timeout + reset + status + length + protocol
    }
}

/// The counters.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) succeeded: u64,
    pub(super) wire_bytes: u64,
    pub(super) body_bytes: u64,
    pub(super) reconnects: u64,
    pub(super) unfinished: u64,
    pub(super) errors: Errors,
    /// Nanoseconds of each success.
    pub(super) latency: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, 3);
        Self {
            succeeded: 0,
            wire_bytes: 0,
            body_bytes: 0,
            reconnects: 0,
            unfinished: 0,
            errors: Errors::default(),
            latency: latency.expect("the bounds are constant and valid"),
        }
    }

    pub(super) fn success(&mut self, latency: Duration) {
        self.succeeded += 1;
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.latency.saturating_record(nanos.max(1));
    }

    pub(super) fn failure(&mut self, failure: Failure) {
        let Errors {
            connect,
            timeout,
            reset,
            status,
            length,
            protocol,
        } = &mut self.errors;
        *match failure {
            Failure::Connect => connect,
            Failure::Timeout => timeout,
            Failure::Reset => reset,
            Failure::Status => status,
            Failure::Length => length,
            Failure::Protocol => protocol,
        } += 1;
    }
}
