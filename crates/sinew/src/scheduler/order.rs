//! Orders: what any thread tells a scheduler to do with one of its coroutines, which is named by its number; and with its
//! descriptors.
//!
//! Owns: the list at each door. Any thread gives orders; the owner alone carries them out, on its own frame.
//!
//! Invariants
//! - I1. A number is looked up by the owner, when its coroutines do not move: no other thread ever takes hold of a block by number.
//! - I2. An order outlives the scheduler that it was meant for at most until the door's next owner finds that it knows no such
//!   number. Numbers are never used again.
//!
//! The list is not limited by what limits posts. Giving an order may allocate: whoever wakes often does so by an
//! [`Unparker`](crate::Unparker).

use std::mem;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cancel::{self, CancelToken, Cause};
use crate::park::Unparker;
use crate::scheduler::block::{Block, BlockRef, flag};
use crate::scheduler::door::Door;
use crate::scheduler::{Scheduler, current, slab, unhandled};

/// See the file's head.
#[derive(Debug)]
pub(crate) enum Order {
    /// Cancel it.
    Stop { id: u64, cause: Cause },
    /// Its grace is over: unwind it by force at its next wait.
    Force { id: u64 },
    /// Unpark it.
    Unpark { id: u64 },
    /// The number was closed: who waits for the file that it meant waits for nothing.
    Closed { fd: RawFd },
}

impl Order {
    /// Which coroutine it is about.
    fn id(&self) -> Option<u64> {
        match *self {
            Self::Stop { id, .. } | Self::Force { id } | Self::Unpark { id } => Some(id),
            Self::Closed { .. } => None,
        }
    }
}

/// Whether a coroutine with this number has not reached its scheduler.
fn is_on_its_way(id: u64) -> bool {
    let mut is_it = false;
    slab::for_each_block(|block| is_it |= block.id() == id && block.life.is_away());
    is_it
}

/// The orders that wait at a door.
#[derive(Debug, Default)]
pub(super) struct Orders {
    list: Mutex<Vec<Order>>,
    len: AtomicUsize,
    /// Those for coroutines that are on their way here.
    kept: Mutex<Vec<Order>>,
}

/// With so many kept orders it is looked which are for coroutines that were refused and will not come.
const KEPT_MAX: usize = 4_096;

impl Orders {
    fn lock(&self) -> MutexGuard<'_, Vec<Order>> {
        // Nothing unwinds under the lock.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `give`.
        self.len.load(Acquire) == 0
    }

    fn give(&self, order: Order) {
        let mut list = self.lock();
        list.push(order);
        // ORDERING: Release: see `is_empty`.
        self.len.store(list.len(), Release);
    }

    fn take(&self) -> Vec<Order> {
        let mut list = self.lock();
        self.len.store(0, Relaxed);
        mem::take(&mut *list)
    }

    /// Keeps an order until the coroutine has arrived. The owner.
    fn keep(&self, order: Order) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // A second one of the same kind says nothing new.
        let is_same = |one: &Order| {
            one.id() == order.id() && mem::discriminant(one) == mem::discriminant(&order)
        };
        if kept.iter().any(is_same) {
            return;
        }
        if kept.len() >= KEPT_MAX {
            kept.retain(|order| order.id().is_some_and(is_on_its_way));
        }
        kept.push(order);
    }

    /// The orders that were kept for a coroutine. The owner.
    fn take_kept(&self, id: u64) -> Vec<Order> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_empty() {
            return Vec::new();
        }
        kept.extract_if(.., |order| order.id() == Some(id))
            .collect()
    }

    /// Whether one of them is to stop this coroutine.
    fn stops(&self, id: u64) -> bool {
        let is_it = |order: &Order| matches!(order, Order::Stop { id: one, .. } if *one == id);
        self.lock().iter().any(is_it)
    }
}

impl Door {
    /// Gives the owner an order, from any thread.
    pub(crate) fn order(&self, order: Order) {
        self.orders.give(order);
        self.call();
    }

    /// The door of the scheduler whose coroutine has this number. Looks at all coroutines of the process.
    pub(crate) fn of_live(id: u64) -> Option<&'static Self> {
        let mut found = None;
        slab::for_each_block(|block| {
            // A free one has the number 0.
            if found.is_none() && id != 0 && block.id() == id {
                found = block.door_while(id);
            }
        });
        found
    }
}

impl Scheduler {
    /// Carries out the orders that have come. On the scheduler's own frame, without any borrow of its parts: callbacks of the
    /// user's run.
    pub(super) fn follow_orders(&self) {
        if self.door.orders.is_empty() {
            return;
        }
        self.door.break_seal();
        for order in self.door.orders.take() {
            let block = order.id().and_then(|id| self.find(id));
            match (order, block) {
                (Order::Closed { fd }, _) => self.forget_closed(fd),
                (order, Some(block)) => self.follow(order, &block),
                (order, None) => {
                    if order.id().is_some_and(is_on_its_way) {
                        self.door.orders.keep(order);
                    }
                }
            }
        }
    }

    /// A coroutine of this scheduler has arrived: carries out what was ordered before.
    pub(super) fn follow_kept(&self, block: &BlockRef) {
        for order in self.door.orders.take_kept(block.id()) {
            self.follow(order, block);
        }
    }

    fn follow(&self, order: Order, block: &BlockRef) {
        match order {
            Order::Stop { cause, .. } => self.stop_block(block, cause),
            Order::Force { .. } => self.force_block(block),
            Order::Unpark { .. } => Unparker::new(block.clone()).unpark(),
            Order::Closed { .. } => {}
        }
    }

    /// Asks a coroutine of this scheduler to stop. A panic of a callback goes where those go that nobody joins.
    fn stop_block(&self, block: &BlockRef, cause: Cause) {
        let cancel = || CancelToken::attach(block, None).fire(cause);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(cancel)) {
            unhandled::report_contained(block.id(), payload);
        }
    }

    /// From now on its waits raise the forced unwind.
    fn force_block(&self, block: &BlockRef) {
        block.set(flag::UNWIND);
        self.tell_cancel(block);
    }

    /// Whether the coroutine, one of this scheduler that runs now, was asked to stop by an order that has not been carried out.
    #[cold]
    fn is_ordered(&self, me: &Block) -> bool {
        self.door.orders.stops(me.id())
    }

    /// Whether a cancel of the coroutine that runs now was requested. One that never waits is told by this.
    pub(crate) fn is_asked(&self, me: &Block) -> bool {
        me.is_cancelled() || (!self.door.orders.is_empty() && self.is_ordered(me))
    }

    /// The same, or whether a limit around what runs now is over.
    pub(crate) fn is_stopping(&self, me: &Block) -> bool {
        self.is_asked(me) || me.is_refused()
    }
}

/// No live coroutine has that id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotFound;

impl std::fmt::Display for NotFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no live coroutine has that id")
    }
}

impl std::error::Error for NotFound {}

/// Asks the coroutine with this id to stop, as [`crate::JoinHandle::cancel`] does: from any thread, whatever scheduler it is
/// of. Looks at all coroutines.
///
/// # Suspends
///
/// Never. Its waits end when its scheduler looks; [`crate::stopping`] tells it at once.
///
/// # Errors
///
/// `NotFound` if no such coroutine lives.
///
/// # Examples
///
/// ```
/// sinew::run(|| {
///     let parked = sinew::spawn_local(sinew::park);
///     sinew::yield_now().unwrap();
///     sinew::cancel_id(parked.id(), "by its number").unwrap();
///     assert_eq!(parked.join().unwrap(), Err(sinew::WaitError::Cancelled));
/// });
/// ```
#[track_caller]
pub fn cancel_id(id: u64, reason: impl Into<String>) -> Result<(), NotFound> {
    stop(id, Cause::now(reason.into()))
}

/// As [`cancel_id`]; if the coroutine has not ended when `grace` is over, it is unwound by force at its next wait, as at
/// the end of an anchor, and again at each further one if it catches that.
///
/// One that has not ended when as much time again has passed, ten milliseconds at least, is reported to the hook of
/// [`crate::inspect::on_unhandled`] as [`Unhandled::Deaf`](crate::inspect::Unhandled::Deaf), once: it never waits, or waits behind a
/// [`crate::shield`] or for the children of a [`crate::scope`], or catches every unwind.
///
/// # Suspends
///
/// Never. The time is kept by a thread of the process's.
///
/// # Errors
///
/// As for [`cancel_id`].
#[track_caller]
pub fn cancel_id_within(
    id: u64,
    reason: impl Into<String>,
    grace: Duration,
) -> Result<(), NotFound> {
    stop(id, Cause::now(reason.into()))?;
    cancel::watch_stop(id, grace);
    Ok(())
}

fn stop(id: u64, cause: Cause) -> Result<(), NotFound> {
    let here = current::with_scheduler(|scheduler| {
        let block = scheduler.find(id)?;
        CancelToken::attach(&block, None).fire(cause.clone());
        Some(())
    });
    if here.flatten().is_some() {
        return Ok(());
    }
    let door = Door::of_live(id).ok_or(NotFound)?;
    door.order(Order::Stop { id, cause });
    Ok(())
}

/// Unparks the coroutine with this id of the scheduler behind `door`.
pub(super) fn unpark(door: &'static Door, id: u64) -> Result<(), NotFound> {
    let here = current::with_scheduler(|scheduler| {
        ptr::eq(scheduler.door, door).then(|| scheduler.find(id))
    });
    match here.flatten().flatten() {
        Some(block) => Unparker::new(block).unpark(),
        None if Door::of_live(id).is_some_and(|of_it| ptr::eq(of_it, door)) => {
            door.order(Order::Unpark { id });
        }
        None => return Err(NotFound),
    }
    Ok(())
}
