//! Claims by a party that knows who is near: the same choice, in the same order, as by one that asks.
#![cfg(not(loom))]
#![expect(unsafe_code, reason = "drives the wait protocol by hand")]

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};

use sinew_core::wait::{Anyone, ArmNode, Claim, Node, Queue, Reason, Waiter, Waking, Ways};

thread_local! {
    /// Who was woken by its ways.
    static WOKEN_FAR: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// How the parties here are made runnable: on the one thread that there is.
static HERE: Ways = Ways {
    wake,
    is_here: is_always_here,
};

/// The same, of parties that nobody is told to be near.
static STRANGER: Ways = Ways {
    wake,
    is_here: is_always_here,
};

unsafe fn wake(waiter: NonNull<Waiter>) {
    WOKEN_FAR.with_borrow_mut(|woken| woken.push(waiter.addr().get()));
}

unsafe fn is_always_here(_: NonNull<Waiter>) -> bool {
    true
}

/// Who waits.
struct Party {
    waiter: Waiter,
    node: ArmNode,
}

impl Party {
    fn new(ways: &'static Ways) -> Box<Self> {
        Box::new(Self {
            waiter: Waiter::new(ways),
            node: ArmNode::new(),
        })
    }

    fn waiter(&self) -> NonNull<Waiter> {
        NonNull::from(&self.waiter)
    }

    fn address(&self) -> usize {
        self.waiter().addr().get()
    }

    /// Waits in a queue; the slot is a number.
    fn link(&self, queue: &mut Queue, slot: usize) -> NonNull<Node> {
        // SAFETY: the node is unlinked, and the caller stands for its waiter.
        let node = unsafe {
            self.node
                .prepare(self.waiter(), ptr::without_provenance_mut(slot))
        };
        // SAFETY: prepared, armed, and it outlives the queue.
        unsafe { queue.push_back(node) };
        node
    }

    fn wait_in(&self, queue: &mut Queue, slot: usize) -> NonNull<Node> {
        self.waiter.word.arm();
        self.link(queue, slot)
    }
}

/// A waker that knows who is made runnable in the common way.
#[derive(Default)]
struct Knowing {
    woken: RefCell<Vec<usize>>,
    asked: Cell<u32>,
}

// SAFETY: all run on the one thread, and who is woken is written down.
unsafe impl Waking for Knowing {
    fn is_near(&self, waiter: NonNull<Waiter>) -> bool {
        self.asked.set(self.asked.get() + 1);
        // SAFETY: alive, as whoever asks vouches for.
        unsafe { waiter.as_ref() }.has_ways(&HERE)
    }

    unsafe fn wake_near(&self, waiter: NonNull<Waiter>) {
        self.woken.borrow_mut().push(waiter.addr().get());
    }
}

#[test]
fn who_is_near_is_claimed_in_turn_and_woken_by_who_knows_it() {
    let parties = [Party::new(&HERE), Party::new(&HERE), Party::new(&HERE)];
    let mut queue = Queue::new();
    for (slot, party) in parties.iter().enumerate() {
        party.wait_in(&mut queue, slot + 1);
    }
    let knowing = Knowing::default();
    for (slot, party) in parties.iter().enumerate() {
        let claimed = queue.claim_front_by(&knowing, Reason::Closed).unwrap();
        assert_eq!(claimed.slot().addr(), slot + 1);
        assert_eq!(party.waiter.word.claim(Reason::Timeout), Claim::Lost);
        claimed.wake();
        assert_eq!(party.waiter.word.finish(), Reason::Closed);
        // SAFETY: its wait is over, and it is in no queue.
        assert!(!unsafe { queue.remove(party.node.as_node()) }, "taken out");
    }
    assert!(queue.is_empty());
    assert!(queue.claim_front_by(&knowing, Reason::Woken).is_none());
    let addresses: Vec<_> = parties.iter().map(|party| party.address()).collect();
    assert_eq!(*knowing.woken.borrow(), addresses);
    assert_eq!(WOKEN_FAR.with_borrow(Vec::len), 0);
    assert_eq!(knowing.asked.get(), 3, "once for each claim");
}

#[test]
fn who_was_claimed_by_others_is_passed_over_and_taken_out() {
    let (first, second) = (Party::new(&HERE), Party::new(&HERE));
    let mut queue = Queue::new();
    let node = first.wait_in(&mut queue, 0);
    second.wait_in(&mut queue, 0);
    assert_eq!(first.waiter.word.claim(Reason::Timeout), Claim::Won);
    let knowing = Knowing::default();
    let claimed = queue.claim_front_by(&knowing, Reason::Woken).unwrap();
    claimed.wake();
    assert_eq!(second.waiter.word.finish(), Reason::Woken);
    assert_eq!(first.waiter.word.finish(), Reason::Timeout);
    // SAFETY: alive, and in no other queue.
    assert!(!unsafe { queue.remove(node) });
    assert!(queue.is_empty());
    // By its ways: the one that was to be asked for comes first.
    assert_eq!(WOKEN_FAR.take(), [second.address()]);
}

#[test]
fn a_stranger_is_claimed_and_woken_in_its_own_ways() {
    let party = Party::new(&STRANGER);
    let mut queue = Queue::new();
    party.wait_in(&mut queue, 7);
    let knowing = Knowing::default();
    let claimed = queue.claim_front_by(&knowing, Reason::Woken).unwrap();
    assert_eq!(claimed.slot().addr(), 7);
    claimed.wake();
    assert_eq!(WOKEN_FAR.take(), [party.address()]);
    assert!(knowing.woken.borrow().is_empty());
    assert_eq!(party.waiter.word.finish(), Reason::Woken);
}

#[test]
fn who_waits_at_several_places_is_claimed_by_its_arm() {
    let party = Party::new(&HERE);
    let mut queue = Queue::new();
    party.waiter.word.arm_spread();
    party.link(&mut queue, 0);
    let knowing = Knowing::default();
    let claimed = queue.claim_front_by(&knowing, Reason::Woken).unwrap();
    claimed.wake();
    assert_eq!(party.waiter.word.finish(), Reason::Woken);
    // SAFETY: the waiter goes on.
    let is_told = unsafe { party.node.take_mark() };
    assert!(is_told, "it learns which arm it was");
    assert_eq!(WOKEN_FAR.take(), [party.address()]);
}

#[test]
fn who_is_not_wanted_keeps_its_place() {
    let (first, second) = (Party::new(&HERE), Party::new(&HERE));
    let mut queue = Queue::new();
    first.wait_in(&mut queue, 1);
    second.wait_in(&mut queue, 2);
    let knowing = Knowing::default();
    let is_second = |slot: *mut ()| slot.addr() == 2;
    let unwanted = queue.claim_front_if_by(&knowing, Reason::Woken, is_second);
    assert!(unwanted.is_none(), "nobody passes the first");
    let claimed = queue
        .claim_front_if_by(&knowing, Reason::Woken, |_| true)
        .unwrap();
    assert_eq!(claimed.slot().addr(), 1);
    claimed.wake();
    let claimed = queue
        .claim_front_if_by(&Anyone, Reason::Woken, is_second)
        .unwrap();
    claimed.wake();
    for party in [&first, &second] {
        assert_eq!(party.waiter.word.finish(), Reason::Woken);
    }
    assert_eq!(WOKEN_FAR.take(), [second.address()]);
}
