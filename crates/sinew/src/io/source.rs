//! The descriptors that one scheduler watches, and the coroutines that wait for them.
//!
//! Owns: one place per descriptor number, with a wait queue for each direction. Thread: the scheduler's only;
//! other schedulers that use the same socket watch it for themselves.
//!
//! Invariants
//! - I1. A place's generation is part of its registration's token: an event of an earlier registration of the same
//!   number is recognised and dropped.
//! - I2. `owner` tells which socket object registered (0: a bare number): a number that was closed and given out anew
//!   belongs to another object, and is registered anew. A bare number that is a socket's too shares its registration.
//! - I3. `readable` and `writable` are hints: an unset one says that the last call found nothing and no event has come since.
#![expect(unsafe_code, reason = "passes the duties of wait queues on")]

use std::io;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};

use sinew_core::wait::{Node, Polled, Queue, Reason, WakeList};

use crate::driver::{Driver, Ready, lend};
use crate::scheduler::block::Block;
use crate::sys::ahead::prefetch;

/// A direction of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// One descriptor number.
#[derive(Debug)]
struct Source {
    generation: u32,
    /// Whether the driver has a registration for it, as far as is known.
    registered: bool,
    owner: u64,
    readable: bool,
    writable: bool,
    uneven: bool,
    /// Whether a life of the number ended behind the table's back, so that its registration may be there still.
    haunted: bool,
    /// In a haunted place: which file was registered, by device and inode.
    identity: Option<(u64, u64)>,
    readers: Queue,
    writers: Queue,
}

impl Source {
    const fn new() -> Self {
        Self {
            generation: 0,
            registered: false,
            owner: 0,
            readable: true,
            writable: true,
            uneven: false,
            haunted: false,
            identity: None,
            readers: Queue::new(),
            writers: Queue::new(),
        }
    }

    fn queue(&mut self, direction: Direction) -> &mut Queue {
        match direction {
            Direction::Read => &mut self.readers,
            Direction::Write => &mut self.writers,
        }
    }

    fn token(&self, fd: RawFd) -> u64 {
        u64::from(self.generation) << 32 | u64::from(fd.cast_unsigned())
    }

    /// Whether the number still means what was registered. What is ready is reported again, then.
    fn still_means(&self, driver: &mut dyn Driver, fd: RawFd) -> bool {
        // In a haunted place the kernel may know the number from an earlier life: a file that a duplicate has
        // kept open meanwhile, and that has come back to its old number.
        driver.renew(fd, self.token(fd)).is_ok()
            && (!self.haunted || (self.identity.is_some() && self.identity == identity(fd)))
    }

    /// Starts a new life of the number.
    fn renew(&mut self, owner: u64) {
        self.generation = self.generation.wrapping_add(1);
        self.owner = owner;
        self.readable = true;
        self.writable = true;
        self.uneven = false;
    }
}

/// Which open file the number means. Two different sockets or pipes that are open at the same time differ in it.
pub(super) fn identity(fd: RawFd) -> Option<(u64, u64)> {
    let stat = rustix::fs::fstat(lend(fd).ok()?).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Sources {
    by_fd: Vec<Source>,
    watched: usize,
    waiting: usize,
}

impl Sources {
    pub(crate) const fn new() -> Self {
        Self {
            by_fd: Vec::new(),
            watched: 0,
            waiting: 0,
        }
    }

    /// How many descriptors are registered.
    pub(crate) fn watched(&self) -> usize {
        self.watched
    }

    /// How many coroutines wait for one.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    fn get(&mut self, fd: RawFd) -> Option<&mut Source> {
        usize::try_from(fd)
            .ok()
            .and_then(|index| self.by_fd.get_mut(index))
    }

    /// Whether a call for this direction may succeed: true unless it is known not to.
    #[inline]
    pub(crate) fn may_be_ready(&mut self, fd: RawFd, owner: u64, direction: Direction) -> bool {
        match self.get(fd) {
            Some(source) if source.registered && source.owner == owner => match direction {
                Direction::Read => source.readable || source.uneven,
                Direction::Write => source.writable || source.uneven,
            },
            _ => true,
        }
    }

    /// A call for this direction has found nothing, or not all it asked for: until an event says otherwise, the
    /// next one is not worth making.
    #[inline]
    pub(crate) fn exhausted(&mut self, fd: RawFd, owner: u64, direction: Direction) {
        if let Some(source) = self.get(fd)
            && source.registered
            && source.owner == owner
        {
            match direction {
                Direction::Read => source.readable = false,
                Direction::Write => source.writable = false,
            }
        }
    }

    /// Makes sure that the descriptor is registered for this owner, so that what is ready will be reported or has been.
    ///
    /// Those who wait for an earlier life of the number are returned, to be woken.
    pub(crate) fn watch(
        &mut self,
        driver: &mut dyn Driver,
        fd: RawFd,
        owner: u64,
    ) -> io::Result<WakeList> {
        let index = usize::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
        if index >= self.by_fd.len() {
            self.by_fd.resize_with(index + 1, Source::new);
        }
        let source = &mut self.by_fd[index];
        let was_registered = source.registered;
        if was_registered && owner != 0 && source.owner == owner {
            return Ok(WakeList::new());
        }
        // One of the two is a bare number: nobody tells when it is closed, so the kernel is asked.
        let by_number = owner == 0 || source.owner == 0;
        if was_registered && by_number && source.still_means(driver, fd) {
            // A socket and its bare number are one registration: neither ends the other's waits.
            source.owner = source.owner.max(owner);
            return Ok(WakeList::new());
        }
        source.renew(owner);
        source.haunted |= was_registered;
        let token = source.token(fd);
        let result = match driver.register(fd, token) {
            // The same open file under another name for its owner: take the registration on.
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => driver.renew(fd, token),
            result => result,
        };
        source.registered = result.is_ok();
        source.identity = if source.haunted { identity(fd) } else { None };
        let stale = Self::end_waits(source);
        self.watched = self.watched + usize::from(result.is_ok()) - usize::from(was_registered);
        match result {
            Ok(()) => Ok(stale),
            Err(error) => {
                stale.wake_all();
                Err(error)
            }
        }
    }

    /// Forgets a descriptor that is about to be closed; those who wait for it are returned, to be woken.
    pub(crate) fn forget(&mut self, driver: &mut dyn Driver, fd: RawFd, owner: u64) -> WakeList {
        let Some(source) = self.get(fd) else {
            return WakeList::new();
        };
        if !source.registered || (owner != 0 && source.owner != owner) {
            return WakeList::new();
        }
        source.registered = false;
        source.renew(0);
        let stale = Self::end_waits(source);
        driver.deregister(fd);
        self.watched -= 1;
        stale
    }

    /// Another thread has closed the number. If it does not mean any more what was registered, those who wait for that are
    /// returned, to be woken: the number may have been given out anew by now, and even be registered here.
    pub(crate) fn recheck(&mut self, driver: &mut dyn Driver, fd: RawFd) -> WakeList {
        let Some(source) = self.get(fd) else {
            return WakeList::new();
        };
        if !source.registered || source.still_means(driver, fd) {
            return WakeList::new();
        }
        source.registered = false;
        source.renew(0);
        // A duplicate may keep the file, and the kernel's registration with it.
        source.haunted = true;
        let stale = Self::end_waits(source);
        self.watched -= 1;
        stale
    }

    fn end_waits(source: &mut Source) -> WakeList {
        let mut list = source.readers.claim_all(Reason::Closed);
        list.append(source.writers.claim_all(Reason::Closed));
        list
    }

    /// Links a waiter's node, and returns which life of the number it waits for.
    ///
    /// # Safety
    ///
    /// As for [`Queue::push_back`]; the waiter takes the node out by [`Sources::unlink`].
    pub(crate) unsafe fn link(
        &mut self,
        fd: RawFd,
        direction: Direction,
        node: NonNull<Node>,
    ) -> u32 {
        self.waiting += 1;
        let Some(source) = self.get(fd) else {
            return 0;
        };
        // SAFETY: passed on to the caller.
        unsafe { source.queue(direction).push_back(node) };
        source.generation
    }

    /// Takes a waiter's node out, if an event has not. Says whether the number still is in the life that
    /// [`Sources::link`] returned: between an event and the turn of those it wakes, it may have been closed.
    ///
    /// # Safety
    ///
    /// The node was linked by [`Sources::link`] with the same descriptor and direction, and its waiter is the caller.
    pub(crate) unsafe fn unlink(
        &mut self,
        fd: RawFd,
        direction: Direction,
        node: NonNull<Node>,
        life: u32,
    ) -> bool {
        self.waiting -= 1;
        let Some(source) = self.get(fd) else {
            return false;
        };
        // SAFETY: passed on to the caller.
        unsafe { source.queue(direction).remove(node) };
        source.generation == life
    }

    /// Links a party that is polled.
    pub(crate) fn link_polled(&mut self, fd: RawFd, direction: Direction, party: &mut Polled<()>) {
        if let Some(source) = self.get(fd) {
            // SAFETY: one thread has the queue for itself; slots are not used.
            unsafe { party.link(source.queue(direction), None) };
        }
    }

    /// Takes a party out that is polled.
    pub(crate) fn unlink_polled(
        &mut self,
        fd: RawFd,
        direction: Direction,
        party: &mut Polled<()>,
    ) {
        match self.get(fd) {
            Some(source) => leave(source.queue(direction), party),
            None => leave(&mut Queue::new(), party),
        }
    }

    /// An event is about to be reported: what that touches is fetched, first the place, then who waits to read there.
    pub(crate) fn expect(&self, token: u64, is_near: bool) {
        let Some(source) = self.by_fd.get((token & u64::from(u32::MAX)) as usize) else {
            return;
        };
        if is_near {
            Block::prefetch_waiting(source.readers.newest());
        } else {
            prefetch(ptr::from_ref(source).cast());
        }
    }

    /// An event came: wakes those who wait for what it says.
    pub(crate) fn report(&mut self, token: u64, ready: Ready) {
        let Some(source) = self.by_fd.get_mut((token & u64::from(u32::MAX)) as usize) else {
            return;
        };
        if !source.registered || u64::from(source.generation) != token >> 32 {
            return;
        }
        source.uneven |= ready.uneven;
        if ready.readable {
            source.readable = true;
            source.readers.claim_all(Reason::Woken).wake_all();
        }
        if ready.writable {
            source.writable = true;
            source.writers.claim_all(Reason::Woken).wake_all();
        }
    }
}

/// Takes a party out of the queue that it was linked in; if it is not in there, it is in none.
pub(super) fn leave(queue: &mut Queue, party: &mut Polled<()>) {
    // SAFETY: one thread has the queue for itself. A party is linked in no other than that of its descriptor and
    // direction, and the end of a life of the number, as that of the table, takes all out.
    let _ = unsafe { party.leave_unlocked(queue) };
}

impl Drop for Sources {
    /// No coroutine waits any more; a party that is polled may, and is not left in a queue that is gone.
    fn drop(&mut self) {
        for source in &mut self.by_fd {
            Self::end_waits(source).wake_all();
        }
    }
}
