//! Values cannot get out of the arena: their lifetime has no name outside.

use sinew::coroutine::arena;

// contract: C12
fn main() {
    let escaped: &mut u32 = arena::with(|a| a.alloc(5));
    *escaped += 1;
}
