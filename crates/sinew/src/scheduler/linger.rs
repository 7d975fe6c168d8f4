//! A thread that is about to sleep looks a moment longer.
//!
//! Owns: nothing but what each place remembers of its last moments. Thread: the waiting one.
//!
//! To sleep in the kernel and to be woken costs both sides some microseconds, so what comes within a few is better looked for: a few
//! pauses, for what another processor is about to do, then a few yields, for what must run on this one first. A place at which that
//! was in vain does it more seldom, at last in one wait of 32, until something comes in time again. Schedulers of Go's kind do the
//! same with their "spinning" threads.
//!
//! Invariants
//! - I1. It ends after a fixed number of steps, whatever is looked for.

use std::cell::Cell;
use std::hint;
use std::thread;

/// Rounds of pauses, each of twice as many as the last: 31 pauses, about a microsecond.
const PAUSE_ROUNDS: u32 = 5;
/// How often the time slice is given away then.
const YIELDS: u32 = 4;
/// After so many moments in vain in a row, it is not done more seldom any more.
const MISSES_MAX: u8 = 5;

/// What a place remembers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Habit {
    misses: u8,
    skips: u8,
}

impl Habit {
    pub(crate) const fn new() -> Self {
        Self {
            misses: 0,
            skips: 0,
        }
    }

    fn after(self, has_come: bool) -> Self {
        if has_come {
            return Self::new();
        }
        let misses = (self.misses + 1).min(MISSES_MAX);
        Self {
            misses,
            skips: (1 << misses) - 1,
        }
    }
}

/// Looks for a moment whether `is_there`, if the habit is for it; says whether it is.
pub(crate) fn linger(habit: &Cell<Habit>, is_there: impl Fn() -> bool) -> bool {
    let known = habit.get();
    if known.skips > 0 {
        habit.set(Habit {
            skips: known.skips - 1,
            ..known
        });
        return is_there();
    }
    let has_come = look(is_there);
    habit.set(known.after(has_come));
    has_come
}

fn look(is_there: impl Fn() -> bool) -> bool {
    for round in 0..PAUSE_ROUNDS {
        if is_there() {
            return true;
        }
        for _ in 0..1 << round {
            hint::spin_loop();
        }
    }
    for _ in 0..YIELDS {
        if is_there() {
            return true;
        }
        thread::yield_now();
    }
    is_there()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_comes_is_looked_for_ever_more_seldom() {
        let habit = Cell::new(Habit::new());
        let looks = Cell::new(0_u32);
        let mut long = 0;
        for _ in 0..320 {
            looks.set(0);
            assert!(!linger(&habit, || {
                looks.set(looks.get() + 1);
                false
            }));
            assert!(looks.get() <= PAUSE_ROUNDS + YIELDS + 1);
            long += u32::from(looks.get() > 1);
        }
        assert!((10..=15).contains(&long), "{long} long looks of 320");
        // What is there at once is seen in a short look too, and a long one in time makes a habit of it.
        assert!(linger(&habit, || true));
        for _ in 0..32 {
            linger(&habit, || true);
        }
        assert_eq!((habit.get().misses, habit.get().skips), (0, 0));
    }
}
