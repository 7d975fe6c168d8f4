//! Nor by a variable around the call.

use sinew::coroutine::arena;

// contract: C12
fn main() {
    let mut escaped: Option<&str> = None;
    arena::with(|a| escaped = Some(a.alloc_str("text")));
    assert!(escaped.is_some());
}
