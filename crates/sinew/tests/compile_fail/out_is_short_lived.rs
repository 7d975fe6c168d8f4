//! What is handed out may lie on the stack as well.
use sinew::coroutine::{Coroutine, Suspender, anchor};

fn make<'a, 'env, 'short>(
    a: &'a sinew::coroutine::Anchor<'a, 'env>,
) -> Coroutine<'a, (), &'short str, ()> {
    Coroutine::new(a, |_: &Suspender<(), &'short str>, ()| ())
}

fn main() {
    anchor(|a| drop(make(a)));
}
