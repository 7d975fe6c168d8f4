//! A thread-local lives longer than any anchor.
use std::cell::RefCell;

use sinew::coroutine::{Coroutine, Suspender, anchor};

thread_local! {
    static HIDDEN: RefCell<Option<Coroutine<'static, (), (), ()>>> = const { RefCell::new(None) };
}

fn main() {
    anchor(|a| {
        let c = Coroutine::new(a, |_: &Suspender<(), ()>, ()| ());
        HIDDEN.with(|hidden| *hidden.borrow_mut() = Some(c));
    });
}
