//! A socket's descriptor, with the one loop that all of its calls go through.
//!
//! Owns: the descriptor, and the number that tells its registrations from those of other sockets
//! which get the same descriptor number later.
//! Thread: any; each scheduler that waits for the socket watches it for itself.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::io::readiness::wait_ready;
use crate::io::source::Direction;
use crate::scheduler::current::{self, Place, place};
use crate::sys::clock;

/// The limits of a socket's calls in one direction: a length for each call, a point in time for all.
#[derive(Debug)]
pub(crate) struct Limits {
    /// 0: none.
    timeout_ns: AtomicU64,
    /// `u64::MAX`: none.
    deadline_ns: AtomicU64,
}

impl Limits {
    pub(crate) const fn new() -> Self {
        Self {
            timeout_ns: AtomicU64::new(0),
            deadline_ns: AtomicU64::new(u64::MAX),
        }
    }

    /// Sets how long each call may take. A timeout of zero is an error, as in std.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) {
            let what = "a timeout of zero: use None for no timeout";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        self.timeout_ns
            .store(timeout.map_or(0, clock::to_ns), Relaxed);
        Ok(())
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        match self.timeout_ns.load(Relaxed) {
            0 => None,
            timeout_ns => Some(Duration::from_nanos(timeout_ns)),
        }
    }

    /// Sets when all calls end.
    pub(crate) fn set_deadline(&self, deadline: Option<Instant>) {
        self.deadline_ns
            .store(deadline.map_or(u64::MAX, clock::instant_ns), Relaxed);
    }

    /// The deadline of a call that begins to wait now.
    fn deadline_ns(&self) -> Option<u64> {
        let deadline_ns = self.deadline_ns.load(Relaxed);
        let deadline_ns = match self.timeout_ns.load(Relaxed) {
            0 => deadline_ns,
            timeout_ns => deadline_ns.min(clock::now_ns().saturating_add(timeout_ns)),
        };
        (deadline_ns != u64::MAX).then_some(deadline_ns)
    }
}

/// A socket's descriptor; see the file's head.
#[derive(Debug)]
pub(crate) struct Watched {
    fd: OwnedFd,
    owner: u64,
}

impl Watched {
    /// Takes on a descriptor, which must be in non-blocking mode.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        static OWNERS: AtomicU64 = AtomicU64::new(1);
        Self {
            fd,
            owner: OWNERS.fetch_add(1, Relaxed),
        }
    }

    /// Makes a call until it no longer would block, waiting in between within `limits`.
    ///
    /// `call` reports by `WouldBlock` that the kernel has nothing.
    #[inline]
    pub(crate) fn call<T>(
        &self,
        direction: Direction,
        limits: &Limits,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let fd = self.fd.as_fd();
        let mut deadline_ns = None;
        let mut worth_trying = current::with_scheduler(|scheduler| {
            scheduler.may_be_ready(fd.as_raw_fd(), self.owner, direction)
        })
        .unwrap_or(true);
        loop {
            if worth_trying {
                match call(fd) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.exhausted(direction);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    result => {
                        take_turn();
                        return result;
                    }
                }
            }
            worth_trying = true;
            let until = *deadline_ns.get_or_insert_with(|| limits.deadline_ns());
            wait_ready(fd, self.owner, direction, until)?;
        }
    }

    /// A call has shown that the kernel has no more for this direction: the next one waits for an event
    /// before it tries. Only for streams, whose short reads and writes say so.
    #[inline]
    pub(crate) fn exhausted(&self, direction: Direction) {
        current::with_scheduler(|scheduler| {
            scheduler.exhausted(self.fd.as_raw_fd(), self.owner, direction);
        });
    }
}

/// A call that succeeds at once is a turn too: a coroutine whose descriptors are always ready does not keep
/// the others from running.
#[inline]
fn take_turn() {
    if let Place::Coroutine(scheduler, block) = place() {
        scheduler.take_turn(block);
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Nobody can wait for it here: a wait borrows the socket. Schedulers of other threads that have watched it
        // find out by the owner number when the descriptor number comes again.
        current::with_scheduler(|scheduler| scheduler.forget(self.fd.as_raw_fd(), self.owner));
    }
}
