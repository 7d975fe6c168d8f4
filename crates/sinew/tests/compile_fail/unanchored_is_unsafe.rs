//! That it ends in time is the caller's duty, so making one is `unsafe`.

use sinew::coroutine::{Coroutine, Suspender};

fn main() {
    let _ = Coroutine::new_unanchored(|_: &Suspender<(), ()>, ()| ());
    let _ = Coroutine::<(), (), ()>::builder_unanchored();
}
