//! Figures and listings, from inside and from another thread.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use sinew::inspect::{State, find, for_each, stats};
use sinew::sync::Mutex;
use sinew::{Builder, run, sleep, spawn_local, yield_now};

// contract: S21, O2
#[test]
fn a_listing_tells_what_each_coroutine_waits_for() {
    run(|| {
        let mutex = std::rc::Rc::new(Mutex::new(()));
        let held = mutex.lock().unwrap();
        let me = sinew::current().unwrap().id();
        let sleeper = spawn_local(|| sleep(Duration::from_secs(3600)));
        let parker = Builder::new()
            .name("parker")
            .spawn_local(sinew::park)
            .unwrap();
        let locker = spawn_local({
            let mutex = mutex.clone();
            move || mutex.lock().map(drop)
        });
        yield_now().unwrap();
        let ready = spawn_local(|| ());

        let info = find(sleeper.id()).unwrap();
        assert_eq!(info.state, State::Suspended);
        let wait = info.wait.unwrap();
        assert_eq!((wait.what, wait.owner), ("sleep", None));
        assert!(wait.until.unwrap() > wait.since + Duration::from_secs(3500));
        assert_eq!(info.parent, Some(me));
        assert_eq!(find(me).unwrap().parent, None);
        assert!(info.spawned_at.file().ends_with("inspect_listing.rs"));
        assert!(info.stack_used_bytes.unwrap() > 0);
        assert!(info.stack_bytes.unwrap() >= 240 * 1024);

        let info = find(parker.id()).unwrap();
        assert_eq!(info.name.as_deref(), Some("parker"));
        assert_eq!(info.wait.unwrap().what, "park");
        assert_eq!(info.wait.unwrap().until, None);

        let wait = find(locker.id()).unwrap().wait.unwrap();
        assert_eq!(
            (wait.what, wait.owner),
            ("mutex", Some(me)),
            "a mutex knows its owner"
        );

        let info = find(ready.id()).unwrap();
        assert_eq!((info.state, info.stack_bytes), (State::Ready, None));
        assert_eq!(find(me).unwrap().state, State::Running);

        sleeper.cancel("end");
        parker.unparker().unpark();
        drop(held);
        let gone = ready.id();
        ready.join().unwrap();
        assert!(find(gone).is_none(), "what has ended is not listed");
    });
}

// contract: O1, S21
#[test]
fn figures_count_what_happens() {
    std::thread::spawn(|| {
        let before = stats();
        run(|| {
            let handles: Vec<_> = (0..100).map(|_| spawn_local(sinew::park)).collect();
            yield_now().unwrap();
            let now = stats();
            assert!(now.total.created >= before.total.created + 101);
            assert!(now.total.alive >= 101);
            assert!(now.stacks_in_use >= 101);
            assert!(now.stack_reserved_bytes >= 101 * 256 * 1024);
            assert!(now.stack_committed_bytes() >= 101 * 4096);
            for handle in &handles {
                handle.unparker().unpark();
            }
            yield_now().unwrap();
        });
        assert!(stats().total.switches >= before.total.switches + 200);
    })
    .join()
    .unwrap();
}

// contract: O3
#[test]
fn the_high_water_mark_is_exact_to_a_page() {
    #[inline(never)]
    fn deep(levels: usize) -> usize {
        let block = std::hint::black_box([levels as u8; 1024]);
        if levels == 0 {
            usize::from(block[0])
        } else {
            deep(levels - 1) + usize::from(block[1])
        }
    }
    run(|| {
        let spawn = |levels| {
            Builder::new()
                .stack_size(1 << 20)
                .clean_stack(true)
                .spawn_local(move || {
                    std::hint::black_box(deep(levels));
                    sinew::park()
                })
                .unwrap()
        };
        // The next one comes onto a stack that was used in depth.
        let before = spawn(400);
        yield_now().unwrap();
        before.unparker().unpark();
        before.join().unwrap().unwrap();
        let (shallow, deep) = (spawn(1), spawn(200));
        yield_now().unwrap();
        let mark = |id| find(id).unwrap().stack_high_water_bytes().unwrap();
        let (low, high) = (mark(shallow.id()), mark(deep.id()));
        assert!(low < 64 * 1024, "{low}");
        assert!((200 * 1024..800 * 1024).contains(&high), "{high}");
        assert!(find(deep.id()).unwrap().stack_used_bytes.unwrap() < 16 * 1024);
        shallow.unparker().unpark();
        deep.unparker().unpark();
    });
}

// contract: O2
#[test]
fn a_coroutine_that_never_yields_does_not_hold_up_a_listing() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let (tell, told) = mpsc::channel();
    let busy = std::thread::spawn(move || {
        run(move || {
            let sleeper = spawn_local(|| sleep(Duration::from_secs(3600)));
            yield_now().unwrap();
            tell.send((sinew::current().unwrap().id(), sleeper.id()))
                .unwrap();
            while !STOP.load(Relaxed) {
                std::hint::spin_loop();
            }
            sleeper.cancel("end");
        });
    });
    let (spinner, sleeper) = told.recv().unwrap();
    let mut seen = HashSet::new();
    for_each(|info| {
        seen.insert((info.id, info.state));
    });
    assert!(seen.contains(&(spinner, State::Running)), "{seen:?}");
    assert!(seen.contains(&(sleeper, State::Suspended)), "{seen:?}");
    STOP.store(true, Relaxed);
    busy.join().unwrap();
}

// contract: O2
#[test]
fn listings_during_a_storm_are_consistent() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let storm = std::thread::spawn(|| {
        run(|| {
            let mut round = 0_u64;
            while !STOP.load(Relaxed) {
                round += 1;
                let name = format!("n{round}");
                let handle = Builder::new()
                    .name(name)
                    .spawn_local(|| sleep(Duration::from_nanos(1)))
                    .unwrap();
                handle.join().unwrap().unwrap();
            }
        });
    });
    let mut listed = 0;
    for _ in 0..2000 {
        for_each(|info| {
            listed += 1;
            if let Some(name) = &info.name {
                assert!(!name.is_empty());
            }
            if let Some(wait) = info.wait {
                assert_ne!(wait.what, "nothing");
            }
            assert!(info.stack_used_bytes <= info.stack_bytes);
        });
    }
    STOP.store(true, Relaxed);
    storm.join().unwrap();
    assert!(listed > 0);
}
