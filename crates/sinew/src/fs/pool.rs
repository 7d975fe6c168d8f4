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
    let builder = TaskPool::builder().name("sinew-fs");
    let pool = builder.threads(THREADS).queue_limit(QUEUE_LIMIT).build();
    let pool = pool.map_err(|error| {
        let kind = match error.kind() {
            ErrorKind::NoMemory => io::ErrorKind::OutOfMemory,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    })?;
    Ok(POOL.get_or_init(|| pool))
}

/// Whether the calling thread is one of the pool's.
pub(super) fn is_own_worker() -> bool {
    POOL.get().is_some_and(|pool| pool.shared().is_own_worker())
}

/// Has this pool make the blocking calls of this module, for the whole process and for ever. To be called before the first of them;
/// otherwise a pool of 16 threads with a queue of 1,024 is made then.
///
/// # Suspends
///
/// Never.
///
/// # Errors
///
/// There is one already, and is used: the pool comes back.
pub fn use_pool(pool: TaskPool) -> Result<(), TaskPool> {
    POOL.set(pool)
}

/// The counts of the pool, if there has been a call that needed it.
///
/// Its tasks are this module's calls: one that was taken back before it was begun counts as a success that did nothing.
#[must_use]
pub fn pool_stats() -> Option<PoolStats> {
    POOL.get().map(TaskPool::stats)
}
