//! Making a pool.
//!
//! Owns: nothing.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::{Arc, OnceLock};
use std::thread;

use sinew_core::sync::RawPool;

use super::{Shared, TaskPool, worker};
use crate::cancel::CancelToken;
use crate::error::{Error, ErrorKind};
use crate::future::Promise;
use crate::scheduler::crew::Crew;

/// How many threads a pool has at most.
const THREADS_MAX: usize = 256;
/// How many tasks may be queued, if nothing else is said.
const QUEUE_LIMIT_DEFAULT: usize = 1_024;
/// And at most: the memory for the queue is taken when the pool is made.
const QUEUE_LIMIT_MAX: usize = 1 << 24;

/// Makes a [`TaskPool`]. For every number 0 stands for the default.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct TaskPoolBuilder {
    threads: usize,
    queue_limit: usize,
    stack_bytes: usize,
    name: Option<String>,
}

impl TaskPoolBuilder {
    /// A builder with every default.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many threads, at most 256. 0: as many as there are logical processors for this process.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// How many tasks may be queued, at most 16,777,216. 0: 1,024.
    pub fn queue_limit(mut self, tasks: usize) -> Self {
        self.queue_limit = tasks;
        self
    }

    /// The size of each thread's stack, in bytes. 0: std's default.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes;
        self
    }

    /// What the threads are called: this, a hyphen, and their number from 0. Otherwise `sinew-pool`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Makes the pool and starts all of its threads.
    ///
    /// # Suspends
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// `Invalid` for a number out of range or a name with a NUL; `NoMemory` for the queue; what the operating system
    /// reported if a thread could not be started. No thread is left then.
    #[track_caller]
    pub fn build(self) -> Result<TaskPool, Error> {
        let built_at = Location::caller();
        let threads = match self.threads {
            0 => thread::available_parallelism().map_or(1, |n| n.get().min(THREADS_MAX)),
            threads => threads,
        };
        let limit = match self.queue_limit {
            0 => QUEUE_LIMIT_DEFAULT,
            limit => limit,
        };
        if threads > THREADS_MAX {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("a pool of {threads} threads; {THREADS_MAX} is the most"),
            ));
        }
        if limit > QUEUE_LIMIT_MAX {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("a queue limit of {limit}; {QUEUE_LIMIT_MAX} is the most"),
            ));
        }
        let name = self.name.as_deref().unwrap_or("sinew-pool");
        if name.contains('\0') {
            return Err(Error::new(
                ErrorKind::Invalid,
                "the name of a pool contains a NUL",
            ));
        }
        let mut queue = VecDeque::new();
        queue.try_reserve_exact(limit).map_err(|error| {
            Error::caused_by(ErrorKind::NoMemory, "no memory for a pool's queue", error)
        })?;
        let (end, over) = Promise::new();
        let mut pool = TaskPool {
            shared: Arc::new(Shared {
                raw: RawPool::new(queue, limit, threads),
                stop: CancelToken::new(),
                threads,
                crew: OnceLock::new(),
            }),
            threads: Vec::with_capacity(threads),
            over,
        };
        let end = Arc::new(end);
        let identity = pool.shared.identity();
        let crew = || Crew::new(identity, name, Some(threads), built_at);
        pool.shared.crew.get_or_init(crew);
        for number in 0..threads {
            let mut builder = thread::Builder::new().name(format!("{name}-{number}"));
            if self.stack_bytes != 0 {
                builder = builder.stack_size(self.stack_bytes);
            }
            let shared = pool.shared.clone();
            let end = end.clone();
            // If it fails the drop of what there is ends the threads that were started.
            let thread = builder
                .spawn(move || {
                    // The last one that is dropped closes it.
                    let _end = end;
                    worker::serve(&shared, number);
                })
                .map_err(|error| Error::from(error).context("starting a thread of a pool"))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }
}
