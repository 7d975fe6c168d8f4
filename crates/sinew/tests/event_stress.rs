//! Signals across threads, by the million: none is lost, none is doubled.
//!
//! `SINEW_STRESS` multiplies the rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use sinew::event::{Event, EventId, EventTable, TableWaitError};
use sinew::{WaitError, go_local, run, spawn_local};

/// Longer than any hesitation of the machine: a signal that takes this long is lost.
const LOST: Duration = Duration::from_secs(120);

fn rounds(number: u64) -> u64 {
    let factor = std::env::var("SINEW_STRESS").map_or(1, |text| match text.as_str() {
        "full" => 100,
        text => text
            .parse()
            .unwrap_or_else(|_| panic!("SINEW_STRESS={text} is not a number")),
    });
    number * factor
}

/// Waits without sleeping: what comes next then meets the waiter wherever it is on its way.
fn spin_until(number: &AtomicU64, at_least: u64) {
    let mut looks = 0_u32;
    let mut since = None;
    while number.load(SeqCst) < at_least {
        looks = looks.wrapping_add(1);
        if !looks.is_multiple_of(64) {
            std::hint::spin_loop();
            continue;
        }
        std::thread::yield_now();
        if looks.is_multiple_of(1 << 16) {
            let now = sinew::time::now();
            let waited = now.duration_since(*since.get_or_insert(now));
            assert!(waited < LOST, "a signal was lost");
        }
    }
}

// contract: E4
#[test]
fn a_set_while_the_waiter_registers_is_never_lost() {
    let rounds = rounds(500_000);
    for as_coroutine in [true, false] {
        let (event, begun) = (Arc::new(Event::auto()), Arc::new(AtomicU64::new(0)));
        let (wait_at, begin) = (event.clone(), begun.clone());
        let waiter = std::thread::spawn(move || {
            let wait_all = move || {
                for round in 1..=rounds {
                    begin.store(round, SeqCst);
                    wait_at.wait_timeout(LOST).expect("a signal was lost");
                }
            };
            if as_coroutine {
                run(wait_all);
            } else {
                wait_all();
            }
        });
        for round in 1..=rounds {
            spin_until(&begun, round);
            // Now a little earlier, now a little later in the waiter's registration.
            for _ in 0..round * 7 % 97 {
                std::hint::spin_loop();
            }
            event.set();
        }
        waiter.join().unwrap();
        assert!(!event.is_set(), "a signal was doubled");
    }
}

// contract: E1, E4, Y11
#[test]
fn a_token_crosses_schedulers_by_two_events() {
    let rounds = rounds(50_000);
    let events = Arc::new([Event::auto(), Event::auto()]);
    let play = move |me: usize, events: Arc<[Event; 2]>| {
        run(move || {
            for _ in 0..rounds {
                events[me].wait_timeout(LOST).expect("a signal was lost");
                events[1 - me].set();
            }
        });
    };
    events[0].set();
    let other = events.clone();
    let thread = std::thread::spawn(move || play(1, other));
    play(0, events.clone());
    thread.join().unwrap();
    assert!(events[0].try_wait() && !events[1].try_wait());
}

// contract: E1, E3, E4, Y11
#[test]
fn signals_meet_deadlines_and_cancels_and_none_is_lost() {
    let total = rounds(20_000);
    let event = Arc::new(Event::auto());
    let taken = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (event, taken) = (event.clone(), taken.clone());
            std::thread::spawn(move || {
                run(move || {
                    for number in 0..4_u64 {
                        let (event, taken) = (event.clone(), taken.clone());
                        go_local(move || take_by_cancelled(&event, &taken, total, number));
                    }
                });
            })
        })
        .collect();
    // One at a time, so that none is merged with another.
    for sent in 0..total {
        event.set();
        spin_until(&taken, sent + 1);
        assert_eq!(taken.load(SeqCst), sent + 1, "a signal was doubled");
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(!event.is_set(), "a signal was doubled");
}

/// Takes signals by short-lived coroutines that are cancelled, or time out, at about the time a signal comes.
fn take_by_cancelled(event: &Arc<Event>, taken: &Arc<AtomicU64>, total: u64, number: u64) {
    let mut round = number;
    while taken.load(SeqCst) < total {
        round += 1;
        let (event, taken) = (event.clone(), taken.clone());
        let timeout = Duration::from_nanos(round * 37 % 30_000);
        let taker = spawn_local(move || match event.wait_timeout(timeout) {
            Ok(()) => drop(taken.fetch_add(1, SeqCst)),
            Err(error) => assert!(matches!(error, WaitError::Timeout | WaitError::Cancelled)),
        });
        sinew::yield_now().unwrap();
        if round.is_multiple_of(3) {
            taker.cancel("about now");
        }
        taker.wait().unwrap();
    }
}

// contract: E8, Y11
#[test]
fn triggers_cross_threads_and_a_removal_ends_every_wait() {
    static TABLE: EventTable<u64> = EventTable::new(4);
    let rounds = rounds(20_000);
    for round in 0..8 {
        let id = TABLE.create(Some(EventId(round % 4)), |_, _| ()).unwrap();
        let waiters: Vec<_> = (0..2)
            .map(|which| {
                std::thread::spawn(move || {
                    let wait_on = move || {
                        let mut last = 0;
                        loop {
                            match TABLE.wait_timeout(id, LOST) {
                                Ok(number) => {
                                    assert!(number > last, "a trigger came twice or late");
                                    last = number;
                                }
                                // Removed while it waited, or before it waited again.
                                Err(TableWaitError::Wait(WaitError::Closed)) => return last,
                                Err(TableWaitError::Missing(missing)) => {
                                    assert_eq!(missing, id);
                                    return last;
                                }
                                Err(error) => panic!("{error}"),
                            }
                        }
                    };
                    if which == 0 { run(wait_on) } else { wait_on() }
                })
            })
            .collect();
        let mut woken = 0;
        for number in 1..=rounds / 8 {
            woken += TABLE.trigger(id, number).unwrap();
        }
        while woken == 0 {
            woken += TABLE.trigger(id, rounds).unwrap();
        }
        TABLE.remove(id).unwrap();
        let last: Vec<_> = waiters
            .into_iter()
            .map(|waiter| waiter.join().unwrap())
            .collect();
        assert!(last.iter().any(|&last| last > 0), "nobody saw a trigger");
    }
    assert!(TABLE.is_empty());
}
