use sinew::sync::channel::bounded;

fn main() {
    let (sender, receiver) = bounded::<String>(1);
    let mut slot = Some("value".to_owned());
    let arm = sender.send_arm(&mut slot);
    // The arm has the slot.
    let taken = slot.take();
    drop((arm, taken, receiver));
}
