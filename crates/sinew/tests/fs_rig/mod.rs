//! What the tests of files share: a folder of their own, and files that cannot be opened for a while.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(unsafe_code, reason = "fcntl(2) for leases, signal(2)")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// A new folder, which goes when this is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("sinew-fs-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_dir_all(&self.0).is_err();
    }
}

/// In a coroutine, and on a plain thread.
pub(crate) fn both(f: impl Fn()) {
    sinew::run(&f);
    f();
}

/// Bytes that do not repeat soon.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    })
    .take(len)
    .collect()
}

/// A file whose opening the kernel holds up while this exists (for less than a minute).
pub(crate) struct Leased {
    holder: File,
    pub(crate) path: PathBuf,
}

pub(crate) fn leased(folder: &Folder, name: &str) -> Leased {
    let path = folder.join(name);
    std::fs::write(&path, name).unwrap();
    // Whoever has a lease is told by this signal that it is to end.
    // SAFETY: ignoring involves no code of ours.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    let holder = File::open(&path).unwrap();
    let (fd, lease) = (holder.as_raw_fd(), libc::F_WRLCK);
    // SAFETY: only numbers.
    let taken = unsafe { libc::fcntl(fd, libc::F_SETLEASE, lease) };
    assert_eq!(taken, 0, "{}", std::io::Error::last_os_error());
    Leased { holder, path }
}

impl Leased {
    /// Whether somebody is held up.
    pub(crate) fn is_awaited(&self) -> bool {
        let fd = self.holder.as_raw_fd();
        // The kernel tells what the lease is to become.
        // SAFETY: only numbers.
        unsafe { libc::fcntl(fd, libc::F_GETLEASE) != libc::F_WRLCK }
    }

    /// Lets them open it.
    pub(crate) fn release(self) {
        drop(self.holder);
    }
}
