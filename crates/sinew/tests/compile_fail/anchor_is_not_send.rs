//! Nor does it go to one.
use sinew::coroutine::Anchor;

fn is_send<T: Send>() {}

fn main() {
    is_send::<Anchor<'static, 'static>>();
}
