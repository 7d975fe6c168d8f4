//! Joins on the coroutine's own thread, which need no locked instruction: what a coroutine had goes with the last of those who know it,
//! once, however the join ends.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use sinew::{Builder, JoinHandle, WaitError, spawn_local, yield_now};

/// Counts its drop.
struct Bell(Arc<AtomicUsize>);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A coroutine, and its name, which is freed with the last reference to it.
fn named<T: 'static>(f: impl FnOnce() -> T + 'static) -> (JoinHandle<T>, Arc<str>) {
    let handle = Builder::new().name("it").spawn_local(f).unwrap();
    let name = handle.name().unwrap();
    (handle, name)
}

fn is_gone(name: &Arc<str>) -> bool {
    Arc::strong_count(name) == 1
}

// contract: S14
#[test]
fn a_joined_coroutine_is_gone_after_its_join() {
    sinew::run(|| {
        for _ in 0..100 {
            let (child, name) = named(|| {
                yield_now().unwrap();
                7
            });
            assert_eq!(child.join().unwrap(), 7);
            assert!(is_gone(&name));
        }
    });
}

// contract: S14
#[test]
fn one_whose_join_gave_up_is_gone_after_its_end() {
    sinew::run(|| {
        let (child, name) = named(sinew::park);
        let unparker = child.unparker();
        let error = child.join_timeout(Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.wait_error(), Some(WaitError::Timeout));
        assert!(!is_gone(&name), "it lives");
        unparker.unpark();
        yield_now().unwrap();
        assert!(!is_gone(&name), "its unparker is there");
        drop(unparker);
        assert!(is_gone(&name));
    });
}

// contract: S14
#[test]
fn one_that_ends_when_its_joiner_has_just_been_cancelled_is_gone_with_the_joiner() {
    for ends_first in [false, true] {
        sinew::run(move || {
            let (result, dropped) = (Rc::new(()), Arc::new(AtomicUsize::new(0)));
            let kept = result.clone();
            let bell = Bell(dropped.clone());
            let (child, name) = named(move || {
                assert_eq!(sinew::park(), Ok(()));
                (kept, bell)
            });
            let unparker = child.unparker();
            let joiner = spawn_local(move || child.join().map(|_| ()).unwrap_err().wait_error());
            yield_now().unwrap();
            yield_now().unwrap();
            if ends_first {
                // Its turn comes before the joiner's, which is claimed.
                unparker.unpark();
                joiner.cancel("");
            } else {
                joiner.cancel("");
                unparker.unpark();
            }
            drop(unparker);
            assert_eq!(joiner.join().unwrap(), Some(WaitError::Cancelled));
            yield_now().unwrap();
            assert_eq!(Rc::strong_count(&result), 1, "the result is dropped");
            assert_eq!(dropped.load(SeqCst), 1);
            assert!(is_gone(&name));
        });
    }
}

// contract: S14
#[test]
fn a_reference_on_another_thread_keeps_it_to_its_own_end() {
    for round in 0..200 {
        sinew::run(move || {
            let (child, name) = named(move || yield_now().map(|()| round).unwrap());
            let unparker = child.unparker();
            let thread = std::thread::spawn(move || {
                unparker.unpark();
                drop(unparker);
            });
            assert_eq!(child.join().unwrap(), round);
            thread.join().unwrap();
            assert!(is_gone(&name));
        });
    }
}

// contract: S14
#[test]
fn a_join_from_another_thread_goes_the_long_way() {
    for round in 0..200 {
        sinew::run(move || {
            let (child, name) = named(move || yield_now().map(|()| round).unwrap());
            let thread = std::thread::spawn(move || child.join().unwrap());
            while !thread.is_finished() {
                yield_now().unwrap();
            }
            assert_eq!(thread.join().unwrap(), round);
            assert!(is_gone(&name));
        });
    }
}
