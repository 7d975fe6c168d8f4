//! `sinew load`: a closed-loop load generator, one coroutine per connection.
//!
//! Owns: the run: how many requests, how long, and when to stop. Each connection sends its next
//! request when the answer to the last one is whole, so a slow server is asked less often: the
//! latencies are those of a client that waits, not of a fixed rate of arrivals. With a pipeline, that many
//! requests are under way on each connection, and a latency is from when its own request was sent.
//!
//! Invariants:
//! - I1: with a limit of requests, exactly so many are tried, failures counted, unless the time is
//!   up first.
//! - I2: [`run`] returns after every coroutine it started has ended, at most the smaller of the
//!   timeout and one second after the time is up. If it is cancelled, so is each of them.
//! - I3: a server that refuses connections is not asked in a busy loop.

pub mod command;

mod exchange;
mod report;
mod tally;
mod target;

use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use exchange::{Answer, Client};
pub use report::{Latency, Report};
pub use tally::Errors;
use tally::{Failure, Tally};
pub use target::{Target, TargetError};

use crate::rt::{self, Shared, WaitError, WaitGroup};

/// How long a request that is under way when the time is up may still take.
const OVERTIME: Duration = Duration::from_secs(1);

/// How often progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The pauses after failures to connect in a row.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The most connections: beyond it the ports of a machine would not do by far.
const CONNECTIONS_MAX: usize = 1_000_000;

/// The most requests under way on a connection.
const PIPELINE_MAX: usize = 1024;

/// The most bytes of requests under way on a connection. They fit into the buffers of the sockets, so that a server which
/// does not read while it answers is no dead end.
const PIPELINE_BYTES_MAX: usize = 64 * 1024;

/// What to load, how much, and for how long.
#[derive(Debug, Clone)]
pub struct Config {
    /// The URL to ask for.
    pub target: Target,
    /// Connections kept busy at a time, from one to a million.
    pub connections: usize,
    /// When to stop; `None` means at the limit of requests.
    pub duration: Option<Duration>,
    /// After how many requests to stop; `None` means when the time is up.
    pub requests: Option<u64>,
    /// How long one request may take, the connecting included.
    pub timeout: Duration,
    /// Requests under way at a time on each connection, from 1 to 1,024, together at most 64 KiB.
    pub pipeline: usize,
    /// The length that every body must have; `None` takes the length that each answer names.
    pub body_bytes: Option<u64>,
}

impl Config {
    /// Ten connections for ten seconds.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            connections: 10,
            duration: Some(Duration::from_secs(10)),
            requests: None,
            timeout: Duration::from_secs(10),
            pipeline: 1,
            body_bytes: None,
        }
    }
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Since the start.
    pub elapsed: Duration,
    /// Requests that succeeded.
    pub succeeded: u64,
    /// Requests that failed.
    pub failed: u64,
}

/// What the coroutines of a run share.
#[derive(Debug)]
struct Run {
    config: Config,
    addresses: Vec<SocketAddr>,
    /// The same request, as often as it may be under way on one connection.
    requests: Vec<u8>,
    started: Instant,
    stop_at: Option<Instant>,
    taken: Cell<u64>,
    tally: RefCell<Tally>,
}

/// Puts load on a server and reports what was measured; `progress` is called ten times a second.
///
/// # Suspends
/// Always.
///
/// # Cancellation
/// Ends with an error that [`rt::is_cancelled`] recognises; its connections are told to stop, and close
/// soon after.
///
/// # Errors
/// The host cannot be resolved, there are zero or too many connections or zero requests, or there
/// is no limit at all; the message names which. A server that does not answer is not an error of
/// this function: the report counts it.
pub fn run(config: Config, mut progress: impl FnMut(Progress)) -> io::Result<Report> {
    check(&config)?;
    let request = config.target.request();
    if request.len().saturating_mul(config.pipeline) > PIPELINE_BYTES_MAX {
        let what = "the requests of a pipeline are longer than 64 KiB together";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let requests = request.repeat(config.pipeline);
    let addresses = config.target.resolve()?;
    let started = rt::now();
    let run = Shared::new(Run {
        stop_at: config.duration.map(|duration| started + duration),
        config,
        addresses,
        requests,
        started,
        taken: Cell::new(0),
        tally: RefCell::new(Tally::new()),
    });
    let live = WaitGroup::new();
    let workers: Vec<_> = (0..run.config.connections)
        .map(|_| {
            let (run, member) = (Shared::clone(&run), live.enter());
            rt::spawn_local(move || {
                run.work();
                drop(member);
            })
        })
        .collect();
    loop {
        match live.wait_timeout(PROGRESS_INTERVAL) {
            Ok(()) => break,
            Err(WaitError::Timeout) => progress(run.progress()),
            Err(_cancelled) => {
                workers
                    .iter()
                    .for_each(|worker| worker.cancel("the run was cancelled"));
                return Err(rt::Cancelled.into());
            }
        }
    }
    let elapsed = rt::now() - started;
    for worker in workers {
        if worker.join().is_err() {
            return Err(io::Error::other(
                "a connection of the load generator panicked",
            ));
        }
    }
    progress(run.progress());
    Ok(Report::new(&run.config, elapsed, &run.tally()))
}

impl Run {
    /// One connection, request after request.
    fn work(&self) {
        let pipeline = self.config.pipeline;
        let mut client = Client::new(&self.addresses, &self.requests, pipeline);
        // When each request that is under way was sent, or was to be: the first is the next to be answered.
        let mut flight = VecDeque::with_capacity(pipeline);
        let mut pause = PAUSE_MIN;
        loop {
            // Answers that have come already are taken first: then more is asked for at once.
            if flight.is_empty() || !client.has_input() {
                let now = rt::now();
                while flight.len() < pipeline && self.take(now) {
                    flight.push_back(now);
                }
            }
            let Some(&begun) = flight.front() else {
                break;
            };
            let timeout_at = begun + self.config.timeout;
            let over_at = self.stop_at.map(|stop| stop + OVERTIME);
            let deadline = over_at.map_or(timeout_at, |over| over.min(timeout_at));
            let outcome = client.exchange(flight.len(), deadline);
            flight.pop_front();
            let now = rt::now();
            let outcome = outcome.and_then(|answer| self.check(&answer));
            match outcome {
                Ok(()) => self.tally().success(now - begun),
                Err(_cut) if deadline < timeout_at && now >= deadline => {
                    self.tally().unfinished += 1;
                }
                Err(failure) => self.tally().failure(failure),
            }
            // INVARIANT: I3. And a coroutine that was asked to stop leaves the loop here.
            let waited = match outcome {
                Ok(()) => Ok(()),
                Err(Failure::Connect) => {
                    let span = self.until_stop(now).map_or(pause, |left| pause.min(left));
                    pause = PAUSE_MAX.min(pause * 2);
                    rt::sleep(span)
                }
                Err(_other) => rt::yield_now(),
            };
            if waited.is_err() {
                break;
            }
            if outcome != Err(Failure::Connect) {
                pause = PAUSE_MIN;
            }
        }
        self.tally().reconnects += client.reconnects;
    }

    /// Whether an answer is what was asked for.
    fn check(&self, answer: &Answer) -> Result<(), Failure> {
        let mut tally = self.tally();
        tally.wire_bytes += answer.wire_bytes;
        tally.body_bytes += answer.body_bytes;
        let length = self.config.body_bytes;
        if !(200..300).contains(&answer.status) {
            Err(Failure::Status)
        } else if length.is_some_and(|bytes| bytes != answer.body_bytes) {
            Err(Failure::Length)
        } else {
            Ok(())
        }
    }

    /// Takes one of the requests that are left.
    fn take(&self, now: Instant) -> bool {
        if self.until_stop(now).is_some_and(|left| left.is_zero()) {
            return false;
        }
        match self.config.requests {
            None => true,
            // INVARIANT: I1.
            Some(limit) => {
                let taken = self.taken.get();
                self.taken.set(limit.min(taken + 1));
                taken < limit
            }
        }
    }

    fn until_stop(&self, now: Instant) -> Option<Duration> {
        self.stop_at.map(|stop| stop.saturating_duration_since(now))
    }

    fn progress(&self) -> Progress {
        let tally = self.tally();
        Progress {
            elapsed: rt::now() - self.started,
            succeeded: tally.succeeded,
            failed: tally.errors.total(),
        }
    }

    /// The counters; nobody keeps them across a wait.
    fn tally(&self) -> RefMut<'_, Tally> {
        self.tally.borrow_mut()
    }
}

fn check(config: &Config) -> io::Result<()> {
    let refuse = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    if config.connections == 0 {
        return refuse("the number of connections is zero");
    }
    if config.connections > CONNECTIONS_MAX {
        return refuse("the number of connections is above a million");
    }
    if config.requests == Some(0) {
        return refuse("the number of requests is zero");
    }
    if config.requests.is_none() && config.duration.is_none() {
        return refuse("neither a duration nor a number of requests limits the run");
    }
    if config.timeout.is_zero() {
        return refuse("the timeout is zero");
    }
    if config.pipeline == 0 {
        return refuse("the depth of the pipeline is zero");
    }
    if config.pipeline > PIPELINE_MAX {
        return refuse("the depth of the pipeline is above 1024");
    }
    Ok(())
}
