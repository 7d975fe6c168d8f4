//! How a group is made: its limit, and which ends cancel it.
//!
//! Owns: nothing.

use std::ops::BitOr;

use super::TaskGroup;
use crate::future::PromiseState;

/// Which ends of an item cancel its group, and so its siblings. They are joined with `|`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CancelOn(u8);

impl CancelOn {
    /// None: all ends are collected.
    pub const NEVER: Self = Self(0);
    /// A failure.
    pub const FAILED: Self = Self(1);
    /// A cancel.
    pub const CANCELLED: Self = Self(2);
    /// A producer that went without a word.
    pub const CLOSED: Self = Self(4);
    /// Any end but a success.
    pub const STOPPED: Self = Self(7);

    /// Whether this end is among them.
    pub(super) fn has(self, end: PromiseState) -> bool {
        let bit = match end {
            PromiseState::Failed => Self::FAILED,
            PromiseState::Cancelled => Self::CANCELLED,
            PromiseState::Closed => Self::CLOSED,
            _ => Self::NEVER,
        };
        self.0 & bit.0 != 0
    }
}

impl BitOr for CancelOn {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Makes a [`TaskGroup`].
#[derive(Debug, Clone, Copy, Default)]
#[must_use]
pub struct TaskGroupBuilder {
    limit: usize,
    cancel_on: CancelOn,
}

impl TaskGroupBuilder {
    /// A builder with every default.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many items may be active at a time; 0: any number.
    ///
    /// One that would be too many is refused (`is_again` of the error), not waited for: a limit against too much work. To have
    /// each wait for its turn, let it begin by [`Semaphore::acquire`](crate::sync::Semaphore::acquire).
    pub fn limit(mut self, items: usize) -> Self {
        self.limit = items;
        self
    }

    /// Which ends cancel the group; none if nothing is said.
    pub fn cancel_on(mut self, ends: CancelOn) -> Self {
        self.cancel_on = ends;
        self
    }

    /// Makes the group.
    #[must_use]
    pub fn build(&self) -> TaskGroup {
        let limit = match self.limit {
            0 => usize::MAX,
            limit => limit,
        };
        TaskGroup::with(limit, self.cancel_on)
    }
}
