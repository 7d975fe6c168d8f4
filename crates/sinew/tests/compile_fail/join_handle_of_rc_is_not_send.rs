//! A handle goes to another thread only if the result may.
use std::rc::Rc;

fn main() {
    sinew::run(|| {
        let handle = sinew::spawn_local(|| Rc::new(5));
        let thread = std::thread::spawn(move || handle.join());
        drop(thread);
    });
}
