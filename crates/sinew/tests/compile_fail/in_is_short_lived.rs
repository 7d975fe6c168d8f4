//! What is handed in lies on the stack until the anchor ends.
use sinew::coroutine::{Coroutine, Suspender, anchor};

fn main() {
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<&str, ()>, first: &str| {
            let _ = s.suspend(());
            println!("{first}");
        });
        let short = String::from("gone before the anchor ends");
        let _ = c.resume(&short);
        std::mem::forget(c);
    });
}
