//! A post may come from any thread, so what is in it must be `Send`.

use std::rc::Rc;

fn main() {
    sinew::Scheduler::anchor(|s| {
        let shared = Rc::new(1);
        s.handle().post(move || drop(shared)).unwrap();
    });
}
