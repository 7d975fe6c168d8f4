//! One without an anchor is as bound to its thread as any, and `'static` does not change that.
#![expect(unsafe_code, reason = "makes an unanchored coroutine")]

use sinew::coroutine::{Coroutine, Suspender};

fn main() {
    let c = unsafe { Coroutine::new_unanchored(|_: &Suspender<(), ()>, ()| ()) };
    std::thread::spawn(move || drop(c));
}
