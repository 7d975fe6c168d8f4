//! The free `suspend` knows its coroutine's types by their ids, which are those of `'static` types only.

use sinew::coroutine;

fn hand_out(text: &str) {
    let _ = coroutine::suspend::<(), &str>(text);
}

fn take_in<'a>(_: &'a str) -> Option<&'a str> {
    coroutine::suspend::<&'a str, ()>(()).ok()
}

fn main() {
    hand_out("text");
    take_in("text");
}
