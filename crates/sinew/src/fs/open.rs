//! Opening files without waiting in the kernel.
//!
//! Owns: the options. Thread: any.
//!
//! Opening a FIFO waits for its other side, without end. So here it is opened in non-blocking mode, which has no effect on files on a disk:
//! to read, at once, and the first read waits; to write, again and again until there is a reader.

use std::fs::{self, File as StdFile};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use crate::fs::{File, at, errand};
use crate::io::set_nonblocking;

/// How long one who waits for a FIFO's reader pauses at first, and at most; and one who waits for a lock.
pub(super) const PAUSE: (Duration, Duration) =
    (Duration::from_millis(1), Duration::from_millis(16));

/// How to open a file, as [`std::fs::OpenOptions`].
///
/// # Examples
///
/// ```no_run
/// use sinew::fs::OpenOptions;
///
/// let log = OpenOptions::new().append(true).create(true).open("log")?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct OpenOptions {
    options: fs::OpenOptions,
    flags: i32,
}

/// What became of a try to open.
pub(super) enum Opened {
    Open(StdFile, fs::Metadata),
    /// A FIFO that nobody reads.
    Unread,
}

macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        pub fn $name(&mut self, $name: bool) -> &mut Self {
            self.options.$name($name);
            self
        }
    )*};
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenOptions {
    /// Options that are all off.
    #[must_use]
    pub fn new() -> Self {
        Self {
            options: fs::OpenOptions::new(),
            flags: 0,
        }
    }

    switches! {
        /// To read.
        read,
        /// To write.
        write,
        /// To write at the end, wherever that is when it is written.
        append,
        /// To make it empty.
        truncate,
        /// To create it if it does not exist.
        create,
        /// To create it, which must not exist.
        create_new,
    }

    /// The permission bits of a file that is created, of which the process's mask is taken away. 0o666 otherwise.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.options.mode(mode);
        self
    }

    /// Flags of open(2) beyond these options. `O_DIRECT` does not work in coroutines: it asks for aligned buffers, and the copies that the
    /// pool's threads work on are not.
    pub fn custom_flags(&mut self, flags: i32) -> &mut Self {
        self.flags = flags;
        self
    }

    /// Opens the file at this path.
    ///
    /// # Suspends
    ///
    /// Until it is open; to write to a FIFO, until somebody reads it. One that is opened to read, or both, is open at once.
    ///
    /// # Cancellation
    ///
    /// Nothing has happened, unless it was begun: then it is waited for.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn open<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        let path = path.as_ref();
        let (options, direct) = (self.clone(), errand::is_direct());
        let (file, metadata) = wait_for_reader(|| {
            let options = options.clone();
            at("opening", path, move |path| options.try_open(path, direct))
        })?;
        Ok(File::over(file, &metadata, Some(path)))
    }

    /// Opens it without waiting for anything but the disk; where waiting is in order, `direct`, as std does.
    pub(super) fn try_open(&self, path: &Path, direct: bool) -> io::Result<Opened> {
        let mut options = self.options.clone();
        if direct {
            options.custom_flags(self.flags);
        } else {
            options.custom_flags(self.flags | libc::O_NONBLOCK);
        }
        let file = match options.open(path) {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) && is_fifo(path) => {
                return Ok(Opened::Unread);
            }
            // Another process has a lease on it, which the kernel ends within a time.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                options.custom_flags(self.flags);
                options.open(path)?
            }
            result => result?,
        };
        let metadata = file.metadata()?;
        // What is a path alone has no mode.
        if !direct && self.flags & (libc::O_NONBLOCK | libc::O_PATH) == 0 {
            set_nonblocking(&file, false)?;
        }
        Ok(Opened::Open(file, metadata))
    }
}

fn is_fifo(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

/// Tries to open until nobody is waited for.
pub(super) fn wait_for_reader(
    mut open: impl FnMut() -> io::Result<Opened>,
) -> io::Result<(StdFile, fs::Metadata)> {
    let mut pause = PAUSE.0;
    loop {
        match open()? {
            Opened::Open(file, metadata) => return Ok((file, metadata)),
            Opened::Unread => crate::time::sleep(pause)?,
        }
        pause = PAUSE.1.min(pause * 2);
    }
}
