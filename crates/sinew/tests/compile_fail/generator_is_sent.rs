//! A generator stays on its thread as well.

use sinew::coroutine::{Generator, anchor};

fn main() {
    anchor(|a| {
        let generator = Generator::new(a, |y| {
            let _ = y.suspend(1);
        });
        std::thread::scope(|scope| {
            scope.spawn(move || generator.count());
        });
    });
}
