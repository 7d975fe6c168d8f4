//! What the timer tests share: a safe wheel over numbered nodes, a naive model, a generator.
//!
//! - I1: the nodes are boxed once and never move, and are dropped after the wheel, so the duties of
//!   `Wheel::insert` hold whatever a test does.

#![allow(dead_code, reason = "each test program uses its part of the rig")]
#![expect(
    unsafe_code,
    reason = "the wheel takes nodes by address; this wraps it for all tests"
)]

use std::ptr::NonNull;

use sinew_core::timer::{TICK_NS, TimerNode, Wheel};

/// Enough for a wheel to count them as many.
const CROWD: usize = 64;

/// A wheel and the nodes that may be linked into it.
pub(crate) struct Rig {
    pub(crate) wheel: Wheel,
    nodes: Box<[TimerNode]>,
}

impl Rig {
    pub(crate) fn new(nodes: usize, now_ns: u64) -> Self {
        let nodes = (0..nodes).map(|_| TimerNode::new()).collect();
        Self {
            wheel: Wheel::new(now_ns),
            nodes,
        }
    }

    /// As `new`, of a wheel that has had many timers and keeps them side by side from here on.
    pub(crate) fn crowded(nodes: usize, now_ns: u64) -> Self {
        let mut rig = Self::new(nodes.max(CROWD), now_ns);
        (0..CROWD).for_each(|id| rig.insert_reserving(id, u64::MAX));
        rig.wheel.reserve();
        (0..CROWD).for_each(|id| assert!(rig.remove(id)));
        rig
    }

    /// As `insert`, after a `reserve`.
    pub(crate) fn insert_reserving(&mut self, id: usize, deadline_ns: u64) {
        self.wheel.reserve();
        self.insert(id, deadline_ns);
    }

    pub(crate) fn node(&self, id: usize) -> &TimerNode {
        &self.nodes[id]
    }

    pub(crate) fn insert(&mut self, id: usize, deadline_ns: u64) {
        let node = NonNull::from(&self.nodes[id]);
        // SAFETY: I1; the nodes are only ever borrowed shared.
        unsafe { self.wheel.insert(node, deadline_ns) };
    }

    pub(crate) fn remove(&mut self, id: usize) -> bool {
        let node = NonNull::from(&self.nodes[id]);
        // SAFETY: I1; the nodes are only ever borrowed shared, and there is no other wheel.
        unsafe { self.wheel.remove(node) }
    }

    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<usize> {
        let node = self.wheel.pop_due(now_ns)?;
        let offset = node.addr().get() - self.nodes.as_ptr().addr();
        Some(offset / size_of::<TimerNode>())
    }

    pub(crate) fn drain(&mut self, now_ns: u64) -> Vec<usize> {
        std::iter::from_fn(|| self.pop(now_ns)).collect()
    }
}

/// What a wheel promises, said with a plain list.
#[derive(Default)]
pub(crate) struct Model {
    /// Key, order of insertion, id, deadline.
    list: Vec<(u128, u64, usize, u64)>,
    inserted: u64,
    now_ns: u64,
    /// The key of the latest node popped, or of the time reached: what comes late queues there.
    reached: u128,
}

impl Model {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self {
            now_ns,
            reached: floor_key(now_ns),
            ..Self::default()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn contains(&self, id: usize) -> bool {
        self.list.iter().any(|&(_, _, other, _)| other == id)
    }

    pub(crate) fn insert(&mut self, id: usize, deadline_ns: u64) {
        let tick = u128::from(TICK_NS);
        let key = if deadline_ns <= self.now_ns {
            u128::from(deadline_ns) / tick
        } else {
            u128::from(deadline_ns).div_ceil(tick)
        };
        self.list
            .push((key.max(self.reached), self.inserted, id, deadline_ns));
        self.inserted += 1;
    }

    pub(crate) fn remove(&mut self, id: usize) -> bool {
        let before = self.list.len();
        self.list.retain(|&(_, _, other, _)| other != id);
        self.list.len() < before
    }

    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<usize> {
        self.now_ns = self.now_ns.max(now_ns);
        let target = floor_key(self.now_ns);
        let first = self
            .list
            .iter()
            .copied()
            .min()
            .filter(|&(key, ..)| key <= target);
        let Some(entry) = first else {
            self.reached = target;
            return None;
        };
        assert!(entry.3 <= self.now_ns, "the model itself fired early");
        self.reached = entry.0;
        self.remove(entry.2);
        Some(entry.2)
    }

    /// The latest time until which the owner may sleep.
    pub(crate) fn wake_by_ns(&self) -> Option<u64> {
        let (key, ..) = self.list.iter().min()?;
        Some(u64::try_from(key * u128::from(TICK_NS)).unwrap_or(u64::MAX))
    }
}

/// The tick that a time has reached; the end of time reaches the one after the last.
fn floor_key(now_ns: u64) -> u128 {
    let now = u128::from(now_ns) + u128::from(now_ns == u64::MAX);
    now / u128::from(TICK_NS)
}

/// SplitMix64: small, seeded, good enough to drive tests.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// How much larger stress tests are to be than usual: `SINEW_STRESS`, 1 unless set.
pub(crate) fn stress() -> u64 {
    std::env::var("SINEW_STRESS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1)
        .max(1)
}
