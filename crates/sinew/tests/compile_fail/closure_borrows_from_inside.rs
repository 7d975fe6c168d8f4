//! What the closure borrows outlives the anchor, not only the handle.
use sinew::coroutine::{Coroutine, Suspender, anchor};

fn main() {
    anchor(|a| {
        let short = String::from("gone before the anchor ends");
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| {
            let _ = s.suspend(());
            println!("{short}");
        });
        let _ = c.resume(());
        std::mem::forget(c);
    });
}
