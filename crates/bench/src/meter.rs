//! The clock, the CPU time, and one sample.
//!
//! Deliberately not here: what is measured, and how samples become a figure.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// What one run of one side gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Operations that were done, counted by the workload.
    pub done: u64,
    /// One value for each metric of the workload.
    pub values: Vec<f64>,
}

/// The time now.
#[expect(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The CPU time of this process, user and system, all of its threads.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Measures from its start.
#[derive(Debug)]
pub(crate) struct Meter {
    wall: Instant,
    cpu: Duration,
}

impl Meter {
    pub(crate) fn start() -> Self {
        let cpu = cpu_time();
        Self { wall: now(), cpu }
    }

    /// The wall time per operation, in nanoseconds.
    pub(crate) fn wall(self, done: u64) -> Sample {
        let elapsed = self.wall.elapsed();
        Sample {
            done,
            values: vec![per(elapsed, done)],
        }
    }

    /// Both: the wall time, and the CPU time of all threads.
    pub(crate) fn wall_and_cpu(self, done: u64) -> Sample {
        let spent = cpu_time().saturating_sub(self.cpu);
        let mut sample = self.wall(done);
        sample.values.push(per(spent, done));
        sample
    }

    /// The CPU time per operation, in nanoseconds.
    pub(crate) fn cpu(self, done: u64) -> Sample {
        let spent = cpu_time().saturating_sub(self.cpu);
        Sample {
            done,
            values: vec![per(spent, done)],
        }
    }
}

/// Nanoseconds for each of `done`.
pub(crate) fn per(time: Duration, done: u64) -> f64 {
    time.as_nanos() as f64 / done.max(1) as f64
}

/// Delays below `max`, the same ones for every side.
#[derive(Debug)]
pub(crate) struct Delays {
    state: u64,
    max_us: u64,
}

impl Delays {
    pub(crate) fn below(max: Duration) -> Self {
        Self {
            state: 0x2545_f491_4f6c_dd1d,
            max_us: max.as_micros() as u64,
        }
    }

    pub(crate) fn draw(&mut self) -> Duration {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        Duration::from_micros((self.state >> 11) % self.max_us)
    }
}
