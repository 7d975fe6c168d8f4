//! A plain thread that waits for descriptors and for other things at the same time: in poll(2), with an eventfd by which
//! those others wake it.
//!
//! Owns: the thread's waiter and the eventfd. Thread: the waiting one; the wake function runs on any.
//!
//! Invariants
//! - I1. The party stays in the frame of the wait until its wake, if one is owed, has been done: it goes on without only
//!   after it has won the claim itself.
#![expect(
    unsafe_code,
    reason = "lends the waiting thread's frame to the wait protocol"
)]

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use sinew_core::wait::{Claim, Node, Reason, Record, Suspend, Waiter, Ways};

use super::Arm;
use crate::io::poll_flags;
use crate::scheduler::waiting::Waiting;
use crate::sys::clock;

/// See the file's head.
pub(super) struct Polling<'a> {
    waiting: &'a Waiting<'a>,
    arms: &'a [&'a dyn Arm],
    party: Party,
}

struct Party {
    waiter: Waiter,
    node: Node,
    wake: OwnedFd,
}

impl<'a> Polling<'a> {
    /// Fails if there is no descriptor left for the eventfd.
    pub(super) fn new(waiting: &'a Waiting<'a>, arms: &'a [&'a dyn Arm]) -> io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            waiting,
            arms,
            party: Party {
                waiter: Waiter::new(&WAYS),
                node: Node::new(),
                wake: eventfd(0, flags)?,
            },
        })
    }

    /// One look with poll(2). Says whether the wake has come.
    fn look(&self, left_ns: Option<u64>) -> bool {
        let mut fds = vec![PollFd::new(&self.party.wake, PollFlags::IN)];
        let ready = self.arms.iter().filter_map(|arm| arm.ready());
        for arm in ready.clone() {
            let (fd, direction) = arm.descriptor();
            fds.push(PollFd::from_borrowed_fd(fd, poll_flags(direction)));
        }
        let timeout = left_ns.map(|left_ns| Timespec {
            tv_sec: i64::try_from(left_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(left_ns % 1_000_000_000).unwrap_or(0),
        });
        let has_failed = match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => false,
            Err(Errno::INTR) => return false,
            // The first arm will ask for itself, and say why not.
            Err(_) => true,
        };
        if !has_failed && !fds[0].revents().is_empty() {
            return true;
        }
        for (arm, fd) in ready.zip(&fds[1..]) {
            let is_worth_a_look = has_failed || !fd.revents().is_empty();
            if is_worth_a_look && self.party.waiter.word.claim(Reason::Woken) == Claim::Won {
                // SAFETY: the waiter itself, which has just won.
                unsafe { sinew_core::wait::Arm::node(arm).choose_self() };
                return true;
            }
        }
        false
    }
}

// SAFETY: waiter and node are in `self`, which is borrowed; `suspend` goes on after the claimer's wake, or after its own
// won claim.
unsafe impl Suspend for Polling<'_> {
    fn party(&self) -> (NonNull<Waiter>, NonNull<Node>) {
        (
            NonNull::from(&self.party.waiter),
            NonNull::from(&self.party.node),
        )
    }

    fn refused(&self) -> Option<Reason> {
        self.waiting.refused()
    }

    fn expired(&self) -> Option<Reason> {
        self.waiting.expired()
    }

    fn suspend(&self, _record: Record) -> Reason {
        let deadline_ns = self.waiting.deadline_ns();
        loop {
            let left_ns =
                deadline_ns.map(|deadline_ns| deadline_ns.saturating_sub(clock::now_ns()));
            if self.look(left_ns) {
                break;
            }
            if left_ns == Some(0) && self.party.waiter.word.claim(Reason::Timeout) == Claim::Won {
                break;
            }
        }
        self.drain();
        self.waiting.blame(self.party.waiter.word.finish())
    }
}

impl Polling<'_> {
    /// Empties the eventfd for the next wait.
    fn drain(&self) {
        // Nothing is in there if the thread has claimed itself.
        let _nothing_left = rustix::io::read(&self.party.wake, &mut [0; 8]);
    }
}

/// How such a thread is made runnable.
static WAYS: Ways = Ways {
    wake: wake_polling,
    is_here: is_never_here,
};

/// As for any waiting thread: whoever asks is another one.
unsafe fn is_never_here(_: NonNull<Waiter>) -> bool {
    false
}

/// Writes into the eventfd. The party may be gone as soon as that is done.
unsafe fn wake_polling(waiter: NonNull<Waiter>) {
    // SAFETY: this function is only given to such parties' waiters.
    let party = unsafe { waiter.byte_sub(offset_of!(Party, waiter)) }.cast::<Party>();
    // SAFETY: I1.
    let number: RawFd = unsafe { party.as_ref() }.wake.as_raw_fd();
    // SAFETY: open until the write has been done, which is what the party waits for.
    let wake = unsafe { BorrowedFd::borrow_raw(number) };
    // A counter of zero takes a one.
    let written = rustix::io::write(wake, &1_u64.to_ne_bytes());
    debug_assert_eq!(written, Ok(8));
}
