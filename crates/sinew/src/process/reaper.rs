//! Children that nobody waits for any more.
//!
//! Owns: them, until they end, and the thread that reaps them. Any thread. The thread is there while there is such a child.

use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// A child, and the descriptor that is readable once it has ended.
type Orphan = (Child, OwnedFd);

struct Reaper {
    /// Those that the thread has not seen yet.
    new: Vec<Orphan>,
    thread_runs: bool,
}

fn reaper() -> MutexGuard<'static, Reaper> {
    static REAPER: Mutex<Reaper> = Mutex::new(Reaper {
        new: Vec::new(),
        thread_runs: false,
    });
    REAPER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often the thread looks by itself where it cannot be woken.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// Wakes the thread; made at the first use for which there is a descriptor.
fn knock() -> Option<&'static OwnedFd> {
    static KNOCK: OnceLock<OwnedFd> = OnceLock::new();
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    KNOCK.get().or_else(|| {
        let new = eventfd(0, flags).ok()?;
        Some(KNOCK.get_or_init(|| new))
    })
}

/// Sees to it that the child is reaped when it ends.
pub(super) fn reap(child: Child, end: OwnedFd) {
    let mut reaper = reaper();
    reaper.new.push((child, end));
    if !reaper.thread_runs {
        let builder = std::thread::Builder::new().name("sinew-reaper".to_owned());
        // Without a thread they wait for the next one who comes here.
        reaper.thread_runs = builder.spawn(serve).is_ok();
    }
    drop(reaper);
    if let Some(knock) = knock() {
        // It fails only if the count is full, and then the thread is awake.
        let _count_is_full = rustix::io::write(knock, &1_u64.to_ne_bytes()).is_err();
    }
}

/// The thread.
fn serve() {
    let mut orphans: Vec<Orphan> = Vec::new();
    loop {
        let mut reaper = reaper();
        orphans.append(&mut reaper.new);
        orphans.retain_mut(|(child, _)| matches!(child.try_wait(), Ok(None)));
        if orphans.is_empty() {
            reaper.thread_runs = false;
            return;
        }
        drop(reaper);
        let knock = knock();
        let ends = orphans.iter().map(|(_, end)| end.as_fd());
        let all = ends.chain(knock.map(AsFd::as_fd));
        let mut fds: Vec<_> = all
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let limit = knock.is_none().then_some(&PAUSE);
        // Whatever it says, all are looked at. It may be that there are more than the kernel looks at, or no memory.
        if !matches!(poll(&mut fds, limit), Ok(_) | Err(Errno::INTR)) {
            let _interrupted = poll(&mut [], Some(&PAUSE)).is_err();
        }
        if let Some(knock) = knock {
            let _was_silent = rustix::io::read(knock, &mut [0; 8]).is_err();
        }
    }
}
