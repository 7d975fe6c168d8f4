//! An arm has a body.

fn main() {
    let (_sender, receiver) = sinew::sync::channel::bounded::<u32>(1);
    let _ = sinew::select! {
        _ = receiver.recv()
    };
}
