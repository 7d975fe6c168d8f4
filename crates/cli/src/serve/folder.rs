//! The served folder: finding what a name leads to, and nothing outside.
//!
//! Owns: a descriptor of the folder, and the two ways to find a file beneath it. The kernel resolves
//! names with `openat2(RESOLVE_BENEATH)`. Where that call is missing, and for links that are
//! absolute but lead back inside, the path is resolved first, compared with the folder, and then
//! walked component by component without following any link.
//!
//! Any thread. All of it may wait for the disk except [`Folder::look_at_once`].
//!
//! Invariants:
//! - I1: a descriptor that comes out was reached from the folder's own descriptor by a walk that
//!   never left it; a link swapped during the call makes the call fail. Links may be of any form:
//!   what counts is where they end.
//! - I2: nothing but regular files and folders is ever opened. A name leads to a descriptor of the place alone (`O_PATH`), of which
//!   no driver and no other side of a FIFO hears; what it is tells `fstat`, and opening goes through that descriptor.
//! - I3: a tag that was handed out never fits another version of the file. The time that nobody can set (`ctime`) is in it: who
//!   changes a file and puts its date back makes another tag. A file may change twice within a tick of the kernel's clock, so no
//!   validator is handed out before the tick, or the second, of the last change is over. The date is what it was set to.
//!
//! Where links may be followed to wherever they lead, I1 does not hold: who made the link has allowed it.
//!
//! Not here: which names are acceptable (`path`).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use sinew_http::{EntityTag, Validators};

/// How often a resolution that raced with a rename is tried again.
const RACES_MAX: usize = 8;

/// The process's own descriptors, through which one that is of a place alone is opened.
const OWN_DESCRIPTORS: &str = "/proc/self/fd";

/// File systems whose names and sizes are on this machine: none of them asks another one, or a program, what it has.
const LOCAL: [u64; 12] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0xf2f5_2010, // F2FS
    0x794c_7630, // overlayfs
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
    0x7371_7368, // squashfs
    0xe0f5_e1e2, // EROFS
    0x9660,      // ISO 9660
];

/// What a name led to: a regular file, or a folder inside the served one, or that one itself. It is not open.
#[derive(Debug)]
pub(super) struct Found {
    place: OwnedFd,
    stat: Stat,
}

/// What tells one version of one file from all others, as far as the kernel's clock does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    device: u64,
    inode: u64,
    size: i64,
    /// A tick of the clock is long enough to take a right away.
    rights: (u32, u32, u32),
    modified: (i64, u64),
    touched: (i64, u64),
}

impl Found {
    // INVARIANT: I2.
    fn of(place: OwnedFd) -> Result<Self, OpenError> {
        let stat = rustix::fs::fstat(&place).map_err(|_failed| OpenError::Failed)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Directory => Ok(Self { place, stat }),
            _ => Err(OpenError::Missing),
        }
    }

    pub(super) fn is_folder(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::Directory
    }

    pub(super) fn facts(&self) -> Facts {
        Facts::of(&self.stat)
    }

    pub(super) fn version(&self) -> Version {
        let Stat {
            st_dev,
            st_ino,
            st_size,
            ..
        } = self.stat;
        let stat = &self.stat;
        Version {
            device: st_dev,
            inode: st_ino,
            size: st_size,
            rights: (stat.st_mode, stat.st_uid, stat.st_gid),
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            touched: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Opens the file. Whoever has a lease on it may hold this up, and so may a disk.
    pub(super) fn open(&self) -> Result<OwnedFd, OpenError> {
        let through = format!("{OWN_DESCRIPTORS}/{}", self.place.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(through, flags, Mode::empty())?)
    }
}

impl AsFd for Found {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.place.as_fd()
    }
}

/// What is known of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Facts {
    /// In bytes.
    pub(super) size: u64,
    pub(super) validators: Validators,
    /// When it is said to have changed last, since 1970; `None` before that.
    changed: Option<Duration>,
    /// When it, or what is known of it, changed last.
    touched: Duration,
}

/// What can be said for certain of a file of some age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Age {
    /// Another change would change the tag.
    pub(super) tag_is_certain: bool,
    /// Another change would change the date.
    pub(super) date_is_certain: bool,
}

/// The time of a change is that of the kernel's last tick, which is at most so long ago.
const TICK_MAX: Duration = Duration::from_millis(50);

impl Facts {
    pub(super) fn of(stat: &Stat) -> Self {
        let changed = u64::try_from(stat.st_mtime).ok();
        let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
        let changed = changed.map(|seconds| Duration::new(seconds, nanos));
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let touched = Duration::new(
            u64::try_from(stat.st_ctime).unwrap_or(0),
            u32::try_from(stat.st_ctime_nsec).unwrap_or(0),
        );
        // Also before 1970, where nanoseconds count from an earlier second.
        let stamp = (stat.st_mtime as u64).wrapping_mul(1_000_000_000);
        let stamp = stamp.wrapping_add(u64::from(nanos));
        // Beyond the year 2554 it begins anew.
        let touch = touched.as_nanos() as u64;
        Self {
            size,
            validators: Validators {
                tag: EntityTag::new([stat.st_ino, stamp, touch, size]),
                modified: changed.map_or(0, |changed| changed.as_secs()),
            },
            changed,
            touched,
        }
    }

    // INVARIANT: I3.
    pub(super) fn age(&self, now: SystemTime) -> Age {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        // A time to come is of a clock that was put back; a change sets the present one.
        let is_past = |time: Duration| now < time || now - time >= TICK_MAX;
        let Some(changed) = self.changed else {
            return Age {
                tag_is_certain: is_past(self.touched),
                date_is_certain: false,
            };
        };
        let second_over = Duration::from_secs(changed.as_secs() + 1);
        Age {
            tag_is_certain: is_past(changed) && is_past(self.touched),
            date_is_certain: now.saturating_sub(TICK_MAX) >= second_over,
        }
    }
}

/// Why a name led to nothing.
#[derive(Debug)]
pub(super) enum OpenError {
    /// Nothing there that could be served: absent, not readable, outside, or not a regular file.
    Missing,
    /// No descriptor or memory left at this moment.
    Exhausted,
    /// The disk or the system failed.
    Failed,
}

/// A folder to serve.
#[derive(Debug)]
pub(super) struct Folder {
    descriptor: OwnedFd,
    resolved: PathBuf,
    kernel_resolves: bool,
    /// It can be asked for what needs no disk.
    looks_at_once: bool,
    follow: bool,
}

impl Folder {
    /// Opens the folder at `path`; `follow` says whether links may lead out of it.
    pub(super) fn open(path: &Path, follow: bool) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open(path, flags, Mode::empty())?;
        let resolved = path.canonicalize()?;
        if !Path::new(OWN_DESCRIPTORS).is_dir() {
            let message = format!("`{OWN_DESCRIPTORS}` is needed to open files safely");
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        let kernel_resolves = place_beneath(&descriptor, b"", ResolveFlags::empty()).is_ok();
        let file_system = rustix::fs::fstatfs(&descriptor)?.f_type as u64;
        let mut folder = Self {
            descriptor,
            resolved,
            kernel_resolves,
            looks_at_once: true,
            follow,
        };
        let at_once = folder.look_at_once(b"");
        folder.looks_at_once =
            at_once.is_some_and(|found| found.is_ok()) && LOCAL.contains(&file_system);
        Ok(folder)
    }

    /// Finds what the relative `name` leads to; an empty name is the folder itself.
    pub(super) fn look(&self, name: &[u8]) -> Result<Found, OpenError> {
        let place = if self.follow {
            let name = if name.is_empty() { b"." } else { name };
            rustix::fs::openat(&self.descriptor, name, place_flags(), Mode::empty())
        } else if self.kernel_resolves {
            match place_beneath(&self.descriptor, name, ResolveFlags::empty()) {
                // An absolute link, whatever it leads to.
                Err(Errno::XDEV) => self.place_resolved(name),
                place => place,
            }
        } else {
            self.place_resolved(name)
        };
        Found::of(place?)
    }

    /// The same if it can be told without the disk: everything on the way is in the kernel's cache, and on the folder's own file system.
    pub(super) fn look_at_once(&self, name: &[u8]) -> Option<Result<Found, OpenError>> {
        if !self.looks_at_once {
            return None;
        }
        let within = match self.follow {
            true => ResolveFlags::empty(),
            false => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        };
        let resolve = ResolveFlags::CACHED | ResolveFlags::NO_XDEV | within;
        let name = if name.is_empty() { b"." } else { name };
        let folder = &self.descriptor;
        match rustix::fs::openat2(folder, name, place_flags(), Mode::empty(), resolve) {
            Ok(place) => Some(Found::of(place)),
            Err(
                error @ (Errno::NOENT
                | Errno::NOTDIR
                | Errno::ACCESS
                | Errno::NAMETOOLONG
                | Errno::MFILE
                | Errno::NFILE),
            ) => Some(Err(error.into())),
            Err(_not_cached) => None,
        }
    }

    /// Resolves first, then walks to the outcome without following links.
    fn place_resolved(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let path = self.resolved.join(OsStr::from_bytes(name)).canonicalize();
        let path = path.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOENT))?;
        let relative = path
            .strip_prefix(&self.resolved)
            .map_err(|_outside| Errno::XDEV)?;
        if self.kernel_resolves {
            let name = relative.as_os_str().as_bytes();
            return place_beneath(&self.descriptor, name, ResolveFlags::NO_SYMLINKS);
        }
        walk(&self.descriptor, relative)
    }
}

fn place_beneath(folder: &OwnedFd, name: &[u8], more: ResolveFlags) -> Result<OwnedFd, Errno> {
    let name = if name.is_empty() { b"." } else { name };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | more;
    for _ in 0..RACES_MAX {
        match rustix::fs::openat2(folder, name, place_flags(), Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            outcome => return outcome,
        }
    }
    Err(Errno::NOENT)
}

/// Descends from `folder` one component at a time; a link anywhere is an error.
fn walk(folder: &OwnedFd, relative: &Path) -> Result<OwnedFd, Errno> {
    let mut components = relative.components().peekable();
    let mut here = rustix::fs::openat(folder, c".", folder_flags(), Mode::empty())?;
    while let Some(component) = components.next() {
        let Component::Normal(name) = component else {
            return Err(Errno::XDEV);
        };
        let last = components.peek().is_none();
        let flags = if last {
            place_flags() | OFlags::NOFOLLOW
        } else {
            folder_flags()
        };
        here = rustix::fs::openat(here.as_fd(), name, flags, Mode::empty())?;
    }
    Ok(here)
}

fn place_flags() -> OFlags {
    OFlags::PATH | OFlags::CLOEXEC
}

fn folder_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

impl From<Errno> for OpenError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::XDEV
            | Errno::LOOP
            | Errno::ACCESS
            | Errno::PERM
            | Errno::NAMETOOLONG
            | Errno::INVAL
            | Errno::NXIO
            | Errno::NODEV
            | Errno::ISDIR => Self::Missing,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Self::Exhausted,
            _ => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests;
