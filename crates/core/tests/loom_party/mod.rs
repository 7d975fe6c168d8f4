//! A thread that waits, under loom, with a rival in place of timers and cancels.
#![allow(
    dead_code,
    reason = "each test file includes this module and uses its own part of it"
)]
#![allow(unsafe_code, reason = "implements the waiting side of the protocol")]

use std::cell::Cell;
use std::ptr::NonNull;
use std::task::Wake;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering::AcqRel};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use sinew_core::wait::{Claim, Node, Reason, Record, Suspend, Waiter, Ways};

/// A thread that waits.
#[repr(C)]
pub(crate) struct Party {
    waiter: Waiter,
    node: Node,
    signals: Arc<Signals>,
    /// What strikes each of its waits, but for the first so many.
    rival: Option<Reason>,
    spared: Cell<usize>,
}

struct Signals {
    woken: AtomicBool,
    thread: thread::Thread,
}

/// Every waker of these tests is on another thread, and a party's own rival claims by itself.
unsafe fn is_elsewhere(_: NonNull<Waiter>) -> bool {
    false
}

/// How a party is made runnable.
static WAYS: Ways = Ways {
    wake,
    is_here: is_elsewhere,
};

unsafe fn wake(waiter: NonNull<Waiter>) {
    // SAFETY: the waiter is the first field of its party, which cannot go before it is woken.
    let party = unsafe { waiter.cast::<Party>().as_ref() };
    let signals = party.signals.clone();
    assert!(!signals.woken.swap(true, AcqRel), "woken twice");
    signals.thread.unpark();
}

impl Party {
    pub(crate) fn new(rival: Option<Reason>) -> Box<Self> {
        Self::struck_after(0, rival)
    }

    pub(crate) fn struck_after(waits: usize, rival: Option<Reason>) -> Box<Self> {
        Box::new(Self {
            waiter: Waiter::new(&WAYS),
            node: Node::new(),
            signals: Arc::new(Signals {
                woken: AtomicBool::new(false),
                thread: thread::current(),
            }),
            rival,
            spared: Cell::new(waits),
        })
    }
}

// SAFETY: parties are boxed and belong to one thread; suspend waits for the wake of a claim, or wins it itself.
unsafe impl Suspend for Party {
    fn party(&self) -> (NonNull<Waiter>, NonNull<Node>) {
        (NonNull::from(self).cast(), NonNull::from(&self.node))
    }

    fn refused(&self) -> Option<Reason> {
        None
    }

    fn suspend(&self, _record: Record) -> Reason {
        let spared = self.spared.get();
        self.spared.set(spared.saturating_sub(1));
        if let Some(reason) = self.rival
            && spared == 0
            && self.waiter.word.claim(reason) == Claim::Won
        {
            return self.waiter.word.finish();
        }
        while !self.signals.woken.swap(false, AcqRel) {
            thread::park();
        }
        self.waiter.word.finish()
    }
}

pub(crate) fn check(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // Each model says how far it can go in seconds, whatever the environment says for all.
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 50_000;
    builder.check(f);
}

/// A value of which loom checks that it is dropped, and that its content is handed on properly.
pub(crate) type Value = Arc<UnsafeCell<u32>>;

pub(crate) fn value(number: u32) -> Value {
    Arc::new(UnsafeCell::new(number))
}

/// The only owner reads it, and may write to it.
pub(crate) fn number(mut value: Value) -> u32 {
    let cell = Arc::get_mut(&mut value).expect("the value is on two sides");
    // SAFETY: the only owner.
    cell.with_mut(|number| unsafe { *number })
}

/// Something whose values loom may take for movable.
pub(crate) struct Shared<T>(pub(crate) T);

// SAFETY: the values' cells are touched by their only owner, which `number` asserts.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

pub(crate) fn shared<T>(inner: T) -> Arc<Shared<T>> {
    Arc::new(Shared(inner))
}

/// A waker that another thread can wait for. (Not by parking: loom's join does not stand an unpark that comes meanwhile.)
pub(crate) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub(crate) fn new() -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self {
            rung: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    pub(crate) fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

impl Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }
}
