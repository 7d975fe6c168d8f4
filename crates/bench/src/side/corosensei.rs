//! corosensei: bare coroutines, no scheduler.
//!
//! It has no pool of stacks; here one stack is taken back from each coroutine and given to the next, which
//! is what the best of pools would do.

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult};

use crate::meter::{Meter, Sample};
use crate::workload::Load;

/// What makes the body of [`resume`] return.
const STOP: usize = usize::MAX;
/// As large as sinew's, in bytes.
const STACK_BYTES: usize = sinew_context::stack::SIZE_BYTES_DEFAULT;

pub(crate) fn resume(load: Load) -> Result<Sample, String> {
    let mut coroutine: Coroutine<usize, usize, usize> =
        Coroutine::with_stack(stack()?, |yielder, mut word| {
            while word != STOP {
                word = yielder.suspend(word ^ 1);
            }
            word
        });
    let mut count = 0;
    let meter = Meter::start();
    for word in 0..load.operations() as usize {
        match coroutine.resume(word) {
            CoroutineResult::Yield(answer) => count += (answer ^ word) as u64,
            CoroutineResult::Return(_) => return Err("it ended early".into()),
        }
    }
    let sample = meter.cpu(count);
    match coroutine.resume(STOP) {
        CoroutineResult::Return(STOP) => Ok(sample),
        _ => Err("it did not end".into()),
    }
}

pub(crate) fn create(load: Load) -> Result<Sample, String> {
    let mut pool = vec![stack()?];
    let mut count = 0;
    let meter = Meter::start();
    for word in 0..load.operations() as usize {
        let Some(stack) = pool.pop() else {
            return Err("its stack did not come back".into());
        };
        let mut coroutine: Coroutine<usize, (), usize> =
            Coroutine::with_stack(stack, |_, word| word ^ 1);
        match coroutine.resume(word) {
            CoroutineResult::Return(answer) => count += (answer ^ word) as u64,
            CoroutineResult::Yield(()) => return Err("it did not return".into()),
        }
        pool.push(coroutine.into_stack());
    }
    Ok(meter.cpu(count))
}

fn stack() -> Result<DefaultStack, String> {
    DefaultStack::new(STACK_BYTES).map_err(|error| error.to_string())
}
