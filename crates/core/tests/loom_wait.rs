//! The wake path under loom: a waiter whose thread has an inbox and sleeps, two wakers on other threads, and a
//! timer or canceller on the waiter's own thread.
#![cfg(loom)]
#![expect(unsafe_code, reason = "drives the wait protocol by hand")]

use std::ptr::NonNull;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use sinew_core::inbox::{Inbox, Link, Push};
use sinew_core::lock::{Lock, SpinByte};
use sinew_core::wait::{Anyone, Claim, Node, Queue, Reason, Waiter, Waking, Ways};

/// A coroutine as the scheduler sees it, reduced to its waiting parts.
#[repr(C)]
struct Party {
    waiter: Waiter,
    node: Node,
    link: Link,
    slot: UnsafeCell<usize>,
    owner: Arc<Owner>,
}

// SAFETY: the fields are touched by the protocol under test; loom's cells find where it is wrong.
unsafe impl Send for Party {}
// SAFETY: as above.
unsafe impl Sync for Party {}

/// The waiter's thread: its inbox and how to wake it.
struct Owner {
    inbox: Inbox,
    thread: thread::Thread,
}

/// Whether the calling thread is the party's own.
unsafe fn is_here(waiter: NonNull<Waiter>) -> bool {
    // SAFETY: the waiter is the first field of its party, which lives to the end of the model.
    let party = unsafe { waiter.cast::<Party>().as_ref() };
    party.owner.thread.id() == thread::current().id()
}

/// How a party is made runnable.
static WAYS: Ways = Ways {
    wake: wake_party,
    is_here,
};

/// The wake function of a party: into its owner's inbox.
unsafe fn wake_party(waiter: NonNull<Waiter>) {
    // SAFETY: the waiter is the first field of its party, which lives to the end of the model.
    let party = unsafe { waiter.cast::<Party>().as_ref() };
    let owner = party.owner.clone();
    // SAFETY: the winner of the claim owns the link.
    if unsafe { owner.inbox.push(NonNull::from(&party.link), 0) } == Push::WakeOwner {
        owner.thread.unpark();
    }
}

/// Who runs on this party's thread, and knows that.
struct Neighbour<'a>(&'a Party);

// SAFETY: the party goes on on the thread that the neighbour runs on, where alone its rivals claim it.
unsafe impl Waking for Neighbour<'_> {
    fn is_near(&self, waiter: NonNull<Waiter>) -> bool {
        waiter == NonNull::from(&self.0.waiter)
    }

    unsafe fn wake_near(&self, waiter: NonNull<Waiter>) {
        // SAFETY: passed on to the caller.
        unsafe { wake_party(waiter) };
    }
}

/// A place where one value at a time is handed to a waiter: the smallest primitive.
struct Place {
    queue: Lock<Queue>,
}

impl Place {
    /// Hands `value` to a waiter if one waits.
    fn hand(&self, value: usize) -> bool {
        self.hand_by(value, &Anyone)
    }

    /// The same, by who knows who is near.
    fn hand_by(&self, value: usize, by: &impl Waking) -> bool {
        let mut queue = self.queue.lock();
        let Some(claimed) = queue.claim_front_by(by, Reason::Woken) else {
            return false;
        };
        let slot = claimed.slot().cast::<UnsafeCell<usize>>();
        // SAFETY: the slot is in the frame of a claimed waiter.
        unsafe { &*slot }.with_mut(|slot| unsafe { *slot = value });
        drop(queue);
        claimed.wake();
        true
    }
}

/// What the owner's own thread does against the wait.
#[derive(Clone, Copy)]
enum Rival {
    None,
    Timer,
    Cancel,
    /// A waker on the waiter's own thread: another coroutine there. Then a timer.
    Hand,
    /// The same, by one that knows that they are of one thread.
    Neighbour,
}

/// The value that a waker on the waiter's own thread hands over.
const HANDED_HERE: usize = 100;

/// One wait; the rival strikes before the owner would sleep. Returns the reason and the value.
fn wait(party: &Party, place: &Place, rival: Rival) -> (Reason, usize) {
    arm(party, place);
    let mut rival = rival;
    loop {
        let mut resumed = false;
        for (link, tag) in party.owner.inbox.drain() {
            assert_eq!((link, tag), (NonNull::from(&party.link), 0));
            assert!(!resumed, "pushed twice");
            resumed = true;
        }
        if resumed {
            break;
        }
        let reason = match std::mem::replace(&mut rival, Rival::None) {
            Rival::Neighbour => {
                place.hand_by(HANDED_HERE, &Neighbour(party));
                rival = Rival::Timer;
                continue;
            }
            Rival::Hand => {
                place.hand(HANDED_HERE);
                rival = Rival::Timer;
                continue;
            }
            Rival::None => None,
            Rival::Timer => Some(Reason::Timeout),
            Rival::Cancel => Some(Reason::Cancelled),
        };
        if reason.is_some_and(|reason| party.waiter.word.claim(reason) == Claim::Won) {
            break;
        }
        if party.owner.inbox.announce_sleep() {
            while party.owner.inbox.is_asleep() {
                thread::park();
            }
            party.owner.inbox.awake();
        }
    }
    let reason = party.waiter.word.finish();
    if reason != Reason::Woken {
        let mut queue = place.queue.lock();
        // SAFETY: the node is alive and, if linked, linked in this queue.
        unsafe { queue.remove(NonNull::from(&party.node)) };
    }
    // SAFETY: the waiter goes on: the slot is its own again.
    (reason, party.slot.with(|slot| unsafe { *slot }))
}

fn arm(party: &Party, place: &Place) {
    let mut queue = place.queue.lock();
    party.waiter.word.arm();
    let slot = (&raw const party.slot).cast_mut().cast();
    // SAFETY: the node is unlinked and its waiter's.
    unsafe { party.node.prepare(NonNull::from(&party.waiter), slot) };
    // SAFETY: prepared, armed, and it stays in place.
    unsafe { queue.push_back(NonNull::from(&party.node)) };
}

fn party() -> Arc<Party> {
    let owner = Arc::new(Owner {
        inbox: Inbox::new(),
        thread: thread::current(),
    });
    Arc::new(Party {
        waiter: Waiter::new(&WAYS),
        node: Node::new(),
        link: Link::new(),
        slot: UnsafeCell::new(0),
        owner,
    })
}

fn check(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(builder.preemption_bound.unwrap_or(3));
    builder.max_branches = 50_000;
    builder.check(f);
}

/// Two wakers and a rival against one wait.
fn two_wakers_against(rival: Rival) {
    check(move || {
        let place = Arc::new(Place {
            queue: Lock::new(Queue::new()),
        });
        let party = party();
        let wakers: Vec<_> = (1..=2)
            .map(|value| {
                let place = place.clone();
                thread::spawn(move || if place.hand(value) { value } else { 0 })
            })
            .collect();
        // Without a rival a wait may never end: the wakers may both have come before it. So one
        // more hand-over follows from this thread's side: a timer, at the last.
        let rival = if matches!(rival, Rival::None) {
            Rival::Timer
        } else {
            rival
        };
        let (reason, got) = wait(&party, &place, rival);
        let sent: usize = wakers.into_iter().map(|waker| waker.join().unwrap()).sum();
        match reason {
            Reason::Woken if got == HANDED_HERE => assert_eq!(sent, 0, "doubled"),
            Reason::Woken => assert_eq!(got, sent, "lost or doubled"),
            _ => assert_eq!(
                (got, sent),
                (0, 0),
                "a value went to a waiter that had given up"
            ),
        }
        assert!(place.queue.lock().is_empty());
    });
}

#[test]
fn two_wakers_and_a_timer() {
    two_wakers_against(Rival::Timer);
}

#[test]
fn two_wakers_one_on_the_waiters_thread_and_a_timer() {
    two_wakers_against(Rival::Hand);
}

#[test]
fn two_wakers_one_that_knows_the_waiter_to_be_near_and_a_timer() {
    two_wakers_against(Rival::Neighbour);
}

#[test]
fn two_wakers_and_a_cancel() {
    two_wakers_against(Rival::Cancel);
}

/// The waiter is linked before the wakers exist, so one of them must wake it: the owner sleeps
/// until then, and a lost wake-up is a deadlock that loom reports.
#[test]
fn a_wake_is_never_lost() {
    check(|| {
        let place = Arc::new(Place {
            queue: Lock::new(Queue::new()),
        });
        let party = party();
        arm(&party, &place);
        let wakers: Vec<_> = (1..=2)
            .map(|value| {
                let place = place.clone();
                thread::spawn(move || if place.hand(value) { value } else { 0 })
            })
            .collect();
        while party.owner.inbox.drain().count() == 0 {
            if party.owner.inbox.announce_sleep() {
                while party.owner.inbox.is_asleep() {
                    thread::park();
                }
                party.owner.inbox.awake();
            }
        }
        assert_eq!(party.waiter.word.finish(), Reason::Woken);
        // SAFETY: the waiter goes on: the slot is its own again.
        let got = party.slot.with(|slot| unsafe { *slot });
        let sent: usize = wakers.into_iter().map(|waker| waker.join().unwrap()).sum();
        assert_eq!(got, sent, "lost or doubled");
        assert!(party.owner.inbox.is_empty());
    });
}

/// The same party waits twice: what came too late for the first wait must not touch the second.
#[test]
fn a_late_waker_does_not_touch_the_next_wait() {
    check(|| {
        let first = Arc::new(Place {
            queue: Lock::new(Queue::new()),
        });
        let second = Arc::new(Place {
            queue: Lock::new(Queue::new()),
        });
        let party = party();
        let waker = {
            let first = first.clone();
            thread::spawn(move || first.hand(7))
        };
        let (reason, got) = wait(&party, &first, Rival::Timer);
        // Nobody wakes the second wait but its own timer.
        let (again, _) = wait(&party, &second, Rival::Timer);
        assert_eq!(
            again,
            Reason::Timeout,
            "a waker of the first wait woke the second"
        );
        let handed = waker.join().unwrap();
        assert_eq!(handed, reason == Reason::Woken);
        assert_eq!(got, if handed { 7 } else { 0 });
    });
}

/// Several pushers, one sleeper: everything arrives once, in each pusher's own order.
#[test]
fn an_inbox_keeps_order_and_wakes() {
    check(|| {
        let owner = Arc::new(Owner {
            inbox: Inbox::new(),
            thread: thread::current(),
        });
        let links: Arc<[[Link; 2]; 2]> =
            Arc::new([[Link::new(), Link::new()], [Link::new(), Link::new()]]);
        let pushers: Vec<_> = (0..2)
            .map(|who| {
                let (owner, links) = (owner.clone(), links.clone());
                thread::spawn(move || {
                    for link in &links[who][..2 - who] {
                        // SAFETY: this pusher alone owns the link, which lives to the end of the model.
                        let push = unsafe { owner.inbox.push(NonNull::from(link), who * 2) };
                        if push == Push::WakeOwner {
                            owner.thread.unpark();
                        }
                    }
                })
            })
            .collect();
        let mut seen: [usize; 2] = [0, 0];
        while seen != [2, 1] {
            for (link, tag) in owner.inbox.drain() {
                let who = tag / 2;
                assert_eq!(link, NonNull::from(&links[who][seen[who]]), "out of order");
                seen[who] += 1;
            }
            if seen != [2, 1] && owner.inbox.announce_sleep() {
                while owner.inbox.is_asleep() {
                    thread::park();
                }
                owner.inbox.awake();
            }
        }
        for pusher in pushers {
            pusher.join().unwrap();
        }
    });
}

/// The byte of the short lock: two threads, one cell.
#[test]
fn the_spin_byte_excludes() {
    check(|| {
        let shared = Arc::new((SpinByte::new(), UnsafeCell::new(0)));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || add(&shared))
        };
        add(&shared);
        other.join().unwrap();
        shared.0.lock();
        // SAFETY: the byte is held.
        assert_eq!(shared.1.with(|cell| unsafe { *cell }), 2);
    });
}

fn add((byte, cell): &(SpinByte, UnsafeCell<u32>)) {
    byte.lock();
    // SAFETY: the byte is held; loom's cell finds it if that does not exclude.
    cell.with_mut(|cell| unsafe { *cell += 1 });
    byte.unlock();
}
