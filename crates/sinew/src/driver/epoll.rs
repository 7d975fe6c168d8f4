//! The driver on Linux's epoll: edge-triggered, each descriptor registered once for both directions.
//!
//! Owns: the epoll descriptor and its event buffer. Thread: the scheduler's.
//!
//! Invariants
//! - I1. Every event carries the token of its registration; the wake descriptor's is [`KNOCK`].

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;
use std::{fmt, io};

use rustix::event::epoll;

use crate::driver::{Driver, Ready, lend};
use crate::sys::{self, clock};

/// The token of the wake descriptor.
const KNOCK: u64 = u64::MAX;
/// How many events one call takes at most.
const EVENTS_MAX: usize = 256;
/// How many events later one is that is some way off, and one that is near.
const FAR: usize = 8;
const NEAR: usize = 4;

/// The epoll driver.
pub(crate) struct Epoll {
    epoll: OwnedFd,
    events: Vec<sys::epoll::Event>,
}

impl fmt::Debug for Epoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoll")
            .field("epoll", &self.epoll)
            .finish_non_exhaustive()
    }
}

impl Epoll {
    /// A driver that `knock`, an event descriptor, wakes.
    pub(crate) fn new(knock: BorrowedFd<'_>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, knock, epoll::EventData::new_u64(KNOCK), flags)?;
        Ok(Self {
            epoll,
            events: Vec::with_capacity(EVENTS_MAX),
        })
    }
}

fn both_directions() -> epoll::EventFlags {
    epoll::EventFlags::IN
        | epoll::EventFlags::OUT
        | epoll::EventFlags::PRI
        | epoll::EventFlags::RDHUP
        | epoll::EventFlags::ET
}

impl Driver for Epoll {
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn poll(
        &mut self,
        deadline_ns: Option<u64>,
        ahead: &mut dyn FnMut(u64, bool),
        report: &mut dyn FnMut(u64, Ready),
    ) {
        let timeout = deadline_ns.map(|deadline_ns| {
            let now_ns = if deadline_ns == 0 { 0 } else { clock::now_ns() };
            Duration::from_nanos(deadline_ns.saturating_sub(now_ns))
        });
        // A signal ends the wait early; the scheduler looks at everything again anyway. No
        // other error is possible for a descriptor and a buffer that are ours.
        if sys::epoll::wait(self.epoll.as_fd(), &mut self.events, timeout).is_err() {
            return;
        }
        for (index, event) in self.events.iter().enumerate() {
            for (distance, is_near) in [(FAR, false), (NEAR, true)] {
                if let Some(event) = self.events.get(index + distance) {
                    ahead(event.u64, is_near);
                }
            }
            let token = event.u64;
            if token == KNOCK {
                continue;
            }
            let flags = epoll::EventFlags::from_bits_retain(event.events);
            let hung_up = flags.intersects(
                epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR,
            );
            let urgent = flags.contains(epoll::EventFlags::PRI);
            let readable = hung_up || urgent || flags.contains(epoll::EventFlags::IN);
            let gone = epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            let writable = flags.intersects(gone | epoll::EventFlags::OUT);
            report(
                token,
                Ready {
                    readable,
                    writable,
                    uneven: hung_up || urgent,
                },
            );
        }
    }

    fn register(&mut self, fd: RawFd, token: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, lend(fd)?, data, both_directions())?)
    }

    fn renew(&mut self, fd: RawFd, token: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::modify(
            &self.epoll,
            lend(fd)?,
            data,
            both_directions(),
        )?)
    }

    fn deregister(&mut self, fd: RawFd) {
        if let Ok(fd) = lend(fd) {
            // The kernel has dropped the registration already if the descriptor was closed.
            let _gone_already = epoll::delete(&self.epoll, fd).is_err();
        }
    }
}
