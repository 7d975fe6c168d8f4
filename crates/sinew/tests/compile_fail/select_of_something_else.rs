fn main() {
    let (_sender, receiver) = sinew::sync::channel::bounded::<u8>(1);
    let _never = sinew::select! {
        n = receiver.try_recv() => n.is_ok(),
        default => false,
    };
}
