//! Parties for tests: a plain thread that waits, with a rival in place of a clock, and one that only plays
//! waiting while a script runs.
#![allow(
    dead_code,
    reason = "each test file includes this module and uses its own part of it"
)]
#![allow(unsafe_code, reason = "implements the waiting side of the protocol")]
#![allow(
    clippy::print_stdout,
    reason = "a failed run is repeated with the seed that it printed"
)]

pub(crate) mod oracle;

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread::{self, Thread};

use sinew_core::wait::{Claim, Node, Reason, Record, Suspend, Waiter, Ways};

/// What ends a wait besides what is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Nothing.
    None,
    /// A timer or cancel that strikes when the thread has given way so many times.
    After(u32, Reason),
    /// A cancel that was requested before.
    Refused,
}

/// What a party's wakers and watchers touch.
#[derive(Debug)]
pub(crate) struct Signals {
    /// Wakes not yet seen by the party: more than one is a fault.
    wakes: AtomicU32,
    /// How often the party has begun to wait: its node is linked by then.
    waits: AtomicU32,
    thread: Thread,
}

impl Signals {
    /// Gives way until the party has begun to wait `count` times.
    pub(crate) fn wait_until_waiting(&self, count: u32) {
        while self.waits.load(SeqCst) < count {
            thread::yield_now();
        }
    }

    /// Whether the party was woken and has not gone on.
    pub(crate) fn is_woken(&self) -> bool {
        self.wakes.load(SeqCst) != 0
    }

    fn take_wake(&self) -> bool {
        match self.wakes.swap(0, SeqCst) {
            0 => false,
            1 => true,
            more => panic!("woken {more} times for one wait"),
        }
    }
}

#[repr(C)]
struct Base {
    waiter: Waiter,
    node: Node,
    signals: Arc<Signals>,
}

impl Base {
    fn new() -> Box<Self> {
        Box::new(Self {
            waiter: Waiter::new(&WAYS),
            node: Node::new(),
            signals: Arc::new(Signals {
                wakes: AtomicU32::new(0),
                waits: AtomicU32::new(0),
                thread: thread::current(),
            }),
        })
    }

    fn party(&self) -> (NonNull<Waiter>, NonNull<Node>) {
        (NonNull::from(self).cast(), NonNull::from(&self.node))
    }

    fn begin(&self) {
        self.signals.waits.fetch_add(1, SeqCst);
    }
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

/// The wake function of both kinds.
unsafe fn wake(waiter: NonNull<Waiter>) {
    // SAFETY: the waiter is the first field of its base, and that cannot go before it is woken.
    let base = unsafe { waiter.cast::<Base>().as_ref() };
    let signals = base.signals.clone();
    signals.wakes.fetch_add(1, SeqCst);
    signals.thread.unpark();
}

/// A plain thread. Belongs to the thread that makes it.
pub(crate) struct ThreadParty {
    base: Box<Base>,
    pub(crate) limit: Cell<Limit>,
}

impl ThreadParty {
    pub(crate) fn new() -> Self {
        Self {
            base: Base::new(),
            limit: Cell::new(Limit::None),
        }
    }

    pub(crate) fn with(limit: Limit) -> Self {
        let party = Self::new();
        party.limit.set(limit);
        party
    }

    pub(crate) fn signals(&self) -> Arc<Signals> {
        self.base.signals.clone()
    }
}

// SAFETY: the base is boxed and belongs to one thread; suspend waits for the wake of a claim, or wins it itself.
unsafe impl Suspend for ThreadParty {
    fn party(&self) -> (NonNull<Waiter>, NonNull<Node>) {
        self.base.party()
    }

    fn refused(&self) -> Option<Reason> {
        (self.limit.get() == Limit::Refused).then_some(Reason::Cancelled)
    }

    fn suspend(&self, _record: Record) -> Reason {
        self.base.begin();
        let mut limit = self.limit.get();
        loop {
            if self.base.signals.take_wake() {
                return self.base.waiter.word.finish();
            }
            match limit {
                Limit::After(0, reason) => {
                    if self.base.waiter.word.claim(reason) == Claim::Won {
                        return self.base.waiter.word.finish();
                    }
                    limit = Limit::None;
                }
                Limit::After(left, reason) => {
                    thread::yield_now();
                    limit = Limit::After(left - 1, reason);
                }
                Limit::None | Limit::Refused => thread::park(),
            }
        }
    }
}

/// A party whose waiting is a script: the script is what all the others do meanwhile. It must wake the party or
/// [strike](Moment::strike) it.
pub(crate) struct ScriptParty<'a> {
    base: Box<Base>,
    script: RefCell<Script<'a>>,
    cancelled: Cell<bool>,
}

type Script<'a> = Box<dyn FnMut(&Moment<'_>) + 'a>;

/// What a script knows of the wait that it fills.
pub(crate) struct Moment<'a> {
    /// The number of the wait, from 1.
    pub(crate) wait: u32,
    base: &'a Base,
    cancelled: &'a Cell<bool>,
}

impl Moment<'_> {
    /// Ends the wait as a timer or cancel does; the node stays linked until the script has ended. Says
    /// whether the wait had not been ended before.
    pub(crate) fn strike(&self, reason: Reason) -> bool {
        self.base.waiter.word.claim(reason) == Claim::Won
    }

    /// Requests a cancel that the party finds when it is about to wait again.
    pub(crate) fn cancel_later(&self) {
        self.cancelled.set(true);
    }
}

impl<'a> ScriptParty<'a> {
    pub(crate) fn new(script: impl FnMut(&Moment<'_>) + 'a) -> Self {
        Self {
            base: Base::new(),
            script: RefCell::new(Box::new(script)),
            cancelled: Cell::new(false),
        }
    }

    /// How often it has waited.
    pub(crate) fn waits(&self) -> u32 {
        self.base.signals.waits.load(SeqCst)
    }
}

// SAFETY: the base is boxed and belongs to one thread; suspend returns when claimed and woken or struck, or panics, and
// then the test has failed.
unsafe impl Suspend for ScriptParty<'_> {
    fn party(&self) -> (NonNull<Waiter>, NonNull<Node>) {
        self.base.party()
    }

    fn refused(&self) -> Option<Reason> {
        self.cancelled.get().then_some(Reason::Cancelled)
    }

    fn suspend(&self, _record: Record) -> Reason {
        self.base.begin();
        let moment = Moment {
            wait: self.waits(),
            base: &self.base,
            cancelled: &self.cancelled,
        };
        (self.script.borrow_mut())(&moment);
        let woken = self.base.signals.take_wake();
        let reason = self.base.waiter.word.finish();
        let by_waker = matches!(reason, Reason::Woken | Reason::Closed);
        assert_eq!(woken, by_waker, "who wins the claim wakes, and nobody else");
        reason
    }
}

/// A small source of chance (Steele, Lea, Flood: SplitMix, 2014), seeded anew in each run.
pub(crate) struct Chance(u64);

impl Chance {
    /// Prints its seed; `SINEW_SEED` repeats a run, as far as threads can be repeated.
    pub(crate) fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        let seed = match std::env::var("SINEW_SEED") {
            Ok(seed) => seed.parse().expect("SINEW_SEED is a number"),
            Err(_) => RandomState::new().hash_one(0),
        };
        println!("SINEW_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Less than `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Another source, for another thread.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// Mostly something that strikes soon, at times nothing.
    pub(crate) fn limit(&mut self) -> Limit {
        let reason = if self.below(2) == 0 {
            Reason::Timeout
        } else {
            Reason::Cancelled
        };
        match self.below(8) {
            0 => Limit::None,
            1 => Limit::Refused,
            _ => Limit::After(u32::try_from(self.below(6)).unwrap(), reason),
        }
    }
}

/// Rounds of a stress test: `base` times the multiplier `SINEW_STRESS`, which is 1 unless it is set.
pub(crate) fn rounds(base: u64) -> u64 {
    let multiplier = match std::env::var("SINEW_STRESS") {
        Ok(text) => text.parse().expect("SINEW_STRESS is a number"),
        Err(_) => 1,
    };
    base * multiplier
}
