//! A body cannot keep its suspender beyond its own end.
use std::cell::Cell;

use sinew::coroutine::{Coroutine, Suspender, anchor};

fn main() {
    let kept = Cell::new(None);
    anchor(|a| {
        let mut c = Coroutine::new(a, |s: &Suspender<(), ()>, ()| kept.set(Some(s)));
        let _ = c.resume(());
    });
}
