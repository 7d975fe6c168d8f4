//! A coroutine stays on its thread.
use sinew::coroutine::{Coroutine, Suspender, anchor};

fn main() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| ());
        std::thread::scope(|scope| {
            scope.spawn(move || c.resume(()));
        });
    });
}
