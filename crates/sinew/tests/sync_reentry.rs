//! Values whose drop comes back to the channel that drops them: nothing of the user's runs while a primitive has its state borrowed or
//! locked. Each for the channels of all threads and for those of one.

mod io_rig;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use io_rig::watchdog;
use sinew::{run, spawn_local, yield_now};

/// Does something when it is dropped.
struct OnDrop(Option<Box<dyn FnOnce()>>);

impl OnDrop {
    fn new(f: impl FnOnce() + 'static) -> Self {
        Self(Some(Box::new(f)))
    }

    fn quiet() -> Self {
        Self(None)
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

/// How often something was done.
#[derive(Clone, Default)]
struct Tally(Rc<RefCell<u32>>);

impl Tally {
    fn add(&self) {
        *self.0.borrow_mut() += 1;
    }

    fn get(&self) -> u32 {
        *self.0.borrow()
    }
}

macro_rules! reentry {
    ($kind:ident, $channel:path) => {
        mod $kind {
            use super::*;
            use $channel as channel;

            /// The drop of each queued value sends, receives, asks and clones at the channel whose receiver goes.
            #[test]
            fn queued_values_come_back_when_the_receiver_goes() {
                let _watchdog = watchdog();
                let tally = Tally::default();
                for capacity in [4, usize::MAX] {
                    let (sender, receiver) = match capacity {
                        usize::MAX => channel::unbounded(),
                        _ => channel::bounded(capacity),
                    };
                    let tally = tally.clone();
                    run(|| {
                        for _ in 0..4 {
                            let (tally, back) = (tally.clone(), sender.clone());
                            let value = OnDrop::new(move || {
                                assert!(back.try_send(OnDrop::quiet()).is_err());
                                assert!(back.is_closed() && back.is_empty());
                                drop(back.clone());
                                tally.add();
                            });
                            assert!(sender.try_send(value).is_ok());
                        }
                        drop(receiver);
                    });
                }
                assert_eq!(tally.get(), 8);
            }

            /// The value that comes back from a send drops the last receiver of the same channel, where a sender waits.
            #[test]
            fn a_value_drops_the_receiver_that_others_wait_for() {
                let _watchdog = watchdog();
                run(|| {
                    let (sender, receiver) = channel::bounded(1);
                    assert!(sender.try_send(OnDrop::quiet()).is_ok());
                    let waiting = sender.clone();
                    let waiting = spawn_local(move || waiting.send(OnDrop::quiet()).is_err());
                    yield_now().unwrap();
                    let refused = sender.try_send(OnDrop::new(move || drop(receiver)));
                    assert!(refused.is_err() && !sender.is_closed());
                    drop(refused);
                    assert!(sender.is_closed());
                    assert!(waiting.join().unwrap());
                });
            }

            /// A queued value that panics when it is dropped, among others that come back.
            #[test]
            fn a_panic_of_one_drop_keeps_none_of_the_others() {
                let _watchdog = watchdog();
                let tally = Tally::default();
                let (sender, receiver) = channel::unbounded();
                for number in 0..4 {
                    let (tally, back) = (tally.clone(), sender.clone());
                    let value = OnDrop::new(move || {
                        tally.add();
                        assert!(back.try_send(OnDrop::quiet()).is_err());
                        assert_ne!(number, 1, "a drop that panics");
                    });
                    assert!(sender.try_send(value).is_ok());
                }
                assert!(catch_unwind(AssertUnwindSafe(|| drop(receiver))).is_err());
                assert_eq!(tally.get(), 4);
                assert!(sender.is_closed());
            }

            /// The overwritten value of a broadcast sends the next one; one that its last receiver leaves makes another receiver.
            #[test]
            fn broadcast_values_come_back() {
                let _watchdog = watchdog();
                let tally = Tally::default();
                let (sender, receiver) = channel::broadcast(1);
                let sender = Rc::new(sender);
                let (back, theirs) = (sender.clone(), tally.clone());
                let first = OnDrop::new(move || {
                    theirs.add();
                    let theirs = theirs.clone();
                    let again = back.clone();
                    let next = OnDrop::new(move || {
                        theirs.add();
                        drop(again.subscribe());
                        assert!(again.send(OnDrop::quiet()).is_err(), "nobody receives");
                    });
                    assert!(back.send(next).is_ok());
                });
                assert!(sender.send(first).is_ok());
                assert!(sender.send(OnDrop::quiet()).is_ok());
                assert_eq!(tally.get(), 1);
                drop(receiver);
                assert_eq!(tally.get(), 2);
            }

            /// The replaced value of a watch replaces the next, and looks at it.
            #[test]
            fn watched_values_come_back() {
                let _watchdog = watchdog();
                let tally = Tally::default();
                let (sender, receiver) = channel::watch(OnDrop::quiet());
                let sender = Rc::new(sender);
                let (back, theirs) = (sender.clone(), tally.clone());
                let value = OnDrop::new(move || {
                    theirs.add();
                    assert!(back.send(OnDrop::quiet()).is_ok());
                    drop(back.get());
                    drop(back.subscribe());
                });
                assert!(sender.send(value).is_ok());
                assert!(sender.send(OnDrop::quiet()).is_ok());
                assert_eq!(tally.get(), 1);
                assert!(receiver.has_changed());
            }

            /// A oneshot's value that nobody takes drops its own sender's like, and one that is refused its own channel.
            #[test]
            fn a_oneshot_value_comes_back() {
                let _watchdog = watchdog();
                let tally = Tally::default();
                let (sender, receiver) = channel::oneshot();
                let (inner_sender, inner_receiver) = channel::oneshot::<OnDrop>();
                let theirs = tally.clone();
                let value = OnDrop::new(move || {
                    theirs.add();
                    drop(inner_receiver);
                });
                assert!(sender.send(value).is_ok());
                drop(receiver);
                assert_eq!(tally.get(), 1);
                let theirs = tally.clone();
                assert!(
                    inner_sender
                        .send(OnDrop::new(move || theirs.add()))
                        .is_err()
                );
                assert_eq!(tally.get(), 2);
            }
        }
    };
}

reentry!(of_all_threads, sinew::sync::channel);
reentry!(of_one_thread, sinew::sync::local::channel);
