//! How a connect that was begun has ended.
//!
//! Owns: nothing. Any thread.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{getpeername, sockopt};

/// Whether the connect that was begun on this socket has succeeded; false if it goes on.
///
/// # Errors
///
/// The connect's. `NotConnected` if no connect is under way any more and its error went to someone else.
pub(crate) fn is_established(fd: BorrowedFd<'_>) -> io::Result<bool> {
    sockopt::socket_error(fd)??;
    match getpeername(fd) {
        Ok(_) => return Ok(true),
        Err(Errno::NOTCONN) => {}
        Err(error) => return Err(error.into()),
    }
    // A socket whose connect goes on is neither writable nor hung up; one that is idle is both.
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let idle = poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::HUP);
    if !idle {
        return Ok(false);
    }
    // It may have failed between the two looks above.
    sockopt::socket_error(fd)??;
    Err(Errno::NOTCONN.into())
}
