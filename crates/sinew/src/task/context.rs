//! What a running task is lent.
//!
//! Owns: the relay from its executor's wish to stop to the task's own token. Thread: the one that runs the task.

use std::cell::OnceCell;
use std::fmt;
use std::sync::OnceLock;

use crate::cancel::{CancelToken, Cause, Registration};
use crate::coroutine::Estate;
use crate::coroutine::arena::Arena;

/// What a task's function is called with.
pub struct TaskContext<'a> {
    requests: &'a OnceLock<CancelToken>,
    /// Fires when everything of the executor is to stop.
    executor: Option<&'a CancelToken>,
    relay: OnceCell<Registration>,
    estate: &'a Estate,
}

impl<'a> TaskContext<'a> {
    pub(super) fn new(
        requests: &'a OnceLock<CancelToken>,
        executor: Option<&'a CancelToken>,
        estate: &'a Estate,
    ) -> Self {
        Self {
            requests,
            executor,
            relay: OnceCell::new(),
            estate,
        }
    }

    /// Whether the task was asked to stop: through its future, its parent token or its executor. To heed it is the task's affair.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.requests.get().is_some_and(CancelToken::is_cancelled)
            || self.executor.is_some_and(CancelToken::is_cancelled)
    }

    /// Who asked the task to stop, when and why.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        let own = self.requests.get().and_then(CancelToken::cause);
        own.or_else(|| self.executor?.cause())
    }

    /// The token that fires when the task is asked to stop.
    #[must_use]
    pub fn cancel_token(&self) -> CancelToken {
        let token = self.requests.get_or_init(CancelToken::new);
        if let Some(executor) = self.executor {
            self.relay.get_or_init(|| {
                let token = token.clone();
                executor.on_cancel(move |cause| token.cancel(&*cause.reason))
            });
        }
        token.clone()
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
