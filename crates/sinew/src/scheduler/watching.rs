//! The descriptors that a scheduler watches: its door to the table of sources.
//!
//! Owns: nothing: the table and the driver are the scheduler's. Thread: the scheduler's.
//!
//! Invariants
//! - I1. Nothing is borrowed when those who waited are woken: a waker may be code of the user's.
#![expect(unsafe_code, reason = "passes the duties of wait queues on")]

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;

use sinew_core::wait::Node;

use crate::io::Direction;
use crate::scheduler::Scheduler;

impl Scheduler {
    #[inline]
    pub(crate) fn may_be_ready(&self, fd: RawFd, owner: u64, direction: Direction) -> bool {
        self.sources.borrow_mut().may_be_ready(fd, owner, direction)
    }

    #[inline]
    pub(crate) fn exhausted(&self, fd: RawFd, owner: u64, direction: Direction) {
        self.sources.borrow_mut().exhausted(fd, owner, direction);
    }

    /// Makes sure that the driver watches the descriptor.
    pub(crate) fn watch(&self, fd: RawFd, owner: u64) -> io::Result<()> {
        let mut sources = self.sources.borrow_mut();
        if owner == 0 {
            self.door.watched.mark(fd);
        }
        let stale = sources.watch(&mut **self.driver.borrow_mut(), fd, owner)?;
        drop(sources);
        stale.wake_all();
        self.deferred.call();
        Ok(())
    }

    /// The descriptor is about to be closed.
    pub(crate) fn forget(&self, fd: RawFd, owner: u64) {
        let mut sources = self.sources.borrow_mut();
        let stale = sources.forget(&mut **self.driver.borrow_mut(), fd, owner);
        drop(sources);
        stale.wake_all();
        self.deferred.call();
    }

    /// Another thread has closed the descriptor.
    pub(super) fn forget_closed(&self, fd: RawFd) {
        let mut sources = self.sources.borrow_mut();
        let stale = sources.recheck(&mut **self.driver.borrow_mut(), fd);
        drop(sources);
        stale.wake_all();
        self.deferred.call();
    }

    /// Links a waiting coroutine's node at a watched descriptor, which is known to have nothing now.
    ///
    /// # Safety
    ///
    /// As for [`Sources::link`].
    pub(crate) unsafe fn link_source(
        &self,
        fd: RawFd,
        owner: u64,
        direction: Direction,
        node: NonNull<Node>,
    ) -> u32 {
        let mut sources = self.sources.borrow_mut();
        sources.exhausted(fd, owner, direction);
        // SAFETY: passed on to the caller.
        unsafe { sources.link(fd, direction, node) }
    }

    /// Takes the node out again; false if the descriptor was closed meanwhile.
    ///
    /// # Safety
    ///
    /// As for [`Sources::unlink`].
    pub(crate) unsafe fn unlink_source(
        &self,
        fd: RawFd,
        direction: Direction,
        node: NonNull<Node>,
        life: u32,
    ) -> bool {
        let mut sources = self.sources.borrow_mut();
        // SAFETY: passed on to the caller.
        unsafe { sources.unlink(fd, direction, node, life) }
    }
}
