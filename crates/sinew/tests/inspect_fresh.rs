//! Listings from a thread that is told nothing, while control blocks that were never in use are made ready for it. ThreadSanitizer sees whether they
//! are written to as they are looked at; without it this shows that nothing is listed that is not there.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use sinew::inspect::for_each;
use sinew::{run, spawn_local};

// contract: O2
#[test]
fn blocks_that_were_never_in_use_are_not_listed() {
    /// More than two batches of blocks, and a half of one.
    const COROUTINES: usize = 160;
    static ROUNDS: AtomicUsize = AtomicUsize::new(0);
    static OVER: AtomicBool = AtomicBool::new(false);

    // Relaxed all of it: the lister learns of what the scheduler has written by nothing but what it lists.
    let list = || {
        for_each(|info| {
            assert_ne!(info.id, 0);
            assert!(info.spawned_at.file().ends_with("inspect_fresh.rs"));
        });
        ROUNDS.fetch_add(1, Relaxed);
    };
    let lister = thread::spawn(move || {
        while !OVER.load(Relaxed) {
            list();
        }
        list();
    });
    let wait_for_a_round = || {
        let before = ROUNDS.load(Relaxed);
        while ROUNDS.load(Relaxed) < before + 2 && !lister.is_finished() {
            thread::yield_now();
        }
    };
    run(|| {
        wait_for_a_round();
        let all: Vec<_> = (0..COROUTINES).map(|_| spawn_local(|| ())).collect();
        wait_for_a_round();
        for one in all {
            one.join().unwrap();
        }
    });
    // The scheduler has given back what it has not used.
    OVER.store(true, Relaxed);
    lister.join().unwrap();
}
