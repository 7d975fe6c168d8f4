//! Visits: short pieces of the runtime's own work that any thread wants to have done in a scheduler's frame.
//!
//! Owns: the visitors that wait at a door. Any thread; the door's owner alone lets them in.
//!
//! Invariants
//! - I1. A visitor is called on the owner's thread, in the scheduler's frame: no coroutine of the scheduler runs then. It is
//!   called once in a look around at most, so that between two of its visits whoever is ready has a turn.
//! - I2. It is the runtime's own code: it runs nothing of the user's, waits for nothing, and does a bounded amount of work.
//! - I3. A visitor that no owner will let in any more is dropped at once, which tells whoever sent it.
//!
//! Unlike posts, visitors are not counted against a limit, and are let in until the scheduler's end.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::scheduler::Scheduler;
use crate::scheduler::door::Door;

/// What a visitor wants after a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Then {
    /// It is done.
    Leave,
    /// To come again at the next look around.
    Return,
}

/// See the file's head.
pub(crate) trait Visitor: Send {
    /// One visit. I1, I2.
    fn visit(&mut self, scheduler: &Scheduler) -> Then;
}

/// The visitors of one door.
#[derive(Default)]
pub(super) struct Visits {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// Whether the door has an owner.
    is_open: bool,
    visitors: Vec<Box<dyn Visitor>>,
}

impl Visits {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // No panic can come while it is held.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open(&self) {
        self.lock().is_open = true;
    }

    pub(super) fn close(&self) {
        let mut waiting = self.lock();
        waiting.is_open = false;
        let turned_away = std::mem::take(&mut waiting.visitors);
        drop(waiting);
        // I3. Their destructors tell others, so without the lock.
        drop(turned_away);
    }
}

impl std::fmt::Debug for Visits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Visits")
    }
}

impl Door {
    /// Sends a visitor to whoever owns the door; drops it if nobody does.
    pub(crate) fn send_visitor(&self, visitor: Box<dyn Visitor>) {
        let mut waiting = self.visits.lock();
        if waiting.is_open {
            waiting.visitors.push(visitor);
            drop(waiting);
            self.call();
        } else {
            drop(waiting);
            drop(visitor);
        }
    }
}

impl Scheduler {
    /// Lets the visitors in that wait at the door, each once.
    pub(super) fn let_visitors_in(&self) {
        let mut visitors = std::mem::take(&mut self.door.visits.lock().visitors);
        if visitors.is_empty() {
            return;
        }
        visitors.retain_mut(|visitor| visitor.visit(self) == Then::Return);
        if !visitors.is_empty() {
            self.door.visits.lock().visitors.append(&mut visitors);
            self.door.call();
        }
    }
}
