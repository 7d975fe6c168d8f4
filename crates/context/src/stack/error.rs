//! Why no stack could be had, and which limit stands in the way.
//!
//! Any thread. An error owns no heap memory: it is made when memory or mappings have run out.
//!
//! Invariants:
//! - I1: the advice names one setting, the one whose arithmetic explains the failure; where none
//!   does, the mapping limit is named, the only remaining cause on a 64-bit address space.

#![expect(unsafe_code, reason = "resource limits are read through libc")]

use std::fmt;
use std::io::Read as _;

/// Why a stack, or the alternate stack of the overflow handler, could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StackError {
    /// A size that no stack can have; nothing was attempted.
    Invalid {
        /// What was wrong: a stack's size, or a guard's.
        what: &'static str,
        /// The value that was given, in bytes.
        found: usize,
        /// The smallest value allowed, in bytes; zero also stands for the default.
        min: usize,
        /// The largest value allowed, in bytes.
        max: usize,
    },
    /// The kernel refused memory or a mapping.
    NoMemory {
        /// The system call that failed.
        call: &'static str,
        /// How many bytes it was asked for.
        bytes: usize,
        /// The error number it gave.
        errno: i32,
        /// The limit that was most probably reached.
        limit: Limit,
    },
    /// The thread has a user shadow stack, and would die at its first switch to another stack.
    ShadowStack,
    /// A system call that does not depend on memory failed.
    System {
        /// The system call that failed.
        call: &'static str,
        /// The error number it gave.
        errno: i32,
    },
}

/// The limit that explains a refused mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// The number of mappings of a process, `vm.max_map_count`.
    MapCount {
        /// The value of the sysctl, 0 if it could not be read.
        value: usize,
    },
    /// The address space of the process, `RLIMIT_AS`, in bytes.
    AddressSpace {
        /// The soft limit, in bytes.
        value: usize,
    },
    /// The private writable memory of the process, `RLIMIT_DATA`, in bytes.
    Data {
        /// The soft limit, in bytes.
        value: usize,
    },
    /// The kernel accounts reservations in full, `vm.overcommit_memory` is 2.
    Overcommit,
    /// All memory of the process is locked by `mlockall`, within `RLIMIT_MEMLOCK`.
    Locked,
}

impl StackError {
    /// A new writable mapping of `bytes` was refused with `errno`.
    pub(super) fn of_mapping(bytes: usize, errno: i32) -> StackError {
        let limit = match errno {
            libc::EAGAIN => Limit::Locked,
            _ => Limit::of_mapping(bytes),
        };
        StackError::NoMemory {
            call: "mmap",
            bytes,
            errno,
            limit,
        }
    }
}

impl Limit {
    /// Finds what refused a new writable mapping of `bytes`.
    pub(super) fn of_mapping(bytes: usize) -> Limit {
        let used = Usage::read();
        if let Some(value) = soft_limit(libc::RLIMIT_AS)
            && used.total_bytes.saturating_add(bytes) > value
        {
            return Limit::AddressSpace { value };
        }
        if let Some(value) = soft_limit(libc::RLIMIT_DATA)
            && used.data_bytes.saturating_add(bytes) > value
        {
            return Limit::Data { value };
        }
        if read_number("/proc/sys/vm/overcommit_memory") == Some(2) {
            return Limit::Overcommit;
        }
        Limit::map_count()
    }

    /// The mapping limit: the only one that splitting a mapping can meet.
    pub(super) fn map_count() -> Limit {
        let value = read_number("/proc/sys/vm/max_map_count").unwrap_or(0);
        Limit::MapCount { value }
    }
}

/// What the process has mapped now.
#[derive(Default)]
struct Usage {
    total_bytes: usize,
    data_bytes: usize,
}

impl Usage {
    /// Reads it from `/proc/self/statm`; zeroes if that cannot be read.
    fn read() -> Usage {
        let mut text = [0; 128];
        let mut fields = read_text("/proc/self/statm", &mut text).split_ascii_whitespace();
        let mut field = |n| fields.nth(n).and_then(|word| word.parse::<usize>().ok());
        let page_bytes = super::page_bytes();
        Usage {
            total_bytes: field(0).unwrap_or(0).saturating_mul(page_bytes),
            // The sixth field; the first is consumed already.
            data_bytes: field(4).unwrap_or(0).saturating_mul(page_bytes),
        }
    }
}

fn read_number(path: &str) -> Option<usize> {
    let mut text = [0; 128];
    read_text(path, &mut text).trim().parse().ok()
}

fn read_text<'a>(path: &str, text: &'a mut [u8]) -> &'a str {
    let read = std::fs::File::open(path).and_then(|mut file| file.read(text));
    let bytes = read.ok().and_then(|n| text.get(..n)).unwrap_or(&[]);
    std::str::from_utf8(bytes).unwrap_or("")
}

/// The soft limit of `resource`, `None` when it is unlimited.
fn soft_limit(resource: libc::__rlimit_resource_t) -> Option<usize> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a live, writable rlimit.
    let status = unsafe { libc::getrlimit(resource, &raw mut limit) };
    if status != 0 || limit.rlim_cur == libc::RLIM_INFINITY {
        return None;
    }
    usize::try_from(limit.rlim_cur).ok()
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            StackError::Invalid {
                what,
                found,
                min,
                max,
            } => write!(
                f,
                "{what} of {found} bytes is outside the allowed {min} to {max} bytes (0 means the default)"
            ),
            StackError::NoMemory {
                call,
                bytes,
                errno,
                limit,
            } => {
                let cause = std::io::Error::from_raw_os_error(errno);
                write!(
                    f,
                    "no memory for a stack: {call} of {bytes} bytes: {cause}; {limit}"
                )
            }
            StackError::ShadowStack => f.write_str(
                "this thread has a user shadow stack (Intel CET), which switches of stacks do not keep: link without -z shstk, or set GLIBC_TUNABLES=glibc.cpu.hwcaps=-SHSTK",
            ),
            StackError::System { call, errno } => {
                let cause = std::io::Error::from_raw_os_error(errno);
                write!(f, "stack set-up: {call}: {cause}")
            }
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::MapCount { value } => write!(
                f,
                "the process may hold {value} mappings: raise the sysctl vm.max_map_count"
            ),
            Limit::AddressSpace { value } => write!(
                f,
                "the process may map {value} bytes: raise RLIMIT_AS (ulimit -v) or ask for smaller stacks"
            ),
            Limit::Data { value } => write!(
                f,
                "the process may map {value} writable bytes: raise RLIMIT_DATA (ulimit -d) or ask for smaller stacks"
            ),
            Limit::Locked => f.write_str(
                "mlockall locks every new mapping: raise RLIMIT_MEMLOCK (ulimit -l), or lock without MCL_FUTURE",
            ),
            Limit::Overcommit => f.write_str(
                "reservations are accounted in full: set the sysctl vm.overcommit_memory to 0 or 1, or ask for smaller stacks",
            ),
        }
    }
}

impl std::error::Error for StackError {}
