//! Nothing is allocated by a wait for an event.

mod memory_rig;

use std::rc::Rc;
use std::time::Duration;

use memory_rig::calls_of;
use sinew::event::{Event, EventTable};
use sinew::{run, spawn_local, yield_now};

// contract: E4
#[test]
fn waiting_for_events_allocates_nothing() {
    let events = Rc::new([Event::auto(), Event::auto(), Event::manual()]);
    let table = Rc::new(EventTable::<u64>::new(8));
    let id = table.create(None, |_, _| ()).unwrap();
    run(|| {
        let partner = spawn_local({
            let events = events.clone();
            move || {
                while events[0].wait().is_ok() {
                    events[1].set();
                    events[2].set();
                }
            }
        });
        yield_now().unwrap();
        let calls = calls_of(|| {
            events[0].set();
            events[1].wait().unwrap();
            events[2].wait_timeout(Duration::from_secs(1)).unwrap();
            assert!(events[2].reset());
            assert!(events[1].wait_timeout(Duration::from_nanos(1)).is_err());
            assert!(table.wait_timeout(id, Duration::from_nanos(1)).is_err());
        });
        assert_eq!(calls, 0, "a wait went through the allocator");
        // What a trigger's argument is shared in is allocated, and freed: by the trigger, not by the waits.
        let waiter = spawn_local({
            let table = table.clone();
            move || while table.wait(id).is_ok() {}
        });
        yield_now().unwrap();
        let calls = calls_of(|| {
            assert_eq!(table.trigger(id, 7), Ok(1));
            yield_now().unwrap();
        });
        assert_eq!(calls, 2 * 1000);
        waiter.cancel("end");
        partner.cancel("end");
    });
    // The same by a plain thread.
    let calls = calls_of(|| {
        events[0].set();
        events[0].wait().unwrap();
        assert!(events[0].wait_timeout(Duration::from_nanos(1)).is_err());
    });
    assert_eq!(calls, 0, "a wait went through the allocator");
}
