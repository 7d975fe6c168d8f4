//! Nor is it `Send` by itself.
use sinew::coroutine::{Generator, Suspender, Yielder};

fn is_send<T: Send>() {}

fn main() {
    is_send::<Suspender<(), ()>>();
    is_send::<Yielder<'static, ()>>();
    is_send::<Generator<'static, ()>>();
}
