//! The driver seam: what a scheduler needs of the world outside.
//!
//! A driver tells the time, waits until a descriptor is ready, another thread knocks or a point in
//! time comes, and keeps the registrations of descriptors. All time and readiness
//! pass through it, so that another world can stand in its place.
//!
//! Thread: the scheduler's. Only the knocker (see [`crate::scheduler`]'s door) is used from others.
#![expect(
    unsafe_code,
    reason = "a raw descriptor number is lent to one system call"
)]

pub(crate) mod epoll;

use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// Which directions of a descriptor something is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready {
    /// Reading or accepting may go on, or find an end or an error.
    pub(crate) readable: bool,
    /// Writing or connecting may go on, or find an error.
    pub(crate) writable: bool,
    /// The other side has closed, there is an error, or urgent data: from now on a short read does not show that
    /// the kernel has no more (it stops short of the urgent byte).
    pub(crate) uneven: bool,
}

/// Borrows a descriptor number for one call.
pub(crate) fn lend<'a>(fd: RawFd) -> io::Result<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(io::Error::from(rustix::io::Errno::BADF));
    }
    // SAFETY: not -1; the call checks the rest and answers EBADF.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// The world outside, as one scheduler sees it.
pub(crate) trait Driver {
    /// Now, in nanoseconds since an origin that all drivers of the process share.
    fn now_ns(&self) -> u64;

    /// Waits until something is ready, another thread knocks, or `deadline_ns` has come (`None`: no deadline; `Some(0)`:
    /// do not wait), and reports each ready registration by the token it was registered with. Each token is given to `ahead` twice
    /// before: when its report is some way off, and when it is near.
    fn poll(
        &mut self,
        deadline_ns: Option<u64>,
        ahead: &mut dyn FnMut(u64, bool),
        report: &mut dyn FnMut(u64, Ready),
    );

    /// Registers a descriptor for both directions, edge-triggered, under `token`.
    fn register(&mut self, fd: RawFd, token: u64) -> io::Result<()>;

    /// Renews a registration under a new token: what is ready now is reported again.
    /// `NotFound` if the descriptor is not (or no longer) the registered one.
    fn renew(&mut self, fd: RawFd, token: u64) -> io::Result<()>;

    /// Ends a registration, if there is one.
    fn deregister(&mut self, fd: RawFd);
}
