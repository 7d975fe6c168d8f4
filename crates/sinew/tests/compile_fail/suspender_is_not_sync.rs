//! A suspender cannot be lent to another thread.
use sinew::coroutine::{Coroutine, Suspender, anchor};

fn main() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let _ = s.suspend(());
                });
            });
        });
        let _ = c.resume(());
    });
}
