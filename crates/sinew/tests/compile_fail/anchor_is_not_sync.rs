//! Another thread cannot make coroutines for an anchor.
use sinew::coroutine::{Coroutine, Suspender, anchor};

fn main() {
    anchor(|a| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| ());
                let _ = c.resume(());
            });
        });
    });
}
