//! Another order of the ready queue, for tests: built only with `--cfg sinew_shuffle`.
//!
//! Owns: the numbers that choose who runs next. Thread: the scheduler's.
//!
//! What is promised is that one which gives its turn away ([`crate::yield_now`]) runs after all that were ready then, and before those that
//! are ready later: that stays. In which order those run that were started or woken in between is nothing to rely on, and this changes it.
//! `cargo xtask shuffled` runs the suite so, by a seed that it prints, to find out which tests rely on it. The
//! seed is that of `SINEW_SHUFFLE`; without it the order is as ever.
//!
//! Invariants
//! - I1. One of the first [`REACH`] runs next, each as likely as the others, so the oldest one is passed over a thousand times in a row
//!   less often than once in the age of the world.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// How far down the queue the choice goes.
const REACH: u64 = 8;

/// See the file's head.
#[derive(Debug)]
pub(super) struct Shuffle {
    /// 0: the order stays.
    state: Cell<u64>,
}

impl Shuffle {
    /// As the environment says. Each scheduler of the process has numbers of its own.
    pub(super) fn from_environment() -> Self {
        static SCHEDULERS: AtomicU64 = AtomicU64::new(1);
        let seed = std::env::var("SINEW_SHUFFLE").ok();
        let seed = seed.and_then(|seed| seed.parse::<u64>().ok());
        let which = SCHEDULERS.fetch_add(1, Relaxed);
        let state = seed.map_or(0, |seed| {
            seed.wrapping_add(which.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1
        });
        Self {
            state: Cell::new(state),
        }
    }

    /// Which of those that wait runs next, counted from the oldest, if there are so many.
    pub(super) fn choose(&self) -> u64 {
        let mut state = self.state.get();
        if state == 0 {
            return 0;
        }
        // Marsaglia's xorshift, 2003.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.state.set(state);
        (state >> 32) % REACH
    }
}
