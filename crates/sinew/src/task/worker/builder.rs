//! Making a worker.
//!
//! Owns: nothing.

use std::panic::Location;
use std::sync::mpsc;
use std::thread;

use super::{Worker, thread as life};
use crate::error::{Error, ErrorKind};
use crate::future::Promise;
use crate::scheduler::Scheduler;
use crate::scheduler::object::SchedulerBuilder;

/// How many tasks may wait for their time, if nothing else is said.
const DELAYED_LIMIT_DEFAULT: usize = 65_536;
/// The size of a buffer, if nothing else is said.
const BUFFER_BYTES_DEFAULT: usize = 16 * 1_024;
/// And at most.
const BUFFER_BYTES_MAX: usize = 1 << 30;

/// Makes a [`Worker`]. For every number 0 stands for the default.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct WorkerBuilder {
    name: Option<String>,
    queue_limit: u64,
    delayed_limit: usize,
    buffer_bytes: usize,
    stack_bytes: usize,
}

/// What the thread is told.
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) scheduler: SchedulerBuilder,
    pub(super) delayed_limit: usize,
    pub(super) buffer_bytes: usize,
    pub(super) built_at: &'static Location<'static>,
}

impl WorkerBuilder {
    /// A builder with every default.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the thread is called. Otherwise `sinew-worker`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How many tasks for now may be queued. 0: 1,024.
    pub fn queue_limit(mut self, tasks: u64) -> Self {
        self.queue_limit = tasks;
        self
    }

    /// How many tasks may wait for their time. 0: 65,536.
    pub fn delayed_limit(mut self, tasks: usize) -> Self {
        self.delayed_limit = tasks;
        self
    }

    /// The size of the worker's buffers, in bytes, at most 1 GiB. 0: 16 KiB.
    pub fn buffer_size(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// The size of the thread's stack, on which its tasks run, in bytes. 0: std's default.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes;
        self
    }

    /// Starts the thread; it accepts tasks when this returns.
    ///
    /// # Suspends
    ///
    /// Never; it blocks the thread for the moment that the other one takes to start.
    ///
    /// # Errors
    ///
    /// `Invalid` for a number out of range or a name with a NUL; what the operating system reported if the thread or its scheduler
    /// could not be started. No thread is left then.
    #[track_caller]
    pub fn build(self) -> Result<Worker, Error> {
        let name = self.name.unwrap_or_else(|| "sinew-worker".into());
        if name.contains('\0') {
            let text = "the name of a worker contains a NUL";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if self.buffer_bytes > BUFFER_BYTES_MAX {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "buffers of {} bytes; {BUFFER_BYTES_MAX} is the most",
                    self.buffer_bytes
                ),
            ));
        }
        let or = |number: usize, default: usize| if number == 0 { default } else { number };
        let mut scheduler = Scheduler::builder();
        if self.queue_limit != 0 {
            scheduler = scheduler.post_limit(self.queue_limit);
        }
        let plan = Plan {
            name: name.clone(),
            scheduler,
            delayed_limit: or(self.delayed_limit, DELAYED_LIMIT_DEFAULT),
            buffer_bytes: or(self.buffer_bytes, BUFFER_BYTES_DEFAULT),
            built_at: Location::caller(),
        };
        let mut builder = thread::Builder::new().name(name);
        if self.stack_bytes != 0 {
            builder = builder.stack_size(self.stack_bytes);
        }
        let (say, said) = mpsc::sync_channel(1);
        let (over, end) = Promise::<()>::new();
        let thread = builder
            .spawn(move || {
                // Dropped at the thread's end, which closes it, however that comes about.
                let _over = over;
                life::live(plan, move |begun| _ = say.send(begun));
            })
            .map_err(|error| Error::from(error).context("starting the thread of a worker"))?;
        match said.recv() {
            Ok(Ok(handle)) => Ok(Worker::new_with(handle, thread, end)),
            Ok(Err(error)) => {
                let _ended = thread.join();
                Err(error)
            }
            Err(_) => Err(Error::new(
                ErrorKind::Internal,
                "the thread of a worker ended before it began",
            )),
        }
    }
}
