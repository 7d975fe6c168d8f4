//! No handle leaves the anchor, by return or by assignment.
use sinew::coroutine::{Coroutine, Suspender, anchor};

fn main() {
    let escaped = anchor(|a| Coroutine::new(a, |_: &Suspender<(), ()>, ()| ()));
    drop(escaped);

    let mut slot = None;
    anchor(|a| {
        slot = Some(Coroutine::new(a, |_: &Suspender<(), ()>, ()| ()));
    });
}
