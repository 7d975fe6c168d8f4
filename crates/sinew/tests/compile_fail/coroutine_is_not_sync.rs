//! Not even to look at, or to cancel.
use sinew::coroutine::{Coroutine, Suspender, anchor};

fn main() {
    anchor(|a| {
        let c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| ());
        std::thread::scope(|scope| {
            scope.spawn(|| c.cancel());
        });
    });
}
