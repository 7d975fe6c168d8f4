//! What is done with paths.
//!
//! Owns: nothing. Thread: any.

use std::fs::{self, Metadata, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use crate::fs::file::File;
use crate::fs::open::{Opened, wait_for_reader};
use crate::fs::{OpenOptions, STEP, at, between, errand};
use crate::io::named;

/// How much is copied in one step, where the kernel does it by itself.
const COPY_STEP: usize = 16 * STEP;

macro_rules! by_path {
    ($($(#[$doc:meta])* $name:ident($doing:literal) -> $value:ty = $f:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// As std's, with the path.
        pub fn $name<P: AsRef<Path>>(path: P) -> io::Result<$value> {
            at($doing, path.as_ref(), $f)
        }
    )*};
}

by_path! {
    /// Removes a file, as [`std::fs::remove_file`].
    remove_file("removing") -> () = |path| fs::remove_file(path);
    /// Removes an empty directory, as [`std::fs::remove_dir`].
    remove_dir("removing") -> () = |path| fs::remove_dir(path);
    /// Removes a directory and all that is in it, as [`std::fs::remove_dir_all`]. Once begun it goes on to its end, however much that is.
    remove_dir_all("removing") -> () = |path| fs::remove_dir_all(path);
    /// What describes the file, as [`std::fs::metadata`].
    metadata("looking at") -> Metadata = |path| fs::metadata(path);
    /// The same for a symbolic link itself, as [`std::fs::symlink_metadata`].
    symlink_metadata("looking at") -> Metadata = |path| fs::symlink_metadata(path);
    /// The path in its one absolute form, as [`std::fs::canonicalize`].
    canonicalize("resolving") -> PathBuf = |path| fs::canonicalize(path);
    /// Where a symbolic link points, as [`std::fs::read_link`].
    read_link("reading the link") -> PathBuf = |path| fs::read_link(path);
    /// Whether there is something at the path, as [`std::fs::exists`].
    exists("looking for") -> bool = |path| fs::exists(path);
}

macro_rules! by_two {
    ($($(#[$doc:meta])* $name:ident($doing:literal) = $f:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// As std's, with both paths.
        pub fn $name<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<()> {
            between($doing, from.as_ref(), to.as_ref(), $f)
        }
    )*};
}

by_two! {
    /// Gives a file another name, as [`std::fs::rename`].
    rename("renaming") = |from, to| fs::rename(from, to);
    /// Gives the file `from` the further name `to`, as [`std::fs::hard_link`].
    hard_link("linking") = |from, to| fs::hard_link(from, to);
    /// Makes `to` a symbolic link to `from`, as [`std::os::unix::fs::symlink`].
    symlink("linking") = |from, to| std::os::unix::fs::symlink(from, to);
}

/// Sets who may do what with a file, as [`std::fs::set_permissions`].
///
/// # Errors
///
/// As std's, with the path.
pub fn set_permissions<P: AsRef<Path>>(path: P, permissions: Permissions) -> io::Result<()> {
    at("setting the permissions of", path.as_ref(), move |path| {
        fs::set_permissions(path, permissions)
    })
}

/// Sets whose a file is, as [`std::os::unix::fs::chown`].
///
/// # Errors
///
/// As std's, with the path.
pub fn chown<P: AsRef<Path>>(path: P, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
    at("setting the owner of", path.as_ref(), move |path| {
        std::os::unix::fs::chown(path, user, group)
    })
}

/// Reads into the spare room of a vector until that is full or the file at its end; says whether it is.
fn read_step(file: &fs::File, bytes: &mut Vec<u8>) -> io::Result<bool> {
    while bytes.len() < bytes.capacity() {
        match rustix::io::read(file, spare_capacity(bytes)) {
            Ok(0) => return Ok(true),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// All that is in a file, as [`std::fs::read`].
///
/// # Cancellation
///
/// Nothing remains of what was read.
///
/// # Errors
///
/// As std's, with the path.
pub fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    if errand::is_direct() {
        return at("reading", path, |path| fs::read(path));
    }
    let mut options = OpenOptions::new();
    options.read(true);
    // A small file is done with in one step.
    let (file, metadata, mut bytes, is_over) = at("reading", path, move |path| {
        let Opened::Open(file, metadata) = options.try_open(path, false)? else {
            return Err(Errno::NXIO.into());
        };
        let mut bytes = Vec::new();
        let mut is_over = false;
        if metadata.is_file() {
            // One byte more than it should be shows the end. What is no true file says that it is empty.
            let expected = usize::try_from(metadata.len()).unwrap_or(STEP);
            bytes.try_reserve_exact(expected.clamp(4_095, STEP) + 1)?;
            is_over = read_step(&file, &mut bytes)?;
        }
        Ok((file, metadata, bytes, is_over))
    })?;
    if is_over {
        return Ok(bytes);
    }
    let left = usize::try_from(metadata.len()).unwrap_or(0);
    bytes.try_reserve(left.saturating_sub(bytes.len()))?;
    File::over(file, &metadata, Some(path)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// All that is in a file, which must be UTF-8, as [`std::fs::read_to_string`].
///
/// # Errors
///
/// As std's, with the path; `InvalidData` if it is not UTF-8.
pub fn read_to_string<P: AsRef<Path>>(path: P) -> io::Result<String> {
    let path = path.as_ref();
    String::from_utf8(read(path)?).map_err(|error| {
        let what = format!("reading {}: {error}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, what)
    })
}

/// Makes these bytes a file's contents, as [`std::fs::write`].
///
/// # Cancellation
///
/// Between two steps of a mebibyte: the file has what was written before.
///
/// # Errors
///
/// As std's, with the path.
pub fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    let (path, contents) = (path.as_ref(), contents.as_ref());
    if errand::is_direct() {
        let written = fs::write(path, contents);
        return written.map_err(|error| named(error, || format!("writing {}", path.display())));
    }
    let (now, later) = contents.split_at(contents.len().min(STEP));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut is_written = false;
    let (file, metadata) = wait_for_reader(|| {
        let (options, now) = (options.clone(), now.to_vec());
        let opened = at("writing", path, move |path| {
            let mut opened = options.try_open(path, false)?;
            let mut is_written = false;
            if let Opened::Open(file, metadata) = &mut opened
                && metadata.is_file()
            {
                file.write_all(&now)?;
                is_written = true;
            }
            Ok((opened, is_written))
        })?;
        is_written = opened.1;
        Ok(opened.0)
    })?;
    if is_written && later.is_empty() {
        return Ok(());
    }
    let mut file = File::over(file, &metadata, Some(path));
    if !is_written {
        file.write_all(now)?;
    }
    file.write_all(later)
}

/// Copies a file's contents and permissions, as [`std::fs::copy`], and returns how many bytes there were.
///
/// # Cancellation
///
/// Between two steps of at most 16 MiB: `to` has what was copied before.
///
/// # Errors
///
/// As std's, with both paths.
pub fn copy<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<u64> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let mut source = None;
    let (target, metadata) = wait_for_reader(|| {
        let (file, target) = between("copying", from, to, open_both)?;
        source = Some(file);
        Ok(target)
    })?;
    let source = source.ok_or(Errno::BADF)?;
    if !metadata.is_file() {
        return copy_on(
            File::from_std(source)?,
            File::over(target, &metadata, Some(to)),
        );
    }
    copy_all(&Arc::new((source, target)), from, to)
}

/// Copies to what is no file on a disk.
fn copy_on(mut source: File, mut target: File) -> io::Result<u64> {
    crate::io::copy(&mut source, &mut target)
}

/// Copies step by step between files on a disk.
fn copy_all(files: &Arc<(fs::File, fs::File)>, from: &Path, to: &Path) -> io::Result<u64> {
    let mut total = 0;
    let mut is_plain = false;
    loop {
        let both = Arc::clone(files);
        let step = errand::run(move || copy_step(&both.0, &both.1, is_plain));
        let step = step.map_err(|error| {
            named(error, || {
                format!("copying {} to {}", from.display(), to.display())
            })
        });
        match step? {
            Some(0) if is_plain => return Ok(total),
            // What is no true file has contents that only a read shows.
            Some(0) | None => is_plain = true,
            Some(len) => total += len as u64,
        }
    }
}

fn open_both(from: &Path, to: &Path) -> io::Result<(fs::File, Opened)> {
    let (source, permissions) = open_source(from)?;
    let target = open_target(to, permissions)?;
    Ok((source, target))
}

fn open_source(path: &Path) -> io::Result<(fs::File, Permissions)> {
    let opened = OpenOptions::new().read(true).try_open(path, false)?;
    if let Opened::Open(file, metadata) = opened
        && metadata.is_file()
    {
        return Ok((file, metadata.permissions()));
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "the source is neither a regular file nor a link to one",
    ))
}

fn open_target(path: &Path, permissions: Permissions) -> io::Result<Opened> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.mode(permissions.mode());
    let target = options.try_open(path, false)?;
    if let Opened::Open(file, metadata) = &target
        && metadata.is_file()
    {
        file.set_permissions(permissions)?;
    }
    Ok(target)
}

/// One step of a copy; `None` if the kernel cannot do it by itself, without `is_plain`.
fn copy_step(from: &fs::File, mut to: &fs::File, is_plain: bool) -> io::Result<Option<usize>> {
    if is_plain {
        let mut bytes = Vec::with_capacity(STEP);
        read_step(from, &mut bytes)?;
        to.write_all(&bytes)?;
        return Ok(Some(bytes.len()));
    }
    loop {
        match rustix::fs::copy_file_range(from, None, to, None, COPY_STEP) {
            Ok(len) => return Ok(Some(len)),
            Err(Errno::INTR) => {}
            Err(
                Errno::NOSYS
                | Errno::XDEV
                | Errno::INVAL
                | Errno::PERM
                | Errno::OPNOTSUPP
                | Errno::BADF
                | Errno::OVERFLOW,
            ) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}
