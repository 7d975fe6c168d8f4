//! Those that a token tells when it fires: a set with numbers for keys.
//!
//! Owns: the entries. Thread: whichever holds the token's lock.
//!
//! Invariants
//! - I1. A number is given once, so a key that is used again finds nothing.
//! - I2. There is room for at most eight times as many entries as there are, a few aside: each was paid for by an insertion,
//!   and shrinking by as many removals, so both take constant time in the mean.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;

/// See the file's head.
pub(super) struct Listeners<T> {
    entries: HashMap<u64, T, BuildHasherDefault<Spread>>,
    next: u64,
}

/// Below this nothing shrinks, but when it is empty.
const ROOM_MIN: usize = 16;

impl<T> Listeners<T> {
    pub(super) fn new() -> Self {
        Self {
            entries: HashMap::default(),
            next: 0,
        }
    }

    /// Adds an entry; its number is the key to take it out again.
    pub(super) fn insert(&mut self, entry: T) -> u64 {
        let number = self.next;
        self.next += 1;
        self.entries.insert(number, entry);
        number
    }

    /// Takes an entry out, unless it is gone.
    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let entry = self.entries.remove(&number)?;
        let (len, room) = (self.entries.len(), self.entries.capacity());
        if len == 0 {
            self.entries = HashMap::default();
        } else if room > ROOM_MIN && room / 8 > len {
            // INVARIANT: I2.
            self.entries.shrink_to(2 * len);
        }
        Some(entry)
    }

    /// Takes all out, in the order in which they came.
    pub(super) fn take_all(&mut self) -> Vec<T> {
        let mut entries: Vec<_> = mem::take(&mut self.entries).into_iter().collect();
        entries.sort_unstable_by_key(|(number, _)| *number);
        entries.into_iter().map(|(_, entry)| entry).collect()
    }
}

/// Spreads numbers that are given in turn. Nobody outside chooses them, so there is nothing to defend.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio: consecutive numbers land far apart, in the high bits too.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
