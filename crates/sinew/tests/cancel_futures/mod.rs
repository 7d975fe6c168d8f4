//! Selects over futures, for the table of cancels.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use sinew::event::Event;
use sinew::future::Promise;
use sinew::sync::channel::bounded;
use sinew::sync::select::{self, Selector};
use sinew::time::now;

use super::{HOUR, Operation, Row, Until};

pub(super) const ROWS: [Row; 3] = [
    ("select of a promise", selecting_promises),
    ("select of a future", selecting_futures),
    ("select of a receiving future", selecting_received),
];

/// A promise's end and a std future's, of which the first comes.
fn selecting_promises() -> Operation {
    let (promise, future) = Promise::new();
    let promise = RefCell::new(Some(promise));
    let wait = move |until| {
        let never = Event::manual();
        let arms = (select::future(never.wait_async()), future.wait_arm());
        let mut selector = Selector::new();
        selector.add(&arms.0);
        selector.add(&arms.1);
        let end = call!(until, selector, wait, wait_timeout, wait_deadline);
        assert_eq!(arms.0.take(), None);
        assert_eq!(arms.1.take().is_some(), end.is_ok());
        end.map(drop).into()
    };
    Operation::new(wait).by(move || promise.take().unwrap().resolve(()).unwrap())
}

/// The same the other way round.
fn selecting_futures() -> Operation {
    let event = Rc::new(Event::auto());
    let waited = Rc::clone(&event);
    let wait = move |until| {
        let (_promise, never) = Promise::<()>::new();
        let arms = (select::future(waited.wait_async()), never.wait_arm());
        let mut selector = Selector::new();
        selector.add(&arms.0);
        selector.add(&arms.1);
        let end = call!(until, selector, wait, wait_timeout, wait_deadline);
        assert_eq!(arms.0.take().is_some(), end.is_ok());
        assert_eq!(arms.1.take(), None);
        end.map(drop).into()
    };
    Operation::new(wait).by(move || event.set())
}

/// A value from a channel, by a future. If the select ends otherwise the value is still there.
fn selecting_received() -> Operation {
    let (sender, receiver) = bounded(1);
    let wait = move |until| {
        let arm = select::future(receiver.recv_async());
        let mut selector = Selector::new();
        selector.add(&arm);
        let end = call!(until, selector, wait, wait_timeout, wait_deadline);
        assert_eq!(arm.take(), end.is_ok().then_some(Ok(())));
        end.map(drop).into()
    };
    Operation::new(wait).by(move || sender.send(()).unwrap())
}
