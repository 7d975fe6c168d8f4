//! What hyper asks of a runtime, beside streams ([`Async`](crate::future::Async)): timers, and a place for futures of its own.
//!
//! Owns: nothing. Thread: any for timers, a scheduler's for the executor.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use super::{SleepFuture, block_on, sleep_async, sleep_until_async};
use crate::scheduler::spawn::Builder;
use crate::sys::clock;

/// Timers for hyper: with one, its timeouts work.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// let mut server = hyper::server::conn::http1::Builder::new();
/// server
///     .timer(sinew::future::hyper::Timer::new())
///     .header_read_timeout(Duration::from_secs(5));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Timer(());

impl Timer {
    /// A timer.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
}

impl hyper::rt::Sleep for SleepFuture {}

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(sleep_async(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(sleep_until_async(deadline))
    }

    fn now(&self) -> Instant {
        clock::now()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<SleepFuture>() {
            Some(mut ours) => ours.set(sleep_until_async(new_deadline)),
            None => *sleep = self.sleep_until(new_deadline),
        }
    }
}

/// Runs each future that hyper splits off in a coroutine of its own, of the scheduler that runs on the thread.
///
/// # Panics
///
/// `execute` panics where no scheduler runs.
///
/// # Examples
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # type Body = std::future::Ready<()>;
/// use sinew::future::hyper::Executor;
///
/// // Debug builds have large frames.
/// let executor = Executor::new().stack_size(1 << 20);
/// hyper::rt::Executor::execute(&executor, async { /* in a coroutine */ });
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Executor {
    /// The scheduler's default if there is none.
    stack_bytes: Option<usize>,
}

impl Executor {
    /// An executor whose coroutines have stacks of the usual size.
    #[must_use]
    pub const fn new() -> Self {
        Self { stack_bytes: None }
    }

    /// The same with stacks of this many bytes.
    #[must_use]
    pub const fn stack_size(self, bytes: usize) -> Self {
        Self {
            stack_bytes: Some(bytes),
        }
    }
}

impl<F: Future + 'static> hyper::rt::Executor<F> for Executor {
    #[track_caller]
    fn execute(&self, future: F) {
        let mut builder = Builder::new();
        if let Some(bytes) = self.stack_bytes {
            builder = builder.stack_size(bytes);
        }
        let spawned = builder.go_local(move || {
            // Who cancels the coroutine gives the future up.
            let _given_up = block_on(future).is_err();
        });
        if let Err(error) = spawned {
            panic!("hyper's future cannot be run: {error}");
        }
    }
}
