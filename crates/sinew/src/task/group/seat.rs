//! What a group has of an item while that is pending: one seat, which is the callback at the item's promise and lies in
//! the group's list of those to ask.
//!
//! Owns: the list, under the group's lock. A seat itself is its promise's, until it is called at the end.
//!
//! Invariants
//! - I1. A seat is linked from its taking to its leaving, both under the lock, and is freed after that: who holds the lock may follow
//!   the list.
//! - I2. A seat has no unique owner while it is linked, though the promise has its box: it is not `Unpin`, so no reference to it is
//!   taken for the only one.
//! - I3. Of a linked seat only `links` changes, under the lock.
#![expect(
    unsafe_code,
    reason = "a list through the callbacks of promises of any type"
)]

use std::cell::Cell;
use std::marker::PhantomPinned;
use std::ptr::NonNull;
use std::sync::Arc;

use super::Shared;
use super::room::Room;
use crate::cancel::Cause;
use crate::future::{Callback, OnDone, SharedFuture, TaskError};
use crate::scheduler::crew::Standing;

/// A future whose type is forgotten: it can be asked to stop.
pub(super) trait Ask: Send {
    fn ask(&self, cause: Cause);
}

impl<T: Send + Sync> Ask for SharedFuture<T> {
    fn ask(&self, cause: Cause) {
        self.cancel_because(cause);
    }
}

type Pointer = NonNull<dyn Seated>;

/// A seat whose type is forgotten.
trait Seated {
    fn links(&self) -> &Links;

    fn asked(&self) -> Box<dyn Ask>;

    /// As [`Need::blocker`](crate::scheduler::crew::Need::blocker), of the item.
    fn blocker(&self, standing: &dyn Standing, depth: u32) -> Option<usize>;
}

struct Links {
    before: Cell<Option<Pointer>>,
    after: Cell<Option<Pointer>>,
    /// Which list it is in.
    list: Cell<Option<List>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    /// Of those that have not been asked to stop.
    Fresh,
    /// Of those that have.
    Asked,
}

/// The seats of a group.
#[derive(Default)]
pub(super) struct Seats {
    fresh: Option<Pointer>,
    asked: Option<Pointer>,
}

// SAFETY: seats may be linked, unlinked and read on any thread that holds the group's lock: what is read of one is `Sync`.
unsafe impl Send for Seats {}

impl Seats {
    fn first(&mut self, list: List) -> &mut Option<Pointer> {
        match list {
            List::Fresh => &mut self.fresh,
            List::Asked => &mut self.asked,
        }
    }

    /// # Safety
    ///
    /// I1: it stays in place until it is unlinked.
    unsafe fn link(&mut self, seat: Pointer, list: List) {
        let first = self.first(list);
        // SAFETY: passed on to the caller.
        let links = unsafe { seat.as_ref() }.links();
        links.before.set(None);
        links.after.set(*first);
        links.list.set(Some(list));
        if let Some(after) = *first {
            // SAFETY: I1.
            unsafe { after.as_ref() }.links().before.set(Some(seat));
        }
        *first = Some(seat);
    }

    /// Takes it out, if it is in.
    fn unlink(&mut self, links: &Links) {
        let Some(list) = links.list.take() else {
            return;
        };
        let (before, after) = (links.before.take(), links.after.take());
        match before {
            // SAFETY: I1.
            Some(before) => unsafe { before.as_ref() }.links().after.set(after),
            None => *self.first(list) = after,
        }
        if let Some(after) = after {
            // SAFETY: I1.
            unsafe { after.as_ref() }.links().before.set(before);
        }
    }

    /// Whether one of the items holds a wait for the group up.
    pub(super) fn blocker(&self, standing: &dyn Standing, depth: u32) -> Option<usize> {
        [self.fresh, self.asked].into_iter().find_map(|first| {
            let mut at = first;
            while let Some(seat) = at {
                // SAFETY: I1: the caller has the group's lock.
                let seat = unsafe { seat.as_ref() };
                if let Some(blocker) = seat.blocker(standing, depth) {
                    return Some(blocker);
                }
                at = seat.links().after.get();
            }
            None
        })
    }

    /// One that has not been asked to stop; from now on it has.
    pub(super) fn next_to_ask(&mut self) -> Option<Box<dyn Ask>> {
        let seat = self.fresh?;
        // SAFETY: I1.
        let seated = unsafe { seat.as_ref() };
        self.unlink(seated.links());
        // SAFETY: I1: it was linked, and nobody unlinks it before the lock is given back.
        unsafe { self.link(seat, List::Asked) };
        Some(seated.asked())
    }
}

/// See the file's head.
pub(super) struct Seat<T> {
    next: Option<Callback<T>>,
    links: Links,
    future: SharedFuture<T>,
    /// If the future is the end of a group: that.
    child: Option<Arc<Shared>>,
    group: Arc<Shared>,
    /// I2.
    _pinned: PhantomPinned,
}

// SAFETY: `links` is used under the lock only, and the rest may be sent.
unsafe impl<T: Send + Sync> Send for Seat<T> {}

impl<T: Send + Sync + 'static> Seat<T> {
    /// Takes the seat in the group's list, under its lock. What comes back is to be left at the future.
    pub(super) fn take(
        room: Room<Self>,
        (future, child): (&SharedFuture<T>, Option<Arc<Shared>>),
        group: &Arc<Shared>,
        seats: &mut Seats,
    ) -> Callback<T> {
        let mut seat = room.fill(Self {
            next: None,
            links: Links {
                before: Cell::new(None),
                after: Cell::new(None),
                list: Cell::new(None),
            },
            future: future.clone(),
            child,
            group: group.clone(),
            _pinned: PhantomPinned,
        });
        let pointer: Pointer = NonNull::from(&mut *seat);
        // SAFETY: it is freed by `call` or by its drop, both of which unlink it.
        unsafe { seats.link(pointer, List::Fresh) };
        seat
    }
}

impl<T: Send + Sync + 'static> Seated for Seat<T> {
    fn links(&self) -> &Links {
        &self.links
    }

    fn asked(&self) -> Box<dyn Ask> {
        Box::new(self.future.clone())
    }

    fn blocker(&self, standing: &dyn Standing, depth: u32) -> Option<usize> {
        if self.future.is_done() {
            return None;
        }
        let by_executor = || match self.future.executor() {
            0 => None,
            executor => standing.whole(executor),
        };
        let by_child = || self.child.as_ref()?.blocker_within(standing, depth);
        standing
            .task(self.future.identity())
            .or_else(by_executor)
            .or_else(by_child)
    }
}

impl<T: Send + Sync + 'static> OnDone<T> for Seat<T> {
    fn next(&mut self) -> &mut Option<Callback<T>> {
        &mut self.next
    }

    /// See [`Shared::ended`].
    fn is_own(&self) -> bool {
        true
    }

    fn call(self: Box<Self>, result: Result<&T, &TaskError>) {
        self.group
            .ended(result.err(), |seats| seats.unlink(&self.links));
    }
}

impl<T> Drop for Seat<T> {
    /// One that was not called is that of a promise which nobody can end any more.
    fn drop(&mut self) {
        if self.links.list.get().is_some() {
            self.group.ended(Some(&TaskError::Closed), |seats| {
                seats.unlink(&self.links);
            });
        }
    }
}
