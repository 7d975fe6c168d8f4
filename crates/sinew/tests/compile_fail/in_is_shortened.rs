//! A handle is invariant: one that takes long-lived values does not pass for one that takes short-lived ones.
use sinew::coroutine::Coroutine;

fn shorten<'a, 'short>(
    c: Coroutine<'a, &'static str, (), ()>,
) -> Coroutine<'a, &'short str, (), ()> {
    c
}

fn lengthen<'long: 'short, 'short>(
    c: Coroutine<'short, (), (), ()>,
) -> Coroutine<'long, (), (), ()> {
    c
}

fn main() {
    let _ = (shorten, lengthen);
}
