//! Without an anchor that ends it in time, a coroutine borrows nothing that could go.
#![expect(unsafe_code, reason = "makes an unanchored coroutine")]

use sinew::coroutine::{Coroutine, Suspender};

fn main() {
    let text = String::from("local");
    let c = unsafe { Coroutine::new_unanchored(|_: &Suspender<(), ()>, ()| text.len()) };
    drop(text);
    drop(c);
}
