//! An open file on a disk: its reads, writes and the position that they share.
//!
//! Owns: the descriptor. Thread: any.
//!
//! The kernel locks the position of an open file during a call that moves it. So what is tried in place, on a scheduler's thread, must
//! not meet such a call of the pool's: `position` keeps the two apart, for all duplicates that were made here. A duplicate from
//! elsewhere can hold it up for as long as one call to the disk takes.
//!
//! Invariants
//! - I1. While the position is held in place no thread of the pool makes a call that moves it, and the other way round.

use std::fs::File;
use std::io::{self, IoSliceMut, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use rustix::buffer::spare_capacity;
use rustix::io::{Errno, ReadWriteFlags};

use crate::fs::{STEP, errand};
use crate::io::take_turn;

/// `position`: it is held in place. Otherwise it counts the calls of the pool that move it.
const IN_PLACE: usize = 1 << (usize::BITS - 1);
/// As an offset: where the position is.
const HERE: u64 = u64::MAX;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct Disk {
    file: File,
    position: Arc<AtomicUsize>,
    /// The kernel reads what it has cached without waiting for the rest.
    reads_cached: AtomicBool,
}

/// The right to move the position; see the file's head.
struct Moving<'a> {
    position: &'a AtomicUsize,
    step: usize,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        // ORDERING: pairs with the Acquire of whoever takes it next.
        self.position.fetch_sub(self.step, Release);
    }
}

/// Makes a call until it is not interrupted.
fn uninterrupted<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

impl Disk {
    pub(super) fn new(file: File) -> Self {
        Self {
            file,
            position: Arc::default(),
            reads_cached: AtomicBool::new(true),
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Another descriptor for the same open file.
    pub(super) fn duplicate(&self) -> io::Result<Self> {
        Ok(Self {
            file: self.file.try_clone()?,
            position: Arc::clone(&self.position),
            reads_cached: AtomicBool::new(self.reads_cached.load(Relaxed)),
        })
    }

    /// The descriptor, which nobody else has but, for a moment, a call whose coroutine was unwound by force.
    pub(super) fn into_file(mut self: Arc<Self>) -> File {
        loop {
            match Arc::try_unwrap(self) {
                Ok(disk) => return disk.file,
                Err(shared) => self = shared,
            }
            std::thread::yield_now();
        }
    }

    /// To move the position here, if that cannot block.
    fn moving_in_place(&self) -> Option<Moving<'_>> {
        // ORDERING: pairs with the Release in `Moving::drop`.
        let taken = self
            .position
            .compare_exchange(0, IN_PLACE, Acquire, Relaxed);
        taken.ok().map(|_| Moving {
            position: &self.position,
            step: IN_PLACE,
        })
    }

    /// To move the position on a thread that may block. Whoever holds it in place does so for one call that does not wait.
    fn moving(&self) -> Moving<'_> {
        let one_more = |count: usize| (count & IN_PLACE == 0).then_some(count + 1);
        // ORDERING: pairs with the Release in `Moving::drop`.
        while self
            .position
            .fetch_update(Acquire, Relaxed, one_more)
            .is_err()
        {
            std::thread::yield_now();
        }
        Moving {
            position: &self.position,
            step: 1,
        }
    }

    /// Holds the position if a call at `offset` moves it.
    fn moving_at(&self, offset: Option<u64>) -> Option<Moving<'_>> {
        offset.is_none().then(|| self.moving())
    }

    /// Reads at the offset, or where the position is. The caller's thread may block.
    fn read_blocking(&self, offset: Option<u64>, buffer: &mut [u8]) -> io::Result<usize> {
        let _moving = self.moving_at(offset);
        uninterrupted(|| match offset {
            Some(offset) => rustix::io::pread(&self.file, &mut *buffer, offset),
            None => rustix::io::read(&self.file, &mut *buffer),
        })
    }

    /// The same into a buffer of its own, of this length.
    fn read_owned(&self, offset: Option<u64>, len: usize) -> io::Result<Vec<u8>> {
        let _moving = self.moving_at(offset);
        let mut bytes = Vec::with_capacity(len);
        uninterrupted(|| match offset {
            Some(offset) => rustix::io::pread(&self.file, spare_capacity(&mut bytes), offset),
            None => rustix::io::read(&self.file, spare_capacity(&mut bytes)),
        })?;
        Ok(bytes)
    }

    fn write_blocking(&self, offset: Option<u64>, bytes: &[u8]) -> io::Result<usize> {
        let _moving = self.moving_at(offset);
        uninterrupted(|| match offset {
            Some(offset) => rustix::io::pwrite(&self.file, bytes, offset),
            None => rustix::io::write(&self.file, bytes),
        })
    }

    /// Reads in place what the kernel has cached; `None` if it would have to wait, or at what may be the end: some kernels say that where
    /// it is not.
    fn read_cached(&self, offset: Option<u64>, buffer: &mut [u8]) -> Option<usize> {
        // A negative offset is none, but the greatest of all means the position here.
        let is_valid = offset.is_none_or(|offset| i64::try_from(offset).is_ok());
        if !is_valid || !self.reads_cached.load(Relaxed) {
            return None;
        }
        let _moving = match offset {
            Some(_) => None,
            None => Some(self.moving_in_place()?),
        };
        let slices = &mut [IoSliceMut::new(buffer)];
        let offset = offset.unwrap_or(HERE);
        match rustix::io::preadv2(&self.file, slices, offset, ReadWriteFlags::NOWAIT) {
            Ok(0) | Err(Errno::AGAIN | Errno::INTR) => None,
            Ok(len) => Some(len),
            Err(error) => {
                // Whatever else it is, the pool's call tells.
                if matches!(error, Errno::OPNOTSUPP | Errno::NOSYS) {
                    self.reads_cached.store(false, Relaxed);
                }
                None
            }
        }
    }

    /// Reads at the offset, or where the position is.
    pub(super) fn read(
        self: &Arc<Self>,
        offset: Option<u64>,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        if errand::is_direct() {
            return self.read_blocking(offset, buffer);
        }
        if crate::in_coroutine()
            && let Some(len) = self.read_cached(offset, buffer)
        {
            take_turn();
            return Ok(len);
        }
        let (disk, len) = (Arc::clone(self), buffer.len().min(STEP));
        let bytes = errand::run(move || disk.read_owned(offset, len))?;
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    /// Writes at the offset, or where the position is.
    pub(super) fn write(self: &Arc<Self>, offset: Option<u64>, bytes: &[u8]) -> io::Result<usize> {
        if errand::is_direct() {
            return self.write_blocking(offset, bytes);
        }
        let disk = Arc::clone(self);
        let bytes = bytes[..bytes.len().min(STEP)].to_vec();
        errand::run(move || disk.write_blocking(offset, &bytes))
    }

    /// Sends at most so many bytes from where the position is to a socket in non-blocking mode; `WouldBlock` if that has no room.
    pub(crate) fn send(self: &Arc<Self>, to: &Arc<OwnedFd>, len: usize) -> io::Result<usize> {
        let (disk, to) = (Arc::clone(self), Arc::clone(to));
        errand::run(move || {
            let _moving = disk.moving();
            uninterrupted(|| rustix::fs::sendfile(&*to, &disk.file, None, len))
        })
    }

    /// Moves the position.
    pub(super) fn seek(self: &Arc<Self>, to: SeekFrom) -> io::Result<u64> {
        // Where the end is, a file of another machine has to ask.
        if !matches!(to, SeekFrom::End(_))
            && crate::in_coroutine()
            && let Some(_moving) = self.moving_in_place()
        {
            return (&self.file).seek(to);
        }
        let disk = Arc::clone(self);
        errand::run(move || {
            let _moving = disk.moving();
            (&disk.file).seek(to)
        })
    }
}

impl AsFd for Disk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
