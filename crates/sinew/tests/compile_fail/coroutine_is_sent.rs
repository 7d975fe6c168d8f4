//! A coroutine stays on its thread: it is not `Send`.

use sinew::coroutine::{Coroutine, Suspender, anchor};

fn main() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| ());
        std::thread::scope(|scope| {
            scope.spawn(move || c.resume(()).is_ok());
        });
    });
}
