//! Ends a tour whose step hangs.
//!
//! Owns: a thread, which sleeps until the deadline of the step that is under way. It is a plain thread: what hangs may
//! be a scheduler.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::rt;

/// The step that is under way.
#[derive(Debug, Clone, Copy)]
struct Watch {
    step: &'static str,
    deadline: Instant,
}

#[derive(Debug, Default)]
struct State {
    watch: Option<Watch>,
    over: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Calls a function if a step takes too long.
#[derive(Debug)]
pub struct Watchdog {
    shared: Arc<Shared>,
    limit: Duration,
    thread: Option<JoinHandle<()>>,
}

/// A step is under way until this is dropped.
#[derive(Debug)]
#[must_use = "a step is watched as long as this lives"]
pub struct Watched<'a>(&'a Watchdog);

impl Watchdog {
    /// Starts to watch. `on_stuck` gets the name of a step that has taken longer than `limit`, once,
    /// on the watchdog's thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        limit: Duration,
        on_stuck: impl FnOnce(&str) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = thread::Builder::new().name("watchdog".into()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                if let Some(step) = shared.wait() {
                    on_stuck(step);
                }
            }
        })?;
        Ok(Self {
            shared,
            limit,
            thread: Some(thread),
        })
    }

    /// A step begins.
    pub fn watch(&self, step: &'static str) -> Watched<'_> {
        self.shared.lock().watch = Some(Watch {
            step,
            deadline: rt::now() + self.limit,
        });
        self.shared.changed.notify_one();
        Watched(self)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first step that takes too long; `None` if the tour is over before.
    fn wait(&self) -> Option<&'static str> {
        let mut state = self.lock();
        loop {
            let left = match state.watch {
                _ if state.over => return None,
                None => Duration::MAX,
                Some(watch) => {
                    let left = watch.deadline.saturating_duration_since(rt::now());
                    if left.is_zero() {
                        return Some(watch.step);
                    }
                    left
                }
            };
            let (guard, _) = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner);
            state = guard;
        }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.shared.lock().watch = None;
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // Its panic has been told of by the panic hook.
            let _told = thread.join();
        }
    }
}
