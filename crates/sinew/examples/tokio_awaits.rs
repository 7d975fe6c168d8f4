//! A tokio program that gives a part of its work to coroutines, and awaits them.
//!
//!     cargo run -p sinew --example tokio_awaits
#![expect(clippy::print_stdout, reason = "an example tells what it does")]

use std::time::Duration;

use sinew::future::Promise;
use sinew::sync::channel;
use sinew::{SchedulerHandle, go_local, run, sleep};

fn main() {
    let (promise, started) = Promise::new();
    let (stop, stopping) = channel::rendezvous::<()>();
    // Coroutines live on a thread of their own, here.
    let coroutines = std::thread::spawn(move || {
        run(|| {
            let handle = SchedulerHandle::current().expect("inside of run");
            let _ = promise.resolve(handle);
            let _ = stopping.recv();
        });
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a tokio runtime");
    runtime.block_on(async {
        let handle = started.await.expect("the scheduler starts");
        let (sender, receiver) = channel::bounded(4);
        handle
            .post(move || {
                for name in ["one", "two", "three"] {
                    let sender = sender.clone();
                    go_local(move || {
                        let _ = sleep(Duration::from_millis(5));
                        let _ = sender.send(format!("coroutine {name} has slept"));
                    });
                }
            })
            .expect("the scheduler is open");
        while let Ok(text) = receiver.recv_async().await {
            println!("{text}");
        }
        let _ = stop.send_async(()).await;
    });
    coroutines.join().expect("no panic");
}
