//! Selects against selects, closes, deadlines and cancels, on one scheduler, on several and on plain threads: every value on
//! exactly one side, every signal in one place.
//!
//! `SINEW_STRESS` multiplies the rounds.

mod chance_rig;
mod io_rig;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chance_rig::Chance;
use io_rig::{stress, watchdog};
use sinew::event::Event;
use sinew::io::Interest;
use sinew::sync::channel::{Receiver, Sender, bounded, rendezvous, unbounded};
use sinew::{JoinHandle, WaitError, go_local, run, select, spawn_local, yield_now};

/// Both ends of a channel.
type Ends = (Sender<Box<u64>>, Receiver<Box<u64>>);

/// What all parties of a run share.
struct Run {
    ends: Vec<Ends>,
    numbers: AtomicU64,
    limit: u64,
    over: Event,
    sent: Mutex<Vec<u64>>,
    got: Mutex<Vec<u64>>,
}

/// One party: sends to one channel or receives from another, whichever comes first, with deadlines near the wait, until
/// all numbers are given out and the run is over.
fn trade(run: &Run, mut chance: Chance) {
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    let mut slot = None;
    loop {
        if slot.is_none() {
            let number = run.numbers.fetch_add(1, Relaxed);
            slot = (number < run.limit).then(|| Box::new(number));
        }
        let number = slot.as_deref().copied();
        let end = |chance: &mut Chance| &run.ends[chance.below(run.ends.len())];
        let (to, from, other) = (end(&mut chance), end(&mut chance), end(&mut chance));
        let traded = select! {
            r = to.0.send_from(&mut slot) => {
                r.expect("nobody closes");
                sent.push(number.expect("an empty slot sends nothing"));
                true
            }
            value = from.1.recv() => {
                got.push(*value.expect("nobody closes"));
                true
            }
            value = other.1.recv() => {
                got.push(*value.expect("nobody closes"));
                true
            }
            () = after(chance.moment()) => true,
            _ = run.over.wait() => false,
        };
        match traded {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                // Cancelled: it is asked to trade no more, and what it holds is put back for others.
                assert_eq!(error, WaitError::Cancelled);
                break;
            }
        }
        if slot.as_deref().copied() != number {
            assert!(slot.is_none(), "sent, or still here");
        }
    }
    if let Some(number) = slot {
        // Not sent: it counts as received by who has it.
        sent.push(*number);
        got.push(*number);
    }
    run.sent.lock().unwrap().extend(sent);
    run.got.lock().unwrap().extend(got);
}

fn run_trade(channel: fn() -> Ends, chance: &mut Chance) {
    let shared = Arc::new(Run {
        ends: (0..3).map(|_| channel()).collect(),
        numbers: AtomicU64::new(0),
        limit: 4_000 * stress() as u64,
        over: Event::manual(),
        sent: Mutex::default(),
        got: Mutex::default(),
    });
    let threads: Vec<_> = (0..4)
        .map(|index| {
            let (run_, mut chance) = (shared.clone(), chance.fork());
            std::thread::spawn(move || {
                if index == 3 {
                    return trade(&run_, chance);
                }
                run(move || {
                    let handles: Vec<JoinHandle<()>> = (0..4)
                        .map(|_| {
                            let (run, chance) = (run_.clone(), chance.fork());
                            spawn_local(move || trade(&run, chance))
                        })
                        .collect();
                    // One of them is cancelled at some moment.
                    sinew::sleep(chance.moment() * 20).unwrap();
                    handles[0].cancel("at some moment");
                    for handle in handles {
                        match handle.join() {
                            Ok(()) => {}
                            Err(error) => assert!(error.is_cancelled(), "{error}"),
                        }
                    }
                });
            })
        })
        .collect();
    // All are given out, and what waits in buffers is taken by those who go on.
    while shared.numbers.load(Relaxed) < shared.limit {
        std::thread::yield_now();
    }
    shared.over.set();
    for thread in threads {
        thread.join().unwrap();
    }
    let mut sent = shared.sent.lock().unwrap().clone();
    let mut got = shared.got.lock().unwrap().clone();
    for (_, receiver) in &shared.ends {
        got.extend(receiver.try_iter().map(|value| *value));
    }
    sent.sort_unstable();
    got.sort_unstable();
    assert_eq!(sent, got, "lost or doubled");
    assert_eq!(got.iter().collect::<HashSet<_>>().len(), got.len());
}

// contract: Y9, Y10, Y11
#[test]
fn selects_trade_by_rendezvous_and_nothing_is_lost_or_doubled() {
    let _watchdog = watchdog();
    let mut chance = Chance::new();
    for _ in 0..5 {
        run_trade(rendezvous, &mut chance);
    }
}

// contract: Y9, Y10, Y11
#[test]
fn selects_trade_by_buffers_and_nothing_is_lost_or_doubled() {
    let _watchdog = watchdog();
    let mut chance = Chance::new();
    for channel in [|| bounded(1), || bounded(3), unbounded] {
        run_trade(channel, &mut chance);
    }
}

/// Signals of auto-reset events: each is taken by one arm of one select, or kept.
// contract: Y10, Y11
#[test]
fn signals_are_taken_once() {
    let _watchdog = watchdog();
    let mut chance = Chance::new();
    let events: Arc<[Event; 3]> = Arc::new([const { Event::auto() }; 3]);
    let taken = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let takers: Vec<_> = (0..3)
        .map(|index| {
            let (events, taken, over) = (events.clone(), taken.clone(), over.clone());
            let mut chance = chance.fork();
            let mut take = move || {
                while !over.load(SeqCst) {
                    let number = select! {
                        _ = events[0].wait() => 1,
                        _ = events[1].wait() => 1,
                        _ = events[2].wait() => 1,
                        () = after(chance.moment()) => 0,
                    };
                    taken.fetch_add(number.unwrap(), SeqCst);
                }
            };
            std::thread::spawn(move || if index == 0 { take() } else { run(take) })
        })
        .collect();
    // The next signal is given only when the one before is gone, so that none is one with another.
    let mut given = 0;
    for _ in 0..20_000 * stress() {
        let event = &events[chance.below(3)];
        if !event.is_set() {
            event.set();
            given += 1;
        }
        if chance.below(16) == 0 {
            std::thread::yield_now();
        }
    }
    over.store(true, SeqCst);
    for taker in takers {
        taker.join().unwrap();
    }
    let kept = events.iter().filter(|event| event.try_wait()).count() as u64;
    assert_eq!(taken.load(SeqCst) + kept, given);
}

/// Coroutines of one scheduler only: there all claims are of the same thread.
// contract: Y10
#[test]
fn on_one_scheduler_selects_meet_selects() {
    let _watchdog = watchdog();
    let rounds = 20_000 * stress();
    run(move || {
        let (a, a_end) = rendezvous::<usize>();
        let (b, b_end) = rendezvous::<usize>();
        let peer = {
            let (a_end, b) = (a_end.clone(), b.clone());
            spawn_local(move || {
                let (mut sent, mut got) = (0, 0);
                while sent + got < rounds {
                    select! {
                        r = b.send(1) => { r.unwrap(); sent += 1 }
                        v = a_end.recv() => got += v.unwrap(),
                    }
                    .unwrap();
                }
                (sent, got)
            })
        };
        let (mut sent, mut got) = (0, 0);
        while sent + got < rounds {
            select! {
                r = a.send(1) => { r.unwrap(); sent += 1 }
                v = b_end.recv() => got += v.unwrap(),
            }
            .unwrap();
        }
        assert_eq!(peer.join().unwrap(), (got, sent));
        assert!(sent > 0 && got > 0, "{sent} sent, {got} received");
    });
}

/// Ends of coroutines, readiness, tokens and channels at once, from coroutines and plain threads.
// contract: Y10, Y11
#[test]
fn all_kinds_at_once() {
    let _watchdog = watchdog();
    let mut chance = Chance::new();
    for is_thread in [false, true] {
        for _ in 0..200 * stress() {
            let which = chance.below(4);
            let moment = chance.moment();
            let body = move || {
                let (reader, writer) = sinew::io::pipe().unwrap();
                let (sender, receiver) = rendezvous::<u32>();
                let token = sinew::CancelToken::new();
                let event = Arc::new(Event::auto());
                let (fire, set) = (token.clone(), event.clone());
                let far = sender.clone();
                let rival = std::thread::spawn(move || {
                    std::thread::park_timeout(moment);
                    match which {
                        0 => assert_eq!(rustix::io::write(&writer, &[1]), Ok(1)),
                        1 => far.send(1).unwrap(),
                        2 => fire.cancel("now"),
                        _ => set.set(),
                    }
                    writer
                });
                let got = select! {
                    r = ready(&reader, Interest::Read) => { r.unwrap(); 0 }
                    v = receiver.recv() => v.unwrap() as usize,
                    _ = token.wait() => 2,
                    _ = event.wait() => 3,
                };
                assert_eq!(got, Ok(which));
                drop(rival.join().unwrap());
            };
            if is_thread {
                body();
            } else {
                run(body);
            }
        }
    }
}

/// Deadlines of zero, in the past, and near the wait: each returns.
#[test]
fn a_deadline_near_the_wait_always_returns() {
    let _watchdog = watchdog();
    let mut chance = Chance::new();
    run(move || {
        let (sender, receiver) = rendezvous::<u32>();
        let over = Arc::new(AtomicBool::new(false));
        let giver = over.clone();
        let given = Arc::new(AtomicU64::new(0));
        let counted = given.clone();
        go_local(move || {
            while !giver.load(SeqCst) {
                if sender.try_send(1).is_ok() {
                    counted.fetch_add(1, SeqCst);
                }
                yield_now().unwrap();
            }
        });
        let mut got = 0;
        for _ in 0..20_000 * stress() {
            let limit = match chance.below(3) {
                0 => Duration::ZERO,
                1 => Duration::from_nanos(1),
                _ => chance.moment(),
            };
            got += select! { v = receiver.recv() => v.unwrap(), () = after(limit) => 0 }.unwrap();
        }
        over.store(true, SeqCst);
        assert_eq!(u64::from(got), given.load(SeqCst));
    });
}
