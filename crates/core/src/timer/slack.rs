//! Rounding a deadline, so that timers of about the same time are one wake.
//!
//! Pure: numbers in, one out. Source: the slack of a thousandth is that of Linux's `select`; rounding to a common grid instead of
//! searching for a neighbour is what `round_jiffies` does.

use super::TICK_NS;

/// A wait may end late by this part of its length, as a power of two: 1/1024.
const PART_BITS: u32 = 10;
/// And by no more than this, as a power of two of nanoseconds: 524,288 ns.
const GRAIN_BITS_MAX: u32 = 19;

/// How much later than asked timers may end, so that those near each other end together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slack {
    /// Deadlines are multiples of this; 0 if each wait has a grain of its own.
    grid_ns: u64,
}

impl Slack {
    /// A part of each wait: 1/1024, and less than 524,288 ns.
    pub const FINE: Self = Self { grid_ns: 0 };
    /// The most that there can be, in nanoseconds: a second.
    pub const NS_MAX: u64 = 1_000_000_000;

    /// The same for all waits, whatever their length: less than `slack_ns`. 0 is [`Slack::FINE`], and more than
    /// [`Slack::NS_MAX`] is as much as that.
    #[must_use]
    pub const fn of_ns(slack_ns: u64) -> Self {
        let is_in_range = slack_ns <= Self::NS_MAX;
        let grid_ns = if is_in_range { slack_ns } else { Self::NS_MAX };
        Self { grid_ns }
    }

    /// Whether it is [`Slack::FINE`].
    #[must_use]
    #[inline]
    pub const fn is_fine(self) -> bool {
        self.grid_ns == 0
    }

    /// The deadline that a timer is armed with at `now_ns` or soon after: `deadline_ns` or later. One that has passed by then is due now.
    #[must_use]
    #[inline]
    pub fn deadline_ns(self, deadline_ns: u64, now_ns: u64) -> u64 {
        if self.is_fine() {
            return fine(deadline_ns, now_ns);
        }
        if deadline_ns <= now_ns {
            // Also by ticks.
            return deadline_ns & !(TICK_NS - 1);
        }
        on_grid(deadline_ns, self.grid_ns)
    }

    /// Until when to sleep, as the wheel says `next_ns` ([`Wheel::next_deadline_ns`](super::Wheel::next_deadline_ns)), and was last given
    /// the time `now_ns`: the wheel may ask to be woken at the start of a slot, before anything in it can be due.
    ///
    /// Every deadline after `now_ns` in the wheel is to have come by [`Slack::deadline_ns`].
    #[must_use]
    #[inline]
    pub fn wake_ns(self, next_ns: u64, now_ns: u64) -> u64 {
        if self.is_fine() || next_ns <= now_ns {
            return next_ns;
        }
        // The first deadline lies on the grid and, rounded up to a tick, is not before `next_ns`, which is a tick.
        let first_ns = on_grid(next_ns.saturating_sub(TICK_NS - 1), self.grid_ns);
        on_grid(first_ns, TICK_NS)
    }
}

/// `deadline_ns` or later, by less than 1/1024 of the time from `now_ns` to it and by less than
/// 524,288 ns. Deadlines within that of each other mostly become the same.
#[inline]
fn fine(deadline_ns: u64, now_ns: u64) -> u64 {
    let part = deadline_ns.saturating_sub(now_ns) >> PART_BITS;
    let grain = match part.checked_ilog2() {
        Some(bits) => 1_u64 << bits.min(GRAIN_BITS_MAX),
        None => return deadline_ns,
    };
    let below = grain - 1;
    deadline_ns
        .checked_add(below)
        .map_or(u64::MAX, |sum| sum & !below)
}

/// The first multiple of `grid_ns` that is `at_ns` or later; the end of the clock if there is none.
#[inline]
fn on_grid(at_ns: u64, grid_ns: u64) -> u64 {
    at_ns.checked_next_multiple_of(grid_ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
