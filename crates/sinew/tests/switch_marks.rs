//! Every resume point that the runtime's switches are compiled to is marked for indirect-branch tracking.
#![expect(clippy::print_stdout, reason = "says what it skips")]

use sinew::coroutine::{Coroutine, Step, Suspender, anchor};
use sinew::{run, spawn_local, yield_now};

#[path = "../../context/tests/marks/mod.rs"]
mod marks;

// contract: C22
#[test]
fn every_resume_point_in_the_disassembly_is_marked() {
    // So that there are switches of every kind: in the scheduler, and of a stand-alone coroutine.
    run(|| spawn_local(|| yield_now().unwrap()).join().unwrap());
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<u8, u8>, n| s.suspend(n).unwrap());
        assert_eq!(c.resume(1).unwrap(), Step::Suspended(1));
        assert_eq!(c.resume(2).unwrap(), Step::Done(2));
    });
    let Some(found) = marks::find() else { return };
    println!("{} resume points", found.marked);
    // The loop's, a wait's, a suspend's, a resume's.
    assert!(found.marked >= 4, "{found:?}");
    assert!(found.unmarked.is_empty(), "{found:?}");
    assert_eq!(found.start.as_deref(), Some("endbr64"), "{found:?}");
}
