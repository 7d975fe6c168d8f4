//! A promise and its last reference under loom: whichever side goes last, the value is dropped or taken once, and was seen whole.
//!
//! The counted pointer is `sinew`'s own; it is compiled here with loom's atomics.
#![cfg(loom)]
#![expect(
    unsafe_code,
    reason = "changes a cell, and uses a place, of which it is the only owner"
)]

#[allow(dead_code, reason = "used as it is in its own crate")]
#[path = "../../sinew/src/future/counted.rs"]
mod counted;

use std::ptr::NonNull;

use counted::Counted;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::SeqCst;
use loom::thread;
use sinew_core::sync::{Chained, RawPromise};

/// Nobody leaves one here.
struct Callback;

impl Chained for Callback {
    fn next(&mut self) -> &mut Option<Self> {
        unreachable!("there are no callbacks")
    }
}

/// Counts its drops; loom sees whether its content is handed on properly.
struct Value {
    content: UnsafeCell<u32>,
    drops: Arc<AtomicU32>,
}

impl Value {
    fn new(drops: &Arc<AtomicU32>) -> Self {
        let this = Self {
            content: UnsafeCell::new(0),
            drops: drops.clone(),
        };
        // SAFETY: the only owner.
        this.content.with_mut(|content| unsafe { *content = 7 });
        this
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: the only owner.
        self.content
            .with_mut(|content| assert_eq!(unsafe { *content }, 7));
        self.drops.fetch_add(1, SeqCst);
    }
}

type Promise = Sent<RawPromise<Value, Callback>>;

/// What the two sides have between them in `sinew` may be sent, as is said there.
struct Sent<T>(Counted<T>);

// SAFETY: the value may be sent, and the pointer counts by atomics.
unsafe impl<T> Send for Sent<T> {}

fn pair() -> (Promise, Promise) {
    let (one, other) = Counted::pair(RawPromise::new());
    (Sent(one), Sent(other))
}

fn complete(promise: &Promise, drops: &Arc<AtomicU32>) {
    let completed = promise.0.complete(Value::new(drops), 1);
    assert!(completed.is_ok(), "nobody else completes it");
}

/// A thread that completes it and goes.
fn completing(promise: Promise, drops: &Arc<AtomicU32>) -> thread::JoinHandle<()> {
    let drops = drops.clone();
    thread::spawn(move || {
        complete(&promise, &drops);
        drop(promise);
    })
}

#[test]
fn the_last_reference_drops_what_the_completion_left() {
    loom::model(|| {
        let drops = Arc::new(AtomicU32::new(0));
        let (promise, future) = pair();
        let completing = completing(promise, &drops);
        drop(future);
        completing.join().unwrap();
        assert_eq!(drops.load(SeqCst), 1);
    });
}

#[test]
fn who_finds_itself_alone_takes_the_value_whole() {
    loom::model(|| {
        let drops = Arc::new(AtomicU32::new(0));
        let (promise, mut future) = pair();
        let completing = completing(promise, &drops);
        let taken = future.0.get_mut().map(|alone| alone.take());
        if let Some(taken) = &taken {
            assert!(taken.is_some(), "the producer is gone: it has completed it");
        }
        drop(future);
        completing.join().unwrap();
        assert_eq!(drops.load(SeqCst), u32::from(taken.is_none()));
        drop(taken);
        assert_eq!(drops.load(SeqCst), 1);
    });
}

#[test]
fn a_reference_made_meanwhile_keeps_the_value() {
    loom::model(|| {
        let drops = Arc::new(AtomicU32::new(0));
        let (promise, future) = pair();
        let completing = completing(promise, &drops);
        let other = Sent(future.0.clone());
        let looking = thread::spawn(move || {
            let seen = other.0.get().map(|value| {
                // SAFETY: a shared value is only read.
                value.content.with(|content| unsafe { *content })
            });
            assert!(matches!(seen, None | Some(7)));
            drop(other);
        });
        drop(future);
        completing.join().unwrap();
        looking.join().unwrap();
        assert_eq!(drops.load(SeqCst), 1);
    });
}

/// As a task is ended: its closure lies beside the promise, is read by the thread that runs it, and goes before the promise does.
#[test]
fn what_lies_beside_is_its_users_alone() {
    loom::model(|| {
        let drops = Arc::new(AtomicU32::new(0));
        let beside = Value::new(&drops);
        let (promise, future) = Counted::pair_beside(RawPromise::new(), beside);
        let (promise, future): (Promise, Promise) = (Sent(promise), Sent(future));
        let raw = Raw(promise.0.into_raw());
        let completing = {
            let drops = drops.clone();
            thread::spawn(move || {
                let raw = raw;
                // SAFETY: from `into_raw` of this type, once.
                let promise: Promise = Sent(unsafe { Counted::from_raw(raw.0) });
                // SAFETY: made with a `Value`.
                let beside = unsafe { promise.0.beside::<Value>() };
                // SAFETY: only this thread uses it, and reads it once.
                drop(unsafe { beside.read() });
                complete(&promise, &drops);
                drop(promise);
            })
        };
        drop(future);
        completing.join().unwrap();
        assert_eq!(drops.load(SeqCst), 2, "the one beside and the value");
    });
}

/// A promise on its way to who completes it.
struct Raw(NonNull<()>);

// SAFETY: what it points to may be sent.
unsafe impl Send for Raw {}
