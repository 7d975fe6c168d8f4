//! Files and directories with std's names: a call that could block is made by another thread, and suspends the coroutine.
//!
//! The kernel does not tell when a file on a disk is ready; its calls just take their time. So they are made by a pool of a few threads
//! ([`use_pool`]), which the first call starts. On a plain thread they are made right there, unless there is a limit around the call
//! ([`crate::timeout`]). What the page cache has is read in place, where the kernel can tell that it has it.
//!
//! # Suspends
//!
//! Every function and method here may, unless it says otherwise.
//!
//! # Cancellation
//!
//! A cancel, or a timeout around the call ([`crate::timeout`]), ends it at once while no thread has begun with it; then nothing has
//! happened, and the error is one that [`crate::is_cancelled`] recognises, or `TimedOut`. A call that was begun is waited for to
//! its end, and the result is what it came to: calls to a disk end. Large reads, writes and copies are made in steps
//! of at most a mebibyte, and can end between two of them. A buffer is never lent to another thread: bytes are copied.
//!
//! FIFOs and terminals are no matter for the pool: a [`File`] of such waits for readiness as a socket does, for as long as it
//! takes, and a cancel ends that with nothing read or written. Neither do locks on files hold a thread.
//!
//! # Errors
//!
//! Those that the kernel reports name the path, and keep their kind; the kernel's own error is their source.
//!
//! # Examples
//!
//! ```
//! use sinew::fs;
//!
//! let path = std::env::temp_dir().join(format!("sinew-example-{}", std::process::id()));
//! sinew::run(|| {
//!     fs::write(&path, "some text")?;
//!     assert_eq!(fs::read_to_string(&path)?, "some text");
//!     fs::remove_file(&path)?;
//!     let error = fs::read(&path).unwrap_err();
//!     assert!(error.to_string().contains(path.to_str().unwrap()));
//!     Ok::<(), std::io::Error>(())
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod directory;
mod disk;
mod errand;
mod file;
mod open;
mod paths;
mod pool;

pub use std::fs::{FileTimes, FileType, Metadata, Permissions, TryLockError};

pub use directory::{DirBuilder, DirEntry, ReadDir, create_dir, create_dir_all, read_dir};
pub(crate) use disk::Disk;
pub(crate) use errand::run as elsewhere;
pub use file::File;
pub use open::OpenOptions;
pub use paths::{
    canonicalize, chown, copy, exists, hard_link, metadata, read, read_link, read_to_string,
    remove_dir, remove_dir_all, remove_file, rename, set_permissions, symlink, symlink_metadata,
    write,
};
pub use pool::{pool_stats, use_pool};

use std::io;
use std::path::Path;

use crate::io::named;

/// How much is read or written in one step.
const STEP: usize = 1 << 20;

/// Runs `f`, which may block, on the pool of this module: a system call that this module has no function for. On a plain thread it is run
/// right there, unless there is a limit around the call ([`crate::timeout`]).
///
/// # Suspends
///
/// Until it has returned.
///
/// # Cancellation
///
/// Takes it back if it was not begun; otherwise the call ends with it, and tells what it has come to.
///
/// # Errors
///
/// Those of `f`; a cancel's; `TimedOut`; that there are no threads. `Closed` if `f` panicked.
///
/// # Examples
///
/// ```
/// sinew::run(|| {
///     let path = std::env::temp_dir();
///     let is_there = sinew::fs::run_blocking(move || path.try_exists())?;
///     assert!(is_there);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn run_blocking<T, F>(f: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    errand::run(f)
}

/// Runs what is done with a path where it may block, and names the path in its errors.
fn at<T, F>(doing: &'static str, path: &Path, f: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce(&Path) -> io::Result<T> + Send + 'static,
{
    let owned = path.to_owned();
    errand::run(move || f(&owned))
        .map_err(|error| named(error, || format!("{doing} {}", path.display())))
}

/// The same for two paths.
fn between<T, F>(doing: &'static str, from: &Path, to: &Path, f: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce(&Path, &Path) -> io::Result<T> + Send + 'static,
{
    let owned = (from.to_owned(), to.to_owned());
    errand::run(move || f(&owned.0, &owned.1)).map_err(|error| {
        named(error, || {
            format!("{doing} {} to {}", from.display(), to.display())
        })
    })
}
