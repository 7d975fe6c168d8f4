//! An arm whose outcome is something has a pattern for it.

fn main() {
    let (_sender, receiver) = sinew::sync::channel::bounded::<u32>(1);
    let _ = sinew::select! {
        receiver.recv() => 1,
        after(std::time::Duration::ZERO) => 2,
    };
}
