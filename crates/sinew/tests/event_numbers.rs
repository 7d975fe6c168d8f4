//! Numbered events: ids, callbacks, triggers, removals.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sinew::event::{CreateError, Event, EventId, EventTable, Missing, Refusal, TableWaitError};
use sinew::{WaitError, run, spawn_local, yield_now};

const MOMENT: Duration = Duration::from_micros(50);

/// A callback that does nothing.
fn quiet<T>(_: EventId, _: &T) {}

/// Lets everyone run until nobody can.
fn settle() {
    for _ in 0..5 {
        yield_now().unwrap();
    }
}

fn refusal<F>(result: Result<EventId, CreateError<F>>) -> Refusal {
    result.unwrap_err().reason
}

// contract: E8
#[test]
fn ids_are_chosen_or_automatic_and_never_given_twice() {
    let table = EventTable::<()>::new(4);
    assert_eq!((table.limit(), table.is_empty()), (4, true));
    assert_eq!(table.create(Some(EventId(1)), quiet).unwrap(), EventId(1));
    let taken = refusal(table.create(Some(EventId(1)), quiet));
    assert_eq!(taken, Refusal::Taken(EventId(1)));
    let beyond = refusal(table.create(Some(EventId(4)), quiet));
    assert_eq!(
        beyond,
        Refusal::OutOfRange {
            id: EventId(4),
            limit: 4
        }
    );
    let automatic: Vec<_> = (0..3)
        .map(|_| table.create(None, quiet).unwrap().0)
        .collect();
    assert_eq!(automatic, [0, 2, 3]);
    assert_eq!(table.len(), 4);
    assert_eq!(
        refusal(table.create(None, quiet)),
        Refusal::Full { limit: 4 }
    );
    assert_eq!(
        refusal(table.create(Some(EventId(2)), quiet)),
        Refusal::Taken(EventId(2))
    );
    table.remove(EventId(2)).unwrap();
    assert!(!table.contains(EventId(2)) && table.contains(EventId(3)));
    assert_eq!(table.create(None, quiet).unwrap(), EventId(2));
    let none = EventTable::<()>::new(0);
    assert_eq!(
        refusal(none.create(None, quiet)),
        Refusal::Full { limit: 0 }
    );
}

// contract: E8
#[test]
fn automatic_ids_go_round_before_one_is_used_again() {
    let table = EventTable::<()>::new(3);
    for expected in [0, 1, 2, 0, 1] {
        let id = table.create(None, quiet).unwrap();
        assert_eq!(id, EventId(expected));
        table.remove(id).unwrap();
    }
    let most = EventTable::<()>::new(u32::MAX);
    let last = EventId(u32::MAX - 1);
    assert_eq!(most.create(Some(last), quiet).unwrap(), last);
    assert_eq!(most.create(None, quiet).unwrap(), EventId(0));
}

// contract: E8
#[test]
fn a_refused_callback_comes_back_and_the_errors_name_the_id() {
    let table = EventTable::<u8>::new(2);
    table.create(Some(EventId(0)), quiet).unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    let counted = ran.clone();
    let error = table
        .create(Some(EventId(0)), move |_, _| {
            counted.fetch_add(1, SeqCst);
        })
        .unwrap_err();
    assert_eq!(error.to_string(), "the event id 0 is taken");
    (error.callback)(EventId(0), &1);
    assert_eq!(ran.load(SeqCst), 1);
    let error = table.create(Some(EventId(7)), quiet).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the event id 7 is not below the table's limit 2"
    );
    let missing = EventId(1);
    assert_eq!(table.trigger(missing, 5), Err(Missing(missing)));
    assert_eq!(table.remove(missing), Err(Missing(missing)));
    let error = TableWaitError::Missing(missing);
    assert_eq!(table.wait(missing), Err(error));
    assert_eq!(table.wait_timeout(missing, MOMENT), Err(error));
    let past = sinew::time::now();
    assert_eq!(table.wait_deadline(missing, past), Err(error));
    assert_eq!(error.to_string(), "there is no event 1");
}

// contract: E8
#[test]
fn a_trigger_runs_the_callback_and_then_wakes_all_with_the_argument() {
    run(|| {
        let table = Rc::new(EventTable::<String>::new(8));
        let calls = Arc::new(Mutex::new(Vec::new()));
        let seen = calls.clone();
        let id = table
            .create(Some(EventId(5)), move |id, arg: &String| {
                seen.lock().unwrap().push((id.0, arg.clone()));
            })
            .unwrap();
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let (table, calls) = (table.clone(), calls.clone());
                spawn_local(move || {
                    let arg = table.wait(id);
                    (arg, calls.lock().unwrap().len())
                })
            })
            .collect();
        settle();
        assert_eq!(table.trigger(id, "now".to_owned()), Ok(3));
        for waiter in waiters {
            let (arg, calls_before) = waiter.join().unwrap();
            assert_eq!((arg.as_deref(), calls_before), (Ok("now"), 1));
        }
        assert_eq!(*calls.lock().unwrap(), [(5, "now".to_owned())]);
    });
}

// contract: E8
#[test]
fn a_trigger_without_waiters_is_not_kept() {
    let table = EventTable::<u8>::new(1);
    let id = table.create(None, quiet).unwrap();
    let timeout = Err(TableWaitError::Wait(WaitError::Timeout));
    let check = || {
        assert_eq!(table.trigger(id, 1), Ok(0));
        assert_eq!(table.wait_timeout(id, MOMENT), timeout);
        assert_eq!(table.wait_timeout(id, Duration::ZERO), timeout);
        assert_eq!(table.wait_deadline(id, sinew::time::now()), timeout);
        assert_eq!(table.trigger(id, 2), Ok(0), "who gave up does not wait");
    };
    check();
    run(check);
}

// contract: E8
#[test]
fn a_removal_wakes_all_with_closed_and_frees_the_id() {
    run(|| {
        let table = Rc::new(EventTable::<u8>::new(1));
        let id = table.create(None, quiet).unwrap();
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let table = table.clone();
                spawn_local(move || table.wait(id))
            })
            .collect();
        settle();
        waiters[0].cancel("first");
        settle();
        table.remove(id).unwrap();
        // A new event under the old number is another event.
        assert_eq!(table.create(Some(id), quiet).unwrap(), id);
        assert_eq!(table.trigger(id, 1), Ok(0));
        let ends: Vec<_> = waiters
            .into_iter()
            .map(|waiter| waiter.join().unwrap())
            .collect();
        let closed = Err(TableWaitError::Wait(WaitError::Closed));
        let cancelled = Err(TableWaitError::Wait(WaitError::Cancelled));
        assert_eq!(ends, [cancelled, closed, closed]);
    });
}

// contract: E8
#[test]
fn who_was_woken_has_the_argument_although_cancelled_and_removed() {
    run(|| {
        let table = Rc::new(EventTable::<u8>::new(1));
        let id = table.create(None, quiet).unwrap();
        let other = table.clone();
        let waiter = spawn_local(move || other.wait(id));
        settle();
        assert_eq!(table.trigger(id, 9), Ok(1));
        waiter.cancel("too late");
        table.remove(id).unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(9));
    });
}

// contract: E8
#[test]
fn a_panic_of_the_callback_reaches_the_trigger_after_all_were_woken() {
    run(|| {
        let table = Rc::new(EventTable::<u8>::new(1));
        let id = table
            .create(None, |_, &arg| {
                if arg == 1 {
                    std::panic::resume_unwind(Box::new("from the callback"));
                }
            })
            .unwrap();
        let other = table.clone();
        let waiter = spawn_local(move || (other.wait(id), other.wait(id)));
        settle();
        let end = catch_unwind(AssertUnwindSafe(|| table.trigger(id, 1)));
        assert_eq!(
            *end.unwrap_err().downcast::<&str>().unwrap(),
            "from the callback"
        );
        settle();
        assert_eq!(table.trigger(id, 2), Ok(1), "the table goes on");
        assert_eq!(waiter.join().unwrap(), (Ok(1), Ok(2)));
    });
}

/// Counts its drops, and panics where it is cloned if it is told to.
struct Arg {
    drops: Arc<AtomicUsize>,
    panics: bool,
}

impl Clone for Arg {
    fn clone(&self) -> Self {
        if self.panics {
            std::panic::resume_unwind(Box::new("from the clone"));
        }
        Self {
            drops: self.drops.clone(),
            panics: false,
        }
    }
}

impl Drop for Arg {
    fn drop(&mut self) {
        self.drops.fetch_add(1, SeqCst);
    }
}

// contract: E8
#[test]
#[cfg(not(sinew_shuffle))] // It is about who comes first.
fn arguments_are_dropped_once_and_a_clone_that_panics_hits_its_waiter_only() {
    let drops = Arc::new(AtomicUsize::new(0));
    run(|| {
        let table = Rc::new(EventTable::<Arg>::new(1));
        let id = table.create(None, quiet).unwrap();
        let arg = |panics| Arg {
            drops: drops.clone(),
            panics,
        };
        assert_eq!(table.trigger(id, arg(false)), Ok(0));
        assert_eq!(drops.load(SeqCst), 1);
        assert!(table.trigger(EventId(9), arg(false)).is_err());
        assert_eq!(drops.load(SeqCst), 2);
        for panics in [false, true] {
            let waiters: Vec<_> = (0..3)
                .map(|_| {
                    let table = table.clone();
                    spawn_local(move || table.wait(id).map(drop))
                })
                .collect();
            settle();
            assert_eq!(table.trigger(id, arg(panics)), Ok(3));
            let ends: Vec<_> = waiters
                .into_iter()
                .map(|waiter| waiter.join().is_ok())
                .collect();
            // The last one has the argument itself.
            assert_eq!(
                ends,
                if panics {
                    [false, false, true]
                } else {
                    [true; 3]
                }
            );
        }
    });
    assert_eq!(drops.load(SeqCst), 2 + 3 + 1);
}

// contract: E8
#[test]
fn a_callback_may_use_its_table_and_lives_until_it_has_run() {
    static TABLE: EventTable<u8> = EventTable::new(4);
    let alive = Arc::new(());
    let held = alive.clone();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let id = TABLE
        .create(None, move |id, &arg| {
            if arg > 0 {
                // A trigger within a trigger.
                TABLE.trigger(id, arg - 1).unwrap();
            } else {
                TABLE.remove(id).unwrap();
                assert_eq!(TABLE.remove(id), Err(Missing(id)));
                assert_eq!(TABLE.trigger(id, 0), Err(Missing(id)));
                TABLE.create(Some(id), quiet).unwrap();
            }
            assert_eq!(Arc::strong_count(&held), 2, "dropped while it runs");
            counted.fetch_add(1, SeqCst);
        })
        .unwrap();
    run(|| {
        let waiter = spawn_local(move || TABLE.wait(id));
        settle();
        assert_eq!(TABLE.trigger(id, 3), Ok(0), "the removal came first");
        assert_eq!(
            waiter.join().unwrap(),
            Err(TableWaitError::Wait(WaitError::Closed))
        );
    });
    assert_eq!(runs.load(SeqCst), 4);
    assert_eq!(Arc::strong_count(&alive), 1, "dropped after its last run");
}

// contract: E8
#[test]
fn a_removal_drops_the_callback_though_its_waiters_have_not_run() {
    run(|| {
        let table = Rc::new(EventTable::<u8>::new(1));
        let alive = Arc::new(());
        let held = alive.clone();
        let id = table.create(None, move |_, _| drop(held.clone())).unwrap();
        let other = table.clone();
        let waiter = spawn_local(move || other.wait(id));
        settle();
        table.remove(id).unwrap();
        assert_eq!(Arc::strong_count(&alive), 1);
        waiter.join().unwrap().unwrap_err();
    });
}

// contract: E8, E7
#[test]
fn a_wait_within_a_callback_fails_and_takes_nothing() {
    static SIGNAL: Event = Event::auto();
    static TABLE: EventTable<u8> = EventTable::new(2);
    let inner = TABLE.create(None, quiet).unwrap();
    let id = TABLE
        .create(None, move |_, &arg| {
            if arg > 0 {
                // Left again, the inner callback does not let its caller wait.
                TABLE.trigger(EventId(1), arg - 1).unwrap();
            }
            let state = Err(WaitError::State);
            assert_eq!(SIGNAL.wait(), state);
            assert_eq!(SIGNAL.wait_timeout(MOMENT), state);
            assert_eq!(
                TABLE.wait(inner),
                Err(TableWaitError::Wait(WaitError::State))
            );
            assert_eq!(sinew::park_timeout(MOMENT), state);
            assert_eq!(sinew::sleep(MOMENT), state);
            assert_eq!(yield_now(), state);
            assert!(SIGNAL.is_set(), "the signal was taken");
        })
        .unwrap();
    let check = || {
        SIGNAL.set();
        assert_eq!(TABLE.trigger(id, 1), Ok(0));
        assert_eq!(SIGNAL.wait(), Ok(()), "afterwards it is as before");
        yield_now().unwrap();
    };
    check();
    run(check);
    // Also after a panic.
    let table = EventTable::<u8>::new(1);
    let id = table
        .create(None, |_, _| std::panic::resume_unwind(Box::new("end")))
        .unwrap();
    let check = || {
        assert!(catch_unwind(AssertUnwindSafe(|| table.trigger(id, 1))).is_err());
        SIGNAL.set();
        assert_eq!(SIGNAL.wait(), Ok(()));
    };
    check();
    run(check);
}

// contract: E8, Y11
#[test]
fn a_trigger_wakes_coroutines_of_two_schedulers_and_threads() {
    static TABLE: EventTable<Vec<u8>> = EventTable::new(1);
    let id = TABLE.create(None, quiet).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|which| {
            std::thread::spawn(move || {
                let wait = move || TABLE.wait(id).unwrap();
                if which < 2 {
                    return wait().len();
                }
                run(|| {
                    let waiters: Vec<_> = (0..5).map(|_| spawn_local(wait)).collect();
                    waiters
                        .into_iter()
                        .map(|waiter| waiter.join().unwrap().len())
                        .sum()
                })
            })
        })
        .collect();
    let mut woken = 0;
    while woken < 12 {
        woken += TABLE.trigger(id, vec![0; 3]).unwrap();
        std::thread::yield_now();
    }
    let total: usize = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    assert_eq!((woken, total), (12, 12 * 3));
}

#[test]
fn a_listing_tells_one_numbered_event_from_another() {
    run(|| {
        let table = Rc::new(EventTable::<u8>::new(2));
        let objects: Vec<_> = (0..2)
            .map(|_| {
                let id = table.create(None, quiet).unwrap();
                let other = table.clone();
                let waiter = spawn_local(move || other.wait(id));
                settle();
                let wait = sinew::inspect::find(waiter.id()).unwrap().wait.unwrap();
                assert_eq!(wait.what, "event");
                waiter.cancel("seen");
                wait.object
            })
            .collect();
        assert_ne!(objects[0], objects[1]);
        let seen = Cell::new(false);
        sinew::inspect::for_each(|_| seen.set(true));
        assert!(seen.get());
        assert!(format!("{table:?}").contains("len: 2"));
    });
}
