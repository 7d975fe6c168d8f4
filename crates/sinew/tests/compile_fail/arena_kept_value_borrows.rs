//! What is dropped at the coroutine's end must not borrow from a frame inside.

use sinew::coroutine::arena;

struct Looks<'a>(&'a u32);

impl Drop for Looks<'_> {
    fn drop(&mut self) {
        assert_eq!(*self.0, 5);
    }
}

// contract: C12
fn main() {
    let local = 5;
    arena::with(|a| {
        a.keep(Looks(&local));
    });
}
