//! Resources in a pool's care.
//!
//! Owns: the release of one resource until it is handed in. Any thread.
//!
//! Invariants
//! - I1. The release runs once: by a worker, or where the finalizer is dropped if the workers have gone.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sinew_core::sync::Link;

use super::Shared;
use crate::coroutine::TaskEstate;
use crate::scheduler::unhandled;

/// What is to be done.
pub(super) type Release = Box<dyn FnOnce() + Send>;

/// A resource that a pool releases. Dropping it hands the release to a worker; if the pool is gone by then it runs at
/// once, where this is dropped.
#[must_use = "dropping it releases the resource"]
pub struct Finalizer {
    link: Option<Box<Link<Release>>>,
    pool: Arc<Shared>,
}

impl Finalizer {
    pub(super) fn new(pool: Arc<Shared>, release: impl FnOnce() + Send + 'static) -> Self {
        Self {
            link: Some(Link::new(Box::new(release))),
            pool,
        }
    }

    /// Hands the release in, as dropping does.
    pub fn release(self) {}
}

impl Drop for Finalizer {
    fn drop(&mut self) {
        if let Some(link) = self.link.take()
            && let Err(link) = self.pool.raw.finalize(link)
        {
            run(link);
        }
    }
}

impl fmt::Debug for Finalizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finalizer").finish_non_exhaustive()
    }
}

/// Runs a release, in an error context and an arena of its own.
pub(super) fn run(link: Box<Link<Release>>) {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        TaskEstate::within(|_| (link.finalizer)());
    }));
    if let Err(payload) = ran {
        unhandled::report_contained(0, payload);
    }
}
