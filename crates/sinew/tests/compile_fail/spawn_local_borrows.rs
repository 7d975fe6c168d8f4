//! A coroutine of a scheduler may outlive the frame that spawned it.
fn main() {
    sinew::run(|| {
        let text = String::from("borrowed");
        let handle = sinew::spawn_local(|| println!("{text}"));
        drop(handle);
    });
}
