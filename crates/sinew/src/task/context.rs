//! What a running task is lent.
//!
//! Owns: the relay from its executor's wish to stop to the task's own token. Thread: the one that runs the task.

use std::any::Any;
use std::cell::OnceCell;
use std::sync::OnceLock;
use std::{fmt, ptr};

use crate::cancel::{CancelToken, Cause, Registration};
use crate::coroutine::Estate;
use crate::coroutine::arena::Arena;

/// Who runs tasks, as far as they see.
#[derive(Clone, Copy, Default)]
pub(crate) struct Host<'a> {
    /// Fires when everything of it is to stop.
    pub(crate) stop: Option<&'a CancelToken>,
    /// What it adds to the context.
    pub(crate) extra: Option<&'a dyn Any>,
    /// Which one it is; null if that is no matter.
    pub(crate) identity: Identity,
}

/// An executor as an identity.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity(pub(crate) *const ());

impl Default for Identity {
    fn default() -> Self {
        Self(ptr::null())
    }
}

impl Host<'_> {
    /// Whether it has asked all of its tasks to stop.
    pub(super) fn has_stopped(&self) -> bool {
        self.stop.is_some_and(CancelToken::has_fired)
    }

    /// Why, if it has.
    pub(super) fn cause(&self) -> Option<Cause> {
        self.stop.and_then(CancelToken::cause)
    }
}

/// What a task's function is called with.
pub struct TaskContext<'a> {
    requests: &'a OnceLock<CancelToken>,
    /// Who runs the task.
    host: Host<'a>,
    relay: OnceCell<Registration>,
    estate: &'a Estate,
}

impl<'a> TaskContext<'a> {
    pub(super) fn new(
        requests: &'a OnceLock<CancelToken>,
        host: Host<'a>,
        estate: &'a Estate,
    ) -> Self {
        Self {
            requests,
            host,
            relay: OnceCell::new(),
            estate,
        }
    }

    /// Whether the task was asked to stop: through its future, its parent token or its executor. To heed it is the task's affair.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.requests.get().is_some_and(CancelToken::is_cancelled)
            || self.host.stop.is_some_and(CancelToken::is_cancelled)
    }

    /// Who asked the task to stop, when and why.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        let own = self.requests.get().and_then(CancelToken::cause);
        own.or_else(|| self.host.cause())
    }

    /// The token that fires when the task is asked to stop.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        let token = self.requests.get_or_init(CancelToken::new);
        if let Some(executor) = self.host.stop {
            self.relay.get_or_init(|| {
                let token = token.clone();
                executor.on_cancel(move |cause| token.fire(cause.clone()))
            });
        }
        token.clone()
    }

    /// What the executor adds for its tasks, if it adds something of this type: see [`Task::run_with`](crate::task::Task::run_with).
    #[must_use]
    pub fn extra<E: 'static>(&self) -> Option<&E> {
        self.host.extra?.downcast_ref()
    }

    /// The task's temporary memory, freed whole at its end.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        self.estate.arena()
    }
}

impl fmt::Debug for TaskContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext")
            .field("cause", &self.cause())
            .finish_non_exhaustive()
    }
}
