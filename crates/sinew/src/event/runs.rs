//! A set of numbers as runs of consecutive ones: what is taken, and what is free next, in logarithmic time.
//!
//! Owns: the runs.
//!
//! Invariants
//! - I1. Runs are not empty, do not overlap and do not touch: the number after a run is not in the set.

use std::collections::BTreeMap;

/// A set of numbers below `u32::MAX`.
#[derive(Debug)]
pub(super) struct Runs {
    /// First number to the one after the last.
    runs: BTreeMap<u32, u32>,
}

impl Runs {
    /// The empty set.
    pub(super) const fn new() -> Self {
        Self {
            runs: BTreeMap::new(),
        }
    }

    /// The run that `number` is in.
    fn run_of(&self, number: u32) -> Option<(u32, u32)> {
        let (&first, &end) = self.runs.range(..=number).next_back()?;
        (number < end).then_some((first, end))
    }

    /// Whether `number` is in the set.
    pub(super) fn contains(&self, number: u32) -> bool {
        self.run_of(number).is_some()
    }

    /// The first number from `start` on, and else from 0 on, that is below `limit` and not in the set.
    pub(super) fn next_free(&self, start: u32, limit: u32) -> Option<u32> {
        // I1: the end of a run is free.
        let free_from = |number| self.run_of(number).map_or(number, |(_, end)| end);
        [free_from(start), free_from(0)]
            .into_iter()
            .find(|&free| free < limit)
    }

    /// Puts `number` in, which is not in yet.
    pub(super) fn insert(&mut self, number: u32) {
        debug_assert!(!self.contains(number));
        let mut end = number + 1;
        if let Some(after) = self.runs.remove(&end) {
            end = after;
        }
        // INVARIANT: I1: runs that touch become one.
        match self.runs.range_mut(..number).next_back() {
            Some((_, before)) if *before == number => *before = end,
            _ => drop(self.runs.insert(number, end)),
        }
    }

    /// Takes `number` out; says whether it was in.
    pub(super) fn remove(&mut self, number: u32) -> bool {
        let Some((first, end)) = self.run_of(number) else {
            return false;
        };
        if first == number {
            self.runs.remove(&first);
        } else {
            self.runs.insert(first, number);
        }
        if number + 1 < end {
            self.runs.insert(number + 1, end);
        }
        true
    }
}

#[cfg(test)]
mod tests;
