//! Waiting for a descriptor by being polled: for streams in async code that runs in a coroutine.
//!
//! Owns: the place in the descriptor's queue. Thread: that of the scheduler where it was linked.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::task::{Context, Poll};

use sinew_core::wait::{Polled, Queue};

use crate::error::WaitError;
use crate::io::source::Direction;
use crate::io::watched::{Watched, is_empty_handed};
use crate::scheduler::{current, polled};

/// A wait for one direction of a descriptor that is polled.
#[derive(Debug)]
pub(crate) struct Watch {
    party: Polled<()>,
    direction: Direction,
    number: RawFd,
    /// It is in a scheduler's table, which only that one's thread may touch.
    not_send: PhantomData<*const ()>,
}

impl Watch {
    pub(crate) const fn new(direction: Direction) -> Self {
        Self {
            party: Polled::new(polled::call_later),
            direction,
            number: -1,
            not_send: PhantomData,
        }
    }

    /// Whether it is in a scheduler's table, as far as it knows.
    pub(crate) fn is_waiting(&self) -> bool {
        self.party.is_waiting()
    }

    /// Gives the wait up, if there is one.
    fn leave(&mut self) {
        if !self.party.is_waiting() {
            return;
        }
        let left = current::with_scheduler(|scheduler| {
            scheduler.unlink_polled(self.number, self.direction, &mut self.party);
        });
        if left.is_none() {
            // The scheduler is gone, and has claimed all who were in its table: the party is in no queue.
            let mut none = Queue::new();
            crate::io::source::leave(&mut none, &mut self.party);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Watched {
    /// Makes a call, or has the context's waker called when it is worth to be made again.
    ///
    /// `call` reports by `WouldBlock` that the kernel has nothing.
    pub(crate) fn poll_call<T>(
        &self,
        watch: &mut Watch,
        context: &Context<'_>,
        mut call: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        if watch.party.is_waiting() && watch.party.poll(context.waker()).is_pending() {
            return Poll::Pending;
        }
        let fd = self.as_fd();
        let (number, owner, direction) = (fd.as_raw_fd(), self.owner(), watch.direction);
        let in_place =
            current::with_scheduler(|scheduler| scheduler.may_be_ready(number, owner, direction));
        let Some(mut worth_trying) = in_place else {
            return Poll::Ready(Err(WaitError::State.into()));
        };
        while worth_trying {
            match call(fd) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => worth_trying = false,
                Err(error) if is_empty_handed(&error) => {}
                result => return Poll::Ready(result),
            }
        }
        watch.party.prepare(context.waker());
        let linked = current::with_scheduler(|scheduler| {
            scheduler.watch(number, owner)?;
            watch.number = number;
            scheduler.link_polled(number, owner, direction, &mut watch.party);
            io::Result::Ok(())
        });
        match linked {
            Some(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Pending,
        }
    }
}
