//! A deferred closure runs when the `with` is over, so it cannot have what is in the arena.

use sinew::coroutine::{arena, defer};

// contract: C12, C14
fn main() {
    sinew::run(|| {
        arena::with(|a| {
            let value = a.alloc(5);
            defer(move || assert_eq!(*value, 5));
        });
    });
}
