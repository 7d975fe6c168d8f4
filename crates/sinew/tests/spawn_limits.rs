//! A coroutine for which no stack can be had. It limits the process, so this file has one test.

use std::rc::Rc;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sinew::{Builder, Outcome, run, spawn_local};

/// Bytes of address space that the process has now.
fn address_space_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    pages * 4096
}

// contract: C17
#[test]
fn without_a_stack_nothing_runs_and_the_join_says_why() {
    run(|| {
        let before = getrlimit(Resource::As);
        let limit = address_space_bytes() + (128 << 20);
        setrlimit(
            Resource::As,
            Rlimit {
                current: Some(limit),
                ..before
            },
        )
        .unwrap();
        let kept = Rc::new(());
        let inside = kept.clone();
        let large = Builder::new().stack_size(1 << 30);
        let refused = large.spawn_local(move || drop(inside)).unwrap();
        refused.wait().unwrap();
        assert_eq!(refused.outcome(), Some(Outcome::Error));
        assert_eq!(Rc::strong_count(&kept), 1, "the closure was dropped");
        let error = refused.join().unwrap_err();
        assert!(error.is_no_memory());
        let text = error.to_string();
        assert!(
            text.contains("no stack") && text.contains("RLIMIT_AS"),
            "{text}"
        );
        // The others go on, and so does this one once there is room.
        spawn_local(|| ()).join().unwrap();
        setrlimit(Resource::As, before).unwrap();
        large.spawn_local(|| ()).unwrap().join().unwrap();
    });
}
