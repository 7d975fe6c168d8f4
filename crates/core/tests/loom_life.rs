//! The end of a coroutine under loom: against a join that takes the result, waiters that only wait, a handle that goes, and
//! deadlines that strike; and a cancel's call against the owner's answer.
//!
//! A joiner that is left waiting ends in a deadlock, which loom reports; a result that is touched by two, a failure of loom's cells; one that
//! is lost or dropped twice, a failed count.
#![cfg(loom)]
#![expect(unsafe_code, reason = "implements the waiting side of the protocol")]

use std::ptr::{self, NonNull};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Relaxed},
};
use loom::thread;
use sinew_core::inbox::{Call, Inbox};
use sinew_core::life::{AWAY, Abandon, End, HANDLE, Join, Life, STATIC};
use sinew_core::lock::Lock;
use sinew_core::wait::{
    Claim, Kind, Node, Queue, Reason, Record, Sequence, Suspend, Waiter, Ways, wait_in,
};

/// A thread that waits.
#[repr(C)]
struct Party {
    waiter: Waiter,
    node: Node,
    signals: Arc<Signals>,
    /// What strikes its wait right after it is linked.
    rival: Option<Reason>,
}

struct Signals {
    woken: AtomicBool,
    thread: thread::Thread,
}

unsafe fn is_elsewhere(_: NonNull<Waiter>) -> bool {
    false
}

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
    fn new(rival: Option<Reason>) -> Box<Self> {
        Box::new(Self {
            waiter: Waiter::new(&WAYS),
            node: Node::new(),
            signals: Arc::new(Signals {
                woken: AtomicBool::new(false),
                thread: thread::current(),
            }),
            rival,
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
        if let Some(reason) = self.rival
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

/// A coroutine, reduced to its end.
struct Body {
    life: Life,
    joiners: Lock<Queue>,
    /// The result: 1 while it is there.
    result: UnsafeCell<usize>,
    /// How often it was taken or dropped.
    gone: AtomicUsize,
}

// SAFETY: loom's cell finds a touch that the life word does not order.
unsafe impl Sync for Body {}
// SAFETY: as above.
unsafe impl Send for Body {}

impl Body {
    fn new() -> Arc<Self> {
        Self::begun(HANDLE)
    }

    fn begun(bits: u8) -> Arc<Self> {
        let life = Life::new();
        life.begin(bits);
        Arc::new(Self {
            life,
            joiners: Lock::new(Queue::new()),
            result: UnsafeCell::new(0),
            gone: AtomicUsize::new(0),
        })
    }

    /// What the coroutine's own thread does at its end.
    fn end(&self) {
        // SAFETY: nobody else touches it before the end.
        self.result.with_mut(|result| unsafe { *result = 1 });
        if self.life.end() == End::Unclaimed {
            self.consume();
            self.life.end_unclaimed(false);
        }
        if self.life.is_waited() {
            let waiting = self.joiners.lock().claim_all(Reason::Woken);
            waiting.wake_all();
        }
    }

    /// Takes or drops the result.
    fn consume(&self) {
        // SAFETY: the caller says that it is its own.
        let was = self
            .result
            .with_mut(|result| unsafe { ptr::replace(result, 0) });
        assert_eq!(was, 1, "it was gone");
        self.gone.fetch_add(1, Relaxed);
    }

    fn wait(&self, rival: Option<Reason>, is_sole: bool) -> Reason {
        if self.life.is_done() {
            return Reason::Woken;
        }
        let party = Party::new(rival);
        let guard = self.joiners.lock();
        if self.life.join(is_sole) == Join::Ended {
            return Reason::Woken;
        }
        let record = Record {
            kind: Kind::Join,
            object: 0,
            owner: 0,
        };
        // SAFETY: always the same queue; the slots are not used.
        unsafe {
            wait_in(
                &self.joiners,
                guard,
                |queue| queue,
                ptr::null_mut(),
                &*party,
                record,
            )
        }
    }

    /// The handle's join: takes the result, or gives the handle up.
    fn join(&self, rival: Option<Reason>) {
        if self.wait(rival, true) == Reason::Woken {
            self.consume();
        } else {
            self.abandon();
        }
    }

    fn abandon(&self) {
        if self.life.abandon() == Abandon::Result {
            self.consume();
        }
    }

    fn check(&self) {
        assert_eq!(self.gone.load(Relaxed), 1, "lost, or gone twice");
        assert!(self.joiners.lock().is_empty());
        assert!(self.life.is_done());
    }
}

fn check(preemptions: usize, f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 50_000;
    builder.check(f);
}

// contract: S14
#[test]
fn a_join_takes_the_result_of_an_end_at_any_moment() {
    check(5, || {
        let body = Body::new();
        let coroutine = {
            let body = body.clone();
            thread::spawn(move || body.end())
        };
        body.join(None);
        coroutine.join().unwrap();
        body.check();
    });
}

// contract: S14
#[test]
fn a_deadline_that_strikes_at_the_end_leaves_the_result_to_one() {
    for reason in [Reason::Timeout, Reason::Cancelled] {
        check(5, move || {
            let body = Body::new();
            let coroutine = {
                let body = body.clone();
                thread::spawn(move || body.end())
            };
            body.join(Some(reason));
            coroutine.join().unwrap();
            body.check();
        });
    }
}

// contract: S14
#[test]
fn a_handle_that_goes_at_the_end_leaves_the_result_to_one() {
    check(5, || {
        let body = Body::new();
        let coroutine = {
            let body = body.clone();
            thread::spawn(move || body.end())
        };
        body.abandon();
        coroutine.join().unwrap();
        body.check();
    });
}

// contract: S14
#[test]
fn several_wait_and_one_takes() {
    check(3, || {
        let body = Body::new();
        let waiter = {
            let body = body.clone();
            thread::spawn(move || assert_eq!(body.wait(None, false), Reason::Woken))
        };
        let coroutine = {
            let body = body.clone();
            thread::spawn(move || body.end())
        };
        body.join(None);
        // One that comes after the end does not wait.
        assert_eq!(body.wait(None, false), Reason::Woken);
        waiter.join().unwrap();
        coroutine.join().unwrap();
        body.check();
    });
}

// contract: S14
#[test]
fn an_end_that_is_joined_on_its_own_thread_is_seen_with_what_came_before() {
    check(5, || {
        let body = Body::new();
        let watchers: Vec<_> = (0..2)
            .map(|_| {
                let body = body.clone();
                thread::spawn(move || {
                    if body.life.is_done() {
                        // SAFETY: it is not changed before the watchers are over.
                        let result = body.result.with(|result| unsafe { *result });
                        assert_eq!(result, 1);
                    }
                })
            })
            .collect();
        assert_eq!(body.life.join_here(), Join::Wait);
        body.end();
        assert!(body.life.is_joined_here());
        body.life.leave();
        assert!(body.life.take_left());
        for watcher in watchers {
            watcher.join().unwrap();
        }
        body.consume();
        body.check();
    });
}

// contract: S14
#[test]
fn a_join_on_its_own_thread_that_gives_up_leaves_nothing_to_the_handle() {
    check(5, || {
        for ends_first in [false, true] {
            let body = Body::new();
            assert_eq!(body.life.join_here(), Join::Wait);
            if ends_first {
                body.end();
                assert!(!body.life.take_left());
                body.abandon();
                assert!(
                    !body.life.is_joined_here(),
                    "the scheduler gives its own up"
                );
            } else {
                assert!(!body.life.take_left());
                body.abandon();
                body.end();
                assert!(!body.life.is_joined_here());
            }
            body.check();
        }
    });
}

/// What a coroutine has for its cancel: the flag, and the call that brings it to the owner.
struct Cancel {
    requested: AtomicBool,
    call: Call,
    inbox: Inbox,
    /// References that are given along with the call.
    given: AtomicUsize,
}

// contract: S20
#[test]
fn a_cancel_is_seen_by_the_owner_and_gives_one_reference_along() {
    check(4, || {
        let cancel = Arc::new(Cancel {
            requested: AtomicBool::new(false),
            call: Call::new(),
            inbox: Inbox::new(),
            given: AtomicUsize::new(0),
        });
        let cancellers: Vec<_> = (0..2)
            .map(|_| {
                let cancel = cancel.clone();
                thread::spawn(move || {
                    cancel.requested.store(true, Relaxed);
                    let give = || {
                        cancel.given.fetch_add(1, Relaxed);
                    };
                    // SAFETY: the call lives to the end of the model.
                    let _push = unsafe { cancel.call.raise_with(&cancel.inbox, 2, give) };
                })
            })
            .collect();
        let mut taken = 0;
        let mut seen = false;
        let mut drain = |seen: &mut bool| {
            for _ in cancel.inbox.drain() {
                taken += 1;
                cancel.call.answer();
                // What the canceller did before is seen after the answer.
                assert!(
                    cancel.requested.load(Relaxed),
                    "the request came after its message"
                );
                *seen = true;
            }
        };
        drain(&mut seen);
        for canceller in cancellers {
            canceller.join().unwrap();
        }
        drain(&mut seen);
        assert!(seen, "lost");
        assert_eq!(
            cancel.given.load(Relaxed),
            taken,
            "one reference for each message"
        );
    });
}

/// One that another thread has made arrives and ends, while its handle joins or goes: no bit of the word is lost.
// contract: S14
#[test]
fn an_arrival_meets_a_join_or_a_handle_that_goes() {
    type Deed = fn(&Body);
    let deeds: [Deed; 3] = [
        |body| body.join(None),
        |body| body.join(Some(Reason::Timeout)),
        |body| body.abandon(),
    ];
    for deed in deeds {
        check(5, move || {
            let body = Body::begun(HANDLE | STATIC | AWAY);
            let scheduler = {
                let body = body.clone();
                thread::spawn(move || {
                    assert!(body.life.is_away() && !body.life.is_present());
                    body.life.arrive();
                    assert!(body.life.is_present());
                    body.end();
                })
            };
            deed(&body);
            scheduler.join().unwrap();
            body.check();
            assert!(!body.life.is_away() && body.life.is_static());
        });
    }
}

/// The memory of coroutines, one after the other, as its scheduler looks for its own in it.
struct Slot {
    sequence: Sequence,
    number: AtomicU32,
    life: Life,
    /// Whose it is.
    door: AtomicU32,
}

const HERE: u32 = 1;
const ELSEWHERE: u32 = 2;

impl Slot {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            sequence: Sequence::new(),
            number: AtomicU32::new(0),
            life: Life::new(),
            door: AtomicU32::new(0),
        })
    }

    /// A coroutine begins in it.
    fn fill(&self, number: u32, door: u32, bits: u8) {
        self.door.store(door, Relaxed);
        self.life.begin(bits);
        let change = || self.number.store(number, Relaxed);
        self.sequence.change(change);
    }

    /// It is free again.
    fn release(&self) {
        self.sequence.change(|| self.number.store(0, Relaxed));
    }

    /// The number of the coroutine in it, if that is one that has arrived at `HERE`.
    fn present(&self) -> Option<u32> {
        let look = || {
            let number = self.number.load(Relaxed);
            let is_it = number != 0 && self.life.is_present() && self.door.load(Relaxed) == HERE;
            is_it.then_some(number)
        };
        self.sequence.read(look).flatten()
    }
}

/// Another thread makes one for a scheduler, is refused, uses the memory for one of its own, and again for that scheduler. The
/// scheduler, which looks at any moment, takes none of them for its own.
// contract: S20, S21
#[test]
fn what_is_on_its_way_is_passed_over_also_when_its_memory_is_used_again() {
    check(3, || {
        let slot = Slot::new();
        let maker = {
            let slot = slot.clone();
            thread::spawn(move || {
                slot.fill(1, HERE, HANDLE | STATIC | AWAY);
                slot.release();
                slot.fill(2, ELSEWHERE, HANDLE);
                slot.release();
                slot.fill(3, HERE, HANDLE | STATIC | AWAY);
            })
        };
        for _ in 0..2 {
            assert_eq!(slot.present(), None, "taken for one that has arrived");
        }
        maker.join().unwrap();
        assert_eq!(slot.present(), None);
        // Accepted, at last.
        slot.life.arrive();
        assert_eq!(slot.present(), Some(3));
    });
}
