//! The files that are being served: finding, opening and keeping them, without holding up the other connections.
//!
//! Owns: the open files that were asked for lately. The server's thread; what may wait for the disk is done by the runtime's pool.
//!
//! ```text
//! name ── in the kernel's cache? ──► place, version ── kept, of this version? ──► file
//!   └───────── no ──────► pool: look ──────► place ──────── no ────────► pool: open, keep
//! ```
//!
//! Each request finds its name anew, so what is served is what the name leads to at that moment, and whoever lost the right to a name
//! loses it at once. Only opening is saved.
//!
//! Invariants:
//! - I1: nothing here waits for the disk on the server's thread.
//! - I2: a kept file is handed out only for a name that leads to it now, and in the version that it was opened in: other permissions
//!   make another version. It is open, so that no other file has its number.
//! - I3: what nobody asked for during two [`SWEEP`]s is closed. The blocks of a file that was deleted are free then.
//!
//! Not here: what a file contains is never kept. Reads get it from the kernel's cache, or from the pool.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::folder::{Facts, Folder, Found, OpenError, Version};
use crate::rt::{self, File};

/// How often it is looked for files that nobody asks for any more.
pub(super) const SWEEP: Duration = Duration::from_secs(5);

/// The most files that are kept, and the part of the descriptors that a process may have.
const KEPT_MAX: u64 = 1024;
const KEPT_PART: u64 = 8;

/// What a name led to.
#[derive(Debug)]
pub(super) enum Opened {
    /// A regular file and what it was when it was found.
    File(Arc<File>, Facts),
    /// A folder inside the served one, or that one itself.
    Folder(Found),
}

#[derive(Debug)]
struct Kept {
    file: Arc<File>,
    facts: Facts,
    version: Version,
    /// Asked for since the last sweep.
    wanted: Cell<bool>,
}

/// See the file's head.
#[derive(Debug)]
pub(super) struct Files {
    folder: Arc<Folder>,
    kept: RefCell<HashMap<Vec<u8>, Kept>>,
    limit: usize,
}

impl Files {
    pub(super) fn new(folder: Folder) -> Self {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = descriptors.map_or(KEPT_MAX, |most| KEPT_MAX.min(most / KEPT_PART));
        Self {
            folder: Arc::new(folder),
            kept: RefCell::default(),
            limit: limit as usize,
        }
    }

    pub(super) fn folder(&self) -> &Arc<Folder> {
        &self.folder
    }

    /// Finds and opens what `name` leads to. Before it waits for the disk it calls `before`.
    ///
    /// # Errors
    /// Those of `before`, and a cancel.
    pub(super) fn find(
        &self,
        name: &[u8],
        before: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Result<Opened, OpenError>> {
        let found = match self.folder.look_at_once(name) {
            Some(Ok(found)) if found.is_folder() => return Ok(Ok(Opened::Folder(found))),
            Some(Ok(found)) => match self.kept(name, &found.version()) {
                Some(opened) => return Ok(Ok(opened)),
                None => Some(found),
            },
            Some(Err(OpenError::Exhausted)) => None,
            Some(Err(error)) => return Ok(Err(error)),
            None => None,
        };
        before()?;
        self.open(name, found)
    }

    // INVARIANT: I2.
    fn kept(&self, name: &[u8], version: &Version) -> Option<Opened> {
        let kept = self.kept.borrow();
        let kept = kept.get(name).filter(|kept| kept.version == *version)?;
        kept.wanted.set(true);
        Some(Opened::File(Arc::clone(&kept.file), kept.facts))
    }

    fn open(&self, name: &[u8], found: Option<Found>) -> io::Result<Result<Opened, OpenError>> {
        match self.try_open(name, found, self.make_room(name))? {
            // Some of the descriptors are its own.
            Err(OpenError::Exhausted) if !self.kept.borrow().is_empty() => {
                self.try_open(name, None, self.all())
            }
            opened => Ok(opened),
        }
    }

    // INVARIANT: I1.
    fn try_open(
        &self,
        name: &[u8],
        found: Option<Found>,
        left_out: Vec<Kept>,
    ) -> io::Result<Result<Opened, OpenError>> {
        let (folder, owned) = (Arc::clone(&self.folder), name.to_vec());
        let opened = rt::off_loop(move || {
            drop(left_out);
            look_and_open(&folder, &owned, found)
        });
        match opened {
            Ok(Ok((found, Some(file)))) => Ok(Ok(self.keep(name, &found, file))),
            Ok(Ok((found, None))) => Ok(Ok(Opened::Folder(found))),
            Ok(Err(error)) => Ok(Err(error)),
            Err(error) if rt::is_cancelled(&error) => Err(error),
            // There is no thread to be had.
            Err(_no_pool) => Ok(Err(OpenError::Exhausted)),
        }
    }

    fn keep(&self, name: &[u8], found: &Found, file: File) -> Opened {
        let (file, facts) = (Arc::new(file), found.facts());
        // Others may have filled the room that was made.
        let is_room = self.kept.borrow().len() < self.limit;
        if is_room || self.kept.borrow().contains_key(name) {
            let kept = Kept {
                file: Arc::clone(&file),
                facts,
                version: found.version(),
                wanted: Cell::new(true),
            };
            let of_another = self.kept.borrow_mut().insert(name.to_vec(), kept);
            if let Some(of_another) = of_another {
                self.done(of_another.file);
            }
        }
        Opened::File(file, facts)
    }

    /// Lets go of the older version, and of some more if there is no room for one. To be dropped elsewhere: closing may be long.
    fn make_room(&self, name: &[u8]) -> Vec<Kept> {
        let older = self.kept.borrow_mut().remove(name);
        if self.kept.borrow().len() < self.limit {
            return older.into_iter().collect();
        }
        let unwanted = self.unwanted();
        match unwanted.is_empty() {
            true => self.all(),
            false => unwanted,
        }
    }

    /// Takes out all.
    fn all(&self) -> Vec<Kept> {
        self.kept.take().into_values().collect()
    }

    /// Takes out what nobody has asked for since the last time.
    fn unwanted(&self) -> Vec<Kept> {
        let mut kept = self.kept.borrow_mut();
        let unwanted = kept.extract_if(|_, kept| !kept.wanted.replace(false));
        unwanted.map(|(_, kept)| kept).collect()
    }

    /// Closes what nobody has asked for since the last time.
    ///
    /// # Errors
    /// A cancel.
    // INVARIANT: I3.
    pub(super) fn sweep(&self) -> io::Result<()> {
        close(self.unwanted())
    }

    /// Closes all that are kept, because descriptors are short.
    ///
    /// # Errors
    /// A cancel.
    pub(super) fn forget(&self) -> io::Result<()> {
        close(self.all())
    }

    /// A request has no more use for a file.
    // INVARIANT: I1. Whoever closes a file last that has no name any more ends it.
    pub(super) fn done(&self, file: Arc<File>) {
        let Some(file) = Arc::into_inner(file) else {
            return;
        };
        if rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_nlink == 0) {
            rt::go_local(move || drop(rt::off_loop(move || drop(file))));
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.kept.borrow().len()
    }
}

/// Closes these. That can be long: it ends a file that has no name any more.
fn close(kept: Vec<Kept>) -> io::Result<()> {
    if kept.is_empty() {
        return Ok(());
    }
    match rt::off_loop(move || drop(kept)) {
        Err(error) if rt::is_cancelled(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Finds what the name leads to, if that was not found, and opens it if it is a file. May wait for the disk.
fn look_and_open(
    folder: &Folder,
    name: &[u8],
    found: Option<Found>,
) -> Result<(Found, Option<File>), OpenError> {
    let found = match found {
        Some(found) => found,
        None => folder.look(name)?,
    };
    if found.is_folder() {
        return Ok((found, None));
    }
    let file = File::from_std(found.open()?.into()).map_err(|_failed| OpenError::Failed)?;
    Ok((found, Some(file)))
}

#[cfg(test)]
mod tests;
