//! What a `block_on` and a wait by polling allocate.

mod memory_rig;

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use memory_rig::requests_of;
use sinew::event::Event;
use sinew::sync::channel::bounded;
use sinew::{block_on, run, spawn_local, yield_now};

// contract: A2
#[test]
fn a_block_on_and_its_wakers_allocate_nothing() {
    let counted = run(|| {
        let given = Rc::new(Cell::new(None::<Waker>));
        let waking = given.clone();
        let waker_of = spawn_local(move || {
            while yield_now().is_ok() {
                if let Some(waker) = waking.take() {
                    waker.wake();
                }
            }
        });
        let counted = requests_of(|| {
            let mut polls = 0;
            let future = poll_fn(|context| {
                polls += 1;
                if polls > 1 {
                    return Poll::Ready(());
                }
                drop(context.waker().clone());
                given.set(Some(context.waker().clone()));
                Poll::Pending
            });
            block_on(future).unwrap();
            assert_eq!(polls, 2);
        });
        waker_of.cancel("counted");
        waker_of.join().unwrap();
        counted
    });
    assert_eq!(counted, 0);
}

// contract: A2
#[test]
fn a_wait_by_polling_allocates_once_and_not_at_all_if_it_need_not_wait() {
    let (ready, waiting) = run(|| {
        let (sender, receiver) = bounded(1);
        let ready = requests_of(|| {
            block_on(sender.send_async(1)).unwrap().unwrap();
            assert_eq!(block_on(receiver.recv_async()).unwrap(), Ok(1));
        });
        let event = Rc::new(Event::auto());
        let setting = event.clone();
        let setter = spawn_local(move || {
            while yield_now().is_ok() {
                setting.set();
            }
        });
        event.reset();
        let waiting = requests_of(|| {
            block_on(event.wait_async()).unwrap();
            event.reset();
        });
        setter.cancel("counted");
        setter.join().unwrap();
        (ready, waiting)
    });
    assert_eq!(ready, 0);
    assert!(waiting <= 1000, "{waiting}");
}
