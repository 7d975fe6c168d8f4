//! Plain threads that wait for a bare descriptor number, so that they can be told when another thread closes it.
//!
//! Owns: the list of these waits, and spare event descriptors to tell them by. Any thread.
//!
//! Invariants
//! - I1. A wait is in the list before the thread looks at what the number means, and until it ends. So a close is seen either by the
//!   look or by the knock that follows the close.
//! - I2. A knock says that the number was closed at some time. Whether what it meant at the beginning of the wait is gone is for the
//!   waiter to find out: the number may have been closed and given out anew before the wait began.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::scheduler::door::Door;
use crate::scheduler::seen;

/// How many event descriptors are kept for later waits.
const SPARE_MAX: usize = 16;

struct Waits {
    /// Few at a time: a thread each.
    list: Vec<(RawFd, Arc<OwnedFd>)>,
    spare: Vec<Arc<OwnedFd>>,
}

static WAITS: Mutex<Waits> = Mutex::new(Waits {
    list: Vec::new(),
    spare: Vec::new(),
});

fn lock() -> MutexGuard<'static, Waits> {
    // Nothing unwinds under the lock.
    WAITS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A wait in the list.
pub(super) struct ThreadWait {
    knock: Arc<OwnedFd>,
}

impl ThreadWait {
    /// Enters a wait for `fd`. `None` if no event descriptor can be had: then nobody can tell.
    pub(super) fn enter(fd: RawFd) -> Option<Self> {
        seen::note_bare();
        let mut waits = lock();
        let knock = match waits.spare.pop() {
            Some(knock) => knock,
            None => Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?),
        };
        waits.list.push((fd, knock.clone()));
        Some(Self { knock })
    }

    /// Readable when the number was closed.
    pub(super) fn knock(&self) -> BorrowedFd<'_> {
        self.knock.as_fd()
    }

    /// Takes the knock.
    pub(super) fn answer(&self) {
        // Nothing there is as good.
        let _nothing = rustix::io::read(&*self.knock, &mut [0_u8; 8]).is_err();
    }
}

impl Drop for ThreadWait {
    fn drop(&mut self) {
        let mut waits = lock();
        let is_mine = |(_, knock): &(RawFd, Arc<OwnedFd>)| Arc::ptr_eq(knock, &self.knock);
        if let Some(index) = waits.list.iter().position(is_mine) {
            let (_, knock) = waits.list.swap_remove(index);
            if waits.spare.len() < SPARE_MAX {
                // Under the lock nobody knocks; what came before is taken.
                self.answer();
                waits.spare.push(knock);
            }
        }
    }
}

/// A number was closed: schedulers and plain threads that wait for it look what it means now.
pub(super) fn tell_closed(fd: RawFd) {
    if !seen::is_any_bare() {
        return;
    }
    Door::tell_closed(fd);
    for (_, knock) in lock().list.iter().filter(|(waited, _)| *waited == fd) {
        // A count that is full is readable, which is all that is wanted.
        let _count_is_full = rustix::io::write(&**knock, &1_u64.to_ne_bytes()).is_err();
    }
}
