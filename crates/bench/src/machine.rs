//! What the figures were taken on: processor, kernel, memory, date; and staying on one CPU of it.

use std::fs;
use std::io;
use std::time::SystemTime;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::system::uname;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

const GIB: f64 = (1_u64 << 30) as f64;

/// The machine and the build, as the head of a report.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The processor's model.
    pub processor: String,
    /// How many CPUs this process may use.
    pub cpus: usize,
    /// The kernel's name and release.
    pub kernel: String,
    /// Physical memory, in GiB.
    pub memory_gib: f64,
    /// The compiler.
    pub rustc: &'static str,
    /// When the run began, in UTC.
    pub date: String,
    /// How many threads of the machine were busy in the minute before.
    pub load_average: f64,
}

impl Machine {
    /// Asks the kernel.
    #[must_use]
    pub fn probe() -> Self {
        let name = uname();
        Self {
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            cpus: allowed_cpus().map_or(1, |cpus| cpus.len()),
            kernel: format!(
                "{} {}",
                name.sysname().to_string_lossy(),
                name.release().to_string_lossy()
            ),
            memory_gib: memory_bytes("MemTotal").unwrap_or(0) as f64 / GIB,
            rustc: env!("SINEW_BENCH_RUSTC"),
            date: date(),
            load_average: load_average().unwrap_or(0.0),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the date of a report")]
fn date() -> String {
    httpdate::fmt_http_date(SystemTime::now())
}

fn load_average() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The value of the first line of a file that begins with `key`.
fn field(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kib_bytes(value: &str) -> Option<u64> {
    let kib: u64 = value.trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}

fn memory_bytes(key: &str) -> Option<u64> {
    kib_bytes(&field("/proc/meminfo", key)?)
}

/// How much memory can be had without swapping, in bytes.
pub(crate) fn available_bytes() -> u64 {
    memory_bytes("MemAvailable").unwrap_or(0)
}

/// The most memory this process has had resident, in GiB.
pub(crate) fn peak_gib() -> f64 {
    field("/proc/self/status", "VmHWM")
        .and_then(|value| kib_bytes(&value))
        .map_or(f64::NAN, |bytes| bytes as f64 / GIB)
}

/// How much memory this process has resident, in bytes.
pub(crate) fn resident_bytes() -> u64 {
    field("/proc/self/status", "VmRSS")
        .and_then(|value| kib_bytes(&value))
        .unwrap_or(0)
}

/// The CPUs this process may use, lowest first.
pub(crate) fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect())
}

/// Keeps this thread, and those it starts later, on one CPU.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Allows as many open descriptors as this process may allow itself.
pub(crate) fn raise_descriptor_limit() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    Ok(setrlimit(Resource::Nofile, raised)?)
}
