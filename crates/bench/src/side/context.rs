//! `sinew-context`: the bare switch and its stacks, no scheduler.
#![expect(unsafe_code, reason = "coroutines on raw stacks")]

use sinew_context::stack::{Stack, StackCache, StackConfig};
use sinew_context::{Coroutine, Entered, Yielder};

use crate::meter::{Meter, Sample};
use crate::workload::Load;

/// What makes the body of [`resume`] return.
const STOP: usize = usize::MAX;

pub(crate) fn resume(load: Load) -> Result<Sample, String> {
    let stack = Stack::new(&config()?).map_err(|error| error.to_string())?;
    let body = |yielder: &Yielder, mut word| {
        while word != STOP {
            // SAFETY: on the coroutine's own stack, the only one that runs.
            word = unsafe { yielder.suspend(word ^ 1) };
        }
        word
    };
    // SAFETY: the stack is lent until the body has returned, below; one thread.
    let mut coroutine = unsafe { Coroutine::new(stack.base(), body) };
    let mut count = 0;
    let meter = Meter::start();
    for word in 0..load.operations() as usize {
        // SAFETY: it has not been told to stop.
        match unsafe { coroutine.enter(word) } {
            Entered::Suspended(answer) => count += (answer ^ word) as u64,
            Entered::Returned(_) | Entered::Panicked(_) => return Err("it ended early".into()),
        }
    }
    let sample = meter.cpu(count);
    // SAFETY: it is suspended.
    match unsafe { coroutine.enter(STOP) } {
        Entered::Returned(STOP) => Ok(sample),
        _ => Err("it did not end".into()),
    }
}

pub(crate) fn create(load: Load) -> Result<Sample, String> {
    let config = config()?;
    let mut cache = StackCache::default();
    let mut count = 0;
    let meter = Meter::start();
    for word in 0..load.operations() as usize {
        let stack = cache.get(&config).map_err(|error| error.to_string())?;
        // SAFETY: the stack is lent until the body has returned, below; one thread.
        let mut coroutine = unsafe { Coroutine::new(stack.base(), |_, word| word ^ 1) };
        // SAFETY: it is new.
        match unsafe { coroutine.enter(word) } {
            Entered::Returned(answer) => count += (answer ^ word) as u64,
            _ => return Err("it did not return".into()),
        }
        cache.put(stack);
    }
    Ok(meter.cpu(count))
}

fn config() -> Result<StackConfig, String> {
    StackConfig::new(0, 0).map_err(|error| error.to_string())
}
