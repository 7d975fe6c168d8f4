//! Directories: making them, and what is in them.
//!
//! Owns: a directory that is being read. Thread: any.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, FileType, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::fs::{at, errand};
use crate::io::named;

/// How many entries are read in one step.
const BATCH: usize = 256;

/// Makes a directory, as [`std::fs::create_dir`].
///
/// # Errors
///
/// As std's, with the path.
pub fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().create(path)
}

/// Makes a directory and those above it that do not exist, as [`std::fs::create_dir_all`].
///
/// # Errors
///
/// As std's, with the path.
pub fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}

/// How to make a directory, as [`std::fs::DirBuilder`].
#[derive(Debug, Clone)]
pub struct DirBuilder {
    recursive: bool,
    mode: u32,
}

impl Default for DirBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl DirBuilder {
    /// One directory that everybody may use, as far as the process's mask permits it.
    #[must_use]
    pub fn new() -> Self {
        Self {
            recursive: false,
            mode: 0o777,
        }
    }

    /// Whether to make those above it too. Then it is no error if it exists.
    pub fn recursive(&mut self, recursive: bool) -> &mut Self {
        self.recursive = recursive;
        self
    }

    /// The permission bits, of which the process's mask is taken away.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode;
        self
    }

    /// Makes it.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        let (recursive, mode) = (self.recursive, self.mode);
        at("making the directory", path.as_ref(), move |path| {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(recursive).mode(mode).create(path)
        })
    }
}

/// What is in a directory, as [`std::fs::read_dir`].
///
/// # Errors
///
/// As std's, with the path.
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    let path = path.as_ref();
    let (rest, batch, is_over) = at("reading the directory", path, |path| {
        let mut rest = fs::read_dir(path)?;
        let (batch, is_over) = next_batch(&mut rest);
        Ok((rest, batch, is_over))
    })?;
    Ok(ReadDir {
        path: Arc::from(path),
        batch,
        rest: Arc::new(Mutex::new(rest)),
        is_over,
    })
}

type Batch = VecDeque<io::Result<DirEntry>>;

fn next_batch(rest: &mut fs::ReadDir) -> (Batch, bool) {
    let batch: Batch = rest
        .take(BATCH)
        .map(|entry| {
            let entry = entry?;
            // Most directories tell it with the name.
            let kind = entry.file_type().ok();
            Ok(DirEntry {
                entry: Arc::new(entry),
                kind,
            })
        })
        .collect();
    let is_over = batch.len() < BATCH;
    (batch, is_over)
}

/// What is in a directory, one after another; made by [`read_dir`]. Without `.` and `..`, in no order.
///
/// # Cancellation
///
/// An entry is an error; the next call goes on where it was.
pub struct ReadDir {
    path: Arc<Path>,
    batch: Batch,
    /// Locked by one call at a time; by another only if that one's coroutine was unwound by force.
    rest: Arc<Mutex<fs::ReadDir>>,
    is_over: bool,
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    /// # Suspends
    ///
    /// Every few hundred entries.
    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.is_empty() && !self.is_over {
            let rest = Arc::clone(&self.rest);
            let read = errand::run(move || {
                let mut rest = rest.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(next_batch(&mut rest))
            });
            match read {
                Ok(next) => (self.batch, self.is_over) = next,
                Err(error) => return Some(Err(error)),
            }
        }
        let entry = self.batch.pop_front()?;
        Some(entry.map_err(|error| {
            named(error, || {
                format!("reading the directory {}", self.path.display())
            })
        }))
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadDir").field(&self.path).finish()
    }
}

/// What is in a directory under one name, as [`std::fs::DirEntry`].
#[derive(Debug, Clone)]
pub struct DirEntry {
    entry: Arc<fs::DirEntry>,
    kind: Option<FileType>,
}

impl DirEntry {
    /// The directory's path with the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.entry.path()
    }

    /// The name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        self.entry.file_name()
    }

    /// The number of what has the name, on its file system.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.entry.ino()
    }

    /// What describes it; a symbolic link itself.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn metadata(&self) -> io::Result<Metadata> {
        let entry = Arc::clone(&self.entry);
        let metadata = errand::run(move || entry.metadata());
        metadata.map_err(|error| named(error, || format!("looking at {}", self.path().display())))
    }

    /// What kind of file it is; a symbolic link is one.
    ///
    /// # Suspends
    ///
    /// Only if the directory did not tell.
    ///
    /// # Errors
    ///
    /// As std's, with the path.
    pub fn file_type(&self) -> io::Result<FileType> {
        match self.kind {
            Some(kind) => Ok(kind),
            None => Ok(self.metadata()?.file_type()),
        }
    }
}
