//! And what is returned.
use sinew::coroutine::{Coroutine, Suspender, anchor};

fn make<'a, 'env, 'short>(
    a: &'a sinew::coroutine::Anchor<'a, 'env>,
) -> Coroutine<'a, (), (), Option<&'short str>> {
    Coroutine::new(a, |_: &Suspender<(), ()>, ()| None)
}

fn main() {
    anchor(|a| drop(make(a)));
}
