//! `block_on`: a future that is pending suspends the coroutine and nothing else, and no wake is lost or mistaken.

use std::cell::{Cell, RefCell};
use std::future::{pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use sinew::event::Event;
use sinew::{
    WaitError, block_on, block_on_deadline, block_on_timeout, current, exit_all, go_local, park,
    park_timeout, run, shield, spawn_local, yield_now,
};

const HOUR: Duration = Duration::from_secs(3600);

/// Pending once; `and_then` gets the waker and sees to its being called.
fn once(and_then: impl FnOnce(&Waker)) -> impl Future<Output = ()> {
    let mut and_then = Some(and_then);
    poll_fn(move |context| match and_then.take() {
        None => Poll::Ready(()),
        Some(and_then) => {
            and_then(context.waker());
            Poll::Pending
        }
    })
}

/// Says when it is dropped.
struct Dropped(Rc<Cell<bool>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

// contract: A2
#[test]
fn a_pending_future_suspends_its_coroutine_only() {
    let order = run(|| {
        let order = Rc::new(RefCell::new(Vec::new()));
        let event = Rc::new(Event::auto());
        let awaiting = {
            let (order, event) = (order.clone(), event.clone());
            spawn_local(move || {
                block_on(async {
                    order.borrow_mut().push("awaits");
                    event.wait_async().await;
                    order.borrow_mut().push("goes on");
                })
            })
        };
        yield_now().unwrap();
        let (noting, setting) = (order.clone(), event);
        go_local(move || {
            noting.borrow_mut().push("another runs");
            setting.set();
        });
        awaiting.join().unwrap().unwrap();
        order.take()
    });
    assert_eq!(order, ["awaits", "another runs", "goes on"]);
}

// contract: A2
#[test]
fn on_a_plain_thread_it_blocks_the_thread() {
    let event = Arc::new(Event::auto());
    let setting = event.clone();
    let setter = std::thread::spawn(move || setting.set());
    assert_eq!(block_on(event.wait_async()), Ok(()));
    setter.join().unwrap();
    let limit = Duration::from_millis(1);
    assert_eq!(
        block_on_timeout(pending::<()>(), limit),
        Err(WaitError::Timeout)
    );
    assert_eq!(block_on_timeout(ready(1), Duration::ZERO), Ok(1));
}

// contract: A2
#[test]
fn a_future_that_borrows_the_stack_and_is_not_send_runs() {
    run(|| {
        let local = Rc::new(Cell::new(1));
        let borrowed = &local;
        assert_eq!(block_on(async { borrowed.get() + 1 }), Ok(2));
        let mut lent = pin!(once(|_| ()));
        assert_eq!(
            block_on_timeout(lent.as_mut(), Duration::ZERO),
            Err(WaitError::Timeout)
        );
        assert_eq!(block_on(lent), Ok(()), "one that is lent can go on later");
    });
}

// contract: A2
#[test]
fn where_nothing_may_wait_it_fails_and_the_future_is_not_polled() {
    run(|| {
        let child = spawn_local(|| {
            sinew::defer(|| {
                let polled = Cell::new(false);
                let future = poll_fn(|_| {
                    polled.set(true);
                    Poll::Ready(())
                });
                assert_eq!(block_on(future), Err(WaitError::State));
                assert!(!polled.get());
            });
        });
        child.join().unwrap();
    });
}

// contract: A2
#[test]
fn a_cancel_drops_the_future_before_the_call_returns() {
    run(|| {
        let dropped = Rc::new(Cell::new(false));
        let holding = Dropped(dropped.clone());
        let seen = dropped.clone();
        let child = spawn_local(move || {
            let result = block_on(async move {
                let _holding = holding;
                pending::<()>().await;
            });
            (result, seen.get())
        });
        yield_now().unwrap();
        assert!(!dropped.get());
        child.cancel("enough");
        assert_eq!(child.join().unwrap(), (Err(WaitError::Cancelled), true));
    });
}

// contract: A2
#[test]
fn a_cancel_that_came_before_loses_to_a_future_that_is_ready() {
    run(|| {
        let child = spawn_local(|| {
            current().unwrap().cancel_token().cancel("before");
            assert_eq!(block_on(ready(1)), Ok(1));
            assert_eq!(block_on(pending::<()>()), Err(WaitError::Cancelled));
            assert_eq!(
                block_on(once(|waker| waker.wake_by_ref())),
                Ok(()),
                "one that has woken itself is asked again"
            );
            let within = shield(|| block_on_timeout(pending::<()>(), Duration::from_micros(50)));
            assert_eq!(within, Err(WaitError::Timeout), "a shield defers it");
        });
        child.join().unwrap();
    });
}

// contract: A2
#[test]
fn deadlines_that_are_over_or_near_all_return() {
    run(|| {
        for limit in [0, 1, 50_000].map(Duration::from_nanos) {
            assert_eq!(
                block_on_timeout(pending::<()>(), limit),
                Err(WaitError::Timeout)
            );
        }
        let past = sinew::time::now() - Duration::from_millis(1);
        assert_eq!(
            block_on_deadline(pending::<()>(), past),
            Err(WaitError::Timeout)
        );
        assert_eq!(block_on_deadline(ready(3), past), Ok(3));
        // One that never stops waking itself ends as well.
        let busy = poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert_eq!(
            block_on_timeout(busy, Duration::from_millis(1)),
            Err(WaitError::Timeout)
        );
    });
}

// contract: A2
#[test]
fn a_future_that_wakes_itself_gives_turns() {
    run(|| {
        let turns = Rc::new(Cell::new(0));
        let counting = turns.clone();
        let other = spawn_local(move || {
            while yield_now().is_ok() {
                counting.set(counting.get() + 1);
            }
        });
        let mut polls = 0;
        let busy = poll_fn(|context| {
            polls += 1;
            if polls == 100 {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        });
        block_on(busy).unwrap();
        assert!(turns.get() >= 98, "{} turns", turns.get());
        other.cancel("enough");
        other.join().unwrap();
    });
}

// contract: A2
#[test]
fn a_wake_during_the_poll_is_not_lost() {
    run(|| {
        assert_eq!(block_on(once(|waker| waker.wake_by_ref())), Ok(()));
        let by_value = once(|waker| {
            let waker = waker.clone();
            waker.wake();
        });
        assert_eq!(block_on(by_value), Ok(()));
        let from_afar = once(|waker| {
            let waker = waker.clone();
            std::thread::spawn(move || waker.wake()).join().unwrap();
        });
        assert_eq!(block_on(from_afar), Ok(()));
    });
    assert_eq!(block_on(once(|waker| waker.wake_by_ref())), Ok(()));
}

// contract: A2
#[test]
fn a_wake_from_another_thread_ends_the_wait() {
    run(|| {
        for _ in 0..1000 {
            let (to_waker, wakers) = mpsc::channel::<Waker>();
            let thread = std::thread::spawn(move || wakers.recv().unwrap().wake());
            assert_eq!(
                block_on(once(|waker| to_waker.send(waker.clone()).unwrap())),
                Ok(())
            );
            thread.join().unwrap();
        }
    });
}

// contract: A2
#[test]
fn wakers_outlive_their_coroutine_and_are_cloned_without_end() {
    let kept = run(|| {
        let child = spawn_local(|| {
            let mut kept = Vec::new();
            block_on(once(|waker| {
                kept.extend((0..1_000_000).map(|_| waker.clone()));
                waker.wake_by_ref();
            }))
            .unwrap();
            kept
        });
        let mut kept = child.join().unwrap();
        let late = kept.pop().unwrap();
        late.wake_by_ref();
        std::thread::spawn(move || late.wake()).join().unwrap();
        // Others come and go meanwhile, and are not woken by it.
        for _ in 0..100 {
            let next = spawn_local(|| park_timeout(Duration::ZERO));
            for waker in kept.drain(kept.len() - 10..) {
                waker.wake();
            }
            assert_eq!(next.join().unwrap(), Err(WaitError::Timeout));
        }
        std::mem::forget(kept.pop());
        kept
    });
    // The scheduler is gone.
    for waker in &kept {
        waker.wake_by_ref();
    }
    assert!(kept[0].will_wake(&kept[1]));
}

// contract: A2
#[test]
fn an_unpark_is_no_wake_and_a_wake_is_no_permit() {
    run(|| {
        let polls = Rc::new(Cell::new(0));
        let counting = polls.clone();
        let child = spawn_local(move || {
            let mut waker = None;
            let result = block_on_timeout(
                poll_fn(|context| {
                    counting.set(counting.get() + 1);
                    waker = Some(context.waker().clone());
                    Poll::<()>::Pending
                }),
                Duration::from_millis(5),
            );
            assert_eq!(result, Err(WaitError::Timeout));
            assert_eq!(park(), Ok(()), "the permit was kept");
            waker.unwrap().wake();
            park_timeout(Duration::ZERO)
        });
        yield_now().unwrap();
        child.unparker().unpark();
        assert_eq!(child.join().unwrap(), Err(WaitError::Timeout));
        assert_eq!(polls.get(), 1, "an unpark is not a reason to poll");
    });
}

// contract: A2
#[test]
fn one_within_another_does_not_take_its_wakes() {
    run(|| {
        let mut polls = 0;
        let outer = poll_fn(|context| {
            polls += 1;
            if polls == 2 {
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            // Woken while the inner one waits; that takes it for its own.
            let inner = once(|inner| {
                let inner = inner.clone();
                go_local(move || {
                    waker.wake();
                    for _ in 0..10 {
                        yield_now().unwrap();
                    }
                    inner.wake();
                });
            });
            block_on(inner).unwrap();
            Poll::Pending
        });
        assert_eq!(block_on_timeout(outer, HOUR), Ok(()));
    });
}

// contract: A2
#[test]
fn an_early_end_of_the_scheduler_drops_what_is_pending() {
    let dropped = Rc::new(Cell::new(false));
    let holding = Dropped(dropped.clone());
    let code = sinew::run_code(move || {
        go_local(move || {
            let _ = block_on(async move {
                let _holding = holding;
                pending::<()>().await;
            });
            // One that will not stop is unwound by force, out of a pending future too.
            while block_on(pending::<()>()).is_err() {}
        });
        yield_now().unwrap();
        exit_all(3).unwrap();
        0
    });
    assert_eq!(code, 3);
    assert!(dropped.get());
}

// contract: A2
#[test]
fn a_panic_of_the_future_is_the_callers() {
    run(|| {
        let panicking = catch_unwind(AssertUnwindSafe(|| {
            block_on(async { panic!("in the future") })
        }));
        let payload = panicking.unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"in the future"));
        assert_eq!(block_on(once(|waker| waker.wake_by_ref())), Ok(()));
    });
}

/// A waker of the user's own.
struct Rude {
    called: AtomicU32,
    waited: AtomicBool,
}

impl std::task::Wake for Rude {
    fn wake(self: Arc<Self>) {
        self.called.fetch_add(1, SeqCst);
        let event = Event::auto();
        let state = event.wait_timeout(HOUR) == Err(WaitError::State);
        self.waited.store(!state, SeqCst);
        panic!("in a waker");
    }
}

// contract: A2
#[test]
fn a_foreign_waker_that_panics_or_waits_harms_nobody() {
    let rude = Arc::new(Rude {
        called: AtomicU32::new(0),
        waited: AtomicBool::new(false),
    });
    let waker = Waker::from(rude.clone());
    let caught = catch_unwind(AssertUnwindSafe(|| {
        run(|| {
            let event = Event::manual();
            let mut context = std::task::Context::from_waker(&waker);
            let mut first = pin!(event.wait_async());
            let mut second = pin!(event.wait_async());
            assert!(first.as_mut().poll(&mut context).is_pending());
            assert!(second.as_mut().poll(&mut context).is_pending());
            event.set();
            assert!(second.poll(&mut context).is_ready());
            // At the end of a coroutine too.
            let child = spawn_local(|| ());
            let mut join = pin!(child.into_future());
            assert!(join.as_mut().poll(&mut context).is_pending());
            yield_now().unwrap();
            assert!(join.poll(&mut context).is_ready());
        });
    }));
    assert_eq!(rude.called.load(SeqCst), 3);
    assert!(!rude.waited.load(SeqCst));
    // Where no hook is set, `run` raises the first of them.
    let payload = caught.unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"in a waker"));
}
