//! Receivers that are told of a value instead of being given it: how often others may be faster, what is kept for them, and that nobody is
//! forgotten when they leave.
#![cfg(not(loom))]
#![expect(unsafe_code, reason = "waits at several primitives")]

mod party;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Poll, Wake, Waker};

use party::{Chance, ScriptParty, rounds};
use sinew_core::sync::{Channel, OVERTAKEN_MAX, RecvArm, RecvParty, TryRecv, TrySend};
use sinew_core::wait::{Arm, Kind, Polled, Reason, Record, Turn as WaitTurn, wait_any};

#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        assert!(!self.0.swap(true, SeqCst), "woken twice for one wait");
    }
}

/// A future that receives.
struct Future {
    party: RecvParty,
    bell: Arc<Bell>,
}

impl Future {
    fn new() -> Self {
        Self {
            party: RecvParty::new(Waker::wake),
            bell: Arc::default(),
        }
    }

    fn poll(&mut self, channel: &Channel<u32>) -> Poll<Result<u32, Reason>> {
        self.bell.0.store(false, SeqCst);
        channel.poll_recv(&mut self.party, &Waker::from(self.bell.clone()))
    }

    fn is_woken(&self) -> bool {
        self.bell.0.load(SeqCst)
    }

    /// One that was overtaken as often as may be, and waits.
    fn starving(channel: &Channel<u32>) -> Self {
        let mut future = Self::new();
        assert!(future.poll(channel).is_pending());
        for _ in 0..OVERTAKEN_MAX {
            channel.try_send(0).unwrap();
            assert!(future.is_woken());
            assert_eq!(channel.try_recv(), Ok(0));
            assert!(future.poll(channel).is_pending());
        }
        future
    }
}

// contract: Y9
#[test]
fn a_future_is_overtaken_a_bounded_number_of_times() {
    let channel = Channel::bounded(4);
    let mut future = Future::starving(&channel);
    channel.try_send(1).unwrap();
    assert_eq!(channel.try_recv(), Err(TryRecv::Empty), "it is reserved");
    assert_eq!(channel.len(), 1);
    channel.try_send(2).unwrap();
    // Which one is reserved is open: the order stays.
    assert_eq!(channel.try_recv(), Ok(1));
    assert_eq!(channel.try_recv(), Err(TryRecv::Empty));
    assert_eq!(future.poll(&channel), Poll::Ready(Ok(2)));
    // It has had its turn.
    channel.try_send(3).unwrap();
    assert_eq!(channel.try_recv(), Ok(3));
    assert!(future.poll(&channel).is_pending());
    channel.try_send(4).unwrap();
    assert_eq!(channel.try_recv(), Ok(4));
    channel.leave_recv(&mut future.party);
}

#[test]
fn what_is_reserved_for_one_that_leaves_is_there_for_the_next() {
    let channel = Channel::bounded(1);
    let (mut gone, mut next) = (Future::starving(&channel), Future::new());
    assert!(next.poll(&channel).is_pending());
    channel.try_send(1).unwrap();
    assert!(gone.is_woken() && !next.is_woken());
    channel.leave_recv(&mut gone.party);
    assert!(next.is_woken());
    assert_eq!(
        channel.try_recv(),
        Ok(1),
        "nothing is reserved for the next"
    );
    assert!(next.poll(&channel).is_pending());
    channel.leave_recv(&mut next.party);
}

#[test]
fn two_starve_and_each_has_its_value() {
    let channel = Channel::bounded(4);
    let mut both = [Future::new(), Future::new()];
    for future in &mut both {
        assert!(future.poll(&channel).is_pending());
    }
    for _ in 0..OVERTAKEN_MAX {
        channel.try_send(1).unwrap();
        channel.try_send(2).unwrap();
        assert_eq!((channel.try_recv(), channel.try_recv()), (Ok(1), Ok(2)));
        for future in &mut both {
            assert!(future.is_woken());
            assert!(future.poll(&channel).is_pending());
        }
    }
    channel.try_send(1).unwrap();
    assert_eq!(channel.try_recv(), Err(TryRecv::Empty));
    channel.try_send(2).unwrap();
    assert_eq!(channel.try_recv(), Err(TryRecv::Empty));
    channel.try_send(3).unwrap();
    assert_eq!(channel.try_recv(), Ok(1));
    assert_eq!(channel.try_recv(), Err(TryRecv::Empty));
    for (future, value) in both.iter_mut().zip([2, 3]) {
        assert_eq!(future.poll(&channel), Poll::Ready(Ok(value)));
    }
}

#[test]
fn nothing_is_reserved_after_the_close() {
    let channel = Channel::bounded(2);
    let mut future = Future::starving(&channel);
    channel.try_send(1).unwrap();
    channel.close();
    assert_eq!(channel.try_recv(), Ok(1));
    assert_eq!(channel.try_recv(), Err(TryRecv::Closed));
    assert_eq!(future.poll(&channel), Poll::Ready(Err(Reason::Closed)));
}

/// A future that was told and is forgotten holds one value back, at each kind of channel; the others go on being received.
#[test]
fn one_that_never_looks_holds_back_one_value() {
    for limit in [1, 3, usize::MAX] {
        let channel = if limit == usize::MAX {
            Channel::unbounded()
        } else {
            Channel::bounded(limit)
        };
        let mut forgotten = Future::starving(&channel);
        channel.try_send(1).unwrap();
        for number in 2..20 {
            let mut sending = Polled::new(Waker::wake);
            let waker = Waker::from(Arc::<Bell>::default());
            let sent = channel.poll_send(&mut sending, &mut Some(number), &waker);
            assert_eq!(sent.is_pending(), limit == 1);
            assert_eq!(channel.try_recv(), Ok(number - 1));
            if sent.is_pending() {
                assert!(
                    channel
                        .poll_send(&mut sending, &mut None, &waker)
                        .is_ready()
                );
            }
            assert_eq!(channel.try_recv(), Err(TryRecv::Empty));
        }
        channel.leave_recv(&mut forgotten.party);
        assert_eq!(channel.try_recv(), Ok(19));
    }
}

/// The sender of whose value a starving future was told gives up: the future keeps its turn.
#[test]
fn one_that_was_told_of_a_value_that_went_away_keeps_its_turn() {
    let channel = Channel::rendezvous();
    let mut future = Future::new();
    assert!(future.poll(&channel).is_pending());
    let waker = Waker::from(Arc::<Bell>::default());
    for round in 0..=OVERTAKEN_MAX {
        let mut sending = Polled::new(Waker::wake);
        let sent = channel.poll_send(&mut sending, &mut Some(round), &waker);
        assert!(sent.is_pending() && future.is_woken());
        assert_eq!(channel.leave_send(&mut sending), Some(round));
        assert!(future.poll(&channel).is_pending());
    }
    let mut sending = Polled::new(Waker::wake);
    let sent = channel.poll_send(&mut sending, &mut Some(1), &waker);
    assert!(sent.is_pending());
    assert_eq!(channel.try_recv(), Err(TryRecv::Empty));
    assert_eq!(future.poll(&channel), Poll::Ready(Ok(1)));
    assert!(
        channel
            .poll_send(&mut sending, &mut None, &waker)
            .is_ready()
    );
}

/// A value comes at this wait of somebody's, and another is faster; not any more when one is reserved.
fn overtake(channel: &Channel<u32>, wait: u32) {
    channel.try_send(wait).unwrap();
    let taken = channel.try_recv();
    if wait <= OVERTAKEN_MAX {
        assert_eq!(taken, Ok(wait - 1));
    } else {
        assert_eq!(taken, Err(TryRecv::Empty), "one is reserved for each");
    }
}

/// A thread or coroutine that waits beside a value kept for a future which never looks is told of the next ones, and others take
/// them.
// contract: Y9
#[test]
fn a_waiting_receiver_is_overtaken_a_bounded_number_of_times() {
    let channel = Channel::unbounded();
    let mut forgotten = Future::starving(&channel);
    channel.try_send(0).unwrap();
    let party = ScriptParty::new(|now| {
        overtake(&channel, now.wait);
    });
    assert_eq!(channel.recv(&party), Ok(OVERTAKEN_MAX));
    assert_eq!(party.waits(), OVERTAKEN_MAX + 1);
    channel.leave_recv(&mut forgotten.party);
    assert_eq!(channel.try_recv(), Ok(OVERTAKEN_MAX + 1));
}

/// An arm of a select that is told of a value has the same turns: it waits before those who came later, and one value is reserved for it after
/// so many looks in vain. The other arm changes nothing.
// contract: Y9, Y10
#[test]
fn an_arm_is_overtaken_a_bounded_number_of_times() {
    let (channel, silent) = (Channel::unbounded(), Channel::<u32>::unbounded());
    let mut forgotten = Future::starving(&channel);
    channel.try_send(0).unwrap();
    let mut late = Future::new();
    let party = ScriptParty::new(|now| {
        overtake(&channel, now.wait);
        if now.wait == 1 {
            assert!(late.poll(&channel).is_pending());
        }
        assert!(!late.is_woken(), "the arm waits before it");
    });
    let (quiet, arm) = (RecvArm::new(&silent), RecvArm::new(&channel));
    let arms: [&dyn Arm; 2] = [&quiet, &arm];
    let record = Record {
        kind: Kind::Select,
        object: 0,
        owner: 0,
    };
    // SAFETY: two arms that nobody else waits for.
    let chosen = unsafe { wait_any(&arms, WaitTurn::from_arm(0), &party, record) };
    assert_eq!(chosen, Ok(1));
    assert_eq!(arm.take(), Some(Ok(OVERTAKEN_MAX)));
    assert_eq!(party.waits(), OVERTAKEN_MAX + 1);
    drop(party);
    channel.leave_recv(&mut late.party);
    channel.leave_recv(&mut forgotten.party);
    assert_eq!(channel.try_recv(), Ok(OVERTAKEN_MAX + 1));
    assert_eq!(silent.try_recv(), Err(TryRecv::Empty));
}

/// Nothing stays reserved for an arm whose select ends in another way.
// contract: Y9, Y10
#[test]
fn an_arm_that_gives_up_keeps_no_value_back() {
    let channel = Channel::unbounded();
    let mut forgotten = Future::starving(&channel);
    channel.try_send(0).unwrap();
    let party = ScriptParty::new(|now| {
        if now.wait > OVERTAKEN_MAX {
            assert!(now.strike(Reason::Timeout), "nobody else has");
        } else {
            channel.try_send(now.wait).unwrap();
            assert_eq!(channel.try_recv(), Ok(now.wait - 1));
        }
    });
    let arm = RecvArm::new(&channel);
    let record = Record {
        kind: Kind::Select,
        object: 0,
        owner: 0,
    };
    // SAFETY: one arm that nobody else waits for.
    let chosen = unsafe { wait_any(&[&arm], WaitTurn::from_arm(0), &party, record) };
    assert_eq!(chosen, Err(Reason::Timeout));
    channel.leave_recv(&mut forgotten.party);
    assert_eq!(channel.try_recv(), Ok(OVERTAKEN_MAX));
    channel.try_send(7).unwrap();
    assert_eq!(channel.try_recv(), Ok(7));
}

/// Futures are polled, dropped and made at random, while others take and senders come and go. Whatever happens: the order stays, a
/// woken future is overtaken a bounded number of times, and when a future waits that was not woken then there is nothing for it.
// contract: Y9
#[test]
fn nobody_waits_beside_a_value() {
    let mut chance = Chance::new();
    for round in 0..rounds(2_000) {
        let limit = [0, 1, 3, usize::MAX][usize::try_from(round % 4).unwrap()];
        Crowd::new(limit, round % 3 == 0, chance.fork()).run();
    }
}

struct Crowd {
    channel: Channel<u32>,
    chance: Chance,
    /// Whether most of what is sent is taken at once, so that futures starve.
    is_greedy: bool,
    futures: Vec<(Future, u32)>,
    senders: VecDeque<(Polled<u32>, u32)>,
    sent: u32,
    newest: u32,
    given_up: u32,
}

impl Crowd {
    fn new(limit: usize, is_greedy: bool, chance: Chance) -> Self {
        Self {
            channel: if limit == usize::MAX {
                Channel::unbounded()
            } else {
                Channel::bounded(limit)
            },
            chance,
            is_greedy,
            futures: Vec::new(),
            senders: VecDeque::new(),
            sent: 0,
            newest: 0,
            given_up: 0,
        }
    }

    fn run(mut self) {
        for _ in 0..400 {
            self.step();
            self.settle_senders();
            self.check();
        }
        for (mut future, _) in self.futures.drain(..) {
            self.channel.leave_recv(&mut future.party);
        }
        while let Ok(value) = self.channel.try_recv() {
            assert!(self.newest < value);
            self.newest = value;
        }
        self.settle_senders();
        assert!(self.senders.is_empty(), "nothing is reserved for nobody");
    }

    fn got(&mut self, value: u32) {
        assert!(self.newest < value, "the order");
        self.newest = value;
    }

    fn pick(&mut self) -> Option<usize> {
        let count = u64::try_from(self.futures.len()).unwrap();
        (count > 0).then(|| usize::try_from(self.chance.below(count)).unwrap())
    }

    fn step(&mut self) {
        match self.chance.below(12) {
            0 if self.futures.len() < 4 => self.futures.push((Future::new(), 0)),
            1 if !self.is_greedy || self.chance.below(8) == 0 => {
                if let Some(index) = self.pick() {
                    let (mut gone, _) = self.futures.swap_remove(index);
                    self.channel.leave_recv(&mut gone.party);
                }
            }
            2..5 => {
                if let Some(index) = self.pick() {
                    self.poll(index);
                }
            }
            5..8 => {
                if let Ok(value) = self.channel.try_recv() {
                    self.got(value);
                }
            }
            8 if self.chance.below(8) == 0 => {
                // A sender gives up. Those behind it keep their order.
                if let Some((mut party, value)) = self.senders.pop_back() {
                    self.given_up += 1;
                    assert_eq!(self.channel.leave_send(&mut party), Some(value));
                }
            }
            _ => {
                self.send();
                while self.is_greedy && self.chance.below(16) > 0 {
                    let Ok(value) = self.channel.try_recv() else {
                        return;
                    };
                    self.got(value);
                }
            }
        }
    }

    fn poll(&mut self, index: usize) {
        let (future, vain) = &mut self.futures[index];
        let was_told = future.is_woken();
        match future.poll(&self.channel) {
            Poll::Ready(value) => {
                *vain = 0;
                self.got(value.unwrap());
            }
            Poll::Pending if was_told => {
                *vain += 1;
                // Beyond that only a sender that gave up may be the cause.
                assert!(
                    *vain <= OVERTAKEN_MAX + self.given_up,
                    "overtaken {vain} times"
                );
            }
            Poll::Pending => {}
        }
    }

    fn send(&mut self) {
        self.sent += 1;
        match self.channel.try_send(self.sent) {
            Ok(()) => {}
            Err(TrySend::Full(value)) if self.senders.len() < 3 => {
                let mut party = Polled::new(Waker::wake);
                let waker = Waker::from(Arc::<Bell>::default());
                let sent = self.channel.poll_send(&mut party, &mut Some(value), &waker);
                assert!(sent.is_pending());
                self.senders.push_back((party, value));
            }
            Err(refused) => assert!(refused == TrySend::Full(self.sent)),
        }
    }

    /// Senders whose value was taken have gone, from the front.
    fn settle_senders(&mut self) {
        while let Some((party, _)) = self.senders.front_mut() {
            let waker = Waker::from(Arc::<Bell>::default());
            let sent = self.channel.poll_send(party, &mut None, &waker);
            if sent.is_pending() {
                return;
            }
            assert!(sent == Poll::Ready(Ok(())));
            self.senders.pop_front();
        }
    }

    fn check(&self) {
        let values = self.channel.len() + self.senders.len();
        let told = self.futures.iter().filter(|one| one.0.is_woken()).count();
        let waits = |one: &&(Future, u32)| one.0.party.is_waiting() && !one.0.is_woken();
        if self.futures.iter().any(|one| waits(&one)) {
            assert!(values <= told, "{values} values, {told} were told");
        }
    }
}
