//! Waits within waits on one thread: a primitive and its naive model get the same calls, at random, and must agree on each.
//!
//! A wait that is struck ends for the model at once. What its party does when it goes on, it does for both.

use sinew_core::wait::{Reason, Suspend};

use super::ScriptParty;

/// A primitive beside its model.
pub(crate) trait Oracle {
    /// Less than `end`, at random.
    fn below(&self, end: u64) -> u64;

    /// A party begins to wait, says the model; returns its number.
    fn begin(&self) -> usize;

    /// Whether the wait of this party is over for the model.
    fn is_over(&self, one: usize) -> bool;

    /// The party, whose wait is over, is about to go on. The model may have it wait again, if it was woken to try and tries in vain.
    fn goes_on(&self, _one: usize) {}

    /// The model's part of a strike; says whether the party was waiting.
    fn strike(&self, one: usize, reason: Reason) -> bool;

    /// The real wait of the party, whose result must be the model's.
    fn wait(&self, one: usize, party: &impl Suspend);

    /// The same call to both, which does not wait.
    fn call(&self);
}

/// One more party waits, within the waits of those before it, until all that wait have ended.
pub(crate) fn wait_within(oracle: &impl Oracle, depth: usize) {
    let me = oracle.begin();
    let party = ScriptParty::new(|now| {
        loop {
            let is_over = oracle.is_over(me);
            match oracle.below(6) {
                0 | 1 if depth > 0 => wait_within(oracle, depth - 1),
                2 | 3 if is_over => {
                    oracle.goes_on(me);
                    return;
                }
                0 | 2 => {
                    let reason = [Reason::Timeout, Reason::Cancelled][me % 2];
                    let struck = oracle.strike(me, reason);
                    assert_eq!(now.strike(reason), struck);
                }
                _ => oracle.call(),
            }
        }
    });
    oracle.wait(me, &party);
}
