//! A socket's descriptor, with the one loop that all of its calls go through.
//!
//! Owns: the descriptor, and the number that tells its registrations from those of other sockets
//! which get the same descriptor number later.
//! Thread: any; each scheduler that waits for the socket watches it for itself.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::io::readiness::{take_turn, wait_ready};
use crate::io::source::Direction;
use crate::io::thread_waits;
use crate::scheduler::current;
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

    /// How long each call may take.
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

    /// Limits of the same length and end.
    pub(crate) fn copied(&self) -> Self {
        Self {
            timeout_ns: AtomicU64::new(self.timeout_ns.load(Relaxed)),
            deadline_ns: AtomicU64::new(self.deadline_ns.load(Relaxed)),
        }
    }

    /// Limits with this end.
    pub(crate) const fn until_ns(deadline_ns: u64) -> Self {
        Self {
            timeout_ns: AtomicU64::new(0),
            deadline_ns: AtomicU64::new(deadline_ns),
        }
    }

    /// Limits for one call: these, and `deadline` if there is one.
    #[cfg(feature = "tls")]
    pub(crate) fn until(&self, deadline: Option<Instant>) -> Self {
        match deadline {
            None => self.copied(),
            Some(deadline) => {
                let own_ns = self.deadline_ns().unwrap_or(u64::MAX);
                Self::until_ns(own_ns.min(clock::instant_ns(deadline)))
            }
        }
    }

    /// Limits for several calls in a row: the end that a call that begins now has.
    pub(crate) fn fixed(&self) -> Self {
        Self::until_ns(self.deadline_ns().unwrap_or(u64::MAX))
    }

    /// The deadline of a call that begins to wait now.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
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
    // Goes before the descriptor: what is closed must not be watched any more.
    registration: Registration,
    fd: OwnedFd,
    // Goes after it.
    _told: Told,
}

/// Tells those who wait for the bare number on other threads, when it has been closed. (If it has not, as when the descriptor was given
/// back, they find that out.)
#[derive(Debug)]
struct Told(RawFd);

impl Drop for Told {
    fn drop(&mut self) {
        thread_waits::tell_closed(self.0);
    }
}

/// A socket's place at the scheduler of the thread where it is dropped.
#[derive(Debug)]
struct Registration {
    number: RawFd,
    owner: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        // No call of the socket can wait here: it would borrow it. Schedulers of other threads that have watched
        // it find out by the owner number when the descriptor number comes again.
        current::with_scheduler(|scheduler| scheduler.forget(self.number, self.owner));
    }
}

impl Watched {
    /// Takes on a descriptor, which must be in non-blocking mode.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        static OWNERS: AtomicU64 = AtomicU64::new(1);
        let registration = Registration {
            number: fd.as_raw_fd(),
            owner: OWNERS.fetch_add(1, Relaxed),
        };
        let _told = Told(fd.as_raw_fd());
        Self {
            registration,
            fd,
            _told,
        }
    }

    /// The number that tells this socket's registrations from others'.
    pub(super) fn owner(&self) -> u64 {
        self.registration.owner
    }

    /// Gives the descriptor back.
    pub(crate) fn into_fd(self) -> OwnedFd {
        drop(self.registration);
        self.fd
    }

    /// Makes a call until it no longer would block, waiting in between within `limits`.
    ///
    /// `call` reports by `WouldBlock` that the kernel has nothing. A limit or a cancel ends the call only after
    /// the kernel was asked at least once: what is there already is never refused.
    #[inline]
    pub(crate) fn call<T>(
        &self,
        direction: Direction,
        limits: &Limits,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let fd = self.fd.as_fd();
        let owner = self.registration.owner;
        let mut deadline_ns = None;
        let mut asked = false;
        let mut worth_trying = current::with_scheduler(|scheduler| {
            scheduler.may_be_ready(fd.as_raw_fd(), owner, direction)
        })
        .unwrap_or(true);
        loop {
            if worth_trying {
                asked = true;
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
            if let Err(ended) = wait_ready(fd, owner, direction, until) {
                if asked {
                    return Err(ended);
                }
                return match call(fd) {
                    Err(error) if is_empty_handed(&error) => Err(ended),
                    result => result,
                };
            }
        }
    }

    /// What [`Watched::call`] does at the end of each call; for calls that are made without it.
    pub(crate) fn take_turn(&self) {
        take_turn();
    }

    /// A call has shown that the kernel has no more for this direction: the next one waits for an event
    /// before it tries. Only for streams, whose short reads and writes say so.
    ///
    /// To be called from within the closure given to [`Watched::call`], right after the system call: once the
    /// coroutine has stopped, an event may have come that this would undo.
    #[inline]
    pub(crate) fn exhausted(&self, direction: Direction) {
        current::with_scheduler(|scheduler| {
            scheduler.exhausted(self.fd.as_raw_fd(), self.registration.owner, direction);
        });
    }
}

pub(super) fn is_empty_handed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
