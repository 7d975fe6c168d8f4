//! A worker's tasks that are to be run at some time.
//!
//! Owns: each from its acceptance until the worker takes it out, to run it or to end it. Any thread; the worker alone takes out.
//!
//! | where a task is | it is there |
//! |---|---|
//! | `waiting` | until its time, its cancel or the worker's end |
//! | `gone` | after its cancel, until the worker's next look |
//!
//! Invariants
//! - I1. A task is in one place at a time, and leaves for good by the worker's hand.
//! - I2. One whose token has fired is in `gone`, or is about to be: who fires it comes by here.
//! - I3. No code of the user's runs under the lock.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cancel::Registration;
use crate::task::job::Work;

/// By time, then in the order of their coming.
pub(super) type Key = (u64, u64);

/// A task with what has it cancelled.
pub(super) struct Entry {
    pub(super) work: Work,
    /// The listener at its token.
    pub(super) listener: Registration,
}

/// See the file's head.
pub(super) struct Delayed {
    state: Mutex<State>,
}

struct State {
    waiting: BTreeMap<Key, Entry>,
    gone: Vec<Entry>,
    limit: usize,
    next: u64,
    is_closed: bool,
}

/// Why a task is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Full,
    Closed,
}

/// What the worker is to do.
pub(super) enum Due {
    /// To end this one as cancelled.
    Cancelled(Entry),
    /// To run this one.
    Run(Entry),
    /// Nothing before this time; at no time, if there is none.
    Nothing(Option<u64>),
}

impl Delayed {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            state: Mutex::new(State {
                waiting: BTreeMap::new(),
                gone: Vec::new(),
                limit,
                next: 0,
                is_closed: false,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // I3: a panic cannot leave it half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key that no other task has.
    pub(super) fn key(&self, deadline_ns: u64) -> Key {
        let mut state = self.lock();
        state.next += 1;
        (deadline_ns, state.next)
    }

    /// Takes a task in. True if the worker has to look before it otherwise would.
    ///
    /// # Errors
    ///
    /// It comes back.
    pub(super) fn insert<E>(
        &self,
        key: Key,
        entry: E,
        wrap: impl FnOnce(E) -> Entry,
    ) -> Result<bool, (Refusal, E)> {
        let mut state = self.lock();
        if state.is_closed {
            return Err((Refusal::Closed, entry));
        }
        if state.waiting.len() + state.gone.len() >= state.limit {
            return Err((Refusal::Full, entry));
        }
        let entry = wrap(entry);
        if entry.work.is_unwanted() {
            // INVARIANT: I2: its listener may have come by before it was here.
            state.gone.push(entry);
            return Ok(true);
        }
        state.waiting.insert(key, entry);
        Ok(state.waiting.keys().next() == Some(&key))
    }

    /// Its token has fired. True if the worker has to look.
    pub(super) fn cancel(&self, key: Key) -> bool {
        let mut state = self.lock();
        let Some(entry) = state.waiting.remove(&key) else {
            return false;
        };
        state.gone.push(entry);
        true
    }

    /// The worker's next duty.
    pub(super) fn next(&self, now_ns: u64) -> Due {
        let mut state = self.lock();
        if let Some(entry) = state.gone.pop() {
            if state.gone.is_empty() {
                state.gone = Vec::new();
            }
            return Due::Cancelled(entry);
        }
        match state.waiting.first_entry() {
            Some(first) if first.key().0 <= now_ns => Due::Run(first.remove()),
            Some(first) => Due::Nothing(Some(first.key().0)),
            None => Due::Nothing(None),
        }
    }

    /// Accepts nothing any more. True if it is the first time.
    pub(super) fn close(&self) -> bool {
        let mut state = self.lock();
        !std::mem::replace(&mut state.is_closed, true)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// One of those that are left, whatever its time, after the close.
    pub(super) fn take_any(&self) -> Option<Entry> {
        let mut state = self.lock();
        let gone = state.gone.pop();
        gone.or_else(|| Some(state.waiting.pop_first()?.1))
    }

    pub(super) fn len(&self) -> usize {
        let state = self.lock();
        state.waiting.len() + state.gone.len()
    }
}
