//! The raw channel: every value on exactly one side, in order, whatever ends the waits.
#![cfg(not(loom))]

mod party;

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use party::{Chance, Limit, ScriptParty, ThreadParty, rounds};
use proptest::prelude::*;
use sinew_core::sharing::{Local, Shared, Sharing};
use sinew_core::sync::{Channel, SendFailed, TryRecv, TrySend};
use sinew_core::wait::Reason;

/// A party whose waits end at once.
fn hasty() -> ThreadParty {
    ThreadParty::with(Limit::After(0, Reason::Timeout))
}

#[derive(Debug, Clone)]
enum Step {
    TrySend,
    Send,
    SendCancelled,
    TryRecv,
    Recv,
    RecvCancelled,
    Close,
    CloseReceivers,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::TrySend),
        4 => Just(Step::Send),
        2 => Just(Step::SendCancelled),
        8 => Just(Step::TryRecv),
        4 => Just(Step::Recv),
        2 => Just(Step::RecvCancelled),
        1 => Just(Step::Close),
        1 => Just(Step::CloseReceivers),
    ]
}

/// What a channel is when nobody waits.
struct Model {
    values: VecDeque<Box<u32>>,
    limit: usize,
    closed: bool,
}

impl Model {
    fn send(&mut self, value: Box<u32>) -> Result<(), TrySend<Box<u32>>> {
        if self.closed {
            return Err(TrySend::Closed(value));
        }
        if self.values.len() >= self.limit {
            return Err(TrySend::Full(value));
        }
        self.values.push_back(value);
        Ok(())
    }

    fn recv(&mut self) -> Result<Box<u32>, TryRecv> {
        let empty = if self.closed {
            TryRecv::Closed
        } else {
            TryRecv::Empty
        };
        self.values.pop_front().ok_or(empty)
    }
}

/// What a send that waits reports where one that does not says `full`.
fn failed(result: Result<(), TrySend<Box<u32>>>, full: Reason) -> Result<(), SendFailed<Box<u32>>> {
    result.map_err(|error| match error {
        TrySend::Full(value) => SendFailed {
            value,
            reason: full,
        },
        TrySend::Closed(value) => SendFailed {
            value,
            reason: Reason::Closed,
        },
    })
}

fn missed(result: Result<Box<u32>, TryRecv>, empty: Reason) -> Result<Box<u32>, Reason> {
    result.map_err(|error| match error {
        TryRecv::Empty => empty,
        TryRecv::Closed => Reason::Closed,
    })
}

proptest! {
    // contract: Y9, Y12
    #[test]
    fn alone_it_is_a_deque(
        limit in prop_oneof![0_usize..4, Just(usize::MAX)],
        steps in prop::collection::vec(step(), 0..300)
    ) {
        is_a_deque::<Shared>(limit, &steps)?;
        is_a_deque::<Local>(limit, &steps)?;
    }
}

#[expect(
    clippy::large_stack_frames,
    reason = "proptest's checks, each with its message"
)]
fn is_a_deque<K: Sharing>(limit: usize, steps: &[Step]) -> Result<(), TestCaseError> {
    let channel = if limit == usize::MAX {
        Channel::<_, K>::unbounded_of_kind()
    } else {
        Channel::bounded_of_kind(limit)
    };
    let mut model = Model {
        values: VecDeque::new(),
        limit,
        closed: false,
    };
    let cancelled = ThreadParty::with(Limit::Refused);
    for (number, step) in (0_u32..).zip(steps) {
        let value = Box::new(number);
        let timeout = Reason::Timeout;
        match step {
            Step::TrySend => prop_assert_eq!(channel.try_send(value.clone()), model.send(value)),
            Step::Send => prop_assert_eq!(
                channel.send(value.clone(), &hasty()),
                failed(model.send(value), timeout)
            ),
            Step::SendCancelled => prop_assert_eq!(
                channel.send(value.clone(), &cancelled),
                failed(model.send(value), Reason::Cancelled)
            ),
            Step::TryRecv => prop_assert_eq!(channel.try_recv(), model.recv()),
            Step::Recv => prop_assert_eq!(channel.recv(&hasty()), missed(model.recv(), timeout)),
            Step::RecvCancelled => prop_assert_eq!(
                channel.recv(&cancelled),
                missed(model.recv(), Reason::Cancelled)
            ),
            Step::Close => {
                prop_assert_eq!(channel.close(), !std::mem::replace(&mut model.closed, true))
            }
            Step::CloseReceivers => {
                prop_assert_eq!(
                    channel.close_receivers(),
                    !std::mem::replace(&mut model.closed, true)
                );
                model.values.clear();
            }
        }
        prop_assert_eq!(channel.len(), model.values.len());
        prop_assert_eq!(channel.is_empty(), model.values.is_empty());
        prop_assert_eq!(channel.is_full(), model.values.len() >= limit);
        prop_assert_eq!(channel.is_closed(), model.closed);
    }
    prop_assert_eq!(channel.capacity(), (limit != usize::MAX).then_some(limit));
    Ok(())
}

#[test]
fn a_rendezvous_ends_when_the_receiver_has_the_value() {
    let channel = Channel::rendezvous();
    let sender = ScriptParty::new(|_| {
        assert_eq!(channel.len(), 0, "nothing is buffered");
        assert_eq!(channel.try_recv(), Ok(5));
    });
    assert_eq!(channel.send(5, &sender), Ok(()));
    let receiver = ScriptParty::new(|_| {
        assert_eq!(channel.try_send(6), Ok(()));
        assert_eq!(channel.try_send(7), Err(TrySend::Full(7)), "it has one");
    });
    assert_eq!(channel.recv(&receiver), Ok(6));
}

#[test]
fn a_waiting_sender_fills_the_place_that_is_freed() {
    let channel = Channel::bounded(2);
    assert_eq!(channel.try_send(1), Ok(()));
    assert_eq!(channel.try_send(2), Ok(()));
    let sender = ScriptParty::new(|now| {
        assert_eq!(channel.try_recv(), Ok(1));
        assert_eq!(channel.len(), 2, "the waiting value has moved up");
        assert_eq!(
            channel.try_send(4),
            Err(TrySend::Full(4)),
            "nobody overtakes"
        );
        assert_eq!(channel.try_recv(), Ok(2));
        assert!(!now.strike(Reason::Timeout), "a claim stands");
    });
    assert_eq!(channel.send(3, &sender), Ok(()));
    assert_eq!(channel.try_recv(), Ok(3));
    assert_eq!(channel.try_recv(), Err(TryRecv::Empty));
}

/// Struck while it is still linked, as by a timer of its own thread that is not running yet.
#[test]
fn one_that_gave_up_is_passed_over() {
    let channel = Channel::bounded(1);
    assert_eq!(channel.try_send(1), Ok(()));
    let second = ScriptParty::new(|_| assert_eq!(channel.try_recv(), Ok(1)));
    let first = ScriptParty::new(|now| {
        assert!(now.strike(Reason::Timeout));
        assert_eq!(channel.send(3, &second), Ok(()));
    });
    let returned = SendFailed {
        value: 2,
        reason: Reason::Timeout,
    };
    assert_eq!(channel.send(2, &first), Err(returned));
    assert_eq!(channel.try_recv(), Ok(3));

    let second = ScriptParty::new(|_| assert_eq!(channel.try_send(4), Ok(())));
    let first = ScriptParty::new(|now| {
        assert!(now.strike(Reason::Cancelled));
        assert_eq!(channel.recv(&second), Ok(4));
        assert_eq!(channel.try_send(5), Ok(()), "into the buffer");
    });
    assert_eq!(channel.recv(&first), Err(Reason::Cancelled));
    assert_eq!(channel.try_recv(), Ok(5));
}

// contract: Y9
#[test]
fn closing_wakes_everyone_and_gives_values_back() {
    let channel = Channel::bounded(1);
    assert_eq!(channel.try_send(1), Ok(()));
    let sender = ScriptParty::new(|_| {
        assert!(channel.close());
        assert!(!channel.close(), "once");
    });
    let refused = channel.send(2, &sender);
    assert_eq!(
        refused,
        Err(SendFailed {
            value: 2,
            reason: Reason::Closed
        })
    );
    assert_eq!(channel.try_send(3), Err(TrySend::Closed(3)));
    assert_eq!(
        channel.recv(&hasty()),
        Ok(1),
        "what was buffered is received"
    );
    assert_eq!(channel.recv(&hasty()), Err(Reason::Closed));
    assert_eq!(channel.try_recv(), Err(TryRecv::Closed));

    let channel = Channel::<u32>::unbounded();
    let receiver = ScriptParty::new(|_| {
        assert!(channel.close());
    });
    assert_eq!(channel.recv(&receiver), Err(Reason::Closed));
}

#[test]
fn the_last_handle_closes() {
    let channel = Channel::bounded(2);
    channel.add_sender();
    channel.add_receiver();
    assert_eq!((channel.sender_count(), channel.receiver_count()), (2, 2));
    assert_eq!(channel.try_send(1), Ok(()));
    channel.remove_sender();
    assert!(!channel.is_closed());
    channel.remove_sender();
    assert!(channel.is_closed());
    channel.remove_receiver();
    assert_eq!(channel.len(), 1);
    channel.remove_receiver();
    assert_eq!(channel.len(), 0, "nobody is left to receive it");
    assert!(catch_unwind(AssertUnwindSafe(|| channel.remove_sender())).is_err());
    assert_eq!(channel.sender_count(), 0);
}

/// A value whose drop uses the channel it was in, and may panic.
struct Reentrant<'a> {
    channel: &'a Channel<Reentrant<'a>>,
    drops: &'a Cell<u32>,
    panics: bool,
}

impl Drop for Reentrant<'_> {
    fn drop(&mut self) {
        self.drops.set(self.drops.get() + 1);
        assert_eq!(self.channel.len(), 0);
        assert_eq!(self.channel.try_recv().err(), Some(TryRecv::Closed));
        self.channel.close_receivers();
        assert!(!self.panics, "this one panics");
    }
}

#[test]
fn values_are_dropped_outside_of_the_lock_and_once() {
    for channel in [Channel::bounded(100), Channel::unbounded()] {
        // The values borrow the channel they are in.
        let channel: &Channel<Reentrant<'_>> = Box::leak(Box::new(channel));
        let drops: &Cell<u32> = Box::leak(Box::new(Cell::new(0)));
        for number in 0..100 {
            let value = Reentrant {
                channel,
                drops,
                panics: number == 40,
            };
            assert!(channel.try_send(value).is_ok());
        }
        let panicked = catch_unwind(AssertUnwindSafe(|| channel.close_receivers()));
        assert!(panicked.is_err(), "the panic is the caller's");
        assert_eq!(drops.get(), 100);
        assert!(!channel.close(), "closed nevertheless");
    }
}

/// A value that knows its number, its producer, and whether it is still alive.
struct Tracked {
    number: usize,
    producer: usize,
    fates: Arc<Fates>,
}

/// What became of each value, and how many were dropped.
struct Fates {
    each: Vec<AtomicU8>,
    drops: AtomicU64,
}

const RECEIVED: u8 = 1;
const RETURNED: u8 = 2;

impl Fates {
    fn settle(&self, number: usize, fate: u8) {
        let before = self.each[number].swap(fate, SeqCst);
        assert_eq!(before, 0, "value {number} had two fates");
    }

    fn count(&self, fate: u8) -> usize {
        self.each
            .iter()
            .filter(|each| each.load(SeqCst) == fate)
            .count()
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.fates.drops.fetch_add(1, SeqCst);
    }
}

/// How a run with threads ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    /// The producers go, and what is buffered is received.
    Senders,
    /// Somebody closes the channel in the midst.
    Close,
    /// The receivers go in the midst.
    Receivers,
}

const PRODUCERS: usize = 3;
const CONSUMERS: usize = 3;

struct Run {
    channel: Channel<Tracked>,
    fates: Arc<Fates>,
    next: AtomicU64,
    ended: AtomicBool,
    /// Numbers that the channel has accepted.
    sent: Mutex<Vec<usize>>,
}

fn produce(run: &Run, mut chance: Chance, producer: usize, end: End) {
    let party = ThreadParty::new();
    let mut sent = Vec::new();
    loop {
        let number = usize::try_from(run.next.fetch_add(1, SeqCst)).unwrap();
        if number >= run.fates.each.len() {
            break;
        }
        if number == run.fates.each.len() / 2 {
            match end {
                End::Senders => {}
                End::Close => assert!(run.channel.close()),
                End::Receivers => {
                    run.ended.store(true, SeqCst);
                    run.channel.close_receivers();
                }
            }
        }
        let value = Tracked {
            number,
            producer,
            fates: run.fates.clone(),
        };
        party.limit.set(chance.limit());
        let result = if chance.below(4) == 0 {
            run.channel.try_send(value).map_err(|error| match error {
                TrySend::Full(value) => (value, None),
                TrySend::Closed(value) => (value, Some(Reason::Closed)),
            })
        } else {
            let result = run.channel.send(value, &party);
            result.map_err(|failed| (failed.value, Some(failed.reason)))
        };
        match result {
            Ok(()) => sent.push(number),
            Err((value, reason)) => {
                assert_eq!(value.number, number);
                assert!(reason != Some(Reason::Closed) || end != End::Senders);
                run.fates.settle(number, RETURNED);
            }
        }
    }
    run.channel.remove_sender();
    run.sent.lock().unwrap().extend(sent);
}

fn consume(run: &Run, mut chance: Chance) {
    let party = ThreadParty::new();
    let mut newest = [None; PRODUCERS];
    loop {
        party.limit.set(chance.limit());
        let result = if chance.below(4) == 0 {
            run.channel
                .try_recv()
                .map_err(|error| error == TryRecv::Closed)
        } else {
            let result = run.channel.recv(&party);
            result.map_err(|reason| reason == Reason::Closed)
        };
        match result {
            Ok(value) => {
                run.fates.settle(value.number, RECEIVED);
                let newest = &mut newest[value.producer];
                assert!(*newest < Some(value.number), "overtaken");
                *newest = Some(value.number);
            }
            Err(true) => break,
            Err(false) => {}
        }
    }
}

fn run_threads(channel: Channel<Tracked>, chance: &mut Chance, end: End, values: usize) {
    let name = format!("{channel:?} {end:?}");
    let each = (0..values).map(|_| AtomicU8::new(0)).collect();
    let run = Run {
        channel,
        fates: Arc::new(Fates {
            each,
            drops: AtomicU64::new(0),
        }),
        next: AtomicU64::new(0),
        ended: AtomicBool::new(false),
        sent: Mutex::new(Vec::new()),
    };
    for _ in 1..PRODUCERS {
        run.channel.add_sender();
    }
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let (run, chance) = (&run, chance.fork());
            scope.spawn(move || produce(run, chance, producer, end));
        }
        for _ in 0..CONSUMERS {
            let (run, chance) = (&run, chance.fork());
            scope.spawn(move || consume(run, chance));
        }
    });
    let sent = run.sent.into_inner().unwrap();
    let (received, returned) = (run.fates.count(RECEIVED), run.fates.count(RETURNED));
    assert_eq!(sent.len() + returned, values, "{name}");
    assert_eq!(run.fates.drops.load(SeqCst), values as u64, "{name}");
    if end == End::Receivers {
        assert!(received <= sent.len(), "{name}");
        assert!(run.ended.load(SeqCst));
    } else {
        assert_eq!(received, sent.len(), "{name}");
    }
    for number in sent {
        let fate = run.fates.each[number].load(SeqCst);
        assert_ne!(
            fate, RETURNED,
            "{name}: value {number} was sent and came back"
        );
    }
}

// contract: Y9, Y11
#[test]
fn every_value_ends_on_exactly_one_side() {
    let mut chance = Chance::new();
    for _ in 0..rounds(10) {
        for end in [End::Senders, End::Close, End::Receivers] {
            for channel in [
                Channel::rendezvous(),
                Channel::bounded(1),
                Channel::bounded(3),
                Channel::unbounded(),
            ] {
                run_threads(channel, &mut chance, end, 2000);
            }
        }
    }
}
