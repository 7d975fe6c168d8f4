//! Nothing is allocated by a select, whether it waits or not.

mod memory_rig;

use std::rc::Rc;
use std::time::Duration;

use memory_rig::calls_of;
use sinew::event::Event;
use sinew::io::Interest;
use sinew::sync::channel::{bounded, rendezvous};
use sinew::sync::select::Selector;
use sinew::{go_local, run, select, spawn_local, yield_now};

// contract: Y10
#[test]
fn a_select_that_waits_allocates_nothing() {
    run(|| {
        let (ping, pings) = rendezvous::<u32>();
        let (pong, pongs) = rendezvous::<u32>();
        let over = Rc::new(Event::manual());
        let other = over.clone();
        let peer = spawn_local(move || {
            loop {
                let n = select! {
                    n = pings.recv() => n.unwrap(),
                    _ = other.wait() => break,
                }
                .unwrap();
                pong.send(n).unwrap();
            }
        });
        let calls = calls_of(|| {
            select! {
                r = ping.send(1) => r.unwrap(),
                () = after(Duration::from_secs(60)) => (),
            }
            .unwrap();
            let n = select! {
                n = pongs.recv() => n.unwrap(),
                () = after(Duration::from_secs(60)) => 0,
            };
            assert_eq!(n, Ok(1));
        });
        assert_eq!(calls, 0);
        over.set();
        peer.join().unwrap();
    });
}

#[test]
fn a_select_at_once_or_in_vain_allocates_nothing() {
    run(|| {
        let (reader, _writer) = sinew::io::pipe().unwrap();
        let (sender, receiver) = bounded::<u32>(1);
        let calls = calls_of(|| {
            assert_eq!(select! { r = sender.send(1) => r.is_ok() }, Ok(true));
            assert_eq!(select! { n = receiver.recv() => n.unwrap() }, Ok(1));
            assert_eq!(
                select! { n = receiver.recv() => n.unwrap(), default => 0 },
                0
            );
            let got = select! {
                n = receiver.recv() => n.unwrap(),
                r = ready(&reader, Interest::Read) => { r.unwrap(); 2 }
                () = after(Duration::from_nanos(1)) => 3,
            };
            assert_eq!(got, Ok(3));
        });
        assert_eq!(calls, 0);
    });
}

#[test]
fn a_selector_allocates_when_it_grows_only() {
    run(|| {
        let event = Rc::new(Event::auto());
        let setter = event.clone();
        go_local(move || {
            for _ in 0..2000 {
                setter.set();
                yield_now().unwrap();
            }
        });
        let arm = event.wait_arm();
        let mut selector = Selector::new();
        selector.add(&arm);
        let calls = calls_of(|| {
            assert_eq!(selector.wait(), Ok(0));
            assert!(arm.take().is_some());
        });
        assert_eq!(calls, 0);
    });
}
