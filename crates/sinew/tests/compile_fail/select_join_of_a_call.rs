fn handle() -> sinew::JoinHandle<u8> {
    sinew::spawn_local(|| 1)
}

fn main() {
    // It would be called once to wait, and once to join.
    let _never = sinew::select! {
        r = handle().join() => r.is_ok(),
    };
}
