//! Rounding a deadline, so that timers of about the same time are one wake.
//!
//! Pure: two numbers in, one out. Source: the slack of a thousandth is that of Linux's `select`; rounding to a common grain instead of
//! searching for a neighbour is what `round_jiffies` does.

/// A wait may end late by this part of its length, as a power of two: 1/1024.
const PART_BITS: u32 = 10;
/// And by no more than this, as a power of two of nanoseconds: 524,288 ns.
const GRAIN_BITS_MAX: u32 = 19;

/// The deadline that a timer is armed with: `deadline_ns` or later, by less than 1/1024 of the time from `now_ns` to it and by less than
/// 524,288 ns. Deadlines within that of each other mostly become the same.
#[must_use]
#[inline]
pub fn with_slack(deadline_ns: u64, now_ns: u64) -> u64 {
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

#[cfg(test)]
mod tests;
