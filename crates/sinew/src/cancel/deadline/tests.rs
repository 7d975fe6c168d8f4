//! The list of deadlines follows the live tokens.

use std::time::Duration;

use super::{CancelToken, lock};

fn is_watched(deadline_ns: u64) -> bool {
    lock().watched.keys().any(|&(ns, _)| ns == deadline_ns)
}

/// I1, also for a token that only its child has kept alive.
#[test]
fn a_token_that_is_gone_has_no_entry() {
    let parent = CancelToken::with_timeout(Duration::from_secs(3600));
    let deadline_ns = parent.shared.deadline_ns.unwrap();
    let child = parent.child();
    drop(parent);
    assert!(is_watched(deadline_ns));
    drop(child);
    assert!(!is_watched(deadline_ns));
}
