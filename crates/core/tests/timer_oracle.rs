//! The timing wheel against a plain sorted list: the same calls, the same answers.
//!
//! Every operation is compared, so a difference is found at the call that shows it. The seeded
//! driver prints its seed; `SINEW_SEED` replays one.

mod timer_rig;

use proptest::prelude::*;
use timer_rig::{Model, Random, Rig, stress};

const HOUR_NS: u64 = 3_600_000_000_000;
const NODES: usize = 150;

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert(usize, u64),
    /// The same by a caller that may allocate.
    InsertReserving(usize, u64),
    Remove(usize),
    /// Pops at most one node at a time this much after the latest.
    PopOne(u64),
    /// Pops everything due at a time this much after the latest.
    Drain(u64),
    /// Gives a time this much before the latest.
    Back(u64),
    /// Moves time to exactly what the wheel says, as a sleeper does.
    SleepAndDrain,
}

struct Pair {
    rig: Rig,
    model: Model,
    now_ns: u64,
}

impl Pair {
    fn new(now_ns: u64, is_crowded: bool) -> Self {
        let rig = if is_crowded { Rig::crowded } else { Rig::new };
        Self {
            rig: rig(NODES, now_ns),
            model: Model::new(now_ns),
            now_ns,
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Insert(id, deadline_ns) => {
                if !self.model.contains(id) {
                    self.rig.insert(id, deadline_ns);
                    self.model.insert(id, deadline_ns);
                }
            }
            Op::InsertReserving(id, deadline_ns) => {
                if !self.model.contains(id) {
                    self.rig.insert_reserving(id, deadline_ns);
                    self.model.insert(id, deadline_ns);
                }
            }
            Op::Remove(id) => assert_eq!(self.rig.remove(id), self.model.remove(id)),
            Op::PopOne(step) => {
                self.now_ns = self.now_ns.saturating_add(step);
                self.pop(self.now_ns);
            }
            Op::Drain(step) => {
                self.now_ns = self.now_ns.saturating_add(step);
                while self.pop(self.now_ns) {}
            }
            Op::Back(step) => {
                self.pop(self.now_ns.saturating_sub(step));
            }
            Op::SleepAndDrain => {
                if let Some(wake_ns) = self.rig.wheel.next_deadline_ns() {
                    self.now_ns = self.now_ns.max(wake_ns);
                }
                while self.pop(self.now_ns) {}
            }
        }
        self.check();
    }

    fn pop(&mut self, now_ns: u64) -> bool {
        let popped = self.rig.pop(now_ns);
        assert_eq!(popped, self.model.pop(now_ns), "at {now_ns}");
        if let Some(id) = popped {
            assert!(
                self.rig.node(id).deadline_ns() <= self.now_ns,
                "fired early"
            );
        }
        popped.is_some()
    }

    fn check(&self) {
        assert_eq!(self.rig.wheel.len(), self.model.len());
        assert_eq!(self.rig.wheel.is_empty(), self.model.len() == 0);
        let (wake, latest) = (self.rig.wheel.next_deadline_ns(), self.model.wake_by_ns());
        assert_eq!(wake.is_some(), latest.is_some());
        assert!(
            wake <= latest,
            "sleeping until {wake:?}, but a node is due by {latest:?}"
        );
        for id in 0..NODES {
            assert_eq!(self.rig.node(id).is_linked(), self.model.contains(id));
        }
    }
}

fn deadline(random: &mut Random, now_ns: u64) -> u64 {
    match random.below(12) {
        0 => 0,
        1 => now_ns,
        2 => now_ns.saturating_sub(random.below(5_000)),
        3 => now_ns.saturating_add(1),
        4 => now_ns.saturating_add(50_000),
        5 => u64::MAX - random.below(3) * random.below(2_000),
        6 => now_ns.saturating_add(random.below(3 * HOUR_NS)),
        7 => random.next() >> random.below(64),
        // A few ticks that recur, so that order within one tick is exercised.
        8 | 9 => (now_ns >> 13).saturating_add(random.below(3)) << 13,
        _ => now_ns.saturating_add(random.next() >> (14 + random.below(50))),
    }
}

fn operation(random: &mut Random, now_ns: u64) -> Op {
    let id = random.below(NODES as u64) as usize;
    match random.below(20) {
        0..5 => Op::Insert(id, deadline(random, now_ns)),
        5..9 => Op::InsertReserving(id, deadline(random, now_ns)),
        9..12 => Op::Remove(id),
        12..14 => Op::PopOne(random.below(100_000)),
        14 => Op::Drain(random.below(3_000)),
        15 => Op::Drain(random.next() >> (20 + random.below(44))),
        16 => Op::Drain(random.below(100) * HOUR_NS),
        17 => Op::Back(random.below(HOUR_NS)),
        _ => Op::SleepAndDrain,
    }
}

// contract: S16
#[test]
fn random_calls_answer_as_a_sorted_list_does() {
    let fixed = std::env::var("SINEW_SEED")
        .ok()
        .map(|text| text.parse().expect("SINEW_SEED"));
    let seed: u64 = fixed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("timer oracle: SINEW_SEED={seed}");
    let mut random = Random(seed);
    for _ in 0..1_000 * stress() {
        let start = match random.below(4) {
            0 => 0,
            1 => u64::MAX - random.below(4_096),
            _ => random.next() >> random.below(64),
        };
        let mut pair = Pair::new(start, random.below(4) > 0);
        for _ in 0..300 {
            let op = operation(&mut random, pair.now_ns);
            pair.apply(op);
        }
        pair.apply(Op::Drain(u64::MAX));
        assert!(
            pair.rig.wheel.is_empty(),
            "every deadline comes by the end of time"
        );
    }
}

fn any_time() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(50_000),
        Just(u64::MAX),
        (0..4_096_u64).prop_map(|back| u64::MAX - back),
        (0..1_000_000_u64),
        (0..10 * HOUR_NS),
        (any::<u64>(), 0..64_u32).prop_map(|(bits, shift)| bits >> shift),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..NODES, any_time()).prop_map(|(id, at)| Op::Insert(id, at)),
        3 => (0..NODES, any_time()).prop_map(|(id, at)| Op::InsertReserving(id, at)),
        2 => (0..NODES).prop_map(Op::Remove),
        1 => any_time().prop_map(Op::PopOne),
        1 => any_time().prop_map(Op::Drain),
        1 => any_time().prop_map(Op::Back),
        2 => Just(Op::SleepAndDrain),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // contract: S16
    #[test]
    fn any_sequence_of_calls_answers_as_a_sorted_list_does(
        start in any_time(),
        is_crowded in any::<bool>(),
        ops in proptest::collection::vec(any_op(), 0..200),
    ) {
        let mut pair = Pair::new(start, is_crowded);
        for op in ops {
            pair.apply(op);
        }
    }
}
