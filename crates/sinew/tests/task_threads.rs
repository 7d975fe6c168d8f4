//! Threads that the system does not give: a pool and a worker that cannot be built leave nothing, and no job is lost.
//!
//! Alone in its process: the limit holds for all of it.

mod pool_rig;

use pool_rig::{threads_named, until};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sinew::task::{Outcome, TaskPool, Worker};

const STACK_BYTES: usize = 256 << 20;

/// Of address space that the process has.
fn mapped_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    kib * 1024
}

// contract: T11
#[test]
fn a_pool_of_which_a_thread_cannot_be_started_leaves_none() {
    let build = |threads| {
        let builder = TaskPool::builder().name("scarce").threads(threads);
        builder.stack_size(STACK_BYTES).build()
    };
    let before = getrlimit(Resource::As);
    // Room for a few of the stacks.
    let limit = Rlimit {
        current: Some(mapped_bytes() + 5 * STACK_BYTES as u64),
        maximum: before.maximum,
    };
    setrlimit(Resource::As, limit).unwrap();
    let refused = build(16).map(drop);
    let alone = Worker::builder()
        .stack_size(16 * STACK_BYTES)
        .build()
        .map(drop);
    let few = build(2);
    setrlimit(Resource::As, before).unwrap();
    let error = refused.unwrap_err();
    assert!(error.to_string().contains("starting a thread"), "{error}");
    assert!(alone.is_err());
    // Those that had been started were joined; they are seen a moment longer.
    let few = few.unwrap();
    until(|| threads_named("scarce") == 2);
    let future = few.submit(|_| Outcome::Success(1)).unwrap();
    future.wait().unwrap();
    assert_eq!(future.get().unwrap().unwrap(), &1);
    drop(few);
    until(|| threads_named("scarce") == 0);
}
