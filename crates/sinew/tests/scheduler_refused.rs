//! The last resort of a scheduler that ends: a coroutine that cannot be unwound is reported, and the process aborts, only when nobody can help it any
//! more.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;
use std::panic::catch_unwind;
use std::rc::Rc;
use std::time::Duration;

use sinew::event::Event;
use sinew::{go_local, park, run, shield, sleep, spawn_local};

/// After how many refused waits in a row the scheduler judges.
const REFUSED_MAX: u32 = 100_000;
/// Every how many it looks.
const LOOK: u32 = 8;

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// The helper is woken right before the look at which the count is full, so that at this one look nobody waits for anything but a turn. It is about to end
/// the loop of the coroutine that is refused all the time.
#[test]
fn one_look_at_which_nobody_waits_ends_no_process() {
    sinew::inspect::on_unhandled(Some(Box::new(|_| {})));
    let refused = Rc::new(Cell::new(0_u32));
    let seen = refused.clone();
    let ended = catch_unwind(std::panic::AssertUnwindSafe(|| {
        run(move || {
            let is_time = Rc::new(Event::auto());
            let help = Rc::new(Event::auto());
            let helped = Rc::new(Cell::new(false));
            // Unwound as soon as unwinds are raised: from then on refusals where none can be count.
            let signal = OnDrop({
                let is_time = is_time.clone();
                move || is_time.set()
            });
            go_local(move || {
                let _signal = signal;
                loop {
                    let _ = park();
                }
            });
            let (asks, is_helped) = (help.clone(), helped.clone());
            let guard = OnDrop(move || {
                while !is_helped.get() {
                    assert!(sleep(Duration::from_secs(60)).is_err());
                    seen.set(seen.get() + 1);
                    if seen.get() == REFUSED_MAX - LOOK / 2 {
                        asks.set();
                    }
                }
            });
            drop(spawn_local(move || {
                let _guard = guard;
                shield(|| is_time.wait()).unwrap();
                panic!("nobody can be unwound from here on");
            }));
            go_local(move || {
                shield(|| help.wait()).unwrap();
                helped.set(true);
            });
            sinew::yield_now().unwrap();
            panic!("the end");
        });
    }));
    assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"the end"));
    assert_eq!(refused.get(), REFUSED_MAX, "the moment that this is about");
}

/// The helper waits again and again, and each time is woken before the next look: it is ready at every one, for more refusals than it takes to judge.
#[test]
fn a_helper_that_is_ready_at_every_look_and_goes_on_is_waited_for() {
    const STEPS: u32 = 2 * REFUSED_MAX / LOOK;
    sinew::inspect::on_unhandled(Some(Box::new(|_| {})));
    let refused = Rc::new(Cell::new(0_u32));
    let seen = refused.clone();
    let ended = catch_unwind(std::panic::AssertUnwindSafe(|| {
        run(move || {
            let is_time = Rc::new(Event::auto());
            let help = Rc::new(Event::auto());
            let helped = Rc::new(Cell::new(false));
            let signal = OnDrop({
                let is_time = is_time.clone();
                move || is_time.set()
            });
            go_local(move || {
                let _signal = signal;
                loop {
                    let _ = park();
                }
            });
            let (asks, is_helped) = (help.clone(), helped.clone());
            let guard = OnDrop(move || {
                while !is_helped.get() {
                    asks.set();
                    assert!(sleep(Duration::from_secs(60)).is_err());
                    seen.set(seen.get() + 1);
                }
            });
            drop(spawn_local(move || {
                let _guard = guard;
                shield(|| is_time.wait()).unwrap();
                panic!("nobody can be unwound from here on");
            }));
            go_local(move || {
                for _ in 0..STEPS {
                    shield(|| help.wait()).unwrap();
                }
                helped.set(true);
            });
            sinew::yield_now().unwrap();
            panic!("the end");
        });
    }));
    assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"the end"));
    assert!(refused.get() > REFUSED_MAX, "the case that this is about");
}
