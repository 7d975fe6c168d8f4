//! The threads that make the calls which block.
//!
//! Owns: the process's one pool for them. Any thread. It is made at the first use, and never goes.

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::error::ErrorKind;
use crate::task::{PoolStats, TaskPool};

/// How many calls are made at the same time: enough to keep a disk's queue busy, few enough to cost nothing.
const THREADS: usize = 16;
/// How many may be queued; who comes then waits for room.
const QUEUE_LIMIT: usize = 1_024;

static POOL: OnceLock<TaskPool> = OnceLock::new();

/// The pool, which is made if there is none yet.
pub(super) fn get() -> io::Result<&'static TaskPool> {
    static MAKING: Mutex<()> = Mutex::new(());
    if let Some(pool) = POOL.get() {
        return Ok(pool);
    }
    let _one_makes_it = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = POOL.get() {
        return Ok(pool);
    }
    let pool = make()?;
    Ok(POOL.get_or_init(|| pool))
}

/// A pool with as many threads as can be had.
fn make() -> io::Result<TaskPool> {
    let mut threads = THREADS;
    loop {
        let builder = TaskPool::builder().name("sinew-fs");
        match builder.threads(threads).queue_limit(QUEUE_LIMIT).build() {
            Ok(pool) => return Ok(pool),
            Err(_) if threads > 1 => threads /= 2,
            Err(error) => {
                let kind = match error.kind() {
                    ErrorKind::NoMemory => io::ErrorKind::OutOfMemory,
                    _ => io::ErrorKind::Other,
                };
                return Err(io::Error::new(kind, error));
            }
        }
    }
}

/// Whether the calling thread is one of the pool's.
pub(super) fn is_own_worker() -> bool {
    POOL.get().is_some_and(|pool| pool.shared().is_own_worker())
}

/// Has this pool make the blocking calls of this module, for the whole process and for ever. To be called before the first of them;
/// otherwise a pool of 16 threads, or of as many as there can be, with a queue of 1,024 is made then.
///
/// # Suspends
///
/// Never.
///
/// # Errors
///
/// There is one already, and is used; or this one is closed, and would refuse every call. The pool comes back.
pub fn use_pool(pool: TaskPool) -> Result<(), TaskPool> {
    if pool.stats().is_closed {
        return Err(pool);
    }
    POOL.set(pool)
}

/// The counts of the pool, if there has been a call that needed it.
///
/// Its tasks are this module's calls: one that was taken back before it was begun counts as a success that did nothing.
#[must_use]
pub fn pool_stats() -> Option<PoolStats> {
    POOL.get().map(TaskPool::stats)
}
