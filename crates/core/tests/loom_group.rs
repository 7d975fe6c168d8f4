//! The steps of a task group under loom: a start and a cancel, a start and a close, a completion and a cancel, at the same moment.
//!
//! The group itself is no part of this crate: it locks with `std` and tells its items by tokens. What is here is its protocol,
//! step for step, over the promise that it uses: `reserve`, `commit` (which is `seat` and `leave_at`), `cancel` (which fires the token and
//! asks those that are seated) and `ended`. Whether the code takes these steps is what `sinew`'s `task_races` forces both orders of.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU32};
use loom::thread;
use sinew_core::lock::Lock;
use sinew_core::sync::{Chained, RawPromise};

/// The seat of the only item, left at its promise.
struct Seat {
    group: Arc<Group>,
    next: Option<Box<Seat>>,
}

impl Chained for Box<Seat> {
    fn next(&mut self) -> &mut Option<Self> {
        &mut self.next
    }
}

type Item = RawPromise<u32, Box<Seat>>;

#[derive(Default)]
struct State {
    is_closed: bool,
    reserved: u32,
    active: u32,
    completed: u32,
    rejected: u32,
    /// The item has a seat, and was not asked from there.
    is_fresh: bool,
    is_over: bool,
}

impl State {
    /// Whether the end is there now, for the first time.
    fn take_end(&mut self) -> bool {
        let is_end = self.is_closed && self.active == 0 && self.reserved == 0 && !self.is_over;
        self.is_over |= is_end;
        is_end
    }
}

struct Group {
    state: Lock<State>,
    fired: AtomicBool,
    /// How often the end was told.
    ends: AtomicU32,
    item: Item,
    /// How often the item was asked to stop.
    asked: AtomicU32,
}

impl Group {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Lock::new(State::default()),
            fired: AtomicBool::new(false),
            ends: AtomicU32::new(0),
            item: Item::new(),
            asked: AtomicU32::new(0),
        })
    }

    fn tell(&self, is_end: bool) {
        self.ends.fetch_add(u32::from(is_end), SeqCst);
    }

    fn reserve(&self) -> bool {
        let mut state = self.state.lock();
        let is_open = !state.is_closed;
        state.reserved += u32::from(is_open);
        state.rejected += u32::from(!is_open);
        is_open
    }

    fn commit(this: &Arc<Self>) {
        let mut state = this.state.lock();
        state.reserved -= 1;
        state.active += 1;
        state.is_fresh = true;
        drop(state);
        if this.fired.load(Acquire) {
            this.asked.fetch_add(1, SeqCst);
        }
        let seat = Box::new(Seat {
            group: this.clone(),
            next: None,
        });
        if this.item.add_callback(seat).is_err() {
            this.ended();
        }
    }

    fn ended(&self) {
        let mut state = self.state.lock();
        state.is_fresh = false;
        state.active -= 1;
        state.completed += 1;
        let is_end = state.take_end();
        drop(state);
        self.tell(is_end);
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let is_end = state.take_end();
        drop(state);
        self.tell(is_end);
    }

    fn cancel(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let is_end = state.take_end();
        drop(state);
        self.fired.swap(true, AcqRel);
        let is_asked = std::mem::take(&mut self.state.lock().is_fresh);
        self.asked.fetch_add(u32::from(is_asked), SeqCst);
        self.tell(is_end);
    }

    /// What the producer does at the end.
    fn complete(&self) {
        let callbacks = self.item.complete(1, 1);
        for seat in callbacks.expect("the one producer") {
            seat.group.ended();
        }
    }

    fn check_settled(&self, accepted: bool) {
        let state = self.state.lock();
        assert_eq!((state.reserved, state.active), (0, 0));
        assert_eq!(state.completed, u32::from(accepted));
        assert_eq!(state.rejected, u32::from(!accepted));
        assert!(state.is_closed && state.is_over);
        assert_eq!(self.ends.load(SeqCst), 1, "the end is told once");
    }
}

/// Starts the item, if there is a place; it ends when it is in.
fn start(group: &Arc<Group>) -> bool {
    let accepted = group.reserve();
    if accepted {
        Group::commit(group);
        assert_eq!(group.ends.load(SeqCst), 0, "not before the item's end");
        group.complete();
    }
    accepted
}

#[test]
fn a_cancel_during_a_start_reaches_the_item_once_it_is_in() {
    loom::model(|| {
        let group = Group::new();
        let starter = group.clone();
        let starting = thread::spawn(move || {
            let accepted = starter.reserve();
            if accepted {
                Group::commit(&starter);
            }
            accepted
        });
        group.cancel();
        let accepted = starting.join().unwrap();
        let asked = group.asked.load(SeqCst);
        assert_eq!(asked != 0, accepted, "asked {asked} times");
        if accepted {
            assert_eq!(group.ends.load(SeqCst), 0, "it waits for the item");
            group.complete();
        }
        group.check_settled(accepted);
    });
}

#[test]
fn a_start_and_a_close_leave_it_in_or_out() {
    loom::model(|| {
        let group = Group::new();
        let starter = group.clone();
        let starting = thread::spawn(move || start(&starter));
        group.close();
        let accepted = starting.join().unwrap();
        assert_eq!(group.asked.load(SeqCst), 0, "a close asks nobody");
        group.check_settled(accepted);
    });
}

#[test]
fn a_completion_and_a_cancel_end_it_once() {
    loom::model(|| {
        let group = Group::new();
        assert!(group.reserve());
        Group::commit(&group);
        let producer = group.clone();
        let completing = thread::spawn(move || producer.complete());
        group.cancel();
        completing.join().unwrap();
        assert!(group.asked.load(SeqCst) <= 1);
        group.check_settled(true);
    });
}

#[test]
fn a_completion_before_it_is_in_is_counted_once() {
    loom::model(|| {
        let group = Group::new();
        assert!(group.reserve());
        let producer = group.clone();
        let completing = thread::spawn(move || producer.complete());
        Group::commit(&group);
        group.close();
        completing.join().unwrap();
        group.check_settled(true);
    });
}
