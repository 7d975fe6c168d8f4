//! The outcome of a run, for people and for programs.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::Config;
use super::tally::{Errors, Tally};

/// Latencies of successful requests, in microseconds, from when a request was first to be sent (the connecting
/// included, where it was necessary) to when its answer was read to the end. With a pipeline, a request waits for the
/// answers to those before it, and that is in its latency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Latency {
    /// The shortest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// Half were at most this.
    pub p50: f64,
    /// 90 % were at most this.
    pub p90: f64,
    /// 99 % were at most this.
    pub p99: f64,
    /// 99.9 % were at most this.
    #[serde(rename = "p99.9")]
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// What a run has measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// What was asked for.
    pub url: String,
    /// Connections kept busy at a time.
    pub connections: usize,
    /// Requests under way at a time on each of them.
    pub pipeline: usize,
    /// From the start to the last answer, in seconds.
    pub elapsed_seconds: f64,
    /// Requests answered with the right status and length.
    pub succeeded: u64,
    /// Requests that failed, by kind.
    pub errors: Errors,
    /// Requests that were under way when the time was up, neither succeeded nor failed.
    pub unfinished: u64,
    /// Connections opened because the server had closed one.
    pub reconnects: u64,
    /// Successful requests per second.
    pub requests_per_second: f64,
    /// Bytes that came in answers, heads and coding included.
    pub bytes: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// `bytes` per second.
    pub bytes_per_second: f64,
    /// Absent if nothing succeeded.
    pub latency_us: Option<Latency>,
}

impl Report {
    pub(super) fn new(config: &Config, elapsed: Duration, tally: &Tally) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        Self {
            url: config.target.to_string(),
            connections: config.connections,
            pipeline: config.pipeline,
            elapsed_seconds: elapsed.as_secs_f64(),
            succeeded: tally.succeeded,
            errors: tally.errors,
            unfinished: tally.unfinished,
            reconnects: tally.reconnects,
            requests_per_second: tally.succeeded as f64 / seconds,
            bytes: tally.wire_bytes,
            body_bytes: tally.body_bytes,
            bytes_per_second: tally.wire_bytes as f64 / seconds,
            latency_us: Latency::of(&tally.latency),
        }
    }
}

impl Latency {
    fn of(nanos: &Histogram<u64>) -> Option<Self> {
        if nanos.is_empty() {
            return None;
        }
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let at = |quantile| micros(nanos.value_at_quantile(quantile));
        Some(Self {
            min: micros(nanos.min()),
            mean: nanos.mean() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: micros(nanos.max()),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} connections to {}", self.connections, self.url)?;
        if self.pipeline > 1 {
            write!(out, ", {} requests at a time on each", self.pipeline)?;
        }
        writeln!(out)?;
        writeln!(
            out,
            "{} requests in {:.2} s: {:.0} requests/s, {}/s",
            self.succeeded,
            self.elapsed_seconds,
            self.requests_per_second,
            indicatif::BinaryBytes(self.bytes_per_second as u64),
        )?;
        match &self.latency_us {
            None => writeln!(out, "latency  none: no request succeeded")?,
            Some(latency) => {
                let Latency {
                    p50,
                    p90,
                    p99,
                    p999,
                    max,
                    ..
                } = *latency;
                let [p50, p90, p99, p999, max] = [p50, p90, p99, p999, max].map(span);
                writeln!(
                    out,
                    "latency  p50 {p50}  p90 {p90}  p99 {p99}  p99.9 {p999}  max {max}"
                )?;
            }
        }
        let Errors {
            connect,
            timeout,
            reset,
            status,
            length,
            protocol,
        } = self.errors;
        write!(out, "errors   {}", self.errors.total())?;
        if self.errors.total() > 0 {
            write!(
                out,
                ": connect {connect}, timeout {timeout}, reset {reset}, status {status}, \
                 length {length}, protocol {protocol}"
            )?;
        }
        if self.reconnects > 0 {
            write!(out, "\nreconnects {}", self.reconnects)?;
        }
        if self.unfinished > 0 {
            write!(out, "\nunfinished {}", self.unfinished)?;
        }
        Ok(())
    }
}

/// Microseconds in the unit that suits.
fn span(micros: f64) -> String {
    match micros {
        ..1e3 => format!("{micros:.0} µs"),
        ..1e6 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tally::Failure;

    fn config() -> Config {
        Config::new("http://a/".parse().expect("a URL"))
    }

    #[test]
    fn adds_up_and_names_its_fields() {
        let mut tally = Tally::new();
        for millis in 1..=1000 {
            tally.success(Duration::from_millis(millis));
        }
        tally.failure(Failure::Status);
        tally.failure(Failure::Reset);
        tally.wire_bytes = 4000;
        let report = Report::new(&config(), Duration::from_secs(2), &tally);
        let json = serde_json::to_value(&report).expect("serializes");
        assert_eq!(json["requests_per_second"], 500.0);
        assert_eq!(json["bytes_per_second"], 2000.0);
        assert_eq!(json["errors"]["status"], 1);
        assert_eq!(report.errors.total(), 2);
        for (name, millis) in [
            ("p50", 500.0),
            ("p90", 900.0),
            ("p99", 990.0),
            ("p99.9", 999.0),
        ] {
            let seen = json["latency_us"][name].as_f64().expect("a number") / 1e3;
            assert!((seen / millis - 1.0).abs() < 2e-3, "{name}: {seen}");
        }
        let text = report.to_string();
        assert!(
            text.contains("500 requests/s") && text.contains("status 1"),
            "{text}"
        );
    }

    #[test]
    fn an_empty_run_has_no_latency() {
        let report = Report::new(&config(), Duration::ZERO, &Tally::new());
        assert_eq!(report.latency_us, None);
        assert!(report.to_string().contains("no request succeeded"));
    }
}
