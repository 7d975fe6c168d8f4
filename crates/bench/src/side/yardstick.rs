//! What the least possible costs.

use std::hint::black_box;

use crate::meter::{Meter, Sample};
use crate::workload::Load;

/// Calls a function that the compiler does not see through, a word each way.
pub(crate) fn call(load: Load) -> Result<Sample, String> {
    let callee: fn(u64) -> u64 = black_box(flip);
    let mut count = 0;
    let meter = Meter::start();
    for word in 0..load.operations() {
        count += callee(word) ^ word;
    }
    Ok(meter.cpu(count))
}

#[inline(never)]
fn flip(word: u64) -> u64 {
    word ^ 1
}
