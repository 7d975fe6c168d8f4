//! `epoll_pwait2(2)`: waiting for descriptors with a timeout in nanoseconds.
//!
//! Owns: the call, and what is done on kernels before 5.11, which lack it: whole milliseconds, rounded up, so that
//! nothing is early.
#![expect(unsafe_code, reason = "a system call that fills a buffer")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// One event, as the kernel writes it.
pub(crate) type Event = libc::epoll_event;

/// Whether the kernel has said that it lacks the call.
static LACKING: AtomicBool = AtomicBool::new(false);

/// Waits until a descriptor is ready or `timeout` is over (`None`: no timeout) and leaves the events in `events`, at most
/// as many as it has room for.
pub(crate) fn wait(
    epoll: BorrowedFd<'_>,
    events: &mut Vec<Event>,
    timeout: Option<Duration>,
) -> io::Result<()> {
    events.clear();
    let mut count = -1;
    if !LACKING.load(Relaxed) {
        count = wait_precisely(epoll, events, timeout);
        if count < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
            LACKING.store(true, Relaxed);
        } else if count < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    if count < 0 {
        count = wait_coarsely(epoll, events, timeout);
    }
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written so many, and no more than there is room for.
    unsafe { events.set_len(count) };
    Ok(())
}

fn wait_precisely(
    epoll: BorrowedFd<'_>,
    events: &mut Vec<Event>,
    timeout: Option<Duration>,
) -> i64 {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    let no_mask = std::ptr::null::<libc::sigset_t>();
    // SAFETY: the buffer has room for its capacity; the timeout is null or valid; no mask is given.
    unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            room(events),
            timeout,
            no_mask,
            0_usize,
        )
    }
}

fn wait_coarsely(epoll: BorrowedFd<'_>, events: &mut Vec<Event>, timeout: Option<Duration>) -> i64 {
    let timeout_ms = timeout.map_or(-1, |timeout| {
        i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
    });
    // SAFETY: the buffer has room for its capacity.
    let count = unsafe {
        libc::epoll_wait(
            epoll.as_raw_fd(),
            events.as_mut_ptr(),
            room(events),
            timeout_ms,
        )
    };
    i64::from(count)
}

fn room(events: &Vec<Event>) -> i32 {
    i32::try_from(events.capacity()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests;
