//! Calls on bare descriptors, and what is made of them.
//!
//! Owns: nothing. Nobody tells the runtime when a bare descriptor is closed, so each wait asks the kernel whether
//! the number still means what it meant; [`close`] tells it at once.
#![expect(unsafe_code, reason = "close(2) of an owned number")]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::net::{RecvFlags, SendFlags, SocketFlags};

use crate::io::established::is_established;
use crate::io::named::named;
use crate::io::readiness::{is_ready_unless_waiting, take_turn, wait_ready};
use crate::io::source::Direction;
use crate::io::thread_waits;
use crate::scheduler::current::{self, Place, place};
use crate::sys::clock;

/// What to wait for at a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Until reading or accepting would not block.
    Read,
    /// Until writing would not block, or a connect has come to its end.
    Write,
}

impl From<Interest> for Direction {
    fn from(interest: Interest) -> Self {
        match interest {
            Interest::Read => Self::Read,
            Interest::Write => Self::Write,
        }
    }
}

/// Whether the descriptor is in non-blocking mode.
///
/// # Errors
///
/// The kernel's, for a descriptor that is not open.
pub fn is_nonblocking<Fd: AsFd>(fd: Fd) -> io::Result<bool> {
    Ok(fcntl_getfl(fd)?.contains(OFlags::NONBLOCK))
}

/// Puts the descriptor into non-blocking mode, or back. The mode belongs to the open file: every duplicate
/// of the descriptor, in other processes too, changes with it.
///
/// # Errors
///
/// The kernel's, for a descriptor that is not open.
pub fn set_nonblocking<Fd: AsFd>(fd: Fd, nonblocking: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(&fd)?;
    flags.set(OFlags::NONBLOCK, nonblocking);
    Ok(fcntl_setfl(&fd, flags)?)
}

/// Refuses a descriptor in blocking mode: a call on it would stop the thread and all of its coroutines.
fn check(fd: BorrowedFd<'_>) -> io::Result<()> {
    let number = fd.as_raw_fd();
    match fcntl_getfl(fd) {
        Ok(flags) if flags.contains(OFlags::NONBLOCK) => Ok(()),
        Ok(_) => {
            let what = format!(
                "descriptor {number} is in blocking mode: call sinew::io::set_nonblocking on it first"
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, what))
        }
        Err(error) => Err(named(error.into(), || format!("descriptor {number}"))),
    }
}

/// Makes a call until it no longer would block.
fn call<T>(
    fd: BorrowedFd<'_>,
    direction: Direction,
    timeout: Option<Duration>,
    mut f: impl FnMut(BorrowedFd<'_>) -> rustix::io::Result<T>,
) -> io::Result<T> {
    check(fd)?;
    let mut deadline_ns = None;
    loop {
        match f(fd) {
            Err(rustix::io::Errno::AGAIN) => {}
            Err(rustix::io::Errno::INTR) => continue,
            result => {
                take_turn();
                return Ok(result?);
            }
        }
        if deadline_ns.is_none() {
            deadline_ns = timeout.map(clock::after_ns);
        }
        wait_ready(fd, 0, direction, deadline_ns)?;
    }
}

/// Reads what is there, at most `buffer.len()` bytes; 0 at the end of the file.
///
/// # Suspends
///
/// Until there is something to read.
///
/// # Cancellation
///
/// Ends with an error that [`crate::is_cancelled`] recognises; nothing has been read.
///
/// # Errors
///
/// `TimedOut`; `InvalidInput` for a descriptor in blocking mode; the kernel's. If the descriptor is closed by
/// [`close`] meanwhile, `NotConnected`.
pub fn read<Fd: AsFd>(fd: Fd, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
    call(fd.as_fd(), Direction::Read, timeout, |fd| {
        rustix::io::read(fd, &mut *buffer)
    })
}

/// Writes as much as the kernel takes at once, at least one byte; returns how much that was.
///
/// # Suspends
///
/// Until something can be written. What is written is always reported: the wait comes before it.
///
/// # Cancellation
///
/// Ends with an error that [`crate::is_cancelled`] recognises; nothing has been written.
///
/// # Errors
///
/// As for [`read`].
pub fn write<Fd: AsFd>(fd: Fd, buffer: &[u8], timeout: Option<Duration>) -> io::Result<usize> {
    call(fd.as_fd(), Direction::Write, timeout, |fd| {
        rustix::io::write(fd, buffer)
    })
}

/// Accepts a connection; the new descriptor is close-on-exec and non-blocking.
///
/// # Suspends
///
/// Until there is one.
///
/// # Errors
///
/// As for [`read`].
pub fn accept<Fd: AsFd>(fd: Fd, timeout: Option<Duration>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    call(fd.as_fd(), Direction::Read, timeout, |fd| {
        rustix::net::accept_with(fd, flags)
    })
}

/// Connects a socket.
///
/// # Suspends
///
/// Until the connection stands or has failed.
///
/// # Cancellation
///
/// Ends with an error that [`crate::is_cancelled`] recognises; the connect goes on in the kernel, so close the socket.
///
/// # Errors
///
/// As for [`read`]; a refused connection among the kernel's.
pub fn connect<Fd: AsFd>(
    fd: Fd,
    address: &SocketAddr,
    timeout: Option<Duration>,
) -> io::Result<()> {
    let fd = fd.as_fd();
    check(fd)?;
    match rustix::net::connect(fd, address) {
        // An interrupted connect goes on like one in progress.
        Err(
            rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR | rustix::io::Errno::ALREADY,
        ) => {}
        result => {
            take_turn();
            return Ok(result?);
        }
    }
    let deadline_ns = timeout.map(clock::after_ns);
    loop {
        wait_ready(fd, 0, Direction::Write, deadline_ns)?;
        // Not yet, if writability was reported before the connect began.
        if is_established(fd)? {
            return Ok(());
        }
    }
}

/// Receives a datagram and who sent it. What does not fit into `buffer` is cut off by the kernel.
///
/// # Suspends
///
/// Until there is one.
///
/// # Errors
///
/// As for [`read`]; `InvalidData` if the sender's address is not an internet address.
pub fn recvfrom<Fd: AsFd>(
    fd: Fd,
    buffer: &mut [u8],
    timeout: Option<Duration>,
) -> io::Result<(usize, SocketAddr)> {
    let (len, _, address) = call(fd.as_fd(), Direction::Read, timeout, |fd| {
        rustix::net::recvfrom(fd, &mut *buffer, RecvFlags::empty())
    })?;
    let address = address.and_then(|address| SocketAddr::try_from(address).ok());
    let no_address = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "the sender has no internet address",
        )
    };
    Ok((len, address.ok_or_else(no_address)?))
}

/// Sends a datagram.
///
/// # Suspends
///
/// Until there is room for it.
///
/// # Errors
///
/// As for [`read`].
pub fn sendto<Fd: AsFd>(
    fd: Fd,
    buffer: &[u8],
    address: &SocketAddr,
    timeout: Option<Duration>,
) -> io::Result<usize> {
    call(fd.as_fd(), Direction::Write, timeout, |fd| {
        rustix::net::sendto(fd, buffer, SendFlags::NOSIGNAL, address)
    })
}

/// Waits until the descriptor is ready. It may be in blocking mode; another party may be faster at
/// taking what is there.
///
/// # Suspends
///
/// Until it is ready.
///
/// # Cancellation
///
/// Ends with an error that [`crate::is_cancelled`] recognises. Readiness that is there already wins.
///
/// # Errors
///
/// `TimedOut`; `InvalidInput` for a descriptor that is not pollable (a regular file); the kernel's.
pub fn ready<Fd: AsFd>(fd: Fd, interest: Interest, timeout: Option<Duration>) -> io::Result<()> {
    let fd = fd.as_fd();
    let deadline_ns = timeout.map(clock::after_ns);
    // On a plain thread poll(2) calls such a file ready; the answer is to be the same everywhere.
    if matches!(place(), Place::Thread) && !is_pollable(fd) {
        return Err(not_pollable(fd));
    }
    // What is there already wins over a cancel, as with the calls that look before they wait.
    if is_ready_unless_waiting(fd, interest.into())? && is_pollable(fd) {
        take_turn();
        return Ok(());
    }
    match wait_ready(fd, 0, interest.into(), deadline_ns) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !is_pollable(fd) => {
            Err(not_pollable(fd))
        }
        result => result,
    }
}

pub(super) fn is_pollable(fd: BorrowedFd<'_>) -> bool {
    let kind = fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
    !matches!(kind, Ok(FileType::RegularFile | FileType::Directory))
}

pub(super) fn not_pollable(fd: BorrowedFd<'_>) -> io::Error {
    let what = format!(
        "descriptor {} is not pollable: it is a regular file or a directory",
        fd.as_raw_fd()
    );
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Closes a descriptor. Coroutines and threads that wait for it end with `NotConnected`: coroutines of this thread at once, others
/// when they or their schedulers look, also if the number has been given out anew by then.
///
/// # Errors
///
/// The kernel's; the descriptor is closed all the same.
pub fn close(fd: impl Into<OwnedFd>) -> io::Result<()> {
    let fd = fd.into();
    current::with_scheduler(|scheduler| scheduler.forget(fd.as_raw_fd(), 0));
    // `OwnedFd` would not tell what close(2) says.
    let number = fd.into_raw_fd();
    let closed = close_number(number);
    // Only now: they ask the kernel what the number means.
    thread_waits::tell_closed(number);
    closed
}

fn close_number(number: i32) -> io::Result<()> {
    // SAFETY: the number was owned and has been given up by its owner.
    if unsafe { libc::close(number) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
