//! A deferred closure outlives the frames of its coroutine.

// contract: C14
fn main() {
    sinew::run(|| {
        let local = 5;
        sinew::defer(|| assert_eq!(local, 5));
    });
}
