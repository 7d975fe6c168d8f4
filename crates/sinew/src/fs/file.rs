//! An open file.
//!
//! Owns: the descriptor, and which of the two ways to wait for it is in order. Thread: any.

use std::fs::{self, File as StdFile, FileTimes, Metadata, Permissions, TryLockError};
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::SystemTime;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::fs::disk::Disk;
use crate::fs::open::PAUSE;
use crate::fs::{OpenOptions, STEP, errand};
use crate::io::{Direction, Limits, Watched, named, set_nonblocking};

/// An open file, as [`std::fs::File`].
///
/// It can be shared, also by several threads; as with std's they share its position. Dropping it closes it right there, which for a
/// file on a disk may take its time if that was the last name and the last descriptor of a large one: [`File::close`] does it
/// elsewhere, and reports errors.
///
/// # Suspends
///
/// Every method may, except conversions; see the [module](crate::fs). Reads of what the kernel has cached do not.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Seek, Write};
/// use std::os::unix::fs::FileExt;
/// use sinew::fs::{File, OpenOptions};
///
/// let path = std::env::temp_dir().join(format!("sinew-file-{}", std::process::id()));
/// sinew::run(|| {
///     let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
///     file.write_all(b"0123456789")?;
///     file.write_all_at(b"x", 4)?;
///     file.sync_all()?;
///     file.rewind()?;
///     let mut text = String::new();
///     file.read_to_string(&mut text)?;
///     assert_eq!(text, "0123x56789");
///     sinew::fs::remove_file(&path)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct File {
    way: Way,
    /// For errors.
    path: Option<Arc<Path>>,
}

/// How its calls are waited for.
#[derive(Debug)]
enum Way {
    /// On threads that may block.
    Disk(Arc<Disk>),
    /// By readiness, in non-blocking mode: a FIFO, a terminal and whatever else is on no disk.
    Stream(Watched, Ends),
}

/// What a read of 0 bytes says about a stream.
#[derive(Debug, Clone, Copy)]
enum Ends {
    /// The end.
    Truly,
    /// The end, or that nobody has opened it to write yet: a FIFO.
    Perhaps,
}

/// A call here has no limit of its own.
static NO_LIMITS: Limits = Limits::new();

/// Whether a FIFO's end is a true one. One that was opened before there was a writer reads an end too.
fn had_writers(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now)).is_err() || !fds[0].revents().is_empty()
}

impl File {
    pub(super) fn over(file: StdFile, metadata: &Metadata, path: Option<&Path>) -> Self {
        let kind = metadata.file_type();
        let on_disk =
            kind.is_file() || kind.is_dir() || kind.is_block_device() || kind.is_symlink();
        let way = if on_disk {
            Way::Disk(Arc::new(Disk::new(file)))
        } else {
            // Of a path alone, which is not open, it cannot be set, and neither need it be.
            let _as_it_is = set_nonblocking(&file, true).is_err();
            let ends = match kind.is_fifo() {
                true => Ends::Perhaps,
                false => Ends::Truly,
            };
            Way::Stream(Watched::new(file.into()), ends)
        };
        Self {
            way,
            path: path.map(Arc::from),
        }
    }

    /// The file, if it is one on a disk.
    pub(crate) fn disk(&self) -> Option<&Arc<Disk>> {
        match &self.way {
            Way::Disk(disk) => Some(disk),
            Way::Stream(..) => None,
        }
    }

    /// Opens a file to read.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file to write; it is created, or made empty.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).open(path)
    }

    /// Creates a file to read and write, which must not exist.
    ///
    /// # Errors
    ///
    /// As std's, with the path; `AlreadyExists`.
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).open(path)
    }

    /// As [`OpenOptions::new`].
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Takes on a file of std's. What is on no disk (a FIFO, a socket, a terminal, an event descriptor) is put into non-blocking mode, and so
    /// are all duplicates of it.
    ///
    /// # Suspends
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn from_std(file: StdFile) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self::over(file, &metadata, None))
    }

    /// Gives the file to std, in blocking mode as std's calls expect.
    ///
    /// # Suspends
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn into_std(self) -> io::Result<StdFile> {
        match self.way {
            Way::Disk(disk) => Ok(disk.into_file()),
            Way::Stream(watched, _) => {
                let fd = watched.into_fd();
                set_nonblocking(&fd, false)?;
                Ok(fd.into())
            }
        }
    }

    #[cold]
    fn named(&self, doing: &str, error: io::Error) -> io::Error {
        match &self.path {
            Some(path) => named(error, || format!("{doing} {}", path.display())),
            None => named(error, || format!("{doing} descriptor {}", self.as_raw_fd())),
        }
    }

    /// The file for a job that may outlive the call.
    fn shared(&self) -> io::Result<Arc<Disk>> {
        match &self.way {
            Way::Disk(disk) => Ok(Arc::clone(disk)),
            Way::Stream(watched, _) => {
                let fd = watched.as_fd().try_clone_to_owned()?;
                Ok(Arc::new(Disk::new(fd.into())))
            }
        }
    }

    /// Makes a call of std's where it may block.
    fn off<T, F>(&self, doing: &str, f: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&StdFile) -> io::Result<T> + Send + 'static,
    {
        let disk = self.shared()?;
        errand::run(move || f(disk.file())).map_err(|error| self.named(doing, error))
    }

    /// Waits until all that was written, and what describes the file, is on the disk.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn sync_all(&self) -> io::Result<()> {
        self.off("syncing", StdFile::sync_all)
    }

    /// Waits until all that was written is on the disk.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn sync_data(&self) -> io::Result<()> {
        self.off("syncing", StdFile::sync_data)
    }

    /// Makes the file this long; what is added is zero.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.off("resizing", move |file| file.set_len(len))
    }

    /// What describes the file.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.off("looking at", StdFile::metadata)
    }

    /// Sets who may do what with it.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        self.off("setting the permissions of", move |file| {
            file.set_permissions(permissions)
        })
    }

    /// Sets the times of the last read and the last change.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        self.off("setting the times of", move |file| file.set_times(times))
    }

    /// Sets the time of the last change.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(time))
    }

    /// Another descriptor for the same open file: the position is shared.
    ///
    /// # Suspends
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// The kernel's: too many descriptors, for one.
    pub fn try_clone(&self) -> io::Result<Self> {
        let way = match &self.way {
            Way::Disk(disk) => disk.duplicate().map(|disk| Way::Disk(Arc::new(disk))),
            Way::Stream(watched, ends) => {
                let fd = watched.as_fd().try_clone_to_owned();
                fd.map(|fd| Way::Stream(Watched::new(fd), *ends))
            }
        };
        Ok(Self {
            way: way.map_err(|error| self.named("duplicating", error))?,
            path: self.path.clone(),
        })
    }

    /// Closes the file where that may block, and reports what close(2) says: for some file systems, that a write has failed.
    ///
    /// # Cancellation
    ///
    /// The file is closed in any case.
    ///
    /// # Errors
    ///
    /// The kernel's; the file is closed all the same.
    pub fn close(self) -> io::Result<()> {
        let path = self.path.clone();
        let closed = match self.way {
            Way::Disk(disk) => errand::run(move || crate::io::close(disk.into_file())),
            Way::Stream(watched, _) => crate::io::close(watched.into_fd()),
        };
        closed.map_err(|error| match path {
            Some(path) => named(error, || format!("closing {}", path.display())),
            None => error,
        })
    }

    /// Waits for the lock on the file, which nobody else has then, neither for himself nor with others. It belongs to the open file:
    /// duplicates have it too, and it goes with the last of them.
    ///
    /// # Suspends
    ///
    /// Until it is free. The kernel does not tell, so it is asked every few milliseconds; those who wait are not served in turn.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn lock(&self) -> io::Result<()> {
        self.lock_by(Self::try_lock)
    }

    /// Waits for the lock on the file that any number may have with others.
    ///
    /// # Suspends
    ///
    /// As [`File::lock`].
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn lock_shared(&self) -> io::Result<()> {
        self.lock_by(Self::try_lock_shared)
    }

    fn lock_by(&self, attempt: fn(&Self) -> Result<(), TryLockError>) -> io::Result<()> {
        let mut pause = PAUSE.0;
        loop {
            match attempt(self) {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) => crate::time::sleep(pause)?,
                Err(TryLockError::Error(error)) => return Err(error),
            }
            pause = PAUSE.1.min(pause * 2);
        }
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        self.try_lock_by(StdFile::try_lock)
    }

    /// Takes the lock with others if nobody has it for himself.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        self.try_lock_by(StdFile::try_lock_shared)
    }

    fn try_lock_by(
        &self,
        attempt: fn(&StdFile) -> Result<(), TryLockError>,
    ) -> Result<(), TryLockError> {
        let locked = self.off("locking", move |file| match attempt(file) {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        });
        match locked {
            Ok(true) => Ok(()),
            Ok(false) => Err(TryLockError::WouldBlock),
            Err(error) => Err(TryLockError::Error(error)),
        }
    }

    /// Gives the lock back.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn unlock(&self) -> io::Result<()> {
        self.off("unlocking", StdFile::unlock)
    }

    fn read_from(&self, offset: Option<u64>, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let read = match &self.way {
            Way::Disk(disk) => disk.read(offset, buffer),
            Way::Stream(watched, ends) => {
                if offset.is_some() {
                    return Err(self.named("reading", Errno::SPIPE.into()));
                }
                watched.call(Direction::Read, &NO_LIMITS, |fd| {
                    match rustix::io::read(fd, &mut *buffer)? {
                        0 if matches!(ends, Ends::Perhaps) && !had_writers(fd) => {
                            Err(Errno::AGAIN.into())
                        }
                        len => Ok(len),
                    }
                })
            }
        };
        read.map_err(|error| self.named("reading", error))
    }

    fn write_to(&self, offset: Option<u64>, bytes: &[u8]) -> io::Result<usize> {
        let written = match &self.way {
            Way::Disk(disk) => disk.write(offset, bytes),
            Way::Stream(watched, _) => {
                if offset.is_some() {
                    return Err(self.named("writing", Errno::SPIPE.into()));
                }
                watched.call(Direction::Write, &NO_LIMITS, |fd| {
                    Ok(rustix::io::write(fd, bytes)?)
                })
            }
        };
        written.map_err(|error| self.named("writing", error))
    }
}

impl Read for &File {
    /// # Suspends
    ///
    /// Until it is read, unless the kernel has it cached. Of a FIFO or a terminal, until there is something.
    ///
    /// # Cancellation
    ///
    /// Nothing has been read; a read that was begun tells what it came to.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_from(None, buffer)
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_from(None, buffer)
    }
}

/// All that the slices hold, as far as it fits into one step; borrowed if it is in one slice.
fn gathered<'a>(slices: &'a [IoSlice<'_>]) -> std::borrow::Cow<'a, [u8]> {
    let mut filled = slices.iter().filter(|slice| !slice.is_empty());
    let first = filled.next().map_or(&[][..], |slice| slice);
    let Some(second) = filled.next() else {
        return first.into();
    };
    let mut bytes = first.to_vec();
    for slice in [second].into_iter().chain(filled) {
        let room = STEP.saturating_sub(bytes.len());
        bytes.extend_from_slice(&slice[..slice.len().min(room)]);
    }
    bytes.into()
}

impl Write for &File {
    /// # Suspends
    ///
    /// Until it is written: to the page cache, usually; see [`File::sync_data`].
    ///
    /// # Cancellation
    ///
    /// Nothing has been written; a write that was begun tells what it came to.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_to(None, bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_to(None, &gathered(slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_to(None, bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_to(None, &gathered(slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    /// # Suspends
    ///
    /// For a position from the end, and while another call that moves the position goes on.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let moved = match &self.way {
            Way::Disk(disk) => disk.seek(to),
            Way::Stream(..) => Err(Errno::SPIPE.into()),
        };
        moved.map_err(|error| self.named("seeking in", error))
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

impl FileExt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_from(Some(offset), buffer)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.write_to(Some(offset), bytes)
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.way {
            Way::Disk(disk) => disk.as_fd(),
            Way::Stream(watched, _) => watched.as_fd(),
        }
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl IntoRawFd for File {
    fn into_raw_fd(self) -> RawFd {
        OwnedFd::from(self).into_raw_fd()
    }
}

impl From<File> for OwnedFd {
    /// What is on no disk stays in non-blocking mode.
    fn from(file: File) -> Self {
        match file.way {
            Way::Disk(disk) => disk.into_file().into(),
            Way::Stream(watched, _) => watched.into_fd(),
        }
    }
}

impl From<StdFile> for File {
    /// As [`File::from_std`]. One that cannot be looked at is taken to be on a disk.
    fn from(file: StdFile) -> Self {
        match file.metadata() {
            Ok(metadata) => Self::over(file, &metadata, None),
            Err(_) => Self {
                way: Way::Disk(Arc::new(Disk::new(file))),
                path: None,
            },
        }
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> Self {
        fs::File::from(fd).into()
    }
}

impl From<File> for Stdio {
    /// In blocking mode, as a child expects.
    fn from(file: File) -> Self {
        let fd = OwnedFd::from(file);
        // The mode of an open descriptor can be set.
        let _as_it_is = set_nonblocking(&fd, false).is_err();
        fd.into()
    }
}
