//! Nor can another thread look at it, or cancel it by its handle: it is not `Sync`. (Its token can.)

use sinew::coroutine::{Coroutine, Suspender, anchor};

fn main() {
    anchor(|a| {
        let c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| ());
        std::thread::scope(|scope| {
            scope.spawn(|| c.cancel());
        });
    });
}
