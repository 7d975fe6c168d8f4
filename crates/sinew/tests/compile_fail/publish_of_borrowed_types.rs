//! A coroutine of borrowed values cannot be found by the free `suspend`.

use sinew::coroutine::{Anchor, Coroutine, Suspender, anchor};

fn make<'a>(a: &'a Anchor<'a, '_>, text: &'a str) {
    let _ = Coroutine::new(a, move |s: &Suspender<(), &'a str>, ()| {
        s.publish();
        s.suspend(text).is_ok()
    });
    let _ = Coroutine::<(), &'a str, ()>::builder(a).published();
}

fn main() {
    let text = String::from("local");
    anchor(|a| make(a, &text));
}
