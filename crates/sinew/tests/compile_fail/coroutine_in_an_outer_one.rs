//! A coroutine of an inner anchor cannot be put where one of an outer anchor finds it.
use sinew::coroutine::{Coroutine, Suspender, anchor};

fn main() {
    anchor(|a| {
        let slot = std::cell::Cell::new(None);
        anchor(|b| {
            slot.set(Some(Coroutine::new(b, |_: &Suspender<(), ()>, ()| ())));
        });
        let mut outer = Coroutine::new(a, |_: &Suspender<(), ()>, ()| drop(slot.take()));
        let _ = outer.resume(());
    });
}
