//! A value that may not be read by two threads at once is not reached from a second one. The producer may go there, but
//! makes no reference.

use std::cell::Cell;

use sinew::future::Promise;

fn main() {
    let (promise, _future) = Promise::<Cell<u8>>::new();
    std::thread::spawn(move || drop(promise.future()));
}
