//! A seeded source of chance for the stress tests, which print the seed.
#![allow(
    dead_code,
    reason = "each test file includes this module and uses its own part of it"
)]
#![allow(
    clippy::print_stdout,
    reason = "a failed run is repeated with the seed that it printed"
)]

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A small source of chance (Steele, Lea, Flood: `SplitMix`, 2014).
#[derive(Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    /// From `SINEW_SEED` where that is set; prints it either way.
    pub(crate) fn new() -> Self {
        let seed = match std::env::var("SINEW_SEED") {
            Ok(seed) => seed.parse().expect("SINEW_SEED is a number"),
            Err(_) => RandomState::new().hash_one(0),
        };
        println!("SINEW_SEED={seed}");
        Self(seed)
    }

    /// From this number.
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    /// Something near the time that a wait takes.
    pub(crate) fn moment(&mut self) -> Duration {
        Duration::from_nanos(self.next() % 60_000)
    }

    /// Another source, for a thread or a coroutine of its own.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }
}
