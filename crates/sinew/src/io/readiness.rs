//! Waiting for a descriptor to become ready: in a coroutine by the scheduler's driver, on a plain thread by `poll(2)`.
//!
//! Owns: the wait. Thread: the waiting one.
#![expect(
    unsafe_code,
    reason = "links the coroutine's node into a descriptor's queue"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sinew_core::wait::{Kind, Reason, Record, Suspend};

use crate::error::WaitError;
use crate::io::named::named;
use crate::io::source::{Direction, identity};
use crate::io::thread_waits::ThreadWait;
use crate::scheduler::current::{Place, place};
use crate::scheduler::waiting::Waiting;
use crate::sys::clock;

/// A call that succeeds at once is a turn too: a coroutine whose descriptors are always ready does not keep
/// the others from running.
#[inline]
pub(crate) fn take_turn() {
    if let Place::Coroutine(scheduler, block) = place() {
        scheduler.take_turn(block);
    }
}

/// Waits until a call for this direction is worth making again.
///
/// `owner` is the number of the socket object, 0 for a bare descriptor.
pub(super) fn wait_ready(
    fd: BorrowedFd<'_>,
    owner: u64,
    direction: Direction,
    deadline_ns: Option<u64>,
) -> io::Result<()> {
    match place() {
        Place::Thread => {
            let waiting = Waiting::new(deadline_ns)?;
            if let Some(reason) = waiting.refused() {
                return Ok(waiting.result(reason)?);
            }
            match wait_thread(fd, owner, direction, waiting.deadline_ns()) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    Ok(waiting.result(waiting.blame(Reason::Timeout))?)
                }
                result => result,
            }
        }
        Place::Frame => Err(WaitError::State.into()),
        Place::Coroutine(scheduler, block) => {
            let waiting = Waiting::new(deadline_ns)?;
            if let Some(reason) = waiting.refused() {
                return Ok(waiting.result(reason)?);
            }
            let number = fd.as_raw_fd();
            let watched = scheduler.watch(number, owner);
            watched.map_err(|error| named(error, || format!("descriptor {number}")))?;
            let (waiter, node) = waiting.party();
            block.waiter.word.arm();
            // SAFETY: the block's own node, unlinked.
            unsafe { block.node.prepare(waiter, std::ptr::null_mut()) };
            // SAFETY: prepared, armed; unlinked below.
            let life = unsafe { scheduler.link_source(number, owner, direction, node) };
            let kind = match direction {
                Direction::Read => Kind::Readable,
                Direction::Write => Kind::Writable,
            };
            let object = usize::try_from(number).unwrap_or(0);
            scheduler.foresee();
            let reason = waiting.suspend(Record {
                kind,
                object,
                owner: 0,
            });
            // SAFETY: linked above, by this waiter.
            let lives = unsafe { scheduler.unlink_source(number, direction, node, life) };
            if reason == Reason::Closed || (reason == Reason::Woken && !lives) {
                return Err(closed(number));
            }
            Ok(waiting.result(reason)?)
        }
    }
}

/// The descriptor with this number went while somebody waited for it.
pub(super) fn closed(number: RawFd) -> io::Error {
    let what = format!("descriptor {number} was closed while it was waited for");
    io::Error::new(io::ErrorKind::NotConnected, what)
}

/// What poll(2) is asked for.
pub(crate) fn poll_flags(direction: Direction) -> PollFlags {
    match direction {
        Direction::Read => PollFlags::IN,
        Direction::Write => PollFlags::OUT,
    }
}

/// Whether waits fail here because of a cancel, though the descriptor is ready: who waits for no more than that need not
/// wait. Asks the kernel only if they fail.
pub(super) fn is_ready_unless_waiting(
    fd: BorrowedFd<'_>,
    direction: Direction,
) -> io::Result<bool> {
    if Waiting::new(None)?.refused().is_none() {
        return Ok(false);
    }
    poll_until(fd, direction, Some(0))
}

/// Blocks the thread until the descriptor is ready, or is closed by another thread. (A socket is not: the waiting call borrows
/// it.)
fn wait_thread(
    fd: BorrowedFd<'_>,
    owner: u64,
    direction: Direction,
    deadline_ns: Option<u64>,
) -> io::Result<()> {
    let number = fd.as_raw_fd();
    let Some(wait) = (owner == 0).then(|| ThreadWait::enter(number)).flatten() else {
        return match poll_thread(fd, direction, deadline_ns, None)? {
            Ended::TimedOut => Err(WaitError::Timeout.into()),
            Ended::Ready | Ended::Knocked => Ok(()),
        };
    };
    // Looked at when the wait can be told.
    let meant = identity(number);
    loop {
        match poll_thread(fd, direction, deadline_ns, Some(wait.knock()))? {
            Ended::Ready if meant == identity(number) => return Ok(()),
            Ended::Ready => return Err(closed(number)),
            Ended::Knocked if meant == identity(number) => wait.answer(),
            Ended::Knocked => return Err(closed(number)),
            Ended::TimedOut => return Err(WaitError::Timeout.into()),
        }
    }
}

/// Whether the descriptor is ready, which the thread waits for until the deadline.
pub(super) fn poll_until(
    fd: BorrowedFd<'_>,
    direction: Direction,
    deadline_ns: Option<u64>,
) -> io::Result<bool> {
    Ok(matches!(
        poll_thread(fd, direction, deadline_ns, None)?,
        Ended::Ready
    ))
}

/// What a poll has ended with.
enum Ended {
    Ready,
    Knocked,
    TimedOut,
}

/// Blocks the thread until the descriptor is ready, or `knock` is readable.
fn poll_thread(
    fd: BorrowedFd<'_>,
    direction: Direction,
    deadline_ns: Option<u64>,
    knock: Option<BorrowedFd<'_>>,
) -> io::Result<Ended> {
    let first = PollFd::from_borrowed_fd(fd, poll_flags(direction));
    let second = PollFd::from_borrowed_fd(knock.unwrap_or(fd), PollFlags::IN);
    let mut both = [first, second];
    let fds = &mut both[..if knock.is_some() { 2 } else { 1 }];
    loop {
        let timeout = deadline_ns.map(|deadline_ns| {
            let left_ns = deadline_ns.saturating_sub(clock::now_ns());
            Timespec {
                tv_sec: i64::try_from(left_ns / 1_000_000_000).unwrap_or(i64::MAX),
                tv_nsec: i64::try_from(left_ns % 1_000_000_000).unwrap_or(0),
            }
        });
        match poll(fds, timeout.as_ref()) {
            Ok(0) => return Ok(Ended::TimedOut),
            Ok(_) if fds[0].revents().contains(PollFlags::NVAL) => {
                let error = io::Error::from_raw_os_error(libc::EBADF);
                return Err(named(error, || format!("descriptor {}", fd.as_raw_fd())));
            }
            Ok(_) if fds[0].revents().is_empty() => return Ok(Ended::Knocked),
            Ok(_) => return Ok(Ended::Ready),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
